//! Views as the metadata servers change them: each change is one batch, with the rows that it expects.
//!
//! Guarantees: views form one line, whichever server changes them; of two processes with one identity one acts at a time; a renewal that comes
//! after its member was counted out is refused. Relies on: the engine commits a [`Change`] only if every row in it is, byte for byte, as expected.

use std::collections::BTreeMap;

use forebay_cluster::Moment;

use crate::{GroupRow, GroupTerms, Incarnation, Member, MemberId, MemberState, Refusal, ViewEpoch};

/// A member's row in the registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRow {
    /// The process that acts.
    pub incarnation: Incarnation,
    /// Raised by each renewal.
    pub beat: u64,
    /// The view that the member goes by.
    pub acknowledged: ViewEpoch,
    /// Where its log ends, in bytes ever written.
    pub log_end: u64,
    /// Segments that it has and that may be wanted.
    pub dirty: u64,
}

/// Rows that are changed together or not at all: each with what it must be, and what it becomes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The group's row; `None` where the change is not about it.
    pub group: Option<(GroupRow, GroupRow)>,
    /// A member's row.
    pub member: Option<(MemberId, Option<MemberRow>, Option<MemberRow>)>,
}

/// What a member says each second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renewal {
    /// Who.
    pub id: MemberId,
    /// What its row becomes.
    pub row: MemberRow,
}

/// A process that wants to act for a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joining {
    /// Whose directory it has.
    pub id: MemberId,
    /// What it is in the view; the state is the group's to say.
    pub member: Member,
    /// Where its log ends.
    pub log_end: u64,
    /// Segments in it.
    pub dirty: u64,
}

impl MemberRow {
    /// The change by which this row is renewed. One that was committed already, and whose answer was lost, is `None`: it counts.
    ///
    /// # Errors
    /// [`Refusal::Out`].
    pub fn renew(found: Option<&MemberRow>, renewal: &Renewal) -> Result<Option<Change>, Refusal> {
        let row = found.filter(|row| row.incarnation == renewal.row.incarnation);
        let row = row.ok_or(Refusal::Out(renewal.id))?;
        if row.beat >= renewal.row.beat {
            return Ok(None);
        }
        let member = Some((renewal.id, Some(row.clone()), Some(renewal.row.clone())));
        Ok(Some(Change { group: None, member }))
    }
}

impl GroupRow {
    /// The change by which a process begins to act for a member. `None` where it does already, and the answer was lost.
    ///
    /// # Errors
    /// [`Refusal::Acts`], [`Refusal::Older`].
    pub fn join(
        &self,
        found: Option<&MemberRow>,
        joining: &Joining,
        settled: bool,
    ) -> Result<Option<Change>, Refusal> {
        let (id, incarnation) = (joining.id, joining.member.incarnation);
        if let Some(row) = found {
            if row.incarnation == incarnation {
                return Ok(None);
            }
            let address = self.view.members.get(&id).map(|member| member.address.clone()).unwrap_or_default();
            return Err(Refusal::Acts { id, address });
        }
        if self.removed.contains(&id) {
            return Err(Refusal::Removed(id));
        }
        if self.given_up.contains(&id) {
            return Err(Refusal::GivenUp(id));
        }
        let known = self.lost_end(id);
        if joining.log_end < known {
            return Err(Refusal::Older { id, end: joining.log_end, known });
        }
        let state = if self.draining.contains(&id) { MemberState::Draining } else { MemberState::Active };
        let next = self.next(settled, |row| {
            row.view.members.insert(id, Member { state, ..joining.member.clone() });
        });
        let row = MemberRow {
            incarnation,
            beat: 1,
            // It says by a renewal which view it goes by.
            acknowledged: ViewEpoch(0),
            log_end: joining.log_end,
            dirty: joining.dirty,
        };
        Ok(Some(Change { group: Some((self.clone(), next)), member: Some((id, None, Some(row))) }))
    }

    /// The change by which a member is counted out, over the row that was watched.
    #[must_use]
    pub fn count_out(&self, id: MemberId, watched: &MemberRow, settled: bool) -> Change {
        let next = self.next(settled, |row| {
            let member = row.view.members.remove(&id);
            row.remember_lost(id, watched.log_end, member.map(|member| member.node));
        });
        Change { group: Some((self.clone(), next)), member: Some((id, Some(watched.clone()), None)) }
    }

    /// The change after which a member takes no new segments.
    ///
    /// # Errors
    /// [`Refusal::Unknown`].
    pub fn drain(&self, id: MemberId, settled: bool) -> Result<Change, Refusal> {
        if !self.view.members.contains_key(&id) {
            return Err(Refusal::Unknown(id));
        }
        let next = self.next(settled, |row| {
            row.draining.insert(id);
            if let Some(member) = row.view.members.get_mut(&id) {
                member.state = MemberState::Draining;
            }
        });
        Ok(Change { group: Some((self.clone(), next)), member: None })
    }

