//! The bytes of a shared volume's files: what is written is kept in memory, put into the store as objects, and told to the owner; what is read is
//! that over what the owner says.
//!
//! Guarantees: a read sees every write of this client that returned before; when [`Contents::settle`] returns, the owner has all that was written to those
//! files before; what is kept back never takes more than the budget, except for pages that the kernel writes back; what is lost is told by
//! [`Contents::take_failure`]. Relies on its caller for leases: nothing here looks whether a file may be read or written.
//!
//! Order that must hold: numbers, then the object, then the commit; a file's layers are committed in their order; a map is forgotten before the layer that
//! replaces it. Locks: taking, the line, a file's, in this order. `docs/design/shared-data.md` has the whole of it.

mod allowance;
mod apart;
mod batch;
mod classes;
mod file;
mod files;
mod keep;
mod lanes;
mod layer;
mod line;
mod losses;
mod maps;
mod numbers;
mod options;
mod packing;
mod put;
mod ranges;
mod read;
mod runs;
mod source;
mod stats;
mod warm;
mod within;

use std::{fmt, sync::Arc, thread::JoinHandle, time::Instant};

use forebay_cache::ReadAhead;
use forebay_data::{RunReader, SegmentSource};
use forebay_format::{Keyring, RunSealer};
use forebay_object::{ObjectStore, Patience};
use forebay_protocol::VolumeInfo;
use forebay_reading::ObjectReader;
use parking_lot::{Condvar, Mutex};

use crate::{
    Asks, ClientError,
    group::{GroupStore, VolumeGroup},
};

pub use keep::Took;
pub use lanes::{Appended, MemberFailed, Members, WriteGroup};
pub use losses::TellsLoss;
pub use options::{ContentsOptions, Room, StoreCache};
pub use stats::ContentsStats;
pub use warm::WarmInto;
pub use within::Within;

/// The members over which a volume is written, if it is.
type SharedMembers = Option<Arc<dyn Members>>;

/// Bytes of decoded frames and tables that are kept.
const FRAMES: u64 = 128 << 20;

/// The bytes of a shared volume's files on this client. All methods may be called by many threads.
pub struct Contents {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What callers and the threads that store share.
struct Shared {
    asks: Arc<dyn Asks>,
    store: ObjectStore,
    volume: VolumeInfo,
    options: ContentsOptions,
    sealer: Option<RunSealer>,
    files: files::Files,
    line: Mutex<line::Line>,
    /// Held while a batch takes layers.
    taking: Mutex<()>,
    /// There may be something to do for a thread that stores.
    work: Condvar,
    /// A batch ended.
    changed: Condvar,
    numbers: numbers::NumberStock,
    lanes: lanes::Lanes,
    classes: Arc<classes::Classes>,
    maps: maps::Maps,
    losses: losses::Losses,
    source: Arc<source::Source>,
    reader: RunReader,
    ahead: ReadAhead,
    counts: stats::Counts,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents({}, {:?})", self.shared.volume.name, self.stats())
    }
}

impl Contents {
    /// Begins with nothing kept back, and starts the threads that store.
    ///
    /// # Errors
    /// [`ClientError::Store`]: the cache's directory cannot be used, a key is none, or no thread can be started.
    pub fn start(
        asks: Arc<dyn Asks>,
        store: ObjectStore,
        volume: &VolumeInfo,
        options: ContentsOptions,
    ) -> Result<Arc<Contents>, ClientError> {
        let reads = match &options.group {
            Some(group) => GroupStore::over(Arc::clone(group), &store, Within::Any),
            None => store.clone(),
        };
        let objects = options.cache.open(&reads, volume.id)?;
        let window = objects.read_ahead_limit();
        let apart = apart::Apart::new(store.clone(), options.group.clone());
        let source = source::Source::new((objects, apart), options.group.clone(), options.members.clone());
        let source = Arc::new(source);
        let keys = Arc::new(Keyring::new(options.keys.clone()));
        let reader = RunReader::new(Arc::clone(&source) as Arc<dyn SegmentSource>, keys, FRAMES);
        let sealer = options.sealer()?;
        let threads = options.batches;
        let classes = Arc::new(classes::Classes::new(options.members.clone()));
        let shared = Arc::new(Shared {
            asks,
            store: store.patient(Patience::Quick),
            volume: volume.clone(),
            options,
            sealer,
            files: files::Files::default(),
            line: Mutex::new(line::Line::of(volume.limit.is_some())),
            taking: Mutex::default(),
            work: Condvar::new(),
            changed: Condvar::new(),
            numbers: numbers::NumberStock::default(),
            lanes: lanes::Lanes::default(),
            classes,
            maps: maps::Maps::default(),
            losses: losses::Losses::default(),
            source,
            reader,
            ahead: ReadAhead::new(window),
            counts: stats::Counts::default(),
        });
        let contents = Contents { shared, threads: Mutex::default() };
        for number in 0..threads.max(1) {
            contents.start_thread(format!("forebay-put-{number}"), Shared::store_until_stopped)?;
        }
        if contents.shared.options.members.is_some() {
            contents.start_thread("forebay-lanes".to_owned(), Shared::sweep_until_stopped)?;
        }
        Ok(Arc::new(contents))
    }

