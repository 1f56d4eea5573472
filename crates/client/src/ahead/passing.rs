//! Operations that the owner carries out while others are carried out here.

use std::sync::Arc;

use forebay_cluster::Lease;
use forebay_protocol::{Operation, Response};
use forebay_types::{FileKind, Ino};

use super::{Shared, state::State, table::Names};

/// An operation on its way to the owner. What it changes is not changed here meanwhile. Dropped without [`Passing::done`], nobody knows what it has done.
pub struct Passing {
    shared: Arc<Shared>,
    busy: Vec<Ino>,
    seen: Seen,
    makes_directory: bool,
    over: bool,
}

/// How far things were when an operation was sent.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    /// The last operation that was carried out here before.
    pub(super) last: u64,
    /// [`State::passed`].
    pub(super) passed: u64,
}

pub(super) fn is_making_directory(operation: &Operation) -> bool {
    matches!(operation, Operation::Make(_, _, new) if new.kind == FileKind::Directory)
}

impl Passing {
    pub(super) fn new(shared: Arc<Shared>, busy: Vec<Ino>, seen: Seen, makes_directory: bool) -> Passing {
        Passing { shared, busy, seen, makes_directory, over: false }
    }

    /// It was answered, and [`super::Leases`] knows of the leases that came with the answer.
    pub fn done(mut self, operation: &Operation, response: &Response) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        state.table.passed(operation, Some(&response.answer));
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
        drop(state);
        shared.changed.notify_all();
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
