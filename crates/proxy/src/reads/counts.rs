//! What is counted, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    from_members: AtomicU64,
    bytes: AtomicU64,
    peeks: AtomicU64,
    distrusted: AtomicU64,
}

/// Those counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) from_members: u64,
    pub(crate) bytes: u64,
    pub(crate) peeks: u64,
    pub(crate) distrusted: u64,
}

impl Counts {
    /// Bytes that were here.
    pub(crate) fn hit(&self, bytes: usize) {
        self.hits.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes of which some were not here.
    pub(crate) fn missed(&self, bytes: usize) {
        self.misses.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Bytes of a miss that another member had.
    pub(crate) fn had(&self) {
        self.from_members.fetch_add(1, Relaxed);
    }

    /// Another member asked what is here.
    pub(crate) fn peeked(&self, bytes: usize) {
        self.peeks.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn distrusted(&self) {
        self.distrusted.fetch_add(1, Relaxed);
    }

    /// Reads that were answered, hits and misses.
    pub(crate) fn reads(&self) -> u64 {
        self.hits.load(Relaxed) + self.misses.load(Relaxed)
    }

    pub(crate) fn all(&self) -> Counted {
        let of = |count: &AtomicU64| count.load(Relaxed);
        Counted {
            hits: of(&self.hits),
            misses: of(&self.misses),
            from_members: of(&self.from_members),
            bytes: of(&self.bytes),
            peeks: of(&self.peeks),
            distrusted: of(&self.distrusted),
        }
    }
}
