//! The pause that a throttling store imposes on all callers together.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{Limits, random};

/// A store that asks for a longer pause is asked again after this.
const ASKED_MAX: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    /// How often the store asked for fewer requests, less how often it answered since.
    level: u32,
}

/// Closed for a while after each request for fewer requests; the pause doubles while they go on, and shrinks with each answer.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

impl Gate {
    /// How long to wait before the next attempt.
    pub(super) fn wait(&self) -> Duration {
        let until = self.0.lock().until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// The store asked for fewer requests, and perhaps for how long. Answers to requests sent before the pause began do not prolong it.
    pub(super) fn close(&self, limits: Limits, asked: Option<Duration>) {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.until.is_some_and(|until| until > now) {
            return;
        }
        let pause = limits.first_wait.saturating_mul(2 << state.level.min(8)).min(limits.longest_wait);
        let pause = pause.mul_f64(0.75 + random::fraction() / 2.0);
        state.until = Some(now + pause.max(asked.unwrap_or_default().min(ASKED_MAX)));
        state.level = (state.level + 1).min(8);
    }

    /// The store answered.
    pub(super) fn open(&self) {
        let mut state = self.0.lock();
        state.level = state.level.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_is_for_everybody_and_grows_only_once_it_is_over() {
        let hours = Duration::from_hours;
        let limits = Limits { first_wait: hours(1), longest_wait: hours(9), ..Limits::QUICK };
        let gate = Gate::default();
        assert_eq!(gate.wait(), Duration::ZERO);
        gate.close(limits, None);
        let wait = gate.wait();
        assert!(wait > hours(1) && wait < hours(3), "{wait:?}");
        gate.close(limits, None);
        assert!(gate.wait() <= wait);
        assert_eq!(gate.0.lock().level, 1);
        gate.0.lock().until = None;
        gate.close(limits, None);
        assert!(gate.wait() > hours(2));
        gate.open();
        gate.open();
        gate.open();
        assert_eq!(gate.0.lock().level, 0);
        gate.0.lock().until = None;
        let short = Limits { first_wait: Duration::from_millis(1), ..limits };
        gate.close(short, Some(Duration::from_secs(40)));
        assert!(gate.wait() > Duration::from_secs(39), "{:?}", gate.wait());
        gate.0.lock().until = None;
        gate.close(short, Some(hours(5)));
        assert!(gate.wait() <= ASKED_MAX, "{:?}", gate.wait());
    }
}
