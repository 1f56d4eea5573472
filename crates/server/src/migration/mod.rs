//! Moving a volume's rows to another place of engines while they are in use: `docs/design/migration.md`.
//!
//! Guarantees: a volume's rows may be owned in one place at any time, whatever dies when; nothing that was answered is lost, since the batch that seals the source
//! comes after the last row was put and compared. Relies on the fences of both engines.

mod begin;
mod closed;
mod left;
mod mover;

use std::{
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use forebay_engine::CopyError;
use forebay_protocol::{MigratePhase, MigrateStatus};
use parking_lot::Mutex;

use crate::registry::PlaceAddress;

pub(crate) use begin::migrate;
pub(crate) use closed::{closed, follow};
pub(crate) use left::clean_up;

/// A step of a move that is over, in this order. A server can be told to die there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MigrationStep {
    /// The target's database is there, without rows.
    Begun,
    /// Rows are copied once.
    Copied,
    /// Both sides were compared.
    Compared,
    /// Batches wait, and all rows are there.
    Paused,
    /// Nobody may own the rows in the source.
    Sealed,
    /// They may be owned in the target.
    Activated,
    /// The registry says so.
    Entered,
}

/// Says after each step whether to go on; else the server ends as a crash would, for tests.
pub type MigrationWatch = Arc<dyn Fn(MigrationStep) -> bool + Send + Sync>;

/// Why a move is over that did not come to its end.
#[derive(Debug)]
enum Stopped {
    /// The ownership is over, or is to end.
    Over,
    /// It cannot be done.
    Failed(String),
}

impl From<CopyError> for Stopped {
    fn from(error: CopyError) -> Stopped {
        Stopped::Failed(error.to_string())
    }
}

impl From<forebay_engine::EngineError> for Stopped {
    fn from(error: forebay_engine::EngineError) -> Stopped {
        Stopped::Failed(error.to_string())
    }
}

/// A move that goes on, or is over.
#[derive(Debug)]
pub(crate) struct Migration {
    to: PlaceAddress,
    status: Mutex<MigrateStatus>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Migration {
    fn new(to: PlaceAddress, from_place: String, to_place: String, phase: MigratePhase) -> Migration {
        let status = MigrateStatus { place: from_place, to: to_place, phase, ..MigrateStatus::default() };
        Migration { to, status: Mutex::new(status), thread: Mutex::default() }
    }

    pub(crate) fn status(&self) -> MigrateStatus {
        self.status.lock().clone()
    }

    /// Whether it goes on.
    pub(crate) fn goes_on(&self) -> bool {
        let status = self.status.lock();
        status.failed.is_none() && !matches!(status.phase, MigratePhase::Done | MigratePhase::Idle)
    }

    fn tell(&self, change: impl FnOnce(&mut MigrateStatus)) {
        change(&mut self.status.lock());
    }

    pub(crate) fn start(
        self: &Arc<Self>,
        work: impl FnOnce(&Migration) + Send + 'static,
    ) -> std::io::Result<()> {
        let migration = Arc::clone(self);
        let thread = std::thread::Builder::new().name("fb-move".to_owned());
        *self.thread.lock() = Some(thread.spawn(move || work(&migration))?);
        Ok(())
    }

    /// Waits until its thread has ended.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that moved a volume panicked");
        }
    }
}

/// Tries something again until it is done or `goes_on` says no; what fails is said once.
fn insist<T>(
    what: &str,
    goes_on: &dyn Fn() -> bool,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> Option<T> {
    let (mut warned, mut wait, began) = (String::new(), Duration::from_millis(20), Instant::now());
    loop {
        match attempt() {
            Ok(done) => return Some(done),
            Err(error) if error == warned => {}
            Err(error) => {
                // A reader may have the engine for a moment longer.
                if began.elapsed() > Duration::from_secs(1) {
                    tracing::warn!("{what}, and is tried again: {error}");
                    warned = error;
                }
            }
        }
        if !goes_on() {
            return None;
        }
        std::thread::sleep(wait);
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}
