//! One request with its repetitions.

use std::{
    cell::Cell,
    future::Future,
    time::{Duration, Instant},
};

use super::{BucketStore, classify::classify, watch::listening};
use crate::{Ability, ErrorKind, ObjectError, Operation, random};

/// One more second for each of these.
const BYTES_A_SECOND: u64 = 512 << 10;

/// What an attempt may take longer for what it moves.
pub(super) fn transfer_time(bytes: u64) -> Duration {
    Duration::from_secs(bytes / BYTES_A_SECOND)
}

/// What an operation needs of a store.
fn ability(operation: Operation) -> Ability {
    match operation {
        Operation::Open | Operation::PutNew | Operation::PutNewFile | Operation::PutIf => {
            Ability::ConditionalCreate
        }
        Operation::GetRange => Ability::RangeRead,
        Operation::Get => Ability::Read,
        Operation::Head => Ability::Describe,
        Operation::Delete => Ability::Delete,
        Operation::List => Ability::List,
    }
}

/// A request to a bucket, repeated until it is answered or patience ends.
pub(super) struct Request<'a> {
    store: &'a BucketStore,
    operation: Operation,
    key: &'a str,
    bytes: u64,
    ability: Ability,
    uncertain: Cell<bool>,
    versioned: Cell<bool>,
}

impl<'a> Request<'a> {
    /// `bytes` is what one attempt moves at most.
    pub(super) fn new(store: &'a BucketStore, operation: Operation, key: &'a str, bytes: u64) -> Request<'a> {
        let (uncertain, versioned) = (Cell::new(false), Cell::new(false));
        Request { store, operation, key, bytes, ability: ability(operation), uncertain, versioned }
    }

    /// The same request, which needs this of the store.
    pub(super) fn needing(self, ability: Ability) -> Request<'a> {
        Request { ability, ..self }
    }

    /// Whether the answer said that what was put is one of several versions.
    pub(super) fn is_versioned(&self) -> bool {
        self.versioned.get()
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
        let begun = Instant::now();
        let deadline = begun + limits.total;
        let mut wait = limits.first_wait;
        loop {
            self.pass_the_gate(begun + limits.total / 2).await;
            let failed = match self.attempt(&attempt).await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            let renewed = self.renewed(&failed);
            if !renewed && !failed.again {
                return Err(failed.error);
            }
            let pause = if renewed { Duration::ZERO } else { wait.mul_f64(1.0 - random::fraction() / 2.0) };
            let pause = pause.max(failed.asked.unwrap_or_default());
            if Instant::now() + pause >= deadline {
                return Err(failed.error);
            }
            self.store.shared.counters.retried(&failed.error);
            tracing::debug!(error = %failed.error, pause_ms = pause.as_millis(), "object store: trying again");
            tokio::time::sleep(pause).await;
            wait = wait.saturating_mul(2).min(limits.longest_wait);
        }
    }

    /// Waits with all others while the store asks for fewer requests, but not longer than until `latest`: others' requests must not
    /// make this one fail unasked.
    async fn pass_the_gate(&self, latest: Instant) {
        loop {
            let wait = self.store.shared.gate.wait().min(latest.saturating_duration_since(Instant::now()));
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn attempt<T, F>(&self, attempt: &impl Fn() -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, object_store::Error>>,
    {
        let shared = &self.store.shared;
        let _permit = shared.permits.acquire().await;
        let stamp = shared.credentials.as_ref().map_or(0, |credentials| credentials.stamp());
        let limit = self.store.limits().attempt + transfer_time(self.bytes);
        let Ok((result, said)) = tokio::time::timeout(limit, listening(attempt())).await else {
            self.uncertain.set(true);
            let error =
                self.error(ErrorKind::Unreachable, format!("no answer in time: {} s", limit.as_secs()));
            return Err(Failed { error, again: true, stamp, asked: None });
        };
        let failure = match result {
            Ok(value) => {
                shared.gate.open();
                self.versioned.set(said.versioned);
                return Ok(value);
            }
            Err(error) => classify(error, self.ability, &said),
        };
        if failure.kind == ErrorKind::Throttled {
            shared.gate.close(self.store.limits(), said.wait);
        }
        if failure.uncertain {
            self.uncertain.set(true);
        }
        let mut detail = match (&shared.endpoint, failure.kind) {
            (Some(endpoint), ErrorKind::Unreachable) => format!("{}, at {endpoint}", failure.detail),
            _ => failure.detail,
        };
        let asked = said.wait.filter(|_| failure.again);
        if let Some(asked) = asked {
            detail = format!("{detail}, and says to come back in {} s", asked.as_secs());
        }
        let error =
            ObjectError::caused(failure.kind, self.operation, &shared.url, self.key, detail, failure.source);
        Err(Failed { error, again: failure.again, stamp, asked })
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
    /// How long the store asks to be left alone.
    asked: Option<Duration>,
}
