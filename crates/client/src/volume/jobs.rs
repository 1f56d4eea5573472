//! Work that nobody's request waits for: recalls, and what follows from the session's fate.
//!
//! Recalls and releases of one inode are dealt with one after the other, in their order: a release that comes to the owner after a recall has said that the inode is open
//! again would let it go. Those of different inodes go side by side, each in a thread, so that none waits for
//! another's bytes to be stored. What asks the owner, and may wait there for another client's leases, has few threads: recalls always find one, or two clients would wait
//! for each other.
//!
//! Leases that are given up because too much is known wait in a queue of their own, as nobody else waits for them: recalls, for which other clients wait, go before
//! them, and always find threads.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

use forebay_cluster::{Lease, Stamp};
use forebay_protocol::Recall;
use forebay_types::Ino;
use forebay_vfs::LockSpace;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;

use super::core::Core;

/// Threads at most. Each recall waits for the store at worst; a further one waits for one of these.
const THREADS: usize = 32;
/// Of these, the most that may wait at the owner.
const ASKING: usize = 8;
/// The most that may give leases up, many each.
const GIVING_UP: usize = 4;

/// Something to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    Recall {
        ino: Ino,
        keep: Option<Lease>,
        stamp: Stamp,
    },
    /// Leases to write are to become leases to read, all at once.
    Recalls(Vec<Recall>),
    /// Leases of which too much is known are to be given back, all at once. Nobody waits for that.
    GiveUp(Vec<(Ino, Stamp)>),
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

    /// The inodes that only one thread works for at a time.
    fn inos(&self) -> Vec<Ino> {
        match self {
            Job::Recall { ino, .. } | Job::Release(ino, _) => vec![*ino],
            Job::Recalls(leases) => leases.iter().map(|lease| lease.ino).collect(),
            Job::GiveUp(leases) => leases.iter().map(|(ino, _)| *ino).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether a thread works for an inode of it that it has to wait for. Of several at once those go on that need not.
    fn waits_for(&self, busy: &FxHashSet<Ino>) -> bool {
        match self {
            Job::Recall { ino, .. } | Job::Release(ino, _) => busy.contains(ino),
            Job::Recalls(leases) => leases.iter().all(|lease| busy.contains(&lease.ino)),
            Job::GiveUp(leases) => leases.iter().all(|(ino, _)| busy.contains(ino)),
            _ => false,
        }
    }

    /// Of several leases at once, those that a thread works for stay behind: what may be begun, and what is left of it, each recall by itself.
    fn split(self, busy: &FxHashSet<Ino>) -> (Job, Vec<Job>) {
        match self {
            Job::Recalls(leases) => {
                let (waits, free): (Vec<_>, Vec<_>) =
                    leases.into_iter().partition(|lease| busy.contains(&lease.ino));
                (Job::Recalls(free), waits.into_iter().map(Job::from).collect())
            }
            Job::GiveUp(leases) => {
                let (waits, free): (Vec<_>, Vec<_>) =
                    leases.into_iter().partition(|(ino, _)| busy.contains(ino));
                let left = (!waits.is_empty()).then_some(Job::GiveUp(waits));
                (Job::GiveUp(free), left.into_iter().collect())
            }
            job => (job, Vec::new()),
        }
    }
}

impl From<Recall> for Job {
    fn from(Recall { ino, keep, stamp }: Recall) -> Job {
        Job::Recall { ino, keep, stamp }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Leases to give up.
    spare: VecDeque<Job>,
    busy: FxHashSet<Ino>,
    /// Threads at a job that may wait at the owner.
    asking: usize,
    /// Threads that give leases up.
    giving_up: usize,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Queue {
    fn put(&mut self, job: Job) {
        match job {
            Job::GiveUp(..) => self.spare.push_back(job),
            job => self.jobs.push_back(job),
        }
    }

    /// Whether there is more to do than threads that wait for it.
    fn wants_thread(&self) -> bool {
        let spare = self.spare.len().min(GIVING_UP - self.giving_up);
        self.idle < self.jobs.len() + spare && self.threads < THREADS
    }

    /// The next job that a thread may begin, which has it then.
    fn begin(&mut self) -> Option<Job> {
        let free = |job: &Job| !job.waits_for(&self.busy) && (self.asking < ASKING || !job.asks());
        let job = match self.jobs.iter().position(free) {
            Some(at) => take(&mut self.jobs, at, &self.busy)?,
            None if self.giving_up == GIVING_UP => return None,
            None => {
                let at = self.spare.iter().position(free)?;
                self.giving_up += 1;
                take(&mut self.spare, at, &self.busy)?
            }
        };
        self.busy.extend(job.inos());
        self.asking += usize::from(job.asks());
        Some(job)
    }

    /// It is done: what it was.
    fn end(&mut self, (inos, asks, gave_up): (&[Ino], bool, bool)) {
        self.asking -= usize::from(asks);
        self.giving_up -= usize::from(gave_up);
        for ino in inos {
            self.busy.remove(ino);
        }
    }
}

/// Takes a job out. What of it a thread works for stays in its place.
fn take(jobs: &mut VecDeque<Job>, at: usize, busy: &FxHashSet<Ino>) -> Option<Job> {
    let (job, left) = jobs.remove(at)?.split(busy);
    for job in left.into_iter().rev() {
        jobs.insert(at, job);
    }
    Some(job)
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
        queue.put(job);
        let more = queue.wants_thread();
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
        queue.spare.clear();
        drop(queue);
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(job) = queue.begin() {
                return Some(job);
            }
            queue.idle += 1;
            self.changed.wait(&mut queue);
            queue.idle -= 1;
        }
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            let (inos, asks, gives_up) = (job.inos(), job.asks(), matches!(job, Job::GiveUp(..)));
            match self.core.upgrade() {
                Some(core) => core.work(job),
                None => return,
            }
            if inos.is_empty() && !asks {
                continue;
            }
            let mut queue = self.queue.lock();
            queue.end((&inos, asks, gives_up));
            drop(queue);
            if inos.len() > 1 {
                self.changed.notify_all();
            } else {
                self.changed.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_recalls_at_once_those_go_on_that_nobody_works_for() {
        let recall = |ino: u64| Recall { ino: Ino(ino), keep: Some(Lease::Read), stamp: Stamp::default() };
        let several = |inos: &[u64]| Job::Recalls(inos.iter().copied().map(recall).collect());
        let mut queue = Queue { busy: [Ino(2), Ino(4)].into_iter().collect(), ..Queue::default() };
        assert!(several(&[2, 4]).waits_for(&queue.busy) && !several(&[2, 3]).waits_for(&queue.busy));
        queue.jobs.extend([Job::Seal, several(&[1, 2, 3, 4]), Job::Greeted]);
        assert_eq!(take(&mut queue.jobs, 1, &queue.busy), Some(several(&[1, 3])));
        let left = [Job::Seal, recall(2).into(), recall(4).into(), Job::Greeted];
        assert_eq!(queue.jobs.make_contiguous(), left);
    }

    #[test]
    fn of_several_leases_to_give_up_those_go_on_that_nobody_works_for() {
        let give_up =
            |inos: &[u64]| Job::GiveUp(inos.iter().map(|ino| (Ino(*ino), Stamp::default())).collect());
        let mut queue = Queue { busy: [Ino(2)].into_iter().collect(), ..Queue::default() };
        queue.put(give_up(&[1, 2, 3]));
        assert_eq!(queue.begin(), Some(give_up(&[1, 3])));
        assert_eq!(queue.begin(), None);
        queue.end((&[Ino(2)], false, false));
        assert_eq!(queue.begin(), Some(give_up(&[2])));
        queue.put(Job::Recall { ino: Ino(3), keep: None, stamp: Stamp::default() });
        assert_eq!(queue.begin(), None, "it is being given up");
    }

    #[test]
    fn recalls_go_before_what_nobody_waits_for_and_always_find_threads() {
        let recall = |ino: u64| Job::Recall { ino: Ino(ino), keep: None, stamp: Stamp::default() };
        let give_up = |ino: u64| Job::GiveUp(vec![(Ino(ino), Stamp::default())]);
        let mut queue = Queue::default();
        (0..1000).for_each(|ino| queue.put(give_up(ino)));
        queue.put(recall(2000));
        assert_eq!(queue.begin(), Some(recall(2000)));
        let begun: Vec<_> = std::iter::from_fn(|| queue.begin()).collect();
        assert_eq!(begun, (0..GIVING_UP as u64).map(give_up).collect::<Vec<_>>());
        // No further thread is there for what none may take.
        queue.threads = 1 + GIVING_UP;
        assert!(!queue.wants_thread());
        // One of a lease that is being given up waits for that alone.
        (0..2).for_each(|_| queue.put(recall(3)));
        queue.put(recall(2001));
        assert!(queue.wants_thread());
        assert_eq!((queue.begin(), queue.begin()), (Some(recall(2001)), None));
        queue.end((&[Ino(3)], false, true));
        assert_eq!(queue.begin(), Some(recall(3)));
        assert_eq!((queue.begin(), queue.begin()), (Some(give_up(GIVING_UP as u64)), None));
    }
}
