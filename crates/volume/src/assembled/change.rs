//! How a change of an inode's bytes reaches its assembled file.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use forebay_data::ReadPiece;
use forebay_types::Ino;

use super::{Assembled, count, plain::PlainFile};
use crate::{Volume, error::VolumeError, error::io_error};

/// A change that is under way; made before the volume is touched, under the inode's data lock, which is held until it is done.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    volume: &'a Volume,
    ino: Ino,
    /// The file that somebody has open, so that it must get the change.
    leased: Option<(&'a Assembled, Arc<PlainFile>)>,
}

impl Volume {
    /// Begins a change of the bytes of `ino`.
    pub(crate) fn changing(&self, ino: Ino) -> Change<'_> {
        let nobody = Change { volume: self, ino, leased: None };
        let Some(assembled) = &self.assembled else { return nobody };
        if assembled.busy.load(Ordering::SeqCst) == 0 {
            return nobody;
        }
        let (leased, withdrawn) = assembled.change(|table| table.before_change(ino));
        if withdrawn {
            count(&assembled.counts.withdrawn);
        }
        Change { leased: leased.map(|plain| (assembled, plain)), ..nobody }
    }
}

impl Change<'_> {
    /// Has the room ready that writing `len` bytes at `offset` takes: a full cache disk, or one that cannot have so large a file, is told before
    /// anything is changed.
    pub(crate) fn reserve(&self, offset: u64, len: u64) -> Result<(), VolumeError> {
        let Some((assembled, plain)) = &self.leased else { return Ok(()) };
        plain
            .reserve(offset, len)
            .map_err(io_error("keep for those who read a file of it, in", &assembled.dir))
    }

    /// These bytes were written.
    pub(crate) fn wrote(self, offset: u64, bytes: &[u8]) -> Result<(), VolumeError> {
        self.apply(|_, plain| Ok(plain.write(offset, bytes)?))
    }

    /// Zeros were made of this range, and the inode is `size` bytes long now.
    pub(crate) fn punched(self, from: u64, to: u64, size: u64) -> Result<(), VolumeError> {
        self.apply(|_, plain| {
            plain.punch(from, to.saturating_sub(from))?;
            Ok(plain.resize(size)?)
        })
    }

    /// The inode is `size` bytes long now.
    pub(crate) fn resized(self, size: u64) -> Result<(), VolumeError> {
        self.apply(|_, plain| Ok(plain.resize(size)?))
    }

    /// The range is another one's bytes now.
    pub(crate) fn copied(self, offset: u64, len: u64) -> Result<(), VolumeError> {
        let ino = self.ino;
        self.apply(|volume, plain| {
            let mut at = offset;
            while at < offset + len {
                let step = (offset + len - at).min(super::plain::PIECE);
                at += volume.copy_to_plain(ino, at, step, plain)?;
            }
            Ok(())
        })
    }

    /// What the volume has cannot be taken back: where the file does not get it, those who read it would see old bytes, so the change fails, loudly.
    fn apply(
        self,
        change: impl FnOnce(&Volume, &PlainFile) -> Result<(), ApplyError>,
    ) -> Result<(), VolumeError> {
        let Some((assembled, plain)) = self.leased else { return Ok(()) };
        let result = change(self.volume, &plain).and_then(|()| Ok(plain.disk_bytes()?));
        match result {
            Ok(bytes) => {
                let evicted = assembled.change(|table| table.recount(self.ino, bytes, assembled.capacity));
                assembled.counts.evictions.fetch_add(evicted, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                assembled.change(|table| table.doom(self.ino));
                let ino = self.ino;
                tracing::error!(
                    "inode {ino}: a change did not reach those who have the file open for reading: {error}"
                );
                Err(match error {
                    ApplyError::Volume(error) => error,
                    ApplyError::Disk(error) => {
                        io_error("change a file that others read, in", &assembled.dir)(error)
                    }
                })
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ApplyError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Disk(#[from] io::Error),
}

impl Volume {
    /// Copies what reads give into an assembled file. Returns how many bytes, fewer than `len` only at the end.
    fn copy_to_plain(&self, ino: Ino, offset: u64, len: u64, plain: &PlainFile) -> Result<u64, ApplyError> {
        let mut at = offset;
        for piece in self.read_unfollowed(ino, offset, len as u32)? {
            match piece {
                ReadPiece::Bytes(bytes) => {
                    plain.write(at, &bytes)?;
                    at += bytes.len() as u64;
                }
                ReadPiece::Zeros(count) => {
                    plain.punch(at, count as u64)?;
                    at += count as u64;
                }
            }
        }
        plain.extend(at)?;
        Ok((at - offset).max(1))
    }

    /// Writes a piece of a damaged file anew.
    pub(super) fn mend_plain(&self, ino: Ino, offset: u64, plain: &PlainFile) -> Result<(), VolumeError> {
        let _nobody_writes = self.data_locks.lock(ino);
        let mended = self.copy_to_plain(ino, offset, super::plain::PIECE, plain).map(drop);
        mended.map_err(|error| match error {
            ApplyError::Volume(error) => error,
            ApplyError::Disk(source) => {
                VolumeError::Io { what: "mend an assembled file in", path: self.paths.root.clone(), source }
            }
        })
    }
}
