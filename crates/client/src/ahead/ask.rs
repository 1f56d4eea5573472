//! Whether an operation is carried out here, and what it waits for.

use std::sync::Arc;

use forebay_cluster::Grant;
use forebay_protocol::{Answer, Operation, Response, Step};
use forebay_types::Ino;
use parking_lot::MutexGuard;

use super::{
    Begun, Shared,
    passing::{Passing, is_making_directory},
    state::State,
};
use crate::{error::ClientError, link::Patience};

impl Shared {
    /// Sees whether the session is another: then what waited is lost.
    pub(super) fn see_session(&self, state: &mut State) {
        let session = self.under.session();
        if session == state.session {
            return;
        }
        state.lose(&ClientError::SessionEnded);
        state.session = session;
        state.numbers.clear();
        state.learning.values_mut().for_each(|may| *may = false);
        self.changed.notify_all();
    }

    pub(super) fn begin(
        self: &Arc<Self>,
        operation: &Operation,
        bound: Option<u64>,
        patience: &Patience<'_>,
    ) -> Result<Begun, ClientError> {
        let mut state = self.state.lock();
        // Counted: whether it was looked at if the directory is to be delegated. Numbered: whether there are numbers for what is made here.
        let (mut counted, mut numbered) = (false, true);
        loop {
            self.see_session(&mut state);
            match bound {
                _ if state.closed => return Err(ClientError::Closed),
                Some(bound) if bound != state.session => return Err(ClientError::SessionEnded),
                _ => {}
            }
            if operation.changes() && !state.learning.is_empty() {
                // What is being read is to be all.
                let concerned = state.table.concerned(operation);
                if concerned.iter().any(|ino| state.learning.contains_key(ino)) {
                    patience.wait(&self.changed, &mut state)?;
                    continue;
                }
            }
            if let Operation::Commit(commit) = operation
                && self.goes_along(&state, commit)
            {
                return self.along(state, operation, patience);
            }
            if let Some(needed) = state.table.inside(operation).filter(|_| numbered) {
                let full = operation.changes() && self.is_full(&state);
                if state.is_busy(&needed) || full {
                    patience.wait(&self.changed, &mut state)?;
                    continue;
                }
                if let Some(grants) = self.grants(state.session, &needed) {
                    let made = match operation {
                        Operation::Make(parent, ..) => state.numbers.take(*parent),
                        _ => Some(Ino(0)),
                    };
                    match made {
                        Some(made) => return Ok(self.here(&mut state, operation, made, grants)),
                        None => numbered = self.fetch_numbers(&mut state, patience)?,
                    }
                    continue;
                }
            }
            if let Operation::Make(parent, name, _) = operation
                && !counted
                && numbered
                && self.options.delegates
                && !state.table.leaves_open(*parent, name)
            {
                counted = true;
                if state.count_make(*parent) {
                    self.learn(&mut state, *parent, patience)?;
                    continue;
                }
            }
            return self.there(state, operation, patience);
        }
    }

    pub(super) fn is_full(&self, state: &State) -> bool {
        state.queue.len() >= self.options.operations || state.queue.bytes() >= self.options.bytes
    }

    /// The leases to write on all of these.
    pub(super) fn grants(&self, session: u64, inos: &[Ino]) -> Option<Vec<Grant>> {
        inos.iter().map(|ino| self.leases.to_write(session, *ino)).collect()
    }

    /// Carries an operation out. The leases counted a moment ago, and are not returned before `recalled` has had the lock.
    fn here(&self, state: &mut State, operation: &Operation, made: Ino, mut grants: Vec<Grant>) -> Begun {
        let time = self.clock.now();
        let done = state.table.carry_out(operation, time, made);
        if !done.touched.is_empty() {
            let is_make = matches!(operation, Operation::Make(..));
            let made = is_make.then_some(made);
            if let Some(ino) = made {
                grants.extend(self.leases.made(state.session, ino));
            }
            if let (Operation::Rmdir(..), Answer::Inode(gone)) = (operation, &done.answer) {
                state.numbers.left(gone.ino);
            }
            let (operation, collected) = (operation.clone(), state.queue.has_collected());
            state.queue.push(Step { time, made, operation }, done.touched);
            if state.asleep || !collected && state.queue.has_collected() {
                self.work.notify_one();
            }
        }
        Begun::Here(Response { answer: done.answer, grants }, state.session)
    }

