//! Which inodes have open handles.

use forebay_types::Ino;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{handover::HeldOpen, shards::Shards};

#[derive(Clone, Copy, Debug, Default)]
struct OpenInode {
    handles: u32,
    /// Without a name since it was made, and may get one (`O_TMPFILE` without `O_EXCL`).
    linkable: bool,
}

/// A part of the inodes.
#[derive(Debug, Default)]
struct Part {
    open: FxHashMap<Ino, OpenInode>,
    retired: FxHashSet<Ino>,
}

/// Counts of handles by inode. An inode whose last handle closed while it had no name is *retired*: it can no longer be opened.
#[derive(Debug, Default)]
pub(crate) struct OpenInodes(Shards<Part>);

impl OpenInodes {
    /// Counts a handle; `first` is called if the inode has no other. False: the inode is retired, and nothing was counted.
    #[must_use]
    pub(crate) fn open(&self, ino: Ino, first: impl FnOnce()) -> bool {
        let mut part = self.0.of(ino).lock();
        if part.retired.contains(&ino) {
            return false;
        }
        let handles = &mut part.open.entry(ino).or_default().handles;
        if *handles == 0 {
            first();
        }
        *handles += 1;
        true
    }

    /// Takes a handle off. True: it was the last, and `last` was called.
    #[must_use]
    pub(crate) fn close(&self, ino: Ino, last: impl FnOnce()) -> bool {
        let mut part = self.0.of(ino).lock();
        let Some(open) = part.open.get_mut(&ino) else { return false };
        open.handles -= 1;
        if open.handles == 0 {
            part.open.remove(&ino);
            last();
            return true;
        }
        false
    }

    /// How many handles an inode has.
    pub(crate) fn handles_of(&self, ino: Ino) -> u32 {
        self.0.of(ino).lock().open.get(&ino).map_or(0, |open| open.handles)
    }

    pub(crate) fn is_open(&self, ino: Ino) -> bool {
        self.0.of(ino).lock().open.contains_key(&ino)
    }

    /// Retires an inode without a name unless it is open (again). True: it is retired now and was not before.
    #[must_use]
    pub(crate) fn retire(&self, ino: Ino) -> bool {
        let mut part = self.0.of(ino).lock();
        !part.open.contains_key(&ino) && part.retired.insert(ino)
    }

    /// Forgets that an inode was retired: it got a name after all, or the kernel no longer knows it.
    pub(crate) fn unretire(&self, ino: Ino) {
        self.0.of(ino).lock().retired.remove(&ino);
    }

    pub(crate) fn set_linkable(&self, ino: Ino) {
        if let Some(open) = self.0.of(ino).lock().open.get_mut(&ino) {
            open.linkable = true;
        }
    }

    /// The inode got a name: once that is gone, it gets no other.
    pub(crate) fn named(&self, ino: Ino) {
        if let Some(open) = self.0.of(ino).lock().open.get_mut(&ino) {
            open.linkable = false;
        }
        self.unretire(ino);
    }

    pub(crate) fn is_linkable(&self, ino: Ino) -> bool {
        self.0.of(ino).lock().open.get(&ino).is_some_and(|open| open.linkable)
    }

    /// The inodes that are open.
    pub(crate) fn held(&self) -> Vec<HeldOpen> {
        let mut held = Vec::new();
        for part in self.0.iter() {
            held.extend(part.lock().open.iter().map(|(ino, open)| HeldOpen {
                ino: *ino,
                handles: open.handles,
                linkable: open.linkable,
            }));
        }
        held
    }

    /// The inodes that can no longer be opened.
    pub(crate) fn retired(&self) -> Vec<Ino> {
        self.0.iter().flat_map(|part| part.lock().retired.iter().copied().collect::<Vec<_>>()).collect()
    }

    /// Puts in place what [`OpenInodes::held`] and [`OpenInodes::retired`] gave.
    pub(crate) fn restore(&self, held: Vec<HeldOpen>, retired: Vec<Ino>) {
        for HeldOpen { ino, handles, linkable } in held {
            self.0.of(ino).lock().open.insert(ino, OpenInode { handles, linkable });
        }
        for ino in retired {
            self.0.of(ino).lock().retired.insert(ino);
        }
    }

    pub(crate) fn handles(&self) -> u64 {
        let count = |part: &Part| part.open.values().map(|open| u64::from(open.handles)).sum::<u64>();
        self.0.iter().map(|part| count(&part.lock())).sum()
    }
}
