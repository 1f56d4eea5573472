//! Locks of flock(2) and fcntl(2), which the owner keeps.
//!
//! A lock lives as long as the session. When that ends, others may have had it: whoever held it is told so ([`ClientError::SessionEnded`]) by everything but giving it
//! up, until it has: also by reads and writes through the open file that it was made through, for what was read under it may be old by then. Those who wait ask
//! again in the next session.
//!
//! Guarantee: what changes the file through such an open file is carried out in the session of the lock, or not at all ([`SharedLocks::held`]).

use std::sync::{
    Arc, Weak,
    atomic::{AtomicUsize, Ordering},
};

use forebay_protocol::{Answer, Operation};
use forebay_types::Ino;
use forebay_vfs::{LockRange, LockRequest, LockSpace, LockWaiter, Locks, Through, VfsError};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    core::{Core, unexpected},
    desk::{Desk, Told},
    errors::failed,
    jobs::{Job, Unlocking},
};
use crate::{asks::Asks, error::ClientError};

/// Somebody who asks for a lock.
struct Asking {
    ino: Ino,
    request: LockRequest,
    /// `None` while the owner is being asked.
    waiter: Option<Box<dyn LockWaiter>>,
    /// The lock may have become free since it was asked for.
    freed: bool,
    /// The caller got a signal.
    interrupted: bool,
}

/// Whose locks they are, of those of an inode.
type Owner = (LockSpace, u64);

#[derive(Default)]
struct State {
    asking: FxHashMap<u64, Asking>,
    held: FxHashMap<Ino, FxHashMap<Owner, Held>>,
    /// Files of which the owner is still to hear that locks were given up, how many times, and why it has not. No lock of theirs is asked for meanwhile: it would
    /// be given up with the former ones.
    owed: FxHashMap<Ino, (usize, ClientError)>,
}

/// Locks of one owner on an inode, or what is left of them.
struct Held {
    /// Through which they were made.
    handles: Vec<u64>,
    /// First and last bytes of what is locked; none overlaps another. Empty once all was unlocked.
    ranges: Vec<(u64, u64)>,
    /// The session that has them: if it is not the present one, they are lost.
    session: u64,
}

impl Held {
    /// The session that has locks, if there are any.
    fn in_session(&self) -> Option<u64> {
        (!self.ranges.is_empty()).then_some(self.session)
    }

    fn cut(&mut self, (start, end): (u64, u64)) {
        let outside = |&(from, to): &(u64, u64)| {
            let before = (from < start).then(|| (from, to.min(start - 1)));
            let after = (to > end).then(|| (from.max(end + 1), to));
            before.into_iter().chain(after)
        };
        self.ranges = self.ranges.iter().flat_map(outside).collect();
    }

    fn add(&mut self, range: (u64, u64), session: u64) {
        // Of several sessions, the first one: what it had is lost.
        self.session = self.in_session().map_or(session, |of| of.min(session));
        self.cut(range);
        self.ranges.push(range);
    }
}

impl State {
    /// Takes out what an owner holds.
    fn take(&mut self, ino: Ino, owner: Owner) -> Option<Held> {
        let owners = self.held.get_mut(&ino)?;
        let held = owners.remove(&owner);
        if owners.is_empty() {
            self.held.remove(&ino);
        }
        held
    }
}

/// The locks of one mount of a shared volume.
pub(crate) struct SharedLocks {
    state: Mutex<State>,
    /// Inodes that are locked: where there are none, who reads and writes need not look.
    locked: AtomicUsize,
    core: Weak<Core>,
}

impl SharedLocks {
    pub(crate) fn new(core: Weak<Core>) -> SharedLocks {
        SharedLocks { state: Mutex::default(), locked: AtomicUsize::new(0), core }
    }

    fn core(&self) -> Result<Arc<Core>, VfsError> {
        self.core.upgrade().ok_or_else(|| ClientError::Closed.into())
    }

