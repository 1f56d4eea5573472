//! Writing over the logs of a group's members: what stands between batches and the store where a volume has a group (`docs/design/proxy-group.md`).
//!
//! Guarantees: a run is named to the owner only once every member of its segment's set has it on stable storage; a segment is settled only once no request that
//! may still be carried out names it. Where there are fewer members than copies, batches put objects themselves. Where one copy is enough (class `local`), it is at a
//! member of this machine, or nowhere.

mod packing;
mod pool;

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_group::{Append, Candidate, GroupId, MemberId};
use forebay_protocol::{Bounds, SealedSegment};
use forebay_types::SegmentId;

pub(super) use packing::{Bound, LanePacking};
pub(super) use pool::{Lanes, Used};

use super::Within;

/// The group over which a volume is written, as it is known now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteGroup {
    /// Which.
    pub group: GroupId,
    /// On how many members' stable storage a byte is before it counts; one: on that of a member of this machine.
    pub copies: u8,
    /// Who takes new segments.
    pub members: Vec<Candidate>,
    /// Who of them is on this machine: one gets the first copy, of several disks each in turn.
    pub near: Vec<MemberId>,
}

/// What a member has on stable storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Where its copy of the segment ends.
    pub end: u64,
    /// How long the writer is to wait before it appends more: the member's disk fills.
    pub pace: Duration,
    /// It is being drained: the segment is to end soon.
    pub draining: bool,
}

/// A member did not do as it was asked, or nobody can tell.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the member {member}: {why}")]
pub struct MemberFailed {
    /// Which.
    pub member: MemberId,
    /// Why.
    pub why: String,
}

/// How the members of a volume's group are reached. Many threads call at once.
pub trait Members: Send + Sync + fmt::Debug {
    /// All groups of the volume that are known, in its order.
    fn groups(&self) -> Arc<[GroupId]>;

    /// Where bytes may be now that may be there: on any disk only where no group of the volume is left out; else over the group that is gone by or, where they may not be there, the nearest
    /// in which they may be and that answers.
    fn within(&self, bounds: &Bounds) -> Within;

    /// The group over which what may be there is written. `None` where it goes into the store at once.
    fn writes_over(&self, within: Within) -> Option<WriteGroup>;

    /// Has each of a set take bytes in, all at the same time, and returns what each answered, in their order. A member that has not answered within 8 s has failed, and so has one from
    /// which nothing came for 1 s, and for what the bytes take that are on their way to it, after another one of the set has answered.
    fn append(&self, set: &[MemberId], append: &Append) -> Vec<Result<Appended, MemberFailed>>;

    /// Tells each of a set that a segment ends. Who does not hear it is told when it offers its copy.
    fn seal(&self, set: &[MemberId], sealed: &SealedSegment);

    /// Exactly `len` bytes of a segment from `offset` on, from any of a set that has them. They need not be verified; the caller does that.
    ///
    /// # Errors
    /// [`MemberFailed`] of the last one that was asked: none has them, or none answers.
    fn read(
        &self,
        set: &[MemberId],
        segment: SegmentId,
        offset: u64,
        len: u32,
    ) -> Result<Bytes, MemberFailed>;
}
