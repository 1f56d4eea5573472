//! Background work: cleaning, checkpoints, sealing, storing, compaction, and what each may remove.
//!
//! Several threads, so that a store that is away stops neither checkpoints nor sealing. Each step is a method of [`Volume`] that can be
//! interrupted by a crash anywhere: it leaves files or objects that nothing refers to, and these are found by the next opening or
//! collection.

mod checkpoint;
mod clean;
mod compact;
mod end;
mod flush;
mod gather;
mod give_way;
mod leaked;
mod pack;
mod seal;
mod store;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

pub(crate) use checkpoint::Doomed;
pub use leaked::Leaked;

use forebay_format::row::ObjectRef;
use forebay_types::{Ino, SegmentId};
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{
    Activity, Volume, assembled,
    error::{VolumeError, io_error},
};

/// How long what was done waits at most before it is on its way to a store elsewhere: what class `local` may lose with the machine, besides what the
/// upload itself takes.
pub const SHIP_INTERVAL: Duration = Duration::from_secs(5);
/// How long a thread of upkeep waits where nobody wakes it.
const ROUND: Duration = Duration::from_millis(500);
/// Writers wait once so many bytes of the journal wait to be sealed.
const BACKLOG_MAX: u64 = 384 << 20;
/// How long a writer waits at most for the backlog to shrink, each time.
const BACKLOG_WAIT: Duration = Duration::from_millis(200);

/// Rounds of a drain that bring nothing more into the store before it gives up. Writers that go on are no reason to.
const FRUITLESS_MAX: u32 = 16;

/// A kind of background work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Task {
    Checkpoint,
    Seal,
    Store,
    Ship,
    Flush,
    /// Not background work: reads that found their data missing or damaged.
    Read,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::Checkpoint => "checkpoint",
            Task::Seal => "seal and compact",
            Task::Store => "store",
            Task::Read => "read",
            Task::Ship => "ship the journal",
            Task::Flush => "sync what was written",
        })
    }
}

/// For whom something is done in the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum For {
    /// Somebody waits for all of it.
    Caller,
    /// Nobody does: it ends between two objects once the background work is to stop. What is left is done by the next round, of this process or of
    /// another one, as after an error of the store.
    Background,
}

/// How a drain goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drain {
    /// Raw bytes in use that the store does not have yet.
    pub dirty_bytes: u64,
}

/// State of the background work of one volume.
#[derive(Debug, Default)]
pub(crate) struct Upkeep {
    signal: Arc<Signal>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    orphans: Mutex<VecDeque<Ino>>,
    /// Segments that are being filled by a move: their live bytes are still to come.
    pub(super) filling: Mutex<BTreeSet<SegmentId>>,
    /// Objects whose deletion is in a stored checkpoint.
    pub(super) deletable: Mutex<BTreeSet<ObjectRef>>,
    /// Files of the journal that sealing could not empty, the live bytes they then had, and whether all rows were looked through for these.
    pub(super) stuck: Mutex<BTreeMap<SegmentId, (u64, bool)>>,
    /// Objects that compaction could not empty, and the live bytes they then had.
    pub(super) stubborn: Mutex<BTreeMap<ObjectRef, u64>>,
    /// [`forebay_meta::SegmentTotals::object_changes`] when there was last nothing to compact.
    pub(super) compacted: Mutex<Option<u64>>,
    pub(super) unsealed_since: Mutex<Option<Instant>>,
    pub(super) unstored_since: Mutex<Option<Instant>>,
    pub(super) last_checkpoint: Mutex<Option<Instant>>,
    last_shipped: Mutex<Option<Instant>>,
    pub(crate) done: Done,
    pub(super) checkpoint_turn: Mutex<()>,
    pub(super) seal_turn: Mutex<()>,
    pub(super) store_turn: Mutex<()>,
    /// The search for leaked objects.
    pub(super) search: Mutex<leaked::Search>,
    appending: RwLock<()>,
    backlog: AtomicU64,
    give_way: give_way::GiveWay,
    pub(crate) behind: Arc<flush::Behind>,
    troubles: Mutex<BTreeMap<Task, String>>,
}

/// What was done since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) compacted_bytes: AtomicU64,
    pub(crate) compacted_objects: AtomicU64,
    pub(crate) deleted_objects: AtomicU64,
}

