//! Requests: repeated with their numbers until they are answered.

use std::{sync::Arc, time::Duration};

use forebay_cluster::{Lease, SessionId, SlotNumber};
use forebay_protocol::{Operation, Refusal, Request, Response};
use parking_lot::Mutex;

use super::{At, Link, Patience, Shared};
use crate::{error::ClientError, transport::Trouble};

/// How long one attempt waits for its answer. The owner may wait for a client that is cut off; later it is asked again.
const ATTEMPT: Duration = Duration::from_secs(60);
/// The pause after an attempt without an answer; it doubles.
const AGAIN_AFTER: Duration = Duration::from_millis(5);
const AGAIN_AFTER_MAX: Duration = Duration::from_millis(320);

/// A request that was answered.
#[derive(Debug)]
pub struct Answered<K> {
    /// The answer.
    pub response: Response,
    /// What was asked.
    pub operation: Operation,
    /// In which session.
    pub number: u64,
    /// What the caller gave along.
    pub keep: K,
}

/// Whether others may wait for this operation, and it waits for nobody's lease.
fn is_urgent(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Commit(_)
            | Operation::Numbers(..)
            | Operation::Runs(_)
            | Operation::Classes(_)
            | Operation::GroupRules(_)
            | Operation::Reserve { .. }
            | Operation::Ahead(_)
            | Operation::Release(_)
            | Operation::Unlock(..)
            | Operation::UnlockHandle(..)
    )
}

enum Failed {
    /// To be tried again.
    Again,
    /// It was not carried out and never will be.
    Never(ClientError),
}

impl Link {
    /// Has an operation carried out, in the session with this number if one is given. `keep` is kept until it is known what became of it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask<K: Send + 'static>(
        &self,
        operation: Operation,
        wish: Option<Lease>,
        bound: Option<u64>,
        keep: K,
        patience: &Patience<'_>,
    ) -> Result<Answered<K>, ClientError> {
        let mut asking = Asking::new(operation, wish, bound);
        match asking.run(&self.shared, patience) {
            Ok(response) => {
                let (operation, number) = (asking.request.operation, asking.number);
                Ok(Answered { response, operation, number, keep })
            }
            Err(error) => {
                asking.give_up(&self.shared, &error, keep);
                Err(error)
            }
        }
    }

    /// Has an operation carried out in the session with this number, and calls `then` with what became of it, in the calling thread; where its patience ends before
    /// that is known, in a thread that goes on with it until it is. For what others wait for, too.
    ///
    /// # Errors
    /// Those of patience: `then` is called later.
    pub fn ask_to_end(
        &self,
        operation: Operation,
        wish: Option<Lease>,
        session: u64,
        patience: &Patience<'_>,
        then: impl FnOnce(Result<(Response, Operation), ClientError>) + Send + 'static,
    ) -> Result<(), ClientError> {
        let mut asking = Asking::new(operation, wish, Some(session));
        let asked = asking.run(&self.shared, patience);
        match asked {
            Err(error @ (ClientError::TimedOut(_) | ClientError::Interrupted)) => {
                asking.go_on(&self.shared, then);
                Err(error)
            }
            asked => {
                then(asking.end(&self.shared, asked));
                Ok(())
            }
        }
    }
}

/// A request on its way.
struct Asking {
    request: Request,
    urgent: bool,
    bound: Option<u64>,
    /// The session that it was last sent in, or has its slot of.
    number: u64,
    /// It may have arrived.
    sent: bool,
}

impl Asking {
    fn new(operation: Operation, wish: Option<Lease>, bound: Option<u64>) -> Asking {
        let urgent = is_urgent(&operation);
        let request = Request { session: SessionId(0), slot: None, operation, wish };
        Asking { request, urgent, bound, number: 0, sent: false }
    }

    fn run(&mut self, shared: &Shared, patience: &Patience<'_>) -> Result<Response, ClientError> {
        let mut pause = AGAIN_AFTER;
        loop {
            let at = match self.lasts_with() {
                Some(session) => shared.enter_again(session, patience)?,
                None => shared.enter(patience)?,
            };
            if !self.prepare(shared, &at, patience)? {
                continue;
            }
            // Sent with no time left it would end with the connection, which others use.
            patience.check()?;
            let sent = shared.ticks.now();
            let goes_on = || patience.go_on().is_ok();
            let goes_on: Option<&dyn Fn() -> bool> = patience.may_end().then_some(&goes_on);
            let left = patience.left(ATTEMPT);
            let answered = shared.transport.ask(&self.request, self.urgent, left, goes_on);
            match answered {
                Ok(response) => {
                    shared.answered(&at, self.request.slot, sent);
                    return Ok(response);
                }
                Err(Trouble::Unreadable(why)) => {
                    // The number is used: the slot goes on with the next one.
                    shared.answered(&at, self.request.slot.take(), sent);
                    return Err(ClientError::Unexpected(why));
                }
                Err(trouble) => match self.failed(shared, &at, trouble) {
                    Failed::Never(error) => return Err(error),
                    Failed::Again => {}
                },
            }
            patience.go_on()?;
            std::thread::sleep(pause.min(patience.left(pause)));
            pause = (pause * 2).min(AGAIN_AFTER_MAX);
        }
    }

    /// The session until whose end it is to be tried, also while the servers refuse this client. What was sent may be carried out as long as the session lives: were it given up before,
    /// what is known meanwhile would be changed by it without a word. What was done ahead is answered already.
    fn lasts_with(&self) -> Option<u64> {
        self.bound.filter(|_| self.sent || matches!(self.request.operation, Operation::Ahead(_)))
    }

