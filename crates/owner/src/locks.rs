//! Advisory locks of all sessions, as rows `0 k` have them.
//!
//! A request that waits keeps its place. Once nothing is in its way the lock is its own, its session is told, and asks again: that answer says so. A session
//! that does not ask within [`CLAIM_WITHIN`] has given the request up: it has then what it had before. One that waits for long is told now and
//! then, too: who does not ask again leaves its place, so that nobody waits, or is refused, because of a request that nobody remembers.

use std::time::Duration;

use forebay_cluster::{Moment, SessionId};
use forebay_format::{
    key::Key,
    row::Row,
    shared_row::{HeldLock, LocksRow},
};
use forebay_locks::{LockKind, LockRange, LockRequest, LockSpace, Locks, Outcome, Ticket};
use forebay_protocol::{Answer, Failure, Push};
use forebay_types::{Ino, SubvolumeId};
use rustc_hash::FxHashMap;

use crate::batch::Core;

/// How long a lock that was waited for is kept for who does not ask for it.
const CLAIM_WITHIN: Duration = Duration::from_secs(5);
/// After which a session is asked whether it still waits, and after which it does not.
const ASK_AFTER: Duration = Duration::from_secs(30);
const WAITS_FOR: Duration = Duration::from_secs(45);

/// Ranges that a session may have locked on one inode: they are one row. The next lock, or part of one that is given up, is refused.
const RANGES_MAX: usize = 4096;

/// An owner or a handle: its session, and its number there.
type Whose = (SessionId, u64);
type Wanted = LockRequest<Whose>;

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    ino: Ino,
    wanted: Wanted,
    asked: Moment,
}

/// A lock that somebody waited for and has not been told of for certain.
#[derive(Debug)]
struct Reserved {
    ino: Ino,
    wanted: Wanted,
    /// What its owner had there.
    before: Vec<Wanted>,
    since: Moment,
}

/// The locks of a volume.
#[derive(Debug, Default)]
pub(crate) struct SharedLocks {
    rules: Locks<Whose>,
    waiting: FxHashMap<Ticket, Waiting>,
    reserved: Vec<Reserved>,
}

/// Sessions whose locks on an inode have changed without their doing: they are told.
type Woken = Vec<(SessionId, Ino)>;

fn overlap(one: &LockRange, other: &LockRange) -> bool {
    one.start <= other.end && other.start <= one.end
}

impl SharedLocks {
    pub(crate) fn restore(&mut self, session: SessionId, ino: Ino, row: &LocksRow) {
        for held in &row.0 {
            let kind = if held.exclusive { LockKind::Exclusive } else { LockKind::Shared };
            let space = if held.flock { LockSpace::Flock } else { LockSpace::Record };
            let range = LockRange { start: held.start, end: held.end, kind, pid: held.pid };
            let (owner, fh) = ((session, held.owner), (session, held.handle));
            self.rules.restore(ino, LockRequest { space, owner, fh, range });
        }
    }

    fn row(&self, session: SessionId, ino: Ino) -> Option<LocksRow> {
        let held = self.rules.held_on(ino).filter(|held| held.owner.0 == session);
        let rows: Vec<HeldLock> = held
            .map(|held| HeldLock {
                flock: held.space == LockSpace::Flock,
                exclusive: held.range.kind == LockKind::Exclusive,
                owner: held.owner.1,
                handle: held.fh.1,
                start: held.range.start,
                end: held.range.end,
                pid: held.range.pid,
            })
            .collect();
        (!rows.is_empty()).then_some(LocksRow(rows))
    }

    /// Whether a session has as many locks on an inode as it may.
    fn is_full(&self, session: SessionId, ino: Ino) -> bool {
        let held = self.rules.held_on(ino).filter(|held| held.owner.0 == session);
        held.take(RANGES_MAX).count() == RANGES_MAX
    }

    /// Whether this is locked already: it was waited for, or is asked for twice.
    fn has(&self, ino: Ino, wanted: &Wanted) -> bool {
        let covers = |range: &LockRange| {
            range.start <= wanted.range.start
                && range.end >= wanted.range.end
                && range.kind == wanted.range.kind
        };
        let mut held = self.rules.held_on(ino);
        held.any(|held| held.space == wanted.space && held.owner == wanted.owner && covers(&held.range))
    }

    /// Whether one of the owner's locks has something before and after this range.
    fn would_split(&self, ino: Ino, space: LockSpace, owner: Whose, (start, end): (u64, u64)) -> bool {
        let around = |held: &Wanted| held.range.start < start && held.range.end > end;
        let mut held = self.rules.held_on(ino);
        held.any(|held| held.space == space && held.owner == owner && around(held))
    }

    pub(crate) fn conflict(&self, session: SessionId, ino: Ino, request: &LockRequest) -> Option<LockRange> {
        self.rules.conflict(ino, &of(session, request))
    }