#[derive(Debug, Default)]
struct Signal {
    stop: AtomicBool,
    turn: Mutex<u64>,
    wake: Condvar,
    progress: Condvar,
}

impl Upkeep {
    pub(crate) fn purge(&self, ino: Ino) {
        self.orphans.lock().push_back(ino);
        self.wake();
    }

    /// Held by a writer while a run that it appended to a stream is not named by a record yet.
    pub(crate) fn appending(&self) -> RwLockReadGuard<'_, ()> {
        self.appending.read()
    }

    /// Waits until no writer is between a stream and its record.
    pub(super) fn nobody_appending(&self) -> RwLockWriteGuard<'_, ()> {
        self.appending.write()
    }

    /// Counts bytes that wait in the journal.
    pub(crate) fn journaled(&self, bytes: u64) {
        self.give_way.came(bytes);
        self.behind.came(bytes);
        let before = self.backlog.fetch_add(bytes, Ordering::Relaxed);
        if before < seal::JOURNAL_DATA_MAX && before + bytes >= seal::JOURNAL_DATA_MAX {
            self.wake();
        }
    }

    /// Bytes that wait in the journal to be sealed.
    pub(super) fn backlog(&self) -> u64 {
        self.backlog.load(Ordering::Relaxed)
    }

    pub(super) fn set_backlog(&self, bytes: u64) {
        self.backlog.store(bytes, Ordering::Relaxed);
        self.signal.progress.notify_all();
    }

    /// Says to those who wait for it that background work has got somewhere.
    pub(crate) fn progressed(&self) {
        drop(self.signal.turn.lock());
        self.signal.progress.notify_all();
    }

    /// Waits for background work to get where `there` says, until `deadline`.
    pub(super) fn wait_until(&self, deadline: Instant, there: &dyn Fn() -> bool) {
        let mut turn = self.signal.turn.lock();
        while !there() && !self.signal.progress.wait_until(&mut turn, deadline).timed_out() {}
    }

    pub(super) fn wake(&self) {
        *self.signal.turn.lock() += 1;
        self.signal.wake.notify_all();
    }

    /// Puts back one that could not be purged; it is tried again with the next round.
    pub(super) fn keep_orphan(&self, ino: Ino) {
        self.orphans.lock().push_front(ino);
    }

    pub(super) fn next_orphan(&self) -> Option<Ino> {
        self.orphans.lock().pop_front()
    }

    pub(crate) fn stopping(&self) -> bool {
        self.signal.stop.load(Ordering::Acquire)
    }

    /// Asked between two objects.
    ///
    /// # Errors
    /// [`VolumeError::Stopped`].
    pub(crate) fn go_on(&self, whom: For) -> Result<(), VolumeError> {
        if whom == For::Background && self.stopping() { Err(VolumeError::Stopped) } else { Ok(()) }
    }

    pub(crate) fn troubles(&self) -> Vec<Activity> {
        let troubles = self.troubles.lock();
        troubles
            .iter()
            .map(|(task, error)| Activity { task: task.to_string(), error: error.clone() })
            .collect()
    }

    pub(crate) fn clear_trouble(&self, task: Task) {
        if self.troubles.lock().remove(&task).is_some() {
            tracing::info!("{task}: works again");
        }
    }

    fn trouble(&self, task: Task, error: &VolumeError) {
        self.note(task, error.to_string());
    }

    /// Keeps what went wrong for people to see.
    pub(crate) fn note(&self, task: Task, text: String) {
        let before = self.troubles.lock().insert(task, text.clone());
        if before.as_deref() != Some(text.as_str()) {
            tracing::error!("{task}: {text}");
        }
    }
}

