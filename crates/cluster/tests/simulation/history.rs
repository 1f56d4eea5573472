//! What applications did and saw.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
};

use crate::messages::Op;

/// What is known of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// It has not returned, and may or may not be carried out.
    Open,
    /// It returned, and is known to stay.
    Done,
    /// It returned under a lease to write, and was not sent to the owner yet.
    KeptBack,
    /// It is as if it had not been: what was kept back is lost, and the application was told.
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub client: usize,
    pub op: Op,
    pub value: u64,
    pub began: u64,
    pub ended: u64,
    pub state: State,
}

#[derive(Debug, Default)]
pub struct History(Vec<Operation>);

impl History {
    pub fn begin(&mut self, client: usize, op: Op, now: u64) -> usize {
        self.0.push(Operation { client, op, value: 0, began: now, ended: u64::MAX, state: State::Open });
        self.0.len() - 1
    }

    pub fn end(&mut self, at: usize, value: u64, now: u64, state: State) {
        let operation = &mut self.0[at];
        (operation.value, operation.ended, operation.state) = (value, now, state);
    }

    /// What was kept back has reached the owner, or never will; or nobody knows.
    pub fn becomes(&mut self, at: usize, state: State) {
        let operation = &mut self.0[at];
        if operation.state == State::KeptBack {
            operation.state = state;
            if state == State::Open {
                operation.ended = u64::MAX;
            }
        }
    }

    pub fn is_change(&self, at: usize) -> bool {
        self.0[at].op.changes()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What counts: without what is lost, and without reads that never returned.
    pub fn settled(&self) -> Vec<Operation> {
        let counts = |operation: &&Operation| match operation.state {
            State::Lost => false,
            State::Open => operation.op.changes(),
            State::Done | State::KeptBack => true,
        };
        let mut settled: Vec<Operation> = self.0.iter().filter(counts).copied().collect();
        settled.sort_by_key(|operation| operation.began);
        settled
    }

    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for operation in &self.0 {
            (operation.client, operation.value, operation.began, operation.ended, operation.state)
                .hash(&mut hasher);
        }
        hasher.finish()
    }
}
