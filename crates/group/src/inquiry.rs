//! What is left of a sealed segment once those who had all of it are gone.
//!
//! Recovery seals a segment at what those had who answered, perhaps beyond what was acknowledged; who did not answer has all that was acknowledged, and perhaps less than that. And
//! who was being given a copy may have got all of it. So all who are left are asked, in an epoch of its own.
//!
//! Guarantees: nothing that was acknowledged is cut off: a segment ends earlier only where recovery has sealed it, and only at what a member with a sound copy has, once everybody who
//! may have more has said that it has not, or is gone. Of several the one with the most counts. Relies on: the epoch of the row was committed before anybody is asked, and members
//! fence it before they answer.

use std::collections::BTreeMap;

use forebay_types::Epoch;

use crate::{Fenced, Gone, MemberId, SetRow, SetState};

/// What is known of a segment by what was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// Somebody who may have all of it has not answered.
    Unknown,
    /// A member of its set has all of it.
    Whole,
    /// Its row becomes this one: somebody has all of it who was being given a copy, or it ends where the best of those who are left has it end.
    Row(SetRow),
    /// All who are left say that what they have does not count.
    Unsound,
    /// Nobody is left.
    Nothing,
}

/// Who is asked what is left of a segment.
#[derive(Clone, Debug)]
pub struct Inquiry {
    row: SetRow,
    answers: BTreeMap<MemberId, Fenced>,
}

impl Inquiry {
    /// Begins with the row as it is after the batch that has its epoch ([`SetRow::asking`]).
    #[must_use]
    pub fn new(row: SetRow) -> Inquiry {
        Inquiry { row, answers: BTreeMap::new() }
    }

