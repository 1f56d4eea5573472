//! How long a member is given to answer.

use std::time::{Duration, Instant};

/// How long a member may take to say what it has, at least; and in times of its slowest answer lately.
const ANSWER_MS: u64 = 10;
const ANSWER_TIMES: u64 = 4;
/// And at most, beside what the bytes take that are on their way from it.
const ANSWER_MAX_MS: u64 = 1_000;
/// How much longer these may take than they did lately, and how long at most.
const CARRY_TIMES: u64 = 2;
const CARRY_MAX_MS: u64 = 3_000;
/// What a KiB may be expected to take at first, in nanoseconds (10 MiB a second), and at most (1 MiB a second).
const CARRY_FIRST_NS: u64 = 100_000;
const CARRY_SLOWEST_NS: u64 = 1_000_000;
/// From so many KiB on an answer says how long bytes take.
const CARRY_KIB: u64 = 64;
/// How lately a member must have answered somebody, to be late and no more.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// Answers in a row that are late before a member is left alone.
const LATE_MAX: u32 = 3;
/// What the slowest answer may be expected to take at first, in microseconds.
const SLOW_FIRST_US: u64 = 25_000;

/// How long answers of a member are waited for. What its link carries at a time is no reason to take it for one that does not answer.
#[derive(Debug)]
pub(super) struct Pace {
    /// The slowest answer lately, without the time of its bytes: falls by a 64th with each one.
    slow_us: u64,
    /// The longest that a KiB took lately, in nanoseconds and in the same way, with all that was on its way before it.
    kib_ns: u64,
    /// When it last answered.
    heard: Option<Instant>,
    /// Since when bytes are given twice the time.
    widened: Option<Instant>,
    /// How many were late, one after the other.
    late: u32,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { slow_us: SLOW_FIRST_US, kib_ns: CARRY_FIRST_NS, heard: None, widened: None, late: 0 }
    }

    /// For an answer behind which there are so many KiB, its own included.
    pub(super) fn patience_ms(&self, kib: u64) -> u32 {
        let answers = (self.slow_us * ANSWER_TIMES / 1000).clamp(ANSWER_MS, ANSWER_MAX_MS);
        let carries = (kib.saturating_mul(self.kib_ns * CARRY_TIMES) / 1_000_000).min(CARRY_MAX_MS);
        (answers + carries) as u32
    }

    /// It answered what it was asked first, in so long, with so many KiB on their way.
    pub(super) fn answered(&mut self, took_us: u64, kib: u64, now: Instant) {
        let carried_us = kib.saturating_mul(self.kib_ns) / 1000;
        let answer_us = took_us.saturating_sub(carried_us).min(ANSWER_MAX_MS * 1000);
        self.slow_us = answer_us.max(self.slow_us - self.slow_us.div_ceil(64));
        if kib >= CARRY_KIB {
            let kib_ns = (took_us.saturating_mul(1000) / kib).min(CARRY_SLOWEST_NS);
            self.kib_ns = kib_ns.max(self.kib_ns - self.kib_ns.div_ceil(64));
        }
        self.heard(now);
        self.late = 0;
    }

    /// It has sent something.
    pub(super) fn heard(&mut self, now: Instant) {
        self.heard = Some(now);
    }

    /// An answer did not come by `now` that was asked for at `began`. Says whether the member is to be left alone: a machine that is busy is slow now and then, and one
    /// whose link is full answers others meanwhile; one that is gone stays mute.
    pub(super) fn late(&mut self, began: Instant, now: Instant) -> bool {
        let heard = self.heard.filter(|heard| *heard > began);
        if heard.is_some_and(|heard| now.saturating_duration_since(heard) < HEARD_WITHIN) {
            // Once for all that were on their way together.
            if self.widened.is_none_or(|widened| widened < began) {
                self.kib_ns = (self.kib_ns * 2).min(CARRY_SLOWEST_NS);
                self.widened = Some(now);
            }
            return false;
        }
        self.slow_us = (self.slow_us * 2).min(ANSWER_MAX_MS * 1000 / ANSWER_TIMES);
        self.late += 1;
        self.late >= LATE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_waited_for_as_it_is_slow_and_left_alone_once_it_is_mute() {
        let mut pace = Pace::new();
        let now = Instant::now();
        assert_eq!(pace.patience_ms(0), 100);
        (0..1_000).for_each(|_| pace.answered(300, 4, now));
        assert_eq!(pace.patience_ms(0), 10, "not less than that");
        pace.answered(40_400, 4, now);
        assert_eq!(pace.patience_ms(0), 160, "as slow as it was lately");
        let asked = now + Duration::from_millis(1);
        let late = |pace: &mut Pace| pace.late(asked, asked + Duration::from_millis(200));
        assert!(!late(&mut pace) && !late(&mut pace), "it may be busy");
        assert_eq!(pace.patience_ms(0), 640);
        pace.answered(100, 4, now);
        assert!(!late(&mut pace) && !late(&mut pace) && late(&mut pace), "three in a row");
        assert!(late(&mut pace) && pace.patience_ms(0) == 1_000, "until it answers");
    }

    #[test]
    fn a_member_whose_link_is_full_is_not_one_that_is_mute() {
        let (mut pace, asked) = (Pace::new(), Instant::now());
        // 16 at a time of 256 KiB over 4 MiB a second: the last one comes after a second.
        let kib = |number: u64| number * 256;
        let after = |number: u64| asked + Duration::from_micros(number * 62_500);
        (1..=16).for_each(|number| pace.answered(number * 62_500, kib(number), after(number)));
        assert!(pace.patience_ms(kib(16)) >= 2_000, "all that is on its way is waited for");
        assert!(pace.patience_ms(kib(1000)) <= 4_000, "and not for ever");
        let before = pace.kib_ns;
        assert!((0..10).all(|_| !pace.late(asked, after(17))), "it answered others since that was asked");
        assert_eq!(pace.kib_ns, 2 * before, "once for all of them");
        assert!(!pace.late(asked, after(40)) && !pace.late(asked, after(40)), "it has answered, and no more");
        assert!(pace.late(asked, after(40)), "for a second nothing came");
        // A link that is fast again is known to be.
        (0..1_000).for_each(|_| pace.answered(300, 256, after(60)));
        assert_eq!((pace.patience_ms(kib(16)), pace.kib_ns), (19, 1_171));
    }
}