    /// The session in which an inode is locked through an open file, or by this owner; `None` if it is not. To change the inode is the caller's right in no later one: so
    /// he asks when he has the right to write, which belongs to a session, or has the owner carry out what he wants in this one alone.
    ///
    /// # Errors
    /// [`ClientError::SessionEnded`]: the lock was lost, and not given up since.
    pub(crate) fn held(&self, desk: &Desk, ino: Ino, through: Through) -> Result<Option<u64>, VfsError> {
        if self.locked.load(Ordering::Acquire) == 0 {
            return Ok(None);
        }
        let session = {
            let state = self.state.lock();
            let by = |((space, owner), held): &(&Owner, &Held)| {
                held.handles.contains(&through.fh)
                    || *space == LockSpace::Record && through.lock_owner == Some(*owner)
            };
            let owners = state.held.get(&ino).into_iter().flatten();
            owners.filter(by).filter_map(|(_, held)| held.in_session()).min()
        };
        match session {
            Some(session) if session != desk.link.number() => Err(lost()),
            session => Ok(session),
        }
    }

    /// A lock may be free: those who wait for one of this inode ask again, in their order.
    pub(crate) fn free(&self, desk: &Desk, ino: Ino) {
        let mut waiting: Vec<u64> = {
            let mut state = self.state.lock();
            let of_ino = state.asking.iter_mut().filter(|(_, asking)| asking.ino == ino);
            of_ino
                .map(|(unique, asking)| {
                    asking.freed = true;
                    *unique
                })
                .collect()
        };
        waiting.sort_unstable();
        waiting.into_iter().for_each(|unique| self.ask(desk, unique));
    }

    /// All who wait ask again.
    pub(crate) fn ask_again(&self, desk: &Desk) {
        let mut inos: Vec<Ino> = self.state.lock().asking.values().map(|asking| asking.ino).collect();
        inos.sort_unstable();
        inos.dedup();
        inos.into_iter().for_each(|ino| self.free(desk, ino));
    }

    /// Asks for who waits, as long as the lock may have become free meanwhile.
    fn ask(&self, desk: &Desk, unique: u64) {
        loop {
            let (ino, request, waiter) = {
                let mut state = self.state.lock();
                let Some(asking) = state.asking.get_mut(&unique) else { return };
                // Somebody is asking for it already, and sees the mark.
                let Some(waiter) = asking.waiter.take() else { return };
                asking.freed = false;
                (asking.ino, asking.request, waiter)
            };
            let (before, answer) = self.ask_owner(desk, ino, request, true);
            let mut state = self.state.lock();
            let Some(asking) = state.asking.get_mut(&unique) else { return };
            if matches!(&answer, Ok(told) if told.answer == Answer::Waits) && !asking.interrupted {
                asking.waiter = Some(waiter);
                if asking.freed {
                    continue;
                }
                return;
            }
            let interrupted = asking.interrupted;
            state.asking.remove(&unique);
            drop(state);
            let result = match answer {
                Ok(told) if told.answer == Answer::Waits && interrupted => {
                    self.stop_waiting(desk, ino, request)
                }
                answer => self.result(desk, (ino, &request), before, answer),
            };
            return waiter.answer(result);
        }
    }

    /// Also says in which session it was asked at the earliest.
    fn ask_owner(
        &self,
        desk: &Desk,
        ino: Ino,
        request: LockRequest,
        wait: bool,
    ) -> (u64, Result<Told, ClientError>) {
        let before = desk.link.number();
        (before, desk.told(Operation::Lock(ino, request, wait), None))
    }

    /// Asks without waiting, by which the owner forgets that anybody waits. The lock may have become free at this very moment: then the signal came too late.
    fn stop_waiting(&self, desk: &Desk, ino: Ino, request: LockRequest) -> Result<(), VfsError> {
        let (before, answer) = self.ask_owner(desk, ino, request, false);
        match self.result(desk, (ino, &request), before, answer) {
            Err(VfsError::Locked) => Err(VfsError::Interrupted),
            other => other,
        }
    }

