//! Bytes on the local disk: the journal, streams of large writes, packed segments, and reading runs back out of any of them.
//!
//! Guarantees: after [`Journal::sync`] a record and everything before it survives a power cut, after [`Streams::sync`] every run appended
//! before the call does; nothing that was not verified is handed out by [`RunReader`]; after a failed write or sync of the journal
//! (or of the streams) no later one claims success.
//!
//! Relies on [`forebay_env::durable`] for what is stable and on [`forebay_format`] for every byte layout. One process writes a volume's
//! directories at a time; the caller sees to that.
//!
//! Order that must hold: the streams that a record names are synced before the journal is, and the journal is synced before the
//! metadata engine stores that it has applied a record. `docs/design/journal.md` and `docs/design/data.md` have the whole of it.

mod error;
mod failure;
mod fetch;
mod frame_cache;
mod journal;
mod memory;
mod packed;
mod pieces;
mod reader;
mod sealed;
mod segment_file;
mod source;
mod streams;

pub use error::{DataError, ReplayError};
pub use failure::Failure;
pub use forebay_env::buffers::Buffer;
pub use journal::{Append, Damage, Dropped, Journal, JournalFile, Replay, Replayed, Urgency};
pub use memory::{MemoryObject, SegmentBuffer};
pub use packed::PackedWriter;
pub use pieces::{Parts, ReadPiece, ReadPieces};
pub use reader::{ReadError, RunReader};
pub use sealed::{SealedSegment, combine, read_footer};
pub use source::{Access, SegmentSource, SourceError};
pub use streams::{RecoveredStream, Streams};
