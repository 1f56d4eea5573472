//! Reading the bytes of files.
//!
//! A read asks the namespace what its range consists of, and has the extents' bytes fetched and verified by [`forebay_data::RunReader`]. How the
//! reads of an inode follow each other decides what is fetched besides: what comes next for a sequential or striding reader, across
//! blocks and extents; whole chunks of a store elsewhere for a small file, whose neighbours lie there; nothing for a reader that jumps.

use std::ops::Range;

use bytes::Bytes;
use forebay_cache::Pattern;
use forebay_data::{Access, ReadError, SegmentSource, SourceError};
use forebay_meta::{Piece, PieceSource};
use forebay_types::{Ino, SegmentId};
use smallvec::SmallVec;

use crate::{Volume, error::VolumeError, source::object_key, upkeep::Task};

/// How often a read begins anew because its data was moved while it was read.
const READ_ATTEMPTS: u32 = 4;
/// Holes of at least this many bytes are told as such instead of being filled in.
const HOLE_MIN: u64 = 64 << 10;
/// Files of at most this many bytes are small: who reads one is likely to read its neighbours, which lie beside it.
const SMALL_FILE: u64 = 256 << 10;
/// Runs of at most this many stored bytes are fetched ahead whole, together with those that lie at most [`GAP_MAX`] bytes behind them.
const SMALL_RUN: u32 = 256 << 10;
const GAP_MAX: u64 = 64 << 10;

/// A piece of what was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadPiece {
    /// These bytes.
    Bytes(Bytes),
    /// So many zeros.
    Zeros(usize),
}

/// What a read found, one piece behind the other. Most are of one, which takes no memory of its own.
pub type ReadPieces = SmallVec<[ReadPiece; 1]>;

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
            match self.read_pieces(&pieces, access) {
                Err(VolumeError::Read(ReadError::Source(SourceError::NotFound { .. })))
                    if attempt < READ_ATTEMPTS =>
                {
                    attempt += 1;
                }
                Err(VolumeError::Read(error)) => {
                    self.note_unreadable(ino, &error);
                    return Err(error.into());
                }
                result => return result,
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
        Ok(match advice.pattern {
            Pattern::Start => Access::Nearby,
            Pattern::Sequential => Access::Sequential,
            Pattern::Strided | Pattern::Random => Access::Random,
        })
    }

    /// Has the stored bytes of a range brought near: small runs that lie side by side together.
    fn fetch_ahead(&self, ino: Ino, range: &Range<u64>) -> Result<(), VolumeError> {
        let mut beside: Option<(SegmentId, Range<u64>)> = None;
        let fetch = |(segment, range): (SegmentId, Range<u64>)| {
            let len = u32::try_from(range.end - range.start).unwrap_or(u32::MAX);
            self.source.prefetch(segment, range.start, len);
        };
        for piece in self.ns.map(self.subvolume, ino, range.start, range.end - range.start)? {
            let PieceSource::Extent(extent) = &piece.source else { continue };
            if extent.stored_len > SMALL_RUN {
                self.reader.prefetch(extent, 0, piece.len as u32);
                continue;
            }
            let run = extent.run_offset..extent.run_offset.saturating_add(u64::from(extent.stored_len));
            match &mut beside {
                Some((segment, range))
                    if *segment == extent.segment
                        && (range.start..range.end.saturating_add(GAP_MAX)).contains(&run.start) =>
                {
                    range.end = range.end.max(run.end);
                }
                _ => beside.replace((extent.segment, run)).into_iter().for_each(fetch),
            }
        }
        beside.into_iter().for_each(fetch);
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

    fn read_pieces(&self, pieces: &[Piece], access: Access) -> Result<ReadPieces, VolumeError> {
        let is_gap = |piece: &Piece| piece.source == PieceSource::Hole && piece.len >= HOLE_MIN;
        let mut out = ReadPieces::new();
        for group in pieces.chunk_by(|one, two| !is_gap(one) && !is_gap(two)) {
            out.push(match group {
                [gap] if is_gap(gap) => ReadPiece::Zeros(gap.len as usize),
                [Piece { source: PieceSource::Extent(extent), len, .. }] => {
                    ReadPiece::Bytes(self.reader.read_bytes(extent, 0, *len as u32, access)?)
                }
                group => ReadPiece::Bytes(self.read_together(group, access)?),
            });
        }
        Ok(out)
    }

    /// Pieces in one buffer.
    fn read_together(&self, pieces: &[Piece], access: Access) -> Result<Bytes, VolumeError> {
        let total: u64 = pieces.iter().map(|piece| piece.len).sum();
        let mut buffer = self.reader.buffer(total as usize);
        let mut rest: &mut [u8] = &mut buffer;
        for piece in pieces {
            let (out, after) = rest.split_at_mut(piece.len as usize);
            match &piece.source {
                PieceSource::Hole => out.fill(0),
                PieceSource::Inline(data) => out.copy_from_slice(data),
                PieceSource::Extent(extent) => self.reader.read_into(extent, 0, out, access)?,
            }
            rest = after;
        }
        Ok(buffer.freeze())
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
