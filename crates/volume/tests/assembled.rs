//! Assembled files: what is in them, what they may take, and when they leave.

#![allow(clippy::unwrap_used)]

use std::{os::unix::fs::FileExt, sync::Arc};

use forebay_meta::{NewInode, SetAttr, WriteAttr};
use forebay_types::{Encryption, FileKind, Ino, SubvolumeId};
use forebay_volume::{
    ASSEMBLED_MIN, AssembledLease, AssembledStatus, CreateOptions, OpenOptions, ReadPiece, Volume, create,
};

const MIB: usize = 1 << 20;

struct World {
    _dir: tempfile::TempDir,
    volume: Arc<Volume>,
}

impl World {
    fn new(capacity: usize) -> World {
        World::with(&CreateOptions::default(), &OpenOptions::default(), capacity)
    }

    fn with(made: &CreateOptions, open: &OpenOptions, capacity: usize) -> World {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        create(&root, made).unwrap();
        let options = OpenOptions { background: false, assembled_size: capacity as u64, ..open.clone() };
        let volume = Volume::open(&root, &options).unwrap();
        World { _dir: dir, volume }
    }

    fn make(&self, name: &str, bytes: &[u8]) -> Ino {
        let kind = FileKind::Regular;
        let new =
            NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: Vec::new(), xattrs: Vec::new() };
        let inode =
            self.volume.namespace().make(SubvolumeId::FIRST, Ino::ROOT, name.as_bytes(), &new).unwrap();
        self.write(inode.ino, 0, bytes);
        inode.ino
    }

    fn write(&self, ino: Ino, offset: u64, bytes: &[u8]) {
        self.volume.write(ino, offset, bytes, WriteAttr::default()).unwrap();
    }

    fn resize(&self, ino: Ino, size: u64) {
        self.volume.set_attr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
    }

    fn size(&self, ino: Ino) -> u64 {
        self.volume.namespace().inode(SubvolumeId::FIRST, ino).unwrap().row.size
    }

    /// Opened as often as it takes, then assembled, if it can be.
    fn assemble(&self, ino: Ino) -> bool {
        (0..2).for_each(|_| self.volume.opened_for_reading(ino, self.size(ino)));
        self.volume.assemble_round()
    }

    fn lease(&self, ino: Ino) -> AssembledLease {
        self.volume.lease_assembled(ino).unwrap()
    }

    fn status(&self) -> AssembledStatus {
        self.volume.assembled_status().unwrap()
    }

    /// That the assembled file is what reads give.
    fn check(&self, lease: &AssembledLease, ino: Ino) {
        let mut there = vec![0; self.size(ino) as usize + 1];
        let got = lease.plain().file().read_at(&mut there, 0).unwrap();
        there.truncate(got);
        assert!(there == self.read(ino), "{ino}");
    }

    fn read(&self, ino: Ino) -> Vec<u8> {
        let mut all = Vec::new();
        for piece in self.volume.read(ino, 0, self.size(ino) as u32).unwrap() {
            match piece {
                ReadPiece::Bytes(bytes) => all.extend_from_slice(&bytes),
                ReadPiece::Zeros(len) => all.resize(all.len() + len, 0),
            }
        }
        all
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 11 + index / 4093) as u8).collect()
}

#[test]
fn a_file_opened_twice_is_assembled_whole() {
    let world = World::new(16 * MIB);
    let ino = world.make("a", &pattern(3 * MIB + 9));
    let small = world.make("small", &pattern(ASSEMBLED_MIN as usize - 1));
    world.volume.opened_for_reading(ino, world.size(ino));
    assert!(!world.volume.assemble_round() && !world.volume.is_assembled(ino));
    assert!(world.assemble(ino) && !world.assemble(small));
    world.check(&world.lease(ino), ino);
    let status = world.status();
    assert_eq!((status.files, status.assembled, status.leased), (1, 1, 0));
    assert!(status.used_bytes >= 3 * MIB as u64);
}

#[test]
fn a_file_of_which_half_was_read_is_assembled() {
    let world = World::new(16 * MIB);
    let ino = world.make("a", &pattern(4 * MIB));
    for at in 0..2 {
        assert!(!world.volume.assemble_round());
        world.volume.read(ino, at * MIB as u64, MIB as u32).unwrap();
    }
    assert!(world.volume.assemble_round());
}

