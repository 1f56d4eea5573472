//! One inode's leases, and the requests that name it.

use forebay_types::Ino;

use super::{Access, Effect, Grant, Lease, RequestId, Stamp};
use crate::SessionId;

/// A session that has a lease.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) session: SessionId,
    pub(super) lease: Lease,
    stamp: Stamp,
    /// What it was told that it may keep at most, where it was.
    told: Option<Option<Lease>>,
}

#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) holders: Vec<Holder>,
    /// Requests that wait or run, in the order of their arrival.
    pub(super) queue: Vec<(RequestId, Access)>,
}

impl Node {
    pub(super) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    pub(super) fn holder(&self, session: SessionId) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.session == session)
    }

    /// Whether another session's lease does not go with this one.
    pub(super) fn forbids(&self, session: SessionId, lease: Lease) -> bool {
        self.forbidding(session, lease).next().is_some()
    }

    /// The other sessions whose leases do not go with this one.
    pub(super) fn forbidding(&self, session: SessionId, lease: Lease) -> impl Iterator<Item = SessionId> {
        let others = self.holders.iter().filter(move |holder| holder.session != session);
        others
            .filter(move |holder| holder.lease.access().conflicts_with(lease.access()))
            .map(|holder| holder.session)
    }

    /// Whether no other session's lease is in the way of a request.
    pub(super) fn leaves_room(&self, session: SessionId, access: Access) -> bool {
        let mut others = self.holders.iter().filter(|holder| holder.session != session);
        others.all(|holder| Some(holder.lease) <= access.leaves())
    }

    /// Whether a session was told to return some of its lease, and has not yet.
    pub(super) fn is_recalled(&self, session: SessionId) -> bool {
        self.holder(session).is_some_and(|holder| holder.told.is_some())
    }

    /// Gives a lease; returns the stronger of this one and what the session had.
    pub(super) fn put(&mut self, session: SessionId, lease: Lease, stamp: Stamp) -> Lease {
        match self.holders.iter_mut().find(|holder| holder.session == session) {
            Some(holder) => {
                holder.lease = holder.lease.max(lease);
                (holder.stamp, holder.told) = (stamp, None);
                holder.lease
            }
            None => {
                self.holders.push(Holder { session, lease, stamp, told: None });
                lease
            }
        }
    }

    /// Takes a lease back, as far as it was returned. Returns whether it was the one with this stamp.
    pub(super) fn returned(&mut self, session: SessionId, stamp: Stamp, kept: Option<Lease>) -> bool {
        let Some(at) =
            self.holders.iter().position(|holder| holder.session == session && holder.stamp == stamp)
        else {
            return false;
        };
        match kept {
            Some(kept) => {
                let holder = &mut self.holders[at];
                holder.lease = holder.lease.min(kept);
                holder.told = holder.told.filter(|told| *told < Some(holder.lease));
            }
            None => drop(self.holders.swap_remove(at)),
        }
        true
    }

    /// Recalls what is in the way of these requests, as far as it was not yet.
    pub(super) fn recall(&mut self, ino: Ino, wanted: &[(SessionId, Access)], effects: &mut Vec<Effect>) {
        for holder in &mut self.holders {
            let others = wanted.iter().filter(|(session, _)| *session != holder.session);
            let Some(access) = others.map(|(_, access)| *access).max() else { continue };
            let keep = access.leaves();
            let told = holder.told.unwrap_or(Some(holder.lease));
            if Some(holder.lease) > keep && told > keep {
                holder.told = Some(keep);
                effects.push(Effect::Recall { session: holder.session, ino, keep, stamp: holder.stamp });
            }
        }
    }

    pub(super) fn grant(&self, session: SessionId, ino: Ino) -> Option<Grant> {
        self.holder(session).map(|holder| Grant { ino, lease: holder.lease, stamp: holder.stamp })
    }

    /// What a session was told and has not done.
    pub(super) fn outstanding(&self, session: SessionId, ino: Ino) -> Option<Effect> {
        let holder = self.holder(session)?;
        let keep = holder.told?;
        Some(Effect::Recall { session, ino, keep, stamp: holder.stamp })
    }
}
