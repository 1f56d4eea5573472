//! Segments that others append to, over the logs of a group's members: from open to stored. Who has them is not this crate's matter.
//!
//! Guarantees: what files have of such a segment counts as of any other; a segment is in one object. Relies on its caller for when a segment may be sealed, stored or
//! forgotten.

use std::sync::atomic::Ordering;

use forebay_format::{
    key::Key,
    row::{ObjectRef, Row, SegmentKind, SegmentRow, SegmentState},
};
use forebay_types::{SegmentId, SubvolumeId};

use super::{Namespace, segments::garbage_key};
use crate::{error::MetaError, log::Urgency, txn::Txn};

/// Numbers in a run of segments: those of one lie together in a group.
const RUN: u64 = 256;

/// A segment in an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredPlace {
    /// Which segment.
    pub id: SegmentId,
    /// Where it starts in the object, in bytes.
    pub offset: u64,
    /// Its length there, in bytes.
    pub len: u64,
    /// Raw bytes of its runs.
    pub raw: u64,
}

impl Namespace {
    /// Takes so many runs of 256 numbers for segments, and returns the first: a multiple of 256. They are taken for good once a record was made, as with
    /// [`Namespace::new_numbers`].
    #[must_use]
    pub fn new_segment_runs(&self, runs: u32) -> SegmentId {
        let next = |now: u64| now.next_multiple_of(RUN);
        let taken = self
            .segment_numbers
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |now| Some(next(now) + u64::from(runs) * RUN));
        let (Ok(before) | Err(before)) = taken;
        SegmentId(next(before))
    }

    /// Makes rows of segments that somebody is about to append to: nothing is in use of them. Numbers that are taken are recorded with them.
    ///
    /// # Errors
    /// [`MetaError::Invalid`] where one is there already.
    pub fn open_segments(&self, ids: &[SegmentId]) -> Result<(), MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Normal, &[], |txn| {
            for id in ids {
                if txn.segment(*id).is_some() {
                    return Err(MetaError::Invalid("a segment that is not new"));
                }
                let row = SegmentRow {
                    kind: SegmentKind::Packed,
                    state: SegmentState::Open,
                    object: None,
                    object_offset: 0,
                    len: 0,
                    raw: 0,
                    live: 0,
                    epoch: txn.owner.epoch,
                };
                txn.put_segment(*id, Some(row));
            }
            let counters = self.counters(txn.owner);
            txn.owner.counters_changed = false;
            txn.put_plain(&Key::Counters, Some(counters.encode()));
            Ok(())
        })
    }

    /// Notes how long segments are that nobody appends to any more. Those that are not open are left as they are.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn seal_segments(&self, ends: &[(SegmentId, u64)]) -> Result<(), MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Reclaim, &[], |txn| {
            for (id, len) in ends {
                if let Some(row) = unstored(txn, *id).filter(|row| row.state == SegmentState::Open) {
                    txn.put_segment(*id, Some(SegmentRow { state: SegmentState::Sealed, len: *len, ..row }));
                }
            }
            Ok(())
        })
    }

    /// Notes how long sealed segments are of which less is left than was sealed. Those that are as short, open or stored are left as they are.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn shorten_segments(&self, ends: &[(SegmentId, u64)]) -> Result<(), MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Reclaim, &[], |txn| {
            for (id, len) in ends {
                let sealed = unstored(txn, *id).filter(|row| row.state == SegmentState::Sealed);
                if let Some(row) = sealed.filter(|row| row.len > *len) {
                    txn.put_segment(*id, Some(SegmentRow { len: *len, ..row }));
                }
            }
            Ok(())
        })
    }

    /// Says that an object is in the store, with these segments. Returns those that it counts for: others are stored already, or gone. Where it counts for none, it is
    /// garbage.
    ///
    /// # Errors
    /// [`MetaError::Invalid`] where the object is not new.
    pub fn object_stored(
        &self,
        object: ObjectRef,
        places: &[StoredPlace],
    ) -> Result<Vec<SegmentId>, MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Reclaim, &[], |txn| {
            let garbage = self.rows.get(&garbage_key(object).encode())?;
            if garbage.is_some() || txn.owner.segments.of_object(object) > 0 {
                return Err(MetaError::Invalid("an object that is not new"));
            }
            let mut taken = Vec::with_capacity(places.len());
            for StoredPlace { id, offset, len, raw } in places {
                let Some(row) = unstored(txn, *id) else { continue };
                let stored = SegmentRow {
                    state: SegmentState::Stored,
                    object: Some(object),
                    object_offset: *offset,
                    len: *len,
                    raw: *raw,
                    ..row
                };
                txn.put_segment(*id, Some(stored));
                taken.push(*id);
            }
            if taken.is_empty() {
                txn.put_plain(&garbage_key(object), Some(Vec::new()));
            }
            Ok(taken)
        })
    }
}

/// The row of a segment that others append to, or have appended to, and that no object has.
fn unstored(txn: &Txn<'_>, id: SegmentId) -> Option<SegmentRow> {
    let row = txn.segment(id)?;
    (row.kind == SegmentKind::Packed && row.state != SegmentState::Stored).then_some(row)
}
