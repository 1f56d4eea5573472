//! The vfs's face of a shared volume.

use std::{sync::Arc, time::Duration};

use forebay_meta::{DirEntry, Inode, NewInode, Removed, RenameMode, SetAttr, SetXattr, WriteAttr};
use forebay_types::{Ino, Timespec};
use forebay_vfs::{Files, Locks, ReadPieces, Space, VfsError, Whence, Write};

use super::{SharedVolume, jobs::Job};

impl Files for SharedVolume {
    fn inode(&self, ino: Ino) -> Result<Arc<Inode>, VfsError> {
        self.core.inode(ino)
    }

    fn nameless(&self, ino: Ino) -> Option<Arc<Inode>> {
        let known = || self.core.desk.names.inode(ino).filter(|inode| inode.row.nlink == 0);
        self.core.opens.nameless(ino).or_else(known)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Arc<Inode>, VfsError> {
        self.core.lookup(parent, name)
    }

    fn entries(
        &self,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        inodes: bool,
    ) -> Result<Vec<DirEntry>, VfsError> {
        self.core.entries(dir, after, limit, inodes)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, VfsError> {
        self.core.read_link(ino)
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, VfsError> {
        self.core.xattr(ino, name)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, VfsError> {
        self.core.xattrs(ino)
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode) -> Result<Inode, VfsError> {
        self.core.make(parent, name, new)
    }

    fn make_nameless(&self, parent: Ino, new: &NewInode) -> Result<Inode, VfsError> {
        self.core.make_nameless(parent, new)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode, VfsError> {
        self.core.link(ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: &[u8], in_use: &dyn Fn(Ino) -> bool) -> Result<Removed, VfsError> {
        self.core.remove(parent, name, false, in_use)
    }

    fn rmdir(&self, parent: Ino, name: &[u8], in_use: &dyn Fn(Ino) -> bool) -> Result<Removed, VfsError> {
        self.core.remove(parent, name, true, in_use)
    }

    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Option<Removed>, VfsError> {
        self.core.rename(from, to, mode, in_use)
    }

    fn set_attr(&self, ino: Ino, set: &SetAttr) -> Result<Inode, VfsError> {
        self.core.set_attr(ino, set)
    }

    fn set_atime(&self, ino: Ino, atime: Timespec) -> Result<(), VfsError> {
        self.core.set_atime(ino, atime)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: SetXattr) -> Result<(), VfsError> {
        self.core.set_xattr(ino, name, value, mode)
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), VfsError> {
        self.core.remove_xattr(ino, name)
    }

    fn purge(&self, ino: Ino) {
        // The owner removes it once nobody has it open: it hears of that when the last handle is closed. Nobody reads what was kept back of it.
        self.core.bytes.discard(ino);
    }

    fn opened(&self, ino: Ino) {
        self.core.opens.opened(ino);
    }

    fn closed(&self, ino: Ino) {
        if self.core.opens.closed(ino) {
            self.core.jobs.put(Job::Release(ino));
        }
    }

    fn read(&self, ino: Ino, offset: u64, len: u32) -> Result<ReadPieces, VfsError> {
        self.core.read(ino, offset, len)
    }

    fn write(&self, ino: Ino, write: &Write<'_>) -> Result<u64, VfsError> {
        self.core.write(ino, write)
    }

    fn punch(
        &self,
        ino: Ino,
        from: u64,
        to: u64,
        size: Option<u64>,
        attr: WriteAttr,
    ) -> Result<(), VfsError> {
        self.core.punch(ino, (from, to), size, attr)
    }

    fn allocate(&self, ino: Ino, end: u64, attr: WriteAttr) -> Result<(), VfsError> {
        self.core.punch(ino, (0, 0), Some(end), attr)
    }

    fn copy_range(
        &self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        attr: WriteAttr,
    ) -> Result<u64, VfsError> {
        self.core.copy_range(from, to, len, attr)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<Option<u64>, VfsError> {
        self.core.seek(ino, offset, whence)
    }

    fn sync_file(&self, ino: Ino) -> Result<(), VfsError> {
        self.core.sync_file(ino)
    }

    fn sync_all(&self) -> Result<(), VfsError> {
        let settled = self.core.bytes.settle_all();
        Ok(settled.and(self.core.desk.ahead.settle_all())?)
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
        Some(self.core.desk.names.lifetime(ino))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(&self.core.locks)
    }
}
