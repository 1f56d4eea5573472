//! How long a member is given to answer.

use std::time::{Duration, Instant};

/// How long a member may take to say what it has, at least; and in times of its slowest answer lately.
const ANSWER_MS: u64 = 10;
const ANSWER_TIMES: u64 = 4;
/// And at most, beside what the bytes take that are on their way from it.
const ANSWER_MAX_MS: u64 = 1_000;
/// How much longer these may take than they did lately, and how long at most until the first of them is seen.
const CARRY_TIMES: u64 = 2;
const CARRY_MAX_MS: u64 = 1_000;
/// And how much longer what is sent to it, where nothing is to be seen of how that comes along.
const SEND_MAX_MS: u64 = 4_000;
/// What a KiB may be expected to take at first, in nanoseconds (10 MiB a second), and at most (1 MiB a second).
const CARRY_FIRST_NS: u64 = 100_000;
const CARRY_SLOWEST_NS: u64 = 1_000_000;
/// From so many KiB on an answer says how long bytes take.
const CARRY_KIB: u64 = 64;
/// How long nothing may come from one that was seen to send.
const MUTE_AFTER: Duration = Duration::from_secs(1);
/// How much may come before an answer, in times of what was asked for before it, and besides: answers are not sent in the order of the requests.
const OVERTAKE_TIMES: u64 = 2;
const OVERTAKE_BYTES: u64 = 1 << 20;
/// Answers in a row that are late before a member is left alone.
const LATE_MAX: u32 = 3;
/// What the slowest answer may be expected to take at first, in microseconds.
const SLOW_FIRST_US: u64 = 25_000;

/// How long it takes until something is to be seen of an answer of a member.
#[derive(Debug)]
pub(super) struct Pace {
    /// The slowest answer lately, without the time of its bytes: falls by a 64th with each one.
    slow_us: u64,
    /// The longest that a KiB took lately, in nanoseconds and in the same way, with all that was on its way before it.
    kib_ns: u64,
    /// How many were late, one after the other.
    late: u32,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { slow_us: SLOW_FIRST_US, kib_ns: CARRY_FIRST_NS, late: 0 }
    }

    /// For an answer behind which there are so many KiB, its own included.
    pub(super) fn patience(&self, kib: u64) -> Duration {
        let answers = (self.slow_us * ANSWER_TIMES / 1000).clamp(ANSWER_MS, ANSWER_MAX_MS);
        let carries = self.carries_ms(kib).min(CARRY_MAX_MS);
        Duration::from_millis(answers + carries)
    }

    fn carries_ms(&self, kib: u64) -> u64 {
        kib.saturating_mul(self.kib_ns * CARRY_TIMES) / 1_000_000
    }

    /// How long so many KiB may take that are on their way to it.
    pub(super) fn carries(&self, kib: u64) -> Duration {
        Duration::from_millis(self.carries_ms(kib).min(SEND_MAX_MS))
    }

    /// It answered what it was asked first, in so long, with so many KiB on their way.
    pub(super) fn answered(&mut self, took_us: u64, kib: u64) {
        let carried_us = kib.saturating_mul(self.kib_ns) / 1000;
        let answer_us = took_us.saturating_sub(carried_us).min(ANSWER_MAX_MS * 1000);
        self.slow_us = answer_us.max(self.slow_us - self.slow_us.div_ceil(64));
        if kib >= CARRY_KIB {
            let kib_ns = (took_us.saturating_mul(1000) / kib).min(CARRY_SLOWEST_NS);
            self.kib_ns = kib_ns.max(self.kib_ns - self.kib_ns.div_ceil(64));
        }
        self.late = 0;
    }

    /// An answer did not come, and it did not look as if it would. Says whether the member is to be left alone: a machine that is busy is slow now and then; one that is gone
    /// stays mute.
    pub(super) fn late(&mut self) -> bool {
        self.slow_us = (self.slow_us * 2).min(ANSWER_MAX_MS * 1000 / ANSWER_TIMES);
        self.late += 1;
        self.late >= LATE_MAX
    }
}

