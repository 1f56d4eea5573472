use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use forebay_format::{row::Extent, run::RunTable};
use forebay_types::SegmentId;
use quick_cache::{
    Weighter,
    sync::{Cache, DefaultLifecycle},
};
use rustc_hash::FxBuildHasher;

/// What an entry costs beyond its bytes.
const ENTRY_COST: u64 = 128;
const TABLE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Place {
    segment: SegmentId,
    run_offset: u64,
    check: u32,
    /// The frame, or [`TABLE`].
    frame: u32,
}

#[derive(Clone, Debug)]
enum Piece {
    Table(Arc<RunTable>),
    Frame(Bytes),
}

#[derive(Clone, Debug)]
struct Cost;

impl Weighter<Place, Piece> for Cost {
    fn weight(&self, _: &Place, piece: &Piece) -> u64 {
        ENTRY_COST
            + match piece {
                Piece::Table(table) => 24 * table.frames() as u64,
                Piece::Frame(bytes) => bytes.len() as u64,
            }
    }
}

/// Verified tables and decoded frames, bounded in bytes, in shards; what is used once makes way before what is used again (CLOCK-Pro).
#[derive(Debug)]
pub(crate) struct FrameCache {
    pieces: Cache<Place, Piece, Cost, FxBuildHasher>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl FrameCache {
    pub(crate) fn new(capacity: u64) -> FrameCache {
        let items = usize::try_from(capacity / (32 << 10)).unwrap_or(usize::MAX).max(64);
        let pieces = Cache::with(items, capacity, Cost, FxBuildHasher, DefaultLifecycle::default());
        FrameCache { pieces, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
    }

    fn place(extent: &Extent, frame: u32) -> Place {
        let Extent { segment, run_offset, check, .. } = *extent;
        Place { segment, run_offset, check, frame }
    }

    pub(crate) fn table(&self, extent: &Extent) -> Option<Arc<RunTable>> {
        match self.pieces.get(&Self::place(extent, TABLE)) {
            Some(Piece::Table(table)) => Some(table),
            _ => {
                self.misses.fetch_add(1, Relaxed);
                None
            }
        }
    }

    pub(crate) fn put_table(&self, extent: &Extent, table: Arc<RunTable>) {
        self.pieces.insert(Self::place(extent, TABLE), Piece::Table(table));
    }

    pub(crate) fn frame(&self, extent: &Extent, frame: usize) -> Option<Bytes> {
        match self.pieces.get(&Self::place(extent, frame as u32)) {
            Some(Piece::Frame(bytes)) => {
                self.hits.fetch_add(1, Relaxed);
                Some(bytes)
            }
            _ => {
                self.misses.fetch_add(1, Relaxed);
                None
            }
        }
    }

    pub(crate) fn put_frame(&self, extent: &Extent, frame: usize, bytes: Bytes) {
        self.pieces.insert(Self::place(extent, frame as u32), Piece::Frame(bytes));
    }

    pub(crate) fn weight(&self) -> u64 {
        self.pieces.weight()
    }

    /// Frames that were found, and frames and tables that were not.
    pub(crate) fn lookups(&self) -> (u64, u64) {
        (self.hits.load(Relaxed), self.misses.load(Relaxed))
    }

    pub(crate) fn clear(&self) {
        self.pieces.clear();
    }
}
