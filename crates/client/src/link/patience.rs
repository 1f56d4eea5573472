use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, MutexGuard};

use crate::error::ClientError;

/// How often a caller that may give up is asked whether it does.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// How long a caller waits for the owner.
#[derive(Clone, Copy, Debug)]
pub struct Patience<'a> {
    timeout: Option<(Duration, Instant)>,
    stopped: Option<&'a AtomicBool>,
}

impl<'a> Patience<'a> {
    /// So long from now on, or for ever; and until `stopped` is set, as far as that is looked at: between attempts.
    #[must_use]
    pub fn new(timeout: Option<Duration>, stopped: Option<&'a AtomicBool>) -> Patience<'a> {
        Patience { timeout: timeout.map(|timeout| (timeout, Instant::now() + timeout)), stopped }
    }

    /// What is left, `most` at most.
    pub(crate) fn left(&self, most: Duration) -> Duration {
        let left = |(_, until): (Duration, Instant)| until.saturating_duration_since(Instant::now());
        self.timeout.map_or(most, |timeout| left(timeout).min(most)).max(Duration::from_millis(1))
    }

    /// Whether it is over.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        if self.stopped.is_some_and(|stopped| stopped.load(Ordering::Relaxed)) {
            return Err(ClientError::Interrupted);
        }
        match self.timeout {
            Some((timeout, until)) if Instant::now() >= until => Err(ClientError::TimedOut(timeout)),
            _ => Ok(()),
        }
    }

    /// Waits for a signal, which may have come before it was needed.
    pub(crate) fn wait<T>(
        &self,
        changed: &Condvar,
        state: &mut MutexGuard<'_, T>,
    ) -> Result<(), ClientError> {
        self.check()?;
        match (self.stopped, self.timeout) {
            (Some(_), _) => drop(changed.wait_for(state, self.left(ASKED_EVERY))),
            (None, Some((_, until))) => drop(changed.wait_until(state, until)),
            (None, None) => changed.wait(state),
        }
        Ok(())
    }
}