    fn set(&mut self, ino: Ino, wanted: Wanted, wait: bool, now: Moment) -> (Outcome, Woken) {
        let waits = self.rules.waiting_on(ino).find(|(_, other)| **other == wanted).map(|(ticket, _)| ticket);
        if let Some(ticket) = waits {
            match self.waiting.get_mut(&ticket) {
                Some(waiting) if wait => {
                    waiting.asked = now;
                    return (Outcome::Waits(ticket), Vec::new());
                }
                _ => self.cancel(ticket),
            }
        }
        self.reserved.retain(|reserved| reserved.ino != ino || reserved.wanted != wanted);
        let (outcome, woken) = self.settling(ino, now, |rules| rules.set(ino, wanted, wait));
        if let Outcome::Waits(ticket) = outcome {
            self.waiting.insert(ticket, Waiting { ino, wanted, asked: now });
        }
        (outcome, woken)
    }

    /// Releases a range. Requests of the same owner that wait there are given up; if they are not, their session asks again.
    fn unlock(&mut self, ino: Ino, space: LockSpace, owner: Whose, range: (u64, u64), now: Moment) -> Woken {
        let whole = LockRange { start: range.0, end: range.1, kind: LockKind::Shared, pid: 0 };
        let own =
            |other: &Wanted| other.space == space && other.owner == owner && overlap(&other.range, &whole);
        let given_up: Vec<Ticket> =
            self.rules.waiting_on(ino).filter(|(_, other)| own(other)).map(|(ticket, _)| ticket).collect();
        self.reserved.retain(|reserved| reserved.ino != ino || !own(&reserved.wanted));
        let mut woken: Woken = given_up.iter().map(|_| (owner.0, ino)).collect();
        given_up.into_iter().for_each(|ticket| self.cancel(ticket));
        woken.extend(self.settling(ino, now, |rules| ((), rules.unlock(ino, space, owner, range))).1);
        woken
    }

    fn unlock_handle(&mut self, ino: Ino, handle: Whose, now: Moment) -> Woken {
        self.settling(ino, now, |rules| ((), rules.release_handle(ino, handle))).1
    }

    /// Does something that may grant requests that wait.
    fn settling<R>(
        &mut self,
        ino: Ino,
        now: Moment,
        work: impl FnOnce(&mut Locks<Whose>) -> (R, Vec<Ticket>),
    ) -> (R, Woken) {
        let others = self.rules.waiting_on(ino).next().is_some();
        let before: Vec<Wanted> =
            if others { self.rules.held_on(ino).copied().collect() } else { Vec::new() };
        let (result, granted) = work(&mut self.rules);
        let mut woken = Vec::new();
        for ticket in granted {
            let Some(Waiting { ino, wanted, .. }) = self.waiting.remove(&ticket) else { continue };
            let own = |held: &&Wanted| {
                held.space == wanted.space
                    && held.owner == wanted.owner
                    && overlap(&held.range, &wanted.range)
            };
            let before = before.iter().filter(own).copied().collect();
            self.reserved.push(Reserved { ino, wanted, before, since: now });
            woken.push((wanted.owner.0, ino));
        }
        (result, woken)
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.rules.cancel(ticket);
        self.waiting.remove(&ticket);
    }

    /// Releases all of a session. Returns the inodes on which it had locks, and who is woken.
    fn end(&mut self, session: SessionId, now: Moment) -> (Vec<Ino>, Woken) {
        let waiting = self.waiting.iter().filter(|(_, waiting)| waiting.wanted.owner.0 == session);
        let waiting: Vec<Ticket> = waiting.map(|(ticket, _)| *ticket).collect();
        waiting.into_iter().for_each(|ticket| self.cancel(ticket));
        self.reserved.retain(|reserved| reserved.wanted.owner.0 != session);
        let held: Vec<(Ino, Wanted)> =
            self.rules.held().filter(|(_, held)| held.owner.0 == session).collect();
        let mut woken = Vec::new();
        for (ino, held) in &held {
            woken.extend(self.unlock(*ino, held.space, held.owner, (held.range.start, held.range.end), now));
        }
        let mut inos: Vec<Ino> = held.into_iter().map(|(ino, _)| ino).collect();
        inos.sort_unstable();
        inos.dedup();
        (inos, woken)
    }

    /// Takes back what was not claimed, and places of requests that are not remembered. The first are sessions to be told, the second those whose locks
    /// changed.
    fn expire(&mut self, now: Moment) -> (Woken, Woken) {
        let (mut tell, mut changed) = (Vec::new(), Vec::new());
        let unclaimed: Vec<Reserved> =
            self.reserved.extract_if(.., |reserved| now.since(reserved.since) >= CLAIM_WITHIN).collect();
        for reserved in unclaimed {
            changed.push((reserved.wanted.owner.0, reserved.ino));
            tell.extend(self.give_back(reserved, now));
        }
        let mut gone = Vec::new();
        for (ticket, Waiting { ino, wanted, asked }) in &self.waiting {
            match now.since(*asked) {
                age if age >= WAITS_FOR => gone.push(*ticket),
                age if age >= ASK_AFTER => tell.push((wanted.owner.0, *ino)),
                _ => {}
            }
        }
        gone.into_iter().for_each(|ticket| self.cancel(ticket));
        changed.extend(tell.iter().copied());
        (tell, changed)
    }

