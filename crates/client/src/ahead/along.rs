//! Commits that go along with what was done here before them.
//!
//! A file that is made here, written and synced would take two requests: one that makes it, and then its commit. So a commit that has to wait for what was done here is put behind it, and goes in
//! the same request. Unlike the others it was not answered: who has asked for it waits, is told what became of it, and has the bytes still where it was refused.

use std::sync::Arc;

use forebay_protocol::{Answer, Commit, Failure, Operation, Response, Step};
use forebay_types::Ino;
use parking_lot::MutexGuard;
use rustc_hash::FxHashMap;

use super::{Begun, Shared, state::State};
use crate::{error::ClientError, link::Patience};

/// Bytes and files of a commit that goes along, at most: larger ones go by themselves.
const BYTES: usize = 128 << 10;
const FILES: usize = 1024;

/// What became of a commit.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It was taken in, but for files that are gone: they are among these.
    TakenIn(Vec<Ino>),
    /// It was not, and nothing of it was done.
    Refused(Failure),
    /// Nobody knows.
    Lost(ClientError),
}

/// Commits that somebody waits for, by their number in the queue.
#[derive(Debug, Default)]
pub(super) struct Commits(FxHashMap<u64, Option<Outcome>>);

impl Commits {
    /// It is known what became of one. Only the first that is said counts.
    pub(super) fn end(&mut self, number: u64, outcome: impl FnOnce() -> Outcome) {
        if let Some(waits @ None) = self.0.get_mut(&number) {
            *waits = Some(outcome());
        }
    }
}

impl Shared {
    /// Whether a commit waits for what was done here, and may be told with it: it names no objects, is small, and its session has the lease to write on all of its
    /// files. Where it has not, it would be refused; nothing else would.
    pub(super) fn goes_along(&self, state: &State, commit: &Commit) -> bool {
        let inos: Vec<Ino> = commit.files.iter().map(|file| file.ino).collect();
        let bytes: usize = commit.files.iter().filter_map(|file| file.inline.as_ref()).map(Vec::len).sum();
        let small = bytes <= BYTES && inos.len() <= FILES && commit.objects.is_empty();
        small
            && commit.files.iter().all(|file| file.extents.is_empty())
            && !state.queue.is_told(state.queue.until(&inos))
            && !self.is_full(state)
            && !state.is_busy(&inos)
            && self.grants(state.session, &inos).is_some()
    }

    /// Puts a commit behind what was done here, and waits for what becomes of it. What it changes is not changed here meanwhile. One that is refused goes by itself.
    pub(super) fn along(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        operation: &Operation,
        patience: &Patience<'_>,
    ) -> Result<Begun, ClientError> {
        let (session, busy) = (state.session, state.table.concerned(operation));
        state.make_busy(&busy);
        let step = Step { time: self.clock.now(), made: None, operation: operation.clone() };
        // It concerns nothing: what waits for these files waits for their making, and for this as for any other commit.
        state.queue.push(step, Vec::new());
        let number = state.queue.last();
        state.commits.0.insert(number, None);
        state.queue.want(number);
        let mut patient = Ok(());
        while patient.is_ok() && !state.closed && matches!(state.commits.0.get(&number), Some(None)) {
            patient = self.wait_until_told_more(&mut state, patience);
            self.see_session(&mut state);
        }
        state.no_longer_busy(&busy);
        let begun = match state.commits.0.remove(&number).flatten() {
            Some(Outcome::TakenIn(gone)) => {
                let gone = gone.into_iter().filter(|ino| busy.contains(ino)).collect();
                let answer = Answer::Committed(gone);
                state.table.passed(operation, Some(&answer));
                Ok(Begun::Here(Response { answer, grants: Vec::new() }, session))
            }
            Some(Outcome::Refused(failure)) => {
                tracing::debug!(?failure, "a commit that went along was refused: it goes by itself");
                self.changed.notify_all();
                return self.there(state, operation, patience);
            }
            Some(Outcome::Lost(error)) => Err(error),
            None => Err(patient.err().unwrap_or(ClientError::Closed)),
        };
        if begun.is_err() {
            busy.iter().for_each(|ino| state.table.forget(*ino));
        }
        drop(state);
        self.changed.notify_all();
        begun
    }
}
