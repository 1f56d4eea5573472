//! Which inodes have open handles.

use forebay_types::Ino;
use parking_lot::{Mutex, RwLock};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::handover::HeldOpen;

const SHARDS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct OpenInode {
    handles: u32,
    /// Without a name since it was made, and may get one (`O_TMPFILE` without `O_EXCL`).
    linkable: bool,
}

/// Counts of handles by inode. An inode whose last handle closed while it had no name is *retired*: it can no longer be opened.
#[derive(Debug)]
pub(crate) struct OpenInodes {
    shards: Vec<Mutex<FxHashMap<Ino, OpenInode>>>,
    retired: RwLock<FxHashSet<Ino>>,
}

impl Default for OpenInodes {
    fn default() -> OpenInodes {
        OpenInodes { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), retired: RwLock::default() }
    }
}

impl OpenInodes {
    fn shard(&self, ino: Ino) -> &Mutex<FxHashMap<Ino, OpenInode>> {
        let at = (ino.0 ^ ino.0 >> 12) as usize % SHARDS;
        &self.shards[at]
    }

    /// Counts a handle. False: the inode is retired, and nothing was counted.
    #[must_use]
    pub(crate) fn open(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        if self.retired.read().contains(&ino) {
            return false;
        }
        shard.entry(ino).or_default().handles += 1;
        true
    }

    /// Takes a handle off. True: it was the last.
    #[must_use]
    pub(crate) fn close(&self, ino: Ino) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(open) = shard.get_mut(&ino) else { return false };
        open.handles -= 1;
        if open.handles == 0 {
            shard.remove(&ino);
            return true;
        }
        false
    }

    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }

    /// Retires an inode without a name unless it is open (again). True: it is retired now and was not before.
    #[must_use]
    pub(crate) fn retire(&self, ino: Ino) -> bool {
        let shard = self.shard(ino).lock();
        !shard.contains_key(&ino) && self.retired.write().insert(ino)
    }

    /// Forgets that an inode was retired: it got a name after all, or the kernel no longer knows it.
    pub(crate) fn unretire(&self, ino: Ino) {
        if !self.retired.read().is_empty() {
            self.retired.write().remove(&ino);
        }
    }

    pub(crate) fn set_linkable(&self, ino: Ino) {
        if let Some(open) = self.shard(ino).lock().get_mut(&ino) {
            open.linkable = true;
        }
    }

    /// The inode got a name: once that is gone, it gets no other.
    pub(crate) fn named(&self, ino: Ino) {
        if let Some(open) = self.shard(ino).lock().get_mut(&ino) {
            open.linkable = false;
        }
        self.unretire(ino);
    }

    pub(crate) fn is_linkable(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|open| open.linkable)
    }

    /// The inodes that are open.
    pub(crate) fn held(&self) -> Vec<HeldOpen> {
        let mut held = Vec::new();
        for shard in &self.shards {
            held.extend(shard.lock().iter().map(|(ino, open)| HeldOpen {
                ino: *ino,
                handles: open.handles,
                linkable: open.linkable,
            }));
        }
        held
    }

    /// The inodes that can no longer be opened.
    pub(crate) fn retired(&self) -> Vec<Ino> {
        self.retired.read().iter().copied().collect()
    }

    /// Puts in place what [`OpenInodes::held`] and [`OpenInodes::retired`] gave.
    pub(crate) fn restore(&self, held: Vec<HeldOpen>, retired: Vec<Ino>) {
        for HeldOpen { ino, handles, linkable } in held {
            self.shard(ino).lock().insert(ino, OpenInode { handles, linkable });
        }
        self.retired.write().extend(retired);
    }

    pub(crate) fn handles(&self) -> u64 {
        let count = |shard: &Mutex<FxHashMap<Ino, OpenInode>>| {
            shard.lock().values().map(|open| u64::from(open.handles)).sum::<u64>()
        };
        self.shards.iter().map(count).sum()
    }
}
