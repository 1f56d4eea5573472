//! The end of a mount: what is not in the store is brought there, the volume is closed, and those who wait are told.

use std::{
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    control::Left,
    daemon::life::{Life, Phase},
    size::human,
};

/// How long those who asked for the end may take to hear of it.
const TELL_PATIENCE: Duration = Duration::from_secs(10);
/// How often the log says how far the last drain is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// Brings the store up to date, closes the volume, and lets those who wait know.
pub(super) fn finish(life: &Arc<Life>) -> ExitCode {
    tracing::info!("unmounted");
    life.enter(Phase::Closing);
    let mut left = Left::default();
    let may_wait = !life.no_drain() || !life.kept.outlives_this();
    if may_wait && !life.kept.read_only() {
        left.error = drain(life);
    }
    if let Err(error) = life.kept.close() {
        tracing::error!("closing: {error}");
        left.close_error = Some(error.to_string());
    }
    left.dirty_bytes = life.kept.dirty_bytes();
    if left.dirty_bytes > 0 {
        tracing::warn!("{}", life.kept.fate(left.dirty_bytes));
    }
    tracing::info!("closed");
    let code = if left.close_error.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    life.enter(Phase::Closed(left));
    life.told(TELL_PATIENCE);
    code
}

/// Drains until it is done, fails, or somebody is in a hurry. Gives the failure.
fn drain(life: &Arc<Life>) -> Option<String> {
    let outcome: Arc<(AtomicBool, Mutex<Option<String>>)> = Arc::default();
    let (worker_life, worker_outcome) = (Arc::clone(life), Arc::clone(&outcome));
    let worker = thread::Builder::new().name("fb-drain".to_owned()).spawn(move || {
        if let Err(error) = worker_life.kept.drain() {
            tracing::error!("drain: {error}");
            *worker_outcome.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
        worker_outcome.0.store(true, Ordering::Release);
        worker_life.nudge();
    });
    match worker {
        Ok(worker) => {
            let mut told = Instant::now();
            let finished = || {
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    tracing::info!("storing: {} to go", human(life.kept.dirty_bytes()));
                }
                outcome.0.load(Ordering::Acquire) || worker.is_finished()
            };
            life.finished_or_hurried(finished);
        }
        Err(error) => return Some(error.to_string()),
    }
    outcome.1.lock().unwrap_or_else(PoisonError::into_inner).take()
}
