//! The root of the session, as the mount sees it.
//!
//! A token may show one directory of a volume. The owner and everything in this crate call inodes by their own numbers; a mount calls its root [`Ino::ROOT`], whatever
//! directory that is. The two numbers are exchanged here, and nowhere else: for whatever comes from the mount, and for whatever goes there. So the number of
//! the directory itself, should anybody ask the mount for it, means the volume's root, which the session does not see.

use std::sync::Arc;

use forebay_meta::{DirEntry, Inode, Removed};
use forebay_types::Ino;
use forebay_vfs::{
    KernelCaches, LockRange, LockRequest, LockSpace, LockWaiter, Locks, Through, Told, VfsError,
};

use super::core::Core;

/// The directory that is the root of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Root(pub(crate) Ino);

impl Root {
    /// The inode that the mount calls by this number, and the other way round.
    pub(crate) fn across(self, ino: Ino) -> Ino {
        match ino {
            Ino::ROOT => self.0,
            ino if ino == self.0 => Ino::ROOT,
            ino => ino,
        }
    }

    fn is_whole(self) -> bool {
        self.0 == Ino::ROOT
    }

    fn names(self, inode: &Inode) -> bool {
        let other = |ino| self.across(ino) != ino;
        other(inode.ino) || other(inode.row.parent)
    }

    /// An inode as the mount is told of it.
    pub(crate) fn out(self, mut inode: Inode) -> Inode {
        inode.ino = self.across(inode.ino);
        inode.row.parent = self.across(inode.row.parent);
        inode
    }

    /// The same of one that others know, too.
    pub(crate) fn shown(self, inode: Arc<Inode>) -> Arc<Inode> {
        if self.is_whole() || !self.names(&inode) { inode } else { Arc::new(self.out(Inode::clone(&inode))) }
    }

    pub(crate) fn removed(self, removed: Removed) -> Removed {
        Removed { inode: self.out(removed.inode), ..removed }
    }

    pub(crate) fn entries(self, mut entries: Vec<DirEntry>) -> Vec<DirEntry> {
        if !self.is_whole() {
            entries.iter_mut().for_each(|entry| entry.ino = self.across(entry.ino));
        }
        entries
    }

    /// The mount's copies, told of by the numbers of the volume.
    pub(crate) fn kernel(self, kernel: Arc<dyn KernelCaches>) -> Arc<dyn KernelCaches> {
        if self.is_whole() { kernel } else { Arc::new(Rooted { root: self, kernel }) }
    }
}

#[derive(Debug)]
struct Rooted {
    root: Root,
    kernel: Arc<dyn KernelCaches>,
}

impl KernelCaches for Rooted {
    fn drop_inode(&self, ino: Ino, attributes_only: bool) -> Told {
        self.kernel.drop_inode(self.root.across(ino), attributes_only)
    }

    fn drop_inodes(&self, inodes: &[Ino], names: bool) -> Told {
        let inodes: Vec<Ino> = inodes.iter().map(|ino| self.root.across(*ino)).collect();
        self.kernel.drop_inodes(&inodes, names)
    }

    fn drop_entries(&self, dir: Ino) -> Told {
        self.kernel.drop_entries(self.root.across(dir))
    }

    fn wait(&self, told: Told) {
        self.kernel.wait(told);
    }
}

/// The locks of the mount.
impl Locks for Core {
    fn conflict(&self, ino: Ino, request: &LockRequest) -> Result<Option<LockRange>, VfsError> {
        self.locks.conflict(self.root.across(ino), request)
    }

    fn set(&self, ino: Ino, request: LockRequest, wait: bool, waiter: Box<dyn LockWaiter>) {
        self.locks.set(self.root.across(ino), request, wait, waiter);
    }

    fn unlock(&self, ino: Ino, space: LockSpace, owner: u64, range: (u64, u64)) -> Result<(), VfsError> {
        self.locks.unlock(self.root.across(ino), space, owner, range)
    }

    fn release_owner(&self, ino: Ino, space: LockSpace, owner: u64) {
        self.locks.release_owner(self.root.across(ino), space, owner);
    }

    fn release_flock(&self, ino: Ino, owner: u64, fh: u64) {
        self.locks.release_flock(self.root.across(ino), owner, fh);
    }

    fn release_handle(&self, ino: Ino, fh: u64) {
        self.locks.release_handle(self.root.across(ino), fh);
    }

    fn refuse_lost(&self, ino: Ino, through: Through) -> Result<(), VfsError> {
        self.locks.refuse_lost(self.root.across(ino), through)
    }

    fn interrupt(&self, unique: u64) {
        self.locks.interrupt(unique);
    }

    fn waiting(&self) -> usize {
        self.locks.waiting()
    }
}
