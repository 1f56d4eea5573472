//! Leases for what is done ahead of the owner.

use forebay_cluster::{Grant, HeldLeases};
use forebay_types::Ino;

use super::Names;

impl Names {
    /// The lease to write on an inode, if something may be answered by it in the session with this number.
    pub(crate) fn to_write(&self, number: u64, ino: Ino) -> Option<Grant> {
        let now = self.ticks.now();
        let state = self.state.lock();
        state.held.as_ref().filter(|_| state.number == number)?.to_write(ino, now)
    }

    /// An inode was made here, which the owner does not know yet.
    pub(crate) fn made(&self, number: u64, ino: Ino) -> Option<Grant> {
        let mut state = self.state.lock();
        let own = state.number == number;
        state.held.as_mut().filter(|_| own).map(|held| HeldLeases::made(held, ino))
    }

    /// What is known of these inodes, and of names in them, is not so.
    pub(crate) fn wrong(&self, inos: &[Ino]) {
        let mut state = self.state.lock();
        inos.iter().for_each(|ino| state.cache.drop_node(*ino));
    }
}
