//! Leases that come back.

use forebay_types::Ino;

use super::{Effect, Lease, LeaseTable, Stamp};
use crate::SessionId;

impl LeaseTable {
    /// A session has returned the lease with this stamp, or all of it but what it keeps. An earlier or unknown stamp changes nothing.
    #[must_use]
    pub fn returned(
        &mut self,
        session: SessionId,
        ino: Ino,
        stamp: Stamp,
        kept: Option<Lease>,
    ) -> Vec<Effect> {
        self.all_returned(session, &[(ino, stamp, kept)])
    }

    /// The same of several leases. A request that waits for all of them is looked at once all are there.
    #[must_use]
    pub fn all_returned(
        &mut self,
        session: SessionId,
        leases: &[(Ino, Stamp, Option<Lease>)],
    ) -> Vec<Effect> {
        let mut changed = Vec::with_capacity(leases.len());
        for (ino, stamp, kept) in leases.iter().copied() {
            let before = self.lease(session, ino);
            let Some(node) = self.nodes.get_mut(&ino) else { continue };
            if !node.returned(session, stamp, kept) {
                continue;
            }
            self.note_writes(session, ino, before);
            if kept.is_none() {
                self.forget(session, ino);
            }
            changed.push(ino);
        }
        self.settle(&changed)
    }
}
