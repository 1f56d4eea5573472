//! A member's own side of its membership: until when it acts, and by which view.
//!
//! Guarantees: where [`Membership::may_act`] says yes, no server has counted this process out. Relies on: clocks differ in rate by less than a fifth,
//! and go on while the machine sleeps; the caller asks again after whatever it may have waited for.

use forebay_cluster::Moment;

use crate::{
    GroupTerms, Incarnation, Joining, Member, MemberId, MemberRow, MemberState, Renewal, View, ViewEpoch,
};

/// Why a member takes nothing in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotActing {
    /// It is not in the group, or may have been counted out.
    #[error("this member does not act: it could not renew its membership")]
    Out,
    /// It takes no new segments.
    #[error("this member is being drained")]
    Draining,
}

#[derive(Debug)]
struct Acting {
    /// The beat that was committed last.
    beat: u64,
    /// When the renewal with it was sent.
    renewed: Moment,
    /// The renewal under way, and when it was sent first.
    asked: Option<(Renewal, Moment)>,
}

/// A process that acts for a member, or would like to.
#[derive(Debug)]
pub struct Membership {
    id: MemberId,
    member: Member,
    terms: GroupTerms,
    acting: Option<Acting>,
    /// When the join under way was sent first.
    joining: Option<Moment>,
    view: Option<View>,
}

impl Membership {
    /// A process that has just started. `member` is what it would be in the view.
    #[must_use]
    pub fn new(id: MemberId, member: Member, terms: GroupTerms) -> Membership {
        Membership { id, member, terms, acting: None, joining: None, view: None }
    }

