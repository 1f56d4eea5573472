//! Background work gives way to writers: while they come, it rests between its steps, in proportion to what these took.
//!
//! On a machine whose processors the writers could use alone, sealing beside them takes from each write what it takes itself; a moment later it costs
//! nobody anything. It never rests so much that the journal grows without bound: the rests shrink with what waits to be sealed, and are nothing
//! before writers have to wait for it.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// Bytes that wait to be sealed from which on sealing does not rest.
const NO_REST: u64 = 256 << 20;
/// A rest is at most so many times as long as the step before it.
const REST_MAX: u32 = 4;
/// The longest rest.
const REST_LIMIT: Duration = Duration::from_millis(100);

/// What tells background work whether to rest. Shared by all threads.
#[derive(Debug, Default)]
pub(super) struct GiveWay {
    /// Bytes that writers have brought into the journal.
    came: AtomicU64,
    /// Those who wait for the work.
    hurried: AtomicU32,
    lock: Mutex<()>,
    hurry: Condvar,
}

/// As long as it lives, background work does not rest.
#[derive(Debug)]
pub(super) struct Hurry<'a>(&'a GiveWay);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, Ordering::AcqRel);
    }
}

impl GiveWay {
    /// Says that a writer has brought bytes into the journal.
    pub(super) fn came(&self, bytes: u64) {
        self.came.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Says that somebody waits for background work. A rest under way ends.
    pub(super) fn hurry(&self) -> Hurry<'_> {
        self.hurried.fetch_add(1, Ordering::AcqRel);
        self.interrupt();
        Hurry(self)
    }

    /// Ends a rest under way.
    pub(super) fn interrupt(&self) {
        drop(self.lock.lock());
        self.hurry.notify_all();
    }
}

/// The steps of one piece of background work.
#[derive(Debug)]
pub(super) struct Steps {
    came: u64,
    since: Instant,
}

impl Steps {
    pub(super) fn begin(way: &GiveWay) -> Steps {
        Steps { came: way.came.load(Ordering::Relaxed), since: Instant::now() }
    }

    /// Rests after a step, if there is reason to. `backlog`: bytes that wait to be sealed.
    pub(super) fn rest(&mut self, way: &GiveWay, backlog: u64, stopping: impl Fn() -> bool) {
        let came = way.came.load(Ordering::Relaxed);
        let writers = came != self.came && way.hurried.load(Ordering::Acquire) == 0;
        self.came = came;
        let rest = if writers { rest_after(self.since.elapsed(), backlog) } else { Duration::ZERO };
        if !rest.is_zero() {
            let mut lock = way.lock.lock();
            // Whoever hurries does so before it takes the lock, so it is seen here or ends the wait.
            if way.hurried.load(Ordering::Acquire) == 0 && !stopping() {
                way.hurry.wait_for(&mut lock, rest);
            }
        }
        self.since = Instant::now();
    }
}

/// How long to rest after a step beside writers that took `worked`.
fn rest_after(worked: Duration, backlog: u64) -> Duration {
    let left = NO_REST.saturating_sub(backlog);
    let share = left as f64 / NO_REST as f64;
    worked.mul_f64(f64::from(REST_MAX) * share).min(REST_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_shrink_with_what_waits() {
        let worked = Duration::from_millis(10);
        assert_eq!(rest_after(worked, 0), Duration::from_millis(40));
        assert_eq!(rest_after(worked, NO_REST / 2), Duration::from_millis(20));
        assert_eq!(rest_after(worked, NO_REST), Duration::ZERO);
        assert_eq!(rest_after(worked, u64::MAX), Duration::ZERO);
        assert_eq!(rest_after(Duration::from_secs(10), 0), REST_LIMIT);
    }

    /// Where nobody writes, or somebody waits, or too much does, no lock is taken: here that would be for ever.
    #[test]
    fn no_lock_is_taken_where_there_is_no_rest() {
        let way = GiveWay::default();
        let hurry = way.hurry();
        let _held = way.lock.lock();
        let mut steps = Steps::begin(&way);
        steps.rest(&way, 0, || false);
        way.came(1);
        steps.rest(&way, 0, || false);
        drop(hurry);
        way.came(1);
        steps.rest(&way, NO_REST, || false);
        steps.rest(&way, 0, || false);
    }
}