    /// Sees that the request is one of this session. False: the session has changed meanwhile.
    fn prepare(&mut self, shared: &Shared, at: &At, patience: &Patience<'_>) -> Result<bool, ClientError> {
        if self.bound.is_some_and(|bound| bound != at.number) {
            return Err(ClientError::SessionEnded);
        }
        if self.request.slot.is_some() && self.number != at.number {
            if self.sent {
                return Err(ClientError::SessionEnded);
            }
            self.request.slot = None;
        }
        (self.number, self.request.session) = (at.number, at.session);
        if self.request.operation.changes() && self.request.slot.is_none() {
            self.request.slot = shared.take_slot(at, self.urgent, patience)?;
            return Ok(self.request.slot.is_some());
        }
        Ok(true)
    }

    fn failed(&mut self, shared: &Shared, at: &At, trouble: Trouble) -> Failed {
        match &trouble {
            Trouble::Lost(_) => self.sent = true,
            Trouble::Refused(Refusal::NotOwner { .. } | Refusal::MustReclaim { .. }) => {}
            Trouble::Refused(Refusal::SessionEnded) => {
                shared.trouble(at.round, &trouble);
                // In another session it would be another request; what changes nothing may be one.
                let lost = self.request.slot.is_some() && self.sent || self.bound.is_some();
                return if lost { Failed::Never(ClientError::SessionEnded) } else { Failed::Again };
            }
            Trouble::Refused(Refusal::Unavailable(_)) => {
                // Also said of one that is under way.
                self.sent = true;
                return Failed::Again;
            }
            Trouble::Refused(Refusal::Denied(_)) if self.lasts_with().is_some() => {}
            Trouble::Refused(Refusal::Denied(why)) => {
                return Failed::Never(ClientError::Denied(why.clone()));
            }
            Trouble::Refused(Refusal::NoVolume(name)) => {
                return Failed::Never(ClientError::NoVolume(name.clone()));
            }
            Trouble::Refused(refusal) => {
                return Failed::Never(ClientError::Unexpected(refusal.to_string()));
            }
            Trouble::Never(why) | Trouble::Unreadable(why) => {
                return Failed::Never(ClientError::Unexpected(why.clone()));
            }
        }
        shared.trouble(at.round, &trouble);
        Failed::Again
    }

    /// It is over, or nobody will ever know: what came of it, and what was asked.
    fn end(
        mut self,
        shared: &Shared,
        asked: Result<Response, ClientError>,
    ) -> Result<(Response, Operation), ClientError> {
        if asked.is_err() {
            self.free_unsent(shared);
        }
        asked.map(|response| (response, self.request.operation))
    }

    /// What cannot have arrived needs its slot no longer.
    fn free_unsent(&mut self, shared: &Shared) {
        if !self.sent
            && let Some(slot) = self.request.slot.take()
        {
            shared.free_slot(self.number, slot);
        }
    }

    /// The caller waits no longer.
    fn give_up<K: Send + 'static>(mut self, shared: &Arc<Shared>, why: &ClientError, keep: K) {
        self.free_unsent(shared);
        if self.request.slot.is_none() {
            return;
        }
        if matches!(why, ClientError::SessionEnded | ClientError::Closed) {
            return;
        }
        // It may be carried out at any time: until it is known, the slot is taken, and what was given along is kept.
        self.bound = Some(self.number);
        self.go_on(shared, move |asked| {
            if let Err(error) = asked {
                tracing::warn!(%error, "nobody knows what became of a request");
            }
            drop(keep);
        });
    }

    /// Goes on until it is known what became of it: in a thread of its own, or where there can be none in this one.
    fn go_on(
        self,
        shared: &Arc<Shared>,
        then: impl FnOnce(Result<(Response, Operation), ClientError>) + Send + 'static,
    ) {
        let (shared, rest) = (Arc::clone(shared), Arc::new(Mutex::new(Some((self, then)))));
        let finish = move || {
            let Some((mut asking, then)) = rest.lock().take() else { return };
            let asked = asking.run(&shared, &Patience::FOREVER);
            then(asking.end(&shared, asked));
        };
        let finisher = std::thread::Builder::new().name("forebay-finish".to_owned());
        if let Err(error) = finisher.spawn(finish.clone()) {
            tracing::warn!(%error, "no thread for a request that nobody waits for any more: it is waited for all the same");
            finish();
        }
    }
}

impl Shared {
    fn answered(&self, at: &At, slot: Option<(SlotNumber, u64)>, sent: forebay_cluster::Moment) {
        let mut state = self.state.lock();
        if state.number == at.number {
            state.asked = state.asked.max(sent);
            if let Some(slot) = slot {
                state.slots.answered(slot);
            }
        }
        drop(state);
        if slot.is_some() {
            // One alone may be one for whom the last ones are not.
            self.slot_freed.notify_all();
        }
        if let Some(events) = self.events.upgrade() {
            events.heard(at.number, sent);
        }
    }

    /// A slot of this session; none where it is over.
    fn take_slot(
        &self,
        at: &At,
        urgent: bool,
        patience: &Patience<'_>,
    ) -> Result<Option<(SlotNumber, u64)>, ClientError> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return Err(ClientError::Closed);
            }
            if state.number != at.number {
                return Ok(None);
            }
            if let Some(slot) = state.slots.take(urgent) {
                return Ok(Some(slot));
            }
            patience.wait(&self.slot_freed, &mut state)?;
        }
    }

    fn free_slot(&self, number: u64, slot: (SlotNumber, u64)) {
        let mut state = self.state.lock();
        if state.number == number {
            state.slots.unused(slot);
        }
        drop(state);
        self.slot_freed.notify_all();
    }
}