    /// Sends an operation on to the owner, after what it depends on.
    pub(super) fn there(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, State>,
        operation: &Operation,
        patience: &Patience<'_>,
    ) -> Result<Begun, ClientError> {
        let concerned = state.table.concerned(operation);
        let busy = if operation.changes() { concerned.clone() } else { Vec::new() };
        // What is changed at the owner is not changed here meanwhile.
        state.make_busy(&busy);
        let makes_directory = is_making_directory(operation);
        state.making += u32::from(makes_directory);
        // Names survive as a prefix: a change of one at the owner comes after all that was done here. What a name stands for that is not known here may be
        // anything that was changed here.
        let names = operation.changes_names();
        let whole = names || state.table.is_vague(operation);
        let until = if whole { state.queue.last() } else { state.queue.until(&concerned) };
        let session = state.session;
        let waiter = names.then(|| state.waiters.begin());
        let mut patient = Ok(());
        state.queue.want(until);
        while patient.is_ok() && !state.queue.is_told(until) && state.session == session && !state.closed {
            patient = self.wait_until_told_more(&mut state, patience);
        }
        let waited =
            waiter.map_or(Ok(()), |waiter| state.waiters.end(&waiter, until, (operation, &concerned)));
        let waited = waited.and(patient);
        if let Err(error) = waited {
            state.no_longer_busy(&busy);
            if makes_directory {
                state.made_one();
            }
            drop(state);
            self.changed.notify_all();
            return Err(error);
        }
        Ok(Begun::There(Passing::begin(Arc::clone(self), &mut state, (operation, busy))))
    }

    /// Waits until everything up to a number is told or lost, or all is over.
    pub(super) fn wait_for(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        number: u64,
        patience: &Patience<'_>,
    ) -> Result<(), ClientError> {
        state.queue.want(number);
        while !state.queue.is_told(number) && !state.closed {
            self.wait_until_told_more(state, patience)?;
            self.see_session(state);
        }
        Ok(())
    }

    pub(super) fn settle(self: &Arc<Self>, inos: &[Ino], patience: &Patience<'_>) -> Result<(), ClientError> {
        let mut state = self.state.lock();
        self.see_session(&mut state);
        let until = state.queue.until(inos);
        self.wait_for(&mut state, until, patience)?;
        let failures: Vec<ClientError> = inos.iter().filter_map(|ino| state.failures.remove(ino)).collect();
        self.say(&state, until, failures.into_iter().next())
    }

    pub(super) fn settle_all(self: &Arc<Self>, patience: &Patience<'_>) -> Result<(), ClientError> {
        let mut state = self.state.lock();
        self.see_session(&mut state);
        let until = state.queue.last();
        self.wait_for(&mut state, until, patience)?;
        let failure = state.failure.take();
        self.say(&state, until, failure)
    }

    fn say(&self, state: &State, until: u64, failure: Option<ClientError>) -> Result<(), ClientError> {
        match failure {
            Some(failure) => Err(failure),
            None if !state.queue.is_told(until) => Err(ClientError::Closed),
            None => Ok(()),
        }
    }

    pub(super) fn recalled(self: &Arc<Self>, inos: &[Ino]) {
        let mut state = self.state.lock();
        self.see_session(&mut state);
        for ino in inos.iter().copied() {
            if state.table.is_delegated(ino) || state.learning.contains_key(&ino) {
                state.put_off(ino);
            }
            state.table.forget(ino);
            if let Some(may) = state.learning.get_mut(&ino) {
                *may = false;
            }
        }
        let until = state.queue.until(inos);
        // This patience has no end.
        let _ = self.wait_for(&mut state, until, &Patience::FOREVER);
    }
}
