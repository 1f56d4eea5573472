//! What a file's bytes are made of.

use forebay_format::{
    record::StreamRun,
    row::{Extent, InodeRow, Layout, SegmentKind},
};
use forebay_types::{
    Coherence, FileKind, Ino, SegmentId, SubvolumeId,
    limits::{INLINE_MAX, file_size_max},
};

use smallvec::SmallVec;

use super::{Namespace, WriteAttr};
use crate::{blocks, error::MetaError, inode::Inode, log::Urgency, txn::Txn};

/// Where a new extent's run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentSource {
    /// In the data of the record itself, from this byte on.
    Record(u64),
    /// In a stream, from this byte on. The record counts only with it on disk.
    Stream(SegmentId, u64),
}

/// A run to become part of a file. It lies inside one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewExtent {
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Raw bytes.
    pub len: u32,
    /// Where the run is.
    pub source: ExtentSource,
    /// Bytes of the run as stored.
    pub stored_len: u32,
    /// The form of the run.
    pub form: u8,
    /// CRC32C of its head and frame table.
    pub check: u32,
}

/// A piece of a file's bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Where they are.
    pub source: PieceSource,
}

/// Pieces, one behind the other. Most reads are of one, which then takes no memory of its own.
pub type Pieces = SmallVec<[Piece; 1]>;

/// Where the bytes of a piece are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PieceSource {
    /// Nowhere: they are zeros.
    Hole,
    /// Here.
    Inline(Vec<u8>),
    /// In a segment.
    Extent(Extent),
}

impl Namespace {
    /// Replaces the whole data of a file of at most 1 KiB that has no extents.
    ///
    /// # Errors
    /// [`MetaError::Invalid`] where the file has extents, or the data does not fit; [`MetaError::Stale`].
    pub fn write_inline(
        &self,
        at: SubvolumeId,
        ino: Ino,
        bytes: &[u8],
        size: u64,
        attr: WriteAttr,
    ) -> Result<Inode, MetaError> {
        self.change(at, Urgency::Normal, &[], |txn| {
            let row = regular(txn, ino)?;
            let fits = bytes.len() <= INLINE_MAX && bytes.len() as u64 <= size;
            if !fits || !matches!(row.layout, Layout::Empty | Layout::Inline) {
                return Err(MetaError::Invalid("the data does not fit the inode's own row"));
            }
            self.store_inline(txn, ino, bytes)?;
            touch(txn, ino, Some(size), attr)?;
            Ok(txn.inode(ino)?.clone())
        })
    }

    /// Puts runs over what a file has at their places, and raises its size to at least `size` and to their end. `data` are the runs that the record brings along.
    /// A file whose data is inline loses it: the caller gives it again among the runs.
    ///
    /// # Errors
    /// [`MetaError::Stale`], [`MetaError::FileTooLarge`], [`MetaError::Invalid`] for what is no file.
    pub fn write(
        &self,
        at: SubvolumeId,
        ino: Ino,
        extents: &[NewExtent],
        data: &[u8],
        size: u64,
        attr: WriteAttr,
    ) -> Result<Inode, MetaError> {
        self.limit_cuts(at, ino)?;
        self.change(at, Urgency::Normal, data, |txn| {
            let row = regular(txn, ino)?;
            if row.layout == Layout::Inline {
                let beside = self.beside_inline(txn, ino)?;
                let row = txn.row_mut(ino)?;
                (row.layout, row.allocated) = (Layout::Empty, beside);
            }
            let ends = extents.iter().map(|new| new.offset.saturating_add(u64::from(new.len)));
            let size = ends.fold(size.max(row.size), u64::max);
            for new in extents {
                self.put_extent(txn, ino, new)?;
            }
            touch(txn, ino, Some(size), attr)?;
            Ok(txn.inode(ino)?.clone())
        })
    }

    fn put_extent(&self, txn: &mut Txn<'_>, ino: Ino, new: &NewExtent) -> Result<(), MetaError> {
        let (block, offset) = self.place_in_block(new.offset, u64::from(new.len))?;
        let (segment, run_offset) = match new.source {
            ExtentSource::Record(from) => {
                txn.know_segment(txn.place.segment, SegmentKind::Journal);
                (txn.place.segment, txn.place.offset + from)
            }
            ExtentSource::Stream(segment, run_offset) => {
                txn.know_segment(segment, SegmentKind::Stream);
                txn.is_named_by(segment, ino, block);
                let (len, stored_len) = (new.len, new.stored_len);
                let run = StreamRun {
                    segment,
                    run_offset,
                    stored_len,
                    run_len: len,
                    form: new.form,
                    check: new.check,
                };
                txn.needs_stream(run);
                (segment, run_offset)
            }
        };
        let extent = Extent {
            len: new.len,
            segment,
            run_offset,
            stored_len: new.stored_len,
            run_len: new.len,
            skip: 0,
            form: new.form,
            check: new.check,
        };
        blocks::overlay(txn.block_mut(ino, block)?, offset, extent);
        Ok(())
    }

    pub(super) fn place_in_block(&self, offset: u64, len: u64) -> Result<(u32, u32), MetaError> {
        let block_size = u64::from(self.block_size);
        let end = offset.checked_add(len).filter(|end| *end <= file_size_max(self.block_size));
        if end.is_none() {
            return Err(MetaError::FileTooLarge(offset.saturating_add(len)));
        }
        if len == 0 || offset % block_size + len > block_size {
            return Err(MetaError::Invalid("an extent lies inside one block"));
        }
        Ok(((offset / block_size) as u32, (offset % block_size) as u32))
    }

