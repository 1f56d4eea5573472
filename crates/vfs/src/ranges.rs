//! Ranges of a file: allocated, punched, zeroed, copied, sought.

use forebay_types::{FileKind, Ino, limits::file_size_max};

use crate::{error::VfsError, files::Whence, open_files::Asked, vfs::Vfs};

/// What fallocate(2) does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Raises the size to the range's end, unless the size is kept.
    Allocate {
        /// `FALLOC_FL_KEEP_SIZE`.
        keep_size: bool,
    },
    /// Makes a hole (`FALLOC_FL_PUNCH_HOLE`).
    Punch,
    /// Makes zeros (`FALLOC_FL_ZERO_RANGE`).
    Zero {
        /// `FALLOC_FL_KEEP_SIZE`.
        keep_size: bool,
    },
}

impl Vfs {
    /// Changes how `len` bytes from `offset` on are stored. No space is set aside: that a later write finds room is
    /// not promised.
    ///
    /// # Errors
    /// [`VfsError::Invalid`] for an empty range, [`VfsError::TooLarge`], [`VfsError::Stale`].
    pub fn fallocate(
        &self,
        ino: Ino,
        what: Fallocate,
        (offset, len): (u64, u64),
        asked: impl Into<Asked>,
    ) -> Result<(), VfsError> {
        self.writable()?;
        if len == 0 {
            return Err(VfsError::Invalid("an empty range"));
        }
        let end = self.end_of(offset, len)?;
        let by = self.before_write(ino, asked.into())?;
        let size = self.inode(ino)?.row.size;
        match what {
            Fallocate::Allocate { keep_size: true } if by.attr.mode.is_none() => {}
            Fallocate::Allocate { keep_size } => {
                self.files.allocate(ino, if keep_size { size } else { end }, by)?;
            }
            Fallocate::Punch | Fallocate::Zero { keep_size: true } => {
                if offset < size {
                    self.files.punch(ino, offset, end, None, by)?;
                }
            }
            Fallocate::Zero { keep_size: false } => {
                self.files.punch(ino, offset, end, Some(end), by)?;
            }
        }
        Ok(())
    }

    fn end_of(&self, offset: u64, len: u64) -> Result<u64, VfsError> {
        let max = file_size_max(self.files.block_size());
        offset
            .checked_add(len)
            .filter(|end| *end <= max)
            .ok_or(VfsError::TooLarge(offset.saturating_add(len)))
    }

    /// Where data or a hole begins, at or after `offset`.
    ///
    /// # Errors
    /// [`VfsError::NoData`] where there is none, or `offset` is not inside the file.
    pub fn seek(&self, ino: Ino, offset: i64, whence: Whence) -> Result<u64, VfsError> {
        let offset = u64::try_from(offset).map_err(|_| VfsError::NoData)?;
        self.files.seek(ino, offset, whence)?.ok_or(VfsError::NoData)
    }

    /// Makes up to `len` bytes of one file part of another without copying them; `asked` is about the target. Returns how many, 0 at
    /// the end of the source.
    ///
    /// # Errors
    /// [`VfsError::Invalid`] for ranges of one file that overlap, and for what is no regular file; [`VfsError::TooLarge`].
    pub fn copy_range(
        &self,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
        asked: impl Into<Asked>,
    ) -> Result<u64, VfsError> {
        self.writable()?;
        let source = self.inode(from.0)?;
        match source.row.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(VfsError::IsDirectory(from.0)),
            _ => return Err(VfsError::Invalid("only a regular file has bytes to copy")),
        }
        if self.inode(to.0)?.is_directory() {
            return Err(VfsError::IsDirectory(to.0));
        }
        let len = len.min(source.row.size.saturating_sub(from.1));
        if len == 0 {
            return Ok(0);
        }
        let max = file_size_max(self.files.block_size());
        let room = max.checked_sub(to.1).filter(|room| *room > 0).ok_or(VfsError::TooLarge(to.1))?;
        let len = len.min(room);
        if from.0 == to.0 && from.1 < to.1 + len && to.1 < from.1 + len {
            return Err(VfsError::Invalid("the ranges overlap"));
        }
        let by = self.before_write(to.0, asked.into())?;
        let copied = self.files.copy_range(from, to, len, by)?;
        self.accessed(&source);
        Ok(copied)
    }
}
