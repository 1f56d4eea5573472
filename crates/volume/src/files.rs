//! The volume as the vfs wants it: each call is one of the namespace or of the bytes, for the subvolume that is shown.

use std::sync::Arc;

use forebay_meta::{DirEntry, Inode, NewInode, Removed, RenameMode, SetAttr, SetXattr};
use forebay_types::{Coherence, Ino, Timespec};
use forebay_vfs::{By, Files, ReadPieces, Space, VfsError, Whence, Write};

use crate::{Volume, error::VolumeError};

impl From<VolumeError> for VfsError {
    fn from(error: VolumeError) -> VfsError {
        match error {
            VolumeError::Meta(error) => error.into(),
            VolumeError::ReadOnly => VfsError::ReadOnly,
            full if full.is_no_space() => VfsError::NoSpace(full.into()),
            other => VfsError::Failed(other.into()),
        }
    }
}

impl Files for Volume {
    fn inode(&self, ino: Ino) -> Result<Arc<Inode>, VfsError> {
        Ok(self.ns.inode(self.subvolume, ino)?)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Arc<Inode>, VfsError> {
        Ok(self.ns.lookup(self.subvolume, parent, name)?)
    }

    fn entries(
        &self,
        dir: Ino,
        after: Option<&[u8]>,
        limit: usize,
        inodes: bool,
    ) -> Result<Vec<DirEntry>, VfsError> {
        if inodes {
            return Ok(self.page_with_inodes(dir, after, limit)?);
        }
        Ok(self.ns.entries(self.subvolume, dir, after, limit)?)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>, VfsError> {
        Ok(self.ns.read_link(self.subvolume, ino)?)
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, VfsError> {
        Ok(self.ns.xattr(self.subvolume, ino, name)?)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, VfsError> {
        Ok(self.ns.xattrs(self.subvolume, ino)?)
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode) -> Result<Inode, VfsError> {
        Ok(self.ns.make(self.subvolume, parent, name, new)?)
    }

    fn make_nameless(&self, parent: Ino, new: &NewInode) -> Result<Inode, VfsError> {
        Ok(self.ns.make_nameless(self.subvolume, parent, new)?)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode, VfsError> {
        Ok(self.ns.link(self.subvolume, ino, parent, name)?)
    }

    fn unlink(&self, parent: Ino, name: &[u8], in_use: &dyn Fn(Ino) -> bool) -> Result<Removed, VfsError> {
        Ok(self.ns.unlink(self.subvolume, parent, name, in_use)?)
    }

    fn rmdir(&self, parent: Ino, name: &[u8], in_use: &dyn Fn(Ino) -> bool) -> Result<Removed, VfsError> {
        Ok(self.ns.rmdir(self.subvolume, parent, name, in_use)?)
    }

    fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Option<Removed>, VfsError> {
        Ok(self.ns.rename(self.subvolume, from, to, mode, in_use)?)
    }

    fn set_attr(&self, ino: Ino, set: &SetAttr) -> Result<Inode, VfsError> {
        Ok(self.set_attr(ino, set)?)
    }

    fn set_atime(&self, ino: Ino, atime: Timespec) -> Result<(), VfsError> {
        Ok(self.ns.set_atime(self.subvolume, ino, atime)?)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: SetXattr) -> Result<(), VfsError> {
        Ok(self.ns.set_xattr(self.subvolume, ino, name, value, mode)?)
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), VfsError> {
        Ok(self.ns.remove_xattr(self.subvolume, ino, name)?)
    }

    fn purge(&self, ino: Ino) {
        self.purge(ino);
    }

    fn seal(&self, ino: Ino) {
        let is_made = |inode: Arc<Inode>| inode.row.coherence == Coherence::Immutable && inode.row.size > 0;
        if self.ns.inode(self.subvolume, ino).is_ok_and(is_made)
            && let Err(error) = self.ns.seal(self.subvolume, &[ino])
        {
            tracing::warn!(%error, %ino, "a file of an immutable tree could not be sealed: it can still be written");
        }
    }

    fn opened_for_reading(&self, ino: Ino, size: u64) {
        self.opened_for_reading(ino, size);
    }

    fn read(&self, ino: Ino, offset: u64, len: u32) -> Result<ReadPieces, VfsError> {
        Ok(self.read(ino, offset, len)?)
    }

    /// Only this machine writes, so the end is where the kernel takes it to be.
    fn write(&self, ino: Ino, write: &Write<'_>) -> Result<u64, VfsError> {
        let offset = write.at.expected();
        self.write(ino, offset, write.data, write.by.attr)?;
        Ok(offset)
    }

    fn punch(&self, ino: Ino, from: u64, to: u64, size: Option<u64>, by: By) -> Result<(), VfsError> {
        self.punch(ino, from, to, size, by.attr)?;
        Ok(())
    }

    fn allocate(&self, ino: Ino, end: u64, by: By) -> Result<(), VfsError> {
        self.allocate(ino, end, by.attr)?;
        Ok(())
    }

    fn copy_range(&self, from: (Ino, u64), to: (Ino, u64), len: u64, by: By) -> Result<u64, VfsError> {
        Ok(self.copy_range(from, to, len, by.attr)?)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<Option<u64>, VfsError> {
        Ok(self.seek(ino, offset, whence)?)
    }

    /// One wait for the disk makes everything durable.
    fn sync_file(&self, _ino: Ino) -> Result<(), VfsError> {
        Ok(self.sync()?)
    }

    fn sync_all(&self) -> Result<(), VfsError> {
        Ok(self.sync()?)
    }

    fn space(&self) -> Result<Space, VfsError> {
        Ok(self.space()?)
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn block_size(&self) -> u32 {
        self.ns.block_size()
    }
}
