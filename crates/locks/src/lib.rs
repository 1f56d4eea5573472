//! The rules of advisory locks.
//!
//! Guarantees: no two locks of different owners that are held conflict; an owner's record locks never overlap each other, and neighbours of
//! one kind are one lock; a request that waits does so because of a lock that is held.

use std::{collections::BTreeMap, hash::Hash};

use forebay_types::Ino;
use rustc_hash::{FxHashMap, FxHashSet};

/// Shared or exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    /// Many may hold it.
    Shared,
    /// One may.
    Exclusive,
}

/// Locks of the two spaces do not know of each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockSpace {
    /// Record locks (fcntl).
    Record,
    /// Whole files (flock).
    Flock,
}

/// A lock that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub end: u64,
    /// How.
    pub kind: LockKind,
    /// The process that set it.
    pub pid: u32,
}

/// A lock that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRequest<O = u64> {
    /// Which space.
    pub space: LockSpace,
    /// Whose it will be: locks of one owner do not conflict.
    pub owner: O,
    /// The handle it is asked through.
    pub fh: O,
    /// What is to be locked, and how.
    pub range: LockRange,
}

/// Names a request that waits. Ascending in the order of the requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(u64);

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The lock is held.
    Granted,
    /// Another lock conflicts.
    Conflict,
    /// It would wait for somebody who waits for it.
    Deadlock,
    /// It waits.
    Waits(Ticket),
}

#[derive(Debug)]
struct FileLocks<O> {
    held: Vec<LockRequest<O>>,
    waiting: Vec<Ticket>,
}

impl<O> Default for FileLocks<O> {
    fn default() -> FileLocks<O> {
        FileLocks { held: Vec::new(), waiting: Vec::new() }
    }
}

/// The locks of all inodes. `O` is what owners and handles are known by.
#[derive(Debug)]
pub struct Locks<O = u64> {
    files: FxHashMap<Ino, FileLocks<O>>,
    waiters: BTreeMap<Ticket, (Ino, LockRequest<O>)>,
    next: u64,
}

impl<O> Default for Locks<O> {
    fn default() -> Locks<O> {
        Locks { files: FxHashMap::default(), waiters: BTreeMap::new(), next: 0 }
    }
}

fn overlap(a: &LockRange, b: &LockRange) -> bool {
    a.start <= b.end && b.start <= a.end
}

fn conflicts<O: PartialEq>(held: &LockRequest<O>, wanted: &LockRequest<O>) -> bool {
    held.space == wanted.space
        && held.owner != wanted.owner
        && overlap(&held.range, &wanted.range)
        && (held.range.kind == LockKind::Exclusive || wanted.range.kind == LockKind::Exclusive)
}

impl<O: Copy + Eq + Hash> FileLocks<O> {
    fn blockers<'a>(&'a self, wanted: &'a LockRequest<O>) -> impl Iterator<Item = &'a LockRequest<O>> {
        self.held.iter().filter(move |held| conflicts(held, wanted))
    }

    /// Takes `start..=end` out of what an owner holds. Returns whether there was anything.
    fn cut(&mut self, space: LockSpace, owner: O, (start, end): (u64, u64)) -> bool {
        let own = |held: &LockRequest<O>| {
            held.space == space && held.owner == owner && held.range.start <= end && start <= held.range.end
        };
        if !self.held.iter().any(own) {
            return false;
        }
        let mut kept = Vec::with_capacity(self.held.len() + 1);
        for held in self.held.drain(..) {
            if !own(&held) {
                kept.push(held);
                continue;
            }
            if held.range.start < start {
                kept.push(LockRequest { range: LockRange { end: start - 1, ..held.range }, ..held });
            }
            if held.range.end > end {
                kept.push(LockRequest { range: LockRange { start: end + 1, ..held.range }, ..held });
            }
        }
        self.held = kept;
        true
    }

    /// Makes the lock held, one with its neighbours of the same kind.
    fn hold(&mut self, mut lock: LockRequest<O>) {
        self.cut(lock.space, lock.owner, (lock.range.start, lock.range.end));
        self.held.retain(|held| {
            let same = held.space == lock.space
                && held.owner == lock.owner
                && held.range.kind == lock.range.kind
                && (held.range.end.checked_add(1) == Some(lock.range.start)
                    || lock.range.end.checked_add(1) == Some(held.range.start));
            if same {
                lock.range.start = lock.range.start.min(held.range.start);
                lock.range.end = lock.range.end.max(held.range.end);
            }
            !same
        });
        self.held.push(lock);
    }
}

