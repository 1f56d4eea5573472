//! Dropping what the kernel keeps of a shared volume, when another machine is about to change it.
//!
//! Guarantees: what [`KernelCaches::wait`] returned for, the kernel asks for again: attributes, pages, and names, missing ones too. An answer that
//! began before a recall and is given after it carries no lifetime ([`Recalls::recalled_since`]), so that it does not put back what the recall took.
//! Nobody who serves requests waits for the kernel here: threads do that are made for it.
//!
//! Pages: the kernel waits for one that a request is reading. So each recall that waits has a thread of its own, up to [`THREADS`]; one that waits
//! holds up no other, or two machines could wait for each other in a circle.
//!
//! Names are dropped all at once, by a number that the kernel compares with each name's (`FUSE_NOTIFY_INC_EPOCH`, Linux 6.16), which takes no
//! lock, so that an operation under way in the directory does not matter. It costs a look-up each for those that were still good. An older kernel gets
//! no lifetimes for names: to drop one there takes the directory's lock, which is held by whoever makes a name in it, and that may wait for
//! the very recall.
//!
//! Leases that the client gives up of itself come many at a time ([`KernelCaches::drop_inodes`]): their attributes and names are dropped by who calls, which waits for no page, and their
//! pages by one thread, one after the other.
//!
//! One gap is the kernel's: an inode that it does not know yet cannot be dropped, while the answer that will tell of it may be on its way, with attributes
//! from before. So what was not there is dropped again a moment later ([`AGAIN`]).