    /// Whether a member has put all that it had, and takes no more: its row says so under the view in which it drains.
    #[must_use]
    pub fn is_drained(&self, id: MemberId, row: &MemberRow) -> bool {
        let drains =
            |member: &Member| member.state == MemberState::Draining && member.incarnation == row.incarnation;
        let knows = row.acknowledged == self.view.epoch;
        self.view.members.get(&id).is_some_and(drains) && knows && row.dirty == 0
    }

    /// The change by which a drained member leaves for good.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], [`Refusal::NotDrained`].
    pub fn remove(&self, id: MemberId, found: Option<&MemberRow>, settled: bool) -> Result<Change, Refusal> {
        let row = found.ok_or(Refusal::Unknown(id))?;
        if !self.is_drained(id, row) {
            return Err(Refusal::NotDrained { id, dirty: row.dirty });
        }
        let next = self.next(settled, |row| {
            row.view.members.remove(&id);
            row.draining.remove(&id);
            row.removed.insert(id);
        });
        Ok(Change { group: Some((self.clone(), next)), member: Some((id, Some(row.clone()), None)) })
    }
}

/// Members' rows as one server sees them, and since when.
#[derive(Debug)]
pub struct Watch {
    terms: GroupTerms,
    seen: BTreeMap<MemberId, (MemberRow, Moment)>,
    view: Option<(ViewEpoch, Moment)>,
}

impl Watch {
    /// The view of a server that has just started: nobody is overdue.
    #[must_use]
    pub fn new(terms: GroupTerms) -> Watch {
        Watch { terms, seen: BTreeMap::new(), view: None }
    }

    /// Takes in the rows of a group, as a read that ended at `now` found them.
    pub fn saw(&mut self, epoch: ViewEpoch, rows: &BTreeMap<MemberId, MemberRow>, now: Moment) {
        let mut before = std::mem::take(&mut self.seen);
        for (id, row) in rows {
            let since = match before.remove(id) {
                Some((known, since)) if known == *row => since,
                _ => now,
            };
            self.seen.insert(*id, (row.clone(), since));
        }
        self.view_is(epoch, now);
    }

    /// The group has this view, as somebody knows by `now`. An older one than is known changes nothing.
    pub fn view_is(&mut self, epoch: ViewEpoch, now: Moment) {
        if self.view.is_none_or(|(known, _)| known < epoch) {
            self.view = Some((epoch, now));
        }
    }

    /// Members to be counted out, with the rows over which that is done.
    #[must_use]
    pub fn overdue(&self, now: Moment) -> Vec<(MemberId, MemberRow)> {
        let overdue = |since: Moment| now.since(since) >= self.terms.count_out_after;
        let found = self.seen.iter().filter(|(_, (_, since))| overdue(*since));
        found.map(|(id, (row, _))| (*id, row.clone())).collect()
    }

