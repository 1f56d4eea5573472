//! What the next batch of the engine will have besides the namespace's rows, and who waits for it.

use std::{collections::BTreeMap, sync::Arc};

use forebay_cluster::{Grant, Lease, LeaseTable, Moment, Ownership, RequestId, SessionId, Sessions, Stamp};
use forebay_format::{
    key::Key,
    row::{ObjectRef, Row},
    shared_row::RetryRow,
};
use forebay_group::Recovery;
use forebay_types::{Ino, SegmentId, SubvolumeId};
use rustc_hash::{FxHashMap, FxHashSet};

use forebay_protocol::{Push, Refusal, Request, Response, Rights};

use crate::{
    ahead::GivenRuns, keeping::Reports, locks::SharedLocks, numbers::Given, offers::Groups, opens::Opens,
    policies::Policies, request::Reply, reserve::Reserved, sets::Sets, unread::Unread,
};

/// The number of a batch: they are committed one after the other.
pub(crate) type BatchNumber = u64;

/// Rows to be put or deleted.
pub(crate) type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A request that was taken in.
pub(crate) struct Pending {
    pub(crate) request: Arc<Request>,
    pub(crate) needs: Vec<forebay_cluster::Need>,
    /// Of a listing with inodes: those that others write have been asked for.
    pub(crate) listed: bool,
    pub(crate) reply: Reply,
}

/// An answer as slots keep it: its bytes, and the batch it is in.
pub(crate) type Kept = (Arc<[u8]>, BatchNumber);

/// What an owner keeps in memory besides the namespace, under one lock that is never held while the engine or a client is waited for.
pub(crate) struct Core {
    pub(crate) ownership: Ownership,
    pub(crate) sessions: Sessions<Kept>,
    pub(crate) table: LeaseTable,
    pub(crate) requests: FxHashMap<RequestId, Pending>,
    pub(crate) next_request: u64,
    /// Requests that look something up while that may not be told: they run after the next batch.
    pub(crate) late: Vec<RequestId>,
    /// The batch that collects, and the last one that is committed.
    pub(crate) open: BatchNumber,
    pub(crate) committed: BatchNumber,
    /// The last batch with rows of leases to write.
    pub(crate) leases_in: BatchNumber,
    /// Rows of the batch that collects.
    pub(crate) rows: Rows,
    /// The batch that has the last change of an inode, while it is not committed.
    pub(crate) changed: FxHashMap<Ino, BatchNumber>,
    pub(crate) held_back: Vec<HeldBack>,
    /// The last batch, where nobody can tell whether it was committed.
    pub(crate) unsettled: Option<BatchNumber>,
    /// Sessions whose end is in a batch that is not committed.
    pub(crate) ending: Vec<(BatchNumber, SessionId)>,
    /// Whether the namespace has records for the batch that collects.
    pub(crate) dirty: bool,
    pub(crate) over: bool,
    pub(crate) stops: bool,
    /// What the sessions that live may.
    pub(crate) rights: FxHashMap<SessionId, Rights>,
    /// The tokens by which they began, of those that did by one.
    pub(crate) tokens: FxHashMap<SessionId, u64>,
    /// Up to when sessions were given back the time in which they could not be heard.
    pub(crate) deaf_noted: Moment,
    /// Which grant of a lease was recalled and not returned since, and when it was first told.
    pub(crate) recalled: FxHashMap<(SessionId, Ino), (Stamp, Moment)>,
    pub(crate) given: Given,
    pub(crate) runs: GivenRuns,
    pub(crate) reserved: Reserved,
    pub(crate) opens: Opens,
    pub(crate) locks: SharedLocks,
    /// The last batch with rows of locks.
    pub(crate) locks_in: BatchNumber,
    pub(crate) sets: Sets,
    /// The last batch with rows of sets.
    pub(crate) sets_in: BatchNumber,
    pub(crate) policies: Policies,
    /// Sessions that may change policies: a server began them for that.
    pub(crate) administer: FxHashSet<SessionId>,
    pub(crate) groups: Groups,
    /// What members say of the policies.
    pub(crate) kept: Reports,
    /// Of what they cannot be told what is wanted.
    pub(crate) unread: Unread,
    /// Segments that are open and whose writer has ended.
    pub(crate) recoveries: BTreeMap<SegmentId, Recovery>,
    /// What sessions are to be told once nothing is locked here.
    pub(crate) tell: Vec<(SessionId, Push)>,
    /// Objects to be deleted, and when this owner first saw them.
    pub(crate) garbage_since: FxHashMap<ObjectRef, Moment>,
}

