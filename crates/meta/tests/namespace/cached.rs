//! What is answered from memory, and that it is what the rows say.

use std::{
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

use forebay_meta::{MemoryEngine, MetaError, RenameMode};
use forebay_types::{FileKind, Ino, SubvolumeId};

use crate::{
    name_ops::new_inode,
    world::{BLOCK, World},
};

const V: SubvolumeId = SubvolumeId::FIRST;
const ROOT: Ino = Ino::ROOT;
/// For a thread that has nothing to wait for.
const LONG: Duration = Duration::from_secs(60);

/// A world all of whose rows are in the engine, and nothing in memory.
fn stored(files: u32) -> World {
    let world = World::new(Arc::new(MemoryEngine::default()), 0);
    for number in 0..files {
        world.file(format!("{number:05}").as_bytes());
    }
    world.store();
    world.ns.empty_caches();
    world
}

impl World {
    /// How often `work` reads from the engine.
    fn reads(&self, work: impl FnOnce()) -> u64 {
        let before = self.engine.reads.load(Ordering::Relaxed);
        work();
        self.engine.reads.load(Ordering::Relaxed) - before
    }

    fn find(&self, name: &[u8]) -> Option<Ino> {
        match self.ns.lookup(V, ROOT, name) {
            Ok(inode) => Some(inode.ino),
            Err(MetaError::NotFound) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_name_is_read_once_whether_it_is_there_or_not() {
    let world = stored(1);
    assert!(world.reads(|| assert!(world.find(b"00000").is_some())) > 0);
    assert!(world.reads(|| assert_eq!(world.find(b"absent"), None)) > 0);
    assert_eq!(world.reads(|| assert!(world.find(b"00000").is_some())), 0);
    assert_eq!(world.reads(|| assert_eq!(world.find(b"absent"), None)), 0);
    // Who makes something has asked for it before.
    assert_eq!(world.reads(|| _ = world.file(b"absent")), 0);
    assert_eq!(world.reads(|| assert!(world.find(b"absent").is_some())), 0);
}

#[test]
fn a_name_that_was_moved_takes_no_room() {
    let world = stored(1);
    let file = world.find(b"00000");
    world.ns.rename(V, (ROOT, b"00000"), (ROOT, b"new"), RenameMode::Replace, &|_| false).unwrap();
    world.store();
    assert_eq!(world.reads(|| assert_eq!(world.find(b"new"), file)), 0);
    assert!(world.reads(|| assert_eq!(world.find(b"00000"), None)) > 0, "it is in memory as well");
    assert_eq!(world.reads(|| assert_eq!(world.find(b"00000"), None)), 0);
}

#[test]
fn nobody_asks_the_engine_for_names_that_a_directory_made_here_never_had() {
    let world = stored(1);
    let directory = world.ns.make(V, ROOT, b"directory", &new_inode(FileKind::Directory, 0o755)).unwrap().ino;
    let find = |parent, name: &[u8]| world.ns.lookup(V, parent, name).map(|inode| inode.ino);
    let make = |parent, name: &[u8]| world.ns.make(V, parent, name, &new_inode(FileKind::Regular, 0o644));
    let first = make(directory, b"first").unwrap().ino;
    assert_eq!(world.reads(|| drop(make(directory, b"second").unwrap())), 0);
    assert_eq!(world.reads(|| assert!(matches!(find(directory, b"third"), Err(MetaError::NotFound)))), 0);
    let moved = make(ROOT, b"moved").unwrap().ino;
    world.ns.rename(V, (ROOT, b"moved"), (directory, b"moved"), RenameMode::Replace, &|_| false).unwrap();
    world.store();
    // What it has been given is looked up whatever is in memory.
    world.ns.empty_caches();
    assert_eq!(find(directory, b"first").unwrap(), first);
    assert_eq!(find(directory, b"moved").unwrap(), moved);
    assert!(matches!(make(directory, b"second"), Err(MetaError::Exists)));
    world.ns.empty_caches();
    world.ns.unlink(V, directory, b"second", &|_| false).unwrap();
    world.ns.empty_caches();
    assert!(matches!(find(directory, b"second"), Err(MetaError::NotFound)));
    make(directory, b"second").unwrap();
}

#[test]
fn names_in_memory_are_found_during_somebody_elses_turn() {
    let world = stored(2);
    let (one, none) = (world.find(b"00001"), world.find(b"absent"));
    let (send, receive) = mpsc::channel();
    let ns = Arc::clone(&world.ns);
    let in_turn = |_: Ino| {
        let (send, ns) = (send.clone(), Arc::clone(&ns));
        thread::spawn(move || {
            let find = |name| ns.lookup(V, ROOT, name).map(|inode| inode.ino).ok();
            send.send((find(b"00001"), find(b"absent"))).unwrap();
        });
        assert_eq!(receive.recv_timeout(LONG), Ok((one, none)));
        false
    };
    world.ns.unlink(V, ROOT, b"00000", &in_turn).unwrap();
}

#[test]
fn every_change_of_a_name_is_seen() {
    let world = stored(2);
    let nobody = |_: Ino| false;
    let (zero, one) = (world.find(b"00000"), world.find(b"00001"));
    assert_eq!(world.find(b"new"), None);
    world.ns.link(V, zero.unwrap(), ROOT, b"new").unwrap();
    assert_eq!(world.find(b"new"), zero);
    world.ns.unlink(V, ROOT, b"new", &nobody).unwrap();
    assert_eq!(world.find(b"new"), None);
    world.ns.rename(V, (ROOT, b"00000"), (ROOT, b"new"), RenameMode::Replace, &nobody).unwrap();
    assert_eq!((world.find(b"00000"), world.find(b"new")), (None, zero));
    world.ns.rename(V, (ROOT, b"new"), (ROOT, b"00001"), RenameMode::Exchange, &nobody).unwrap();
    assert_eq!((world.find(b"00001"), world.find(b"new")), (zero, one));
    let directory = world.ns.make(V, ROOT, b"directory", &new_inode(FileKind::Directory, 0o755)).unwrap();
    assert_eq!(world.find(b"directory"), Some(directory.ino));
    assert!(matches!(world.ns.lookup(V, directory.ino, b"in it"), Err(MetaError::NotFound)));
    world.ns.rmdir(V, ROOT, b"directory", &nobody).unwrap();
    assert_eq!(world.find(b"directory"), None);
    assert!(matches!(world.ns.lookup(V, directory.ino, b"in it"), Err(MetaError::Stale(_))));
    let file = zero.unwrap();
    assert!(matches!(world.ns.lookup(V, file, b"in it"), Err(MetaError::NotDirectory(_))));
    assert!(matches!(world.ns.lookup(V, file, b"in it"), Err(MetaError::NotDirectory(_))));
}

#[test]
fn a_snapshot_does_not_show_what_is_in_memory() {
    let world = stored(1);
    let before = world.find(b"00000").unwrap();
    let frozen = world.ns.take_snapshot(V).unwrap();
    world.ns.unlink(V, ROOT, b"00000", &|_| false).unwrap();
    assert_eq!(world.find(b"00000"), None);
    let snapshot = world.ns.snapshot(V, frozen).unwrap();
    assert_eq!(snapshot.lookup(ROOT, b"00000").unwrap().ino, before);
    assert!(matches!(snapshot.lookup(ROOT, b"later"), Err(MetaError::NotFound)));
    world.file(b"later");
    assert!(world.find(b"later").is_some());
    assert!(matches!(snapshot.lookup(ROOT, b"later"), Err(MetaError::NotFound)));
}

#[test]
fn siblings_are_read_together() {
    let world = stored(1000);
    let entries = world.ns.entries(V, ROOT, None, 512).unwrap();
    let inodes = || entries.iter().map(|entry| entry.ino);
    let scans = world.reads(|| world.ns.prefetch_inodes(V, inodes()).unwrap());
    assert!(scans <= entries.len() as u64 / 100, "{scans} reads for {} inodes", entries.len());
    assert_eq!(
        world.reads(|| inodes().for_each(|ino| assert_eq!(world.ns.inode(V, ino).unwrap().ino, ino))),
        0
    );
    assert_eq!(world.reads(|| world.ns.prefetch_inodes(V, inodes()).unwrap()), 0);
    // A few far from each other are left to whoever asks for them.
    world.ns.empty_caches();
    assert_eq!(world.reads(|| world.ns.prefetch_inodes(V, inodes().step_by(100)).unwrap()), 0);
}

#[test]
fn siblings_read_together_are_as_they_are_now() {
    let world = stored(300);
    let entries = world.ns.entries(V, ROOT, None, 300).unwrap();
    world.ns.take_snapshot(V).unwrap();
    let (gone, changed) = (&entries[7], &entries[8]);
    world.ns.unlink(V, ROOT, &gone.name, &|_| false).unwrap();
    let mode = forebay_meta::SetAttr { mode: Some(0o600), ..forebay_meta::SetAttr::default() };
    world.ns.set_attr(V, changed.ino, &mode).unwrap();
    world.ns.empty_caches();
    world.ns.prefetch_inodes(V, entries.iter().map(|entry| entry.ino)).unwrap();
    assert!(matches!(world.ns.inode(V, gone.ino), Err(MetaError::Stale(_))));
    assert_eq!(world.ns.inode(V, changed.ino).unwrap().row.mode, 0o600);
    assert_eq!(world.ns.inode(V, entries[9].ino).unwrap().row.mode, 0o644);
    // Changing one that came from an older generation leaves that as it was.
    world.ns.set_attr(V, entries[9].ino, &mode).unwrap();
    assert_eq!(world.ns.inode(V, entries[9].ino).unwrap().row.mode, 0o600);
}

#[test]
fn a_map_in_parts_reads_no_more_rows_than_a_part_has() {
    let world = stored(1);
    let ino = world.find(b"00000").unwrap();
    let stream = world.ns.new_segment();
    let offsets: Vec<u64> = (0..64).map(|number| number * 2 * u64::from(BLOCK)).collect();
    world.put(ino, stream, &offsets, 4);
    world.store();
    let all = world.ns.map(V, ino, 0, u64::MAX).unwrap();
    assert_eq!(all.len(), 2 * offsets.len() - 1, "holes between them");
    for cached in [false, true] {
        let (mut at, mut parts) = (0, Vec::new());
        while at < all.len() {
            if !cached {
                world.ns.empty_caches();
            }
            let mut part = None;
            let reads = world.reads(|| part = world.ns.map_up_to(V, ino, all[at].offset, u64::MAX, 5).ok());
            let part = part.unwrap();
            assert!(part.len() == 5 || at + part.len() == all.len());
            assert!(reads < 16, "{reads}");
            at += part.len();
            parts.extend(part);
        }
        assert_eq!(parts, all.to_vec());
    }
}

#[test]
fn what_is_asked_for_many_times_is_read_ahead_once() {
    let world = stored(1);
    let ino = world.ns.lookup(V, ROOT, b"00000").unwrap().ino;
    world.ns.empty_caches();
    world.ns.read_ahead(V, &[ROOT, ino].repeat(1000), &[]).unwrap();
    let rows = world.engine.together.load(Ordering::Relaxed);
    assert_eq!(rows, 6, "three rows of each may be there");
}
