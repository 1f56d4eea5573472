//! The vfs over a real volume in a temporary directory, without a kernel.

#![allow(clippy::unwrap_used)]

mod acls;
mod attributes;
mod coherence;
mod contents;
mod listing;
mod nameless;
mod names;
mod squash;
mod takeover;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_env::{Clock, ManualClock};
use forebay_types::{Attr, FileKind, Ino};
use forebay_vfs::{AtimeMode, Caller, Open, ReadPiece, Vfs, VfsError, VfsOptions};
use forebay_volume::{CreateOptions, OpenOptions, Volume, create};

/// A volume in a directory of its own.
struct World {
    vfs: Vfs,
    volume: Arc<Volume>,
    clock: Arc<ManualClock>,
    dir: tempfile::TempDir,
}

const ROOT: Ino = Ino::ROOT;

fn user(uid: u32, gid: u32) -> Caller<'static> {
    Caller { uid, gid, in_group: &|_| false }
}

impl World {
    fn new() -> World {
        World::with(AtimeMode::Relative)
    }

    fn with(atime: AtimeMode) -> World {
        let dir = tempfile::tempdir().unwrap();
        create(&dir.path().join("volume"), &CreateOptions::default()).unwrap();
        World::opened(dir, atime)
    }

    fn opened(dir: tempfile::TempDir, atime: AtimeMode) -> World {
        let volume = Volume::open(&dir.path().join("volume"), &OpenOptions::default()).unwrap();
        let clock = Arc::new(ManualClock::default());
        // Access times come from a clock of the test that is far ahead of the namespace's.
        clock.advance_ns(3_000_000_000_000_000_000);
        let shared: Arc<dyn Clock> = clock.clone();
        World {
            vfs: Vfs::new(volume.clone(), VfsOptions { atime, clock: shared, ..VfsOptions::default() }),
            volume,
            clock,
            dir,
        }
    }

    /// Closes the volume and opens it again.
    fn again(self) -> World {
        let World { vfs, volume, dir, .. } = self;
        vfs.sync_all().unwrap();
        volume.close().unwrap();
        drop((vfs, volume));
        World::opened(dir, AtimeMode::Relative)
    }

    fn file(&self, parent: Ino, name: &str) -> Attr {
        self.vfs.mknod(parent, name.as_bytes(), (FileKind::Regular, 0o644, 0), 0, &Caller::ROOT).unwrap()
    }

    fn directory(&self, parent: Ino, name: &str) -> Attr {
        self.vfs.mkdir(parent, name.as_bytes(), 0o755, 0, &Caller::ROOT).unwrap()
    }

    fn open(&self, ino: Ino) -> u64 {
        self.vfs.open(ino, Open::default()).unwrap().fh
    }

    fn contents(&self, ino: Ino) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in self.vfs.read(ino, 0, 1 << 20, true).unwrap() {
            match piece {
                ReadPiece::Bytes(piece) => bytes.extend_from_slice(&piece),
                ReadPiece::Zeros(len) => bytes.resize(bytes.len() + len, 0),
            }
        }
        bytes
    }

    /// Whether the namespace still has the inode.
    fn is_kept(&self, ino: Ino) -> bool {
        self.volume.namespace().inode(self.volume.subvolume(), ino).is_ok()
    }
}

/// Waits until `condition` holds; what takes this long has failed.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(120), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, VfsError>, with: fn(&VfsError) -> bool) {
    match result {
        Err(error) if with(&error) => {}
        other => panic!("{other:?}"),
    }
}
