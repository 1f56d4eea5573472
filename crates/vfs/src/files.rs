//! Open files and their bytes.

use forebay_meta::MetaError;
use forebay_types::{FileKind, Ino, limits::file_size_max};
use forebay_volume::ReadPieces;

use crate::{
    attrs::SetAttr,
    error::VfsError,
    locks::LockSpace,
    setid::{self, Kill},
    vfs::Vfs,
    xattrs,
};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Open {
    /// For reading alone.
    pub read_only: bool,
    /// Access times stay as they are (`O_NOATIME`).
    pub no_atime: bool,
    /// To be emptied (`O_TRUNC`).
    pub truncate: bool,
    /// Emptying takes set-id bits away.
    pub kill: Kill,
}

/// An open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Its handle, never used again.
    pub fh: u64,
    /// Opening it changed the access time.
    pub accessed: bool,
}

impl Vfs {
    /// Opens a file that is no directory. It stays usable until [`Vfs::release`]. Opened for reading alone, a file that is not empty counts as
    /// read.
    ///
    /// # Errors
    /// [`VfsError::Stale`], [`VfsError::IsDirectory`].
    pub fn open(&self, ino: Ino, open: Open) -> Result<Opened, VfsError> {
        if open.truncate {
            self.writable()?;
        }
        if !self.open.open(ino) {
            return Err(VfsError::Stale(ino));
        }
        let opened = self.open_counted(ino, open);
        if opened.is_err() {
            self.close(ino);
        }
        opened
    }

    fn open_counted(&self, ino: Ino, open: Open) -> Result<Opened, VfsError> {
        let inode = self.inode(ino)?;
        if inode.is_directory() {
            return Err(VfsError::IsDirectory(ino));
        }
        if open.truncate && inode.row.kind == FileKind::Regular {
            self.setattr(ino, &SetAttr { size: Some(0), kill: open.kill, ..SetAttr::default() })?;
        }
        if open.read_only && inode.row.kind == FileKind::Regular {
            self.volume.opened_for_reading(ino, inode.row.size);
        }
        // Reads that are answered from the caller's cache are not seen here, so opening for reading is the access.
        let accessed = open.read_only && !open.no_atime && inode.row.size > 0 && self.accessed(&inode);
        Ok(Opened { fh: self.new_handle(), accessed })
    }

    pub(crate) fn close(&self, ino: Ino) {
        if self.open.close(ino) {
            self.settle_nameless(ino);
        }
    }

    /// A descriptor of an open file is closed: the record locks of its owner go.
    ///
    /// # Errors
    /// None today: a write that returned has been taken, and [`Vfs::fsync`] tells whether it lasts.
    pub fn flush(&self, ino: Ino, lock_owner: u64) -> Result<(), VfsError> {
        self.locks.release_owner(ino, LockSpace::Record, lock_owner);
        Ok(())
    }

    /// An open file ends, with what was locked through it; `flock_owner` is whose whole-file lock goes.
    pub fn release(&self, ino: Ino, fh: u64, flock_owner: Option<u64>) {
        if let Some(owner) = flock_owner {
            self.locks.release_owner(ino, LockSpace::Flock, owner);
        }
        self.locks.release_handle(ino, fh);
        self.close(ino);
    }

    /// `len` bytes from `offset` on, fewer at the end of the file.
    ///
    /// # Errors
    /// [`VfsError::Volume`] where they cannot be had or are not what was written; [`VfsError::Stale`].
    pub fn read(&self, ino: Ino, offset: u64, len: u32, no_atime: bool) -> Result<ReadPieces, VfsError> {
        let pieces = self.volume.read(ino, offset, len)?;
        if !no_atime {
            self.accessed(&*self.inode(ino)?);
        }
        Ok(pieces)
    }

    /// Writes `data` at `offset`; `kill`: set-id bits go. Returns how many bytes were taken: fewer only where the file cannot be larger.
    ///
    /// # Errors
    /// [`VfsError::TooLarge`], [`VfsError::Stale`], [`VfsError::Volume`]; nothing was written.
    pub fn write(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        kill: impl Into<Kill>,
    ) -> Result<usize, VfsError> {
        self.writable()?;
        if data.is_empty() {
            return Ok(0);
        }
        let max = file_size_max(self.ns.block_size());
        let room = max.checked_sub(offset).filter(|room| *room > 0).ok_or(VfsError::TooLarge(offset))?;
        let take = usize::try_from(room).map_or(data.len(), |room| room.min(data.len()));
        let attr = self.before_write(ino, kill.into())?;
        self.volume.write(ino, offset, &data[..take], attr)?;
        Ok(take)
    }

    /// Takes away what a change of the contents takes away, and says what becomes of the mode along with it.
    pub(crate) fn before_write(&self, ino: Ino, kill: Kill) -> Result<forebay_meta::WriteAttr, VfsError> {
        let inode = self.inode(ino)?;
        if inode.row.kind != FileKind::Regular {
            return Err(VfsError::Invalid("only a regular file has contents that can be written"));
        }
        if self.has_capability(&inode)? {
            match self.ns.remove_xattr(self.at, ino, xattrs::CAPABILITY) {
                Ok(()) | Err(MetaError::NoAttribute) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(setid::write_attr(&inode, kill))
    }

    /// Makes what was acknowledged of this file as durable as the volume's class promises.
    ///
    /// # Errors
    /// [`VfsError`]: what was not synced before may be lost.
    pub fn fsync(&self, ino: Ino) -> Result<(), VfsError> {
        if let Some(atime) = self.take_atime(ino) {
            self.write_atimes(vec![(ino, atime)]);
        }
        Ok(self.volume.sync()?)
    }
}
