//! The pause that a throttling store imposes on all callers together.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::random;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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

    /// The store asked for fewer requests. Answers to requests sent before the pause began do not prolong it.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.until.is_some_and(|until| until > now) {
            return;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << state.level.min(8)).min(LONGEST_PAUSE);
        state.until = Some(now + pause.mul_f64(0.75 + random::fraction() / 2.0));
        state.level = (state.level + 1).min(8);
    }

    /// The store answered.
    pub(super) fn open(&self) {
        let mut state = self.0.lock();
        state.level = state.level.saturating_sub(1);
    }
}