    /// In which epoch.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.row.epoch
    }

    /// Whether it is about this row: else it was changed meanwhile, and whoever needs to asks anew.
    #[must_use]
    pub fn is_of(&self, row: &SetRow) -> bool {
        let same = (row.epoch, row.state, row.joining) == (self.row.epoch, self.row.state, self.row.joining);
        same && row.set == self.row.set
    }

    fn asked(&self) -> impl Iterator<Item = MemberId> {
        self.row.set.iter().chain(&self.row.joining).copied()
    }

    /// Who is to be asked to fence it: all who have not answered.
    pub fn to_ask(&self) -> impl Iterator<Item = MemberId> {
        self.asked().filter(|member| !self.answers.contains_key(member))
    }

    /// A member has fenced the segment in this epoch, synced that, and says what it has.
    pub fn answered(&mut self, member: MemberId, epoch: Epoch, fenced: Fenced) {
        if epoch == self.row.epoch && self.asked().any(|asked| asked == member) {
            self.answers.entry(member).or_insert(fenced);
        }
    }

    /// What is left, where these members are gone: what they have answered counts no more.
    #[must_use]
    pub fn left(&self, gone: Gone<'_>) -> Left {
        let SetState::Sealed { len, check } = self.row.state else { return Left::Unknown };
        let row = &self.row;
        let answer = |member: &MemberId| self.answers.get(member).filter(|_| !gone.has(member));
        // Who has more is told where it ends. So is who took its copy for damaged since records were lost: it may turn out whole.
        let whole = |has: &Fenced| (has.end, has.check) == (len, check) || has.end > len && !has.damaged;
        if row.set.iter().filter_map(answer).any(whole) {
            return Left::Whole;
        }
        if self.to_ask().any(|member| !gone.has(&member)) {
            return Left::Unknown;
        }
        let mut set: Vec<(MemberId, Fenced)> =
            row.set.iter().filter_map(|member| Some((*member, *answer(member)?))).collect();
        let left = !set.is_empty();
        set.retain(|(_, has)| !has.damaged && has.end < len);
        // A stable sort: among equals, as they were.
        set.sort_by_key(|(_, has)| std::cmp::Reverse(has.end));
        let others = set.iter().map(|(member, _)| *member);
        let copied = |has: &Fenced| !has.damaged && (has.end, has.check) == (len, check);
        if let Some(joining) = row.joining.filter(|joining| answer(joining).is_some_and(copied)) {
            let set = [joining].into_iter().chain(others).collect();
            return Left::Row(SetRow { set, joining: None, ..row.clone() });
        }
        match set.first() {
            Some((_, most)) if row.recovered => {
                Left::Row(row.recovered(most.end, most.check, others.collect()))
            }
            _ if left => Left::Unsound,
            _ => Left::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use forebay_cluster::SessionId;
    use forebay_types::SegmentId;

    use super::*;
    use crate::{Hope, Offer};

    const A: MemberId = MemberId([1; 16]);
    const B: MemberId = MemberId([2; 16]);
    const C: MemberId = MemberId([3; 16]);
    const D: MemberId = MemberId([4; 16]);

    fn has(end: u64) -> Fenced {
        Fenced { end, check: end as u32, damaged: false }
    }

    /// Sealed by recovery at the 100 bytes of B.
    fn row() -> SetRow {
        let open = SetRow::open(SessionId(1), vec![A, B, C]).fenced().unwrap();
        open.recovered(100, 100, vec![B, A, C])
    }

    fn left(row: &SetRow, answers: &[(MemberId, Fenced)], given_up: &[MemberId]) -> Left {
        let mut inquiry = Inquiry::new(row.asking().unwrap());
        for (member, has) in answers {
            inquiry.answered(*member, row.epoch, Fenced { end: 0, ..*has });
            inquiry.answered(*member, inquiry.epoch(), *has);
            inquiry.answered(*member, inquiry.epoch(), self::has(1));
        }
        let given_up: BTreeSet<MemberId> = given_up.iter().copied().collect();
        inquiry.left(Gone { given_up: &given_up, removed: &BTreeSet::new() })
    }

    fn ends(left: &Left) -> Option<(SetState, &[MemberId])> {
        match left {
            Left::Row(row) => Some((row.state, &row.set)),
            _ => None,
        }
    }

    #[test]
    fn it_ends_where_the_best_of_those_who_are_left_has_it_end() {
        let row = row();
        assert_eq!(left(&row, &[(A, has(60))], &[B]), Left::Unknown, "C may have all of it");
        assert_eq!(left(&row, &[(A, has(60)), (C, has(100))], &[B]), Left::Whole);
        assert_eq!(left(&row, &[(C, has(130))], &[B]), Left::Whole, "what is beyond is cut");
        let found = left(&row, &[(A, has(60)), (C, has(80))], &[B]);
        assert_eq!(ends(&found), Some((SetState::Sealed { len: 80, check: 80 }, &[C, A][..])));
        let Left::Row(next) = &found else { panic!() };
        assert_eq!((next.epoch, next.recovered, next.joining), (row.epoch.next(), true, None));
        assert_eq!(ends(&left(&row, &[(A, has(60))], &[B, C])).unwrap().1, [A]);
        let broken = |end| Fenced { damaged: true, ..has(end) };
        let found = left(&row, &[(A, has(60)), (C, broken(80))], &[B]);
        assert_eq!(ends(&found), Some((SetState::Sealed { len: 60, check: 60 }, &[A][..])));
        assert_eq!(left(&row, &[(A, broken(60)), (C, broken(80))], &[B]), Left::Unsound);
        let other = Fenced { check: 7, ..has(100) };
        assert_eq!(left(&row, &[(A, other)], &[B, C]), Left::Unsound, "no more, and other bytes");
        assert_eq!(left(&row, &[(B, has(100)), (A, has(60))], &[B, C]), left(&row, &[(A, has(60))], &[B, C]));
        assert_eq!(left(&row, &[], &[A, B, C]), Left::Nothing);
        // Nobody is given up; but who had all of it cannot read it any more.
        let found = left(&row, &[(B, broken(20)), (A, has(60)), (C, has(60))], &[]);
        assert_eq!(ends(&found).unwrap().1, [A, C]);
    }

    #[test]
    fn what_its_writer_sealed_is_never_cut() {
        let row = SetRow::open(SessionId(1), vec![A, B]).sealed(Epoch(1), 100, 100).unwrap();
        assert_eq!(left(&row, &[(A, has(60))], &[B]), Left::Unsound);
        let lacking = BTreeSet::from([A]);
        let given_up = BTreeSet::from([B]);
        let gone = Gone { given_up: &given_up, removed: &BTreeSet::new() };
        assert_eq!(row.hope(gone, Some(&lacking)), Hope::There);
    }

    #[test]
    fn who_was_being_given_a_copy_is_asked_too() {
        let row = row().seating(D).unwrap();
        assert_eq!(left(&row, &[(A, has(60)), (C, has(70))], &[B]), Left::Unknown);
        let found = left(&row, &[(A, has(60)), (C, has(70)), (D, has(100))], &[B]);
        assert_eq!(ends(&found), Some((SetState::Sealed { len: 100, check: 100 }, &[D, C, A][..])));
        let found = left(&row, &[(A, has(60)), (C, has(70)), (D, has(90))], &[B]);
        assert_eq!(ends(&found), Some((SetState::Sealed { len: 70, check: 70 }, &[C, A][..])));
        assert_eq!(left(&row, &[(D, has(90))], &[A, B, C]), Left::Nothing);
        assert_eq!(ends(&left(&row, &[(D, has(100))], &[A, B, C])).unwrap().1, [D]);
    }

    #[test]
    fn it_is_asked_once_nobody_is_left_who_may_have_all_of_it() {
        let (row, none) = (row(), BTreeSet::new());
        let offer = |end, check| Offer {
            segment: SegmentId(1),
            epoch: Epoch(1),
            end,
            check,
            sealed: None,
            damaged: false,
        };
        assert!(row.is_lacking(&offer(60, 60)) && row.is_lacking(&offer(100, 7)));
        assert!(!row.is_lacking(&offer(100, 100)) && !row.is_lacking(&offer(130, 130)));
        let hope = |given_up: &[MemberId], lacking: &[MemberId]| {
            let (given_up, lacking) = (given_up.iter().copied().collect(), lacking.iter().copied().collect());
            row.hope(Gone { given_up: &given_up, removed: &none }, Some(&lacking))
        };
        assert_eq!(hope(&[B], &[]), Hope::There);
        assert_eq!(hope(&[B], &[A]), Hope::There, "nobody knows of C");
        assert_eq!(hope(&[], &[A, C]), Hope::There, "B may come back");
        assert_eq!(hope(&[B], &[A, C]), Hope::Asking);
        assert_eq!(hope(&[B, C], &[A]), Hope::Asking);
        assert_eq!(hope(&[], &[A, B, C]), Hope::Asking);
        assert_eq!(hope(&[A, B, C], &[A]), Hope::None);
    }
}
