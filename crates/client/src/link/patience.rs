use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use forebay_vfs::serving::{self, Served};
use parking_lot::{Condvar, MutexGuard};

use crate::error::ClientError;

/// How often a caller that may give up is asked whether it does.
const ASKED_EVERY: Duration = Duration::from_millis(50);
/// How often it is looked whether the thread that waits for this one has been killed.
const LOOKED_EVERY: Duration = Duration::from_millis(250);

/// How long a caller waits for the owner.
#[derive(Clone, Copy, Debug)]
pub struct Patience<'a> {
    timeout: Option<(Duration, Instant)>,
    stopped: Option<&'a AtomicBool>,
    served: Option<Served>,
}

impl<'a> Patience<'a> {
    /// So long from now on, or for ever; and until `stopped` is set, as far as that is looked at: between attempts.
    #[must_use]
    pub fn new(timeout: Option<Duration>, stopped: Option<&'a AtomicBool>) -> Patience<'a> {
        let timeout = timeout.map(|timeout| (timeout, Instant::now() + timeout));
        Patience { timeout, stopped, served: None }
    }

    /// Until the answer counts: for what is kept here or answered already, whose session decides how long it is tried.
    pub const FOREVER: Patience<'static> = Patience { timeout: None, stopped: None, served: None };

    /// The same, and no longer than the thread lives whose system call the calling thread serves, if it serves one: nobody else waits for the answer.
    #[must_use]
    pub(crate) fn of_served(self) -> Patience<'a> {
        Patience { served: serving::served(), ..self }
    }

    /// Half of what is left: for what the caller can do without.
    pub(crate) fn half(&self) -> Patience<'a> {
        let now = Instant::now();
        let half =
            |(timeout, until): (Duration, Instant)| (timeout, now + until.saturating_duration_since(now) / 2);
        Patience { timeout: self.timeout.map(half), ..*self }
    }

    /// What is left, `most` at most.
    pub(crate) fn left(&self, most: Duration) -> Duration {
        let left = |(_, until): (Duration, Instant)| until.saturating_duration_since(Instant::now());
        self.timeout.map_or(most, |timeout| left(timeout).min(most)).max(Duration::from_millis(1))
    }

    /// Whether it is over, but for what takes long to look at.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.stopped.is_some_and(|stopped| stopped.load(Ordering::Relaxed)) {
            return Err(ClientError::Interrupted);
        }
        match self.timeout {
            Some((timeout, until)) if Instant::now() >= until => Err(ClientError::TimedOut(timeout)),
            _ => Ok(()),
        }
    }

    /// Whether it is over. Not on a path that nobody waits on: it may read `/proc`.
    pub(crate) fn go_on(&self) -> Result<(), ClientError> {
        self.check()?;
        match self.served {
            Some(served) if served.is_killed() => Err(ClientError::Interrupted),
            _ => Ok(()),
        }
    }

    /// Whether it may end before its time: then [`Patience::go_on`] is to be asked while something is waited for.
    pub(crate) fn may_end(&self) -> bool {
        self.stopped.is_some() || self.served.is_some()
    }

    /// Waits for a signal, which may have come before it was needed.
    ///
    /// # Errors
    /// [`ClientError::TimedOut`], [`ClientError::Interrupted`]: it is over.
    pub(crate) fn wait<T>(
        &self,
        changed: &Condvar,
        state: &mut MutexGuard<'_, T>,
    ) -> Result<(), ClientError> {
        self.check()?;
        let every = match (self.stopped, self.served) {
            (None, None) => None,
            (None, Some(_)) => Some(LOOKED_EVERY),
            (Some(_), _) => Some(ASKED_EVERY),
        };
        match (every, self.timeout) {
            (Some(every), _) if changed.wait_for(state, self.left(every)).timed_out() => {
                return MutexGuard::unlocked(state, || self.go_on());
            }
            (Some(_), _) => {}
            (None, Some((_, until))) => drop(changed.wait_until(state, until)),
            (None, None) => changed.wait(state),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_no_end_has_none_and_half_of_an_hour_leaves_something() {
        let most = Duration::from_secs(1 << 20);
        assert_eq!(Patience::FOREVER.half().left(most), most);
        let hour = Patience::new(Some(Duration::from_secs(3600)), None);
        assert!(hour.half().left(most) <= Duration::from_secs(1800));
        assert!(hour.half().go_on().is_ok());
        let over = Patience::new(Some(Duration::ZERO), None);
        assert_eq!(over.half().go_on(), Err(ClientError::TimedOut(Duration::ZERO)));
    }
}