    /// Who waits under this number got a signal.
    pub(crate) fn interrupted(&self, desk: &Desk, unique: u64) {
        let asking = {
            let mut state = self.state.lock();
            match state.asking.get_mut(&unique) {
                None => return,
                // The owner is being asked: whoever asks sees to it.
                Some(asking) if asking.waiter.is_none() => {
                    asking.interrupted = true;
                    return;
                }
                Some(_) => state.asking.remove(&unique),
            }
        };
        if let Some(Asking { ino, request, waiter: Some(waiter), .. }) = asking {
            waiter.answer(self.stop_waiting(desk, ino, request));
        }
    }

    fn result(
        &self,
        desk: &Desk,
        (ino, request): (Ino, &LockRequest),
        before: u64,
        answer: Result<Told, ClientError>,
    ) -> Result<(), VfsError> {
        match answer {
            Ok(Told { answer: Answer::Done, session, .. }) => {
                // It went with its session before anybody here knew of it.
                if session != desk.link.number() {
                    return Err(lost());
                }
                self.note_held(ino, request, session);
                Ok(())
            }
            Ok(Told { answer: Answer::Failed(failure), .. }) => Err(failed(failure, ino)),
            Ok(other) => Err(unexpected(&other.answer, ino)),
            Err(error) => {
                // It may yet be granted, and is to be given up then.
                if matches!(error, ClientError::TimedOut(_) | ClientError::Interrupted) {
                    self.note_held(ino, request, before);
                }
                Err(error.into())
            }
        }
    }

    fn note_held(&self, ino: Ino, request: &LockRequest, session: u64) {
        let mut state = self.state.lock();
        let owners = state.held.entry(ino).or_default();
        let first = || Held { handles: Vec::new(), ranges: Vec::new(), session };
        let held = owners.entry((request.space, request.owner)).or_insert_with(first);
        if !held.handles.contains(&request.fh) {
            held.handles.push(request.fh);
        }
        held.add((request.range.start, request.range.end), session);
        self.locked.store(state.held.len(), Ordering::Release);
    }

    /// Tells the owner that locks are given up. If nobody answers in time, the caller hears so, and the owner hears of it as long as the session lives.
    fn give_up(&self, ino: Ino, what: Unlocking) -> Result<(), VfsError> {
        let core = self.core()?;
        let session = core.desk.link.number();
        match core.desk.told(what.operation(), None) {
            Ok(told) => match told.answer {
                Answer::Failed(failure) => Err(failed(failure, ino)),
                _ => Ok(()),
            },
            Err(error) => {
                if matches!(error, ClientError::TimedOut(_) | ClientError::Interrupted) {
                    self.state.lock().owed.entry(ino).or_insert_with(|| (0, error.clone())).0 += 1;
                    core.jobs.put(Job::Unlock(ino, what, session));
                }
                Err(error.into())
            }
        }
    }

    /// The same, with all patience, but not in another session: that has none of these locks.
    pub(crate) fn unlock_later(&self, desk: &Desk, ino: Ino, what: &Unlocking, session: u64) {
        if let Err(error) = desk.ask_in(session, what.operation(), None) {
            tracing::debug!(%error, %ino, "locks went with their session");
        }
        let mut state = self.state.lock();
        if let Some((times, _)) = state.owed.get_mut(&ino) {
            *times -= 1;
            if *times == 0 {
                state.owed.remove(&ino);
            }
        }
    }

    fn is_lost(&self, desk: &Desk, ino: Ino, owner: Owner) -> bool {
        let session = desk.link.number();
        let state = self.state.lock();
        let held = state.held.get(&ino).and_then(|owners| owners.get(&owner));
        held.and_then(Held::in_session).is_some_and(|of| of != session)
    }
}

impl Unlocking {
    fn operation(&self) -> Operation {
        match *self {
            Unlocking::Range(ino, space, owner, range) => Operation::Unlock(ino, space, owner, range),
            Unlocking::Handle(ino, handle) => Operation::UnlockHandle(ino, handle),
        }
    }
}

fn lost() -> VfsError {
    ClientError::SessionEnded.into()
}