    fn start_thread(&self, name: String, work: fn(&Shared)) -> Result<(), ClientError> {
        let shared = Arc::clone(&self.shared);
        let started = std::thread::Builder::new().name(name).spawn(move || {
            forebay_env::threads::unbind();
            work(&shared);
        });
        let thread =
            started.map_err(|error| ClientError::Store(format!("cannot start a thread: {error}")))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Ends the threads; what is kept back by then is not stored. Whoever waits for it is told [`ClientError::Closed`].
    pub fn stop(&self) {
        self.shared.line.lock().stop = true;
        self.shared.work.notify_all();
        self.shared.changed.notify_all();
        self.shared.lanes.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread that stores what was written has panicked");
            }
        }
        // What is open still is ended, so that nobody has to recover it.
        self.shared.lanes.sweep(&self.shared.options.members, self.shared.asks.as_ref(), true);
        if let Some(group) = &self.shared.options.group {
            group.stop();
        }
    }

    /// The group through which objects are read, if there is one.
    #[must_use]
    pub fn group(&self) -> Option<&Arc<VolumeGroup>> {
        self.shared.options.group.as_ref()
    }

    /// Empties the caches of what was read, and says in words which. What is not settled is no cache and stays; reads that run meanwhile may put something in again.
    pub fn empty_caches(&self) -> Vec<&'static str> {
        self.shared.reader.empty_cache();
        self.shared.source.objects().empty_cache();
        self.shared.source.apart().each(ObjectReader::empty_cache);
        match self.shared.options.cache {
            StoreCache::Directory(..) => vec!["contents in memory", "contents on disk"],
            StoreCache::Files | StoreCache::Memory(_) => vec!["contents in memory"],
        }
    }

    /// What is kept and was done.
    #[must_use]
    pub fn stats(&self) -> ContentsStats {
        let line = self.shared.line.lock();
        self.shared.counts.stats(line.kept, line.kept_max)
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn block_size(&self) -> u64 {
        u64::from(self.volume.block_size)
    }

    /// Stores one batch after the other.
    fn store_until_stopped(&self) {
        let due = self.options.due();
        let mut line = self.line.lock();
        while !line.stop {
            let now = Instant::now();
            if let Some(places) = line.next(now, due) {
                let aside = usize::from(places.first().is_some_and(|place| place.0));
                (line.flying, line.aside) = (line.flying + 1, line.aside + aside);
                drop(line);
                self.send(&places);
                line = self.line.lock();
                (line.flying, line.aside) = (line.flying - 1, line.aside - aside);
                drop(line);
                self.changed.notify_all();
                // There may be more than this thread took.
                self.work.notify_one();
                line = self.line.lock();
                continue;
            }
            let kept = line.kept;
            if line.allowance.is_idle(kept, now) {
                drop(line);
                self.give_room_back();
                line = self.line.lock();
                continue;
            }
            let idle = [line.idle_for(now, due), line.allowance.idle_for(kept, now)];
            match idle.into_iter().flatten().min() {
                Some(time) => drop(self.work.wait_for(&mut line, time)),
                None => self.work.wait(&mut line),
            }
        }
    }

    /// Looks after segments over the logs of members: those that rest get old while every thread that stores is at work, or none is.
    fn sweep_until_stopped(&self) {
        while self.lanes.await_sweep() {
            self.lanes.sweep(&self.options.members, self.asks.as_ref(), false);
        }
    }

    /// Gives room back to writers.
    fn free(&self, bytes: u64) {
        let mut line = self.line.lock();
        line.kept = line.kept.saturating_sub(bytes);
        drop(line);
        self.changed.notify_all();
    }
}
