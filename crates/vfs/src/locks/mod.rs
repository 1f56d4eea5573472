//! Advisory locks: record locks of fcntl(2), also those of open file descriptions, and whole-file locks of flock(2).
//!
//! [`forebay_locks::Locks`] is the rules, free of input, output and waiting. [`LockTable`] adds those who wait: each is answered once, outside the
//! mutex. A request is granted whenever nothing *held* conflicts, as on Linux; those who wait are granted in the order in which they began.

use std::sync::atomic::{AtomicUsize, Ordering};

pub use forebay_locks::{LockKind, LockRange, LockRequest, LockSpace};
use forebay_locks::{Locks as Rules, Outcome, Ticket};
use forebay_types::Ino;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::{error::VfsError, files::Through};

/// Somebody who asked for a lock and is to be answered, now or later.
pub trait LockWaiter: Send {
    /// Names the request, for [`LockTable::interrupt`].
    fn unique(&self) -> u64;

    /// Whether the caller got a signal already.
    fn is_interrupted(&self) -> bool;

    /// Answers.
    fn answer(self: Box<Self>, result: Result<(), VfsError>);
}

type Waiter = Box<dyn LockWaiter>;

/// Who keeps locks: [`LockTable`], or somebody whom several machines ask.
pub trait Locks: Send + Sync {
    /// The first lock that conflicts with `request`.
    ///
    /// # Errors
    /// Who keeps them cannot be asked.
    fn conflict(&self, ino: Ino, request: &LockRequest) -> Result<Option<LockRange>, VfsError>;

    /// Sets a lock. Where another conflicts, the waiter is answered [`VfsError::Locked`], or, if it waits, once the lock is its own, or
    /// [`VfsError::Deadlock`], or [`VfsError::Interrupted`]. Does not wait itself for a lock that another has.
    fn set(&self, ino: Ino, request: LockRequest, wait: bool, waiter: Box<dyn LockWaiter>);

    /// Releases bytes `start..=end` of an owner's locks.
    ///
    /// # Errors
    /// Who keeps them cannot be told.
    fn unlock(&self, ino: Ino, space: LockSpace, owner: u64, range: (u64, u64)) -> Result<(), VfsError>;

    /// Releases everything of an owner: one of its descriptors of the file was closed.
    fn release_owner(&self, ino: Ino, space: LockSpace, owner: u64);

    /// Releases the whole-file lock that an owner has set through a handle that is now closed. The kernel gives an owner's number to another open file as soon as the
    /// last descriptor is closed, which may be before this is heard: what that one has set through its own handle stays.
    fn release_flock(&self, ino: Ino, owner: u64, fh: u64);

    /// Releases the record locks that were set through a handle that is now closed.
    fn release_handle(&self, ino: Ino, fh: u64);

    /// Refuses what is asked of a file through an open file, or by an owner, whose locks on it were lost and not given up since. Locks that are kept here are not lost.
    ///
    /// # Errors
    /// [`VfsError::Failed`].
    fn refuse_lost(&self, _ino: Ino, _through: Through) -> Result<(), VfsError> {
        Ok(())
    }

    /// The caller of a request got a signal: if it waits here, it no longer does.
    fn interrupt(&self, unique: u64);

    /// Requests that wait.
    fn waiting(&self) -> usize;
}

#[derive(Default)]
struct State {
    locks: Rules,
    waiters: FxHashMap<Ticket, Waiter>,
    tickets: FxHashMap<u64, Ticket>,
}

impl State {
    fn take(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiters.remove(&ticket)?;
        self.tickets.remove(&waiter.unique());
        Some(waiter)
    }

    fn take_all(&mut self, tickets: Vec<Ticket>) -> Vec<Waiter> {
        tickets.into_iter().filter_map(|ticket| self.take(ticket)).collect()
    }
}

/// The locks of all inodes.
#[derive(Default)]
pub struct LockTable {
    state: Mutex<State>,
    /// Inodes with locks: where there are none, closing a file need not look.
    files: AtomicUsize,
}

impl std::fmt::Debug for LockTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockTable").field("files", &self.files).finish_non_exhaustive()
    }
}

fn answer_all(waiters: Vec<Waiter>, result: fn() -> Result<(), VfsError>) {
    waiters.into_iter().for_each(|waiter| waiter.answer(result()));
}

impl Locks for LockTable {
    fn conflict(&self, ino: Ino, request: &LockRequest) -> Result<Option<LockRange>, VfsError> {
        Ok(self.conflict(ino, request))
    }

    fn set(&self, ino: Ino, request: LockRequest, wait: bool, waiter: Waiter) {
        self.set(ino, request, wait, waiter);
    }

