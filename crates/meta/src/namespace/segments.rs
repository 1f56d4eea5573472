//! Segments: from open to stored to gone.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    key::{self, Key},
    row::{ObjectRef, Row, SegmentKind, SegmentRow, SegmentState},
};
use forebay_types::{ObjectId, SegmentId, SubvolumeId};
use rustc_hash::FxHashSet;

use super::Namespace;
use crate::{
    error::MetaError,
    log::Urgency,
    segments::{Candidate, Holding, SegmentTotals},
    txn::{Txn, decode_key, row_block, row_extent},
};

impl Namespace {
    /// A number for a new segment. It becomes part of the next record; a crash before that may hand it out again, so the caller makes
    /// sure at start that no file with it is left ([`Namespace::numbers_taken`]).
    #[must_use]
    pub fn new_segment(&self) -> SegmentId {
        SegmentId(self.next_segment_number())
    }

    /// A number for a new object, like [`Namespace::new_segment`].
    #[must_use]
    pub fn new_object(&self) -> ObjectRef {
        let mut owner = self.lock();
        owner.counters.object += 1;
        owner.counters_changed = true;
        ObjectRef { epoch: owner.epoch, id: ObjectId(owner.counters.object - 1) }
    }

    /// Runs of numbers for new segments and objects: the first of each. Like [`Namespace::new_segment`], they are taken for good only once
    /// [`Namespace::record_numbers`] or any other operation was recorded.
    #[must_use]
    pub fn new_numbers(&self, segments: u32, objects: u32) -> (SegmentId, ObjectRef) {
        let mut owner = self.lock();
        let first = owner.counters.object;
        owner.counters.object += u64::from(objects);
        owner.counters_changed = true;
        let object = ObjectRef { epoch: owner.epoch, id: ObjectId(first) };
        (SegmentId(self.take_segment_numbers(u64::from(segments))), object)
    }

