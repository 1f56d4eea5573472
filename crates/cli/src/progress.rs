//! A bar for what takes longer than a second.

use std::{
    ffi::OsStr,
    io::IsTerminal,
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    control::{Progress, Step},
    size::human,
};

/// Shown only once something has taken so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a line is written where nothing is drawn.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Whether bars are drawn on standard error: it is a terminal that can move its cursor. Elsewhere, also where `TERM` is `dumb` or not set, lines are written.
pub(crate) fn is_drawn_on() -> bool {
    std::io::stderr().is_terminal() && !is_dumb(std::env::var_os("TERM").as_deref())
}

/// As indicatif decides, which draws nothing there.
fn is_dumb(term: Option<&OsStr>) -> bool {
    term.is_none_or(|term| term == "dumb")
}

/// Says what is waited for, on a terminal and only after a second, until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Waiting {
    /// Begins to wait for `what`.
    pub(crate) fn begin(what: String) -> Waiting {
        if !is_drawn_on() {
            return Waiting { thread: None };
        }
        let (over, wait) = channel::<()>();
        let show = move || {
            if wait.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_message(what);
            bar.enable_steady_tick(Duration::from_millis(250));
            // Ends when the other side is dropped.
            let _ = wait.recv();
            bar.finish_and_clear();
        };
        Waiting { thread: thread::Builder::new().spawn(show).ok().map(|thread| (over, thread)) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((over, thread)) = self.thread.take() {
            drop(over);
            drop(thread.join());
        }
    }
}

/// How a drain goes on, on standard error: a bar on a terminal, else a line now and then.
#[derive(Debug)]
pub(crate) struct DrainBar {
    what: &'static str,
    began: Instant,
    bar: Option<ProgressBar>,
    most: u64,
    last_line: Instant,
    terminal: bool,
}

impl DrainBar {
    /// A bar that calls the work `what`.
    pub(crate) fn new(what: &'static str) -> DrainBar {
        let now = Instant::now();
        let terminal = is_drawn_on();
        DrainBar { what, began: now, bar: None, most: 0, last_line: now, terminal }
    }

    /// So much is left.
    pub(crate) fn at(&mut self, progress: Progress) {
        self.most = self.most.max(progress.dirty_bytes);
        if self.began.elapsed() < PATIENCE {
            return;
        }
        if !self.terminal {
            if self.last_line.elapsed() >= LINE_EVERY {
                self.last_line = Instant::now();
                crate::output::note(&format_args!("{}: {} to go", self.what, human(progress.dirty_bytes)));
            }
            return;
        }
        let what = self.what;
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            if let Ok(style) =
                ProgressStyle::with_template("{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {elapsed}")
            {
                bar.set_style(style);
            }
            bar.set_message(what);
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        bar.set_length(self.most);
        bar.set_position(self.most.saturating_sub(progress.dirty_bytes));
    }
}

impl Drop for DrainBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How a check goes on, on a terminal and after a second.
#[derive(Debug)]
pub(crate) struct StepBar {
    what: &'static str,
    began: Instant,
    bar: Option<ProgressBar>,
    terminal: bool,
}

impl StepBar {
    /// A bar that calls the work `what`.
    pub(crate) fn new(what: &'static str) -> StepBar {
        StepBar { what, began: Instant::now(), bar: None, terminal: is_drawn_on() }
    }

    /// So far it is.
    pub(crate) fn at(&mut self, step: &Step) {
        if !self.terminal || self.began.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        let share = step.total.filter(|total| *total > 0).map_or_else(String::new, |total| {
            format!(" of {total} ({}%)", step.done.saturating_mul(100) / total)
        });
        bar.set_message(format!("{}: {} {}{share}", self.what, step.what, step.done));
    }
}

impl Drop for StepBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// How far it is that files are brought near.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct WarmState {
    pub(crate) files: u64,
    pub(crate) files_found: u64,
    /// Bytes of files, holes with them.
    pub(crate) seen_bytes: u64,
    pub(crate) bytes_found: u64,
    pub(crate) fetched_bytes: u64,
    /// There are no more files than were found.
    pub(crate) all_found: bool,
}

impl WarmState {
    /// In words: files, bytes, how fast they come, and how long the rest takes where all is found.
    fn words(&self, since: Duration) -> String {
        let seconds = since.as_secs_f64().max(0.001);
        let rate = (self.fetched_bytes as f64 / seconds) as u64;
        let more = if self.all_found { "" } else { "+" };
        let left = self.bytes_found.saturating_sub(self.seen_bytes);
        let time = if self.all_found && self.seen_bytes > 0 {
            let seconds = (left as f64 * seconds / self.seen_bytes as f64) as u64;
            format!(", {}:{:02} left", seconds / 60, seconds % 60)
        } else {
            String::new()
        };
        format!(
            "{}/{}{more} files, {}/{}{more}, {} fetched, {}/s{time}",
            self.files,
            self.files_found,
            human(self.seen_bytes),
            human(self.bytes_found),
            human(self.fetched_bytes),
            human(rate)
        )
    }
}

/// How that goes on, on standard error: a bar on a terminal, else a line now and then.
#[derive(Debug)]
pub(crate) struct WarmBar {
    began: Instant,
    bar: Option<ProgressBar>,
    last_line: Instant,
    terminal: bool,
}

impl WarmBar {
    pub(crate) fn new() -> WarmBar {
        let now = Instant::now();
        WarmBar { began: now, bar: None, last_line: now, terminal: is_drawn_on() }
    }

    /// So far it is.
    pub(crate) fn at(&mut self, state: &WarmState) {
        if self.began.elapsed() < PATIENCE {
            return;
        }
        if !self.terminal {
            if self.last_line.elapsed() >= LINE_EVERY {
                self.last_line = Instant::now();
                crate::output::note(&state.words(self.began.elapsed()));
            }
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{bar:30} {msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        bar.set_length(state.bytes_found.max(1));
        bar.set_position(state.seen_bytes);
        bar.set_message(state.words(self.began.elapsed()));
    }
}

impl Drop for WarmBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_said_once_all_is_found() {
        let state = WarmState {
            files: 3,
            files_found: 12,
            seen_bytes: 1 << 30,
            bytes_found: 4 << 30,
            fetched_bytes: 512 << 20,
            all_found: false,
        };
        let words = |all_found| WarmState { all_found, ..state }.words(Duration::from_secs(64));
        assert_eq!(words(false), "3/12+ files, 1.00 GiB/4.00 GiB+, 512 MiB fetched, 8.00 MiB/s");
        assert_eq!(words(true), "3/12 files, 1.00 GiB/4.00 GiB, 512 MiB fetched, 8.00 MiB/s, 3:12 left");
        assert!(WarmState::default().words(Duration::ZERO).starts_with("0/0+ files"));
    }
}
