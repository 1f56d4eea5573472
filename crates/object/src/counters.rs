//! What a store was asked and how it answered, for metrics and `status`.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;

use crate::{ErrorKind, ObjectError, Operation};

#[derive(Debug, Default)]
struct Cell {
    calls: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    latency_us: AtomicU64,
}

/// A reading of the counters of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationCounts {
    /// Which.
    pub operation: Operation,
    /// Calls that ended, well or not.
    pub calls: u64,
    /// Calls that ended with trouble; "not found", "already exists" and "precondition failed" are answers.
    pub errors: u64,
    /// Bytes of content moved by calls that ended well.
    pub bytes: u64,
    /// The time of all calls together, retries included, in microseconds.
    pub latency_us: u64,
}

/// The last trouble with a store.
#[derive(Clone, Debug)]
pub struct LastError {
    /// When, by the system's clock.
    pub at: SystemTime,
    /// What.
    pub error: ObjectError,
}

/// Counts since the store was opened. Each number is read by itself, so a reading is not a snapshot.
#[derive(Debug)]
pub struct Counters {
    cells: [Cell; Operation::ALL.len()],
    retries: AtomicU64,
    throttled: AtomicU64,
    reloads: AtomicU64,
    last_error: Mutex<Option<LastError>>,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            cells: array::from_fn(|_| Cell::default()),
            retries: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            reloads: AtomicU64::new(0),
            last_error: Mutex::new(None),
        }
    }
}

impl Counters {
    /// One operation's numbers.
    #[must_use]
    pub fn operation(&self, operation: Operation) -> OperationCounts {
        let cell = &self.cells[operation as usize];
        OperationCounts {
            operation,
            calls: cell.calls.load(Ordering::Relaxed),
            errors: cell.errors.load(Ordering::Relaxed),
            bytes: cell.bytes.load(Ordering::Relaxed),
            latency_us: cell.latency_us.load(Ordering::Relaxed),
        }
    }

    /// Attempts after the first.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Attempts that the store answered with a request for fewer.
    #[must_use]
    pub fn throttled(&self) -> u64 {
        self.throttled.load(Ordering::Relaxed)
    }

    /// How often a changed credential was taken up.
    #[must_use]
    pub fn credential_reloads(&self) -> u64 {
        self.reloads.load(Ordering::Relaxed)
    }

    /// The last trouble, also of an attempt whose retry went well.
    #[must_use]
    pub fn last_error(&self) -> Option<LastError> {
        self.last_error.lock().clone()
    }

    pub(crate) fn ended(&self, operation: Operation, took: Duration, result: Result<u64, &ObjectError>) {
        let cell = &self.cells[operation as usize];
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        cell.calls.fetch_add(1, Ordering::Relaxed);
        cell.latency_us.fetch_add(us, Ordering::Relaxed);
        match result {
            Ok(bytes) => {
                cell.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(error) if error.is_answer() => {}
            Err(error) => {
                cell.errors.fetch_add(1, Ordering::Relaxed);
                self.note(error);
            }
        }
    }

    pub(crate) fn retried(&self, error: &ObjectError) {
        self.retries.fetch_add(1, Ordering::Relaxed);
        if error.kind() == ErrorKind::Throttled {
            self.throttled.fetch_add(1, Ordering::Relaxed);
        }
        self.note(error);
    }

    pub(crate) fn reloaded(&self) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }

    fn note(&self, error: &ObjectError) {
        *self.last_error.lock() = Some(LastError { at: SystemTime::now(), error: error.clone() });
    }
}
