//! Work that nobody's request waits for: recalls, and what follows from the session's fate.
//!
//! Recalls of one inode are dealt with one after the other, in their order; those of different inodes side by side, each in a thread, so that none waits for
//! another's bytes to be stored.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use forebay_cluster::{Lease, Stamp};
use forebay_types::Ino;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;

use super::core::Core;

/// Threads at most. Each recall waits for the store at worst; a further one waits for one of these.
const THREADS: usize = 32;

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
    /// An inode of which the owner was told is not open any more.
    Release(Ino),
    LockFree(Ino),
    /// Who waits for a lock under this number got a signal.
    Interrupted(u64),
    /// The owner answers again, perhaps in a new session.
    Greeted,
    /// Leases are gone, and what was known under them.
    Lost(Vec<Ino>),
}

impl Job {
    /// The inode that only one thread works for at a time.
    fn ino(&self) -> Option<Ino> {
        match self {
            Job::Recall { ino, .. } => Some(*ino),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    busy: FxHashSet<Ino>,
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
        if queue.closed {
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
            let free = |job: &Job| job.ino().is_none_or(|ino| !queue.busy.contains(&ino));
            if let Some(at) = queue.jobs.iter().position(free) {
                let job = queue.jobs.remove(at)?;
                queue.busy.extend(job.ino());
                return Some(job);
            }
            queue.idle += 1;
            self.changed.wait(&mut queue);
            queue.idle -= 1;
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let ino = job.ino();
            match self.core.upgrade() {
                Some(core) => core.work(job),
                None => return,
            }
            if let Some(ino) = ino {
                self.queue.lock().busy.remove(&ino);
                self.changed.notify_one();
            }
        }
    }
}
