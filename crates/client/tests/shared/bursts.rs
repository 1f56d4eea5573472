//! Clients that work alone in some directories for a while, one after the other, against a model in memory: what waits to be told, and every way out of a
//! delegated directory, while owners are lost and answers too.

use std::{collections::BTreeMap, sync::atomic::Ordering::SeqCst};

use forebay_client::Settings;
use forebay_meta::{RenameMode, SetAttr, SetXattr};
use forebay_types::Ino;
use forebay_vfs::{Files, VfsError};

use super::world::{Client, World, directory, file};

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn place(&mut self) -> Place {
        (self.below(3) as usize, format!("n{}", self.below(6)))
    }
}

/// One of the directories, and a name.
type Place = (usize, String);

struct Known {
    ino: Ino,
    bytes: Vec<u8>,
    mode: u16,
    links: u32,
    value: Option<Vec<u8>>,
}

struct Model {
    dirs: [Ino; 3],
    names: BTreeMap<Place, usize>,
    files: Vec<Known>,
}

impl Model {
    fn at<'a>(&self, place: &'a Place) -> (Ino, &'a [u8]) {
        (self.dirs[place.0], place.1.as_bytes())
    }

    fn lose(&mut self, place: &Place) {
        if let Some(at) = self.names.remove(place) {
            self.files[at].links -= 1;
        }
    }

    fn check(&self, client: &Client, place: &Place) {
        let (dir, name) = self.at(place);
        let found = client.volume.lookup(dir, name);
        let Some(known) = self.names.get(place).map(|at| &self.files[*at]) else {
            assert!(matches!(found, Err(VfsError::NotFound)), "{place:?}: {found:?}");
            return;
        };
        let row = found.unwrap().row;
        assert_eq!(client.volume.lookup(dir, name).unwrap().ino, known.ino, "{place:?}");
        let expected = (known.bytes.len() as u64, known.mode, known.links);
        assert_eq!((row.size, row.mode, row.nlink), expected, "{place:?}");
        match (client.volume.xattr(known.ino, b"user.a"), &known.value) {
            (Ok(value), Some(known)) => assert_eq!(value, *known, "{place:?}"),
            (Err(VfsError::NoAttribute), None) => {}
            (found, known) => panic!("{place:?}: {found:?} for {known:?}"),
        }
        assert!(client.read(known.ino) == known.bytes, "{place:?}");
    }

    fn check_listing(&self, client: &Client, dir: usize, inodes: bool) {
        let listed = client.volume.entries(self.dirs[dir], None, 100, inodes).unwrap();
        let listed: Vec<String> =
            listed.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect();
        let listed: Vec<String> = listed.into_iter().filter(|name| name.starts_with('n')).collect();
        let known = self.names.keys().filter(|(of, _)| *of == dir).map(|(_, name)| name.clone());
        assert_eq!(listed, known.collect::<Vec<String>>());
    }
}

fn make(model: &mut Model, client: &Client, place: Place) {
    let (dir, name) = model.at(&place);
    match (client.volume.make(dir, name, &file()), model.names.contains_key(&place)) {
        (Ok(inode), false) => {
            let known = Known { ino: inode.ino, bytes: Vec::new(), mode: 0o644, links: 1, value: None };
            model.files.push(known);
            model.names.insert(place, model.files.len() - 1);
        }
        (Err(VfsError::Exists), true) => {}
        (made, _) => panic!("{made:?}"),
    }
}

fn rename(model: &mut Model, client: &Client, from: &Place, to: Place, mode: RenameMode) {
    let moved = client.volume.rename(model.at(from), model.at(&to), mode, &|_| false);
    let (at, taken) = (model.names[from], model.names.get(&to).copied());
    match (mode, taken) {
        (RenameMode::NoReplace, Some(_)) => {
            return assert!(matches!(moved, Err(VfsError::Exists)), "{moved:?}");
        }
        (RenameMode::Exchange, None) => {
            return assert!(matches!(moved, Err(VfsError::NotFound)), "{moved:?}");
        }
        _ => drop(moved.unwrap()),
    }
    match taken {
        Some(taken) if taken == at => {}
        Some(taken) if mode == RenameMode::Exchange => {
            model.names.insert(from.clone(), taken);
            model.names.insert(to, at);
        }
        _ => {
            model.lose(&to);
            model.names.remove(from);
            model.names.insert(to, at);
        }
    }
}

fn link(model: &mut Model, client: &Client, at: usize, to: Place) {
    let (dir, name) = model.at(&to);
    match (client.volume.link(model.files[at].ino, dir, name), model.names.contains_key(&to)) {
        (Ok(inode), false) => {
            assert_eq!(inode.row.size, model.files[at].bytes.len() as u64);
            model.files[at].links += 1;
            model.names.insert(to, at);
        }
        (Err(VfsError::Exists), true) => {}
        (linked, _) => panic!("{linked:?}"),
    }
}

