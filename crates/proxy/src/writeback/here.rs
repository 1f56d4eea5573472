//! What clients of this machine write: they read it here again, so it is cached here once it is clean, whoever is asked first by others.
//!
//! In memory alone: of what was written before the process began it is not known, and it is cached where it belongs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use forebay_types::{SegmentId, VolumeId};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

/// So many of the last segments are remembered at least, and twice as many at most.
const SEGMENTS: usize = 1 << 15;

type Segments = FxHashSet<(VolumeId, SegmentId)>;

/// Segments that clients of this machine have written to, and how much.
#[derive(Debug, Default)]
pub struct WrittenHere {
    /// The last ones, and those before.
    segments: Mutex<(Segments, Segments)>,
    bytes: AtomicU64,
}

impl WrittenHere {
    /// So many bytes of a segment were taken in from a client of this machine.
    pub(super) fn note(&self, volume: VolumeId, segment: SegmentId, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        let mut segments = self.segments.lock();
        if segments.0.len() >= SEGMENTS {
            segments.1 = std::mem::take(&mut segments.0);
        }
        segments.0.insert((volume, segment));
    }

    /// Whether a client of this machine has written to a segment lately.
    pub(crate) fn has(&self, volume: VolumeId, segment: SegmentId) -> bool {
        let (last, before) = &*self.segments.lock();
        last.contains(&(volume, segment)) || before.contains(&(volume, segment))
    }

    /// Bytes that clients of this machine have written, since the start.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_segments_are_known_and_not_too_many() {
        let (here, volume) = (WrittenHere::default(), VolumeId([1; 16]));
        here.note(volume, SegmentId(5), 100);
        here.note(volume, SegmentId(5), 20);
        assert!(here.has(volume, SegmentId(5)) && !here.has(volume, SegmentId(6)));
        assert!(!here.has(VolumeId([2; 16]), SegmentId(5)), "of another volume");
        let many = 3 * SEGMENTS as u64;
        (10..10 + many).for_each(|number| here.note(volume, SegmentId(number), 1));
        assert!((many - SEGMENTS as u64..many).all(|at| here.has(volume, SegmentId(10 + at))));
        let (last, before) = &*here.segments.lock();
        assert!(last.len() + before.len() <= 2 * SEGMENTS, "{} and {}", last.len(), before.len());
        assert_eq!(here.bytes(), 120 + many);
    }
}