    /// Makes a record of the numbers that are taken, so that they stay so where nothing else is recorded after [`Namespace::numbers_taken`].
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn record_numbers(&self) -> Result<(), MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Reclaim, &[], |txn| {
            let counters = self.counters(txn.owner);
            txn.owner.counters_changed = false;
            txn.put_plain(&Key::Counters, Some(counters.encode()));
            Ok(())
        })
    }

    /// The row of a segment.
    #[must_use]
    pub fn segment(&self, id: SegmentId) -> Option<SegmentRow> {
        self.lock().segments.get(id).copied()
    }

    /// The rows of those of `ids` that are known.
    #[must_use]
    pub fn segments_of(&self, ids: &[SegmentId]) -> Vec<(SegmentId, SegmentRow)> {
        let owner = self.lock();
        ids.iter().filter_map(|id| owner.segments.get(*id).map(|row| (*id, *row))).collect()
    }

    /// The segments that the store does not have, in the order of their numbers.
    #[must_use]
    pub fn unstored_segments(&self) -> Vec<(SegmentId, SegmentRow)> {
        self.lock().segments.unstored().map(|(id, row)| (id, *row)).collect()
    }

    /// The segments without live bytes, in the order of their numbers.
    #[must_use]
    pub fn dead_segments(&self) -> Vec<(SegmentId, SegmentRow)> {
        self.lock().segments.dead().map(|(id, row)| (id, *row)).collect()
    }

    /// Sums over all segments. They are kept up with each change, so this costs nothing.
    #[must_use]
    pub fn segment_totals(&self) -> SegmentTotals {
        self.lock().segments.totals()
    }

    /// What each object holds.
    #[must_use]
    pub fn objects(&self) -> Vec<(ObjectRef, Holding)> {
        self.lock().segments.objects().map(|(object, held)| (object, held.clone())).collect()
    }

    /// All segments. There may be very many: not for what is done in every round.
    #[must_use]
    pub fn segments(&self) -> Vec<(SegmentId, SegmentRow)> {
        self.lock().segments.iter().map(|(id, row)| (id, *row)).collect()
    }

    /// The blocks that may have extents in a file of the journal.
    #[must_use]
    pub fn journal_candidates(&self, id: SegmentId) -> Vec<Candidate> {
        self.lock().segments.candidates(id)
    }

    /// The blocks that have rows, of whatever generation, that refer to one of `segments`. Looks through all rows of the volume.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn blocks_in(&self, segments: &FxHashSet<SegmentId>) -> Result<Vec<Candidate>, MetaError> {
        let mut found = BTreeSet::new();
        let mut from = Vec::new();
        loop {
            let page = self.rows.page(&from, None, 1024)?;
            for (key, value) in &page.rows {
                let Ok(Key::Versioned(subvolume, item, _)) = Key::decode(key) else { continue };
                let (extent, place) = (row_extent(&item, value)?, row_block(&item, value));
                if let (Some(extent), Some((ino, block))) = (extent, place)
                    && segments.contains(&extent.segment)
                {
                    found.insert(Candidate { subvolume, ino, block });
                }
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(found.into_iter().collect()),
            }
        }
    }

    /// Blocks that refer to a segment although its footer does not name them.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn shares(&self, id: SegmentId) -> Result<Vec<Candidate>, MetaError> {
        let _turn = self.lock();
        let rows = self.rows.with_prefix(&key::shares(id))?;
        rows.iter()
            .map(|(key, _)| match decode_key(key)? {
                Key::Share(_, subvolume, ino, block) => Ok(Candidate { subvolume, ino, block }),
                _ => Err(MetaError::Invalid("a row that is no share among the shares")),
            })
            .collect()
    }

    /// Says that a segment is whole and on this machine's disk: `len` bytes with `raw` raw bytes of runs.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn segment_sealed(
        &self,
        id: SegmentId,
        kind: SegmentKind,
        len: u64,
        raw: u64,
    ) -> Result<(), MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Reclaim, &[], |txn| {
            txn.know_segment(id, kind);
            let row = txn.segment(id).ok_or(MetaError::Invalid("a segment without a row"))?;
            txn.put_segment(id, Some(SegmentRow { state: SegmentState::Sealed, len, raw, ..row }));
            Ok(())
        })
    }

    /// Says that segments are in the store: each in `object` from the byte given on. Those that were forgotten meanwhile stay so; an object that has
    /// only such is garbage.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn segments_stored(&self, object: ObjectRef, places: &[(SegmentId, u64)]) -> Result<(), MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Reclaim, &[], |txn| {
            if places.iter().all(|(id, _)| txn.segment(*id).is_none()) {
                txn.put_plain(&garbage_key(object), Some(Vec::new()));
            }
            for (id, object_offset) in places {
                let Some(row) = txn.segment(*id) else { continue };
                let stored = SegmentRow {
                    state: SegmentState::Stored,
                    object: Some(object),
                    object_offset: *object_offset,
                    ..row
                };
                txn.put_segment(*id, Some(stored));
            }
            Ok(())
        })
    }

    /// Forgets segments that nothing refers to: those of `ids` that have no live bytes. Objects that lose their last segment become
    /// garbage, to be deleted once a checkpoint without them is stored. Returns the segments that were forgotten.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn forget_dead(&self, ids: &[SegmentId]) -> Result<Vec<(SegmentId, SegmentRow)>, MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Reclaim, &[], |txn| {
            let mut forgotten: Vec<(SegmentId, SegmentRow)> = Vec::new();
            let mut left: BTreeMap<ObjectRef, u32> = BTreeMap::new();
            for id in ids {
                let Some(row) = txn.segment(*id).filter(|row| row.live == 0) else { continue };
                txn.put_segment(*id, None);
                self.forget_shares(txn, *id)?;
                forgotten.push((*id, row));
                if let Some(object) = row.object {
                    let left = left.entry(object).or_insert_with(|| txn.owner.segments.of_object(object));
                    *left = left.saturating_sub(1);
                }
            }
            for (object, _) in left.into_iter().filter(|(_, segments)| *segments == 0) {
                txn.put_plain(&garbage_key(object), Some(Vec::new()));
            }
            Ok(forgotten)
        })
    }

    fn forget_shares(&self, txn: &mut Txn<'_>, id: SegmentId) -> Result<(), MetaError> {
        for (key, _) in self.rows.with_prefix(&key::shares(id))? {
            txn.put_raw(key, None);
        }
        Ok(())
    }

    /// The objects to be deleted.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn garbage(&self) -> Result<Vec<ObjectRef>, MetaError> {
        let _turn = self.lock();
        let rows = self.rows.with_prefix(&key::garbage())?;
        rows.iter()
            .map(|(key, _)| match decode_key(key)? {
                Key::Garbage(epoch, id) => {
                    Ok(ObjectRef { epoch: forebay_types::Epoch(epoch), id: ObjectId(id) })
                }
                _ => Err(MetaError::Invalid("a row that is no garbage among the garbage")),
            })
            .collect()
    }

    /// Whether a segment is in this object, or it waits to be deleted.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn object_is_named(&self, object: ObjectRef) -> Result<bool, MetaError> {
        let owner = self.lock();
        let garbage = self.rows.get(&garbage_key(object).encode())?;
        Ok(garbage.is_some() || owner.segments.of_object(object) > 0)
    }

    /// Makes garbage of objects that no row names: whoever was given their numbers is gone, and may have put them into the store.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn abandon_objects(&self, objects: &[ObjectRef]) -> Result<(), MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Reclaim, &[], |txn| {
            for object in objects {
                if txn.owner.segments.of_object(*object) == 0 {
                    txn.put_plain(&garbage_key(*object), Some(Vec::new()));
                }
            }
            Ok(())
        })
    }

    /// Says that objects are deleted.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn garbage_deleted(&self, objects: &[ObjectRef]) -> Result<(), MetaError> {
        self.change(SubvolumeId::FIRST, Urgency::Reclaim, &[], |txn| {
            for object in objects {
                txn.put_plain(&garbage_key(*object), None);
            }
            Ok(())
        })
    }
}

pub(super) fn garbage_key(object: ObjectRef) -> Key {
    Key::Garbage(object.epoch.0, object.id.0)
}
