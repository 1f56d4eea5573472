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
    jobs::Job,
};
use crate::error::ClientError;

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
                let mut state = self.state.lock();
                let held = state.held.entry((ino, request.space, request.owner)).or_default();
                if !held.handles.contains(&request.fh) {
                    held.handles.push(request.fh);
                }
                Ok(())
            }
            Ok(Answer::Failed(failure)) => Err(failed(failure, ino)),
            Ok(other) => Err(unexpected(&other, ino)),
            Err(error) => Err(error.into()),
        }
    }

    fn is_lost(&self, owner: &Owner) -> bool {
        self.state.lock().held.get(owner).is_some_and(|held| held.lost)
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
        match self.core()?.desk.told(Operation::Unlock(ino, space, owner, range), None)?.answer {
            Answer::Failed(failure) => Err(failed(failure, ino)),
            _ => Ok(()),
        }
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
        let told = self.core().and_then(|core| Ok(core.desk.told(Operation::UnlockHandle(ino, fh), None)?));
        if let Err(error) = told {
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
