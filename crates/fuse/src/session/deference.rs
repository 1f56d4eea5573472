//! Keeping a caller on its processor.
//!
//! The thread that answers wakes the caller on the processor that both are on. To the scheduler that processor is busy with just this thread,
//! so it gives the caller an idle one if there is any; the caller's next request wakes the queue's thread there, whose answer
//! sends it back. Each such move wakes a processor that sleeps, which costs several times the whole request, and once it has begun it goes on,
//! since what the caller left a moment ago always counts as idle.
//!
//! A processor that runs only threads of the idle policy counts as idle too, and a caller that is woken from there stays. So a thread whose
//! caller has just come from another processor answers under that policy for some requests. By then the other one
//! sleeps so deeply that the scheduler leaves it alone, or the next move begins it anew.
//!
//! **What it may cost.** A thread of the idle policy waits for all others that want its processor. So a spell is short in requests and in time; one that
//! took too long is followed by a time without, longer each time. The file system's methods run under the usual policy:
//! whoever waits for a lock of theirs waits no longer, and threads that they start inherit nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::policy::{self, Policy};

/// Requests of a spell.
const SPELL: u32 = 256;
/// A spell that is not over by then was held up by others who want the processor.
const LONGEST: Duration = Duration::from_millis(100);
/// Requests without a spell after one that took too long, at first and at most; doubled each time.
const PAUSE: std::ops::RangeInclusive<u32> = 256..=65_536;
const PLACES: usize = 256;

/// Which queue callers were last seen at. Shared by all queues of a mount; a caller's place is written to only when it moves.
pub(super) struct Callers(Box<[Place]>);

/// One beside the other, the processors would disturb each other.
#[repr(align(64))]
#[derive(Default)]
struct Place(AtomicU64);

impl Default for Callers {
    fn default() -> Callers {
        Callers((0..PLACES).map(|_| Place::default()).collect())
    }
}

impl Callers {
    /// Takes note of where a thread asks, and says whether it last asked elsewhere.
    fn moved(&self, thread: u32, queue: u16) -> bool {
        let Some(Place(place)) = self.0.get(thread as usize % PLACES) else { return false };
        let now = u64::from(thread) << 16 | u64::from(queue);
        let before = place.load(Ordering::Relaxed);
        if before != now {
            place.store(now, Ordering::Relaxed);
        }
        before != now && before >> 16 == u64::from(thread)
    }
}

/// What the threads of one queue do about it.
pub(super) struct Deference {
    callers: Arc<Callers>,
    /// Whether the process may change policies to and fro.
    possible: AtomicBool,
    /// Asked and changed by threads of one processor.
    spell: Mutex<Spell>,
}

#[derive(Default)]
struct Spell {
    /// Who asked last.
    caller: u32,
    /// Requests that are left of it; 0 outside of one.
    left: u32,
    until: Option<Instant>,
    /// Requests without one.
    pause: u32,
    next_pause: u32,
}

impl Deference {
    pub(super) fn new(callers: Arc<Callers>) -> Deference {
        Deference { callers, possible: AtomicBool::new(policy::may_change()), spell: Mutex::default() }
    }

    /// A request has come to `queue`, which the thread `caller` waits for (0: nobody). Says whether it is to be answered under the idle policy.
    pub(super) fn took(&self, caller: u32, queue: u16) -> bool {
        if caller == 0 || !self.possible.load(Ordering::Relaxed) {
            return false;
        }
        let moved = self.callers.moved(caller, queue);
        self.spell.lock().next(caller, moved, Instant::now)
    }

    /// Gives the calling thread a policy, if it has another one.
    pub(super) fn take_on(&self, has: &mut Policy, wanted: Policy) {
        if *has == wanted {
            return;
        }
        match policy::take_on(wanted) {
            Ok(()) => *has = wanted,
            Err(error) => {
                tracing::debug!("a thread keeps its scheduling policy: {error}");
                self.possible.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Spell {
    /// A caller asks. `moved`: it last asked elsewhere. One that has the processor to itself is back where it asked before; with others about, no
    /// processor is idle for long.
    fn next(&mut self, caller: u32, moved: bool, now: impl Fn() -> Instant) -> bool {
        let alone = std::mem::replace(&mut self.caller, caller) == caller;
        if self.pause > 0 {
            self.pause -= 1;
        } else if !alone {
            self.left = 0;
        } else if moved {
            self.left = SPELL;
            self.until = Some(now() + LONGEST);
        } else if self.left > 0 {
            self.left -= 1;
            self.check(now());
        }
        self.left > 0
    }

    fn check(&mut self, now: Instant) {
        if self.until.is_some_and(|until| now >= until) {
            self.left = 0;
            self.pause = self.next_pause.clamp(*PAUSE.start(), *PAUSE.end());
            self.next_pause = self.pause.saturating_mul(2);
        } else if self.left == 0 {
            self.next_pause = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests in a row that are answered under the idle policy, each `step` after the one before.
    fn spell(of: &mut Spell, caller: u32, start: Instant, step: Duration) -> u32 {
        (1..).take_while(|count| of.next(caller, false, || start + step * *count)).count() as u32
    }

    #[test]
    fn a_caller_that_was_sent_to_and_fro_is_kept_for_a_spell() {
        let (mut of, start) = (Spell::default(), Instant::now());
        assert!(!of.next(7, false, || start), "it asks for the first time");
        assert!(of.next(7, true, || start));
        assert_eq!(spell(&mut of, 7, start, Duration::from_micros(10)), SPELL - 1);
        assert!(!of.next(7, false, || start));
        assert!(of.next(7, true, || start), "the next move begins one anew");
    }

    #[test]
    fn nobody_is_kept_where_others_ask_too() {
        let (mut of, start) = (Spell::default(), Instant::now());
        assert!(!of.next(7, true, || start));
        assert!(of.next(7, true, || start));
        assert!(!of.next(8, false, || start));
        assert!(!of.next(7, true, || start));
        assert!(!of.next(7, false, || start));
    }

    #[test]
    fn spells_that_are_held_up_become_rare() {
        let (mut of, mut start) = (Spell::default(), Instant::now());
        of.next(7, false, || start);
        for pause in [*PAUSE.start(), PAUSE.start() * 2, PAUSE.start() * 4] {
            assert!(of.next(7, true, || start));
            assert!(spell(&mut of, 7, start, LONGEST / 10) < 10);
            start += LONGEST;
            for _ in 0..pause {
                assert!(!of.next(7, true, || start));
            }
        }
        assert!(of.next(7, true, || start));
        spell(&mut of, 7, start, Duration::ZERO);
        assert!(of.next(7, true, || start));
        spell(&mut of, 7, start, LONGEST);
        assert_eq!(of.pause, *PAUSE.start(), "one that was not held up makes up for all before");
    }

    #[test]
    fn a_move_is_seen_once_and_by_the_caller_alone() {
        let callers = Callers::default();
        assert!(!callers.moved(7, 0));
        assert!(!callers.moved(7, 0));
        assert!(callers.moved(7, 1));
        assert!(!callers.moved(7, 1));
        assert!(!callers.moved(7 + PLACES as u32, 0), "another one that has the same place");
        assert!(!callers.moved(7, 0));
    }
}