    /// Whether this view is known and has stood for long.
    #[must_use]
    pub fn settled(&self, epoch: ViewEpoch, now: Moment) -> bool {
        self.view.is_some_and(|(known, since)| known == epoch && now.since(since) >= self.terms.settled_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: MemberId = MemberId([1; 16]);
    const FIRST: Incarnation = Incarnation([1; 16]);
    const SECOND: Incarnation = Incarnation([2; 16]);

    fn seconds(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    fn joining(incarnation: Incarnation, log_end: u64) -> Joining {
        let member = Member {
            incarnation,
            address: "a:1".to_owned(),
            node: "a".to_owned(),
            zone: "z".to_owned(),
            weight: 1,
            state: MemberState::Active,
        };
        Joining { id: ID, member, log_end, dirty: 0 }
    }

    /// The rows of one group.
    #[derive(Debug)]
    struct Rows(GroupRow, BTreeMap<MemberId, MemberRow>);

    impl Rows {
        fn commit(&mut self, change: &Change) -> bool {
            let group = change.group.as_ref().is_none_or(|(expect, _)| *expect == self.0);
            let member = change.member.as_ref();
            let holds = group && member.is_none_or(|(id, expect, _)| self.1.get(id) == expect.as_ref());
            if holds {
                if let Some((_, next)) = &change.group {
                    self.0 = next.clone();
                }
                match member {
                    Some((id, _, Some(row))) => drop(self.1.insert(*id, row.clone())),
                    Some((id, _, None)) => drop(self.1.remove(id)),
                    None => {}
                }
            }
            holds
        }

        fn join(&mut self, joining: &Joining) -> Result<(), Refusal> {
            let change = self.0.join(self.1.get(&joining.id), joining, false)?;
            assert!(change.is_none_or(|change| self.commit(&change)));
            Ok(())
        }
    }

    fn renewal(beat: u64, acknowledged: u64, dirty: u64) -> Renewal {
        let acknowledged = ViewEpoch(acknowledged);
        Renewal { id: ID, row: MemberRow { incarnation: FIRST, beat, acknowledged, log_end: 100, dirty } }
    }

    fn joined() -> Rows {
        let mut rows = Rows(GroupRow::new(2), BTreeMap::new());
        rows.join(&joining(FIRST, 10)).unwrap();
        rows
    }

    #[test]
    fn a_member_that_renews_stays_and_one_that_does_not_is_counted_out() {
        let mut rows = joined();
        assert_eq!(rows.0.view.epoch, ViewEpoch(2));
        let mut watch = Watch::new(GroupTerms::default());
        for second in 0..20 {
            let change = MemberRow::renew(rows.1.get(&ID), &renewal(second + 2, 2, 0)).unwrap();
            assert!(rows.commit(&change.unwrap()));
            watch.saw(rows.0.view.epoch, &rows.1, seconds(second));
            assert!(watch.overdue(seconds(second)).is_empty());
        }
        assert!(watch.overdue(seconds(28)).is_empty());
        let overdue = watch.overdue(seconds(29));
        assert!(rows.commit(&rows.0.count_out(ID, &overdue[0].1, false)));
        assert!(rows.0.view.members.is_empty());
        let late = MemberRow::renew(rows.1.get(&ID), &renewal(40, 2, 0));
        assert_eq!(late, Err(Refusal::Out(ID)));
    }

    #[test]
    fn a_renewal_and_a_counting_out_that_cross_do_not_both_hold() {
        let mut rows = joined();
        let watched = rows.1[&ID].clone();
        let out = rows.0.count_out(ID, &watched, false);
        let renewed = MemberRow::renew(Some(&watched), &renewal(2, 2, 0)).unwrap().unwrap();
        assert!(rows.commit(&renewed));
        assert!(!rows.commit(&out));
        let again = MemberRow::renew(rows.1.get(&ID), &renewal(2, 2, 0));
        assert_eq!(again, Ok(None), "the answer was lost");
    }

    #[test]
    fn one_identity_is_acted_for_by_one_process() {
        let mut rows = joined();
        let refused = rows.join(&joining(SECOND, 10)).unwrap_err();
        assert!(matches!(refused, Refusal::Acts { address, .. } if address == "a:1"));
        rows.join(&joining(FIRST, 10)).unwrap();
        let out = rows.0.count_out(ID, &rows.1[&ID].clone(), false);
        assert!(rows.commit(&out));
        rows.join(&joining(SECOND, 10)).unwrap();
        assert!(rows.0.view.names(ID, SECOND));
        assert!(MemberRow::renew(rows.1.get(&ID), &renewal(9, 2, 0)).is_err());
    }

    #[test]
    fn an_older_copy_of_a_directory_is_refused() {
        let mut rows = joined();
        let change = MemberRow::renew(rows.1.get(&ID), &renewal(2, 2, 0)).unwrap().unwrap();
        assert!(rows.commit(&change));
        let out = rows.0.count_out(ID, &rows.1[&ID].clone(), false);
        assert!(rows.commit(&out));
        assert!(matches!(rows.join(&joining(SECOND, 99)), Err(Refusal::Older { known: 100, .. })));
        rows.join(&joining(SECOND, 100)).unwrap();
    }

    #[test]
    fn only_what_is_drained_is_removed() {
        let mut rows = joined();
        let drain = rows.0.drain(ID, false).unwrap();
        assert!(rows.commit(&drain));
        assert_eq!(rows.0.view.epoch, ViewEpoch(3));
        for (beat, acknowledged, dirty, may) in [(2, 2, 0, false), (3, 3, 1, false), (4, 3, 0, true)] {
            let change = MemberRow::renew(rows.1.get(&ID), &renewal(beat, acknowledged, dirty)).unwrap();
            assert!(rows.commit(&change.unwrap()));
            let removal = rows.0.remove(ID, rows.1.get(&ID), false);
            assert_eq!(removal.is_ok(), may, "beat {beat}");
        }
        let mut gone = Rows(rows.0.clone(), rows.1.clone());
        let removal = gone.0.remove(ID, gone.1.get(&ID), false).unwrap();
        assert!(gone.commit(&removal));
        assert_eq!(gone.join(&joining(SECOND, 500)), Err(Refusal::Removed(ID)));
        // One that comes back meanwhile still drains.
        let out = rows.0.count_out(ID, &rows.1[&ID].clone(), false);
        assert!(rows.commit(&out));
        rows.join(&joining(SECOND, 500)).unwrap();
        assert_eq!(rows.0.view.members[&ID].state, MemberState::Draining);
    }

    #[test]
    fn a_view_is_settled_once_it_has_stood() {
        let mut watch = Watch::new(GroupTerms::default());
        watch.saw(ViewEpoch(1), &BTreeMap::new(), seconds(0));
        watch.saw(ViewEpoch(2), &BTreeMap::new(), seconds(500));
        assert!(!watch.settled(ViewEpoch(2), seconds(1_000)));
        assert!(watch.settled(ViewEpoch(2), seconds(1_100)));
        assert!(!watch.settled(ViewEpoch(3), seconds(1_100)), "one that is new");
        watch.view_is(ViewEpoch(3), seconds(1_100));
        watch.saw(ViewEpoch(2), &BTreeMap::new(), seconds(1_200));
        assert!(watch.settled(ViewEpoch(3), seconds(1_700)), "what was read before it is not news");
    }
}
