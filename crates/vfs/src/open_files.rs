//! Open files and their bytes.

use forebay_meta::{Inode, MetaError};
use forebay_types::{Coherence, FileKind, Ino, limits::file_size_max};

use crate::{
    attrs::SetAttr,
    error::VfsError,
    files::{By, ReadPieces, Through, Write, WriteAt},
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
    /// How long the file is, where it was opened for reading alone and its contents are final.
    pub sealed: Option<u64>,
}

/// What goes with a change of contents that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// Set-id bits that go.
    pub kill: Kill,
    /// The open file through which it is asked.
    pub through: Option<Through>,
}

impl From<Kill> for Asked {
    fn from(kill: Kill) -> Asked {
        Asked { kill, through: None }
    }
}

impl From<bool> for Asked {
    fn from(kill: bool) -> Asked {
        Kill::from(kill).into()
    }
}

/// What became of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Where its bytes are.
    pub offset: u64,
    /// How many were taken.
    pub len: usize,
}

/// Whether the contents may still change.
fn unsealed(inode: &Inode) -> Result<(), VfsError> {
    let sealed = inode.row.coherence == Coherence::Sealed;
    if sealed { Err(MetaError::Sealed(inode.ino).into()) } else { Ok(()) }
}

impl Vfs {
    /// Opens a file that is no directory. It stays usable until [`Vfs::release`]. Opened for reading alone, a file that is not empty counts as
    /// read.
    ///
    /// # Errors
    /// [`VfsError::Stale`], [`VfsError::IsDirectory`]; [`MetaError::Sealed`] for writing what is immutable.
    pub fn open(&self, ino: Ino, open: Open) -> Result<Opened, VfsError> {
        if open.truncate {
            self.writable()?;
        }
        if !self.open.open(ino, || self.files.opened(ino)) {
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
        if !open.read_only {
            unsealed(&inode)?;
        }
        if open.truncate && inode.row.kind == FileKind::Regular {
            self.setattr(ino, &SetAttr { size: Some(0), kill: open.kill, ..SetAttr::default() })?;
        }
        if open.read_only && inode.row.kind == FileKind::Regular {
            self.files.opened_for_reading(ino, inode.row.size);
        }
        // Reads that are answered from the caller's cache are not seen here, so opening for reading is the access.
        let accessed = open.read_only && !open.no_atime && inode.row.size > 0 && self.accessed(&inode);
        let is_final = open.read_only && inode.row.coherence == Coherence::Sealed;
        let sealed = is_final.then_some(inode.row.size);
        Ok(Opened { fh: self.new_handle(), accessed, sealed })
    }

    /// How many handles of a file there are.
    #[must_use]
    pub fn handles_of(&self, ino: Ino) -> u32 {
        self.open.handles_of(ino)
    }

    pub(crate) fn close(&self, ino: Ino) {
        if self.open.close(ino, || self.files.closed(ino)) {
            self.settle_nameless(ino);
            if !self.files.read_only() {
                self.files.seal(ino);
            }
        }
    }

    /// A descriptor of an open file is closed: the record locks of its owner go.
    ///
    /// # Errors
    /// What [`crate::Files::flush`] says: nothing, where a write that returned has been taken and [`Vfs::fsync`] tells whether it lasts.
    pub fn flush(&self, ino: Ino, lock_owner: u64) -> Result<(), VfsError> {
        self.locks().release_owner(ino, LockSpace::Record, lock_owner);
        self.files.flush(ino)
    }

    /// An open file ends, with what was locked through it; `flock_owner` is whose whole-file lock goes.
    pub fn release(&self, ino: Ino, fh: u64, flock_owner: Option<u64>) {
        if let Some(owner) = flock_owner {
            self.locks().release_flock(ino, owner, fh);
        }
        self.locks().release_handle(ino, fh);
        self.close(ino);
    }

    /// `len` bytes from `offset` on, fewer at the end of the file.
    ///
    /// # Errors
    /// [`VfsError::Failed`] where they cannot be had or are not what was written; [`VfsError::Stale`].
    pub fn read(&self, ino: Ino, offset: u64, len: u32, no_atime: bool) -> Result<ReadPieces, VfsError> {
        let pieces = self.files.read(ino, offset, len)?;
        if !no_atime && self.keeps_access_times() {
            self.accessed(&*self.inode(ino)?);
        }
        Ok(pieces)
    }

    /// Refuses what is asked through an open file, or by an owner, whose locks on it were lost. Asked after what has looked at the file: so what it has seen was so while
    /// the lock was held.
    ///
    /// # Errors
    /// [`VfsError::Failed`].
    pub fn refuse_lost(&self, ino: Ino, through: Through) -> Result<(), VfsError> {
        self.locks().refuse_lost(ino, through)
    }

    /// Writes `data` at `offset`, as [`Vfs::write_at`] does. Returns how many bytes were taken.
    ///
    /// # Errors
    /// As [`Vfs::write_at`].
    pub fn write(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        asked: impl Into<Asked>,
    ) -> Result<usize, VfsError> {
        Ok(self.write_at(ino, WriteAt::Offset(offset), data, asked)?.len)
    }

    /// Writes `data`. Fewer bytes than given are taken only where the file cannot be larger.
    ///
    /// # Errors
    /// [`VfsError::TooLarge`], [`VfsError::Stale`], [`VfsError::Failed`]; nothing was written.
    pub fn write_at(
        &self,
        ino: Ino,
        at: WriteAt,
        data: &[u8],
        asked: impl Into<Asked>,
    ) -> Result<Written, VfsError> {
        self.writable()?;
        let offset = at.expected();
        if data.is_empty() {
            return Ok(Written { offset, len: 0 });
        }
        let max = file_size_max(self.files.block_size());
        let room = max.checked_sub(offset).filter(|room| *room > 0).ok_or(VfsError::TooLarge(offset))?;
        let take = usize::try_from(room).map_or(data.len(), |room| room.min(data.len()));
        let by = self.before_write(ino, asked.into())?;
        let offset = self.files.write(ino, &Write { at, data: &data[..take], by })?;
        Ok(Written { offset, len: take })
    }

    /// Takes away what a change of the contents takes away, and says what becomes of the mode along with it.
    pub(crate) fn before_write(&self, ino: Ino, asked: Asked) -> Result<By, VfsError> {
        let inode = self.inode(ino)?;
        if inode.row.kind != FileKind::Regular {
            return Err(VfsError::Invalid("only a regular file has contents that can be written"));
        }
        unsealed(&inode)?;
        if self.has_capability(&inode)? {
            match self.files.remove_xattr(ino, xattrs::CAPABILITY) {
                Ok(()) | Err(VfsError::NoAttribute) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(By { attr: setid::write_attr(&inode, asked.kill), through: asked.through })
    }

    /// Makes what was acknowledged of this file as durable as the volume's class promises.
    ///
    /// # Errors
    /// [`VfsError`]: what was not synced before may be lost.
    pub fn fsync(&self, ino: Ino) -> Result<(), VfsError> {
        if let Some(atime) = self.take_atime(ino) {
            self.write_atimes(vec![(ino, atime)]);
        }
        self.files.sync_file(ino)
    }
}
