//! Random operations of several clients, one after the other, against a model in memory.

use std::collections::{BTreeMap, BTreeSet};

use forebay_client::Settings;
use forebay_meta::{RenameMode, SetAttr};
use forebay_types::Ino;
use forebay_vfs::{Files, VfsError};

use super::world::{Client, World, file};

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn name(&mut self) -> String {
        format!("n{}", self.below(8))
    }
}

#[derive(Default)]
struct Model {
    names: BTreeMap<String, usize>,
    files: Vec<(Ino, Vec<u8>, u32)>,
    /// Which client has which file open.
    open: BTreeSet<(usize, usize)>,
    /// Which client has found which file by a name.
    found: BTreeSet<(usize, usize)>,
}

impl Model {
    fn check(&self, client: &Client, name: &str) {
        match self.names.get(name) {
            None => assert_eq!(client.find(name), None, "{name}"),
            Some(at) => {
                let (ino, bytes, links) = &self.files[*at];
                assert_eq!(client.find(name), Some(*ino), "{name}");
                let inode = client.volume.inode(*ino).unwrap();
                assert_eq!((inode.row.size, inode.row.nlink), (bytes.len() as u64, *links), "{name}");
                assert_eq!(client.read(*ino), *bytes, "{name}");
            }
        }
    }

    /// One of the files that a client has open.
    fn held(&self, who: usize, draw: &mut Draw) -> Option<usize> {
        let held: Vec<usize> = self.open.iter().filter(|(by, _)| *by == who).map(|(_, at)| *at).collect();
        (!held.is_empty()).then(|| held[draw.below(held.len() as u64) as usize])
    }

    fn has_open(&self, who: usize, ino: Ino) -> bool {
        self.open.iter().any(|(by, at)| *by == who && self.files[*at].0 == ino)
    }

    /// What is open is there, with a name or without.
    fn check_held(&self, client: &Client, at: usize) {
        let (ino, bytes, links) = &self.files[at];
        let inode = client.volume.inode(*ino).unwrap();
        assert_eq!((inode.row.size, inode.row.nlink), (bytes.len() as u64, *links), "{ino}");
        assert_eq!(client.read(*ino), *bytes, "{ino}");
    }

    fn write(&mut self, client: &Client, at: usize, draw: &mut Draw) {
        let (ino, bytes, _) = &mut self.files[at];
        let offset = draw.below(bytes.len() as u64 + 2000);
        let data = vec![draw.below(255) as u8 + 1; 1 + draw.below(4000) as usize];
        client.write(*ino, offset, &data);
        let end = offset as usize + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(&data);
    }

    fn lose(&mut self, name: &str) {
        if let Some(at) = self.names.remove(name) {
            self.files[at].2 -= 1;
        }
    }
}

