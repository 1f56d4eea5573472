//! What a writer that ended has left.
//!
//! Guarantees: nothing that was acknowledged is missing from what [`Recovery::ready`] gives. For a byte is named to the owner, and so acknowledged, only once all of its set have it: so the
//! least of any survivors has all that was. One fence at a survivor stops the rest, so that what it answered stays its end. Relies on: the writer's session ended before, so nothing more is acknowledged, and the epochs in
//! the rows were committed before the first fence is sent.

use std::{collections::BTreeMap, time::Duration};

use forebay_cluster::Moment;
use forebay_types::{Epoch, SegmentId};

use crate::{Fenced, GroupTerms, MemberId, SetRow, SetState};

#[derive(Debug)]
struct Taking {
    row: SetRow,
    answers: BTreeMap<MemberId, Fenced>,
    /// When the first usable answer came.
    since: Option<Moment>,
}

/// A segment as recovery found it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// Which segment.
    pub segment: SegmentId,
    /// Bytes.
    pub len: u64,
    /// Who has them: first those who said so, then those who have at least what was acknowledged.
    pub set: Vec<MemberId>,
    /// The row as it becomes; `None` where it stays as it is.
    pub row: Option<SetRow>,
}

/// The segments of one writer that are not in the store.
#[derive(Debug)]
pub struct Recovery {
    within: Duration,
    segments: BTreeMap<SegmentId, Taking>,
}

impl Recovery {
    /// Begins with the writer's rows, as they are after the batch that raised the epochs of open ones.
    #[must_use]
    pub fn new(rows: impl IntoIterator<Item = (SegmentId, SetRow)>, terms: GroupTerms) -> Recovery {
        let taking = |row| Taking { row, answers: BTreeMap::new(), since: None };
        let segments = rows.into_iter().map(|(segment, row)| (segment, taking(row))).collect();
        Recovery { within: terms.survivors_within, segments }
    }

    /// Who is to be asked to fence what, and in which epoch: all who have not answered.
    #[must_use]
    pub fn to_ask(&self) -> Vec<(MemberId, SegmentId, Epoch)> {
        let mut asks = Vec::new();
        for (segment, taking) in self.segments.iter().filter(|(_, taking)| taking.row.state == SetState::Open)
        {
            let silent = taking.row.set.iter().filter(|member| !taking.answers.contains_key(member));
            asks.extend(silent.map(|member| (*member, *segment, taking.row.epoch)));
        }
        asks
    }

    /// A member has fenced a segment in this epoch, synced that, and says what it has.
    pub fn answered(
        &mut self,
        member: MemberId,
        segment: SegmentId,
        epoch: Epoch,
        fenced: Fenced,
        now: Moment,
    ) {
        let Some(taking) = self.segments.get_mut(&segment) else { return };
        if taking.row.epoch == epoch && taking.row.set.contains(&member) {
            taking.answers.entry(member).or_insert(fenced);
            if !fenced.damaged {
                taking.since.get_or_insert(now);
            }
        }
    }

    /// A member that was drained and removed had nothing of these segments, or it would not have been drained: so nothing of them was acknowledged.
    pub fn removed(&mut self, member: MemberId, now: Moment) {
        let nothing = Fenced { end: 0, check: 0, damaged: false };
        let open: Vec<(SegmentId, Epoch)> =
            self.segments.iter().map(|(segment, taking)| (*segment, taking.row.epoch)).collect();
        for (segment, epoch) in open {
            self.answered(member, segment, epoch, nothing, now);
        }
    }

    /// The segments with their lengths, once there is a survivor of each, and others had time to answer.
    #[must_use]
    pub fn ready(&self, now: Moment) -> Option<Vec<Recovered>> {
        self.segments.iter().map(|(segment, taking)| taking.recovered(*segment, self.within, now)).collect()
    }

    /// Segments of which nobody has answered, with those who could.
    #[must_use]
    pub fn missing(&self) -> Vec<(SegmentId, Vec<MemberId>)> {
        let none = |taking: &&Taking| taking.row.state == SetState::Open && taking.since.is_none();
        let missing = self.segments.iter().filter(|(_, taking)| none(taking));
        missing.map(|(segment, taking)| (*segment, taking.row.set.clone())).collect()
    }
}

