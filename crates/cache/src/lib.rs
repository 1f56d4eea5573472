//! A bounded cache of object ranges on the local disk (or in memory), with single-flight fetches, and read-ahead.
//!
//! **Guarantees.** Bytes that [`DiskCache::read`] returns came from [`Fetch`] (or an insertion) for that object and that
//! range: whatever is read back from the disk is checked against its CRC32C first, and what does not check is dropped and
//! fetched again. However many readers want a chunk that is missing, one fetch is made for it. The space used never
//! exceeds the capacity. Faults of the cache's own disk never fail a read that the store can serve.
//!
//! **Relies on** objects being immutable and never named twice: nothing here is ever out of date. Nothing here is
//! dirty either, so everything may be lost at any moment, and nothing is synced.
//!
//! **Order that must hold.** A chunk's payload is written before its header, and both before the index names it; a
//! chunk leaves the index before its header is erased, and that comes before its slot is used again. A flight leaves
//! the table of flights only after its chunks are in the index, so that no reader finds a chunk in neither.
//!
//! `docs/design/cache.md` has the layout on disk and the reasons.

mod cache;
mod directory;
mod error;
mod fetch;
mod flight;
mod header;
mod index;
mod key;
mod memory;
mod peek;
mod pin;
mod prefetch;
mod queue;
mod read;
mod read_ahead;
mod slabs;
mod stats;
mod storage;
mod table;
#[cfg(test)]
mod traces;
mod warm;

pub use cache::{CacheOptions, DiskCache, Hint};
pub use error::{CacheError, ReadError};
pub use fetch::Fetch;
pub use key::{CHUNK_BYTES, ObjectKey};
pub use pin::Pinned;
pub use read_ahead::{Advice, MAX_WINDOW, MIN_WINDOW, Pattern, ReadAhead};
pub use stats::CacheStats;
pub use warm::Warmed;
