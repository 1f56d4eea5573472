//! The jobs: threads that begin together, time each operation, and stop together when one fails.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::{Error, Workload};

/// The longest latency that is told apart: one hour, in nanoseconds. Longer ones count as this.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// What one timed call did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    /// Operations, as the workload counts them.
    pub(crate) operations: u64,
    /// Bytes of file contents moved.
    pub(crate) bytes: u64,
}

impl Done {
    /// One operation without contents.
    pub(crate) const ONE: Self = Self { operations: 1, bytes: 0 };

    /// One operation that moved `bytes`.
    pub(crate) fn bytes(bytes: u64) -> Self {
        Self { operations: 1, bytes }
    }
}

/// What the jobs of one step did, together.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Latency of the timed calls, nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// What they did.
    pub(crate) done: Done,
    /// From the first job's begin to the last one's end.
    pub(crate) elapsed: Duration,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self { latency: histogram(), done: Done::default(), elapsed: Duration::ZERO }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so that nothing can fail to fit.
        let added = self.latency.add(&other.latency);
        debug_assert!(added.is_ok(), "histograms of one shape");
        self.done.operations += other.done.operations;
        self.done.bytes += other.done.bytes;
    }
}

/// Three significant digits from 1 ns to an hour. The library refuses only bounds that these constants do not have.
#[allow(clippy::expect_used, reason = "a bug if it fails, and independent of any input")]
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("constant bounds that the library accepts")
}

/// One job's clock and counters.
pub(crate) struct Clock<'c> {
    tally: Tally,
    halt: [&'c AtomicBool; 2],
    workload: Workload,
}

impl Clock<'_> {
    /// Runs and times one call. Fails without running it when another job failed or the caller wants to stop.
    pub(crate) fn time(&mut self, call: impl FnOnce() -> Result<Done, Error>) -> Result<(), Error> {
        if self.halt.iter().any(|halt| halt.load(Ordering::Relaxed)) {
            return Err(Error::Stopped { workload: self.workload });
        }
        let begin = Instant::now();
        let done = call()?;
        let nanoseconds = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.tally.latency.saturating_record(nanoseconds.max(1));
        self.tally.done.operations += done.operations;
        self.tally.done.bytes += done.bytes;
        Ok(())
    }
}

/// The threads of one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crew<'c> {
    /// How many.
    pub(crate) jobs: usize,
    /// The caller's stop flag.
    pub(crate) stop: &'c AtomicBool,
    /// What they work on, for [`Error::Stopped`].
    pub(crate) workload: Workload,
}

impl Crew<'_> {
    /// Each job prepares; when all have, all begin `work` together. What `prepare` made is dropped within the timed
    /// part, so that a file's close counts. If several jobs fail, the failure that made the others stop is returned.
    pub(crate) fn run<T>(
        &self,
        prepare: impl Fn(usize) -> Result<T, Error> + Sync,
        work: impl Fn(&mut Clock<'_>, usize, T) -> Result<(), Error> + Sync,
    ) -> Result<Tally, Error> {
        let (barrier, failed) = (Barrier::new(self.jobs), AtomicBool::new(false));
        let job = |index: usize| {
            let prepared = prepare(index);
            if prepared.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            let halt = [&failed, self.stop];
            let mut clock = Clock { tally: Tally::new(), halt, workload: self.workload };
            barrier.wait();
            let begin = Instant::now();
            let outcome = prepared.and_then(|prepared| work(&mut clock, index, prepared));
            let end = Instant::now();
            if outcome.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            outcome.map(|()| (clock.tally, begin, end))
        };
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let job = &job;
            let threads: Vec<_> = (0..self.jobs).map(|index| scope.spawn(move || job(index))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        gather(outcomes)
    }
}

fn gather(outcomes: Vec<Result<(Tally, Instant, Instant), Error>>) -> Result<Tally, Error> {
    let (mut total, mut span, mut failure) = (Tally::new(), None, None);
    for outcome in outcomes {
        match outcome {
            Ok((tally, begin, end)) => {
                total.add(&tally);
                let (first, last) = span.unwrap_or((begin, end));
                span = Some((begin.min(first), end.max(last)));
            }
            Err(error) => {
                if failure.is_none() || matches!(failure, Some(Error::Stopped { .. })) {
                    failure = Some(error);
                }
            }
        }
    }
    total.elapsed = span.map_or(Duration::ZERO, |(begin, end)| end - begin);
    failure.map_or(Ok(total), Err)
}
