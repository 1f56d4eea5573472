//! Segments whose bytes may not be on all disks (`docs/design/policies.md`), and how they are read: kept in memory alone, and past the group where its members may not have
//! them.
//!
//! Guarantees: from the moment at which a read has named a segment here, none of its bytes are written to this machine's cache, or asked of a member that may not have them, for as long as
//! files that say so are read.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use forebay_object::ObjectStore;
use forebay_protocol::Disks;
use forebay_reading::ObjectReader;
use forebay_types::SegmentId;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// Bytes of memory for each of the two ways in which these are read.
const MEMORY: u64 = 64 << 20;
/// How long a segment counts after the last read of a file that says so: another file may have bytes in it, which was written before anything was said.
const COUNTS_FOR: Duration = Duration::from_secs(600);

/// Segments that are read apart.
pub(super) struct Apart {
    /// The store itself, and the way through the group, where there is one.
    store: ObjectStore,
    through: ObjectStore,
    past: OnceLock<ObjectReader>,
    within: OnceLock<ObjectReader>,
    any: AtomicBool,
    segments: RwLock<FxHashMap<SegmentId, (Disks, Instant)>>,
}

impl Apart {
    pub(super) fn new(store: ObjectStore, through: ObjectStore) -> Apart {
        Apart {
            store,
            through,
            past: OnceLock::new(),
            within: OnceLock::new(),
            any: AtomicBool::new(false),
            segments: RwLock::default(),
        }
    }

    /// Takes note that a segment's bytes may be on these disks alone. Whether that is news.
    pub(super) fn name(&self, segment: SegmentId, disks: Disks) -> bool {
        let now = Instant::now();
        if disks == Disks::Any {
            return false;
        }
        self.any.store(true, Relaxed);
        let mut segments = self.segments.write();
        let before = segments.insert(segment, (disks, now));
        before.is_none_or(|(before, since)| before != disks || since.elapsed() >= COUNTS_FOR)
    }

    /// Which reader reads a segment, where it is not the usual one.
    pub(super) fn reader(&self, segment: SegmentId) -> Option<&ObjectReader> {
        match self.disks(segment) {
            Disks::Any => None,
            Disks::Members => Some(self.within.get_or_init(|| in_memory(&self.through))),
            Disks::None => Some(self.past.get_or_init(|| in_memory(&self.store))),
        }
    }

    /// On which disks a segment's bytes may be, as far as files have said that were read.
    pub(super) fn disks(&self, segment: SegmentId) -> Disks {
        if !self.any.load(Relaxed) {
            return Disks::Any;
        }
        let segments = self.segments.read();
        let named = segments.get(&segment).filter(|(_, since)| since.elapsed() < COUNTS_FOR);
        named.map_or(Disks::Any, |(disks, _)| *disks)
    }

    /// Those that were made.
    pub(super) fn readers(&self) -> impl Iterator<Item = &ObjectReader> {
        self.past.get().into_iter().chain(self.within.get())
    }
}

fn in_memory(store: &ObjectStore) -> ObjectReader {
    ObjectReader::in_memory(store, MEMORY).unwrap_or_else(|error| {
        tracing::warn!("what is to be on no disk is not cached at all: {error}");
        ObjectReader::uncached(store)
    })
}
