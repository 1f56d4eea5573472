//! Identifiers, limits and choices that every other crate speaks of; no input or output.
//!
//! Everything here is plain data: `Copy` where it fits, ordered where an order means something. Units are in the names.

mod attr;
mod choice;
mod ids;
pub mod limits;
mod sync_class;

pub use attr::{Attr, FileKind, Timespec};
pub use choice::{Coherence, Compression, Durability, Encryption, ParseChoiceError};
pub use ids::{Epoch, Generation, Ino, ObjectId, PolicyId, SegmentId, Sequence, SubvolumeId, VolumeId};
pub use sync_class::{NoSyncClass, SyncClass};
