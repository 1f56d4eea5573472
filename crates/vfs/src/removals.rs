//! Removed inodes that somebody may still ask about.
//!
//! The kernel goes on knowing an inode after its last name is gone (a working directory, an `O_PATH` descriptor, a `fstat` on its way). Its last
//! attributes are kept until the kernel forgets it. Who finds an inode gone waits for removals under way before looking here, so that there is
//! no moment at which it is in neither place.

use std::sync::Arc;

use forebay_meta::Inode;
use forebay_types::Ino;
use parking_lot::{RwLock, RwLockReadGuard};
use rustc_hash::FxHashMap;

/// Removed inodes.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    under_way: RwLock<()>,
    inodes: RwLock<FxHashMap<Ino, Arc<Inode>>>,
}

impl Ghosts {
    /// To be held from before an inode is removed until it is kept here.
    pub(crate) fn removing(&self) -> RwLockReadGuard<'_, ()> {
        self.under_way.read()
    }

    pub(crate) fn keep(&self, inode: Arc<Inode>) {
        self.inodes.write().insert(inode.ino, inode);
    }

    pub(crate) fn all(&self) -> Vec<Inode> {
        self.inodes.read().values().map(|inode| Inode::clone(inode)).collect()
    }

    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<Inode>> {
        drop(self.under_way.write());
        self.inodes.read().get(&ino).cloned()
    }

    pub(crate) fn forget(&self, ino: Ino) {
        if !self.inodes.read().is_empty() {
            self.inodes.write().remove(&ino);
        }
    }
}