#[test]
fn every_change_reaches_a_leased_file() {
    let world = World::new(32 * MIB);
    let ino = world.make("a", &pattern(3 * MIB));
    let other = world.make("b", &vec![b'o'; 2 * MIB]);
    let tiny = world.make("c", b"tiny");
    assert!(world.assemble(ino));
    let lease = world.lease(ino);
    let volume = &world.volume;
    world.write(ino, 17, b"some bytes");
    world.write(ino, 4 * MIB as u64, &pattern(300_000));
    world.check(&lease, ino);
    volume.punch(ino, 1000, 700_000, None, WriteAttr::default()).unwrap();
    world.check(&lease, ino);
    volume.punch(ino, 0, 100, Some(6 * MIB as u64 + 1), WriteAttr::default()).unwrap();
    world.check(&lease, ino);
    assert_eq!(
        volume.copy_range((other, 5), (ino, 2_000_001), 1_800_000, WriteAttr::default()).unwrap(),
        1_800_000
    );
    world.check(&lease, ino);
    volume.copy_range((tiny, 0), (ino, 7 * MIB as u64), 4, WriteAttr::default()).unwrap();
    world.check(&lease, ino);
    volume.copy_range((ino, 4 * MIB as u64), (ino, 10), 250_000, WriteAttr::default()).unwrap();
    world.check(&lease, ino);
    for size in [2_500_000, 5, 9 * MIB as u64, 0, MIB as u64] {
        world.resize(ino, size);
        world.check(&lease, ino);
    }
    volume.allocate(ino, 3 * MIB as u64, WriteAttr::default()).unwrap();
    world.check(&lease, ino);
    assert_eq!(world.status().withdrawn, 0);
}

#[test]
fn a_change_withdraws_what_nobody_has() {
    let world = World::new(16 * MIB);
    let ino = world.make("a", &pattern(2 * MIB));
    assert!(world.assemble(ino));
    drop(world.lease(ino));
    world.write(ino, 5, b"x");
    assert!(!world.volume.is_assembled(ino) && world.volume.lease_assembled(ino).is_none());
    let status = world.status();
    assert_eq!((status.files, status.used_bytes, status.withdrawn), (0, 0, 1));
    assert!(world.assemble(ino));
    world.check(&world.lease(ino), ino);
}

#[test]
fn a_change_while_it_is_assembled_is_not_missed() {
    let world = World::new(32 * MIB);
    let ino = world.make("a", &pattern(6 * MIB));
    let mut kept = 0;
    for round in 0..20_u64 {
        (0..2).for_each(|_| world.volume.opened_for_reading(ino, world.size(ino)));
        std::thread::scope(|scope| {
            let assembling = scope.spawn(|| world.volume.assemble_round());
            let mut at = round;
            while round % 2 == 1 && !assembling.is_finished() {
                at = (at + 700_001) % (6 * MIB as u64);
                world.write(ino, at, &[round as u8; 3000]);
            }
            assembling.join().unwrap();
        });
        if let Some(lease) = world.volume.lease_assembled(ino) {
            kept += 1;
            world.check(&lease, ino);
            world.write(ino, round, b"seen");
            world.check(&lease, ino);
        }
        world.write(ino, 0, b"so that it leaves");
    }
    let status = world.status();
    assert!(kept > 0 && status.given_up > 0, "{kept} kept, {status:?}");
}

#[test]
fn the_budget_holds_and_leases_wait() {
    let world = World::new(7 * MIB);
    let inodes: Vec<Ino> = (0..4).map(|index| world.make(&index.to_string(), &pattern(3 * MIB))).collect();
    assert!(world.assemble(inodes[0]) && world.assemble(inodes[1]));
    let first = world.lease(inodes[0]);
    assert!(!world.assemble(inodes[2]), "used no more than those that are there");
    assert!(world.assemble(inodes[2]));
    assert!(world.volume.is_assembled(inodes[0]) && !world.volume.is_assembled(inodes[1]));
    let second = world.lease(inodes[2]);
    assert!(!world.assemble(inodes[3]) && !world.assemble(inodes[3]), "both are in use");
    assert!(world.status().used_bytes <= 7 * MIB as u64);
    // A writer may make one that is in use larger than there is room; then the next to leave goes.
    world.write(inodes[0], 3 * MIB as u64, &pattern(3 * MIB));
    world.check(&first, inodes[0]);
    drop((first, second));
    assert!(!world.assemble(inodes[3]), "not clearly more than the one that grew");
    assert!((0..20).any(|_| world.assemble(inodes[3])));
    let status = world.status();
    assert!(status.used_bytes <= 7 * MIB as u64 && status.evictions >= 2, "{status:?}");
}

#[test]
fn holes_take_no_room() {
    let world = World::new(64 * MIB);
    let ino = world.make("a", b"begin");
    world.write(ino, 30 * MIB as u64, &pattern(100_000));
    assert!(world.assemble(ino));
    world.check(&world.lease(ino), ino);
    assert!(world.status().used_bytes < 2 * MIB as u64);
}

#[test]
fn damage_is_found_told_and_mended() {
    let world = World::new(16 * MIB);
    let ino = world.make("a", &pattern(3 * MIB));
    assert!(world.assemble(ino));
    let lease = world.lease(ino);
    lease.plain().file().write_all_at(b"rot", 2 * MIB as u64 + 77).unwrap();
    for _ in 0..4 {
        world.volume.assemble_round();
    }
    assert_eq!(world.status().damaged, 1);
    assert!(!lease.is_current() && world.volume.lease_assembled(ino).is_none());
    world.check(&lease, ino);
    drop(lease);
    assert_eq!((world.status().files, world.assemble(ino)), (0, true));
}

