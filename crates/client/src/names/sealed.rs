//! Files of immutable trees that were closed: what is known of them stays true without a lease, in the next session too.

use std::sync::Arc;

use forebay_format::row::InodeRow;
use forebay_meta::Inode;
use forebay_types::{Coherence, FileKind, Ino};
use rustc_hash::FxHashMap;

/// Whether the contents of a file are final.
pub(crate) fn is_sealed(row: &InodeRow) -> bool {
    row.coherence == Coherence::Sealed && row.kind == FileKind::Regular
}

#[derive(Debug)]
struct Known {
    inode: Arc<Inode>,
    /// Since the last time that there was no room.
    used: bool,
}

/// Sealed files.
#[derive(Debug)]
pub(super) struct Sealed {
    known: FxHashMap<Ino, Known>,
    max: usize,
}

impl Sealed {
    /// `max`: how many are kept.
    pub(super) fn new(max: usize) -> Sealed {
        Sealed { known: FxHashMap::default(), max }
    }

    pub(super) fn get(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        let known = self.known.get_mut(&ino)?;
        known.used = true;
        Some(Arc::clone(&known.inode))
    }

    pub(super) fn has(&self, ino: Ino) -> bool {
        self.known.contains_key(&ino)
    }

    pub(super) fn put(&mut self, inode: Arc<Inode>) {
        if self.known.len() >= self.max {
            self.known.retain(|_, known| std::mem::take(&mut known.used));
        }
        if self.known.len() >= self.max {
            self.known.clear();
        }
        self.known.insert(inode.ino, Known { inode, used: true });
    }

    pub(super) fn forget(&mut self, ino: Ino) {
        self.known.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use forebay_format::row::Layout;
    use forebay_types::Timespec;

    use super::*;

    fn inode(ino: u64) -> Arc<Inode> {
        let time = Timespec { secs: 1, nanos: 0 };
        let row = InodeRow {
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 1,
            allocated: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            parent: Ino::ROOT,
            has_xattrs: false,
            has_cuts: false,
            coherence: Coherence::Sealed,
            policy: forebay_types::PolicyId::NONE,
            layout: Layout::Empty,
        };
        Arc::new(Inode::removed(Ino(ino), row, None))
    }

    #[test]
    fn what_nobody_has_asked_for_makes_room() {
        let mut sealed = Sealed::new(10);
        (0..10).for_each(|ino| sealed.put(inode(ino)));
        sealed.known.values_mut().for_each(|known| known.used = false);
        (0..5).for_each(|ino| assert!(sealed.get(Ino(ino)).is_some()));
        sealed.put(inode(10));
        assert!((0..11).all(|ino| sealed.has(Ino(ino)) != (5..10).contains(&ino)));
        (11..100).for_each(|ino| sealed.put(inode(ino)));
        assert!(sealed.known.len() <= 10 && sealed.has(Ino(99)));
    }
}