impl Volume {
    /// Starts the background threads. They hold the volume only while they work.
    pub(crate) fn start_upkeep(self: &Arc<Self>) -> Result<(), VolumeError> {
        let ship = self.remote.is_some().then_some(Task::Ship);
        for task in [Task::Checkpoint, Task::Seal, Task::Store].into_iter().chain(ship) {
            let volume = Arc::downgrade(self);
            let signal = Arc::clone(&self.upkeep.signal);
            let thread = std::thread::Builder::new()
                .name(format!("fb-{}", task.to_string().split(' ').next().unwrap_or_default()))
                .spawn(move || run(&volume, &signal, task))
                .map_err(io_error("start a thread for", &self.paths.root))?;
            self.upkeep.threads.lock().push(thread);
        }
        self.upkeep.behind.start();
        let (volume, behind) = (Arc::downgrade(self), Arc::clone(&self.upkeep.behind));
        let thread = std::thread::Builder::new()
            .name("fb-flush".to_owned())
            .spawn(move || flush::run(&volume, &behind))
            .map_err(io_error("start a thread for", &self.paths.root))?;
        self.upkeep.threads.lock().push(thread);
        let thread = self.listing.start(Arc::downgrade(self));
        self.upkeep.threads.lock().push(thread.map_err(io_error("start a thread for", &self.paths.root))?);
        if self.assembles() {
            let volume = Arc::downgrade(self);
            let thread = std::thread::Builder::new()
                .name("fb-assemble".to_owned())
                .spawn(move || assembled::run(&volume))
                .map_err(io_error("start a thread for", &self.paths.root))?;
            self.upkeep.threads.lock().push(thread);
        }
        Ok(())
    }

    /// One round of a task; the error is kept for [`Volume::status`].
    fn round(&self, task: Task) {
        let result = match task {
            Task::Checkpoint => self.checkpoint_round(),
            Task::Seal => self.seal_round(),
            Task::Store => self.store_round(),
            Task::Ship => self.ship_round(),
            Task::Flush | Task::Read => Ok(()),
        };
        match result {
            Ok(()) => self.succeeded(task),
            Err(VolumeError::Stopped) => {}
            Err(error) => self.upkeep.trouble(task, &error),
        }
    }

    fn ship_round(&self) -> Result<(), VolumeError> {
        let mut last = self.upkeep.last_shipped.lock();
        if last.is_some_and(|last| last.elapsed() < SHIP_INTERVAL) {
            return Ok(());
        }
        *last = Some(Instant::now());
        drop(last);
        self.ship_for(For::Background)
    }

    /// Lets a writer wait while far too much of the journal waits to be sealed, but not for ever: a disk that is full says so itself.
    pub(crate) fn wait_for_room(&self) {
        if self.upkeep.backlog() < BACKLOG_MAX {
            return;
        }
        self.upkeep.wake();
        let mut turn = self.upkeep.signal.turn.lock();
        self.upkeep.signal.progress.wait_for(&mut turn, BACKLOG_WAIT);
    }

    /// Brings everything into the store, and tells after each step what is left.
    ///
    /// # Errors
    /// [`VolumeError`] of the step that failed. What is not in the store stays on the local disk, durable, for the next opening.
    pub fn drain(&self, progress: &mut dyn FnMut(Drain)) -> Result<(), VolumeError> {
        self.sync()?;
        self.reclaim()?;
        let (mut least, mut fruitless) = (u64::MAX, 0);
        loop {
            let moved = self.clean_all().and_then(|()| self.seal_all()).and_then(|()| self.store_all());
            self.reclaim()?;
            // On a full disk the next round has what this one gave back.
            moved.or_else(|error| if error.is_no_space() && fruitless == 0 { Ok(()) } else { Err(error) })?;
            let dirty_bytes = self.dirty_bytes();
            progress(Drain { dirty_bytes });
            fruitless = if dirty_bytes < least { 0 } else { fruitless + 1 };
            least = least.min(dirty_bytes);
            match dirty_bytes {
                0 => break,
                _ if fruitless == FRUITLESS_MAX => return Err(VolumeError::Stuck { dirty_bytes }),
                _ => {}
            }
        }
        self.reclaim()
    }

    /// Gives back what nothing refers to: files here, and objects in the store. Twice, because what the first checkpoint makes garbage is deleted
    /// after the second.
    fn reclaim(&self) -> Result<(), VolumeError> {
        for _ in 0..2 {
            self.checkpoint_now()?;
            self.publish()?;
            self.delete_garbage(For::Caller)?;
        }
        Ok(())
    }
}

fn run(volume: &Weak<Volume>, signal: &Signal, task: Task) {
    let mut seen = 0;
    loop {
        {
            let mut turn = signal.turn.lock();
            if *turn == seen && !signal.stop.load(Ordering::Acquire) {
                signal.wake.wait_for(&mut turn, ROUND);
            }
            seen = *turn;
        }
        if signal.stop.load(Ordering::Acquire) {
            return;
        }
        match volume.upgrade() {
            Some(volume) => volume.round(task),
            None => return,
        }
    }
}
