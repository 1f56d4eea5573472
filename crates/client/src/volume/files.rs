//! The vfs's face of a shared volume.

use std::{sync::Arc, time::Duration};

use forebay_meta::{DirEntry, Inode, NewInode, Removed, RenameMode, SetAttr, SetXattr};
use forebay_types::{Ino, Timespec};
use forebay_vfs::{By, Files, Locks, ReadPieces, Space, Through, VfsError, Whence, Write};

use super::{SharedVolume, jobs::Job};

impl SharedVolume {
    /// The inode that the mount calls so.
    fn own(&self, ino: Ino) -> Ino {
        self.core.root.across(ino)
    }

    /// An inode as the mount is told of it.
    fn out(&self, inode: Arc<Inode>) -> Arc<Inode> {
        self.core.root.shown(inode)
    }

    fn remove(
        &self,
        (parent, name): (Ino, &[u8]),
        directory: bool,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Removed, VfsError> {
        let in_use = |ino| in_use(self.own(ino));
        Ok(self.core.root.removed(self.core.remove(self.own(parent), name, directory, &in_use)?))
    }
}

impl Files for SharedVolume {
    fn inode(&self, ino: Ino) -> Result<Arc<Inode>, VfsError> {
        Ok(self.out(self.core.inode(self.own(ino))?))
    }

    fn nameless(&self, ino: Ino) -> Option<Arc<Inode>> {
        let own = self.own(ino);
        let known = || self.core.desk.names.inode(own).filter(|inode| inode.row.nlink == 0);
        self.core.opens.nameless(own).or_else(known).map(|inode| self.out(inode))
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Arc<Inode>, VfsError> {
        Ok(self.out(self.core.lookup_to_use(self.own(parent), name)?))
    }

    fn entries(
        &self,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        inodes: bool,
    ) -> Result<Vec<DirEntry>, VfsError> {
        Ok(self.core.root.entries(self.core.entries(self.own(dir), after, limit, inodes)?))
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, VfsError> {
        self.core.read_link(self.own(ino))
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, VfsError> {
        self.core.xattr(self.own(ino), name)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, VfsError> {
        self.core.xattrs(self.own(ino))
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode) -> Result<Inode, VfsError> {
        Ok(self.core.root.out(self.core.make(self.own(parent), name, new)?))
    }

    fn make_nameless(&self, parent: Ino, new: &NewInode) -> Result<Inode, VfsError> {
        Ok(self.core.root.out(self.core.make_nameless(self.own(parent), new)?))
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode, VfsError> {
        Ok(self.core.root.out(self.core.link(self.own(ino), self.own(parent), name)?))
    }

    fn unlink(&self, parent: Ino, name: &[u8], in_use: &dyn Fn(Ino) -> bool) -> Result<Removed, VfsError> {
        self.remove((parent, name), false, in_use)
    }

    fn rmdir(&self, parent: Ino, name: &[u8], in_use: &dyn Fn(Ino) -> bool) -> Result<Removed, VfsError> {
        self.remove((parent, name), true, in_use)
    }

    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Option<Removed>, VfsError> {
        let (from, to) = ((self.own(from.0), from.1), (self.own(to.0), to.1));
        let replaced = self.core.rename(from, to, mode, &|ino| in_use(self.own(ino)))?;
        Ok(replaced.map(|replaced| self.core.root.removed(replaced)))
    }

    fn set_attr(&self, ino: Ino, set: &SetAttr) -> Result<Inode, VfsError> {
        Ok(self.core.root.out(self.core.set_attr(self.own(ino), set, None)?))
    }

    fn set_attr_through(&self, ino: Ino, set: &SetAttr, through: Through) -> Result<Inode, VfsError> {
        Ok(self.core.root.out(self.core.set_attr(self.own(ino), set, Some(through))?))
    }

    fn set_atime(&self, ino: Ino, atime: Timespec) -> Result<(), VfsError> {
        self.core.set_atime(self.own(ino), atime)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: SetXattr) -> Result<(), VfsError> {
        self.core.set_xattr(self.own(ino), name, value, mode)
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), VfsError> {
        self.core.remove_xattr(self.own(ino), name)
    }

    fn purge(&self, ino: Ino) {
        // The owner removes it once nobody has it open: it hears of that when the last handle is closed here, and says whether it is gone. Until then others may
        // read what is kept back of it.
        self.core.bytes.forget(self.own(ino));
    }

    fn was_gone(&self) {
        self.core.opens.was_gone();
    }

    fn opened(&self, ino: Ino) {
        self.core.opens.opened(self.own(ino));
    }

    fn closed(&self, ino: Ino) {
        let ino = self.own(ino);
        if self.core.opens.closed(ino) {
            self.core.jobs.put(Job::Release(ino, self.core.desk.link.number()));
        }
    }

    fn seal(&self, ino: Ino) {
        if self.core.seals.closed(self.own(ino)) {
            self.core.jobs.put(Job::Seal);
        }
    }

    fn may_keep(&self, inode: &Inode) -> bool {
        self.core.bytes.may_be_on_disk(inode)
    }

    fn read(&self, ino: Ino, offset: u64, len: u32) -> Result<ReadPieces, VfsError> {
        self.core.read(self.own(ino), offset, len)
    }

    fn write(&self, ino: Ino, write: &Write<'_>) -> Result<u64, VfsError> {
        self.core.write(self.own(ino), write)
    }

    fn punch(&self, ino: Ino, from: u64, to: u64, size: Option<u64>, by: By) -> Result<(), VfsError> {
        self.core.punch(self.own(ino), (from, to), size, by)
    }

    fn allocate(&self, ino: Ino, end: u64, by: By) -> Result<(), VfsError> {
        self.core.punch(self.own(ino), (0, 0), Some(end), by)
    }

    fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64, by: By) -> Result<u64, VfsError> {
        self.core.copy_range((self.own(from.0), from.1), (self.own(to.0), to.1), len, by)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<Option<u64>, VfsError> {
        self.core.seek(self.own(ino), offset, whence)
    }

    fn sync_file(&self, ino: Ino) -> Result<(), VfsError> {
        self.core.sync_file(self.own(ino))
    }

    fn flush(&self, ino: Ino) -> Result<(), VfsError> {
        self.core.closed_once(self.own(ino))
    }

    fn sync_all(&self) -> Result<(), VfsError> {
        let patience = self.core.desk.link.patience();
        let settled = self.core.bytes.settle_all_within(&patience);
        Ok(settled.and(self.core.desk.ahead.settle_all_within(&patience))?)
    }

    fn space(&self) -> Result<Space, VfsError> {
        self.core.space()
    }

    fn read_only(&self) -> bool {
        self.core.read_only
    }

    fn block_size(&self) -> u32 {
        self.core.info.block_size
    }

    fn lifetime(&self, ino: Ino) -> Option<Duration> {
        self.core.desk.names.lifetime(self.own(ino))
    }

    fn name_lifetime(&self, parent: Ino, ino: Ino) -> Option<Duration> {
        self.core.desk.names.name_lifetime(self.own(parent), self.own(ino))
    }

    fn known_path(&self, ino: Ino) -> Option<Vec<u8>> {
        let (own, names) = (self.own(ino), &self.core.desk.names);
        let inode = names.inode(own).or_else(|| self.core.opens.seen(own))?;
        names.path_of(own, inode.row.parent, self.own(Ino::ROOT))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(self.core.as_ref())
    }
}
