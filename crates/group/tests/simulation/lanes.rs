//! A client's segments over the logs of members, as `crates/client/src/data/lanes/pool.rs` has them: opened ahead of need, filled by one batch at a time, at rest between
//! batches, ended, and told to the owner.

use std::collections::{BTreeMap, VecDeque};

use forebay_group::{Candidate, Closed, MemberId, Replication, View};
use forebay_types::SegmentId;

use crate::{
    messages::{Message, Node, Opened, node_of},
    world::{Context, SECOND},
};

/// How long a segment stays open.
const OPEN_FOR: u64 = 5 * SECOND;
/// How long a member is avoided that failed.
const AVOIDED_FOR: u64 = 4 * SECOND;
/// From here on a segment takes no more.
const FULL: u64 = 200;
/// Segments that are told to the owner at a time: few, so that some are left for the next time.
const TOLD: usize = 4;

/// A segment that is being filled, by one batch at a time.
#[derive(Debug)]
pub struct Filling {
    pub replication: Replication,
    since: u64,
    /// A member is being drained.
    pub ends: bool,
}

impl Filling {
    fn new(Opened { segment, epoch, set }: Opened, since: u64) -> Filling {
        Filling { replication: Replication::new(segment, epoch, set), since, ends: false }
    }

    pub fn is_full(&self) -> bool {
        self.ends || self.replication.end() >= FULL
    }
}

/// What a batch has appended to.
#[derive(Debug, Default)]
pub struct Used {
    pub open: Vec<Filling>,
    /// Those that it has ended: full, or given up in the middle.
    pub ended: Vec<SegmentId>,
}

#[derive(Debug, Default)]
pub struct Lanes {
    /// Opened, and empty, and since when.
    stock: VecDeque<(Opened, u64)>,
    resting: Vec<Filling>,
    /// To be told: closed ones, and those that no request names any more.
    closed: Vec<Closed>,
    settled: Vec<SegmentId>,
    avoided: BTreeMap<MemberId, u64>,
}

impl Lanes {
    /// Who takes new segments, without members that failed lately; for one copy alone, only who is on this machine. `None` where they are fewer than copies.
    pub fn group(&mut self, view: &View, near: Node, copies: usize, now: u64) -> Option<Vec<Candidate>> {
        self.avoided.retain(|_, since| now < *since + AVOIDED_FOR);
        let mut members = view.active();
        members.retain(|member| !self.avoided.contains_key(&member.id));
        members.retain(|member| copies > 1 || node_of(member.id) == near);
        (members.len() >= copies).then_some(members)
    }

    /// A member failed: it gets nothing new for a while.
    pub fn avoid(&mut self, member: MemberId, now: u64) {
        self.avoided.insert(member, now);
    }

    pub fn opened(&mut self, opened: Vec<Opened>, now: u64) {
        self.stock.extend(opened.into_iter().map(|opened| (opened, now)));
    }

    /// One that rests or was opened before, of members that may still be chosen.
    pub fn known(&mut self, members: &[Candidate]) -> Option<Filling> {
        let takes = |set: &[MemberId]| set.iter().all(|id| members.iter().any(|member| member.id == *id));
        if let Some(at) = self.resting.iter().position(|one| takes(&one.replication.set())) {
            return Some(self.resting.swap_remove(at));
        }
        let at = self.stock.iter().position(|(opened, _)| takes(&opened.set))?;
        self.stock.remove(at).map(|(opened, since)| Filling::new(opened, since))
    }

    /// Ends a segment at what all of its set have: the members are told now, the owner with the next word.
    pub fn end(&mut self, filling: Filling, context: &mut Context<'_>) -> SegmentId {
        let closed = filling.replication.close();
        for id in &closed.set {
            context.send(node_of(*id), Message::Seal { id: *id, closed: closed.clone() });
        }
        let segment = closed.segment;
        self.closed.push(closed);
        segment
    }

    /// The batch's commit was answered, or never sent: what it has appended to may be filled by others.
    pub fn done(&mut self, used: Used) {
        self.settled.extend(used.ended);
        self.resting.extend(used.open);
    }

    /// No request names them that is still to come.
    pub fn settle(&mut self, segment: SegmentId) {
        self.settled.push(segment);
    }

    /// Ends those that were open for long, empty or not, or cannot be filled any more, or `all`. Nothing names them that is still to come.
    pub fn end_old(&mut self, all: bool, context: &mut Context<'_>) {
        let now = context.now;
        let old = |since: u64| all || now >= since + OPEN_FOR;
        let mut ended: Vec<Filling> = self.resting.extract_if(.., |one| old(one.since)).collect();
        for (opened, since) in std::mem::take(&mut self.stock) {
            if old(since) || opened.set.iter().any(|member| self.avoided.contains_key(member)) {
                ended.push(Filling::new(opened, since));
            } else {
                self.stock.push_back((opened, since));
            }
        }
        for filling in ended {
            let segment = self.end(filling, context);
            self.settled.push(segment);
        }
    }

    /// What the owner is to be told, some of it: what is settled is sealed, by this or before.
    pub fn take_told(&mut self) -> Option<(Vec<Closed>, Vec<SegmentId>)> {
        let closed: Vec<_> = self.closed.drain(..self.closed.len().min(TOLD)).collect();
        let waits = |segment: &SegmentId| self.closed.iter().any(|closed| closed.segment == *segment);
        let (mut later, mut settled): (Vec<_>, Vec<_>) = self.settled.drain(..).partition(waits);
        later.extend(settled.split_off(settled.len().min(TOLD)));
        self.settled = later;
        (!closed.is_empty() || !settled.is_empty()).then_some((closed, settled))
    }

    /// Whether all has ended, and the owner was told.
    pub fn is_idle(&self) -> bool {
        self.stock.is_empty() && self.resting.is_empty() && self.closed.is_empty() && self.settled.is_empty()
    }
}