#[test]
fn a_scrub_finds_nothing_where_nothing_is() {
    let world = World::new(16 * MIB);
    let ino = world.make("a", &pattern(2 * MIB));
    world.write(ino, 5 * MIB as u64, &pattern(100));
    assert!(world.assemble(ino));
    let lease = world.lease(ino);
    for round in 0..20_u64 {
        world.volume.assemble_round();
        world.write(ino, round * 400_000, &pattern(5000));
        world.volume.assemble_round();
        world.resize(ino, 6 * MIB as u64 - round * 100_000);
    }
    assert_eq!((world.status().damaged, lease.is_current()), (0, true));
    world.check(&lease, ino);
}

#[test]
fn what_is_removed_leaves_with_its_last_lease() {
    let world = World::new(16 * MIB);
    let ino = world.make("a", &pattern(2 * MIB));
    assert!(world.assemble(ino));
    let lease = world.lease(ino);
    world.volume.purge(ino);
    assert!(world.volume.lease_assembled(ino).is_none());
    assert_eq!(world.status().files, 1);
    drop(lease);
    assert_eq!((world.status().files, world.status().used_bytes), (0, 0));
}

#[test]
fn plain_text_of_an_encrypted_volume_is_kept_only_where_that_is_allowed() {
    let made = CreateOptions { encryption: Encryption::Aes256Gcm, ..CreateOptions::default() };
    let world = World::with(&made, &OpenOptions::default(), 16 * MIB);
    assert!(!world.volume.assembles());
    let allowed = OpenOptions { assemble_decrypted: true, ..OpenOptions::default() };
    let world = World::with(&made, &allowed, 16 * MIB);
    let ino = world.make("a", &pattern(2 * MIB));
    assert!(world.assemble(ino));
    world.check(&world.lease(ino), ino);
}

#[test]
fn nothing_of_it_has_a_name() {
    let world = World::new(16 * MIB);
    let ino = world.make("a", &pattern(2 * MIB));
    assert!(world.assemble(ino));
    let dir = world.volume.paths().root.join("assembled");
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0);
    world.volume.stop_assembling();
    assert_eq!(world.status().files, 0);
    assert!(!world.assemble(ino));
}

/// Small files, and room for so many of them.
fn trace(files: usize, room: usize) -> (World, Vec<Ino>) {
    const SIZE: usize = 16 << 10;
    let open = OpenOptions { assembled_min: SIZE as u64, ..OpenOptions::default() };
    let world = World::with(&CreateOptions::default(), &open, room * SIZE);
    let inodes = (0..files).map(|index| world.make(&index.to_string(), &pattern(SIZE))).collect();
    (world, inodes)
}

impl World {
    /// One use, and what the background makes of it. Whether it was of an assembled file.
    fn open_once(&self, ino: Ino) -> bool {
        let there = self.volume.is_assembled(ino);
        self.volume.opened_for_reading(ino, self.size(ino));
        self.volume.assemble_round();
        there
    }

    fn hits(&self, uses: impl Iterator<Item = Ino>) -> usize {
        uses.filter(|ino| self.open_once(*ino)).count()
    }
}

#[test]
fn files_read_in_turn_do_not_push_each_other_out() {
    let (world, inodes) = trace(12, 4);
    let cycles = 200;
    let hits = world.hits((0..cycles).flat_map(|_| inodes.iter().copied()));
    let status = world.status();
    assert_eq!((status.assembled, status.evictions), (4, 0), "{status:?}");
    assert_eq!(hits, (cycles - 2) * 4);
}

#[test]
fn what_is_used_clearly_more_gets_in() {
    let (world, inodes) = trace(8, 4);
    let (cold, hot) = inodes.split_at(4);
    world.hits((0..10).flat_map(|_| cold.iter().copied()));
    // Three uses of a hot one for each of a cold one.
    world.hits((0..40).flat_map(|_| hot.iter().chain(hot).chain(hot).chain(cold).copied()));
    assert!(hot.iter().all(|ino| world.volume.is_assembled(*ino)));
    let status = world.status();
    assert_eq!((status.assembled, status.evictions), (8, 4), "{status:?}");
}

#[test]
fn another_set_of_files_takes_the_place_of_one_that_is_no_longer_used() {
    let (world, inodes) = trace(8, 4);
    let (before, after) = inodes.split_at(4);
    world.hits((0..3000).flat_map(|_| before.iter().copied()));
    // Long used, and soon forgotten all the same.
    let uses = 3000;
    let hits = world.hits((0..uses).flat_map(|_| after.iter().copied()));
    assert!(hits > uses * 4 / 2, "{hits}");
    assert!(after.iter().all(|ino| world.volume.is_assembled(*ino)));
    assert_eq!(world.status().assembled, 8);
}

#[test]
fn a_skewed_trace_is_served_without_churn() {
    let (world, inodes) = trace(40, 8);
    let mut dice = 1_u64;
    let mut random = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) as f64 / (1_u64 << 31) as f64
    };
    // Of 40 files, the first 8 get about three uses in four.
    let uses: Vec<Ino> = (0..20_000).map(|_| inodes[(40.0 * random().powi(6)) as usize % 40]).collect();
    let hits = world.hits(uses.into_iter());
    let status = world.status();
    assert!(hits > 20_000 * 65 / 100, "{hits} hits, {status:?}");
    assert!(status.assembled < 40, "{status:?}");
}
