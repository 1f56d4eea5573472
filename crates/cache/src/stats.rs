use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What a cache holds and has done since it was opened. The numbers are read one after the other, not at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheStats {
    /// Chunks that reads found in the cache.
    pub hits: u64,
    /// Chunks that reads had to fetch.
    pub misses: u64,
    /// Chunks for which reads waited on a fetch made by another thread.
    pub joined: u64,
    /// Requests made to the store, read-ahead included.
    pub fetches: u64,
    /// Bytes that came from the store, read-ahead included.
    pub fetched_bytes: u64,
    /// Requests that failed.
    pub failed_fetches: u64,
    /// Chunks dropped to make room.
    pub evictions: u64,
    /// Chunks kept now.
    pub chunks: u64,
    /// Bytes of payload kept now; never above `capacity_bytes`.
    pub used_bytes: u64,
    /// Bytes of payload that are pinned; never above `pinned_max_bytes`.
    pub pinned_bytes: u64,
    /// The bound of that: half of the chunks, in bytes.
    pub pinned_max_bytes: u64,
    /// The bound given at opening.
    pub capacity_bytes: u64,
    /// Chunks being fetched now.
    pub in_flight: u64,
    /// Ranges waiting to be read ahead.
    pub prefetch_queued: u64,
    /// Ranges not read ahead because too many were waiting.
    pub prefetch_dropped: u64,
    /// Chunks not kept because the cache's disk was full.
    pub skipped_full: u64,
    /// Chunks not kept, or not read back, because of another fault of the cache's disk.
    pub disk_errors: u64,
    /// Chunks dropped because what was read back did not check.
    pub corrupt: u64,
    /// Chunks dropped on the word of the caller.
    pub distrusted: u64,
}

/// The counters behind [`CacheStats`], and which kinds of fault were logged already.
#[derive(Default)]
pub(crate) struct Counters {
    pub hits: Count,
    pub misses: Count,
    pub joined: Count,
    pub fetches: Count,
    pub fetched_bytes: Count,
    pub failed_fetches: Count,
    pub prefetch_dropped: Count,
    pub skipped_full: Count,
    pub disk_errors: Count,
    pub corrupt: Count,
    pub distrusted: Count,
    pub logged_full: Once,
    pub logged_error: Once,
    pub logged_corrupt: Once,
}

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// True the first time it is asked.
#[derive(Default)]
pub(crate) struct Once(AtomicBool);

impl Once {
    pub(crate) fn first(&self) -> bool {
        !self.0.swap(true, Relaxed)
    }
}