    /// Makes zeros of bytes `from..to` by taking their storage away. Raises the size to at least `size`.
    ///
    /// # Errors
    /// [`MetaError::Stale`], [`MetaError::FileTooLarge`].
    pub fn punch(
        &self,
        at: SubvolumeId,
        ino: Ino,
        from: u64,
        to: u64,
        size: Option<u64>,
        attr: WriteAttr,
    ) -> Result<Inode, MetaError> {
        self.limit_cuts(at, ino)?;
        self.change(at, Urgency::Reclaim, &[], |txn| {
            let row = regular(txn, ino)?;
            if size.is_some_and(|size| size > file_size_max(self.block_size)) {
                return Err(MetaError::FileTooLarge(size.unwrap_or_default()));
            }
            if row.layout == Layout::Inline {
                let mut bytes = self.inline_of(&txn.lineage, ino)?;
                let end = usize::try_from(to).unwrap_or(usize::MAX).min(bytes.len());
                let start = usize::try_from(from).unwrap_or(usize::MAX).min(end);
                bytes[start..end].fill(0);
                self.store_inline(txn, ino, &bytes)?;
            } else {
                self.remove_range(txn, ino, from, to)?;
            }
            let size = size.map(|size| size.max(row.size));
            touch(txn, ino, size, attr)?;
            Ok(txn.inode(ino)?.clone())
        })
    }

    /// Makes bytes of one file the extents of another (or the same, elsewhere): nothing is copied. Both inodes must have no inline data;
    /// the ranges lie inside the source's size and do not overlap. The target's size grows to what is needed.
    ///
    /// # Errors
    /// [`MetaError::Stale`], [`MetaError::FileTooLarge`], [`MetaError::Invalid`].
    pub fn share(
        &self,
        at: SubvolumeId,
        (source, from): (Ino, u64),
        (target, to): (Ino, u64),
        len: u64,
        attr: WriteAttr,
    ) -> Result<Inode, MetaError> {
        self.limit_cuts(at, target)?;
        self.change(at, Urgency::Normal, &[], |txn| {
            let row = regular(txn, target)?;
            if row.layout == Layout::Inline || regular(txn, source)?.layout == Layout::Inline {
                return Err(MetaError::Invalid("inline data has no extents to share"));
            }
            let end = to.checked_add(len).filter(|end| *end <= file_size_max(self.block_size));
            let Some(end) = end else { return Err(MetaError::FileTooLarge(to.saturating_add(len))) };
            if from.checked_add(len).is_none_or(|end| end > file_size_max(self.block_size)) {
                return Err(MetaError::Invalid("what is to be shared lies in no file"));
            }
            let pieces = self.pieces(txn, source, from, len)?;
            self.remove_range(txn, target, to, end)?;
            for (offset, extent) in pieces {
                self.put_shared(txn, target, to + (offset - from), extent)?;
            }
            touch(txn, target, Some(row.size.max(end)), attr)?;
            Ok(txn.inode(target)?.clone())
        })
    }

    fn put_shared(&self, txn: &mut Txn<'_>, ino: Ino, offset: u64, extent: Extent) -> Result<(), MetaError> {
        let block_size = u64::from(self.block_size);
        let mut done = 0;
        while done < extent.len {
            let at = offset + u64::from(done);
            let room = (block_size - at % block_size) as u32;
            let len = room.min(extent.len - done);
            let (block, place) = self.place_in_block(at, u64::from(len))?;
            blocks::overlay(txn.block_mut(ino, block)?, place, extent.part(done, len));
            txn.note_share(extent.segment, ino, block);
            done += len;
        }
        Ok(())
    }

    /// The extents of `len` bytes from `from` on, as the operation sees them.
    fn pieces(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        from: u64,
        len: u64,
    ) -> Result<Vec<(u64, Extent)>, MetaError> {
        let block_size = u64::from(self.block_size);
        let end = from + len;
        let mut pieces = Vec::new();
        if len == 0 {
            return Ok(pieces);
        }
        let (first, last) = ((from / block_size) as u32, ((end - 1) / block_size) as u32);
        let inode = txn.inode(ino)?.clone();
        let blocks = match inode.row.layout {
            Layout::Single(block, ..) if (first..=last).contains(&block) => vec![block],
            Layout::Extents => self.blocks_of(&txn.lineage, &inode, (first, last), usize::MAX)?.blocks,
            _ => Vec::new(),
        };
        for block in blocks {
            let start = u64::from(block) * block_size;
            for placed in txn.block_mut(ino, block)?.iter() {
                let (low, high) = (start + u64::from(placed.offset), start + u64::from(placed.end()));
                let (cut_low, cut_high) = (low.max(from), high.min(end));
                if cut_low < cut_high {
                    let part = placed.extent.part((cut_low - low) as u32, (cut_high - cut_low) as u32);
                    pieces.push((cut_low, part));
                }
            }
        }
        Ok(pieces)
    }
}

/// The row of a file that can have data.
pub(super) fn regular(txn: &mut Txn<'_>, ino: Ino) -> Result<InodeRow, MetaError> {
    let row = txn.inode(ino)?.row;
    match row.kind {
        FileKind::Regular => Ok(row),
        FileKind::Directory => Err(MetaError::IsDirectory(ino)),
        _ => Err(MetaError::Invalid("only a regular file has data")),
    }
}

/// Times, size and mode of a file whose contents were changed; an error where they may not be.
fn touch(txn: &mut Txn<'_>, ino: Ino, size: Option<u64>, attr: WriteAttr) -> Result<(), MetaError> {
    let now = txn.now;
    let row = txn.row_mut(ino)?;
    if row.coherence == Coherence::Sealed {
        return Err(MetaError::Sealed(ino));
    }
    row.size = size.unwrap_or(row.size);
    row.mtime = now;
    row.ctime = now;
    row.mode &= attr.mode.unwrap_or(0o7777);
    Ok(())
}
