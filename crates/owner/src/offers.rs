//! Members of groups: who is there, what becomes of the copies that they offer, and who is given copies in the place of those that are gone.
//!
//! Guarantees: a member is told that a copy is clean, or of no use, only once that is committed; one member at a time has its turn to put a segment, and others after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use forebay_cluster::{Moment, SessionId};
use forebay_group::{GroupId, GroupRow, Lane, MemberId, Offer, SetRow, SetState, Verdict, View, repair};
use forebay_protocol::{Answer, Judged, OfferCopies, SegmentPlace};
use forebay_types::{Ino, SegmentId};

use crate::{batch::Core, carry, owner::VolumeOwner};

/// How long after its last word a member counts as being there, where no view says who is: members offer every 10 s.
const PRESENT_FOR: Duration = Duration::from_secs(25);
/// How long a member has to put a segment before the next one of the set has its turn.
const TURN: Duration = Duration::from_secs(15);
/// How long a sealed segment waits to be stored before copies of it are made anew.
const MENDED_AFTER: Duration = Duration::from_secs(30);
/// Segments that one call begins to mend.
const MENDED: usize = 256;

/// Where a member was last heard of.
#[derive(Clone, Copy, Debug)]
struct Seen {
    session: SessionId,
    at: Moment,
}

/// A group, as the registry has it.
#[derive(Debug)]
struct Known {
    view: View,
    removed: BTreeSet<MemberId>,
}

/// What is known of groups and their members.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    known: BTreeMap<GroupId, Known>,
    seen: BTreeMap<MemberId, Seen>,
    /// Members that the operator has given up.
    pub(crate) lost: BTreeSet<MemberId>,
}

impl Groups {
    /// The session through which a member is reached.
    pub(crate) fn session_of(&self, member: MemberId) -> Option<SessionId> {
        self.seen.get(&member).map(|seen| seen.session)
    }

    /// Members that were drained and removed.
    pub(crate) fn removed(&self, group: GroupId) -> impl Iterator<Item = MemberId> {
        self.known.get(&group).into_iter().flat_map(|known| known.removed.iter().copied())
    }

    fn is_there(&self, group: GroupId, member: MemberId, now: Moment) -> bool {
        match self.known.get(&group) {
            Some(known) => known.view.members.contains_key(&member),
            None => self.seen.get(&member).is_some_and(|seen| now.since(seen.at) < PRESENT_FOR),
        }
    }

    fn there(&self, group: GroupId, now: Moment) -> Vec<MemberId> {
        match self.known.get(&group) {
            Some(known) => known.view.members.keys().copied().collect(),
            None => self.seen.keys().copied().filter(|member| self.is_there(group, *member, now)).collect(),
        }
    }
}

impl Core {
    /// The members of a segment's group that are there.
    pub(crate) fn group_members(&self, segment: SegmentId, now: Moment) -> Vec<MemberId> {
        self.sets.get(segment).map(|held| self.groups.there(held.group, now)).unwrap_or_default()
    }

    /// What a member is told of a copy.
    fn judge(
        &mut self,
        member: MemberId,
        (offer, place): (&Offer, Option<SegmentPlace>),
        now: Moment,
    ) -> Judged {
        let segment = offer.segment;
        let verdict = SetRow::verdict(self.sets.row(segment), member, offer);
        let Some(held) = self.sets.get(segment) else {
            // Stored, and nobody is left who would name it: what is there is as good as the store's.
            let verdict = if place.is_some() { Verdict::Clean } else { verdict };
            return Judged { segment, verdict, directory: Ino(0), place, puts: false, copy_to: None };
        };
        let place = place.filter(|_| verdict == Verdict::Clean);
        let (directory, group, row) = (held.directory, held.group, held.row.clone());
        let whole = offer.sealed.is_some() && !offer.damaged;
        let since = match row.state {
            SetState::Stored => now,
            _ if whole => *self.sets.sealed_since.entry(segment).or_insert(now),
            _ => now,
        };
        let there: Vec<MemberId> =
            row.set.iter().copied().filter(|id| self.groups.is_there(group, *id, now)).collect();
        let turn = now.since(since).as_nanos() / TURN.as_nanos();
        let next = there.get((turn % there.len().max(1) as u128) as usize);
        let data = row.lane == Lane::Data && row.state != SetState::Stored;
        let puts = data && whole && next == Some(&member) && verdict == Verdict::Wanted;
        let copies = whole && data && there.first() == Some(&member);
        let copy_to = row.joining.filter(|_| copies).map(|to| (to, row.epoch));
        Judged { segment, verdict, directory, place, puts, copy_to }
    }

    /// Who is given a copy of what, where members of a set are gone.
    fn lacking_copies(&mut self, now: Moment) -> Vec<(SegmentId, MemberId)> {
        let mut found = Vec::new();
        let Core { sets, groups, .. } = self;
        let sealed: Vec<SegmentId> = sets
            .all()
            .filter(|(_, held)| matches!(held.row.state, SetState::Sealed { .. }))
            .map(|(segment, _)| segment)
            .collect();
        for segment in sealed {
            let since = *sets.sealed_since.entry(segment).or_insert(now);
            let Some(held) = sets.get(segment).filter(|_| now.since(since) >= MENDED_AFTER) else { continue };
            let Some(Known { view, .. }) = groups.known.get(&held.group) else { continue };
            if held.row.joining.is_some_and(|joining| view.members.contains_key(&joining)) {
                continue;
            }
            let present: Vec<MemberId> = view.members.keys().copied().collect();
            let to = repair(segment, &held.row, &view.active(), &present, usize::from(view.copies));
            found.extend(to.map(|(_, to)| (segment, to)));
            if found.len() == MENDED {
                break;
            }
        }
        found
    }
}

impl VolumeOwner {
    /// Takes in what the registry says of a group: who is in it, and who was removed.
    pub fn group_is(&self, group: GroupId, row: &GroupRow) {
        let mut core = self.core.lock();
        let known = Known { view: row.view.clone(), removed: row.removed.clone() };
        if core.groups.known.get(&group).is_none_or(|old| old.view.epoch <= known.view.epoch) {
            core.groups.known.insert(group, known);
        }
    }

    /// Tells a member what becomes of its copies.
    pub(crate) fn offer(&self, session: SessionId, offer: &OfferCopies) -> Answer {
        let now = self.ticks.now();
        let places: Vec<_> =
            offer.offers.iter().map(|one| (one, carry::place(&self.ns, one.segment))).collect();
        let mut core = self.core.lock();
        core.groups.seen.insert(offer.member, Seen { session, at: now });
        let judged = places.into_iter().map(|one| core.judge(offer.member, one, now));
        Answer::Judged(judged.collect())
    }

    /// Begins to have copies made of what has too few.
    pub(crate) fn mend(&self) {
        let _turn = self.lanes.lock();
        let mut core = self.core.lock();
        for (segment, to) in core.lacking_copies(self.ticks.now()) {
            core.change_set(segment, |row| row.seating(to));
        }
    }
}
