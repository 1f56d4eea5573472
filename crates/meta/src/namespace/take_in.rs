//! Taking in what somebody else has put into the store: objects with their segments, and the files that consist of them.
//!
//! Guarantees: all of it becomes visible at once, in one record; a segment counts exactly the bytes that files got of it. Relies on: the objects are in
//! the store already; the list in each new segment names the blocks that this call gives it to.

use forebay_format::{
    key::Key,
    row::{Extent, Layout, ObjectRef, SegmentKind, SegmentRow, SegmentState},
};
use forebay_types::{
    Coherence, FileKind, Ino, SegmentId, SubvolumeId, Timespec,
    limits::{INLINE_MAX, LANE_SEGMENT_MAX, file_size_max},
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Namespace, WriteAttr, data::regular};
use crate::{blocks, error::MetaError, log::Urgency, txn::Txn};

/// A segment in an object that is new to the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewSegment {
    /// Its number.
    pub id: SegmentId,
    /// Where it starts in the object, in bytes.
    pub offset: u64,
    /// Its length there, in bytes.
    pub len: u64,
    /// Raw bytes of its runs.
    pub raw: u64,
}

/// What a file consists of from now on.
#[derive(Clone, Copy, Debug)]
pub struct NewContents<'a> {
    /// The file.
    pub ino: Ino,
    /// All of its bytes, at most 1 KiB; there are no extents then.
    pub inline: Option<&'a [u8]>,
    /// Extents by their offset in the file; each lies over what was there, and over those before it. Where there are any, inline data
    /// is gone.
    pub extents: &'a [(u64, Extent)],
    /// The size that the file has at least, in bytes; extents and inline data beyond it raise it too.
    pub size: u64,
    /// What a write changes besides.
    pub attr: WriteAttr,
    /// When it was written last. The inode's change time is not before it.
    pub mtime: Timespec,
}

/// Segments whose extents a commit may use: how long each is.
type Known = FxHashMap<SegmentId, u64>;

