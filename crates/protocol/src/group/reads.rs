//! What those who read say to proxies, and proxies to each other. Bytes of objects travel in the bulk.

use forebay_format::row::ObjectRef;
use forebay_group::ViewEpoch;
use forebay_types::SegmentId;

use crate::word::{choice, record};

/// How the reader goes through an object: what is worth keeping, and how much is fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    /// It goes on.
    Sequential,
    /// Others near it are likely to follow.
    Nearby,
    /// It jumps.
    Random,
}

/// Bytes of an object are wanted, at most 8 MiB; none: only its length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// Which object.
    pub object: ObjectRef,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes; fewer come only where the object ends.
    pub len: u32,
    /// By which piece the member was chosen: the segment, and an offset in it.
    pub segment: SegmentId,
    /// That offset.
    pub at: u64,
    /// How the reader goes.
    pub walk: Walk,
    /// Whether it waits for the store; else it is told [`Fetched::Coming`] where the bytes are not here.
    pub waits: bool,
}

/// What becomes of a [`Fetch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fetched {
    /// The bytes are the bulk.
    Here {
        /// On how many members the piece is to be asked for.
        width: u32,
        /// The view that the member goes by.
        epoch: ViewEpoch,
    },
    /// So long is the object, in bytes.
    Length(u64),
    /// They are not here, and are being fetched: who asks again with [`Fetch::waits`] gets them.
    Coming,
}

/// Bytes of an object are wanted, if they are here. The answer has them, or fewer at the object's end, as its bulk; or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peek {
    /// Which object.
    pub object: ObjectRef,
    /// From which byte on.
    pub offset: u64,
    /// How many.
    pub len: u32,
}

/// Bytes of an object are to be in the member's cache, at most 8 MiB: somebody will want them. None of them are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Warm {
    /// Which object.
    pub object: ObjectRef,
    /// From which byte on.
    pub offset: u64,
    /// How many.
    pub len: u32,
    /// By which piece the member was chosen: the segment, and an offset in it.
    pub segment: SegmentId,
    /// That offset.
    pub at: u64,
}

/// What became of a [`Warm`], in bytes of whole chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Warmed {
    /// They were there.
    pub cached: u64,
    /// They came, from the store or from another member.
    pub fetched: u64,
    /// Bytes of these that did not stay: the cache's disk is full or failing, or is needed for others.
    pub lost: u64,
}

/// What came of these bytes was not what was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Distrust {
    /// Which object.
    pub object: ObjectRef,
    /// From which byte on.
    pub offset: u64,
    /// How many.
    pub len: u32,
}

record!(Fetch { object, offset, len, segment, at, walk, waits });
record!(Peek { object, offset, len });
record!(Distrust { object, offset, len });
record!(Warm { object, offset, len, segment, at });
record!(Warmed { cached, fetched, lost });
choice!(Walk { 1 => Sequential, 2 => Nearby, 3 => Random });
choice!(Fetched { 1 => Here { width, epoch }, 2 => Length(len), 3 => Coming });
