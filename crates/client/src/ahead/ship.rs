//! Telling the owner: one request at a time, so that the order is kept; what collects meanwhile is the next one.

use forebay_cluster::Lease;
use forebay_protocol::{Answer, Operation, Response};
use forebay_types::Ino;

use super::Shared;
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
        let told = state.queue.take(count);
        let mut wrong: Vec<Ino> = Vec::new();
        for (at, failure) in failed {
            let Some(item) = told.get(at as usize) else { continue };
            tracing::error!(?failure, step = ?item.step, "the owner does not do what was done here");
            state.fail(&item.touched, &ClientError::Failed(failure));
            wrong.extend(&item.touched);
        }
        wrong.sort_unstable();
        wrong.dedup();
        wrong.iter().for_each(|ino| state.table.forget(*ino));
        state.shrink(self.options.known);
        wrong
    }
}