    /// Gives an owner what it had before a lock that it waited for, and did not claim. Nobody else was granted anything there meanwhile, so what it had comes
    /// first, and then the rest goes.
    fn give_back(&mut self, Reserved { ino, wanted, mut before, .. }: Reserved, now: Moment) -> Woken {
        let (mut woken, range) = (Vec::new(), wanted.range);
        let mut free = Some(range.start);
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        before.sort_unstable_by_key(|held| held.range.start);
        for held in before {
            let (start, end) = (held.range.start.max(range.start), held.range.end.min(range.end));
            gaps.extend(free.filter(|free| *free < start).map(|free| (free, start - 1)));
            free = end.checked_add(1);
            let held = LockRequest { range: LockRange { start, end, ..held.range }, ..held };
            woken.extend(self.settling(ino, now, |rules| rules.set(ino, held, false)).1);
        }
        gaps.extend(free.filter(|free| *free <= range.end).map(|free| (free, range.end)));
        for gap in gaps {
            woken.extend(self.unlock(ino, wanted.space, wanted.owner, gap, now));
        }
        woken
    }
}

fn of(session: SessionId, request: &LockRequest) -> Wanted {
    let (owner, fh) = ((session, request.owner), (session, request.fh));
    LockRequest { space: request.space, owner, fh, range: request.range }
}

impl Core {
    /// Sets a lock for a session, or has it wait.
    pub(crate) fn lock(
        &mut self,
        (session, at): (SessionId, SubvolumeId),
        ino: Ino,
        request: &LockRequest,
        wait: bool,
        now: Moment,
    ) -> Answer {
        if request.range.start > request.range.end || !self.sessions.lives(session) {
            return Answer::Failed(Failure::Invalid);
        }
        if self.locks.is_full(session, ino) && !self.locks.has(ino, &of(session, request)) {
            return Answer::Failed(Failure::TooManyLocks);
        }
        let (outcome, woken) = self.locks.set(ino, of(session, request), wait, now);
        // A conversion of a flock lock gives up what there was, also where it fails.
        self.put_locks(session, at, ino);
        self.wake(at, &woken);
        match outcome {
            Outcome::Granted => Answer::Done,
            Outcome::Conflict => Answer::Failed(Failure::WouldBlock),
            Outcome::Deadlock => Answer::Failed(Failure::Deadlock),
            Outcome::Waits(_) => Answer::Waits,
        }
    }

    pub(crate) fn unlock(
        &mut self,
        (session, at): (SessionId, SubvolumeId),
        ino: Ino,
        (space, owner): (LockSpace, u64),
        range: (u64, u64),
        now: Moment,
    ) -> Answer {
        if self.locks.would_split(ino, space, (session, owner), range) && self.locks.is_full(session, ino) {
            return Answer::Failed(Failure::TooManyLocks);
        }
        let woken = self.locks.unlock(ino, space, (session, owner), range, now);
        self.put_locks(session, at, ino);
        self.wake(at, &woken);
        Answer::Done
    }

    pub(crate) fn unlock_handle(
        &mut self,
        (session, at): (SessionId, SubvolumeId),
        ino: Ino,
        handle: u64,
        now: Moment,
    ) {
        let woken = self.locks.unlock_handle(ino, (session, handle), now);
        self.put_locks(session, at, ino);
        self.wake(at, &woken);
    }

    /// Releases the locks of a session that ends.
    pub(crate) fn unlock_all(&mut self, session: SessionId, at: SubvolumeId, now: Moment) {
        let (inos, woken) = self.locks.end(session, now);
        inos.into_iter().for_each(|ino| self.put_locks(session, at, ino));
        self.wake(at, &woken);
    }

    /// Takes back locks that were waited for and are not wanted any more.
    pub(crate) fn expire_locks(&mut self, at: SubvolumeId, now: Moment) {
        let (tell, changed) = self.locks.expire(now);
        changed.into_iter().for_each(|(session, ino)| self.put_locks(session, at, ino));
        self.tell.extend(tell.into_iter().map(|(session, ino)| (session, Push::LockFree { ino })));
    }

    fn wake(&mut self, at: SubvolumeId, woken: &[(SessionId, Ino)]) {
        for (session, ino) in woken {
            self.put_locks(*session, at, *ino);
            self.tell.push((*session, Push::LockFree { ino: *ino }));
        }
    }

    fn put_locks(&mut self, session: SessionId, at: SubvolumeId, ino: Ino) {
        let row = self.locks.row(session, ino).map(|row| row.encode());
        self.locks_in = self.put(&Key::Locks(session.0, at, ino), row);
    }
}
