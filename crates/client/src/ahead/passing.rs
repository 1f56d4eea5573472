//! Operations that the owner carries out while others are carried out here.

use std::{collections::BTreeMap, sync::Arc};

use forebay_cluster::Lease;
use forebay_protocol::{Operation, Response};
use forebay_types::{FileKind, Ino};

use super::Shared;

/// An operation on its way to the owner. What it changes is not changed here meanwhile. Dropped without [`Passing::done`], nobody knows what it has done.
pub struct Passing {
    shared: Arc<Shared>,
    busy: Vec<Ino>,
    /// The last operation that was carried out here before.
    last: u64,
    over: bool,
}

impl Passing {
    pub(super) fn new(shared: Arc<Shared>, busy: Vec<Ino>, last: u64) -> Passing {
        Passing { shared, busy, last, over: false }
    }

    /// It was answered, and [`super::Leases`] knows of the leases that came with the answer.
    pub fn done(mut self, operation: &Operation, response: &Response) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        state.table.passed(operation, Some(&response.answer));
        match (operation, response.answer.inode()) {
            (Operation::Make(_, _, new), Some(made))
                if new.kind == FileKind::Directory && shared.options.delegates =>
            {
                // The lease is the one that came along, so nobody has had it since: the directory is empty.
                let came = response.grants.iter().find(|grant| grant.ino == made.ino);
                if came.is_some_and(|came| {
                    came.lease == Lease::Write
                        && shared.leases.to_write(state.session, made.ino) == Some(*came)
                }) {
                    state.table.delegate(made, BTreeMap::new());
                }
            }
            (Operation::Inode(ino), Some(told))
                if state.queue.last() == self.last && !state.is_busy(&[*ino]) =>
            {
                state.table.told_again(told);
            }
            _ => {}
        }
        state.no_longer_busy(&self.busy);
        self.over = true;
        drop(state);
        shared.changed.notify_all();
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        if !self.over {
            let mut state = self.shared.state.lock();
            self.busy.iter().for_each(|ino| state.table.forget(*ino));
            state.no_longer_busy(&self.busy);
            drop(state);
            self.shared.changed.notify_all();
        }
    }
}
