//! Telling the owner: one request at a time, so that the order is kept; what collects meanwhile is the next one.
//!
//! Who waits for something makes the request himself, if nobody else does just now: a thread of its own would have to be woken, and would have to wake him. That one is for what nobody waits for.

use std::sync::Arc;

use forebay_cluster::Lease;
use forebay_protocol::{Answer, Failure, Operation, Response, Undone};
use forebay_types::Ino;
use parking_lot::MutexGuard;

use super::{Shared, along::Outcome, queue::HOLD, state::State};
use crate::{error::ClientError, link::Patience};

/// Operations and bytes of one request at most.
const OPERATIONS: usize = 2048;
const BYTES: usize = 1 << 20;

impl Shared {
    /// Ships what nobody waits for, until all is over.
    pub(super) fn ship(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let mut last_seen = None;
        loop {
            self.see_session(&mut state);
            if state.closed {
                return;
            }
            if state.sending || state.queue.is_empty() {
                self.rest(&mut state, &mut last_seen);
                continue;
            }
            if let Some(left) = state.queue.held_back_for().filter(|_| !self.is_full(&state)) {
                self.work.wait_for(&mut state, left);
                continue;
            }
            if let Err(error) = self.send(&mut state, &Patience::FOREVER) {
                tracing::error!(%error, "a patience without an end has ended");
            }
        }
    }

    /// Waits for something to ship. Where something was done lately, more is to come, and is looked for in time: whoever does it need not wake anybody.
    fn rest(&self, state: &mut MutexGuard<'_, State>, last_seen: &mut Option<u64>) {
        let last = Some(state.queue.last());
        if std::mem::replace(last_seen, last) == last {
            state.asleep = true;
            self.work.wait(state);
            state.asleep = false;
        } else {
            self.work.wait_for(state, HOLD);
        }
    }

    /// For who waits until something in the queue is told: tells what is next where nobody is just doing that, or waits for a signal.
    pub(super) fn wait_until_told_more(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        patience: &Patience<'_>,
    ) -> Result<(), ClientError> {
        if state.sending || state.closed || state.queue.is_empty() {
            return patience.wait(&self.changed, state);
        }
        self.send(state, patience)
    }

    /// Makes the next request, and takes in what becomes of it. Called while none is under way. With an error of patience it still is.
    fn send(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        patience: &Patience<'_>,
    ) -> Result<(), ClientError> {
        state.sending = true;
        state.queue.sends();
        let (session, steps) = (state.session, state.queue.first(OPERATIONS, BYTES));
        let (count, shared) = (steps.len(), Arc::clone(self));
        let sent = Box::new(move |asked| shared.sent(session, count, asked));
        let (steps, wish) = (Operation::Ahead(steps), Some(Lease::Write));
        MutexGuard::unlocked(state, || self.under.ask_to_end(session, steps, wish, patience, sent))
    }

    /// It is known what became of a request, or that nobody ever will know.
    fn sent(&self, session: u64, count: usize, asked: Result<Response, ClientError>) {
        let wrong = self.shipped(session, count, asked);
        if !wrong.is_empty() {
            self.leases.wrong(&wrong);
        }
        let mut state = self.state.lock();
        state.sending = false;
        let waits = !state.queue.is_empty() && (state.asleep || state.queue.has_collected());
        drop(state);
        self.changed.notify_all();
        if waits {
            self.work.notify_one();
        }
    }

    /// Takes in what became of the first operations of the queue. Returns the inodes of which something is not as it was told.
    fn shipped(&self, session: u64, count: usize, asked: Result<Response, ClientError>) -> Vec<Ino> {
        // What the owner says of all of them is so of these, and those after them have not been asked for yet.
        let all = |failure| (0..count as u32).map(|at| (at, failure)).collect::<Vec<_>>();
        let asked = match asked.map(|response| response.answer) {
            Ok(Answer::Ahead(failed)) => Ok((failed, Vec::new())),
            Ok(Answer::AheadGone(failed, gone)) => Ok((failed, gone)),
            Ok(Answer::Failed(failure)) => Ok((all(failure), Vec::new())),
            Ok(other) => {
                tracing::error!("unexpected answer of the owner to what was done ahead of it: {other:?}");
                Ok((all(Failure::Io), Vec::new()))
            }
            // It was answered, so they are done or refused, and nobody can tell which.
            Err(ClientError::Unexpected(why)) => {
                tracing::error!(why, "what the owner says of what was done ahead of it cannot be read");
                Ok((all(Failure::Io), Vec::new()))
            }
            Err(error) => Err(error),
        };
        let mut state = self.state.lock();
        self.see_session(&mut state);
        if state.session != session {
            // It was lost with the session, as far as anybody here was told.
            return Vec::new();
        }
        let (failed, gone) = match asked {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "what was done ahead of the owner is lost");
                return state.lose(&error);
            }
        };
        let wrong = refused(&mut state, count, (&failed, &gone));
        state.shrink(self.options.most());
        wrong
    }
}

/// The owner has answered the first operations of the queue, and not done these; nor is done what depends on them and waits. Returns the inodes concerned.
/// Of commits only those are told who wait for them.
fn refused(state: &mut State, count: usize, (failed, gone): (&[(u32, Failure)], &[Ino])) -> Vec<Ino> {
    let told = state.queue.take(count);
    let (mut undone, mut wrong): (_, Vec<Ino>) = (Undone::default(), Vec::new());
    for (at, failure) in failed {
        let Some(item) = told.get(*at as usize) else { continue };
        if let Operation::Commit(_) = item.step.operation {
            state.commits.end(item.number, || Outcome::Refused(*failure));
            continue;
        }
        if wrong.is_empty() {
            let (count, step) = (failed.len(), &item.step);
            tracing::error!(?failure, count, ?step, "the owner does not do what was done here");
        }
        undone.add(&item.step, *failure);
        state.fail(&item.touched, &ClientError::Failed(*failure));
        wrong.extend(&item.touched);
    }
    told.iter().for_each(|item| state.commits.end(item.number, || Outcome::TakenIn(gone.to_vec())));
    if wrong.is_empty() {
        return wrong;
    }
    let dependent = state.queue.take_dependent(&mut undone);
    if !dependent.is_empty() {
        tracing::error!(
            count = dependent.len(),
            "operations that depend on what the owner has not done are lost"
        );
    }
    for (item, failure) in &dependent {
        state.fail(&item.touched, &ClientError::Failed(*failure));
        wrong.extend(&item.touched);
    }
    wrong.sort_unstable();
    wrong.dedup();
    wrong.iter().for_each(|ino| state.table.forget(*ino));
    state.waiters.refused(undone);
    wrong
}
