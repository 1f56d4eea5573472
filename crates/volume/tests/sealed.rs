//! Assembled files of a volume that servers keep: which there are, what is in them, and that they stay right. The files are a volume's on this machine, which knows sealed
//! files as well.

#![allow(clippy::unwrap_used)]

use std::{
    os::unix::fs::FileExt,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_meta::{NewInode, SetXattr, WriteAttr};
use forebay_types::{FileKind, Ino, SubvolumeId};
use forebay_vfs::{Files, Vfs, VfsOptions};
use forebay_volume::{AssembledStatus, CreateOptions, OpenOptions, SealedFiles, SealedLease, Volume, create};

const MIB: usize = 1 << 20;

struct World {
    dir: tempfile::TempDir,
    volume: Arc<Volume>,
    sealed: Arc<SealedFiles>,
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect()
}

impl World {
    fn new(capacity: usize) -> World {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        create(&root, &CreateOptions::default()).unwrap();
        let volume =
            Volume::open(&root, &OpenOptions { background: false, ..OpenOptions::default() }).unwrap();
        // What is made in an immutable directory is sealed when it is closed.
        let files: Arc<dyn Files> = Arc::clone(&volume) as _;
        let vfs = Vfs::new(Arc::clone(&files), VfsOptions::default());
        vfs.setxattr(Ino::ROOT, b"user.forebay.coherence", b"immutable", SetXattr::Any, false).unwrap();
        let sealed = SealedFiles::start(files, dir.path(), (capacity as u64, MIB as u64)).unwrap();
        World { dir, volume, sealed }
    }

    fn open_file(&self, name: &str, offset: usize, data: &[u8]) -> Ino {
        let (kind, target, xattrs) = (FileKind::Regular, Vec::new(), Vec::new());
        let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target, xattrs };
        let made = self.volume.namespace().make(SubvolumeId::FIRST, Ino::ROOT, name.as_bytes(), &new);
        let ino = made.unwrap().ino;
        self.volume.write(ino, offset as u64, data, WriteAttr::default()).unwrap();
        ino
    }

    fn file(&self, name: &str, data: &[u8]) -> Ino {
        let ino = self.open_file(name, 0, data);
        Files::seal(&*self.volume, ino);
        ino
    }

    fn size(&self, ino: Ino) -> u64 {
        self.volume.namespace().inode(SubvolumeId::FIRST, ino).unwrap().row.size
    }

    fn opened(&self, ino: Ino, times: usize) {
        (0..times).for_each(|_| self.sealed.opened(ino, self.size(ino)));
    }

    fn lease(&self, ino: Ino) -> SealedLease {
        self.opened(ino, 2);
        let mut lease = None;
        until("it is assembled", || {
            lease = self.sealed.lease(ino);
            lease.is_some()
        });
        lease.unwrap()
    }

    /// Waits until another file was assembled, which is done in turn.
    fn looked(&self, after: AssembledStatus) {
        until("it was looked at", || {
            let now = self.sealed.status();
            now.given_up + now.assembled > after.given_up + after.assembled
        });
    }

    fn status(&self) -> AssembledStatus {
        self.sealed.status()
    }
}

fn found(lease: &SealedLease) -> Vec<u8> {
    let file = lease.plain().file();
    let mut found = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut found, 0).unwrap();
    found
}

#[test]
fn what_is_final_large_and_opened_twice_is_assembled_once() {
    let world = World::new(64 * MIB);
    let data = bytes(1, 3 * MIB + 77);
    let ino = world.file("a", &data);
    assert!(world.sealed.lease(ino).is_none());
    let lease = world.lease(ino);
    assert!(found(&lease) == data);
    assert!(lease.is_current());
    let sparse = {
        let ino = world.open_file("sparse", 5 * MIB, &bytes(2, 1000));
        Files::seal(&*world.volume, ino);
        world.lease(ino)
    };
    assert!(found(&sparse)[..5 * MIB].iter().all(|byte| *byte == 0));
    assert!(found(&sparse)[5 * MIB..] == bytes(2, 1000));
    assert!(world.status().used_bytes < 4 * MIB as u64, "holes are holes: {:?}", world.status());
    // Those that are not: small, or not closed yet; a word that they are does not make them so.
    let (small, open) =
        (world.file("small", &bytes(3, 1000)), world.open_file("open", 0, &bytes(4, 2 * MIB)));
    world.opened(small, 4);
    world.sealed.opened(open, 2 * MIB as u64);
    world.sealed.opened(open, 2 * MIB as u64);
    let before = world.status();
    let last = world.file("last", &bytes(5, MIB));
    let _last = world.lease(last);
    world.looked(before);
    assert!(world.sealed.lease(small).is_none() && world.sealed.lease(open).is_none());
    assert_eq!(world.status().files, 3);
    // Nothing has a name.
    assert_eq!(std::fs::read_dir(world.dir.path().join("assembled")).unwrap().count(), 0);
}

#[test]
fn files_leave_for_others_that_save_more_and_stay_while_they_are_leased() {
    let world = World::new(5 * MIB);
    let files: Vec<Ino> =
        (0..4).map(|number| world.file(&format!("{number}"), &bytes(number, 2 * MIB))).collect();
    let kept = world.lease(files[0]);
    drop(world.lease(files[1]));
    // It saves about as much as what is there.
    world.opened(files[2], 2);
    // And this one more.
    world.opened(files[3], 12);
    let lease = world.lease(files[3]);
    assert!(found(&lease) == bytes(3, 2 * MIB) && found(&kept) == bytes(0, 2 * MIB));
    assert!(world.sealed.lease(files[1]).is_none() && world.sealed.lease(files[2]).is_none());
    let status = world.status();
    assert!(status.used_bytes <= 5 * MIB as u64 && status.evictions == 1, "{status:?}");
}

#[test]
fn bytes_that_the_disk_changed_are_read_again_and_nobody_else_gets_the_file() {
    let world = World::new(64 * MIB);
    let data = bytes(7, 3 * MIB);
    let ino = world.file("a", &data);
    let lease = world.lease(ino);
    lease.plain().file().write_all_at(b"others", 2 * MIB as u64 + 5).unwrap();
    until("the damage is found and mended", || world.status().damaged == 1 && found(&lease) == data);
    assert!(!lease.is_current() && world.sealed.lease(ino).is_none());
    drop(lease);
    assert!(found(&world.lease(ino)) == data, "it is assembled anew");
}

#[test]
fn what_ends_lets_go() {
    let world = World::new(64 * MIB);
    let (one, two) = (world.file("a", &bytes(1, MIB)), world.file("b", &bytes(2, MIB)));
    let kept = world.lease(one);
    drop(world.lease(two));
    world.sealed.stop();
    assert!(found(&kept) == bytes(1, MIB));
    assert!(world.sealed.lease(two).is_none());
    world.opened(two, 5);
    assert_eq!(world.status().files, 1);
}
