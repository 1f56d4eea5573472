//! What is counted, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    from_members: AtomicU64,
    bytes: AtomicU64,
    here: AtomicU64,
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
    /// Bytes that went to clients of this machine.
    pub(crate) here: u64,
    pub(crate) peeks: u64,
    pub(crate) distrusted: u64,
}

impl Counts {
    /// Bytes that were here, for a client of this machine or another one.
    pub(crate) fn hit(&self, bytes: usize, to_here: bool) {
        self.hits.fetch_add(1, Relaxed);
        self.sent(bytes, to_here);
    }

    /// Bytes of which some were not here.
    pub(crate) fn missed(&self, bytes: usize, to_here: bool) {
        self.misses.fetch_add(1, Relaxed);
        self.sent(bytes, to_here);
    }

    fn sent(&self, bytes: usize, to_here: bool) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        if to_here {
            self.here.fetch_add(bytes as u64, Relaxed);
        }
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
            here: of(&self.here),
            peeks: of(&self.peeks),
            distrusted: of(&self.distrusted),
        }
    }
}
