//! What applications did and saw.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use forebay_types::Ino;

use crate::messages::{Op, REFUSED, is_refused};

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
    /// It was in a request whose outcome nobody knows, with others.
    Together,
}

#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub client: usize,
    pub op: Op,
    pub value: u64,
    pub began: u64,
    pub ended: u64,
    pub state: State,
    /// What has yet to reach the owner before it is known to stay.
    waits_for: u8,
}

/// What is carried out at once: an operation, or all of a request.
#[derive(Clone)]
pub struct Unit {
    pub client: usize,
    /// Each with its answer, where it had one.
    pub parts: Vec<(Op, Option<u64>)>,
    pub began: u64,
    pub ended: u64,
    /// It may never have been carried out.
    pub open: bool,
}

#[derive(Debug, Default)]
pub struct History {
    operations: Vec<Operation>,
    /// Requests of which nobody knows whether they were carried out.
    together: Vec<Vec<usize>>,
    /// Losses of which the applications of a client were not told, and when they were.
    untold: BTreeMap<(usize, Ino), usize>,
    /// Changes of names that were answered ahead of the owner.
    pub ahead: usize,
    /// Commits that went along with these.
    pub along: usize,
    /// What was seen to be wrong while it happened.
    found: Option<String>,
}

impl History {
    pub fn begin(&mut self, client: usize, op: Op, now: u64) -> usize {
        let (ended, state) = (u64::MAX, State::Open);
        self.operations.push(Operation { client, op, value: 0, began: now, ended, state, waits_for: 0 });
        self.operations.len() - 1
    }

    pub fn end(&mut self, at: usize, value: u64, now: u64, state: State) {
        let operation = &mut self.operations[at];
        (operation.value, operation.ended, operation.state) = (value, now, state);
    }

    /// An operation that has returned is known to stay only once something more has reached the owner.
    pub fn keeps_back(&mut self, at: usize) {
        let operation = &mut self.operations[at];
        operation.state = State::KeptBack;
        operation.waits_for += 1;
        self.ahead += usize::from(operation.op.renames());
    }

    /// What an operation waited for has reached the owner.
    pub fn told(&mut self, at: usize) {
        let operation = &mut self.operations[at];
        operation.waits_for = operation.waits_for.saturating_sub(1);
        if operation.state == State::KeptBack && operation.waits_for == 0 {
            operation.state = State::Done;
        }
    }

    /// What an operation waited for never reaches the owner.
    pub fn lost(&mut self, at: usize) {
        let Operation { state, op, value, client, .. } = self.operations[at];
        if state != State::KeptBack {
            return;
        }
        self.operations[at].state = State::Lost;
        if has_changed(op, value) {
            for ino in op.inos() {
                self.untold.insert((client, ino), at);
            }
        }
        self.later_ones_are_lost(at);
    }

    /// The owner has not carried it out, or it was answered by something that the owner has not.
    pub fn refused(&mut self, at: usize) {
        let Operation { state, op, value, client, .. } = self.operations[at];
        if state == State::KeptBack {
            self.operations[at].state = State::Lost;
            if has_changed(op, value) {
                self.untold.extend(op.inos().into_iter().map(|ino| ((client, ino), at)));
            }
        }
    }

    /// It was never sent.
    pub fn never_sent(&mut self, at: usize) {
        if self.operations[at].state == State::Open {
            self.operations[at].state = State::Lost;
        }
    }

