//! Putting an object so that it is known whose it is, whatever answers are lost.

use std::time::Duration;

use bytes::Bytes;
use forebay_format::{footer::TAIL_LEN, row::ObjectRef};
use forebay_object::{Backend, ErrorKind, ObjectError, ObjectStore};
use forebay_protocol::Failure;

use crate::ClientError;

/// Attempts of one put, each as long as the store's own patience.
const ATTEMPTS: u32 = 3;
/// The wait before the second attempt; twice that before the next.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// How long the store is asked to take something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tries {
    /// Three times its patience, each some ten seconds.
    All,
    /// Once that: there may be another place by then.
    Few,
}

/// Puts a new object. The store is one of the shortest patience.
///
/// # Errors
/// [`ObjectError`]; the object may be there or not, where the error is a transient one.
pub(super) fn put(
    store: &ObjectStore,
    object: ObjectRef,
    bytes: &Bytes,
    tries: Tries,
) -> Result<(), ObjectError> {
    match tries {
        Tries::All => repeated(store, object, bytes),
        Tries::Few => store.put_new(&object.key(), bytes.clone()).map(drop),
    }
}

fn repeated(store: &ObjectStore, object: ObjectRef, bytes: &Bytes) -> Result<(), ObjectError> {
    let key = object.key();
    let mut wait = FIRST_WAIT;
    let mut attempt = 1;
    loop {
        let error = match store.put_new(&key, bytes.clone()) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if error.kind() == ErrorKind::AlreadyExists && attempt > 1 {
            return if is_ours(store, &key, bytes)? { Ok(()) } else { Err(error) };
        }
        if !error.is_transient() || attempt == ATTEMPTS {
            return Err(error);
        }
        tracing::debug!(%error, key, "a put is tried again");
        std::thread::sleep(wait);
        (wait, attempt) = (wait * 2, attempt + 1);
    }
}

/// Whether the object under a key is this one: it is as long, and ends in the same footer, which has the checksums of all runs.
fn is_ours(store: &ObjectStore, key: &str, bytes: &Bytes) -> Result<bool, ObjectError> {
    let len = bytes.len() as u64;
    if store.head(key)?.size != len {
        return Ok(false);
    }
    let footer = footer_len(bytes).min(len);
    Ok(store.get_range(key, len - footer..len)? == bytes[bytes.len() - footer as usize..])
}

/// Bytes of footer and tail at the end of an object.
fn footer_len(bytes: &Bytes) -> u64 {
    let tail = bytes.len().checked_sub(TAIL_LEN).and_then(|at| bytes[at..].try_into().ok());
    let body = tail.and_then(|tail| forebay_format::footer::Footer::len_from_tail(tail).ok());
    body.map_or(bytes.len(), |body| body + TAIL_LEN) as u64
}

/// What an application is told of a put that failed.
pub(super) fn told(error: &ObjectError) -> ClientError {
    match error.kind() {
        ErrorKind::NoSpace => ClientError::Failed(Failure::NoSpace),
        _ => ClientError::Store(error.to_string()),
    }
}
