//! What a process has at hand when it does something, and what it leaves for the world to look at and to carry on.

use std::collections::{BTreeMap, BTreeSet};

use forebay_cluster::{Moment, SessionId};
use forebay_group::{Incarnation, MemberId};
use forebay_types::SegmentId;
use rand::{RngExt, rngs::StdRng};

use super::METAS;
use crate::{
    engine::Batch,
    faults::Planted,
    messages::{Extent, Message, Node},
};

/// What a batch does that the world looks at.
#[derive(Clone, Copy, Debug)]
pub enum Tag {
    None,
    /// A member was removed for good.
    Removed(MemberId),
    /// A session ended.
    SessionEnded(SessionId),
    /// A segment was sealed by recovery.
    Recovered,
    /// A segment was given up.
    GivenUp(SegmentId),
    /// A segment ends where those have it end who are left.
    Shortened,
}

pub(super) type Replies = Vec<(Node, Message)>;

/// What a process does.
pub struct Context<'a> {
    /// The process's own clock.
    pub clock: Moment,
    /// The world's time.
    pub now: u64,
    pub life: u64,
    pub rng: &'a mut StdRng,
    pub wish: Option<MemberId>,
    /// The log is to be synced from here on.
    pub sync: bool,
    /// Copies that were given up.
    pub dropped: Vec<(MemberId, SegmentId)>,
    /// Whether the volume is of class `local`.
    pub local: bool,
    /// Who took something in, and as what.
    pub accepted: Vec<(MemberId, Incarnation)>,
    /// What counts from now on, as the owner has answered.
    pub acknowledged: Vec<Extent>,
    /// How many of them the store had before.
    pub direct: usize,
    pub(super) planted: Option<Planted>,
    pub(super) versions: &'a mut BTreeMap<u64, u64>,
    pub(super) ended: &'a BTreeSet<SessionId>,
    /// Members whose disks are lost for good.
    pub lost: &'a BTreeSet<MemberId>,
    pub(super) sends: Replies,
    pub(super) commits: Vec<(Batch, Tag, Replies)>,
    pub(super) violations: Vec<String>,
}

impl Context<'_> {
    pub fn send(&mut self, to: Node, message: Message) {
        self.sends.push((to, message));
    }

    /// To one of the metadata servers.
    pub fn send_meta(&mut self, message: Message) {
        let meta = Node::Meta(self.rng.random_range(0..METAS));
        self.send(meta, message);
    }

    pub fn commit(&mut self, batch: Batch, tag: Tag, replies: Replies) {
        self.commits.push((batch, tag, replies));
    }

    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub fn planted(&self, mistake: Planted) -> bool {
        self.planted == Some(mistake)
    }

    pub fn next_version(&mut self, file: u64) -> u64 {
        let version = self.versions.entry(file).or_insert(0);
        *version += 1;
        *version
    }

    pub fn is_old(&self, session: SessionId) -> bool {
        self.ended.contains(&session)
    }
}

/// What happened, so that a world in which nothing does is seen.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub acknowledged: usize,
    /// Those of them that one member has alone.
    pub local: usize,
    /// Those that were put into the store, as members were too few.
    pub direct: usize,
    /// Sessions that ended, and segments that recovery has sealed.
    pub ended: usize,
    pub recovered: usize,
    pub lost_disks: usize,
    pub removed: usize,
    pub seated: usize,
    /// Segments that nobody has any more, and those of which less is left than recovery had sealed.
    pub given_up: usize,
    pub shortened: usize,
}