impl Namespace {
    /// Takes in new objects, and files that consist of them. Returns the inodes that are gone, sealed or no regular files: nothing is kept for them. A segment
    /// of which no file has anything is dead at once ([`Namespace::dead_segments`]). Extents may also be of segments that the volume has already.
    ///
    /// # Errors
    /// [`MetaError::Invalid`] where an object or a segment is not new, a file comes twice, or an extent is not inside a known segment and
    /// one block; [`MetaError::FileTooLarge`].
    pub fn take_in(
        &self,
        at: SubvolumeId,
        objects: &[(ObjectRef, Vec<NewSegment>)],
        files: &[NewContents<'_>],
    ) -> Result<Vec<Ino>, MetaError> {
        self.take_in_with(at, objects, &[], files)
    }

    /// The same, where extents may also be of segments that the writer appends to, or has appended to: `lanes`. Their own heads name the blocks.
    ///
    /// # Errors
    /// As [`Namespace::take_in`], also where a segment of `lanes` is not there.
    pub fn take_in_with(
        &self,
        at: SubvolumeId,
        objects: &[(ObjectRef, Vec<NewSegment>)],
        lanes: &[SegmentId],
        files: &[NewContents<'_>],
    ) -> Result<Vec<Ino>, MetaError> {
        self.prefetch_inodes(at, files.iter().map(|file| file.ino))?;
        for file in files {
            self.limit_cuts(at, file.ino)?;
        }
        self.change(at, Urgency::Normal, &[], |txn| {
            let mut fresh = self.add_objects(txn, objects)?;
            for id in lanes {
                let row = txn.segment(*id).ok_or(MetaError::Invalid("a segment that is gone"))?;
                // How far an open one was appended to is between its writer and the members.
                let len = if row.state == SegmentState::Open { LANE_SEGMENT_MAX } else { row.len };
                fresh.insert(*id, len);
            }
            let (mut gone, mut seen) = (Vec::new(), FxHashSet::default());
            for file in files {
                if !seen.insert(file.ino) {
                    return Err(MetaError::Invalid("a file comes twice in one commit"));
                }
                match txn.inode(file.ino) {
                    Ok(inode) if inode.row.coherence == Coherence::Sealed => gone.push(file.ino),
                    Ok(inode) if inode.row.kind == FileKind::Regular => {
                        self.give(txn, file, &fresh)?;
                        // Files of a commit have nothing to do with each other, and there may be thousands.
                        txn.settle()?;
                    }
                    Ok(_) | Err(MetaError::Stale(_)) => gone.push(file.ino),
                    Err(error) => return Err(error),
                }
            }
            Ok(gone)
        })
    }

    /// Makes rows of what the objects have, with no bytes in use yet.
    fn add_objects(
        &self,
        txn: &mut Txn<'_>,
        objects: &[(ObjectRef, Vec<NewSegment>)],
    ) -> Result<Known, MetaError> {
        let (mut fresh, mut seen) = (Known::default(), FxHashSet::default());
        for (object, segments) in objects {
            let garbage = self.rows.get(&Key::Garbage(object.epoch.0, object.id.0).encode())?;
            let twice = !seen.insert(*object);
            if segments.is_empty() || twice || garbage.is_some() || txn.owner.segments.of_object(*object) > 0
            {
                return Err(MetaError::Invalid("an object that is not new, or has no segment"));
            }
            for segment in segments {
                if txn.owner.segments.get(segment.id).is_some()
                    || fresh.insert(segment.id, segment.len).is_some()
                {
                    return Err(MetaError::Invalid("a segment that is not new"));
                }
                let row = SegmentRow {
                    kind: SegmentKind::Packed,
                    state: SegmentState::Stored,
                    object: Some(*object),
                    object_offset: segment.offset,
                    len: segment.len,
                    raw: segment.raw,
                    live: 0,
                    epoch: object.epoch,
                };
                txn.add_segment(segment.id, row);
            }
        }
        Ok(fresh)
    }

    /// Gives a file its new contents.
    fn give(&self, txn: &mut Txn<'_>, file: &NewContents<'_>, fresh: &Known) -> Result<(), MetaError> {
        let ino = file.ino;
        let row = regular(txn, ino)?;
        let mut size = row.size.max(file.size);
        if let Some(bytes) = file.inline {
            if bytes.len() > INLINE_MAX || !file.extents.is_empty() {
                return Err(MetaError::Invalid("inline data is small, and all that a file has"));
            }
            self.make_inline(txn, ino, bytes)?;
            size = size.max(bytes.len() as u64);
        } else if row.layout == Layout::Inline && !file.extents.is_empty() {
            let beside = self.beside_inline(txn, ino)?;
            let row = txn.row_mut(ino)?;
            (row.layout, row.allocated) = (Layout::Empty, beside);
        }
        for (offset, extent) in file.extents {
            size = size.max(offset.saturating_add(u64::from(extent.len)));
            self.put_stored(txn, ino, *offset, extent, fresh)?;
        }
        if size > file_size_max(self.block_size) {
            return Err(MetaError::FileTooLarge(size));
        }
        let row = txn.row_mut(ino)?;
        row.size = size;
        // A time that the row has already was set, which was a change of its own and at another time.
        if row.mtime != file.mtime {
            row.mtime = file.mtime;
            row.ctime = row.ctime.max(file.mtime);
        }
        row.mode &= file.attr.mode.unwrap_or(0o7777);
        Ok(())
    }

    /// Makes these all of a file's bytes, whatever it had.
    fn make_inline(&self, txn: &mut Txn<'_>, ino: Ino, bytes: &[u8]) -> Result<(), MetaError> {
        let row = txn.inode(ino)?.row;
        let beside = match row.layout {
            Layout::Empty | Layout::Inline => return self.store_inline(txn, ino, bytes),
            // What its blocks lose is counted when the file is settled.
            Layout::Extents => row.allocated,
            Layout::Single(_, _, extent) => row.allocated.saturating_sub(u64::from(extent.len)),
        };
        self.remove_range(txn, ino, 0, u64::MAX)?;
        if !bytes.is_empty() {
            txn.put_inline(ino, bytes);
        }
        let row = txn.row_mut(ino)?;
        row.layout = if bytes.is_empty() { Layout::Empty } else { Layout::Inline };
        row.allocated = beside + bytes.len() as u64;
        Ok(())
    }

    fn put_stored(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        offset: u64,
        extent: &Extent,
        fresh: &Known,
    ) -> Result<(), MetaError> {
        let (block, place) = self.place_in_block(offset, u64::from(extent.len))?;
        let known = fresh.get(&extent.segment).copied();
        let len = known.or_else(|| {
            let row = txn.segment(extent.segment)?;
            (row.state == SegmentState::Stored).then_some(row.len)
        });
        let run_end = extent.run_offset.checked_add(u64::from(extent.stored_len));
        let inside = u64::from(extent.skip) + u64::from(extent.len) <= u64::from(extent.run_len);
        if !inside || len.is_none_or(|len| run_end.is_none_or(|end| end > len)) {
            return Err(MetaError::Invalid("an extent is in no segment that the volume has"));
        }
        match known {
            Some(_) => txn.is_named_by(extent.segment, ino, block),
            None => txn.note_share(extent.segment, ino, block),
        }
        blocks::overlay(txn.block_mut(ino, block)?, place, *extent);
        Ok(())
    }
}