/// Something is done to a file.
fn change(known: &mut Known, client: &Client, draw: &mut Draw) {
    let ino = known.ino;
    let data = vec![draw.below(255) as u8 + 1; 1 + draw.below(3000) as usize];
    match draw.below(8) {
        0 | 1 => {
            let offset = draw.below(known.bytes.len() as u64 + 500) as usize;
            client.write(ino, offset as u64, &data);
            known.bytes.resize(known.bytes.len().max(offset + data.len()), 0);
            known.bytes[offset..offset + data.len()].copy_from_slice(&data);
        }
        2 => {
            assert_eq!(client.append(ino, &data), known.bytes.len() as u64);
            known.bytes.extend_from_slice(&data);
        }
        3 | 4 => {
            let size = if draw.below(2) == 0 { 0 } else { draw.below(4000) };
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            assert_eq!(client.volume.set_attr(ino, &set).unwrap().row.size, size);
            known.bytes.resize(size as usize, 0);
        }
        5 => {
            known.mode = 0o600 + draw.below(64) as u16;
            let set = SetAttr { mode: Some(known.mode), ..SetAttr::default() };
            assert_eq!(client.volume.set_attr(ino, &set).unwrap().row.size, known.bytes.len() as u64);
        }
        6 => {
            client.volume.set_xattr(ino, b"user.a", &data, SetXattr::Any).unwrap();
            known.value = Some(data);
        }
        _ => match (client.volume.remove_xattr(ino, b"user.a"), known.value.take()) {
            (Ok(()), Some(_)) | (Err(VfsError::NoAttribute), None) => {}
            (removed, value) => panic!("{removed:?} of {value:?}"),
        },
    }
}

fn step(model: &mut Model, client: &Client, draw: &mut Draw) {
    let place = draw.place();
    let known = model.names.get(&place).copied();
    if known.is_some() {
        // As the kernel does it: what is known by its number alone, the owner may not have been told of.
        let (dir, name) = model.at(&place);
        client.volume.lookup(dir, name).unwrap();
    }
    match (draw.below(14), known) {
        (0..=3, _) => make(model, client, place),
        (4, Some(_)) => {
            let (dir, name) = model.at(&place);
            client.volume.unlink(dir, name, &|_| false).unwrap();
            model.lose(&place);
        }
        (5 | 6, Some(_)) => {
            let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
            let mode = modes[draw.below(3) as usize];
            rename(model, client, &place, draw.place(), mode);
        }
        (7, Some(at)) => link(model, client, at, draw.place()),
        (8, Some(at)) => client.volume.sync_file(model.files[at].ino).unwrap(),
        (9, _) if draw.below(4) == 0 => client.volume.sync_file(model.dirs[place.0]).unwrap(),
        (9, _) => model.check_listing(client, place.0, draw.below(2) == 0),
        (_, Some(at)) => change(&mut model.files[at], client, draw),
        _ => make(model, client, place),
    }
    let place = draw.place();
    if draw.below(3) == 0 {
        model.check(client, &place);
    }
}

fn run(seed: u64) {
    let world = World::new();
    let clients = ["one", "two"]
        .map(|name| world.client_with(Settings { ahead: true, names: 10_000, ..Settings::of("v", name) }));
    let dirs = [Ino::ROOT, Ino::ROOT, Ino::ROOT];
    let (mut model, mut draw) = (Model { dirs, names: BTreeMap::new(), files: Vec::new() }, Draw(seed));
    let mut inner = Ino::ROOT;
    for (at, name) in [&b"a"[..], b"b", b"c"].into_iter().enumerate() {
        // Beside each other, and one in the other.
        inner =
            clients[0].volume.make(if at == 1 { Ino::ROOT } else { inner }, name, &directory()).unwrap().ino;
        model.dirs[at] = inner;
    }
    clients[0].volume.sync_all().unwrap();
    for burst in 0..30 {
        let client = &clients[draw.below(2) as usize];
        client.wire.delay_us.store(draw.below(3) * 500, SeqCst);
        client.wire.loses.store(u32::from(draw.below(3) == 0), SeqCst);
        let takeover = burst % 10 == 7;
        for at in 0..1 + draw.below(60) {
            if takeover && at == 20 {
                world.kill();
                world.start();
            }
            step(&mut model, client, &mut draw);
        }
        client.wire.loses.store(0, SeqCst);
        for _ in 0..4 {
            let place = draw.place();
            let other = &clients[draw.below(2) as usize];
            model.check(other, &place);
            model.check_listing(other, place.0, draw.below(2) == 0);
        }
    }
    for client in &clients {
        client.volume.sync_all().unwrap();
        for dir in 0..3 {
            (0..6).for_each(|at| model.check(client, &(dir, format!("n{at}"))));
        }
    }
}

/// `FOREBAY_SEEDS=100` runs as many; each takes some seconds.
#[test]
fn who_works_alone_for_a_while_leaves_what_a_model_says() {
    let seeds = std::env::var("FOREBAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(3);
    (1..=seeds).for_each(run);
}
