//! One client makes much, and others look at it at every moment.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use forebay_client::Settings;
use forebay_meta::{RenameMode, SetAttr, SetTime};
use forebay_types::{Ino, Timespec};
use forebay_vfs::{Files, VfsError};

use super::world::{Client, World, directory, file};

/// Files, and how many a directory has.
const FILES: usize = 1500;
const EACH: usize = 25;

/// Numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

fn ahead(world: &Arc<World>, name: &str) -> Client {
    world.client_with(Settings { ahead: true, ..Settings::of("v", name) })
}

/// What the file with this number has: some fit into a row, some do not.
fn contents(at: usize) -> Vec<u8> {
    let len = [20, 900, 3000, 9000][at % 4] + at;
    (0..len).map(|byte| (byte + at) as u8).collect()
}

fn time(at: usize) -> Timespec {
    Timespec { secs: at as i64, nanos: 5 }
}

fn directory_of(at: usize) -> Vec<u8> {
    format!("d{}", at / EACH).into_bytes()
}

fn name_of(at: usize) -> Vec<u8> {
    format!("f{at}").into_bytes()
}

/// Makes one file as an archive's program does: some are written under another name and moved.
fn unpack_one(client: &Client, dir: Ino, at: usize) {
    let volume = &client.volume;
    let moves = at % 7 == 3;
    let name = if moves { b"new".to_vec() } else { name_of(at) };
    assert!(matches!(volume.lookup(dir, &name), Err(VfsError::NotFound)));
    let ino = volume.make(dir, &name, &file()).unwrap().ino;
    volume.opened(ino);
    for (number, piece) in contents(at).chunks(4096).enumerate() {
        client.write(ino, number as u64 * 4096, piece);
    }
    let set = SetAttr { mtime: Some(SetTime::To(time(at))), mode: Some(0o640), ..SetAttr::default() };
    assert_eq!(volume.set_attr(ino, &set).unwrap().row.size, contents(at).len() as u64);
    volume.closed(ino);
    if moves {
        let replaced = volume.rename((dir, &name), (dir, &name_of(at)), RenameMode::Replace, &|_| false);
        assert!(replaced.unwrap().is_none());
    }
}

/// What anybody sees of a file that is there since before.
fn check_one(client: &Client, top: Ino, at: usize) {
    let dir = client.volume.lookup(top, &directory_of(at)).unwrap().ino;
    let inode = client.volume.lookup(dir, &name_of(at)).unwrap();
    let (row, bytes) = (inode.row, contents(at));
    assert_eq!((row.size, row.mtime, row.mode), (bytes.len() as u64, time(at), 0o640), "file {at}");
    assert!(client.read(inode.ino) == bytes, "file {at}");
}

/// Looks at whatever there is: what is not known to be whole may be anything, and takes leases away all the same.
fn look_around(client: &Client, top: Ino, near: usize, draw: &mut Draw) {
    let Ok(dir) = client.volume.lookup(top, &directory_of(near)) else { return };
    match draw.below(3) {
        0 => drop(client.volume.lookup(dir.ino, &name_of(near))),
        1 => drop(client.volume.entries(dir.ino, None, 100, true).unwrap()),
        _ => {
            for entry in client.volume.entries(dir.ino, None, 100, true).unwrap() {
                match client.volume.inode(entry.ino) {
                    Ok(_) | Err(VfsError::Stale(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

#[test]
fn what_was_unpacked_is_whole_for_others_at_every_moment() {
    let seeds = std::env::var("FOREBAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2);
    for seed in 1..=seeds {
        watched(seed);
    }
}

/// Says that it is over, also where a check has failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn watched(seed: u64) {
    let world = World::new();
    let (writer, reader) = (ahead(&world, "writer"), ahead(&world, "reader"));
    writer.wire.delay_us.store([0, 200, 1000][seed as usize % 3], SeqCst);
    let top = writer.volume.make(Ino::ROOT, b"top", &directory()).unwrap().ino;
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let over = &over;
    std::thread::scope(|scope| {
        let end = Ends(over);
        for thread in 0..2 {
            let (reader, done) = (&reader, &done);
            scope.spawn(move || {
                let mut draw = Draw(seed * 10 + thread);
                let mut looks = 0;
                while !over.load(SeqCst) {
                    let whole = done.load(SeqCst);
                    if whole > 0 {
                        let back = if draw.below(2) == 0 { whole } else { whole.min(30) };
                        check_one(reader, top, whole - 1 - draw.below(back));
                    }
                    look_around(reader, top, whole, &mut draw);
                    looks += 1;
                    std::thread::sleep(Duration::from_micros(draw.below(3000) as u64));
                }
                assert!(looks > 10, "{looks}");
            });
        }
        let mut draw = Draw(seed);
        let mut dir = top;
        for at in 0..FILES {
            if at % EACH == 0 {
                dir = writer.volume.make(top, &directory_of(at), &directory()).unwrap().ino;
            }
            unpack_one(&writer, dir, at);
            done.store(at + 1, SeqCst);
            match draw.below(100) {
                0 => writer.volume.sync_all().unwrap(),
                1 => check_one(&writer, top, draw.below(at + 1)),
                _ => {}
            }
        }
        drop(end);
    });
    writer.volume.sync_all().unwrap();
    for at in 0..FILES {
        check_one(&reader, top, at);
    }
}