    /// What was on its way when the session ended: it was carried out as a whole, or not.
    pub fn unknown(&mut self, all: &[usize]) {
        let all: Vec<usize> =
            all.iter().copied().filter(|at| self.operations[*at].state == State::KeptBack).collect();
        let (changes, seen): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|at| self.operations[*at].op.changes());
        seen.into_iter().for_each(|at| self.operations[at].state = State::Lost);
        let apart = changes.iter().any(|at| match self.operations[*at].op {
            Op::Write(ino, value) => is_refused(Op::Commit(ino, value, 0)),
            op => is_refused(op),
        });
        for at in &changes {
            let operation = &mut self.operations[*at];
            operation.state = if apart { State::Open } else { State::Together };
            operation.ended = u64::MAX;
        }
        if !apart && !changes.is_empty() {
            self.together.push(changes);
        }
    }

    /// Of a client's changes of names a prefix survives; a name never survives the loss of what was written before it was given.
    fn later_ones_are_lost(&mut self, at: usize) {
        let lost = self.operations[at];
        let of_client = |later: &&Operation| later.client == lost.client && later.state == State::Done;
        let mut later = self.operations[at + 1..].iter().filter(of_client);
        let found = match lost.op {
            Op::Write(ino, _) => {
                let moves = |later: &Operation| has_effect(later.op, later.value) && later.value == ino.0;
                later.find(|later| matches!(later.op, Op::Rename(..)) && moves(later))
            }
            op if has_effect(op, lost.value) => {
                let effective = |later: &&Operation| later.op.renames() && has_effect(later.op, later.value);
                later.find(effective)
            }
            _ => None,
        };
        if let Some(later) = found.copied() {
            self.finds(format!("{later:?} survives, and {lost:?}, which came before, does not"));
        }
    }

    /// An fsync of an inode returned: what was done to it before is durable, and nothing of it was lost without a word.
    pub fn synced(&mut self, at: usize, failed: bool, now: u64) {
        let Operation { client, op: Op::Fsync(ino), began, .. } = self.operations[at] else { return };
        self.end(at, u64::from(failed), now, State::Done);
        let untold = self.untold.remove(&(client, ino));
        if failed {
            return;
        }
        if let Some(lost) = untold {
            let lost = self.operations[lost];
            self.finds(format!("an fsync of {ino:?} says nothing of {lost:?}, which is lost"));
        }
        for operation in &mut self.operations {
            let concerned = operation.client == client && operation.op.inos().contains(&ino);
            let concerned = concerned && operation.op.changes();
            if concerned && operation.ended <= began && operation.state == State::KeptBack {
                operation.state = State::Done;
            }
        }
    }

    /// A client's applications died with it.
    pub fn died(&mut self, client: usize) {
        self.untold.retain(|(of, _), _| *of != client);
    }

    /// A file's contents found no file: it was never made, as the applications were told.
    pub fn is_gone(&mut self, ino: Ino) {
        let made = |it: &Operation| matches!(it.op, Op::Make(_, made, _) if made == ino);
        let stays =
            |it: &Operation| made(it) && matches!(it.state, State::Done | State::KeptBack) && it.value == 1;
        if self.operations.iter().any(stays) {
            self.finds(format!("{ino:?} is not there for what was written under the lease on it"));
        }
    }

    pub fn is_change(&self, at: usize) -> bool {
        self.operations[at].op.changes()
    }

    pub fn finds(&mut self, what: String) {
        self.found.get_or_insert(what);
    }

    pub fn found(&self) -> Option<&String> {
        self.found.as_ref()
    }

    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// What counts: without what is lost, and without reads that never returned.
    pub fn settled(&self) -> Vec<Unit> {
        let counts = |operation: &&Operation| match operation.state {
            _ if matches!(operation.op, Op::Fsync(_) | Op::Lock(_) | Op::Unlock(_)) => false,
            State::Lost | State::Together => false,
            State::Open => operation.op.changes(),
            State::Done | State::KeptBack => true,
        };
        let singly = self.operations.iter().filter(counts).map(|it| {
            let open = it.state == State::Open;
            let parts = vec![(it.op, (!open).then_some(it.value))];
            Unit { client: it.client, parts, began: it.began, ended: it.ended, open }
        });
        let together = self.together.iter().map(|all| {
            let all: Vec<Operation> = all.iter().map(|at| self.operations[*at]).collect();
            let parts = all.iter().map(|it| (it.op, Some(it.value))).collect();
            // Something may be written before what it is told behind was done.
            let began = all.iter().map(|it| it.began).max().unwrap_or(0);
            Unit { client: all[0].client, parts, began, ended: u64::MAX, open: true }
        });
        let mut settled: Vec<Unit> = singly.chain(together).collect();
        settled.sort_by_key(|unit| unit.began);
        settled
    }

    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for operation in &self.operations {
            (operation.client, operation.value, operation.began, operation.ended, operation.state)
                .hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Whether an operation on registers, files or names that answered this has changed something.
fn has_changed(op: Op, value: u64) -> bool {
    op.changes() && (!op.renames() || has_effect(op, value))
}

/// Whether an operation on names that answered this has changed something.
pub fn has_effect(op: Op, value: u64) -> bool {
    match op {
        Op::Make(..) => value == 1,
        Op::Remove(_) => value != 0 && value < REFUSED,
        // To give a name to what has it changes nothing.
        Op::Rename(from, to) => from != to && value != 0 && value < REFUSED,
        _ => false,
    }
}
