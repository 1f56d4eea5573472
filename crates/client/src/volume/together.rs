//! Many leases that are given back at once: recalled ones, as whoever lists a directory recalls those of all files that this client writes, and those of which too much is known.

use std::{sync::Arc, time::Duration};

use forebay_cluster::{Recalled, Stamp};
use forebay_protocol::Recall;
use forebay_types::Ino;

use super::{core::Core, jobs::Job};
use crate::link::Patience;

/// How long what is kept back of many files may take to be stored before each is left to itself: with what a single one is tried for, less than after which the owner ends a session that
/// returns nothing.
const TOGETHER: Duration = Duration::from_secs(10);

/// Leases that are given up together. A recall of one waits for all of them.
const GIVEN_UP: usize = 256;
/// How long the kernel is waited for until it has dropped their pages: nothing depends on it, and it may be reading one from a store that is slow.
const PAGES_DROPPED_WITHIN: Duration = Duration::from_secs(5);

impl Core {
    /// Begins to give up leases of which too much is known.
    pub(crate) fn give_up(&self) {
        let leases = self.desk.names.too_much();
        leases.chunks(GIVEN_UP).for_each(|leases| self.jobs.put(Job::GiveUp(leases.to_vec())));
    }

    /// Whether the lease stays: what is open, what is kept back, and what is still to be told of what was done ahead is in use.
    fn is_needed(&self, ino: Ino) -> bool {
        self.opens.is_open(ino) || self.bytes.has_kept(ino) || self.desk.ahead.has_to_tell(ino)
    }

    /// Gives leases back whole that nobody recalls and nobody uses: what [`Core::recalled`] does for one, each step for all of them, and one message. None of the files was open when its lease
    /// stopped to count, so a page that is not dropped yet is not read before the attributes are asked for, which are dropped when `drop_inodes` returns: that the kernel is not waited for where
    /// a request names one of them harms none of the others.
    pub(super) fn given_up(self: &Arc<Self>, leases: &[(Ino, Stamp)]) {
        let (stay, leave): (Vec<_>, Vec<_>) =
            leases.iter().copied().partition(|(ino, _)| self.is_needed(*ino));
        self.desk.names.stay(stay.into_iter().map(|(ino, _)| ino));
        let (leave, directories) = self.desk.names.give_up(&leave);
        // Who opened one of them just now may have mapped it: its pages are waited for.
        let (opened, leave): (Vec<_>, Vec<_>) =
            leave.into_iter().partition(|(ino, _)| self.opens.is_open(*ino));
        opened.into_iter().for_each(|(ino, stamp)| self.jobs.put(Job::Recall { ino, keep: None, stamp }));
        if leave.is_empty() {
            return;
        }
        let inos: Vec<Ino> = leave.iter().map(|(ino, _)| *ino).collect();
        if let Some(kernel) = self.kernel.get() {
            let told = kernel.drop_inodes(&inos, directories);
            self.wait_for_kernel(&inos, told, Some(PAGES_DROPPED_WITHIN));
        }
        self.desk.ahead.all_recalled(&inos);
        let mut returned = Vec::new();
        for (ino, stamp) in leave {
            if self.bytes.has_kept(ino) {
                // Pages were written back since: it goes on by itself.
                self.jobs.put(Job::Recall { ino, keep: None, stamp });
                continue;
            }
            self.bytes.forget(ino);
            if let Some((stamp, kept)) = self.desk.names.returned(ino) {
                returned.push((ino, stamp, kept, self.opens.tell(ino)));
            }
        }
        self.desk.link.give_back(&returned);
    }

    /// Gives leases to write back and keeps those to read: what [`Core::recalled`] does for one, each step for all of them, and one message. The kernel drops nothing for that:
    /// what it has stays true under a lease to read. What would hold the others up goes by itself: a thread writes under the lease, or what is kept back cannot be stored now.
    pub(super) fn recalled_together(self: &Arc<Self>, leases: &[Recall]) {
        let (mut returned, mut recalled, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for (lease, found) in self.desk.names.recall_all(leases) {
            match found {
                None => alone.push(lease),
                // The owner may have no such lease any more, and then hears nothing by this.
                Some(Recalled::NotHeld) => {
                    returned.push((lease.ino, lease.stamp, None, self.opens.tell_perhaps(lease.ino)));
                }
                Some(Recalled::GiveBack | Recalled::UnderWay) => recalled.push(lease),
            }
        }
        let inos: Vec<Ino> = recalled.iter().map(|lease| lease.ino).collect();
        self.desk.ahead.all_recalled(&inos);
        let kept: Vec<Ino> = inos.into_iter().filter(|ino| self.is_to_be_settled(*ino)).collect();
        let patience = Patience::new(Some(TOGETHER), None);
        let settled = self.bytes.settle_within(&kept, &patience);
        if let Err(error) = &settled {
            tracing::debug!(%error, files = kept.len(), "what was written is not all stored yet");
        }
        let mut owed = Vec::new();
        for lease in recalled {
            if settled.is_err() && self.is_to_be_settled(lease.ino) {
                alone.push(lease);
                continue;
            }
            if let Some((stamp, kept)) = self.desk.names.returned(lease.ino) {
                returned.push((lease.ino, stamp, kept, self.opens.tell(lease.ino)));
            }
            if self.bytes.has_kept(lease.ino) {
                owed.push(lease.ino);
            }
        }
        self.desk.link.give_back(&returned);
        owed.into_iter().for_each(|ino| self.jobs.put(Job::Owed(ino)));
        alone.into_iter().for_each(|lease| self.jobs.put(lease.into()));
    }

    /// Whether something is kept back of a file under the lease that is being given back.
    fn is_to_be_settled(&self, ino: Ino) -> bool {
        self.bytes.has_kept(ino) && self.desk.names.was_to_write(ino)
    }
}
