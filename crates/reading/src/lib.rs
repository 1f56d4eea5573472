//! Reading the bytes of files out of the store: objects by ranges, through a cache, and files by the pieces that they consist of.
//!
//! Guarantees: bytes that [`read_pieces`] and [`read_into`] give were verified against the rows that name them. What [`ObjectReader`] gives was not: who
//! finds it wrong says so, and the next read asks the store again. Relies on objects being immutable and their keys never being used again.

mod files;
mod key;
mod objects;
mod pieces;
mod warm;

pub use forebay_format::row::DATA_KEYS as DATA;
pub use key::{object_key, parse_key};
pub use objects::ObjectReader;
pub use pieces::{SMALL_FILE, access_of, fetch_ahead, read_into, read_pieces};
pub use warm::{NotWarm, Progress, Stored, Warmed, Warmer, Warming, stored_runs};
