//! Reading the bytes of files.
//!
//! A read asks the namespace what its range consists of, and has the extents' bytes fetched and verified by [`forebay_data::RunReader`]. How the
//! reads of an inode follow each other decides what is fetched besides: what comes next for a sequential or striding reader, across
//! blocks and extents; whole chunks of a store elsewhere for a small file, whose neighbours lie there; nothing for a reader that jumps.

use std::ops::Range;

use forebay_data::{Access, ReadError, ReadPiece, ReadPieces, SourceError};
use forebay_reading::{SMALL_FILE, access_of, fetch_ahead, object_key, read_pieces};
use forebay_types::Ino;

use crate::{Volume, error::VolumeError, upkeep::Task};

/// How often a read begins anew because its data was moved while it was read.
const READ_ATTEMPTS: u32 = 4;
impl Volume {
    /// `len` bytes of a file from `offset` on, fewer at its end.
    ///
    /// # Errors
    /// [`VolumeError::Read`] where the bytes cannot be had or are not what was written; [`VolumeError::Meta`].
    pub fn read(&self, ino: Ino, offset: u64, len: u32) -> Result<ReadPieces, VolumeError> {
        let access = self.follow(ino, offset, len)?;
        self.read_as(ino, offset, len, access)
    }

    /// As [`Volume::read`], for ourselves: what is read this way says nothing of what readers will want next.
    pub(crate) fn read_unfollowed(&self, ino: Ino, offset: u64, len: u32) -> Result<ReadPieces, VolumeError> {
        self.read_as(ino, offset, len, Access::Sequential)
    }

    fn read_as(&self, ino: Ino, offset: u64, len: u32, access: Access) -> Result<ReadPieces, VolumeError> {
        let mut attempt = 1;
        loop {
            let pieces = self.ns.map(self.subvolume, ino, offset, u64::from(len))?;
            match read_pieces(&self.reader, &pieces, access) {
                Err(ReadError::Source(SourceError::NotFound { .. })) if attempt < READ_ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => {
                    self.note_unreadable(ino, &error);
                    return Err(error.into());
                }
                Ok(read) => return Ok(read),
            }
        }
    }

    /// Takes note of a read, and has fetched ahead what is likely to be wanted next.
    fn follow(&self, ino: Ino, offset: u64, len: u32) -> Result<Access, VolumeError> {
        let size = self.ns.inode(self.subvolume, ino)?.row.size;
        let len = u64::from(len).min(size.saturating_sub(offset));
        if size <= SMALL_FILE || len == 0 {
            return Ok(Access::Nearby);
        }
        self.note_read(ino, size, len);
        let advice = self.ahead.observe(ino.0, offset, len, size);
        for range in advice.ahead {
            // What cannot be mapped or fetched now shows when it is read.
            let _ = self.fetch_ahead(ino, &range);
        }
        Ok(access_of(advice.pattern))
    }

    /// Has the stored bytes of a range brought near.
    fn fetch_ahead(&self, ino: Ino, range: &Range<u64>) -> Result<(), VolumeError> {
        let pieces = self.ns.map(self.subvolume, ino, range.start, range.end - range.start)?;
        fetch_ahead(&self.reader, self.source.as_ref(), &pieces);
        Ok(())
    }

    /// Says for people which object a failed read was about.
    fn note_unreadable(&self, ino: Ino, error: &ReadError) {
        let segment = match error {
            ReadError::Source(source) => source.segment(),
            ReadError::Corrupt { segment, .. } | ReadError::Sealed { segment, .. } => *segment,
            ReadError::OutOfRange { .. } => return,
        };
        let object = self.ns.segment(segment).and_then(|row| row.object).map(object_key);
        let place = object.map(|key| format!(", in object {key}")).unwrap_or_default();
        self.upkeep.note(Task::Read, format!("inode {ino}: {error}{place}"));
    }

    /// Reads into one buffer.
    pub(crate) fn read_whole(&self, ino: Ino, offset: u64, len: u32) -> Result<Vec<u8>, VolumeError> {
        let mut bytes = Vec::with_capacity(len as usize);
        for piece in self.read(ino, offset, len)? {
            match piece {
                ReadPiece::Bytes(piece) => bytes.extend_from_slice(&piece),
                ReadPiece::Zeros(len) => bytes.resize(bytes.len() + len, 0),
            }
        }
        Ok(bytes)
    }
}
