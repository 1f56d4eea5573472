//! Operations that the owner carries out while others are carried out here.
//!
//! Answers are taken in as they come, which need not be the order in which the owner has carried the operations out. It is the same for operations on different names and inodes. Of a name or a row
//! that several change at once nobody here can tell which was the last: nothing is known of it afterwards. (In a mount the kernel keeps them apart: it locks the directory, or the inode.)

use std::{collections::BTreeSet, sync::Arc};

use forebay_cluster::Lease;
use forebay_protocol::{Answer, Operation, Response};
use forebay_types::{FileKind, Ino};
use rustc_hash::FxHashMap;

use super::{Shared, state::State, table::Names};

/// So often [`State::passed`] changes until it is looked whether too much is known, as its answers tell of names.
const SHRUNK_EVERY: u64 = 64;

/// An operation on its way to the owner. What it changes is not changed here meanwhile. Dropped without [`Passing::done`], nobody knows what it has done.
pub struct Passing {
    shared: Arc<Shared>,
    busy: Vec<Ino>,
    names: BTreeSet<Name>,
    seen: Seen,
    makes_directory: bool,
    over: bool,
}

/// A name in a directory.
type Name = (Ino, Vec<u8>);

/// Names that operations on their way make, move or take away: how many do.
#[derive(Debug, Default)]
pub(super) struct Naming(FxHashMap<Name, u32>);

impl Naming {
    fn begin(&mut self, names: &BTreeSet<Name>) {
        names.iter().for_each(|name| *self.0.entry(name.clone()).or_default() += 1);
    }

    fn end(&mut self, names: &BTreeSet<Name>) {
        for name in names {
            match self.0.get_mut(name) {
                Some(many) if *many > 1 => *many -= 1,
                _ => drop(self.0.remove(name)),
            }
        }
    }

    fn is_with_several(&self, name: &Name) -> bool {
        self.0.get(name).is_some_and(|many| *many > 1)
    }
}

/// How far things were when an operation was sent.
#[derive(Clone, Copy)]
struct Seen {
    /// The last operation that was carried out here before.
    last: u64,
    /// [`State::passed`].
    passed: u64,
}

pub(super) fn is_making_directory(operation: &Operation) -> bool {
    matches!(operation, Operation::Make(_, _, new) if new.kind == FileKind::Directory)
}

impl Passing {
    /// `operation` is sent now; `busy` are what it changes.
    pub(super) fn begin(
        shared: Arc<Shared>,
        state: &mut State,
        (operation, busy): (&Operation, Vec<Ino>),
    ) -> Passing {
        let names = operation.names().map(|(parent, name)| (parent, name.to_vec())).collect();
        state.naming.begin(&names);
        let seen = Seen { last: state.queue.last(), passed: state.passed };
        let makes_directory = is_making_directory(operation);
        Passing { shared, busy, names, seen, makes_directory, over: false }
    }

    /// It was answered, and [`super::Leases`] knows of the leases that came with the answer.
    pub fn done(mut self, operation: &Operation, response: &Response) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        self.take_in(&mut state, operation, &response.answer);
        if self.makes_directory {
            self.delegate(&mut state, response);
        }
        // Nothing was done to it here or at the owner since it was asked for.
        if let (Operation::Inode(ino), Some(told)) = (operation, response.answer.inode())
            && (state.queue.last(), state.passed) == (self.seen.last, self.seen.passed)
            && !state.is_busy(&[*ino])
        {
            state.table.told_again(told);
        }
        self.end(&mut state);
        // Counted from the last time: a change of the count may be a beginning, at which nobody looks.
        if state.passed - state.looked >= SHRUNK_EVERY {
            state.looked = state.passed;
            state.shrink(shared.options.most());
        }
        drop(state);
        shared.changed.notify_all();
    }

    /// What the owner has done is so here, too, as far as it can be told.
    fn take_in(&self, state: &mut State, operation: &Operation, answer: &Answer) {
        state.table.passed(operation, Some(answer));
        if matches!(answer, Answer::Failed(_)) {
            return;
        }
        for name in self.names.iter().filter(|name| state.naming.is_with_several(name)) {
            state.table.forget_names(name.0);
        }
        let is_only_one = |ino: Ino| state.passed == self.seen.passed && state.busy.get(&ino) == Some(&1);
        if let Some(inode) = answer.inode().filter(|inode| !is_only_one(inode.ino)) {
            state.table.forget_row(inode.ino);
        }
    }

    /// A directory that was made is delegated if the lease is the one that came along: nobody else has had it since, so it is empty, unless this client
    /// has made something in it in the same moment.
    fn delegate(&self, state: &mut State, response: &Response) {
        let Some(made) = response.answer.inode() else { return };
        let came = response.grants.iter().find(|grant| grant.ino == made.ino);
        if self.shared.options.delegates
            && came.is_some_and(|came| {
                came.lease == Lease::Write
                    && self.shared.leases.to_write(state.session, made.ino) == Some(*came)
            })
            && !state.beside.contains(&made.ino)
        {
            state.table.delegate(made, Names::default());
        }
    }

    fn end(&mut self, state: &mut State) {
        self.over = true;
        state.no_longer_busy(&self.busy);
        state.naming.end(&self.names);
        if self.makes_directory {
            state.made_one();
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if !self.over {
            let shared = Arc::clone(&self.shared);
            let mut state = shared.state.lock();
            self.busy.iter().for_each(|ino| state.table.forget(*ino));
            self.end(&mut state);
            drop(state);
            shared.changed.notify_all();
        }
    }
}
