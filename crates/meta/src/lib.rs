//! The namespace of a volume: inodes, names, extents, segments and generations, over an ordered engine.
//!
//! Guarantees: operations are linearizable; each is one record of the [`Log`] and takes effect whole or not at all; what an operation
//! returned is seen by every later one, also while it is still on its way to the engine. Relies on: the log keeps records in the order in which they
//! were committed; [`Engine::commit`] is atomic and durable.
//!
//! Order that must hold: a record is in the log before its rows are visible; the log is durable up to a checkpoint's last record
//! before the engine gets the checkpoint; a journal file is removed only after the checkpoint that contains its records.

mod blocks;
mod cuts;
mod dentries;
mod error;
mod given_names;
mod inode;
mod log;
mod namespace;
mod orphans;
mod prefetched;
mod row_key;
mod rows;
mod segments;
mod tree;
mod txn;

pub use blocks::Placed;
pub use error::MetaError;
pub use forebay_engine::{
    Batch, EmbeddedEngine, Engine, EngineError, EngineFault, FrozenEngine, MemoryEngine, Outcome, RowPage,
    Writers,
};
pub use inode::{Inode, NewInode};
pub use log::{Append, Log, LogError, Place, Urgency};
pub use namespace::{
    Checkpoint, DirEntry, ExtentSource, Moved, Namespace, NewContents, NewExtent, NewSegment, Piece,
    PieceSource, Pieces, PlannedRow, PolicyFiles, Relocation, Removed, RenameMode, SetAttr, SetTime,
    SetXattr, Snapshot, StoredPlace, WriteAttr,
};
pub use segments::{Candidate, Holding, SegmentTotals};
