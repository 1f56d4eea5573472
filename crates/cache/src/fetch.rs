use std::sync::Arc;

use bytes::Bytes;

use crate::ObjectKey;

/// Where missing bytes come from.
///
/// Called from the reading threads and from those that read ahead, several at a time. It may block as long as its own
/// timeouts allow; retries are its own affair too. It must not read from the cache that calls it.
pub trait Fetch: Send + Sync + 'static {
    /// Why a fetch failed. Cloned for each reader that waits.
    type Error: Clone + Send + Sync + 'static;

    /// Exactly `len` bytes (at most 8 MiB) of `object`, from byte `offset` on.
    ///
    /// # Errors
    ///
    /// Whatever it is, it is given to all who wait for these bytes, and nothing is remembered: the next read tries again.
    fn fetch(&self, object: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, Self::Error>;
}

impl<F: Fetch> Fetch for Arc<F> {
    type Error = F::Error;

    fn fetch(&self, object: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, F::Error> {
        (**self).fetch(object, offset, len)
    }
}