    fn unlock(&self, ino: Ino, space: LockSpace, owner: u64, range: (u64, u64)) -> Result<(), VfsError> {
        self.unlock(ino, space, owner, range);
        Ok(())
    }

    fn release_owner(&self, ino: Ino, space: LockSpace, owner: u64) {
        self.release_owner(ino, space, owner);
    }

    fn release_flock(&self, ino: Ino, owner: u64, fh: u64) {
        self.release(|locks| locks.release_flock(ino, owner, fh));
    }

    fn release_handle(&self, ino: Ino, fh: u64) {
        self.release_handle(ino, fh);
    }

    fn interrupt(&self, unique: u64) {
        self.interrupt(unique);
    }

    fn waiting(&self) -> usize {
        self.waiting()
    }
}

impl LockTable {
    /// The first lock that conflicts with `request`.
    #[must_use]
    pub fn conflict(&self, ino: Ino, request: &LockRequest) -> Option<LockRange> {
        self.state.lock().locks.conflict(ino, request)
    }

    /// Sets a lock. Where another conflicts, the waiter is answered [`VfsError::Locked`], or, if it waits, once the lock is its own, or
    /// [`VfsError::Deadlock`], or [`VfsError::Interrupted`].
    pub fn set(&self, ino: Ino, request: LockRequest, wait: bool, waiter: Waiter) {
        let mut state = self.state.lock();
        // Found by an interrupt from here on, which needs the mutex; a signal before it shows in the mark.
        let wait = wait && !waiter.is_interrupted();
        let interrupted = !wait && waiter.is_interrupted();
        let (outcome, woken) = state.locks.set(ino, request, wait);
        let woken = state.take_all(woken);
        let mut answer = None;
        match outcome {
            Outcome::Granted => answer = Some((waiter, Ok(()))),
            Outcome::Conflict if interrupted => answer = Some((waiter, Err(VfsError::Interrupted))),
            Outcome::Conflict => answer = Some((waiter, Err(VfsError::Locked))),
            Outcome::Deadlock => answer = Some((waiter, Err(VfsError::Deadlock))),
            Outcome::Waits(ticket) => {
                state.tickets.insert(waiter.unique(), ticket);
                state.waiters.insert(ticket, waiter);
            }
        }
        self.files.store(state.locks.files(), Ordering::Release);
        drop(state);
        if let Some((waiter, result)) = answer {
            waiter.answer(result);
        }
        answer_all(woken, || Ok(()));
    }

    /// Releases bytes `start..=end` of an owner's locks.
    pub fn unlock(&self, ino: Ino, space: LockSpace, owner: u64, (start, end): (u64, u64)) {
        self.release(|locks| locks.unlock(ino, space, owner, (start, end)));
    }

    /// Releases everything of an owner: one of its descriptors of the file was closed.
    pub fn release_owner(&self, ino: Ino, space: LockSpace, owner: u64) {
        self.release(|locks| locks.unlock(ino, space, owner, (0, u64::MAX)));
    }

    /// Releases the record locks that were set through a handle that is now closed.
    pub fn release_handle(&self, ino: Ino, fh: u64) {
        self.release(|locks| locks.release_handle(ino, fh));
    }

    fn release(&self, release: impl FnOnce(&mut Rules) -> Vec<Ticket>) {
        if self.files.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut state = self.state.lock();
        let woken = release(&mut state.locks);
        let woken = state.take_all(woken);
        self.files.store(state.locks.files(), Ordering::Release);
        drop(state);
        answer_all(woken, || Ok(()));
    }

    /// The caller of a request got a signal: if it waits here, it no longer does.
    pub fn interrupt(&self, unique: u64) {
        let mut state = self.state.lock();
        let Some(ticket) = state.tickets.get(&unique).copied() else { return };
        state.locks.cancel(ticket);
        let waiter = state.take(ticket);
        self.files.store(state.locks.files(), Ordering::Release);
        drop(state);
        answer_all(waiter.into_iter().collect(), || Err(VfsError::Interrupted));
    }

    /// The locks that are held.
    pub(crate) fn held(&self) -> Vec<(Ino, LockRequest)> {
        self.state.lock().locks.held().collect()
    }

    /// Puts in place what [`LockTable::held`] gave.
    pub(crate) fn restore(&self, held: Vec<(Ino, LockRequest)>) {
        let mut state = self.state.lock();
        held.into_iter().for_each(|(ino, lock)| state.locks.restore(ino, lock));
        self.files.store(state.locks.files(), Ordering::Release);
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state.lock().waiters.len()
    }
}

#[cfg(test)]
mod table_tests;