    /// Whose directory it has.
    #[must_use]
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// As what it acts, or wants to.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.member.incarnation
    }

    /// The latest view that it was told.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// Whether it has joined, and was not told that it is out.
    #[must_use]
    pub fn is_in(&self) -> bool {
        self.acting.is_some()
    }

    /// What to send in order to join, at `now`; `None` for one that has.
    pub fn join(&mut self, log_end: u64, dirty: u64, now: Moment) -> Option<Joining> {
        if self.acting.is_some() {
            return None;
        }
        self.joining.get_or_insert(now);
        Some(Joining { id: self.id, member: self.member.clone(), log_end, dirty })
    }

    /// This incarnation was let in, with this view. An answer to a former one says nothing.
    pub fn joined(&mut self, incarnation: Incarnation, view: View) {
        if incarnation == self.member.incarnation
            && let Some(sent) = self.joining.take()
        {
            self.acting = Some(Acting { beat: 1, renewed: sent, asked: None });
            self.learn(view);
        }
    }

    /// What to send in order to stay. One renewal is under way at a time: until [`Membership::renewed`] the same is given again, with the time at which
    /// it was first asked for.
    pub fn renew(&mut self, log_end: u64, dirty: u64, now: Moment) -> Option<Renewal> {
        let acknowledged = self.view.as_ref().map_or(ViewEpoch(0), |view| view.epoch);
        let (id, incarnation) = (self.id, self.member.incarnation);
        let acting = self.acting.as_mut()?;
        let beat = acting.beat + 1;
        let (renewal, _) = acting.asked.get_or_insert_with(|| {
            let row = MemberRow { incarnation, beat, acknowledged, log_end, dirty };
            (Renewal { id, row }, now)
        });
        Some(renewal.clone())
    }

    /// The renewal with this beat was committed; the answer may have a later view.
    pub fn renewed(&mut self, beat: u64, view: Option<View>) {
        if let Some(acting) = &mut self.acting
            && let Some((_, sent)) = acting.asked.take_if(|(renewal, _)| renewal.row.beat == beat)
        {
            (acting.beat, acting.renewed) = (beat, sent);
        }
        if let Some(view) = view {
            self.learn(view);
        }
    }

    /// This incarnation was told that it is out, or was not let in: it joins anew, as `next`. Otherwise a late copy of an old join could be taken for
    /// the new one.
    pub fn out(&mut self, next: Incarnation) {
        (self.acting, self.joining) = (None, None);
        self.member.incarnation = next;
    }

    /// Takes in a view, unless it is an older one.
    pub fn learn(&mut self, view: View) {
        if self.view.as_ref().is_none_or(|known| known.epoch < view.epoch) {
            self.view = Some(view);
        }
    }

    /// Whether it is time for the next renewal.
    #[must_use]
    pub fn is_due(&self, now: Moment) -> bool {
        self.acting.as_ref().is_some_and(|acting| now.since(acting.renewed) >= self.terms.renew_every)
    }

    /// Whether it may take in what belongs to a segment that it has.
    ///
    /// # Errors
    /// [`NotActing::Out`].
    pub fn may_act(&self, now: Moment) -> Result<(), NotActing> {
        let acts = |acting: &Acting| now.since(acting.renewed) < self.terms.act_for;
        if self.acting.as_ref().is_some_and(acts) { Ok(()) } else { Err(NotActing::Out) }
    }

    /// Whether it may take in a segment that it has nothing of.
    ///
    /// # Errors
    /// [`NotActing`].
    pub fn may_open(&self, now: Moment) -> Result<(), NotActing> {
        self.may_act(now)?;
        let member = self.view.as_ref().and_then(|view| view.members.get(&self.id));
        match member.map(|member| member.state) {
            Some(MemberState::Active) => Ok(()),
            Some(MemberState::Draining) => Err(NotActing::Draining),
            None => Err(NotActing::Out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: MemberId = MemberId([1; 16]);

    fn at(millis: u64) -> Moment {
        Moment(millis * 1_000_000)
    }

    fn member(state: MemberState) -> Member {
        Member {
            incarnation: Incarnation([1; 16]),
            address: String::new(),
            node: String::new(),
            zone: String::new(),
            weight: 1,
            state,
        }
    }

    fn view(epoch: u64, state: MemberState) -> View {
        let mut view = View::new(2);
        view.epoch = ViewEpoch(epoch);
        view.members.insert(ID, member(state));
        view
    }

    fn joined() -> Membership {
        let mut membership = Membership::new(ID, member(MemberState::Active), GroupTerms::default());
        assert_eq!(membership.may_open(at(0)), Err(NotActing::Out));
        assert!(membership.join(0, 0, at(0)).is_some());
        assert!(membership.join(0, 0, at(500)).is_some(), "the answer was lost");
        membership.joined(Incarnation([9; 16]), view(2, MemberState::Active));
        assert!(membership.may_act(at(0)).is_err(), "that was another incarnation");
        membership.joined(Incarnation([1; 16]), view(2, MemberState::Active));
        membership
    }

    #[test]
    fn it_acts_from_when_it_asked_for_so_long() {
        let mut membership = joined();
        assert!(membership.may_open(at(7_999)).is_ok());
        assert_eq!(membership.may_act(at(8_000)), Err(NotActing::Out));
        let renewal = membership.renew(5, 1, at(3_000)).unwrap();
        assert_eq!((renewal.row.beat, renewal.row.acknowledged), (2, ViewEpoch(2)));
        assert_eq!(membership.renew(9, 9, at(6_000)), Some(renewal), "the same again");
        membership.renewed(1, None);
        assert!(membership.may_act(at(8_000)).is_err(), "an old answer says nothing");
        membership.renewed(2, None);
        assert!(membership.may_act(at(10_999)).is_ok());
        assert!(membership.may_act(at(11_000)).is_err(), "from when it was asked for first");
    }

    #[test]
    fn it_takes_nothing_new_once_it_knows_that_it_drains() {
        let mut membership = joined();
        membership.renew(0, 0, at(1_000));
        membership.renewed(2, Some(view(4, MemberState::Draining)));
        assert_eq!(membership.may_open(at(1_500)), Err(NotActing::Draining));
        assert!(membership.may_act(at(1_500)).is_ok());
        membership.learn(view(3, MemberState::Active));
        assert_eq!(membership.may_open(at(1_500)), Err(NotActing::Draining), "no view is taken back");
    }

    #[test]
    fn one_that_is_out_does_not_act() {
        let mut membership = joined();
        assert!(membership.is_due(at(1_000)));
        membership.out(Incarnation([2; 16]));
        assert!(membership.may_act(at(1)).is_err());
        assert!(membership.renew(0, 0, at(1)).is_none());
        membership.join(0, 0, at(5_000));
        membership.out(Incarnation([3; 16]));
        membership.join(0, 0, at(9_000));
        membership.joined(Incarnation([3; 16]), view(9, MemberState::Active));
        assert!(membership.may_act(at(16_999)).is_ok());
        assert!(membership.may_act(at(17_000)).is_err());
    }
}
