//! Many leases that are recalled at once, as whoever lists a directory does with those of all files that this client writes.

use std::{sync::Arc, time::Duration};

use forebay_cluster::Recalled;
use forebay_protocol::Recall;
use forebay_types::Ino;

use super::{core::Core, jobs::Job};
use crate::link::Patience;

/// How long what is kept back of many files may take to be stored before each is left to itself: with what a single one is tried for, less than after which the owner ends a session that
/// returns nothing.
const TOGETHER: Duration = Duration::from_secs(10);

impl Core {
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
