//! What a group is since one change, and how one change follows another.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Candidate, Incarnation, MemberId, ViewEpoch};

/// How many members that were counted out are remembered with the end of their logs.
const LOST_MAX: usize = 64;

/// What a member is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// New segments, and everything else.
    Active,
    /// To put what it has; it takes no new segments.
    Draining,
}

/// A member in a view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The process that acts for it.
    pub incarnation: Incarnation,
    /// Where it is reached.
    pub address: String,
    /// The machine it is on: clients there take it first.
    pub node: String,
    /// Its failure domain.
    pub zone: String,
    /// Its share.
    pub weight: u32,
    /// What it is asked for.
    pub state: MemberState,
}

impl Member {
    /// Whether `named` means this member, whose id is `id`: by its node, its address, its id, or at least the first four digits of that. Several members may be
    /// meant by one name.
    #[must_use]
    pub fn is_meant(&self, id: MemberId, named: &str) -> bool {
        self.node == named || self.address == named || id.begins_with(named)
    }
}

/// A group since one change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Which view.
    pub epoch: ViewEpoch,
    /// How many members have a segment before it is acknowledged.
    pub copies: u8,
    /// Who is in it.
    pub members: BTreeMap<MemberId, Member>,
    /// Who was in the last view that stood long: who misses asks by this.
    pub before: Vec<Candidate>,
}

impl View {
    /// A group that begins without members.
    #[must_use]
    pub fn new(copies: u8) -> View {
        View { epoch: ViewEpoch(1), copies, members: BTreeMap::new(), before: Vec::new() }
    }

    /// Who may be chosen for new segments.
    #[must_use]
    pub fn active(&self) -> Vec<Candidate> {
        self.candidates(|member| member.state == MemberState::Active)
    }

    /// Who may be asked for what they have.
    #[must_use]
    pub fn all(&self) -> Vec<Candidate> {
        self.candidates(|_| true)
    }

    fn candidates(&self, which: impl Fn(&Member) -> bool) -> Vec<Candidate> {
        let fits = self.members.iter().filter(|(_, member)| which(member));
        fits.map(|(id, member)| Candidate { id: *id, weight: member.weight, zone: member.zone.clone() })
            .collect()
    }

    /// Whether this process acts for this member, as far as this view says.
    #[must_use]
    pub fn names(&self, id: MemberId, incarnation: Incarnation) -> bool {
        self.members.get(&id).is_some_and(|member| member.incarnation == incarnation)
    }
}

/// The row of a group in the registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupRow {
    /// What is so now.
    pub view: View,
    /// Members that are being drained, also while they are not in the view: they come back as such.
    pub draining: BTreeSet<MemberId>,
    /// Members that were drained and removed: whatever names them, they have nothing of it.
    pub removed: BTreeSet<MemberId>,
    /// Members that were counted out, the last ones at the end, and where their logs ended at least.
    pub lost: Vec<(MemberId, u64)>,
    /// On which machines these were, as far as that is known.
    pub nodes: BTreeMap<MemberId, String>,
    /// Members whose disks are lost for good, as the operator has said: what they have is never asked for.
    pub given_up: BTreeSet<MemberId>,
}

impl GroupRow {
    /// A group without members.
    #[must_use]
    pub fn new(copies: u8) -> GroupRow {
        GroupRow {
            view: View::new(copies),
            draining: BTreeSet::new(),
            removed: BTreeSet::new(),
            lost: Vec::new(),
            nodes: BTreeMap::new(),
            given_up: BTreeSet::new(),
        }
    }

    /// The row with the next view. `settled` says that the view until now had stood for long.
    #[must_use]
    pub(crate) fn next(&self, settled: bool, change: impl FnOnce(&mut GroupRow)) -> GroupRow {
        let mut next = self.clone();
        if settled {
            next.view.before = self.view.all();
        }
        next.view.epoch = self.view.epoch.next();
        change(&mut next);
        next
    }

    pub(crate) fn remember_lost(&mut self, id: MemberId, log_end: u64, node: Option<String>) {
        self.forget_lost(id);
        self.lost.push((id, log_end));
        self.nodes.extend(node.map(|node| (id, node)));
        let surplus = self.lost.len().saturating_sub(LOST_MAX);
        for (id, _) in self.lost.drain(..surplus) {
            self.nodes.remove(&id);
        }
    }

    /// A member is not one that may come back.
    pub(crate) fn forget_lost(&mut self, id: MemberId) {
        self.lost.retain(|(other, _)| *other != id);
        self.nodes.remove(&id);
    }

    /// Where a member's log ended when it was counted out; 0 where that is not known.
    #[must_use]
    pub fn lost_end(&self, id: MemberId) -> u64 {
        self.lost.iter().find(|(other, _)| *other == id).map_or(0, |(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(state: MemberState) -> Member {
        Member {
            incarnation: Incarnation([1; 16]),
            address: "a:1".to_owned(),
            node: "a".to_owned(),
            zone: "z".to_owned(),
            weight: 5,
            state,
        }
    }

    #[test]
    fn a_change_raises_the_epoch_and_remembers_what_stood_long() {
        let id = MemberId([7; 16]);
        let empty = GroupRow::new(2);
        let one = empty.next(true, |row| drop(row.view.members.insert(id, member(MemberState::Active))));
        assert_eq!((one.view.epoch, one.view.before.len()), (ViewEpoch(2), 0));
        let quick = one.next(false, |row| row.view.members.clear());
        assert!(quick.view.before.is_empty(), "it had not stood");
        let slow = one.next(true, |row| row.view.members.clear());
        assert_eq!(slow.view.before.len(), 1);
    }

    #[test]
    fn who_drains_is_not_chosen() {
        let mut view = View::new(2);
        view.members.insert(MemberId([1; 16]), member(MemberState::Active));
        view.members.insert(MemberId([2; 16]), member(MemberState::Draining));
        assert_eq!((view.active().len(), view.all().len()), (1, 2));
        assert!(view.names(MemberId([1; 16]), Incarnation([1; 16])));
        assert!(!view.names(MemberId([1; 16]), Incarnation([2; 16])));
    }

    #[test]
    fn the_lost_are_bounded() {
        let mut row = GroupRow::new(2);
        for at in 0..100u8 {
            row.remember_lost(MemberId([at; 16]), u64::from(at) + 1, Some(at.to_string()));
        }
        row.remember_lost(MemberId([99; 16]), 500, None);
        assert_eq!((row.lost.len(), row.nodes.len()), (LOST_MAX, LOST_MAX - 1));
        assert_eq!((row.lost_end(MemberId([99; 16])), row.lost_end(MemberId([0; 16]))), (500, 0));
    }
}
