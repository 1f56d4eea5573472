//! Which requests have come, told by their numbers.
//!
//! The kernel does not wait for the answer to a RELEASE, and each queue, and each thread, has a pace of its own. So a lock that went with the last
//! close of a file may still be held here when the next request for it arrives. But the kernel numbers all requests of a mount in the order in
//! which they are made (2, 4, 6, …), whatever queue they go to: a number that is missing below a request's own may be such a close.
//!
//! Guarantees: a request that waits is gone on with once all requests with lower numbers have come, and those that close something have been served;
//! or after [`PATIENCE`], since a request that was interrupted in the kernel's queue never comes. Numbers that were waited for in vain are not waited
//! for again. Requests are noted without a lock; only who waits takes one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::protocol::Opcode;

/// How many requests back a missing one is looked for; a power of two.
const SPAN: u64 = 4096;
/// The kernel counts its own requests by twos.
const STEP: u64 = 2;
/// Numbers from here on are no counts: nudges, and requests that were sent again.
const NO_COUNT: u64 = 1 << 62;
/// How long a missing request is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

type Call = Box<dyn FnOnce() + Send>;

struct Waiter {
    number: u64,
    until: Instant,
    call: Call,
}

#[derive(Default)]
struct State {
    waiters: Vec<Waiter>,
    /// A thread waits for the end of somebody's patience.
    watched: bool,
}

