//! Group commit: one of those who wait does the work for all of them.
//!
//! Who was served by one round is likely to come back soon with the next thing to sync. So the leader of a round waits for those whom the last one
//! served, at most until as long has passed since its end as it lasted: nobody waits longer than for one round more, and fewer rounds serve more.
//! One who was served alone has nobody to wait for.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// For threads that wait, of which one does the work. See [`Rounds::join`].
#[derive(Debug, Default)]
pub struct Rounds {
    state: Mutex<State>,
    /// A round has ended.
    ended: Condvar,
    /// The leader has all the company that it waits for.
    complete: Condvar,
}

#[derive(Debug, Default)]
struct State {
    leading: bool,
    /// Rounds that have begun.
    begun: u64,
    company: Company,
}

/// Who comes to a round, for whoever leads them. No I/O, no clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Company {
    /// Those who came since the last round began.
    here: u32,
    /// Those who are to be here before the next one begins.
    expected: u32,
    /// When they are waited for no longer. `None`: they are not.
    until: Option<Instant>,
}

impl Company {
    /// One more is here, and waits for the next round.
    pub fn come(&mut self) {
        self.here = self.here.saturating_add(1);
    }

    /// Until when a leader waits now, if it does.
    #[must_use]
    pub fn wait(&self) -> Option<Instant> {
        self.until.filter(|_| self.here < self.expected)
    }

    /// Begins a round with those who are here, and says how many these are.
    pub fn set_off(&mut self) -> u32 {
        std::mem::take(&mut self.here)
    }

    /// A round with so many has lasted so long, and ended now.
    pub fn back(&mut self, served: u32, lasted: Duration, now: Instant) {
        self.expected = self.here.saturating_add(served);
        // Who was alone, with nobody waiting, goes on alone.
        self.until = if self.expected > 1 { now.checked_add(lasted) } else { None };
    }
}

impl Rounds {
    /// Returns once `done` says so. Until then this thread either waits for the round that another one leads, or leads one itself by
    /// calling `lead`, which must make `done` true in the end for everybody who called before it began. No lock is held during `lead`.
    pub fn join(&self, done: impl Fn() -> bool, lead: impl Fn()) {
        let mut state = self.state.lock();
        if done() {
            return;
        }
        // How many rounds had begun when this thread was last counted among those who are here.
        let mut counted = self.count(&mut state);
        while !done() {
            if counted < state.begun {
                counted = self.count(&mut state);
            }
            if state.leading {
                self.ended.wait(&mut state);
                continue;
            }
            state.leading = true;
            while let Some(until) = state.company.wait() {
                if self.complete.wait_until(&mut state, until).timed_out() {
                    break;
                }
            }
            self.lead(&mut state, &lead);
        }
        if counted == state.begun {
            state.company.here -= 1;
        }
    }

    /// The same for background work: it waits for nobody, and nobody waits for it.
    pub fn join_apart(&self, done: impl Fn() -> bool, lead: impl Fn()) {
        let mut state = self.state.lock();
        while !done() {
            if state.leading {
                self.ended.wait(&mut state);
                continue;
            }
            state.leading = true;
            self.lead(&mut state, &lead);
        }
    }

    fn count(&self, state: &mut State) -> u64 {
        state.company.come();
        if state.company.wait().is_none() {
            self.complete.notify_one();
        }
        state.begun
    }

    fn lead(&self, state: &mut MutexGuard<'_, State>, lead: impl Fn()) {
        state.begun += 1;
        let served = state.company.set_off();
        let from = Instant::now();
        MutexGuard::unlocked(state, lead);
        let now = Instant::now();
        state.company.back(served, now - from, now);
        state.leading = false;
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Longer than any test lasts.
    const EVER: Duration = Duration::from_secs(1 << 30);

    fn after_a_round_of(served: u32) -> Rounds {
        let rounds = Rounds::default();
        rounds.state.lock().company.back(served, EVER, Instant::now());
        rounds
    }

    /// What is to be made durable, and what is; a round takes along all there was when it began.
    #[derive(Default)]
    struct Log {
        last: AtomicU32,
        synced: AtomicU32,
        rounds: AtomicU32,
    }

    impl Log {
        fn append(&self) -> u32 {
            self.last.fetch_add(1, Ordering::SeqCst) + 1
        }

        fn sync_round(&self) {
            self.rounds.fetch_add(1, Ordering::SeqCst);
            self.synced.fetch_max(self.last.load(Ordering::SeqCst), Ordering::SeqCst);
        }

        fn sync(&self, rounds: &Rounds) {
            let upto = self.append();
            rounds.join(|| self.synced.load(Ordering::SeqCst) >= upto, || self.sync_round());
        }
    }

    /// Waiting for others would take for ever.
    #[test]
    fn who_was_alone_waits_for_nobody() {
        let (rounds, log) = (after_a_round_of(1), Log::default());
        for _ in 0..3 {
            log.sync(&rounds);
            rounds.state.lock().company.back(1, EVER, Instant::now());
        }
        assert_eq!(log.rounds.into_inner(), 3);
        assert_eq!(rounds.state.lock().company.here, 0);
    }

    #[test]
    fn background_work_waits_for_nobody_and_nobody_for_it() {
        let (rounds, log) = (after_a_round_of(2), Log::default());
        let upto = log.append();
        rounds.join_apart(|| log.synced.load(Ordering::SeqCst) >= upto, || log.sync_round());
        assert_eq!(rounds.state.lock().company, Company::default());
        log.sync(&rounds);
        assert_eq!(log.rounds.into_inner(), 2);
    }

    #[test]
    fn those_who_were_served_together_are_again() {
        let (rounds, log) = (after_a_round_of(4), Log::default());
        for round in 1..=5 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| log.sync(&rounds));
                }
            });
            assert_eq!(log.rounds.load(Ordering::SeqCst), round);
            rounds.state.lock().company.back(4, EVER, Instant::now());
        }
    }

    /// The others do not come back: they are waited for as long as the last round lasted.
    #[test]
    fn a_leader_goes_when_its_time_has_come() {
        let (rounds, log) = (Rounds::default(), Log::default());
        rounds.state.lock().company.back(16, Duration::from_millis(1), Instant::now());
        log.sync(&rounds);
        assert_eq!(log.rounds.into_inner(), 1);
    }

    #[test]
    fn those_who_came_during_a_round_are_expected_beside_those_it_served() {
        let mut company = Company { here: 3, ..Company::default() };
        assert_eq!(company.set_off(), 3);
        company.here = 2;
        let now = Instant::now();
        company.back(3, Duration::from_secs(1), now);
        assert_eq!(company.wait(), Some(now + Duration::from_secs(1)));
        company.here = 4;
        assert!(company.wait().is_some());
        company.here = 5;
        assert_eq!(company.wait(), None);
    }

    /// Whoever comes and goes, each is counted once, and none is left behind.
    #[test]
    fn all_are_served_in_the_end() {
        let (rounds, log) = (Rounds::default(), Log::default());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..200).for_each(|_| log.sync(&rounds)));
            }
            scope.spawn(|| {
                for _ in 0..50 {
                    let upto = log.append();
                    rounds.join_apart(|| log.synced.load(Ordering::SeqCst) >= upto, || log.sync_round());
                }
            });
        });
        assert_eq!(log.synced.into_inner(), 8 * 200 + 50);
        assert_eq!(rounds.state.lock().company.here, 0);
    }
}
