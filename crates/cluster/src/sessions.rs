//! Clients as the owner knows them: which of their requests were carried out, and when they end.
//!
//! Guarantees: a request that changes something is carried out once, however often and to whichever owner it is sent; a session that ended never
//! comes back. Relies on: the row of a slot is committed in the same batch as what its request changed; the row of a session is removed before
//! what it had is given to others; a client sends a slot's next number only after the answer to the last.

use std::time::Duration;

use forebay_types::Epoch;
use rustc_hash::FxHashMap;

use crate::{Moment, Terms};

/// One client's session with a volume: random, drawn by the client, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u128);

/// One of a session's slots, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotNumber(pub u16);

/// Slots of a session: requests that change something and are under way at once.
pub const SLOTS: u16 = 64;

/// What a request in a slot is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrival<A> {
    /// To be carried out; [`Sessions::answered`] follows.
    New,
    /// It was carried out, with this answer.
    Repeated(A),
    /// It is being carried out: whoever sent it again gets that answer.
    UnderWay,
}

/// A request that is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// The session has ended, or never was: the client begins a new one.
    #[error("the session has ended; what was kept back under it is lost")]
    Ended,
    /// A copy of a request that came late: a later one of its slot is here, so it was answered, and the client knows. Nobody waits for it, and the session lives on.
    #[error("request {number} of slot {} is a late copy: the last one was {last}", slot.0)]
    Late {
        /// The slot.
        slot: SlotNumber,
        /// The number that came.
        number: u64,
        /// The last one.
        last: u64,
    },
    /// The number is beyond the slot's next, or is none, or the last one was not answered yet: the session is ended, as nobody knows what was carried out.
    #[error("request {number} of slot {} is out of order: the last one was {last}", slot.0)]
    OutOfOrder {
        /// The slot.
        slot: SlotNumber,
        /// The number that came.
        number: u64,
        /// The last one.
        last: u64,
    },
}

#[derive(Debug)]
struct Slot<A> {
    number: u64,
    /// `None` while it is being carried out.
    answer: Option<A>,
}

#[derive(Debug)]
struct Session<A> {
    heard: Moment,
    epoch: Epoch,
    slots: FxHashMap<SlotNumber, Slot<A>>,
}

/// The sessions of one volume. `A` is what an answer is stored as.
#[derive(Debug)]
pub struct Sessions<A> {
    terms: Terms,
    sessions: FxHashMap<SessionId, Session<A>>,
}

impl<A: Clone> Sessions<A> {
    /// No sessions.
    #[must_use]
    pub fn new(terms: Terms) -> Sessions<A> {
        Sessions { terms, sessions: FxHashMap::default() }
    }

    /// Begins a session, or takes one in from the rows that a former owner left: it has its whole term again, as nobody knows when it was last heard
    /// of. `epoch` is that of the owner with which it began.
    pub fn begin(&mut self, id: SessionId, epoch: Epoch, now: Moment) {
        self.sessions.insert(id, Session { heard: now, epoch, slots: FxHashMap::default() });
    }

