//! Which server may answer for a volume.
//!
//! Guarantees: of all servers that use one engine, at most one at a time answers from its memory, and no batch of a deposed one is committed.
//! Relies on: the engine commits a batch only if the fence is, byte for byte, what the batch expects, and puts the next fence in the same
//! commit; clocks of any two servers differ in rate by less than a tenth. Where one server at a time has the place of all databases, no beat of another one is committed there any more.
//!
//! Order that must hold: what the owner tells others was looked up before [`Ownership::may_look_up`] turned false.

use forebay_types::Epoch;

use crate::{Moment, Terms};

/// One process that may own volumes: random, drawn when it starts, so that a server that was restarted is another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerId(pub [u8; 16]);

/// What the fence row says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The term of ownership.
    pub epoch: Epoch,
    /// Who has it; `None` where it was given up.
    pub server: Option<ServerId>,
    /// Where clients reach that server.
    pub address: String,
    /// Raised by every batch, so that others see that the owner lives, and no two fences are equal.
    pub beat: u64,
}

/// A batch's fences: it is committed only over `expect`, and puts `fence` in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The fence as it must be.
    pub expect: Option<Fence>,
    /// The fence as it will be.
    pub fence: Fence,
}

/// What a server is for a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Another server owns it, or none.
    StandsBy,
    /// It owns the volume.
    Owns(Epoch),
}

#[derive(Debug)]
enum State {
    StandsBy {
        /// The fence as it was last seen, and when it was first seen so.
        seen: Option<(Option<Fence>, Moment)>,
    },
    Owns {
        /// The last fence that is known to be committed.
        fence: Fence,
        /// What is being committed, and when that began.
        batch: Option<(Claim, Moment)>,
        /// When the last committed batch began.
        renewed: Moment,
    },
}

/// By what an owner knows that nobody else has taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Renewal {
    /// Each batch of its own that was committed.
    Batches,
    /// Each beat of its server that was committed to a place that one server at a time has.
    Beats {
        /// No beat of another server that began later was.
        alone_since: Moment,
        /// When the last one of its own began.
        last: Option<Moment>,
    },
}

/// A server's view of who owns one volume.
#[derive(Debug)]
pub struct Ownership {
    server: ServerId,
    address: String,
    terms: Terms,
    renewal: Renewal,
    state: State,
}

impl Ownership {
    /// The view of a server that has just started, and that clients reach at `address`.
    #[must_use]
    pub fn new(server: ServerId, address: String, terms: Terms) -> Ownership {
        Ownership { server, address, terms, renewal: Renewal::Batches, state: State::StandsBy { seen: None } }
    }

    /// The same for a server over a place that one server at a time has. Of all volumes there its owner is renewed by the server's beats ([`Ownership::renew`]) and by nothing else,
    /// so whoever has the place now need not see that each stands still. No beat of another server that began after `alone_since` was committed, or will be while this one has the place: who may have
    /// lost it claims nothing.
    #[must_use]
    pub fn alone(self, alone_since: Moment) -> Ownership {
        Ownership { renewal: Renewal::Beats { alone_since, last: None }, ..self }
    }

