//! The journal goes to the disk while it grows, also where nobody asks for that: otherwise the first `fsync` after much writing waits for all of it
//! at once, and so does everybody else's.

use std::sync::{
    Weak,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::{Condvar, Mutex};

use super::Task;
use crate::Volume;

/// Bytes of data in the journal that no sync was asked for, at which it is synced in the background.
const BEHIND_MAX: u64 = 16 << 20;

/// What was written since the last sync.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    bytes: AtomicU64,
    stopping: Mutex<bool>,
    wake: Condvar,
}

impl Behind {
    /// Says that a writer has brought bytes into the journal.
    pub(super) fn came(&self, bytes: u64) {
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        if before < BEHIND_MAX && before + bytes >= BEHIND_MAX {
            drop(self.stopping.lock());
            self.wake.notify_one();
        }
    }

    /// Says that a sync of all there is begins.
    pub(crate) fn begin(&self) {
        self.bytes.store(0, Ordering::Release);
    }

    pub(super) fn start(&self) {
        *self.stopping.lock() = false;
    }

    pub(super) fn stop(&self) {
        *self.stopping.lock() = true;
        self.wake.notify_all();
    }

    /// Waits until there is enough to sync; false: until it is to stop.
    fn wait(&self) -> bool {
        let mut stopping = self.stopping.lock();
        while !*stopping && self.bytes.load(Ordering::Acquire) < BEHIND_MAX {
            self.wake.wait(&mut stopping);
        }
        !*stopping
    }
}

/// Syncs what was written whenever it is much, until it is to stop or the volume is gone.
pub(super) fn run(volume: &Weak<Volume>, behind: &Behind) {
    while behind.wait() {
        let Some(volume) = volume.upgrade() else { return };
        behind.begin();
        match volume.sync_here() {
            Ok(()) => volume.upkeep.clear_trouble(Task::Flush),
            Err(error) => volume.upkeep.trouble(Task::Flush, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_meta::{NewInode, WriteAttr};
    use forebay_types::{FileKind, Ino};

    use super::*;
    use crate::{CreateOptions, OpenOptions, create};

    #[test]
    fn what_is_written_is_synced_though_nobody_asks() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        create(&root, &CreateOptions::default()).unwrap();
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let volume = Volume::open(&root, &options).unwrap();
        let new = NewInode {
            kind: FileKind::Regular,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: Vec::new(),
            xattrs: Vec::new(),
        };
        let ino = volume.ns.make(volume.subvolume, Ino::ROOT, b"file", &new).unwrap().ino;
        let write = |at: u64| volume.write(ino, at << 16, &[7; 1 << 16], WriteAttr::default()).unwrap();
        (0..255).for_each(|at| drop(write(at)));
        let (weak, behind) = (Arc::downgrade(&volume), Arc::clone(&volume.upkeep.behind));
        std::thread::scope(|scope| {
            scope.spawn(|| run(&weak, &behind));
            assert_eq!(volume.journal.syncs(), 0, "it is not much yet");
            write(255);
            let written = volume.ns.last();
            let before = std::time::Instant::now();
            while volume.journal.synced() < written && before.elapsed().as_secs() < 60 {
                std::thread::yield_now();
            }
            behind.stop();
            assert!(volume.journal.synced() >= written);
        });
    }

    #[test]
    fn much_is_waited_for_once() {
        let behind = Behind::default();
        behind.came(BEHIND_MAX - 1);
        behind.came(1);
        assert!(behind.wait());
        behind.begin();
        behind.stop();
        assert!(!behind.wait());
    }

    #[test]
    fn who_waits_is_woken() {
        let behind = Behind::default();
        std::thread::scope(|scope| {
            let woken = scope.spawn(|| behind.wait());
            behind.came(BEHIND_MAX / 2);
            behind.came(BEHIND_MAX);
            assert!(woken.join().unwrap());
        });
        behind.begin();
        std::thread::scope(|scope| {
            let woken = scope.spawn(|| behind.wait());
            behind.stop();
            assert!(!woken.join().unwrap());
        });
    }
}
