//! Room that is set aside for bytes that sessions keep back, where the volume has a limit: what a client has taken in it can commit, whatever others write meanwhile.
//!
//! It is in memory alone. A later owner knows nothing of it until clients have said again what they need, which they do once it has greeted them.

use std::sync::atomic::Ordering;

use forebay_cluster::SessionId;
use forebay_protocol::{Answer, Push};
use rustc_hash::FxHashMap;

use crate::{batch::Core, owner::VolumeOwner};

/// Of the room that is free, what one session may have to spare: the more is taken, the less lies idle.
const SPARE_OF_FREE: u64 = 64;

/// How many bytes are set aside for each session.
#[derive(Debug, Default)]
pub(crate) struct Reserved(FxHashMap<SessionId, u64>);

impl Reserved {
    /// For others than this one.
    pub(crate) fn for_others(&self, session: SessionId) -> u64 {
        let others = self.0.iter().filter(|(other, _)| **other != session);
        others.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn sum(&self) -> u64 {
        self.0.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// For this one.
    pub(crate) fn own(&self, session: SessionId) -> u64 {
        self.0.get(&session).copied().unwrap_or_default()
    }

    /// Sets aside what there is of it, in place of what was. Returns how much that is. What was set aside before and is needed still stays, whatever is free.
    fn set(&mut self, session: SessionId, (needs, spare): (u64, u64), free: u64) -> u64 {
        let given = needs.min(free.max(self.own(session)));
        let given = given + spare.min(free.saturating_sub(given) / SPARE_OF_FREE);
        match given {
            0 => self.0.remove(&session),
            given => self.0.insert(session, given),
        };
        given
    }

    /// A session has committed so many.
    pub(crate) fn spend(&mut self, session: SessionId, bytes: u64) {
        if let Some(left) = self.0.get_mut(&session) {
            *left = left.saturating_sub(bytes);
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
    pub(crate) fn reserve(&self, session: SessionId, wanted: (u64, u64)) -> Answer {
        let Some(limit) = self.limit() else { return Answer::Reserved(None) };
        let _one_at_a_time = self.reserving.lock();
        // Not inside: an operation that has its turn looks whether an inode is open.
        let free = self.free_for(session, limit);
        let mut core = self.core.lock();
        match core.sessions.lives(session) {
            true => Answer::Reserved(Some(core.reserved.set(session, wanted, free))),
            false => Answer::Reserved(Some(0)),
        }
    }
}