/// An answer that is waited for, by what comes from its member meanwhile. A link that is full is no member that is gone: while bytes come the answer may be behind them.
#[derive(Debug)]
pub(super) struct Awaited {
    /// Bytes that had come when it was asked for, and when it was last looked.
    from: u64,
    seen: u64,
    /// When more had come than the time before.
    moved: Option<Instant>,
    /// After so many it is none that is behind others.
    most: u64,
}

impl Awaited {
    /// Asked for when so many bytes had come, and so many were asked for and had not, its own included.
    pub(super) fn new(received: u64, asked: u64) -> Awaited {
        let most = asked.saturating_mul(OVERTAKE_TIMES).saturating_add(OVERTAKE_BYTES);
        Awaited { from: received, seen: received, moved: None, most }
    }

    /// Whether it may still come, where so many bytes have come by `now`. Of another connection, that begins anew, all is new.
    pub(super) fn may_come(&mut self, received: u64, now: Instant) -> bool {
        if received != self.seen {
            (self.seen, self.moved) = (received, Some(now));
        }
        let moves = self.moved.is_some_and(|moved| now.saturating_duration_since(moved) < MUTE_AFTER);
        moves && received.saturating_sub(self.from) <= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_member_is_waited_for_as_it_is_slow_and_left_alone_once_it_is_mute() {
        let mut pace = Pace::new();
        assert_eq!(pace.patience(0), ms(100));
        (0..1_000).for_each(|_| pace.answered(300, 4));
        assert_eq!(pace.patience(0), ms(10), "not less than that");
        pace.answered(40_400, 4);
        assert_eq!(pace.patience(0), ms(160), "as slow as it was lately");
        assert!(!pace.late() && !pace.late(), "it may be busy");
        assert_eq!(pace.patience(0), ms(640));
        pace.answered(100, 4);
        assert!(!pace.late() && !pace.late() && pace.late(), "three in a row");
        assert!(pace.late() && pace.patience(0) == ms(1_000), "until it answers");
    }

    #[test]
    fn what_a_link_carries_is_waited_for() {
        let mut pace = Pace::new();
        // 16 at a time of 256 KiB over 16 MiB a second: the last one comes after a quarter of a second.
        let kib = |number: u64| number * 256;
        (1..=16).for_each(|number| pace.answered(number * 15_625, kib(number)));
        assert!(pace.patience(kib(16)) >= ms(500), "all that is on its way");
        assert!(pace.patience(kib(1000)) <= ms(2_000), "and not for ever");
        assert!(
            pace.carries(kib(4)) >= ms(125) && pace.carries(kib(1000)) == ms(4_000),
            "nor is what is sent"
        );
        // A link that is fast again is known to be.
        (0..1_000).for_each(|_| pace.answered(300, 256));
        assert_eq!((pace.patience(kib(16)), pace.kib_ns), (ms(19), 1_171));
    }

    #[test]
    fn an_answer_may_come_while_there_are_bytes_that_may_be_before_it() {
        let began = Instant::now();
        let after = |millis: u64| began + ms(millis);
        let asked = || Awaited::new(5 << 20, 3 << 20);
        assert!(!asked().may_come(5 << 20, after(100)), "nothing has come");
        let mut slow = asked();
        assert!(slow.may_come((5 << 20) + 1, after(100)) && slow.may_come((5 << 20) + 1, after(1_000)));
        assert!(!slow.may_come((5 << 20) + 1, after(1_100)), "mute for a second");
        let mut overtaken = asked();
        assert!((1..=7).all(|mib| overtaken.may_come((5 + mib) << 20, after(mib * 900))), "behind others");
        assert!(!overtaken.may_come((12 << 20) + 1, after(7_000)), "behind those that were asked for later");
        let mut anew = asked();
        assert!(anew.may_come(100, after(100)), "over another connection");
        assert!(!anew.may_come(100, after(1_100)));
    }
}
