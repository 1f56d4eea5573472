//! The owner's row of a segment that the store may not have: who may have it, and how far it has come.
//!
//! Guarantees: a segment is stored once, at the length that was sealed; a copy is given up only when the row says that nobody needs it; the row is
//! there as long as a set may have what nobody else has, or a request may still name the segment. Relies on: rows change in the owner's batches only.

use std::collections::BTreeSet;

use forebay_cluster::SessionId;
use forebay_types::{Epoch, SegmentId};

use crate::{Candidate, MemberId, Offer, PieceKey, placement};

/// How far a segment has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetState {
    /// Its writer may append.
    Open,
    /// It ends here.
    Sealed {
        /// Bytes.
        len: u64,
        /// CRC32C of all of them.
        check: u32,
    },
    /// The store has it.
    Stored,
    /// Nobody has it: the members that had it were given up.
    Lost,
}

/// Who may have a segment that the store has not, once members were given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hope {
    /// A member of its set, or the store.
    There,
    /// None of its set has all of it that is left: what they have, and who was being given a copy, is to be asked ([`Inquiry`](crate::Inquiry)).
    Asking,
    /// Nobody.
    None,
}

/// Members that have nothing of a segment any more that could count.
#[derive(Clone, Copy, Debug)]
pub struct Gone<'a> {
    /// The operator gave these up: whatever they had never comes back.
    pub given_up: &'a BTreeSet<MemberId>,
    /// These were drained and removed: they had nothing.
    pub removed: &'a BTreeSet<MemberId>,
}

impl Gone<'_> {
    /// Whether a member is one of them.
    #[must_use]
    pub fn has(&self, member: &MemberId) -> bool {
        self.given_up.contains(member) || self.removed.contains(member)
    }
}

/// The row of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetRow {
    /// Whose it is.
    pub writer: SessionId,
    /// Raised when another writer or recovery takes it: what comes with a lower one is late.
    pub epoch: Epoch,
    /// Who has all of it that was acknowledged. The first one puts it.
    pub set: Vec<MemberId>,
    /// Who is being given a copy in the place of one that is gone. It is in no set before it has all.
    pub joining: Option<MemberId>,
    /// How far it has come.
    pub state: SetState,
    /// No request that is still to come names it.
    pub settled: bool,
    /// Recovery has sealed it: perhaps beyond what was acknowledged, at what one survivor had. Where its writer has, all of the set had all of it.
    pub recovered: bool,
}

/// Why the owner does not count a segment as stored by an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotTaken {
    /// Another object has it, or nobody needs it.
    #[error("the segment is stored, or of no use any more")]
    Over,
    /// Somebody took the segment meanwhile.
    #[error("the segment is in epoch {0} by now")]
    Late(Epoch),
    /// It has another length.
    #[error("the segment was sealed at {0} bytes")]
    OtherLength(u64),
    /// It was sealed with other bytes: those that were put are not what its writer appended.
    #[error("the segment was sealed with other bytes")]
    OtherBytes,
}

/// What a member is told of a copy that it offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is needed as it is.
    Wanted,
    /// It is needed up to a length; what is beyond was not acknowledged.
    SealedAt {
        /// In this epoch.
        epoch: Epoch,
        /// Bytes.
        len: u64,
        /// CRC32C of all of them.
        check: u32,
    },
    /// The store has it: the copy may become cache.
    Clean,
    /// The set in this epoch does not name the member. A later one may.
    Unwanted(Epoch),
    /// There is no row, and there will be none: nobody needs it.
    Gone,
}

impl SetRow {
    /// A segment that a writer opens.
    #[must_use]
    pub fn open(writer: SessionId, set: Vec<MemberId>) -> SetRow {
        SetRow {
            writer,
            epoch: Epoch(1),
            set,
            joining: None,
            state: SetState::Open,
            settled: false,
            recovered: false,
        }
    }