/// The requests of a mount that have come.
pub(crate) struct Arrivals {
    /// By number: the last one that came, or, if it closes something, was served.
    came: Box<[AtomicU64]>,
    /// The first that came; nothing is known of those before.
    first: AtomicU64,
    /// Waiters, also those that are being called: while there are none, nobody has to be looked for.
    waiting: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

/// Whether a request ends something that may have a lock.
fn closes(op: Opcode) -> bool {
    matches!(op, Opcode::Release | Opcode::Flush)
}

impl Arrivals {
    pub(crate) fn new() -> Arc<Arrivals> {
        Arc::new(Arrivals {
            came: (0..SPAN).map(|_| AtomicU64::new(0)).collect(),
            first: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn slot(&self, number: u64) -> &AtomicU64 {
        // In bounds: there are SPAN slots.
        &self.came[(number / STEP % SPAN) as usize]
    }

    /// A request was read.
    pub(crate) fn came(&self, number: u64, op: Opcode) {
        let counted = number < NO_COUNT && number.is_multiple_of(STEP) && op != Opcode::Interrupt;
        if !counted {
            return;
        }
        if self.first.load(Ordering::Relaxed) == 0 {
            let _ = self.first.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst);
        }
        if !closes(op) {
            self.over_with(number);
        }
    }

    /// A request was served.
    pub(crate) fn served(&self, number: u64, op: Opcode) {
        if closes(op) && number < NO_COUNT {
            self.over_with(number);
        }
    }

    fn over_with(&self, number: u64) {
        self.slot(number).fetch_max(number, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.go_on(|waiter| self.missing(waiter.number).next().is_none());
        }
    }

    /// Numbers below `number` that have not come.
    fn missing(&self, number: u64) -> impl Iterator<Item = u64> + '_ {
        let first = self.first.load(Ordering::SeqCst).max(number.saturating_sub(STEP * (SPAN - 1)));
        (first..number)
            .step_by(STEP as usize)
            .filter(|number| self.slot(*number).load(Ordering::SeqCst) < *number)
    }

    /// Calls `call` once the requests before `number` have come: now, by the thread that serves the last of them, or by another.
    pub(crate) fn after_earlier(self: &Arc<Self>, number: u64, call: Call) {
        if number >= NO_COUNT || self.missing(number).next().is_none() {
            return call();
        }
        let mut state = self.state.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        state.waiters.push(Waiter { number, until: Instant::now() + PATIENCE, call });
        let watch = !std::mem::replace(&mut state.watched, true);
        drop(state);
        if watch && let Err(error) = self.watch() {
            tracing::warn!("cannot start a thread, so locks do not wait for closes: {error}");
            self.state.lock().watched = false;
            return self.hurry();
        }
        // One may have come between the look and the entry.
        self.go_on(|waiter| self.missing(waiter.number).next().is_none());
    }

    /// Whether somebody waits, or is being gone on with.
    pub(crate) fn somebody_waits(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Nobody waits any longer.
    pub(crate) fn hurry(&self) {
        self.go_on(|_| true);
    }

    fn go_on(&self, is_ready: impl Fn(&Waiter) -> bool) {
        let mut state = self.state.lock();
        let ready: Vec<Waiter> = state.waiters.extract_if(.., |waiter| is_ready(waiter)).collect();
        if state.waiters.is_empty() {
            self.changed.notify_all();
        }
        drop(state);
        for waiter in ready {
            (waiter.call)();
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn watch(self: &Arc<Self>) -> std::io::Result<()> {
        let arrivals = Arc::downgrade(self);
        std::thread::Builder::new().name("fuse-closes".to_owned()).spawn(move || watch(&arrivals)).map(drop)
    }

    /// Gives up on what is late. Until when to sleep; `None`: nobody waits.
    fn look(&self) -> Option<Instant> {
        let now = Instant::now();
        let late = |waiter: &Waiter| waiter.until <= now;
        let lost: Vec<u64> = self
            .state
            .lock()
            .waiters
            .iter()
            .filter(|waiter| late(waiter))
            .map(|waiter| waiter.number)
            .collect();
        for number in lost {
            for missing in self.missing(number) {
                self.slot(missing).fetch_max(missing, Ordering::SeqCst);
            }
        }
        self.go_on(late);
        let mut state = self.state.lock();
        let next = state.waiters.iter().map(|waiter| waiter.until).min();
        state.watched = next.is_some();
        next
    }

    fn sleep(&self, until: Instant) {
        let mut state = self.state.lock();
        if !state.waiters.is_empty() {
            self.changed.wait_until(&mut state, until);
        }
    }
}

/// Until nobody waits, or the mount has ended.
fn watch(arrivals: &Weak<Arrivals>) {
    while let Some(arrivals) = arrivals.upgrade() {
        let Some(until) = arrivals.look() else { return };
        arrivals.sleep(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was called, in order.
    #[derive(Clone, Default)]
    struct Called(Arc<Mutex<Vec<u64>>>);

    impl Called {
        fn by(&self, arrivals: &Arc<Arrivals>, number: u64) {
            let called = self.clone();
            arrivals.came(number, Opcode::Setlk);
            arrivals.after_earlier(number, Box::new(move || called.0.lock().push(number)));
        }

        fn all(&self) -> Vec<u64> {
            self.0.lock().clone()
        }
    }

    fn begun() -> (Arc<Arrivals>, Called) {
        let arrivals = Arrivals::new();
        arrivals.came(100, Opcode::Getattr);
        (arrivals, Called::default())
    }

    #[test]
    fn nobody_waits_where_nothing_is_missing() {
        let (arrivals, called) = begun();
        called.by(&arrivals, 102);
        arrivals.came(106, Opcode::Read);
        arrivals.came(104, Opcode::Lookup);
        called.by(&arrivals, 108);
        assert_eq!(called.all(), [102, 108]);
        // Those before the first one are nobody's concern.
        arrivals.came(7, Opcode::Interrupt);
        called.by(&arrivals, 110);
        assert_eq!(called.all(), [102, 108, 110]);
    }

    #[test]
    fn a_close_is_waited_for_until_it_is_served() {
        let (arrivals, called) = begun();
        called.by(&arrivals, 106);
        arrivals.came(104, Opcode::Write);
        arrivals.came(102, Opcode::Release);
        assert_eq!(called.all(), []);
        arrivals.served(102, Opcode::Release);
        assert_eq!(called.all(), [106]);
    }

    #[test]
    fn one_that_never_comes_is_waited_for_once() {
        let (arrivals, called) = begun();
        called.by(&arrivals, 104);
        assert_eq!(called.all(), []);
        let begun = Instant::now();
        while called.all().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        called.by(&arrivals, 106);
        assert_eq!(called.all(), [104, 106]);
    }

    #[test]
    fn those_who_wait_go_on_when_they_must_hurry() {
        let (arrivals, called) = begun();
        called.by(&arrivals, 104);
        called.by(&arrivals, 108);
        arrivals.hurry();
        assert_eq!(called.all(), [104, 108]);
        // Late, and of no interest: a newer one has its place.
        arrivals.came(104 + STEP * SPAN, Opcode::Getattr);
        arrivals.came(104, Opcode::Getattr);
        assert!(arrivals.missing(104 + STEP * SPAN + STEP).all(|number| number != 104 + STEP * SPAN));
    }
}