    /// Takes in the row of a slot that a former owner left.
    pub fn restore(&mut self, id: SessionId, slot: SlotNumber, number: u64, answer: A) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.slots.insert(slot, Slot { number, answer: Some(answer) });
        }
    }

    /// Anything came from a session.
    ///
    /// # Errors
    /// [`SessionError::Ended`].
    pub fn heard(&mut self, id: SessionId, now: Moment) -> Result<(), SessionError> {
        let session = self.sessions.get_mut(&id).ok_or(SessionError::Ended)?;
        session.heard = session.heard.max(now);
        Ok(())
    }

    /// Nobody could be heard for this long, which ends at `now`: it does not count. A client counts its term from its last request that was answered, so it stops no later
    /// for that.
    pub fn was_deaf(&mut self, time: Duration, now: Moment) {
        for session in self.sessions.values_mut() {
            session.heard = (session.heard + time).min(now.max(session.heard));
        }
    }

    /// A request that changes something came.
    ///
    /// # Errors
    /// [`SessionError`]. After [`SessionError::OutOfOrder`] the caller ends the session.
    pub fn arrive(
        &mut self,
        id: SessionId,
        slot: SlotNumber,
        number: u64,
        now: Moment,
    ) -> Result<Arrival<A>, SessionError> {
        self.heard(id, now)?;
        let session = self.sessions.get_mut(&id).ok_or(SessionError::Ended)?;
        let known = session.slots.get(&slot);
        let last = known.map_or(0, |known| known.number);
        match known {
            _ if slot.0 >= SLOTS || number == 0 => Err(SessionError::OutOfOrder { slot, number, last }),
            Some(known) if known.number == number => {
                Ok(known.answer.clone().map_or(Arrival::UnderWay, Arrival::Repeated))
            }
            _ if number < last => Err(SessionError::Late { slot, number, last }),
            Some(Slot { answer: None, .. }) => Err(SessionError::OutOfOrder { slot, number, last }),
            _ if last + 1 == number => {
                session.slots.insert(slot, Slot { number, answer: None });
                Ok(Arrival::New)
            }
            _ => Err(SessionError::OutOfOrder { slot, number, last }),
        }
    }

    /// The request in a slot was carried out, and this is its answer. It is repeated only once its row is committed: until then the caller
    /// holds answers back, repeated ones too.
    pub fn answered(&mut self, id: SessionId, slot: SlotNumber, answer: A) {
        if let Some(slot) = self.sessions.get_mut(&id).and_then(|session| session.slots.get_mut(&slot)) {
            slot.answer = Some(answer);
        }
    }

    /// The sessions that were not heard of for their term. They live until [`Sessions::end`]: the end is committed first.
    #[must_use]
    pub fn overdue(&self, now: Moment) -> Vec<SessionId> {
        let mut overdue: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, session)| now.since(session.heard) >= self.terms.session)
            .map(|(id, _)| *id)
            .collect();
        overdue.sort_unstable();
        overdue
    }

    /// When the next session will be overdue if nothing is heard.
    #[must_use]
    pub fn next_overdue(&self) -> Option<Moment> {
        self.sessions.values().map(|session| session.heard + self.terms.session).min()
    }

    /// A session has ended.
    pub fn end(&mut self, id: SessionId) {
        self.sessions.remove(&id);
    }

    /// The slots that a session has used.
    #[must_use]
    pub fn slots(&self, id: SessionId) -> Vec<SlotNumber> {
        self.sessions.get(&id).into_iter().flat_map(|session| session.slots.keys().copied()).collect()
    }

    /// Whether a session lives.
    #[must_use]
    pub fn lives(&self, id: SessionId) -> bool {
        self.sessions.contains_key(&id)
    }

    /// When a session was last heard of.
    #[must_use]
    pub fn last_heard(&self, id: SessionId) -> Option<Moment> {
        self.sessions.get(&id).map(|session| session.heard)
    }

    /// The epoch of the owner with which a session began.
    #[must_use]
    pub fn epoch(&self, id: SessionId) -> Option<Epoch> {
        self.sessions.get(&id).map(|session| session.epoch)
    }

    /// All sessions, in the order of their numbers.
    #[must_use]
    pub fn all(&self) -> Vec<SessionId> {
        let mut all: Vec<SessionId> = self.sessions.keys().copied().collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: SessionId = SessionId(7);
    const SLOT: SlotNumber = SlotNumber(3);

    fn seconds(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    fn one() -> Sessions<&'static str> {
        let mut sessions = Sessions::new(Terms::default());
        sessions.begin(CLIENT, Epoch(1), seconds(0));
        sessions
    }

    #[test]
    fn a_request_is_carried_out_once() {
        let mut sessions = one();
        assert_eq!(sessions.arrive(CLIENT, SLOT, 1, seconds(0)), Ok(Arrival::New));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 1, seconds(0)), Ok(Arrival::UnderWay));
        sessions.answered(CLIENT, SLOT, "made");
        assert_eq!(sessions.arrive(CLIENT, SLOT, 1, seconds(0)), Ok(Arrival::Repeated("made")));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 2, seconds(0)), Ok(Arrival::New));
        assert_eq!(sessions.arrive(CLIENT, SlotNumber(4), 1, seconds(0)), Ok(Arrival::New));
    }

    #[test]
    fn numbers_out_of_order_are_refused() {
        let mut sessions = one();
        let wrong = |number, last| Err(SessionError::OutOfOrder { slot: SLOT, number, last });
        assert_eq!(sessions.arrive(CLIENT, SLOT, 2, seconds(0)), wrong(2, 0));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 0, seconds(0)), wrong(0, 0));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 1, seconds(0)), Ok(Arrival::New));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 2, seconds(0)), wrong(2, 1), "the first has no answer");
        sessions.answered(CLIENT, SLOT, "");
        assert_eq!(sessions.arrive(CLIENT, SLOT, 2, seconds(0)), Ok(Arrival::New));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 4, seconds(0)), wrong(4, 2));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 0, seconds(0)), wrong(0, 2));
        let beyond = SlotNumber(SLOTS);
        let refused = SessionError::OutOfOrder { slot: beyond, number: 1, last: 0 };
        assert_eq!(sessions.arrive(CLIENT, beyond, 1, seconds(0)), Err(refused));
    }

    #[test]
    fn late_copies_are_refused_and_change_nothing() {
        let mut sessions = one();
        sessions.restore(CLIENT, SLOT, 41, "done before");
        let late = |last| Err(SessionError::Late { slot: SLOT, number: 40, last });
        assert_eq!(sessions.arrive(CLIENT, SLOT, 40, seconds(0)), late(41));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 42, seconds(0)), Ok(Arrival::New));
        assert_eq!(
            sessions.arrive(CLIENT, SLOT, 40, seconds(0)),
            late(42),
            "while the last is under way, too"
        );
        assert_eq!(sessions.arrive(CLIENT, SLOT, 42, seconds(0)), Ok(Arrival::UnderWay));
        sessions.answered(CLIENT, SLOT, "done");
        assert_eq!(sessions.arrive(CLIENT, SLOT, 42, seconds(0)), Ok(Arrival::Repeated("done")));
    }

    #[test]
    fn answers_of_a_former_owner_are_repeated() {
        let mut sessions = one();
        sessions.restore(CLIENT, SLOT, 41, "done before");
        assert_eq!(sessions.arrive(CLIENT, SLOT, 41, seconds(0)), Ok(Arrival::Repeated("done before")));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 42, seconds(0)), Ok(Arrival::New));
    }

    #[test]
    fn time_in_which_nobody_could_be_heard_does_not_count() {
        let mut sessions = one();
        sessions.was_deaf(Duration::from_secs(20), seconds(25));
        assert!(sessions.overdue(seconds(29)).is_empty());
        assert_eq!(sessions.overdue(seconds(30)), [CLIENT]);
        sessions.was_deaf(Duration::from_secs(20), seconds(26));
        assert_eq!(sessions.next_overdue(), Some(seconds(36)), "nobody is heard of later than now");
    }

    #[test]
    fn a_session_ends_a_term_after_it_was_heard_of() {
        let mut sessions = one();
        sessions.heard(CLIENT, seconds(4)).unwrap();
        assert_eq!(sessions.next_overdue(), Some(seconds(14)));
        assert!(sessions.overdue(seconds(13)).is_empty());
        assert_eq!(sessions.overdue(seconds(14)), [CLIENT]);
        assert!(sessions.lives(CLIENT), "until its end is committed");
        sessions.end(CLIENT);
        assert_eq!(sessions.heard(CLIENT, seconds(14)), Err(SessionError::Ended));
        assert_eq!(sessions.arrive(CLIENT, SLOT, 1, seconds(14)), Err(SessionError::Ended));
    }
}