    /// What this server is.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.state {
            State::StandsBy { .. } => Standing::StandsBy,
            State::Owns { fence, .. } => Standing::Owns(fence.epoch),
        }
    }

    /// Who else owns the volume, as far as is known: where clients are sent.
    #[must_use]
    pub fn other_owner(&self) -> Option<&Fence> {
        match &self.state {
            State::StandsBy { seen: Some((Some(fence), _)) } if fence.server.is_some() => Some(fence),
            _ => None,
        }
    }

    /// Takes in the fence row, which a read that ended at `now` found. Returns a claim to be committed where the volume is to be had:
    /// [`Ownership::claimed`] then says how that went. Does nothing for an owner.
    pub fn saw(&mut self, found: Option<Fence>, now: Moment) -> Option<Claim> {
        let State::StandsBy { seen } = &mut self.state else { return None };
        let since = match seen {
            Some((known, since)) if *known == found => *since,
            _ => now,
        };
        *seen = Some((found.clone(), since));
        // A fence of its own is left from a claim whose answer was lost: nobody answers by that.
        let nobodys = |fence: &Fence| fence.server.is_none_or(|server| server == self.server);
        let to_be_had = match self.renewal {
            Renewal::Batches => {
                found.as_ref().is_none_or(nobodys) || now.since(since) >= self.terms.take_after
            }
            // Also what is nobody's: the former server may take it as long as its last beat lasts.
            Renewal::Beats { alone_since, last } => {
                now.since(alone_since) >= self.terms.take_after && self.terms.serves(last, now)
            }
        };
        if !to_be_had {
            return None;
        }
        let epoch = found.as_ref().map_or(Epoch(1), |fence| fence.epoch.next());
        let fence = Fence { epoch, server: Some(self.server), address: self.address.clone(), beat: 1 };
        Some(Claim { expect: found, fence })
    }

    /// Says that the batch with this claim, which was handed to the engine at `begun`, was committed: this server owns the volume.
    pub fn claimed(&mut self, claim: Claim, begun: Moment) {
        self.state = State::Owns { fence: claim.fence, batch: None, renewed: begun };
    }

    /// Says that a beat of this server, which began at `begun`, was committed to the place that it has alone. Until one lasts, it claims nothing.
    pub fn renew(&mut self, begun: Moment) {
        if let Renewal::Beats { last, .. } = &mut self.renewal {
            *last = (*last).max(Some(begun));
        }
    }

    /// When what renewed it last began.
    fn renewed(&self) -> Option<Moment> {
        match (&self.state, self.renewal) {
            (State::StandsBy { .. }, _) => None,
            (State::Owns { .. }, Renewal::Beats { last, .. }) => last,
            (State::Owns { renewed, .. }, Renewal::Batches) => Some(*renewed),
        }
    }

    /// The fences of the owner's next batch, which is handed to the engine not before `now`. There is one at a time: until
    /// [`Ownership::committed`] the same is returned again, for the same batch, with the time at which it was first asked for. `None` for a server that does not own the
    /// volume.
    pub fn begin(&mut self, now: Moment) -> Option<Claim> {
        let State::Owns { fence, batch, .. } = &mut self.state else { return None };
        let claim = batch.get_or_insert_with(|| {
            let next = Fence { beat: fence.beat + 1, ..fence.clone() };
            (Claim { expect: Some(fence.clone()), fence: next }, now)
        });
        Some(claim.0.clone())
    }

    /// Says that the batch under way was committed.
    pub fn committed(&mut self) {
        if let State::Owns { fence, batch, renewed } = &mut self.state
            && let Some((claim, begun)) = batch.take()
        {
            *fence = claim.fence;
            *renewed = begun;
        }
    }

    /// Says that the batch under way was fenced, and the row that was found then. Returns whether it was committed all the same: its answer was lost, and it was
    /// handed to the engine again. Otherwise the ownership is over.
    pub fn fenced(&mut self, found: Option<Fence>, now: Moment) -> bool {
        let State::Owns { batch, .. } = &self.state else { return false };
        if found.is_some() && batch.as_ref().map(|(claim, _)| &claim.fence) == found.as_ref() {
            self.committed();
            return true;
        }
        self.state = State::StandsBy { seen: Some((found, now)) };
        false
    }

    /// Whether what is looked up at `now` may be told to others.
    #[must_use]
    pub fn may_look_up(&self, now: Moment) -> bool {
        self.terms.serves(self.renewed(), now)
    }

    /// When [`Ownership::may_look_up`] turns false, unless it is renewed before; `None` for others than the owner, and before it was renewed at all.
    #[must_use]
    pub fn serves_until(&self) -> Option<Moment> {
        Some(self.renewed()? + self.terms.serve_for)
    }

    /// When the owner commits a batch although it has nothing to commit; `None` while one is under way, where its server's beats renew it, and for others.
    #[must_use]
    pub fn beat_at(&self) -> Option<Moment> {
        match (&self.state, self.renewal) {
            (State::Owns { batch: None, renewed, .. }, Renewal::Batches) => {
                Some(*renewed + self.terms.beat_every)
            }
            _ => None,
        }
    }

    /// Whether its server's beats renew it, and batches do not.
    #[must_use]
    pub fn is_renewed_by_beats(&self) -> bool {
        self.renewal != Renewal::Batches
    }

    /// The fences of an owner's last batch, after which others need not wait. It looks nothing up from now on.
    pub fn give_up(&mut self) -> Option<Claim> {
        let State::Owns { fence, batch: None, .. } = &self.state else { return None };
        let last = Fence { server: None, beat: fence.beat + 1, ..fence.clone() };
        let claim = Claim { expect: Some(fence.clone()), fence: last };
        self.state = State::StandsBy { seen: None };
        Some(claim)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const A: ServerId = ServerId([1; 16]);
    const B: ServerId = ServerId([2; 16]);

    fn at(millis: u64) -> Moment {
        Moment(millis * 1_000_000)
    }

    fn server(id: ServerId) -> Ownership {
        Ownership::new(id, format!("{}:1", id.0[0]), Terms::default())
    }

    /// An engine's fence row.
    #[derive(Default)]
    struct Row(Option<Fence>);

    impl Row {
        fn commit(&mut self, claim: &Claim) -> bool {
            let holds = self.0 == claim.expect;
            if holds {
                self.0 = Some(claim.fence.clone());
            }
            holds
        }
    }

    fn owner(row: &mut Row, id: ServerId, now: Moment) -> Ownership {
        let mut owner = server(id);
        let claim = owner.saw(row.0.clone(), now).expect("the volume is free");
        assert!(row.commit(&claim));
        owner.claimed(claim, now);
        owner
    }

    #[test]
    fn a_volume_that_nobody_had_is_taken_at_once_and_by_one() {
        let mut row = Row::default();
        let (mut a, mut b) = (server(A), server(B));
        let (of_a, of_b) = (a.saw(None, at(0)).unwrap(), b.saw(None, at(0)).unwrap());
        assert!(row.commit(&of_b));
        assert!(!row.commit(&of_a));
        b.claimed(of_b, at(0));
        assert_eq!(b.standing(), Standing::Owns(Epoch(1)));
        assert!(a.saw(row.0.clone(), at(1)).is_none(), "it waits now");
        assert_eq!(a.other_owner().map(|fence| fence.address.as_str()), Some("2:1"));
    }

    #[test]
    fn a_fence_that_moves_is_left_alone() {
        let mut row = Row::default();
        let mut a = owner(&mut row, A, at(0));
        let mut b = server(B);
        for second in 0..20 {
            let claim = a.begin(at(second * 1000)).unwrap();
            assert!(row.commit(&claim));
            a.committed();
            assert!(b.saw(row.0.clone(), at(second * 1000)).is_none());
        }
        assert!(b.saw(row.0.clone(), at(19_000 + 2_999)).is_none());
        assert!(b.saw(row.0.clone(), at(19_000 + 3_000)).is_some());
    }

    #[test]
    fn an_owner_stops_before_another_begins() {
        let mut row = Row::default();
        let mut a = owner(&mut row, A, at(0));
        // The batch begins at 1 s and is committed late; others can see it only after that.
        let claim = a.begin(at(1_000)).unwrap();
        let mut b = server(B);
        assert!(row.commit(&claim));
        assert!(b.saw(row.0.clone(), at(1_000)).is_none(), "seen as early as can be");
        a.committed();
        assert!(a.may_look_up(at(2_999)));
        assert!(!a.may_look_up(at(3_000)));
        assert!(b.saw(row.0.clone(), at(3_999)).is_none());
        let taken = b.saw(row.0.clone(), at(4_000)).unwrap();
        assert!(row.commit(&taken));
        assert_eq!(taken.fence.epoch, Epoch(2));
        // The deposed owner's late batch.
        let late = a.begin(at(5_000)).unwrap();
        assert!(!row.commit(&late));
        assert!(!a.fenced(row.0.clone(), at(5_000)));
        assert_eq!(a.standing(), Standing::StandsBy);
        assert_eq!(a.other_owner().map(|fence| fence.epoch), Some(Epoch(2)));
    }

    #[test]
    fn a_batch_whose_answer_was_lost_is_found_to_be_committed() {
        let mut row = Row::default();
        let mut a = owner(&mut row, A, at(0));
        let claim = a.begin(at(500)).unwrap();
        assert!(row.commit(&claim), "and nobody hears of it");
        let again = a.begin(at(900)).unwrap();
        assert_eq!(again, claim, "the same batch is tried again");
        assert!(!row.commit(&again));
        assert!(a.fenced(row.0.clone(), at(900)));
        assert_eq!(a.standing(), Standing::Owns(Epoch(1)));
        assert!(a.may_look_up(at(2_499)), "it counts from when it was first begun");
        assert!(!a.may_look_up(at(2_500)));
        let next = a.begin(at(1_000)).unwrap();
        assert!(row.commit(&next));
    }

    #[test]
    fn a_claim_whose_answer_was_lost_is_made_again() {
        let mut row = Row::default();
        let mut a = server(A);
        let claim = a.saw(None, at(0)).unwrap();
        assert!(row.commit(&claim), "and nobody hears of it");
        let again = a.saw(row.0.clone(), at(100)).unwrap();
        assert_eq!(again.fence.epoch, Epoch(2), "with an epoch of its own");
    }

    #[test]
    fn what_was_given_up_is_taken_at_once() {
        let mut row = Row::default();
        let mut a = owner(&mut row, A, at(0));
        let last = a.give_up().unwrap();
        assert!(!a.may_look_up(at(1)));
        assert!(row.commit(&last));
        let b = owner(&mut row, B, at(1));
        assert_eq!(b.standing(), Standing::Owns(Epoch(2)));
    }

    #[test]
    fn one_server_after_the_other_is_renewed_by_its_beats_alone() {
        let mut row = Row::default();
        let mut a = server(A).alone(Moment(0));
        assert!(a.saw(None, at(10_000)).is_none(), "no beat was told");
        a.renew(at(10_000));
        let claim = a.saw(None, at(10_010)).unwrap();
        assert!(row.commit(&claim));
        a.claimed(claim, at(10_010));
        assert!(a.may_look_up(at(11_999)));
        // Batches of the volume go on; beats do not.
        for millis in (10_500..14_000).step_by(500) {
            assert_eq!(a.beat_at(), None);
            let batch = a.begin(at(millis)).unwrap();
            assert!(row.commit(&batch));
            a.committed();
        }
        assert!(!a.may_look_up(at(12_000)));
        a.renew(at(12_500));
        a.renew(at(11_500));
        assert!(a.may_look_up(at(14_499)), "one that is told late changes nothing");
        // Its last beat was not later than 12.5 s; that its fence moved meanwhile is no sign of one.
        let mut b = server(B).alone(at(12_500));
        b.renew(at(15_000));
        let late = a.begin(at(15_000)).unwrap();
        assert!(row.commit(&late));
        assert!(b.saw(row.0.clone(), at(15_499)).is_none());
        let taken = b.saw(row.0.clone(), at(15_500)).unwrap();
        assert!(row.commit(&taken));
        a.committed();
        let deposed = a.begin(at(15_600)).unwrap();
        assert!(!row.commit(&deposed));
        assert!(!a.fenced(row.0.clone(), at(15_600)));
        assert!(
            a.saw(row.0.clone(), at(20_000)).is_none(),
            "it has not the place any more, and does not know it"
        );
    }

    #[test]
    fn what_is_nobodys_is_not_taken_while_the_former_server_may_take_it() {
        let (mut a, mut b) = (server(A).alone(Moment(0)), server(B).alone(at(10_000)));
        a.renew(at(10_000));
        b.renew(at(10_500));
        assert!(b.saw(None, at(10_500)).is_none());
        assert!(a.saw(None, at(11_999)).is_some());
        assert!(a.saw(None, at(12_000)).is_none(), "its last beat is over");
        b.renew(at(12_500));
        assert!(b.saw(None, at(13_000)).is_some());
    }

    #[test]
    fn terms_that_overlap_are_told() {
        let terms = Terms::default();
        assert!(terms.are_safe());
        assert!(!Terms { serve_for: Duration::from_millis(2_800), ..terms }.are_safe());
        assert!(!Terms { beat_every: Duration::from_secs(2), ..terms }.are_safe());
        assert!(!Terms { margin: Duration::from_millis(500), ..terms }.are_safe());
    }
}