impl Taking {
    fn recovered(&self, segment: SegmentId, within: Duration, now: Moment) -> Option<Recovered> {
        let (set, row) = (self.row.set.clone(), None);
        match self.row.state {
            SetState::Sealed { len, .. } => return Some(Recovered { segment, len, set, row }),
            SetState::Stored => return Some(Recovered { segment, len: u64::MAX, set, row }),
            SetState::Lost => return Some(Recovered { segment, len: 0, set, row }),
            SetState::Open => {}
        }
        let since = self.since?;
        if self.answers.len() < self.row.set.len() && now.since(since) < within {
            return None;
        }
        let sound = self.answers.values().filter(|fenced| !fenced.damaged);
        let least = *sound.min_by_key(|fenced| fenced.end)?;
        // Who did not answer stays: it has what was acknowledged, though perhaps not the rest. Who did comes first and puts it.
        let damaged = |member: &MemberId| self.answers.get(member).is_some_and(|fenced| fenced.damaged);
        let answered = |member: &MemberId| self.answers.contains_key(member);
        let sound = set.iter().copied().filter(|member| !damaged(member));
        let (first, silent): (Vec<_>, Vec<_>) = sound.partition(answered);
        let set = [first, silent].concat();
        let row = Some(self.row.recovered(least.end, least.check, set.clone()));
        Some(Recovered { segment, len: least.end, set, row })
    }
}

#[cfg(test)]
mod tests {
    use forebay_cluster::SessionId;

    use super::*;

    const A: MemberId = MemberId([1; 16]);
    const B: MemberId = MemberId([2; 16]);
    const S: SegmentId = SegmentId(5);

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    fn has(end: u64) -> Fenced {
        Fenced { end, check: end as u32, damaged: false }
    }

    fn recovery() -> Recovery {
        let row = SetRow::open(SessionId(1), vec![A, B]).fenced().unwrap();
        Recovery::new([(S, row)], GroupTerms::default())
    }

    #[test]
    fn the_least_of_those_who_answer_counts() {
        let mut recovery = recovery();
        assert_eq!(recovery.to_ask(), [(A, S, Epoch(2)), (B, S, Epoch(2))]);
        recovery.answered(B, S, Epoch(2), has(30), at(1));
        assert!(recovery.ready(at(2)).is_none(), "the other one may answer");
        assert_eq!(recovery.ready(at(3)).unwrap()[0].set, [B, A], "who has it for sure puts it");
        assert_eq!(recovery.to_ask(), [(A, S, Epoch(2))]);
        recovery.answered(A, S, Epoch(2), has(20), at(2));
        let found = recovery.ready(at(2)).unwrap();
        assert_eq!((found[0].len, &found[0].set), (20, &vec![A, B]));
        let state = found[0].row.as_ref().map(|row| row.state);
        assert_eq!(state, Some(SetState::Sealed { len: 20, check: 20 }));
    }

    #[test]
    fn one_survivor_is_enough_and_a_damaged_one_is_none() {
        let mut recovery = recovery();
        recovery.answered(B, S, Epoch(2), Fenced { damaged: true, ..has(99) }, at(0));
        assert!(recovery.ready(at(99)).is_none());
        assert_eq!(recovery.missing().len(), 1);
        recovery.answered(A, S, Epoch(1), has(30), at(100));
        assert!(recovery.ready(at(200)).is_none(), "an answer to an older fence");
        recovery.answered(A, S, Epoch(2), has(30), at(100));
        let found = recovery.ready(at(102)).unwrap();
        assert_eq!((found[0].len, &found[0].set), (30, &vec![A]));
        assert!(recovery.missing().is_empty());
    }

    #[test]
    fn a_member_that_was_removed_had_nothing() {
        let mut recovery = recovery();
        recovery.removed(MemberId([9; 16]), at(0));
        assert!(recovery.ready(at(9)).is_none(), "of another set");
        recovery.removed(A, at(0));
        assert_eq!(recovery.ready(at(2)).unwrap()[0].len, 0);
    }

    #[test]
    fn what_is_sealed_needs_nobody() {
        let row = SetRow::open(SessionId(1), vec![A]).sealed(Epoch(1), 7, 1).unwrap();
        let recovery = Recovery::new([(S, row)], GroupTerms::default());
        assert!(recovery.to_ask().is_empty());
        assert_eq!(recovery.ready(at(0)).unwrap()[0].len, 7);
    }
}