    /// The row once an object has the segment, of which `len` bytes were put by a member that goes by `epoch`; `check` is their CRC32C.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn stored(&self, epoch: Epoch, len: u64, check: u32) -> Result<SetRow, NotTaken> {
        match self.state {
            SetState::Stored | SetState::Lost => return Err(NotTaken::Over),
            _ if epoch != self.epoch => return Err(NotTaken::Late(self.epoch)),
            SetState::Sealed { len: sealed, .. } if sealed != len => {
                return Err(NotTaken::OtherLength(sealed));
            }
            SetState::Sealed { check: sealed, .. } if sealed != check => return Err(NotTaken::OtherBytes),
            SetState::Sealed { .. } | SetState::Open => {}
        }
        Ok(SetRow { state: SetState::Stored, ..self.clone() })
    }

    /// The row once its writer has sealed it. `None` where that says nothing new.
    #[must_use]
    pub fn sealed(&self, epoch: Epoch, len: u64, check: u32) -> Option<SetRow> {
        let open = self.state == SetState::Open && self.epoch == epoch;
        open.then(|| SetRow { state: SetState::Sealed { len, check }, ..self.clone() })
    }

    /// The row once recovery has it: the former writer's epoch is over. `None` where it is sealed or stored already.
    #[must_use]
    pub fn fenced(&self) -> Option<SetRow> {
        (self.state == SetState::Open).then(|| SetRow { epoch: self.epoch.next(), ..self.clone() })
    }

    /// Who may have it still, where these members are gone, and those in `lacking` have said that they have not all of it. Of an open one a member that was removed had
    /// nothing, so nothing of it was acknowledged: recovery says so.
    #[must_use]
    pub fn hope(&self, gone: Gone<'_>, lacking: Option<&BTreeSet<MemberId>>) -> Hope {
        let given_up = |member: &MemberId| gone.given_up.contains(member);
        let lacks = |member: &MemberId| lacking.is_some_and(|lacking| lacking.contains(member));
        match self.state {
            SetState::Open if self.set.iter().all(given_up) => Hope::None,
            SetState::Sealed { .. } if self.set.iter().all(|member| gone.has(member)) => {
                match self.joining.filter(|joining| !gone.has(joining)) {
                    // Nobody has said that anything is lost.
                    _ if !self.set.iter().any(given_up) => Hope::There,
                    Some(_) => Hope::Asking,
                    None => Hope::None,
                }
            }
            SetState::Sealed { .. }
                if self.recovered && self.set.iter().all(|member| gone.has(member) || lacks(member)) =>
            {
                Hope::Asking
            }
            _ => Hope::There,
        }
    }

    /// Whether a member that offers this has not all of a sealed segment, and will not have it by being told where it ends.
    #[must_use]
    pub fn is_lacking(&self, offer: &Offer) -> bool {
        match self.state {
            SetState::Sealed { len, check } => offer.end < len || offer.end == len && (offer.check != check),
            SetState::Open | SetState::Stored | SetState::Lost => false,
        }
    }

    /// The row once nobody has the segment. The epoch is a new one: what was on its way is late. `None` where the store has it, or nobody did before.
    #[must_use]
    pub fn given_up(&self) -> Option<SetRow> {
        let unstored = matches!(self.state, SetState::Open | SetState::Sealed { .. });
        let (epoch, state) = (self.epoch.next(), SetState::Lost);
        unstored.then(|| SetRow { epoch, state, joining: None, ..self.clone() })
    }

    /// The row while it is asked who has how much of it: in an epoch of its own, so that no more comes anywhere, and what was on its way is late. `None` where it is not
    /// sealed.
    #[must_use]
    pub fn asking(&self) -> Option<SetRow> {
        let sealed = matches!(self.state, SetState::Sealed { .. });
        sealed.then(|| SetRow { epoch: self.epoch.next(), ..self.clone() })
    }

    /// The row as recovery leaves it: these have that much, or at least all that was acknowledged.
    #[must_use]
    pub fn recovered(&self, len: u64, check: u32, set: Vec<MemberId>) -> SetRow {
        let state = SetState::Sealed { len, check };
        SetRow { state, set, joining: None, recovered: true, ..self.clone() }
    }

    /// The row while a member is given a copy of a sealed segment. The epoch is a new one: what was said of an older copy there is over. `None` where there
    /// is nothing to copy.
    #[must_use]
    pub fn seating(&self, member: MemberId) -> Option<SetRow> {
        let sealed = matches!(self.state, SetState::Sealed { .. });
        let (epoch, joining) = (self.epoch.next(), Some(member));
        sealed.then(|| SetRow { epoch, joining, ..self.clone() })
    }

    /// The row once that member has all of it: it stands for those of the set who are not `present`. `None` where the row was changed meanwhile.
    #[must_use]
    pub fn seated(&self, epoch: Epoch, member: MemberId, present: &[MemberId]) -> Option<SetRow> {
        let same = self.epoch == epoch && self.joining == Some(member);
        let sealed = matches!(self.state, SetState::Sealed { .. });
        let left = self.set.iter().copied().filter(|one| present.contains(one));
        let set = left.chain([member]).collect();
        (same && sealed).then(|| SetRow { set, joining: None, ..self.clone() })
    }

    /// Whether the row goes, where `live` bytes of the segment are in use. An open one is settled only once its writer's session has ended: of what nothing is in use then,
    /// whatever members have of it, nothing will be.
    #[must_use]
    pub fn is_over(&self, live: u64) -> bool {
        self.settled && (self.state == SetState::Stored || live == 0)
    }

    /// Whether the segment may be collected, where nothing of it is in use: nothing may still name it.
    #[must_use]
    pub fn may_collect(row: Option<&SetRow>) -> bool {
        row.is_none_or(|row| row.settled)
    }

    /// What a member is told of a copy.
    #[must_use]
    pub fn verdict(row: Option<&SetRow>, member: MemberId, offer: &Offer) -> Verdict {
        let Some(row) = row else { return Verdict::Gone };
        match row.state {
            SetState::Stored => Verdict::Clean,
            _ if row.joining == Some(member) => Verdict::Wanted,
            _ if !row.set.contains(&member) => Verdict::Unwanted(row.epoch),
            SetState::Sealed { len, check }
                if offer.sealed != Some((len, check)) || offer.epoch < row.epoch =>
            {
                Verdict::SealedAt { epoch: row.epoch, len, check }
            }
            // Of who was given up nothing is taken, and nothing of it is thrown away.
            SetState::Sealed { .. } | SetState::Open | SetState::Lost => Verdict::Wanted,
        }
    }
}