#[allow(clippy::too_many_lines, reason = "one arm for each operation")]
fn step(model: &mut Model, (who, client): (usize, &Client), draw: &mut Draw) {
    let name = draw.name();
    let known = model.names.get(&name).copied();
    if let Some(at) = known.filter(|at| model.found.insert((who, *at))) {
        // A client comes to a file by a name: the number alone may be one that the owner was not told yet.
        assert_eq!(client.volume.lookup(Ino::ROOT, name.as_bytes()).unwrap().ino, model.files[at].0);
    }
    match (draw.below(16), known) {
        (0 | 1, known) => match (client.volume.make(Ino::ROOT, name.as_bytes(), &file()), known) {
            (Ok(inode), None) => {
                model.files.push((inode.ino, Vec::new(), 1));
                model.names.insert(name, model.files.len() - 1);
            }
            (Err(VfsError::Exists), Some(_)) => {}
            (made, _) => panic!("{made:?}"),
        },
        (2, Some(_)) => {
            client.volume.unlink(Ino::ROOT, name.as_bytes(), &|ino| model.has_open(who, ino)).unwrap();
            model.lose(&name);
        }
        (3, Some(at)) => {
            let to = draw.name();
            let (from, into) = ((Ino::ROOT, name.as_bytes()), (Ino::ROOT, to.as_bytes()));
            let in_use = |ino| model.has_open(who, ino);
            client.volume.rename(from, into, RenameMode::Replace, &in_use).unwrap();
            if model.names.get(&to) != Some(&at) {
                model.lose(&to);
                model.names.remove(&name);
                model.names.insert(to, at);
            }
        }
        (4, Some(at)) => {
            let to = draw.name();
            let (from, into) = ((Ino::ROOT, name.as_bytes()), (Ino::ROOT, to.as_bytes()));
            let moved = client.volume.rename(from, into, RenameMode::Exchange, &|_| false);
            match model.names.get(&to).copied() {
                None => assert!(matches!(moved, Err(VfsError::NotFound)), "{moved:?}"),
                Some(other) => {
                    moved.unwrap();
                    model.names.insert(name, other);
                    model.names.insert(to, at);
                }
            }
        }
        (5, Some(at)) => {
            let to = draw.name();
            let linked = client.volume.link(model.files[at].0, Ino::ROOT, to.as_bytes());
            match model.names.contains_key(&to) {
                true => assert!(matches!(linked, Err(VfsError::Exists)), "{linked:?}"),
                false => {
                    linked.unwrap();
                    model.files[at].2 += 1;
                    model.names.insert(to, at);
                }
            }
        }
        (6 | 7, Some(at)) => {
            model.write(client, at, draw);
        }
        (11 | 12, Some(at)) if model.open.insert((who, at)) => {
            // By its name, like a program: that another client has made it, nobody knows by its number before that client has told.
            assert_eq!(client.find(&name), Some(model.files[at].0), "{name}");
            client.volume.opened(model.files[at].0);
            model.check_held(client, at);
        }
        (13, _) => {
            if let Some(at) = model.held(who, draw) {
                model.write(client, at, draw);
            }
        }
        (14, _) => {
            if let Some(at) = model.held(who, draw) {
                let ino = model.files[at].0;
                model.open.remove(&(who, at));
                client.volume.closed(ino);
                if client.volume.nameless(ino).is_some() {
                    client.volume.purge(ino);
                }
            }
        }
        (8, Some(at)) => {
            let (ino, bytes, _) = &mut model.files[at];
            let data = vec![draw.below(255) as u8 + 1; 1 + draw.below(300) as usize];
            assert_eq!(client.append(*ino, &data), bytes.len() as u64);
            bytes.extend_from_slice(&data);
        }
        (9, Some(at)) => {
            let (ino, bytes, _) = &mut model.files[at];
            let size = draw.below(6000);
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            assert_eq!(client.volume.set_attr(*ino, &set).unwrap().row.size, size);
            bytes.resize(size as usize, 0);
        }
        (10, Some(at)) => {
            let (ino, bytes, _) = &mut model.files[at];
            let (from, to) = (draw.below(4000), 4000 + draw.below(1000));
            client.volume.punch(*ino, from, to, None, forebay_vfs::By::default()).unwrap();
            let end = bytes.len().min(to as usize);
            bytes[(from as usize).min(end)..end].fill(0);
        }
        (_, Some(at)) if draw.below(2) == 0 => client.volume.sync_file(model.files[at].0).unwrap(),
        _ => {
            let names: Vec<String> = model.names.keys().cloned().collect();
            assert_eq!(client.names(), names);
        }
    }
    for _ in 0..2 {
        let name = draw.name();
        model.check(client, &name);
    }
    if let Some(at) = model.held(who, draw) {
        model.check_held(client, at);
    }
}

/// `FOREBAY_SEEDS=100` runs as many; each takes some ten seconds.
#[test]
fn clients_agree_with_a_model() {
    let seeds = std::env::var("FOREBAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2);
    for seed in 1..=seeds {
        let world = World::new();
        let clients = ["one", "two", "three"].map(|name| {
            world.client_with(Settings { names: 10_000, ahead: seed % 2 == 1, ..Settings::of("v", name) })
        });
        let (mut model, mut draw) = (Model::default(), Draw(seed));
        for at in 0..500 {
            let who = draw.below(3) as usize;
            step(&mut model, (who, &clients[who]), &mut draw);
            if at % 50 == 25 {
                world.owner().unwrap().tidy().unwrap();
            }
            if at % 200 == 150 {
                world.kill();
                world.start();
            }
        }
        for client in &clients {
            (0..8).for_each(|at| model.check(client, &format!("n{at}")));
        }
    }
}