/// A response that waits for a batch.
pub(crate) struct HeldBack {
    pub(crate) batch: BatchNumber,
    pub(crate) reply: Reply,
    pub(crate) response: Result<Response, Refusal>,
}

impl Core {
    /// Whether something is to be committed, or waits for the next batch: where batches do not renew the ownership, in vain before it is renewed.
    pub(crate) fn has_work(&self, now: Moment) -> bool {
        let late = || {
            !self.late.is_empty()
                && (!self.ownership.is_renewed_by_beats() || self.ownership.may_look_up(now))
        };
        self.dirty || !self.rows.is_empty() || late()
    }

    /// Whether the committing thread has anything to do: the ownership may have to be renewed, and who stops commits what is left.
    pub(crate) fn wants_batch(&self, now: Moment) -> bool {
        self.stops || self.has_work(now) || self.ownership.beat_at().is_some_and(|at| at <= now)
    }

    /// Puts a row into the batch that collects, and returns its number.
    pub(crate) fn put(&mut self, key: &Key, value: Option<Vec<u8>>) -> BatchNumber {
        self.rows.insert(key.encode(), value);
        self.open
    }

    /// Puts rows for the leases to write that have changed.
    pub(crate) fn put_leases(&mut self, at: SubvolumeId) {
        for (session, ino, given) in self.table.take_write_changes() {
            self.leases_in = self.put(&Key::WriteLease(session.0, at, ino), given.then(Vec::new));
        }
    }

    /// The batch that an answer with these leases has to wait for: one to write counts only with its row, also if it was given before.
    pub(crate) fn batch_of(&self, grants: &[Grant]) -> BatchNumber {
        if grants.iter().any(|grant| grant.lease == Lease::Write) { self.leases_in } else { 0 }
    }

    /// Keeps the answer of a slot.
    pub(crate) fn keep_answer(&mut self, request: &Request, answer: &[u8]) {
        let Some((slot, number)) = request.slot else { return };
        let row = RetryRow { number, answer: answer.to_vec() };
        let batch = self.put(&Key::Retry(request.session.0, slot.0), Some(row.encode()));
        self.sessions.answered(request.session, slot, (answer.into(), batch));
    }

    /// Ends a session in the batch that collects.
    pub(crate) fn end_session(&mut self, session: SessionId, at: SubvolumeId, now: Moment) {
        for slot in self.sessions.slots(session) {
            self.put(&Key::Retry(session.0, slot.0), None);
        }
        for grant in self.table.leases_of(session) {
            if grant.lease == Lease::Write {
                self.put(&Key::WriteLease(session.0, at, grant.ino), None);
            }
        }
        self.release_all(session, at);
        self.unlock_all(session, at, now);
        self.end_sets(session);
        self.rights.remove(&session);
        self.tokens.remove(&session);
        self.administer.remove(&session);
        self.groups.speakers.remove(&session);
        self.runs.forget(session);
        self.reserved.forget(session);
        let batch = self.put(&Key::Session(session.0), None);
        self.sessions.end(session);
        self.ending.push((batch, session));
    }

    /// Gives sessions back the time for which they were refused before anybody heard of them. Called before the ownership is renewed, and before sessions are ended.
    pub(crate) fn note_deafness(&mut self, now: Moment) {
        let Some(until) = self.ownership.serves_until() else { return };
        let deaf = now.since(until.max(self.deaf_noted));
        if !deaf.is_zero() {
            self.deaf_noted = now;
            self.sessions.was_deaf(deaf, now);
            self.recalled.values_mut().for_each(|(_, since)| *since = *since + deaf);
        }
    }

    /// Whether committing is given up: it is over, or the owner is to stop and has not been able to commit for so long that it may not answer anyway.
    pub(crate) fn stops_in_vain(&self, now: Moment) -> bool {
        self.over || self.stops && !self.ownership.may_look_up(now)
    }

    /// The batch that a look at these inodes has to wait for: the last one with a change of any.
    pub(crate) fn last_change(&self, inos: impl Iterator<Item = Ino>) -> BatchNumber {
        inos.filter_map(|ino| self.changed.get(&ino)).copied().max().unwrap_or(0)
    }

    /// Takes the responses that waited for what is committed now.
    pub(crate) fn take_ready(&mut self) -> Vec<HeldBack> {
        let committed = self.committed;
        self.changed.retain(|_, batch| *batch > committed);
        self.held_back.extract_if(.., |held| held.batch <= committed).collect()
    }
}