use std::{
    collections::VecDeque,
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use forebay_fuse::{Errno, Notifier};
use forebay_types::Ino;
use forebay_vfs::{KernelCaches, Told};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::moments::{Moment, Moments};

/// Most calls that wait in the kernel at a time; others wait for them.
const THREADS: usize = 32;
/// A thread that has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(10);
/// How long after it an inode that was not there is dropped again: longer than an answer is on its way.
const AGAIN: Duration = Duration::from_millis(50);
/// The first minor version of the protocol that has `NOTIFY_INC_EPOCH`.
const EPOCH_MINOR: u32 = 44;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Stale {
    Inode {
        ino: Ino,
        attributes_only: bool,
    },
    /// Pages of inodes whose attributes are dropped already.
    Pages(Arc<[Ino]>),
    Names,
}

#[derive(Clone, Debug)]
struct Job {
    number: u64,
    stale: Stale,
}

#[derive(Debug, Default)]
struct State {
    notifier: Option<Notifier>,
    queue: VecDeque<Job>,
    /// Numbers of what threads are at.
    under_way: Vec<u64>,
    /// To be dropped a second time, and when.
    again: VecDeque<(Instant, Stale)>,
    last: u64,
    threads: usize,
    idle: usize,
}

impl State {
    fn is_pending(&self, number: u64) -> bool {
        self.queue.iter().any(|job| job.number == number) || self.under_way.contains(&number)
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Something is to be done, or all is over.
    wanted: Condvar,
    /// Something is done.
    done: Condvar,
    moments: Moments,
    drops_names: AtomicBool,
}

/// The kernel's copies of one mount. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Recalls(Arc<Shared>);

impl Recalls {
    /// From now on the kernel is told. Before, nothing is cached.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn serve_by(&self, notifier: Notifier) -> io::Result<()> {
        let mut state = self.0.state.lock();
        state.notifier = Some(notifier);
        self.0.start(&mut state)
    }

    /// What the kernel can do.
    pub(crate) fn kernel_is(&self, minor: u32) {
        self.0.drops_names.store(minor >= EPOCH_MINOR, Ordering::Relaxed);
    }

    /// Whether names can be dropped: otherwise none may have a lifetime.
    pub(crate) fn drops_names(&self) -> bool {
        self.0.drops_names.load(Ordering::Relaxed)
    }

    /// To be asked for before an operation looks at anything.
    pub(crate) fn moment(&self) -> Moment {
        self.0.moments.now()
    }

    /// Whether what was looked at of an inode since then may have been recalled meanwhile: a lease that is there now may be a new one.
    pub(crate) fn recalled_since(&self, since: Moment, ino: Ino) -> bool {
        self.0.moments.recalled_since(since, ino)
    }

    /// The mount has ended: there is nothing to drop any more, and nobody waits.
    pub(crate) fn end(&self) {
        let mut state = self.0.state.lock();
        state.notifier = None;
        state.queue.clear();
        state.again.clear();
        drop(state);
        self.0.wanted.notify_all();
        self.0.done.notify_all();
    }

    /// Drops pages that no lease stands for: nobody's answers are old because of it.
    pub(crate) fn drop_pages(&self, ino: Ino) {
        self.drop_soon(Stale::Inode { ino, attributes_only: false });
    }

    fn drop_soon(&self, stale: Stale) -> Told {
        let mut state = self.0.state.lock();
        if state.notifier.is_none() {
            return Told(state.last);
        }
        state.last += 1;
        let number = state.last;
        state.queue.push_back(Job { number, stale });
        if state.idle > 0 {
            self.0.wanted.notify_one();
        }
        if state.queue.len() > state.idle
            && state.threads < THREADS
            && let Err(error) = self.0.start(&mut state)
        {
            tracing::warn!("no thread for a recall, which waits for others: {error}");
        }
        Told(number)
    }
}

impl KernelCaches for Recalls {
    fn drop_inode(&self, ino: Ino, attributes_only: bool) -> Told {
        self.0.moments.recall(&[ino]);
        self.drop_soon(Stale::Inode { ino, attributes_only })
    }

    fn drop_inodes(&self, inodes: &[Ino], names: bool) -> Told {
        self.0.moments.recall(inodes);
        let Some(notifier) = self.0.state.lock().notifier.clone() else { return Told::default() };
        if names && self.drops_names() {
            tell(&notifier, &Stale::Names);
        }
        let attributes = inodes.iter().map(|ino| Stale::Inode { ino: *ino, attributes_only: true });
        let missing: Vec<Stale> = attributes.filter(|stale| tell(&notifier, stale)).collect();
        if !missing.is_empty() {
            let again = Instant::now() + AGAIN;
            self.0.state.lock().again.extend(missing.into_iter().map(|stale| (again, stale)));
            // One beside who drops the pages, which may take long.
            self.0.wanted.notify_one();
        }
        self.drop_soon(Stale::Pages(inodes.into()))
    }

    fn drop_entries(&self, dir: Ino) -> Told {
        self.0.moments.recall(&[dir]);
        if !self.drops_names() {
            // None has a lifetime.
            return Told::default();
        }
        self.drop_soon(Stale::Names)
    }

    fn wait(&self, told: Told) {
        let mut state = self.0.state.lock();
        while state.notifier.is_some() && state.is_pending(told.0) {
            self.0.done.wait(&mut state);
        }
    }
}

impl Shared {
    fn start(self: &Arc<Self>, state: &mut MutexGuard<'_, State>) -> io::Result<()> {
        let shared = Arc::clone(self);
        thread::Builder::new().name("fb-recalls".to_owned()).spawn(move || shared.serve())?;
        state.threads += 1;
        Ok(())
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        while let Some((jobs, notifier)) = self.next(&mut state) {
            let Some(first) = jobs.first().cloned() else { continue };
            state.under_way.extend(jobs.iter().map(|job| job.number));
            let missing = MutexGuard::unlocked(&mut state, || tell(&notifier, &first.stale));
            state.under_way.retain(|number| jobs.iter().all(|job| job.number != *number));
            // One that is dropped for the second time has no number.
            if missing && first.number > 0 {
                state.again.push_back((Instant::now() + AGAIN, first.stale));
            }
            self.done.notify_all();
        }
        state.threads -= 1;
    }

    /// What is to be told next, by one call; nothing where the thread is to end.
    fn next(&self, state: &mut MutexGuard<'_, State>) -> Option<(Vec<Job>, Notifier)> {
        let mut rest_until = Instant::now() + IDLE;
        loop {
            let notifier = state.notifier.clone()?;
            let now = Instant::now();
            if let Some(job) = state.queue.pop_front() {
                return Some((with_same(&mut state.queue, job), notifier));
            }
            match state.again.front().map(|(at, _)| *at) {
                Some(at) if at <= now => {
                    let Some((_, stale)) = state.again.pop_front() else { continue };
                    return Some((vec![Job { number: 0, stale }], notifier));
                }
                Some(at) => rest_until = at,
                // One thread stays.
                None if now >= rest_until && state.threads > 1 => return None,
                None => {}
            }
            state.idle += 1;
            self.wanted.wait_until(state, rest_until.max(now + Duration::from_millis(1)));
            state.idle -= 1;
        }
    }
}

/// The job, and those of the queue that the same call does.
fn with_same(queue: &mut VecDeque<Job>, job: Job) -> Vec<Job> {
    let (same, others): (Vec<Job>, _) =
        mem::take(queue).into_iter().partition(|other| other.stale == job.stale);
    *queue = others.into();
    [vec![job], same].concat()
}

/// Tells the kernel. True: it knows no such inode.
fn tell(notifier: &Notifier, stale: &Stale) -> bool {
    let told = match stale {
        Stale::Inode { ino, attributes_only } => {
            notifier.drop_inode(ino.0, if *attributes_only { -1 } else { 0 }, 0)
        }
        // Those that are not known were told of as missing with their attributes.
        Stale::Pages(inodes) => {
            let mut told = Ok(true);
            for ino in inodes.iter() {
                told = told.and(notifier.drop_inode(ino.0, 0, 0).map(|_| true));
            }
            told
        }
        Stale::Names => notifier.inc_epoch().map(|()| true),
    };
    match told {
        Ok(known) => return !known,
        // The mount has ended.
        Err(Errno::ENOTCONN) => {}
        Err(error) => tracing::error!("the kernel did not drop {stale:?}: {error}"),
    }
    false
}
