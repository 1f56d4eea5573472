use std::sync::{
    Arc,
    atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
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
/// Frames that are remembered as read once.
const REMEMBERED: usize = 8192;

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
    Frame(Frame),
}

/// The raw bytes of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    /// Bytes of memory that they keep from other uses.
    pub(crate) held: usize,
}

#[derive(Clone, Debug)]
struct Cost;

impl Weighter<Place, Piece> for Cost {
    fn weight(&self, _: &Place, piece: &Piece) -> u64 {
        ENTRY_COST
            + match piece {
                Piece::Table(table) => 24 * table.frames() as u64,
                Piece::Frame(frame) => frame.held as u64,
            }
    }
}

/// Verified tables and decoded frames, bounded in bytes, in shards; what is used once makes way before what is used again (CLOCK-Pro).
#[derive(Debug)]
pub(crate) struct FrameCache {
    pieces: Cache<Place, Piece, Cost, FxBuildHasher>,
    /// Fingerprints of frames that were read and not kept, each at the place that its hash gives.
    read_once: Box<[AtomicU32]>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl FrameCache {
    pub(crate) fn new(capacity: u64) -> FrameCache {
        let items = usize::try_from(capacity / (32 << 10)).unwrap_or(usize::MAX).max(64);
        let pieces = Cache::with(items, capacity, Cost, FxBuildHasher, DefaultLifecycle::default());
        let read_once = (0..REMEMBERED).map(|_| AtomicU32::new(0)).collect();
        FrameCache { pieces, read_once, hits: AtomicU64::new(0), misses: AtomicU64::new(0) }
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

    pub(crate) fn frame(&self, extent: &Extent, frame: usize) -> Option<Frame> {
        match self.pieces.get(&Self::place(extent, frame as u32)) {
            Some(Piece::Frame(frame)) => {
                self.hits.fetch_add(1, Relaxed);
                Some(frame)
            }
            _ => {
                self.misses.fetch_add(1, Relaxed);
                None
            }
        }
    }

    pub(crate) fn put_frame(&self, extent: &Extent, frame: usize, bytes: Frame) {
        self.pieces.insert(Self::place(extent, frame as u32), Piece::Frame(bytes));
    }

    /// Whether a frame that is not kept was read before, not long ago; remembers that it was read now. A reader that comes by once, as a
    /// random one over a large file, keeps no memory from those who come back.
    pub(crate) fn comes_back(&self, extent: &Extent, frame: usize) -> bool {
        let key = extent.run_offset ^ extent.segment.0.rotate_left(40) ^ (frame as u64).rotate_left(52);
        let hash = (key ^ key >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let print = hash as u32 | 1;
        let slot = self.read_once.get((hash >> 32) as usize % REMEMBERED);
        slot.is_some_and(|slot| slot.swap(print, Relaxed) == print)
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
        self.read_once.iter().for_each(|print| print.store(0, Relaxed));
    }
}
