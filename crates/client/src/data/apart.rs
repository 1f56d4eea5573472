//! Segments whose bytes may not be on all disks (`docs/design/policies.md`), and how they are read: kept in memory alone, and past the group where its members may not have
//! them.
//!
//! Guarantees: from the moment at which a read has named a segment here, none of its bytes are written to this machine's cache, or asked of a member that may not have them, for as long as
//! files that say so are read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use forebay_object::ObjectStore;
use forebay_reading::ObjectReader;
use forebay_types::SegmentId;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::Within;
use crate::group::{GroupStore, VolumeGroup};

/// Bytes of memory for each of the ways in which these are read.
const MEMORY: u64 = 64 << 20;
/// Ways at most: past all groups, and through each that a volume may have. Where groups come and go, the oldest go.
const WAYS: usize = 1 + forebay_protocol::group::GROUPS_MAX;
/// How long a segment counts after the last read of a file that says so: another file may have bytes in it, which was written before anything was said.
const COUNTS_FOR: Duration = Duration::from_secs(600);

/// Segments that are read apart.
pub(super) struct Apart {
    /// The store itself, and what it is read through, if it is.
    store: ObjectStore,
    group: Option<Arc<VolumeGroup>>,
    /// Those that were made, the oldest first.
    readers: Mutex<Vec<(Within, Arc<ObjectReader>)>>,
    any: AtomicBool,
    segments: RwLock<FxHashMap<SegmentId, (Within, Instant)>>,
}

impl Apart {
    pub(super) fn new(store: ObjectStore, group: Option<Arc<VolumeGroup>>) -> Apart {
        let (readers, segments) = (Mutex::default(), RwLock::default());
        Apart { store, group, readers, any: AtomicBool::new(false), segments }
    }

    /// Takes note that a segment's bytes may be there alone. Whether that is news.
    pub(super) fn name(&self, segment: SegmentId, within: Within) -> bool {
        let now = Instant::now();
        if within == Within::Any {
            return false;
        }
        self.any.store(true, Relaxed);
        let mut segments = self.segments.write();
        let before = segments.insert(segment, (within, now));
        before.is_none_or(|(before, since)| before != within || since.elapsed() >= COUNTS_FOR)
    }

    /// Which reader reads a segment, where it is not the usual one.
    pub(super) fn reader(&self, segment: SegmentId) -> Option<Arc<ObjectReader>> {
        let within = self.within(segment);
        if within == Within::Any {
            return None;
        }
        let mut readers = self.readers.lock();
        if let Some((_, reader)) = readers.iter().find(|(of, _)| *of == within) {
            return Some(Arc::clone(reader));
        }
        let reader = Arc::new(in_memory(&match (within, &self.group) {
            (Within::Group(_), Some(group)) => GroupStore::over(Arc::clone(group), &self.store, within),
            _ => self.store.clone(),
        }));
        let surplus = (readers.len() + 1).saturating_sub(WAYS);
        readers.drain(..surplus);
        readers.push((within, Arc::clone(&reader)));
        Some(reader)
    }

    /// Where a segment's bytes may be, as far as files have said that were read.
    pub(super) fn within(&self, segment: SegmentId) -> Within {
        if !self.any.load(Relaxed) {
            return Within::Any;
        }
        let segments = self.segments.read();
        let named = segments.get(&segment).filter(|(_, since)| since.elapsed() < COUNTS_FOR);
        named.map_or(Within::Any, |(within, _)| *within)
    }

    /// Does something with each of those that were made.
    pub(super) fn each(&self, does: impl Fn(&ObjectReader)) {
        self.readers.lock().iter().for_each(|(_, reader)| does(reader));
    }
}

fn in_memory(store: &ObjectStore) -> ObjectReader {
    ObjectReader::in_memory(store, MEMORY).unwrap_or_else(|error| {
        tracing::warn!("what is to be on no disk is not cached at all: {error}");
        ObjectReader::uncached(store)
    })
}
