//! One request with its repetitions.

use std::{
    cell::Cell,
    future::Future,
    time::{Duration, Instant},
};

use super::{BucketStore, classify::classify};
use crate::{ErrorKind, ObjectError, Operation, random};

/// One more second for each of these.
const BYTES_A_SECOND: u64 = 512 << 10;

/// A request to a bucket, repeated until it is answered or patience ends.
pub(super) struct Request<'a> {
    store: &'a BucketStore,
    operation: Operation,
    key: &'a str,
    bytes: u64,
    uncertain: Cell<bool>,
}

impl<'a> Request<'a> {
    /// `bytes` is what one attempt moves at most.
    pub(super) fn new(store: &'a BucketStore, operation: Operation, key: &'a str, bytes: u64) -> Request<'a> {
        Request { store, operation, key, bytes, uncertain: Cell::new(false) }
    }

    /// Whether an earlier attempt may have been carried out although it failed.
    pub(super) fn is_uncertain(&self) -> bool {
        self.uncertain.get()
    }

    /// Makes attempts until one is answered. Blocks.
    pub(super) fn run<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, ObjectError>
    where
        F: Future<Output = Result<T, object_store::Error>>,
    {
        match &self.store.shared.runtime {
            Some(runtime) => runtime.block_on(self.repeat(attempt)),
            None => Err(self.error(ErrorKind::Other, "the store is closed".into())),
        }
    }

    async fn repeat<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, ObjectError>
    where
        F: Future<Output = Result<T, object_store::Error>>,
    {
        let limits = self.store.limits();
        let deadline = Instant::now() + limits.total;
        let mut wait = limits.first_wait;
        loop {
            let error = match self.attempt(&attempt, deadline).await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            let renewed = self.renewed(&error);
            if !renewed && !error.again {
                return Err(error.error);
            }
            let pause = if renewed { Duration::ZERO } else { wait.mul_f64(1.0 - random::fraction() / 2.0) };
            if Instant::now() + pause >= deadline {
                return Err(error.error);
            }
            self.store.shared.counters.retried(&error.error);
            tracing::debug!(error = %error.error, pause_ms = pause.as_millis(), "object store: trying again");
            tokio::time::sleep(pause).await;
            wait = wait.saturating_mul(2).min(limits.longest_wait);
        }
    }

    async fn attempt<T, F>(&self, attempt: &impl Fn() -> F, deadline: Instant) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, object_store::Error>>,
    {
        let shared = &self.store.shared;
        loop {
            let wait = shared.gate.wait();
            if wait.is_zero() {
                break;
            }
            if Instant::now() + wait >= deadline {
                let error = self.error(ErrorKind::Throttled, "it did so to other requests just now".into());
                return Err(Failed { error, again: false, stamp: 0 });
            }
            tokio::time::sleep(wait).await;
        }
        let _permit = shared.permits.acquire().await;
        let stamp = shared.credentials.as_ref().map_or(0, |credentials| credentials.stamp());
        let limit = self.store.limits().attempt + Duration::from_secs(self.bytes / BYTES_A_SECOND);
        let Ok(result) = tokio::time::timeout(limit, attempt()).await else {
            self.uncertain.set(true);
            let error =
                self.error(ErrorKind::Unreachable, format!("no answer in time: {} s", limit.as_secs()));
            return Err(Failed { error, again: true, stamp });
        };
        let failure = match result {
            Ok(value) => {
                shared.gate.open();
                return Ok(value);
            }
            Err(error) => classify(error),
        };
        if failure.kind == ErrorKind::Throttled {
            shared.gate.close(self.store.limits());
        }
        if failure.uncertain {
            self.uncertain.set(true);
        }
        let detail = match (&shared.endpoint, failure.kind) {
            (Some(endpoint), ErrorKind::Unreachable) => format!("{}, at {endpoint}", failure.detail),
            _ => failure.detail,
        };
        let error =
            ObjectError::caused(failure.kind, self.operation, &shared.url, self.key, detail, failure.source);
        Err(Failed { error, again: failure.again, stamp })
    }

    /// Whether the credential that was refused has been replaced since.
    fn renewed(&self, failed: &Failed) -> bool {
        let refused = matches!(failed.error.kind(), ErrorKind::Unauthenticated | ErrorKind::Denied);
        let shared = &self.store.shared;
        let renewed = refused
            && shared.credentials.as_ref().is_some_and(|credentials| credentials.refused(failed.stamp));
        if renewed {
            shared.counters.reloaded();
        }
        renewed
    }

    fn error(&self, kind: ErrorKind, detail: String) -> ObjectError {
        self.store.error(kind, self.operation, self.key, detail)
    }
}

/// A failed attempt.
struct Failed {
    error: ObjectError,
    /// Whether the same attempt may go well later.
    again: bool,
    /// Which credential was used.
    stamp: u64,
}
