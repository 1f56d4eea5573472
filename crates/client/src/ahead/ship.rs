//! Telling the owner: one request at a time, so that the order is kept; what collects meanwhile is the next one.

use forebay_cluster::Lease;
use forebay_protocol::{Answer, Failure, Operation, Response, Undone};
use forebay_types::Ino;

use super::{Shared, state::State};
use crate::error::ClientError;

/// Operations and bytes of one request at most.
const OPERATIONS: usize = 2048;
const BYTES: usize = 1 << 20;

impl Shared {
    /// Ships until all is over.
    pub(super) fn ship(&self) {
        let mut state = self.state.lock();
        loop {
            self.see_session(&mut state);
            if state.closed {
                return;
            }
            if state.queue.is_empty() {
                self.work.wait(&mut state);
                continue;
            }
            let (session, steps) = (state.session, state.queue.first(OPERATIONS, BYTES));
            drop(state);
            let count = steps.len();
            let asked = self.under.ask_in(session, Operation::Ahead(steps), Some(Lease::Write));
            let wrong = self.shipped(session, count, asked);
            if !wrong.is_empty() {
                self.leases.wrong(&wrong);
            }
            self.changed.notify_all();
            state = self.state.lock();
        }
    }

    /// Takes in what became of the first operations of the queue. Returns the inodes of which something is not as it was told.
    fn shipped(&self, session: u64, count: usize, asked: Result<Response, ClientError>) -> Vec<Ino> {
        let asked = asked.and_then(|response| match response.answer {
            Answer::Ahead(failed) => Ok(failed),
            Answer::Failed(failure) => Err(ClientError::Failed(failure)),
            other => Err(ClientError::Unexpected(format!("{other:?}"))),
        });
        let mut state = self.state.lock();
        self.see_session(&mut state);
        if state.session != session {
            // It was lost with the session, as far as anybody here was told.
            return Vec::new();
        }
        let failed = match asked {
            Ok(failed) => failed,
            Err(error) => {
                tracing::error!(%error, "what was done ahead of the owner is lost");
                return state.lose(&error);
            }
        };
        let wrong = refused(&mut state, count, &failed);
        state.shrink(self.options.known);
        wrong
    }
}

/// The owner has answered the first operations of the queue, and not done these; nor is done what depends on them and waits. Returns the inodes concerned.
fn refused(state: &mut State, count: usize, failed: &[(u32, Failure)]) -> Vec<Ino> {
    let told = state.queue.take(count);
    let (mut undone, mut wrong): (_, Vec<Ino>) = (Undone::default(), Vec::new());
    for (at, failure) in failed {
        let Some(item) = told.get(*at as usize) else { continue };
        tracing::error!(?failure, step = ?item.step, "the owner does not do what was done here");
        undone.add(&item.step, *failure);
        state.fail(&item.touched, &ClientError::Failed(*failure));
        wrong.extend(&item.touched);
    }
    if undone.is_empty() {
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
