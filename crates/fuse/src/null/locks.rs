//! POSIX and flock locks in memory, with waiters.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;

use crate::errno::Errno;
use crate::lock_reply::LockReply;
use crate::types::{Lock, LockKind, LockRange};

#[derive(Debug)]
struct Waiter {
    lock: Lock,
    reply: LockReply,
}

/// The locks of one inode.
#[derive(Debug, Default)]
struct Table {
    held: Vec<Lock>,
    waiting: VecDeque<Waiter>,
}

/// The locks of all inodes. Replies are sent with the mutex released.
#[derive(Debug, Default)]
pub(super) struct LockTables {
    tables: Mutex<HashMap<u64, Table>>,
}

fn overlaps(a: &LockRange, b: &LockRange) -> bool {
    a.start <= b.end && b.start <= a.end
}

impl Table {
    fn conflict(&self, lock: &Lock) -> Option<LockRange> {
        let conflicts = |held: &&Lock| {
            held.flock == lock.flock
                && held.owner != lock.owner
                && overlaps(&held.range, &lock.range)
                && (held.range.kind == LockKind::Write || lock.range.kind == LockKind::Write)
        };
        if lock.range.kind == LockKind::Unlock {
            return None;
        }
        self.held.iter().find(conflicts).map(|held| held.range)
    }

    /// Takes the range out of what the owner holds, and adds the lock unless it is a release.
    fn apply(&mut self, lock: &Lock) {
        let mut kept = Vec::with_capacity(self.held.len() + 2);
        for held in self.held.drain(..) {
            let own = held.flock == lock.flock && held.owner == lock.owner;
            if !own || !overlaps(&held.range, &lock.range) {
                kept.push(held);
                continue;
            }
            if held.range.start < lock.range.start {
                kept.push(Lock { range: LockRange { end: lock.range.start - 1, ..held.range }, ..held });
            }
            if held.range.end > lock.range.end {
                kept.push(Lock { range: LockRange { start: lock.range.end + 1, ..held.range }, ..held });
            }
        }
        if lock.range.kind != LockKind::Unlock {
            kept.push(*lock);
        }
        self.held = kept;
    }

    /// Grants what waits and conflicts no more, first come first served.
    fn grant(&mut self) -> Vec<LockReply> {
        let mut granted = Vec::new();
        let mut still = VecDeque::with_capacity(self.waiting.len());
        while let Some(waiter) = self.waiting.pop_front() {
            if self.conflict(&waiter.lock).is_some() {
                still.push_back(waiter);
            } else {
                self.apply(&waiter.lock);
                granted.push(waiter.reply);
            }
        }
        self.waiting = still;
        granted
    }
}

impl LockTables {
    pub(super) fn conflict(&self, ino: u64, lock: &Lock) -> LockRange {
        let none = LockRange { kind: LockKind::Unlock, ..lock.range };
        self.tables.lock().get(&ino).and_then(|table| table.conflict(lock)).unwrap_or(none)
    }

    pub(super) fn set(&self, ino: u64, lock: &Lock, wait: bool, reply: LockReply) {
        let mut tables = self.tables.lock();
        let table = tables.entry(ino).or_default();
        if table.conflict(lock).is_none() {
            table.apply(lock);
            let granted = table.grant();
            drop(tables);
            reply.answer(Ok(()));
            granted.into_iter().for_each(|reply| reply.answer(Ok(())));
        } else if !wait {
            drop(tables);
            reply.answer(Err(Errno::EAGAIN));
        } else if reply.is_interrupted() {
            drop(tables);
            reply.answer(Err(Errno::EINTR));
        } else {
            // An interrupt from here on finds it: it needs the mutex.
            table.waiting.push_back(Waiter { lock: *lock, reply });
        }
    }

    /// Drops all locks of one owner.
    pub(super) fn release(&self, ino: u64, owner: u64, flock: bool) {
        let mut tables = self.tables.lock();
        let Some(table) = tables.get_mut(&ino) else { return };
        table.held.retain(|held| held.owner != owner || held.flock != flock);
        let granted = table.grant();
        if table.held.is_empty() && table.waiting.is_empty() {
            tables.remove(&ino);
        }
        drop(tables);
        granted.into_iter().for_each(|reply| reply.answer(Ok(())));
    }

    pub(super) fn interrupt(&self, unique: u64) {
        let mut tables = self.tables.lock();
        let found = tables.values_mut().find_map(|table| {
            let at = table.waiting.iter().position(|waiter| waiter.reply.unique() == unique)?;
            table.waiting.remove(at)
        });
        drop(tables);
        if let Some(waiter) = found {
            waiter.reply.answer(Err(Errno::EINTR));
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.tables.lock().values().map(|table| table.waiting.len()).sum()
    }
}
