use std::sync::atomic::{AtomicI64, Ordering};

use forebay_types::Timespec;
use rustix::time::{ClockId, clock_gettime};

/// Where timestamps come from.
pub trait Clock: Send + Sync {
    /// The time of day that timestamps of files get.
    fn now(&self) -> Timespec;
}

/// The system's clock. Timestamps have the coarse clock's steps (a few milliseconds), as the kernel's own file systems do.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timespec {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timespec { secs: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }
}

/// A clock that a test sets.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Moves the clock forward by this many nanoseconds.
    pub fn advance_ns(&self, nanos: i64) {
        self.0.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timespec {
        let nanos = self.0.load(Ordering::SeqCst);
        let part = u32::try_from(nanos.rem_euclid(1_000_000_000)).unwrap_or(0);
        Timespec { secs: nanos.div_euclid(1_000_000_000), nanos: part }
    }
}
