//! Work that nobody's request waits for: recalls, and what follows from the session's fate.
//!
//! Recalls and releases of one inode are dealt with one after the other, in their order: a release that comes to the owner after a recall has said that the inode is open
//! again would let it go. Those of different inodes go side by side, each in a thread, so that none waits for
//! another's bytes to be stored. What asks the owner, and may wait there for another client's leases, has few threads: recalls always find one, or two clients would wait
//! for each other.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use forebay_cluster::{Lease, Stamp};
use forebay_types::Ino;
use forebay_vfs::LockSpace;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;

use super::core::Core;

/// Threads at most. Each recall waits for the store at worst; a further one waits for one of these.
const THREADS: usize = 32;
/// Of these, the most that may wait at the owner.
const ASKING: usize = 8;

/// Something to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    Recall {
        ino: Ino,
        keep: Option<Lease>,
        stamp: Stamp,
    },
    /// Bytes were taken without a lease, and one is to be had before they are told.
    Owed(Ino),
    /// Files of immutable trees were closed.
    Seal,
    /// An inode of which the owner was told is not open any more, in the session with this number.
    Release(Ino, u64),
    /// Locks were given up, and the owner could not be told in time.
    Unlock(Ino, Unlocking, u64),
    LockFree(Ino),
    /// Who waits for a lock under this number got a signal.
    Interrupted(u64),
    /// The owner answers again, perhaps in a new session.
    Greeted,
    /// Room is to be set aside for what is kept back.
    Room,
    /// Leases are gone, and what was known under them.
    Lost(Vec<Ino>),
}

/// Locks that are given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unlocking {
    /// Of an owner, in a range.
    Range(Ino, LockSpace, u64, (u64, u64)),
    /// That were made through a handle.
    Handle(Ino, u64),
}

impl Job {
    /// Whether it may wait for as long as other clients have leases, or nobody answers.
    fn asks(&self) -> bool {
        matches!(
            self,
            Job::Owed(_) | Job::Greeted | Job::Room | Job::Seal | Job::Release(..) | Job::Unlock(..)
        )
    }

    /// The inode that only one thread works for at a time.
    fn ino(&self) -> Option<Ino> {
        match self {
            Job::Recall { ino, .. } | Job::Release(ino, _) => Some(*ino),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    busy: FxHashSet<Ino>,
    /// Threads at a job that may wait at the owner.
    asking: usize,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// Jobs, and threads that come when they are needed.
pub(crate) struct Jobs {
    queue: Mutex<Queue>,
    changed: Condvar,
    core: Weak<Core>,
}

impl Jobs {
    pub(crate) fn new(core: Weak<Core>) -> Arc<Jobs> {
        Arc::new(Jobs { queue: Mutex::default(), changed: Condvar::new(), core })
    }

    /// Has a job done. Does not wait.
    pub(crate) fn put(self: &Arc<Self>, job: Job) {
        let mut queue = self.queue.lock();
        // Once is enough: what was taken before it is done has come in by then.
        if queue.closed || matches!(job, Job::Owed(_)) && queue.jobs.contains(&job) {
            return;
        }
        queue.jobs.push_back(job);
        let more = queue.idle < queue.jobs.len() && queue.threads < THREADS;
        if more {
            queue.threads += 1;
        }
        drop(queue);
        self.changed.notify_one();
        if more {
            let jobs = Arc::clone(self);
            let thread = std::thread::Builder::new().name("forebay-recall".to_owned());
            if let Err(error) = thread.spawn(move || jobs.work()) {
                tracing::error!(%error, "no thread for recalls");
                self.queue.lock().threads -= 1;
            }
        }
    }

    /// No more jobs are begun.
    pub(crate) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        queue.jobs.clear();
        drop(queue);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            let free = |job: &Job| {
                job.ino().is_none_or(|ino| !queue.busy.contains(&ino))
                    && (queue.asking < ASKING || !job.asks())
            };
            if let Some(at) = queue.jobs.iter().position(free) {
                let job = queue.jobs.remove(at)?;
                queue.busy.extend(job.ino());
                queue.asking += usize::from(job.asks());
                return Some(job);
            }
            queue.idle += 1;
            self.changed.wait(&mut queue);
            queue.idle -= 1;
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let (ino, asks) = (job.ino(), job.asks());
            match self.core.upgrade() {
                Some(core) => core.work(job),
                None => return,
            }
            if ino.is_none() && !asks {
                continue;
            }
            let mut queue = self.queue.lock();
            queue.asking -= usize::from(asks);
            if let Some(ino) = ino {
                queue.busy.remove(&ino);
            }
            drop(queue);
            self.changed.notify_one();
        }
    }
}
