//! Locks of flock(2) and fcntl(2), which the owner keeps.
//!
//! A lock lives as long as the session. When that ends, others may have had it: whoever held it is told so ([`ClientError::SessionEnded`]) by everything but giving it
//! up, until it has. Those who wait ask again in the next session.

use std::sync::{Arc, Weak};

use forebay_protocol::{Answer, Operation};
use forebay_types::Ino;
use forebay_vfs::{LockRange, LockRequest, LockSpace, LockWaiter, Locks, VfsError};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{
    core::{Core, unexpected},
    desk::Desk,
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

type Owner = (Ino, LockSpace, u64);

#[derive(Default)]
struct State {
    asking: FxHashMap<u64, Asking>,
    /// Whose locks there are, made through which handles, and whether their session is over.
    held: FxHashMap<Owner, Held>,
    /// Files of which the owner is still to hear that locks were given up, how many times, and why it has not. No lock of theirs is asked for meanwhile: it would
    /// be given up with the former ones.
    owed: FxHashMap<Ino, (usize, ClientError)>,
}

#[derive(Default)]
struct Held {
    handles: Vec<u64>,
    lost: bool,
}

/// The locks of one mount of a shared volume.
pub(crate) struct SharedLocks {
    state: Mutex<State>,
    core: Weak<Core>,
}

impl SharedLocks {
    pub(crate) fn new(core: Weak<Core>) -> SharedLocks {
        SharedLocks { state: Mutex::default(), core }
    }

    fn core(&self) -> Result<Arc<Core>, VfsError> {
        self.core.upgrade().ok_or_else(|| ClientError::Closed.into())
    }

    /// The session is over, and all locks with it.
    pub(crate) fn session_over(&self) {
        self.state.lock().held.values_mut().for_each(|held| held.lost = true);
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
            let answer = desk.told(Operation::Lock(ino, request, true), None).map(|told| told.answer);
            let mut state = self.state.lock();
            let Some(asking) = state.asking.get_mut(&unique) else { return };
            if matches!(answer, Ok(Answer::Waits)) && !asking.interrupted {
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
                Ok(Answer::Waits) if interrupted => self.stop_waiting(desk, ino, request),
                answer => self.result(ino, &request, answer),
            };
            return waiter.answer(result);
        }
    }

    /// Asks without waiting, by which the owner forgets that anybody waits. The lock may have become free at this very moment: then the signal came too late.
    fn stop_waiting(&self, desk: &Desk, ino: Ino, request: LockRequest) -> Result<(), VfsError> {
        let answer = desk.told(Operation::Lock(ino, request, false), None).map(|told| told.answer);
        match self.result(ino, &request, answer) {
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
        ino: Ino,
        request: &LockRequest,
        answer: Result<Answer, ClientError>,
    ) -> Result<(), VfsError> {
        match answer {
            Ok(Answer::Done) => {
                self.note_held(ino, request);
                Ok(())
            }
            Ok(Answer::Failed(failure)) => Err(failed(failure, ino)),
            Ok(other) => Err(unexpected(&other, ino)),
            Err(error) => {
                // It may yet be granted, and is to be given up then.
                if matches!(error, ClientError::TimedOut(_) | ClientError::Interrupted) {
                    self.note_held(ino, request);
                }
                Err(error.into())
            }
        }
    }

    fn note_held(&self, ino: Ino, request: &LockRequest) {
        let mut state = self.state.lock();
        let held = state.held.entry((ino, request.space, request.owner)).or_default();
        if !held.handles.contains(&request.fh) {
            held.handles.push(request.fh);
        }
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

    fn is_lost(&self, owner: &Owner) -> bool {
        self.state.lock().held.get(owner).is_some_and(|held| held.lost)
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
        if self.is_lost(&(ino, request.space, request.owner)) {
            return Err(lost());
        }
        match self.core()?.desk.told(Operation::TestLock(ino, *request), None)?.answer {
            Answer::Conflict(range) => Ok(range),
            other => Err(unexpected(&other, ino)),
        }
    }

    fn set(&self, ino: Ino, request: LockRequest, wait: bool, waiter: Box<dyn LockWaiter>) {
        let core = match self.core() {
            Ok(core) if !self.is_lost(&(ino, request.space, request.owner)) => core,
            Ok(_) => return waiter.answer(Err(lost())),
            Err(error) => return waiter.answer(Err(error)),
        };
        let owed = self.state.lock().owed.get(&ino).map(|(_, why)| why.clone());
        if let Some(why) = owed {
            return waiter.answer(Err(why.into()));
        }
        if !wait || waiter.is_interrupted() {
            let answer = core.desk.told(Operation::Lock(ino, request, false), None);
            return waiter.answer(self.result(ino, &request, answer.map(|told| told.answer)));
        }
        let unique = waiter.unique();
        let asking = Asking { ino, request, waiter: Some(waiter), freed: false, interrupted: false };
        self.state.lock().asking.insert(unique, asking);
        self.ask(&core.desk, unique);
    }

    fn unlock(&self, ino: Ino, space: LockSpace, owner: u64, range: (u64, u64)) -> Result<(), VfsError> {
        {
            let mut state = self.state.lock();
            match state.held.get(&(ino, space, owner)) {
                None => return Ok(()),
                Some(held) if held.lost => {
                    // All of it is gone.
                    state.held.remove(&(ino, space, owner));
                    return Ok(());
                }
                Some(_) if range == (0, u64::MAX) => drop(state.held.remove(&(ino, space, owner))),
                Some(_) => {}
            }
        }
        self.give_up(ino, Unlocking::Range(ino, space, owner, range))
    }

    fn release_owner(&self, ino: Ino, space: LockSpace, owner: u64) {
        if let Err(error) = self.unlock(ino, space, owner, (0, u64::MAX)) {
            tracing::warn!(%error, %ino, "the owner was not told that locks are given up");
        }
    }

    fn release_handle(&self, ino: Ino, fh: u64) {
        let through = {
            let mut state = self.state.lock();
            let before = state.held.len();
            let mut through = false;
            state.held.retain(|(of, space, _), held| {
                let touched = *of == ino && *space == LockSpace::Record && held.handles.contains(&fh);
                through |= touched && !held.lost;
                if touched {
                    held.handles.retain(|handle| *handle != fh);
                }
                !(touched && held.handles.is_empty())
            });
            through || state.held.len() != before
        };
        if !through {
            return;
        }
        if let Err(error) = self.give_up(ino, Unlocking::Handle(ino, fh)) {
            tracing::warn!(%error, %ino, "the owner was not told that locks are given up");
        }
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
