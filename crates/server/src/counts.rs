//! What is counted, for metrics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use forebay_protocol::Kind;

/// Counters of one server since it started.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Requests that came, by kind.
    requests: [AtomicU64; Kind::ALL.len()],
    refused: AtomicU64,
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { requests: std::array::from_fn(|_| AtomicU64::new(0)), refused: AtomicU64::new(0) }
    }
}

impl Counts {
    pub(crate) fn came(&self, kind: Kind) {
        if let Some(index) = Kind::ALL.iter().position(|known| *known == kind) {
            self.requests[index].fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn was_refused(&self) {
        self.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        Kind::ALL.iter().zip(&self.requests).map(|(kind, count)| (*kind, count.load(Relaxed)))
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}
