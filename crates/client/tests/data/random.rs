//! Anything that may be done to files, against bytes in memory.

use forebay_client::{ContentsOptions, StoreCache};
use forebay_format::MasterKey;
use forebay_meta::{SetAttr, WriteAttr};
use forebay_types::{Compression, Ino};
use forebay_vfs::Whence;

use crate::world::{Client, Random, World, bytes};

const FILES: usize = 3;
const STEPS: u64 = 150;

struct Run {
    world: World,
    /// Two machines; each file has a client that has the lease.
    clients: [Client; 2],
    holder: [usize; FILES],
    inos: Vec<Ino>,
    models: Vec<Vec<u8>>,
    random: Random,
    trace: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let compression = [Compression::None, Compression::Lz4][(seed % 2) as usize];
        let world = World::with(compression);
        let options = || ContentsOptions {
            keys: vec![MasterKey::new(1, [9; 32])],
            key: seed.is_multiple_of(3).then(|| MasterKey::new(1, [9; 32])),
            batches: 1 + (seed % 4) as usize,
            cache: if seed.is_multiple_of(5) { StoreCache::Files } else { StoreCache::Memory(4 << 20) },
            ..world.options()
        };
        let clients = [world.client_with(options()), world.client_with(options())];
        let inos = (0..FILES).map(|_| world.make()).collect();
        let models = vec![Vec::new(); FILES];
        Run { world, clients, holder: [0; FILES], inos, models, random: Random(seed), trace: Vec::new() }
    }

    fn client(&self, file: usize) -> &Client {
        &self.clients[self.holder[file]]
    }

    /// Somewhere in a file, often near its start: what fits an inode's row is a case of its own.
    fn place(&mut self) -> u64 {
        let bound = [700, 3000, 300_000][self.random.below(3) as usize];
        self.random.below(bound)
    }

    fn write(&mut self, file: usize) {
        let at = self.place();
        let bound = [400, 9000, 200_000][self.random.below(3) as usize];
        let len = 1 + self.random.below(bound) as usize;
        let data = bytes(self.random.next(), len);
        self.trace.push(format!("write {file} {at}+{len}"));
        self.client(file).write(self.inos[file], at, &data);
        put(&mut self.models[file], at, &data);
    }

    fn resize(&mut self, file: usize) {
        let size = self.place();
        self.trace.push(format!("size {file} {size}"));
        self.client(file).set_attr(self.inos[file], &SetAttr { size: Some(size), ..SetAttr::default() });
        self.models[file].resize(size as usize, 0);
    }

    fn punch(&mut self, file: usize) {
        let from = self.place();
        let to = from + 1 + self.random.below(100_000);
        let grow = self.random.below(3) == 0;
        self.trace.push(format!("punch {file} {from}..{to} {grow}"));
        let client = self.client(file);
        let size = grow.then_some(to);
        client.contents.punch(self.inos[file], (from, to), size, WriteAttr::default(), None).unwrap();
        client.forget(self.inos[file]);
        let model = &mut self.models[file];
        if grow {
            model.resize(model.len().max(to as usize), 0);
        }
        let end = model.len().min(to as usize);
        let start = end.min(from as usize);
        model[start..end].fill(0);
    }

    fn copy(&mut self, file: usize) {
        let source = self.random.below(FILES as u64) as usize;
        if source == file {
            return;
        }
        self.give(source, self.holder[file]);
        let (from, to) = (self.place(), self.place());
        let len = 1 + self.random.below(100_000);
        self.trace.push(format!("copy {source} {from} to {file} {to}+{len}"));
        let client = self.client(file);
        let (ino, attr) = (self.inos[file], WriteAttr::default());
        let (copied, changed) =
            client.contents.copy_range((self.inos[source], from), (ino, to), len, attr).unwrap();
        if changed.is_some() {
            client.forget(ino);
        }
        let there = (self.models[source].len() as u64).saturating_sub(from);
        assert_eq!(copied, len.min(there));
        if copied > 0 {
            let data = self.models[source][from as usize..(from + copied) as usize].to_vec();
            put(&mut self.models[file], to, &data);
        }
    }

    /// The lease goes to another client.
    fn give(&mut self, file: usize, to: usize) {
        if self.holder[file] == to {
            return;
        }
        self.trace.push(format!("give {file} to {to}"));
        let client = self.client(file);
        client.settle(self.inos[file]);
        client.forget(self.inos[file]);
        self.holder[file] = to;
    }

    fn check(&mut self, file: usize) {
        let at = self.place();
        let len = 1 + self.random.below(150_000);
        self.trace.push(format!("read {file} {at}+{len}"));
        let model = &self.models[file];
        let (client, ino) = (self.client(file), self.inos[file]);
        assert_eq!(client.inode(ino).row.size, model.len() as u64);
        let end = model.len().min((at + len) as usize);
        let expected = &model[end.min(at as usize)..end];
        let found = client.read(ino, at, len as u32);
        assert_eq!(found.len(), expected.len());
        let wrong = found.iter().zip(expected).position(|(one, two)| one != two);
        assert_eq!(wrong, None, "the first wrong byte, from {at}");
    }

    fn seek(&mut self, file: usize) {
        let at = self.place();
        self.trace.push(format!("seek {file} {at}"));
        let (client, model) = (self.client(file), &self.models[file]);
        let inode = client.inode(self.inos[file]);
        let data = client.contents.seek(&inode, at, Whence::Data, &|| true).unwrap();
        let hole = client.contents.seek(&inode, at, Whence::Hole, &|| true).unwrap();
        assert_eq!(hole.is_some(), at < model.len() as u64);
        // All that is said to be a hole is zeros.
        let end = data.map_or(model.len(), |data| data as usize);
        let start = (at as usize).min(end);
        assert!(model[start..end].iter().all(|byte| *byte == 0));
    }

    fn step(&mut self) {
        let file = self.random.below(FILES as u64) as usize;
        match self.random.below(20) {
            0..=7 => self.write(file),
            8 => self.resize(file),
            9 => self.punch(file),
            10 => self.copy(file),
            11 | 12 => {
                self.trace.push(format!("settle {file}"));
                self.client(file).settle(self.inos[file]);
            }
            13 => {
                let to = self.random.below(2) as usize;
                self.give(file, to);
            }
            14 => {
                self.trace.push(format!("settle and forget {file}"));
                self.client(file).settle(self.inos[file]);
                self.client(file).forget(self.inos[file]);
            }
            15 => self.seek(file),
            _ => self.check(file),
        }
    }

    fn all(&mut self) {
        for _ in 0..STEPS {
            self.step();
        }
        for client in &self.clients {
            client.contents.settle_all().unwrap();
            assert_eq!(client.contents.stats().kept, 0);
        }
        for (ino, model) in self.inos.iter().zip(&self.models) {
            let client = &self.clients[0];
            client.forget(*ino);
            assert!(client.read_all(*ino) == *model, "inode {ino} differs in the end");
        }
        self.world.assert_accounted_for();
    }
}

fn put(model: &mut Vec<u8>, at: u64, data: &[u8]) {
    let at = at as usize;
    model.resize(model.len().max(at + data.len()), 0);
    model[at..at + data.len()].copy_from_slice(data);
}

#[test]
fn files_are_what_was_written() {
    let seeds: u64 = std::env::var("FOREBAY_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let mut run = Run::new(seed);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.all()));
        if let Err(panic) = ended {
            println!("seed {seed}:\n{}", run.trace.join("\n"));
            std::panic::resume_unwind(panic);
        }
    }
}
