//! Members of groups: who is there, what becomes of the copies that they offer, and who is given copies in the place of those that are gone.
//!
//! Guarantees: a member is told that a copy is clean, or of no use, only once that is committed; one member at a time has its turn to put a segment, and others after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use forebay_cluster::{Moment, SessionId};
use forebay_group::{GroupId, GroupRow, MemberId, Offer, SetRow, SetState, Verdict, View, repair};
use forebay_protocol::{Answer, Failure, Judged, OfferCopies, SegmentPlace};
use forebay_types::{Ino, SegmentId};
use rustc_hash::FxHashMap;

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
pub(crate) struct Known {
    pub(crate) view: View,
    pub(crate) removed: BTreeSet<MemberId>,
    pub(crate) given_up: BTreeSet<MemberId>,
}

/// What is known of groups and their members.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    pub(crate) known: BTreeMap<GroupId, Known>,
    seen: BTreeMap<MemberId, Seen>,
    /// How many copies there are to be of what is written to the volume; as many as its group says where that is not known.
    pub(crate) copies: Option<u8>,
    /// What is written goes to the store alone: nothing is taken any more that only members have.
    pub(crate) to_store: bool,
    /// Through which groups the volume is read, if any; `None` while that was not told.
    pub(crate) read_through: Option<Vec<GroupId>>,
    /// Sessions that are members', not mounts', and which members'.
    pub(crate) speakers: FxHashMap<SessionId, MemberId>,
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

    /// Whether the operator has given a member up: nothing that it says counts any more.
    pub(crate) fn is_given_up(&self, member: MemberId) -> bool {
        self.known.values().any(|known| known.given_up.contains(&member))
    }

    /// Whether a session speaks for a member that was given up.
    pub(crate) fn is_of_given_up(&self, session: SessionId) -> bool {
        let heard = self.seen.iter().filter(|(_, seen)| seen.session == session).map(|(member, _)| member);
        self.speakers.get(&session).into_iter().chain(heard).any(|member| self.is_given_up(*member))
    }

    pub(crate) fn is_there(&self, group: GroupId, member: MemberId, now: Moment) -> bool {
        match self.known.get(&group) {
            Some(known) => known.view.members.contains_key(&member),
            None => self.seen.get(&member).is_some_and(|seen| now.since(seen.at) < PRESENT_FOR),
        }
    }

    /// How many copies there are to be of a segment with so many of them: as many as of the volume's, and never fewer than it was acknowledged by, as files may be of a
    /// higher class than their volume.
    pub(crate) fn copies(&self, group: GroupId, of_set: usize) -> usize {
        let of_group = || self.known.get(&group).map(|known| known.view.copies);
        self.copies.or_else(of_group).map_or(of_set, |copies| of_set.max(usize::from(copies)))
    }

    /// Who stays in a set once another member has joined it: who is in the view, and who speaks by this session. Everybody where no view is known: nobody is known to be
    /// gone.
    pub(crate) fn staying(&self, group: GroupId, session: SessionId) -> impl Fn(MemberId) -> bool + use<> {
        let view: Option<BTreeSet<MemberId>> =
            self.known.get(&group).map(|known| known.view.members.keys().copied().collect());
        let speaks: BTreeSet<MemberId> =
            self.seen.iter().filter(|(_, seen)| seen.session == session).map(|(id, _)| *id).collect();
        move |member| view.as_ref().is_none_or(|view| view.contains(&member)) || speaks.contains(&member)
    }
}

impl Core {
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
        if row.set.contains(&member) {
            self.sets.losses.offered(segment, member, row.is_lacking(offer));
        }
        let whole = offer.sealed.is_some() && !offer.damaged;
        let since = match row.state {
            SetState::Stored | SetState::Lost => now,
            _ if whole => *self.sets.sealed_since.entry(segment).or_insert(now),
            _ => now,
        };
        let there: Vec<MemberId> =
            row.set.iter().copied().filter(|id| self.groups.is_there(group, *id, now)).collect();
        // Whoever has all of it puts it while nobody of its set is there: as a copy of this epoch.
        let alone = match row.state {
            SetState::Sealed { len, check } if there.is_empty() && !offer.damaged => {
                (offer.sealed == Some((len, check))).then_some((len, check))
            }
            _ => None,
        };
        let verdict = match (verdict, alone) {
            (Verdict::Unwanted(epoch), Some((len, check))) if offer.epoch < epoch => {
                Verdict::SealedAt { epoch, len, check }
            }
            (Verdict::Unwanted(_), Some(_)) => Verdict::Wanted,
            (verdict, _) => verdict,
        };
        let turn = now.since(since).as_nanos() / TURN.as_nanos();
        let next = there.get((turn % there.len().max(1) as u128) as usize);
        let unstored = !matches!(row.state, SetState::Stored | SetState::Lost);
        let puts =
            unstored && whole && verdict == Verdict::Wanted && (next == Some(&member) || alone.is_some());
        let copies = whole && unstored && there.first() == Some(&member);
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
            let copies = groups.copies(held.group, held.row.set.len());
            let to = repair(segment, &held.row, &view.active(), &present, copies);
            found.extend(to.map(|(_, to)| (segment, to)));
            if found.len() == MENDED {
                break;
            }
        }
        found
    }
}

impl VolumeOwner {
    /// Takes in what the registry says of a group: who is in it, who was removed, and who was given up.
    pub fn group_is(&self, group: GroupId, row: &GroupRow) {
        let mut core = self.core.lock();
        // Every change of a group is a view of its own.
        if core.groups.known.get(&group).is_some_and(|old| old.view.epoch >= row.view.epoch) {
            return;
        }
        let GroupRow { view, removed, given_up, .. } = row.clone();
        let before = core.groups.known.insert(group, Known { view, removed, given_up });
        let gone = |known: &Known| (known.given_up.clone(), known.removed.clone());
        let now = (&row.given_up, &row.removed);
        if !now.0.is_empty() && before.as_ref().map(gone).as_ref().map(|(a, b)| (a, b)) != Some(now) {
            core.sets.losses.look_at_all();
        }
    }

    /// Says on how many members what is written to the volume is to be, where it is written over a group; `None`: as many as that group has of its segments.
    pub fn set_copies(&self, copies: Option<u8>) {
        self.core.lock().groups.copies = copies;
    }

    /// Says whether what is written goes to the store alone (class `object`). From then on no segment is opened over members' logs, and no commit taken that names one.
    pub fn set_to_store(&self, to_store: bool) {
        self.core.lock().groups.to_store = to_store;
    }

    /// Says that a session that lives is this member's, not a mount's.
    pub fn is_of_member(&self, session: SessionId, member: MemberId) {
        let mut core = self.core.lock();
        if core.sessions.lives(session) {
            core.groups.speakers.insert(session, member);
        }
    }

    /// The sessions that live and are mounts', in the order of their numbers.
    #[must_use]
    pub fn mounts(&self) -> Vec<SessionId> {
        let core = self.core.lock();
        let mut all = core.sessions.all();
        all.retain(|session| !core.groups.speakers.contains_key(session));
        all
    }

    /// Tells a member what becomes of its copies.
    pub(crate) fn offer(&self, session: SessionId, offer: &OfferCopies) -> Answer {
        let now = self.ticks.now();
        let places: Vec<_> =
            offer.offers.iter().map(|one| (one, carry::place(&self.ns, one.segment))).collect();
        let mut core = self.core.lock();
        if core.groups.is_given_up(offer.member) {
            // It is told nothing by which it would throw something away.
            return Answer::Failed(Failure::NotPermitted);
        }
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
