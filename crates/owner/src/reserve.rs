//! Room that is set aside for bytes that sessions keep back, where the volume has a limit: what a client has taken in it can commit, whatever others write meanwhile.
//!
//! A client asks by requests that are repeated where their answer was lost, and asks anew where it waits for one no longer: of those of one session the one that came last counts,
//! in whatever order they are carried out.
//!
//! It is in memory alone. A later owner knows nothing of it until clients have said again what they need, which they do once it has greeted them.

use std::sync::atomic::Ordering;

use forebay_cluster::{RequestId, SessionId};
use forebay_protocol::{Answer, Push};
use rustc_hash::FxHashMap;

use crate::{batch::Core, owner::VolumeOwner};

/// Of the room that is free, what one session may have to spare: the more is taken, the less lies idle.
const SPARE_OF_FREE: u64 = 64;

/// How many bytes are set aside for each session.
#[derive(Debug, Default)]
pub(crate) struct Reserved(FxHashMap<SessionId, Share>);

/// What is set aside for a session.
#[derive(Clone, Copy, Debug)]
struct Share {
    bytes: u64,
    /// The request that it was set aside by.
    by: RequestId,
}

impl Reserved {
    /// For others than this one.
    pub(crate) fn for_others(&self, session: SessionId) -> u64 {
        let others = self.0.iter().filter(|(other, _)| **other != session);
        others.fold(0, |sum, (_, share)| sum.saturating_add(share.bytes))
    }

    fn sum(&self) -> u64 {
        self.0.values().fold(0, |sum, share| sum.saturating_add(share.bytes))
    }

    /// For this one.
    pub(crate) fn own(&self, session: SessionId) -> u64 {
        self.0.get(&session).map_or(0, |share| share.bytes)
    }

    /// Sets aside what there is of it, in place of what was, unless that was asked for by a later request. Returns how much is set aside then. What was before and is needed still
    /// stays, whatever is free.
    fn set(&mut self, (session, by): (SessionId, RequestId), (needs, spare): (u64, u64), free: u64) -> u64 {
        let own = self.own(session);
        if self.0.get(&session).is_some_and(|share| share.by > by) {
            return own;
        }
        let given = needs.min(free.max(own));
        let given = given + spare.min(free.saturating_sub(given) / SPARE_OF_FREE);
        self.0.insert(session, Share { bytes: given, by });
        given
    }

    /// A session has committed so many.
    pub(crate) fn spend(&mut self, session: SessionId, bytes: u64) {
        if let Some(share) = self.0.get_mut(&session) {
            share.bytes = share.bytes.saturating_sub(bytes);
        }
    }

    pub(crate) fn forget(&mut self, session: SessionId) {
        self.0.remove(&session);
    }
}

impl Core {
    /// Tells all sessions whether the volume has a limit.
    fn tell_limited(&mut self, limited: bool) {
        self.tell.extend(self.sessions.all().into_iter().map(|session| (session, Push::Limited(limited))));
    }
}

impl VolumeOwner {
    /// How many bytes the files of the volume may have; `None` where there is no limit.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit < u64::MAX)
    }

    /// Sets how many bytes the files of the volume may have; `None` for no limit. What is more already stays. Sessions are told where there was none before, or is none now.
    pub fn set_limit(&self, limit: Option<u64>) {
        let before = self.limit.swap(limit.unwrap_or(u64::MAX), Ordering::Relaxed);
        if (before == u64::MAX) != limit.is_none() {
            self.core.lock().tell_limited(limit.is_some());
            self.tell_all();
        }
    }

    /// How many bytes are set aside, for all sessions.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.core.lock().reserved.sum()
    }

    /// Whether a session has no room to commit so many bytes. What was set aside for it it has, whatever is free.
    pub(crate) fn has_no_room(&self, session: SessionId, bytes: u64) -> bool {
        let Some(limit) = self.limit() else { return false };
        let own = self.core.lock().reserved.own(session);
        bytes > own && bytes > self.free_for(session, limit)
    }

    /// Whether nobody has room for so many bytes more: they are none of those for which it was set aside.
    pub(crate) fn is_too_much(&self, bytes: u64) -> bool {
        let Some(limit) = self.limit() else { return false };
        let reserved = self.reserved();
        bytes > 0 && bytes > limit.saturating_sub(reserved).saturating_sub(self.ns.segment_totals().live)
    }

    /// What is neither used nor set aside for others. What they are committing counts twice meanwhile, and never not at all: it is used before it is spent.
    fn free_for(&self, session: SessionId, limit: u64) -> u64 {
        let others = self.core.lock().reserved.for_others(session);
        limit.saturating_sub(others).saturating_sub(self.ns.segment_totals().live)
    }

    /// [`forebay_protocol::Operation::Reserve`]
    pub(crate) fn reserve(&self, (session, by): (SessionId, RequestId), wanted: (u64, u64)) -> Answer {
        let Some(limit) = self.limit() else { return Answer::Reserved(None) };
        let _one_at_a_time = self.reserving.lock();
        // Not inside: an operation that has its turn looks whether an inode is open.
        let free = self.free_for(session, limit);
        let mut core = self.core.lock();
        match core.sessions.lives(session) {
            true => Answer::Reserved(Some(core.reserved.set((session, by), wanted, free))),
            false => Answer::Reserved(Some(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_requests_the_later_one_counts_whichever_is_carried_out_first() {
        let (mut reserved, session) = (Reserved::default(), SessionId(1));
        let mut set = |by, needs| reserved.set((session, RequestId(by)), (needs, 0), 1000);
        assert_eq!(set(1, 100), 100);
        assert_eq!(set(3, 700), 700);
        assert_eq!(set(2, 300), 700, "what stands is told");
        assert_eq!(set(4, 0), 0);
        assert_eq!(set(3, 700), 0, "also where that is nothing");
        assert_eq!(set(5, 200), 200);
        reserved.forget(session);
        assert_eq!(reserved.sum(), 0);
    }
}
