//! Compaction: objects that are mostly garbage, or many small ones, give way to full ones.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use forebay_format::{
    footer::{Footer, TAIL_LEN},
    row::ObjectRef,
};
use forebay_meta::{Candidate, Holding};
use forebay_object::Backend;
use forebay_reading::object_key;
use forebay_types::SegmentId;
use rustc_hash::FxHashSet;

use super::For;
use crate::{Volume, error::VolumeError};

/// Garbage below this many bytes, and below a quarter of what is stored, is left alone.
const GARBAGE_MIN: u64 = 32 << 20;
/// Raw bytes in use that one round moves: about one full segment.
const ROUND_BYTES: u64 = 56 << 20;
/// Objects with less than this many bytes in use are small.
const SMALL: u64 = 4 << 20;
/// So many small objects are merged.
const SMALL_MANY: usize = 16;

impl Volume {
    /// Moves data out of objects that are not worth keeping. They become garbage once nothing refers to them.
    ///
    /// # Errors
    /// [`VolumeError`]; nothing is lost, what was moved stays moved.
    pub fn compact(&self) -> Result<(), VolumeError> {
        let _hurry = self.upkeep.give_way.hurry();
        self.compact_for(For::Caller)
    }

    /// The same, giving way to writers.
    pub(super) fn compact_round(&self) -> Result<(), VolumeError> {
        self.compact_for(For::Background)
    }

    fn compact_for(&self, whom: For) -> Result<(), VolumeError> {
        let _turn = self.upkeep.seal_turn.lock();
        let totals = self.ns.segment_totals();
        if *self.upkeep.compacted.lock() == Some(totals.object_changes) {
            return Ok(());
        }
        let victims = self.victims();
        if victims.is_empty() {
            *self.upkeep.compacted.lock() = Some(totals.object_changes);
            return Ok(());
        }
        let segments: FxHashSet<SegmentId> =
            victims.values().flat_map(|held| held.segments.clone()).collect();
        let mut candidates = Vec::new();
        for object in victims.keys() {
            self.upkeep.go_on(whom)?;
            candidates.extend(self.blocks_of(*object)?);
        }
        for segment in &segments {
            candidates.extend(self.ns.shares(*segment)?);
        }
        candidates.sort_unstable();
        candidates.dedup();
        let bytes = victims.values().map(|held| held.live).sum();
        let packed = self.move_out(&candidates, &|segment| segments.contains(&segment), bytes, &|| {
            self.upkeep.stopping()
        })?;
        tracing::debug!("compacted {} objects: {} bytes moved", victims.len(), packed.bytes);
        self.upkeep.done.compacted_bytes.fetch_add(packed.bytes, Ordering::Relaxed);
        // What is left because of that is not stubborn.
        self.upkeep.go_on(whom)?;
        let left = self.holdings();
        let mut stubborn = self.upkeep.stubborn.lock();
        for object in victims.keys() {
            match left.get(object) {
                Some(held) if held.live > 0 => stubborn.insert(*object, held.live),
                _ => {
                    self.upkeep.done.compacted_objects.fetch_add(1, Ordering::Relaxed);
                    stubborn.remove(object)
                }
            };
        }
        drop(stubborn);
        self.upkeep.wake();
        Ok(())
    }

    fn holdings(&self) -> BTreeMap<ObjectRef, Holding> {
        self.ns.objects().into_iter().collect()
    }

    /// The objects to empty now, as many as one round moves.
    fn victims(&self) -> BTreeMap<ObjectRef, Holding> {
        let mut holdings = self.holdings();
        let stubborn = self.upkeep.stubborn.lock().clone();
        holdings.retain(|object, held| held.live > 0 && stubborn.get(object) != Some(&held.live));
        let raw: u64 = holdings.values().map(|held| held.raw).sum();
        let garbage: u64 = holdings.values().map(|held| held.raw.saturating_sub(held.live)).sum();
        let wasteful = garbage >= GARBAGE_MIN && garbage >= raw / 4;
        let small = holdings.values().filter(|held| held.live < SMALL).count() >= SMALL_MANY;
        let mut chosen: Vec<_> = holdings
            .into_iter()
            .filter(|(_, held)| (wasteful && held.live < held.raw / 2) || (small && held.live < SMALL))
            .collect();
        chosen.sort_by_key(|(_, held)| held.live);
        let mut bytes = 0;
        chosen
            .into_iter()
            .take_while(|(_, held)| {
                bytes += held.live;
                bytes <= ROUND_BYTES
            })
            .collect()
    }

    /// The blocks that an object's footer names.
    fn blocks_of(&self, object: ObjectRef) -> Result<Vec<Candidate>, VolumeError> {
        let footer = self.footer(object)?;
        let runs = footer.segments.into_iter().flat_map(|segment| segment.runs);
        Ok(runs.map(|run| Candidate { subvolume: run.subvolume, ino: run.ino, block: run.block }).collect())
    }

    /// The footer of an object in the store.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub(crate) fn footer(&self, object: ObjectRef) -> Result<Footer, VolumeError> {
        let key = object_key(object);
        let size = self.store.head(&key)?.size;
        let damaged = |detail: String| VolumeError::Damaged { path: key.clone().into(), detail };
        let tail_at =
            size.checked_sub(TAIL_LEN as u64).ok_or_else(|| damaged("it is too short".to_owned()))?;
        let tail = self.store.get_range(&key, tail_at..size)?;
        let tail: [u8; TAIL_LEN] =
            tail.as_ref().try_into().map_err(|_| damaged("it is too short".to_owned()))?;
        let len = Footer::len_from_tail(&tail).map_err(|error| damaged(error.to_string()))?;
        let start =
            tail_at.checked_sub(len as u64).ok_or_else(|| damaged("its footer is cut off".to_owned()))?;
        let body = self.store.get_range(&key, start..tail_at)?;
        Footer::decode(&body, &tail).map_err(|error| damaged(error.to_string()))
    }
}