impl Locks for SharedLocks {
    fn conflict(&self, ino: Ino, request: &LockRequest) -> Result<Option<LockRange>, VfsError> {
        let core = self.core()?;
        if self.is_lost(&core.desk, ino, (request.space, request.owner)) {
            return Err(lost());
        }
        match core.desk.told(Operation::TestLock(ino, *request), None)?.answer {
            Answer::Conflict(range) => Ok(range),
            other => Err(unexpected(&other, ino)),
        }
    }

    fn set(&self, ino: Ino, request: LockRequest, wait: bool, waiter: Box<dyn LockWaiter>) {
        let core = match self.core() {
            Ok(core) if !self.is_lost(&core.desk, ino, (request.space, request.owner)) => core,
            Ok(_) => return waiter.answer(Err(lost())),
            Err(error) => return waiter.answer(Err(error)),
        };
        let owed = self.state.lock().owed.get(&ino).map(|(_, why)| why.clone());
        if let Some(why) = owed {
            return waiter.answer(Err(why.into()));
        }
        if !wait || waiter.is_interrupted() {
            let (before, answer) = self.ask_owner(&core.desk, ino, request, false);
            return waiter.answer(self.result(&core.desk, (ino, &request), before, answer));
        }
        let unique = waiter.unique();
        let asking = Asking { ino, request, waiter: Some(waiter), freed: false, interrupted: false };
        self.state.lock().asking.insert(unique, asking);
        self.ask(&core.desk, unique);
    }

    fn unlock(&self, ino: Ino, space: LockSpace, owner: u64, range: (u64, u64)) -> Result<(), VfsError> {
        let present = self.core()?.desk.link.number();
        {
            let mut state = self.state.lock();
            let held = state.held.get_mut(&ino).and_then(|owners| owners.get_mut(&(space, owner)));
            let Some(held) = held else { return Ok(()) };
            let lost = held.session != present;
            held.cut(range);
            // Of what is lost, all is gone.
            if lost || range == (0, u64::MAX) {
                state.take(ino, (space, owner));
                self.locked.store(state.held.len(), Ordering::Release);
            }
            if lost {
                return Ok(());
            }
        }
        self.give_up(ino, Unlocking::Range(ino, space, owner, range))
    }

    fn release_owner(&self, ino: Ino, space: LockSpace, owner: u64) {
        if let Err(error) = self.unlock(ino, space, owner, (0, u64::MAX)) {
            tracing::warn!(%error, %ino, "the owner was not told that locks are given up");
        }
    }

    fn release_flock(&self, ino: Ino, owner: u64, fh: u64) {
        let is_others = {
            let mut state = self.state.lock();
            let held = state.held.get_mut(&ino).and_then(|owners| owners.get_mut(&(LockSpace::Flock, owner)));
            held.is_some_and(|held| {
                held.handles.retain(|handle| *handle != fh);
                !held.handles.is_empty()
            })
        };
        if !is_others {
            self.release_owner(ino, LockSpace::Flock, owner);
        }
    }

    fn release_handle(&self, ino: Ino, fh: u64) {
        let through = {
            let mut state = self.state.lock();
            let Some(owners) = state.held.get_mut(&ino) else { return };
            let mut through = false;
            owners.retain(|(space, _), held| {
                let touched = *space == LockSpace::Record && held.handles.contains(&fh);
                through |= touched;
                if touched {
                    held.handles.retain(|handle| *handle != fh);
                }
                !(touched && held.handles.is_empty())
            });
            if owners.is_empty() {
                state.held.remove(&ino);
            }
            self.locked.store(state.held.len(), Ordering::Release);
            through
        };
        if !through {
            return;
        }
        if let Err(error) = self.give_up(ino, Unlocking::Handle(ino, fh)) {
            tracing::warn!(%error, %ino, "the owner was not told that locks are given up");
        }
    }

    fn refuse_lost(&self, ino: Ino, through: Through) -> Result<(), VfsError> {
        self.held(&self.core()?.desk, ino, through).map(drop)
    }

    fn interrupt(&self, unique: u64) {
        if let Ok(core) = self.core() {
            core.jobs.put(Job::Interrupted(unique));
        }
    }

    fn waiting(&self) -> usize {
        self.state.lock().asking.len()
    }
}
