//! What sessions say to a new owner that they have.
//!
//! Guarantees: a session is given again every lease that a former owner gave it, so that nothing is changed of which it does not know; none waits for ever.

use forebay_types::Ino;
use rustc_hash::FxHashMap;

use super::{Effect, Grant, Lease, LeaseTable};
use crate::SessionId;

impl LeaseTable {
    /// A session of the former owner says which leases it still has. Returns those that it is given: not what somebody else has been
    /// given meanwhile, nor a lease to write that no row knew of. Said again, it returns what the session has by then.
    ///
    /// `None`: it has to say so again, once a session whose lease is in the way has said what it has. Rows may know of a lease to write that was returned before
    /// others got theirs. Were those refused now, what they know could be changed before they heard of it. Nobody waits for one that has said it: no two
    /// wait for each other.
    #[must_use]
    pub fn reclaim(
        &mut self,
        session: SessionId,
        leases: &[(Ino, Lease)],
    ) -> (Option<Vec<Grant>>, Vec<Effect>) {
        if !self.unreclaimed.contains(&session) {
            return (Some(self.leases_of(session)), Vec::new());
        }
        let mut effects = self.keep_claimed(session, leases);
        self.said.insert(session);
        if leases.iter().any(|(ino, lease)| self.may_be_free_later(session, *ino, *lease)) {
            return (None, effects);
        }
        let given: Vec<Grant> =
            leases.iter().filter_map(|(ino, lease)| self.reclaim_one(session, *ino, *lease)).collect();
        let inos: Vec<Ino> = given.iter().map(|given| given.ino).collect();
        effects.extend(self.settle(&inos));
        self.has_reclaimed(session);
        effects.extend(self.settle_all_if_open());
        (Some(given), effects)
    }

    /// What rows know of a session counts only as far as it says that it still has it.
    fn keep_claimed(&mut self, session: SessionId, leases: &[(Ino, Lease)]) -> Vec<Effect> {
        let claimed: FxHashMap<Ino, Lease> = leases.iter().copied().collect();
        let known: Vec<Ino> = self.held.get(&session).into_iter().flatten().copied().collect();
        let mut changed = Vec::new();
        for ino in known {
            match claimed.get(&ino) {
                None => self.drop_lease(session, ino),
                Some(Lease::Read) if self.lease(session, ino) == Some(Lease::Write) => {
                    self.drop_lease(session, ino);
                    self.put(session, ino, Lease::Read);
                }
                Some(_) => continue,
            }
            changed.push(ino);
        }
        self.settle(&changed)
    }

    /// Whether what forbids a lease is of a session that has not said yet what it has.
    fn may_be_free_later(&self, session: SessionId, ino: Ino, lease: Lease) -> bool {
        let unsaid = |of: SessionId| self.unreclaimed.contains(&of) && !self.said.contains(&of);
        let is_new_write = lease == Lease::Write && self.lease(session, ino) != Some(Lease::Write);
        !is_new_write && self.nodes.get(&ino).is_some_and(|node| node.forbidding(session, lease).any(unsaid))
    }

    pub(super) fn has_reclaimed(&mut self, session: SessionId) {
        self.unreclaimed.remove(&session);
        self.said.remove(&session);
    }

    fn reclaim_one(&mut self, session: SessionId, ino: Ino, lease: Lease) -> Option<Grant> {
        let known = self.lease(session, ino);
        // A lease to write is in the engine's rows, or was never granted.
        if lease == Lease::Write && known != Some(Lease::Write) {
            return None;
        }
        let forbidden = self.nodes.get(&ino).is_some_and(|node| node.forbids(session, lease));
        (!forbidden).then(|| self.put(session, ino, lease))
    }
}
