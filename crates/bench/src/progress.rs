//! Progress on standard error.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{Side, Workload};

/// Shows which step runs. Draws nothing where standard error is not a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar on standard error, hidden if that is not a terminal.
    pub fn stderr() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self { bar }
    }

    /// No progress at all.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    pub(crate) fn begin(&self, steps: u64) {
        self.bar.set_length(steps);
        self.bar.set_position(0);
    }

    pub(crate) fn step(&self, workload: Workload, side: Side, round: usize, rounds: usize) {
        self.bar.set_message(format!("{}, {side}, round {} of {rounds}", workload.title(), round + 1));
    }

    pub(crate) fn done(&self) {
        self.bar.inc(1);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
