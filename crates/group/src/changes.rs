//! Changes of a group that its members or its operators ask for, beside those of the keeper.

use crate::{Change, GroupRow, Incarnation, MemberId, MemberRow, Refusal, placement::WEIGHT_MAX};

/// What of a member, or of the whole group, is to be otherwise; `None` leaves it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// How many members have a segment before it is acknowledged, 1 to 8. Of the group.
    pub copies: Option<u8>,
    /// A member's share, 1 to [`WEIGHT_MAX`].
    pub weight: Option<u32>,
    /// A member's failure domain.
    pub zone: Option<String>,
}

impl GroupRow {
    /// The change by which a process that acts no more leaves in order. `None` where it has left, and the answer was lost.
    ///
    /// # Errors
    /// [`Refusal::Out`]: another process acts.
    pub fn leave(
        &self,
        id: MemberId,
        incarnation: Incarnation,
        found: Option<&MemberRow>,
        settled: bool,
    ) -> Result<Option<Change>, Refusal> {
        let Some(row) = found else { return Ok(None) };
        if row.incarnation != incarnation {
            return Err(Refusal::Out(id));
        }
        Ok(Some(self.count_out(id, row, settled)))
    }

    /// The change by which a member whose disk is lost for good never comes back, and nobody waits for it any more: the operator has said so. It is made over a row `06`
    /// that is not there, so whoever acts for the member, or joins first, is in the way. `None` where it was said before.
    ///
    /// # Errors
    /// [`Refusal::There`]; [`Refusal::Removed`] where it was drained and removed: it had nothing.
    pub fn give_up(
        &self,
        id: MemberId,
        found: Option<&MemberRow>,
        settled: bool,
    ) -> Result<Option<Change>, Refusal> {
        if self.given_up.contains(&id) {
            return Ok(None);
        }
        if found.is_some() || self.view.members.contains_key(&id) {
            return Err(Refusal::There(id));
        }
        if self.removed.contains(&id) {
            return Err(Refusal::Removed(id));
        }
        let next = self.next(settled, |row| {
            row.forget_lost(id);
            row.draining.remove(&id);
            row.given_up.insert(id);
        });
        Ok(Some(Change { group: Some((self.clone(), next)), member: Some((id, None, None)) }))
    }

    /// The change by which the group, or a member in the view, is otherwise. `None` where it is so already.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] where the member is not in the view. What is out of bounds is for the caller to refuse; here it counts as the nearest that is not.
    pub fn reshape(
        &self,
        id: Option<MemberId>,
        shape: &Shape,
        settled: bool,
    ) -> Result<Option<Change>, Refusal> {
        if let Some(id) = id
            && !self.view.members.contains_key(&id)
        {
            return Err(Refusal::Unknown(id));
        }
        let next = self.next(settled, |row| {
            row.view.copies = shape.copies.unwrap_or(row.view.copies).clamp(1, 8);
            if let Some(member) = id.and_then(|id| row.view.members.get_mut(&id)) {
                member.weight = shape.weight.unwrap_or(member.weight).clamp(1, WEIGHT_MAX);
                if let Some(zone) = &shape.zone {
                    member.zone.clone_from(zone);
                }
            }
        });
        let same = next.view.copies == self.view.copies && next.view.members == self.view.members;
        Ok((!same).then(|| Change { group: Some((self.clone(), next)), member: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Joining, Member, MemberState, ViewEpoch};

    const ID: MemberId = MemberId([1; 16]);

    fn joined() -> (GroupRow, MemberRow) {
        let member = Member {
            incarnation: Incarnation([1; 16]),
            address: "a:1".to_owned(),
            node: "a".to_owned(),
            zone: "z".to_owned(),
            weight: 5,
            state: MemberState::Active,
        };
        let joining = Joining { id: ID, member, log_end: 70, dirty: 0 };
        let change = GroupRow::new(2).join(None, &joining, false).unwrap().unwrap();
        (change.group.unwrap().1, change.member.unwrap().2.unwrap())
    }

    #[test]
    fn who_leaves_is_remembered_with_the_end_of_its_log() {
        let (group, row) = joined();
        let change = group.leave(ID, Incarnation([1; 16]), Some(&row), false).unwrap().unwrap();
        assert_eq!(change.member, Some((ID, Some(row.clone()), None)));
        let (_, next) = change.group.unwrap();
        assert!(next.view.members.is_empty() && next.lost_end(ID) == 70);
        assert_eq!(next.leave(ID, Incarnation([1; 16]), None, false), Ok(None), "the answer was lost");
        let other = group.leave(ID, Incarnation([2; 16]), Some(&row), false);
        assert_eq!(other, Err(Refusal::Out(ID)), "another process acts");
    }

    #[test]
    fn who_is_given_up_never_comes_back_and_who_is_there_is_not_given_up() {
        let (group, row) = joined();
        assert_eq!(group.give_up(ID, Some(&row), false), Err(Refusal::There(ID)));
        let (_, left) = group.count_out(ID, &row, false).group.unwrap();
        assert_eq!(left.nodes[&ID], "a", "it can still be named");
        // It joins while that is said: one of the two expects what is not so any more.
        assert_eq!(left.give_up(ID, Some(&row), false), Err(Refusal::There(ID)));
        let change = left.give_up(ID, None, false).unwrap().unwrap();
        assert_eq!(change.member, Some((ID, None, None)), "over a row that is not there");
        let (_, next) = change.group.unwrap();
        assert_eq!(next.view.epoch, ViewEpoch(4), "owners take it for the later one");
        assert!(next.given_up.contains(&ID) && next.lost.is_empty() && next.nodes.is_empty());
        assert_eq!(next.give_up(ID, None, false), Ok(None), "the answer was lost");
        let member = Member { incarnation: Incarnation([9; 16]), ..group.view.members[&ID].clone() };
        let joining = Joining { id: ID, member, log_end: 500, dirty: 0 };
        assert_eq!(next.join(None, &joining, false), Err(Refusal::GivenUp(ID)));
        let removed = GroupRow { removed: [ID].into(), ..left };
        assert_eq!(removed.give_up(ID, None, false), Err(Refusal::Removed(ID)), "it had nothing");
    }

    #[test]
    fn weight_zone_and_copies_are_changed_in_a_view_of_their_own() {
        let (group, _) = joined();
        let shape = Shape { weight: Some(9), zone: Some("y".to_owned()), copies: None };
        let (before, next) = group.reshape(Some(ID), &shape, false).unwrap().unwrap().group.unwrap();
        assert_eq!((before.view.epoch, next.view.epoch), (ViewEpoch(2), ViewEpoch(3)));
        let member = &next.view.members[&ID];
        assert_eq!((member.weight, member.zone.as_str(), next.view.copies), (9, "y", 2));
        assert_eq!(next.reshape(Some(ID), &shape, false), Ok(None), "it is so");
        let copies = Shape { copies: Some(3), ..Shape::default() };
        let (_, next) = group.reshape(None, &copies, false).unwrap().unwrap().group.unwrap();
        assert_eq!(next.view.copies, 3);
        let unknown = group.reshape(Some(MemberId([9; 16])), &shape, false);
        assert_eq!(unknown, Err(Refusal::Unknown(MemberId([9; 16]))));
    }
}