impl<O: Copy + Eq + Hash> Locks<O> {
    /// Inodes that have locks or requests that wait.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The locks that are held.
    pub fn held(&self) -> impl Iterator<Item = (Ino, LockRequest<O>)> + '_ {
        self.files.iter().flat_map(|(ino, file)| file.held.iter().map(|held| (*ino, *held)))
    }

    /// The locks that are held on an inode.
    pub fn held_on(&self, ino: Ino) -> impl Iterator<Item = &LockRequest<O>> + '_ {
        self.files.get(&ino).into_iter().flat_map(|file| &file.held)
    }

    /// The requests that wait on an inode, in their order.
    pub fn waiting_on(&self, ino: Ino) -> impl Iterator<Item = (Ticket, &LockRequest<O>)> + '_ {
        let tickets = self.files.get(&ino).into_iter().flat_map(|file| &file.waiting);
        tickets.filter_map(|ticket| Some((*ticket, &self.waiters.get(ticket)?.1)))
    }

    /// Puts in place a lock that [`Locks::held`] gave.
    pub fn restore(&mut self, ino: Ino, held: LockRequest<O>) {
        self.files.entry(ino).or_default().held.push(held);
    }

    /// The conflicting lock with the lowest start.
    #[must_use]
    pub fn conflict(&self, ino: Ino, wanted: &LockRequest<O>) -> Option<LockRange> {
        let file = self.files.get(&ino)?;
        file.blockers(wanted).map(|held| held.range).min_by_key(|range| range.start)
    }

    /// Sets a lock, or has it wait. Also returns the requests that are granted by it: a conversion gives something up.
    pub fn set(&mut self, ino: Ino, wanted: LockRequest<O>, wait: bool) -> (Outcome, Vec<Ticket>) {
        let file = self.files.entry(ino).or_default();
        if wanted.space == LockSpace::Flock {
            let mut own =
                file.held.iter_mut().filter(|held| held.space == wanted.space && held.owner == wanted.owner);
            if let Some(held) = own.find(|held| held.range.kind == wanted.range.kind) {
                // An owner's number that the kernel uses again: it is this open file's from now on.
                held.fh = wanted.fh;
                return (Outcome::Granted, Vec::new());
            }
            // flock(2): a conversion first gives up the lock that there is, also where it then fails.
            file.cut(wanted.space, wanted.owner, (0, u64::MAX));
        }
        if file.blockers(&wanted).next().is_none() {
            file.hold(wanted);
            return (Outcome::Granted, self.settle(ino));
        }
        let outcome = match wait {
            false => Outcome::Conflict,
            true if self.would_deadlock(ino, &wanted) => Outcome::Deadlock,
            true => {
                let ticket = Ticket(self.next);
                self.next += 1;
                self.waiters.insert(ticket, (ino, wanted));
                if let Some(file) = self.files.get_mut(&ino) {
                    file.waiting.push(ticket);
                }
                Outcome::Waits(ticket)
            }
        };
        (outcome, self.settle(ino))
    }

    /// Releases bytes `start..=end` of an owner's locks. Returns the requests that are granted by it.
    pub fn unlock(&mut self, ino: Ino, space: LockSpace, owner: O, range: (u64, u64)) -> Vec<Ticket> {
        let cut = self.files.get_mut(&ino).is_some_and(|file| file.cut(space, owner, range));
        if cut { self.settle(ino) } else { Vec::new() }
    }

    /// Releases the whole-file lock that an owner has set through a handle. Returns the requests that are granted by it.
    pub fn release_flock(&mut self, ino: Ino, owner: O, fh: O) -> Vec<Ticket> {
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        file.held.retain(|held| held.space != LockSpace::Flock || held.owner != owner || held.fh != fh);
        self.settle(ino)
    }

    /// Releases the record locks set through a handle. Returns the requests that are granted by it.
    pub fn release_handle(&mut self, ino: Ino, fh: O) -> Vec<Ticket> {
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        file.held.retain(|held| held.space != LockSpace::Record || held.fh != fh);
        self.settle(ino)
    }

    /// A request no longer waits.
    pub fn cancel(&mut self, ticket: Ticket) {
        if let Some((ino, _)) = self.waiters.remove(&ticket) {
            if let Some(file) = self.files.get_mut(&ino) {
                file.waiting.retain(|waiting| *waiting != ticket);
            }
            self.drop_empty(ino);
        }
    }

    /// Grants what waits and conflicts no more, in the order in which it began to wait.
    fn settle(&mut self, ino: Ino) -> Vec<Ticket> {
        let mut granted = Vec::new();
        let Some(file) = self.files.get_mut(&ino) else { return granted };
        loop {
            let ready = file.waiting.iter().enumerate().find_map(|(at, ticket)| {
                let (_, wanted) = self.waiters.get(ticket)?;
                file.blockers(wanted).next().is_none().then_some((at, *ticket))
            });
            let Some((at, ticket)) = ready else { break };
            file.waiting.remove(at);
            if let Some((_, wanted)) = self.waiters.remove(&ticket) {
                file.hold(wanted);
            }
            granted.push(ticket);
        }
        self.drop_empty(ino);
        granted
    }

    fn drop_empty(&mut self, ino: Ino) {
        if self.files.get(&ino).is_some_and(|file| file.held.is_empty() && file.waiting.is_empty()) {
            self.files.remove(&ino);
        }
    }

    /// Whether somebody who stands in the way waits, over however many others, for a lock of this owner. Only record locks: an owner of a
    /// flock lock is not one thread of execution.
    fn would_deadlock(&self, ino: Ino, wanted: &LockRequest<O>) -> bool {
        if wanted.space != LockSpace::Record {
            return false;
        }
        let mut seen = FxHashSet::default();
        let mut next = vec![(ino, *wanted)];
        while let Some((ino, waiting)) = next.pop() {
            let Some(file) = self.files.get(&ino) else { continue };
            for blocker in file.blockers(&waiting) {
                if blocker.owner == wanted.owner {
                    return true;
                }
                if seen.insert(blocker.owner) {
                    let theirs = self.waiters.values().filter(|(_, request)| {
                        request.space == LockSpace::Record && request.owner == blocker.owner
                    });
                    next.extend(theirs);
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