/// Who copies a sealed segment to whom, where members of its set are gone: the first that is left, to the best that has none. `None` where nothing is
/// to be done, or nothing can be. `copies` is how many there should be.
#[must_use]
pub fn repair(
    segment: SegmentId,
    row: &SetRow,
    active: &[Candidate],
    present: &[MemberId],
    copies: usize,
) -> Option<(MemberId, MemberId)> {
    if !matches!(row.state, SetState::Sealed { .. }) {
        return None;
    }
    let left: Vec<MemberId> = row.set.iter().copied().filter(|id| present.contains(id)).collect();
    if left.len() >= copies {
        return None;
    }
    let zones: Vec<_> =
        active.iter().filter(|member| left.contains(&member.id)).map(|one| &one.zone).collect();
    let others: Vec<Candidate> =
        active.iter().filter(|member| !row.set.contains(&member.id)).cloned().collect();
    let ranked = placement::rank(PieceKey::of(segment, 0), &others);
    let apart = ranked.iter().find(|member| !zones.contains(&&member.zone));
    let to = apart.or(ranked.first())?;
    Some((*left.first()?, to.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberId = MemberId([1; 16]);
    const B: MemberId = MemberId([2; 16]);
    const C: MemberId = MemberId([3; 16]);

    fn row() -> SetRow {
        SetRow::open(SessionId(7), vec![A, B])
    }

    fn offer(end: u64) -> Offer {
        Offer { segment: SegmentId(1), epoch: Epoch(1), end, check: 0, sealed: None, damaged: false }
    }

    #[test]
    fn a_segment_is_stored_once_and_at_its_length() {
        let sealed = row().sealed(Epoch(1), 10, 5).unwrap();
        assert_eq!(sealed.stored(Epoch(1), 9, 5), Err(NotTaken::OtherLength(10)));
        let stored = sealed.stored(Epoch(1), 10, 5).unwrap();
        assert_eq!(stored.stored(Epoch(1), 10, 5), Err(NotTaken::Over));
        assert_eq!(sealed.stored(Epoch(1), 10, 4), Err(NotTaken::OtherBytes));
        assert!(row().stored(Epoch(1), 9, 5).is_ok(), "its writer sealed it and has not said so yet");
    }

    #[test]
    fn what_is_late_is_refused() {
        let fenced = row().fenced().unwrap();
        assert_eq!(fenced.stored(Epoch(1), 10, 5), Err(NotTaken::Late(Epoch(2))));
        assert!(fenced.sealed(Epoch(1), 10, 5).is_none());
        let recovered = fenced.recovered(8, 4, vec![B]);
        assert_eq!(recovered.stored(Epoch(2), 10, 5), Err(NotTaken::OtherLength(8)));
        assert!(recovered.fenced().is_none(), "what is sealed needs no recovery");
    }

    #[test]
    fn a_row_stays_until_nothing_can_name_its_segment() {
        let stored = row().stored(Epoch(1), 1, 5).unwrap();
        assert!(!stored.is_over(0) && !SetRow::may_collect(Some(&stored)), "a request may be on its way");
        let settled = SetRow { settled: true, ..stored };
        assert!(settled.is_over(5) && SetRow::may_collect(Some(&settled)));
        let dead = SetRow { settled: true, ..row().sealed(Epoch(1), 10, 5).unwrap() };
        assert!(dead.is_over(0) && !dead.is_over(1), "the store has not got what is alive");
        let left_open = SetRow { settled: true, ..row() };
        assert!(left_open.is_over(0) && !left_open.is_over(1), "its writer has ended");
        assert!(SetRow::may_collect(None));
    }

    #[test]
    fn who_offers_a_copy_is_told_what_it_is_for() {
        let sealed = row().sealed(Epoch(1), 10, 5).unwrap();
        let stored = sealed.stored(Epoch(1), 10, 5).unwrap();
        assert_eq!(SetRow::verdict(Some(&row()), A, &offer(12)), Verdict::Wanted);
        let at = Verdict::SealedAt { epoch: Epoch(1), len: 10, check: 5 };
        assert_eq!(SetRow::verdict(Some(&sealed), A, &offer(12)), at);
        let same = Offer { sealed: Some((10, 5)), ..offer(10) };
        assert_eq!(SetRow::verdict(Some(&sealed), A, &same), Verdict::Wanted);
        assert_eq!(SetRow::verdict(Some(&sealed), C, &same), Verdict::Unwanted(Epoch(1)));
        assert_eq!(SetRow::verdict(Some(&stored), C, &same), Verdict::Clean);
        assert_eq!(SetRow::verdict(None, A, &same), Verdict::Gone);
    }

    #[test]
    fn nothing_is_given_up_that_somebody_may_have() {
        let hope = |row: &SetRow, given_up: &[MemberId], removed: &[MemberId]| {
            let (given_up, removed) = (given_up.iter().copied().collect(), removed.iter().copied().collect());
            row.hope(Gone { given_up: &given_up, removed: &removed }, None)
        };
        let sealed = row().sealed(Epoch(1), 10, 5).unwrap();
        for row in [row(), sealed.clone()] {
            assert_eq!(hope(&row, &[], &[]), Hope::There);
            assert_eq!(hope(&row, &[A], &[]), Hope::There, "the other one may come back");
            assert_eq!(hope(&row, &[A, C], &[]), Hope::There);
            assert_eq!(hope(&row, &[], &[A, B]), Hope::There, "nobody has said that they are lost");
            assert_eq!(hope(&row, &[A, B], &[]), Hope::None);
        }
        assert_eq!(hope(&row(), &[A], &[B]), Hope::There, "B had nothing: so it ends at 0");
        assert_eq!(hope(&sealed, &[A], &[B]), Hope::None);
        let seating = sealed.seating(C).unwrap();
        assert_eq!(hope(&seating, &[A, B], &[]), Hope::Asking);
        assert_eq!(hope(&seating, &[], &[A, B]), Hope::There);
        assert_eq!(hope(&seating, &[A, B, C], &[]), Hope::None);
        assert_eq!(seating.asking().map(|row| (row.epoch, row.joining)), Some((Epoch(3), Some(C))));
        assert_eq!(row().asking(), None, "recovery asks");
        let stored = sealed.stored(Epoch(1), 10, 5).unwrap();
        assert_eq!((hope(&stored, &[A, B], &[]), stored.given_up()), (Hope::There, None));
        let lost = seating.given_up().unwrap();
        assert_eq!((lost.state, lost.epoch, lost.joining), (SetState::Lost, Epoch(3), None));
        assert_eq!((hope(&lost, &[A, B], &[]), lost.given_up()), (Hope::There, None), "once");
        assert_eq!(lost.stored(Epoch(3), 10, 5), Err(NotTaken::Over));
        assert!(lost.sealed(Epoch(3), 10, 5).is_none() && lost.fenced().is_none());
        assert_eq!(SetRow::verdict(Some(&lost), A, &offer(10)), Verdict::Wanted, "nothing is thrown away");
        assert_eq!(SetRow::verdict(Some(&lost), C, &offer(10)), Verdict::Unwanted(Epoch(3)));
        let settled = SetRow { settled: true, ..lost };
        assert!(settled.is_over(0) && !settled.is_over(1), "files have a part of it");
    }

    #[test]
    fn a_lost_copy_is_made_anew_in_another_zone() {
        let member = |id, zone: &str| Candidate { id, weight: 1, zone: zone.to_owned() };
        let active = [member(A, "x"), member(C, "y"), member(MemberId([4; 16]), "x")];
        let present = [A, C, MemberId([4; 16])];
        let sealed = row().sealed(Epoch(1), 10, 5).unwrap();
        assert_eq!(repair(SegmentId(1), &sealed, &active, &present, 2), Some((A, C)));
        assert_eq!(repair(SegmentId(1), &row(), &active, &present, 2), None, "an open one");
        assert_eq!(repair(SegmentId(1), &sealed, &active, &[A, B], 2), None, "nobody is gone");
        assert_eq!(repair(SegmentId(1), &sealed, &active, &[C], 2), None, "nobody is left");
        let seating = sealed.seating(C).unwrap();
        assert_eq!(SetRow::verdict(Some(&seating), C, &offer(3)), Verdict::Wanted);
        assert!(row().seating(C).is_none());
        assert!(seating.seated(Epoch(1), C, &[A]).is_none(), "of an earlier attempt");
        assert!(seating.seated(Epoch(2), B, &[A]).is_none());
        let seated = seating.seated(Epoch(2), C, &[A, C]).unwrap();
        assert_eq!((seated.set, seated.joining, seated.epoch), (vec![A, C], None, Epoch(2)));
    }
}
