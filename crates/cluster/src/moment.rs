use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// A time of one process's own clock, as nanoseconds from any start. The clock never goes back, and goes on while the machine sleeps
/// (`CLOCK_BOOTTIME`). Moments of two processes are never compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// The time that has passed since `earlier`; none where that is later.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, by: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, by: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// How long things last. All parts of a cluster have the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// How long a server sees a fence unchanged before it takes the volume.
    pub take_after: Duration,
    /// How long after the start of its last committed batch an owner still looks things up for others.
    pub serve_for: Duration,
    /// How often an owner with nothing to commit renews its fence.
    pub beat_every: Duration,
    /// How long after it was last heard of a session lives at the owner.
    pub session: Duration,
    /// By how much a client ends its session earlier than that, counted from when it sent what was answered last.
    pub margin: Duration,
}

impl Default for Terms {
    /// Take after 3 s, serve for 2 s, beat every second, sessions of 10 s, 1 s of margin.
    fn default() -> Terms {
        Terms {
            take_after: Duration::from_secs(3),
            serve_for: Duration::from_secs(2),
            beat_every: Duration::from_secs(1),
            session: Duration::from_secs(10),
            margin: Duration::from_secs(1),
        }
    }
}

impl Terms {
    /// Whether an owner still looks things up for others, of whom what renewed it last began then, if anything did.
    #[must_use]
    pub fn serves(&self, renewed: Option<Moment>, now: Moment) -> bool {
        renewed.is_some_and(|begun| now.since(begun) < self.serve_for)
    }

    /// Whether the terms keep what the protocols need: an owner stops before another takes over although its clock runs slower by a tenth, it
    /// beats before it would have to stop, and a client ends its session before the owner does, on the same condition.
    #[must_use]
    pub fn are_safe(&self) -> bool {
        let slower = |time: Duration| time + time / 10;
        slower(self.serve_for) < self.take_after
            && self.beat_every < self.serve_for
            && self.margin < self.session
            && slower(self.session.saturating_sub(self.margin)) < self.session
    }
}
