//! What is asked for again is answered without memory from the allocator: it may have to take a lock that all processors share, and
//! memory that is fresh costs page faults.

#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use forebay_types::{Attr, FileKind, Ino};
use forebay_vfs::{Caller, Open, ReadPiece, Vfs, VfsOptions};
use forebay_volume::{CreateOptions, OpenOptions, Volume, create};

const ROOT: Ino = Ino::ROOT;
const READING: Open =
    Open { read_only: true, no_atime: false, truncate: false, kill: forebay_vfs::Kill::Nothing };
/// More than one frame of bytes.
const LEN: usize = 200 << 10;

struct World {
    vfs: Vfs,
    file: Attr,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        create(&dir.path().join("volume"), &CreateOptions::default()).unwrap();
        let volume = Volume::open(&dir.path().join("volume"), &OpenOptions::default()).unwrap();
        let vfs = Vfs::new(volume, VfsOptions::default());
        let file = vfs.mknod(ROOT, b"file", (FileKind::Regular, 0o644, 0), 0, &Caller::ROOT).unwrap();
        let bytes: Vec<u8> = (0..LEN).map(|at| (at * at % 251) as u8).collect();
        vfs.write(file.ino, 0, &bytes, false).unwrap();
        vfs.sync_all().unwrap();
        World { vfs, file, _dir: dir }
    }

    fn read(&self, offset: u64) -> usize {
        let pieces = self.vfs.read(self.file.ino, offset, 4096, false).unwrap();
        pieces.iter().map(|piece| if let ReadPiece::Bytes(bytes) = piece { bytes.len() } else { 0 }).sum()
    }
}

/// Does it some times to have it warm, then once more, which must allocate nothing.
#[track_caller]
fn warm(mut work: impl FnMut()) {
    (0..4).for_each(|_| work());
    let used = measure(work);
    assert_eq!(used.count_total, 0, "{} bytes were allocated", used.bytes_total);
}

#[test]
fn a_stat_allocates_nothing() {
    let World { vfs, file, _dir } = &World::new();
    warm(|| assert_eq!(vfs.getattr(file.ino).unwrap().size, LEN as u64));
}

#[test]
fn a_look_up_allocates_nothing() {
    let World { vfs, file, _dir } = &World::new();
    warm(|| assert_eq!(vfs.lookup(ROOT, b"file").unwrap().ino, file.ino));
    warm(|| assert!(vfs.lookup(ROOT, b"absent").is_err()));
}

#[test]
fn an_open_and_its_close_allocate_nothing() {
    let World { vfs, file, _dir } = &World::new();
    warm(|| {
        let opened = vfs.open(file.ino, READING).unwrap();
        vfs.release(file.ino, opened.fh, None);
    });
}

#[test]
fn a_read_of_what_is_in_memory_allocates_nothing() {
    let world = World::new();
    let mut at = 0;
    warm(|| {
        at = (at + 4096) % 32_768;
        assert_eq!(world.read(at), 4096);
    });
}
