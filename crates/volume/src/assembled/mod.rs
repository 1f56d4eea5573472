//! Assembled files: the bytes of large files that are read again and again, as plain files on the cache's disk that the
//! kernel can read by itself.
//!
//! **Guarantees.** A file that [`Volume::lease_assembled`] hands out holds what reads of the inode give, at every moment until
//! the lease is dropped: each change of the inode reaches it before the change returns, and only verified bytes
//! get in when it is assembled. The files together take no more than the budget, but for what writers add to leased ones. A fault of the
//! cache's disk while one is assembled is nobody's error.
//!
//! **Relies on** the inode's data lock: a change of the bytes and what it does here happen under it.
//!
//! **Order that must hold.** A change finds out whom it concerns before it touches the volume: who assembles is told that it is in vain,
//! a file without leases leaves the table, and one with leases gets the change after the volume has it and before the lock is dropped. A file enters the
//! table under the data lock. So a lease never begins on bytes that lack a change.
//!
//! `docs/design/passthrough.md` has the reasons, and the kernel's part.

mod assemble;
mod change;
mod plain;
mod sealed;
mod table;
mod uses;

use std::{
    collections::VecDeque,
    fmt,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use forebay_types::{Encryption, Ino};
use parking_lot::{Condvar, Mutex};
use serde::Serialize;

pub use plain::PlainFile;
pub use sealed::{SealedFiles, SealedLease};
use table::Table;

use crate::{
    OpenOptions, Volume, VolumeConfig, VolumePaths,
    error::{VolumeError, io_error},
};

/// Files below this are read from the page cache or by requests, where nothing else was asked for: they are not worth a file of their own.
pub const ASSEMBLED_MIN: u64 = 1 << 20;
/// How long the thread that assembles waits where nobody wakes it: how often it scrubs a little.
const ROUND: Duration = Duration::from_millis(500);
/// Pieces that are scrubbed each round.
const SCRUB_PIECES: u32 = 2;
/// Where they are, in the directory that was chosen for them.
const DIRECTORY: &str = "assembled";
/// Files that wait to be assembled, at most.
const QUEUE_MAX: usize = 64;

/// What is assembled, and what became of it since the volume was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct AssembledStatus {
    /// Files.
    pub files: u64,
    /// Bytes that they take on disk.
    pub used_bytes: u64,
    /// Bytes that they may take.
    pub capacity_bytes: u64,
    /// Files that are leased: open, or mapped.
    pub leased: u64,
    /// Files that were assembled.
    pub assembled: u64,
    /// Files that left to make room.
    pub evictions: u64,
    /// Files that left because they were changed while nobody had them open.
    pub withdrawn: u64,
    /// Assemblies that were given up: the file was changed meanwhile, or the disk had no room.
    pub given_up: u64,
    /// Pieces that were found changed on the cache's disk.
    pub damaged: u64,
}

#[derive(Debug, Default)]
struct Counts {
    assembled: AtomicU64,
    evictions: AtomicU64,
    withdrawn: AtomicU64,
    given_up: AtomicU64,
    damaged: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The assembled files of a volume.
pub(crate) struct Assembled {
    dir: PathBuf,
    capacity: u64,
    /// Smaller files are not worth it.
    min: u64,
    table: Mutex<Table>,
    /// Files in the table and being assembled: while there are none, a change has nothing to look for.
    busy: AtomicUsize,
    /// Nothing is assembled any more.
    stopped: AtomicBool,
    next_number: AtomicU64,
    counts: Counts,
    scrub: Mutex<assemble::Scrub>,
    queue: Mutex<VecDeque<Ino>>,
    wake: Condvar,
}

impl fmt::Debug for Assembled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Assembled({}, {} bytes)", self.dir.display(), self.capacity)
    }
}

/// An assembled file that stays, and is kept like the inode, until this is dropped.
#[derive(Debug)]
pub struct AssembledLease {
    volume: Arc<Volume>,
    ino: Ino,
    plain: Arc<PlainFile>,
}

impl AssembledLease {
    /// The file.
    #[must_use]
    pub fn plain(&self) -> &PlainFile {
        &self.plain
    }

    /// Ends the lease and keeps the file, for who goes on with the volume. Nobody may change the inode meanwhile.
    #[must_use]
    pub fn into_plain(self) -> Arc<PlainFile> {
        Arc::clone(&self.plain)
    }

    /// Whether a new lease would be of the same file; not so once it was found damaged.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let assembled = self.volume.assembled.as_ref();
        assembled.is_some_and(|assembled| assembled.table.lock().is_current(self.ino, self.plain.number()))
    }
}

impl Drop for AssembledLease {
    fn drop(&mut self) {
        if let Some(assembled) = &self.volume.assembled {
            assembled.change(|table| table.release(self.ino, self.plain.number()));
        }
    }
}

impl Assembled {
    /// None where there are to be none, or not even the smallest file has room.
    pub(crate) fn open(
        config: &VolumeConfig,
        paths: &VolumePaths,
        options: &OpenOptions,
    ) -> Result<Option<Assembled>, VolumeError> {
        let capacity = options.assembled_size;
        let allowed = config.encryption == Encryption::None || options.assemble_decrypted;
        if capacity == 0 || capacity < options.assembled_min || !allowed {
            return Ok(None);
        }
        let dir = options.cache_dir.as_ref().unwrap_or(&paths.root).join(DIRECTORY);
        std::fs::create_dir_all(&dir).map_err(io_error("make the directory", &dir))?;
        Ok(Some(Assembled::new(dir, capacity, options.assembled_min)))
    }

    fn new(dir: PathBuf, capacity: u64, min: u64) -> Assembled {
        Assembled {
            dir,
            capacity,
            min: min.max(1),
            table: Mutex::default(),
            busy: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            next_number: AtomicU64::new(1),
            counts: Counts::default(),
            scrub: Mutex::default(),
            queue: Mutex::default(),
            wake: Condvar::new(),
        }
    }

    /// Says that a file was opened for reading: one that is opened again is worth being assembled. Cheap.
    fn opened(&self, ino: Ino, size: u64) {
        if size >= self.min && self.table.lock().note_open(ino, size, self.capacity) {
            self.want(ino);
        }
    }

    /// Waits until a file is to be assembled, or for a round.
    fn wait(&self) {
        let mut queue = self.queue.lock();
        if queue.is_empty() {
            self.wake.wait_for(&mut queue, ROUND);
        }
    }

    /// Nothing more is assembled, and what nobody leases goes.
    fn end(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.queue.lock().clear();
        self.change(Table::clear);
        self.wake.notify_all();
    }

    fn status(&self) -> AssembledStatus {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let table = self.table.lock();
        AssembledStatus {
            files: table.files() as u64,
            used_bytes: table.used(),
            capacity_bytes: self.capacity,
            leased: table.leased() as u64,
            assembled: get(&self.counts.assembled),
            evictions: get(&self.counts.evictions),
            withdrawn: get(&self.counts.withdrawn),
            given_up: get(&self.counts.given_up),
            damaged: get(&self.counts.damaged),
        }
    }

    /// Has an inode assembled soon.
    fn want(&self, ino: Ino) {
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        let mut queue = self.queue.lock();
        if queue.len() < QUEUE_MAX && !queue.contains(&ino) {
            queue.push_back(ino);
            self.wake.notify_all();
        }
    }

    pub(crate) fn stop(&self) {
        self.wake.notify_all();
    }

    /// Changes the table.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table.lock();
        let result = change(&mut table);
        self.busy.store(table.busy(), Ordering::SeqCst);
        result
    }

    /// Gives back the blocks of what left.
    fn bury(&self) {
        let gone = self.table.lock().take_gone();
        drop(gone);
    }
}

impl Volume {
    /// Whether files are assembled, so that the kernel can read them by itself.
    #[must_use]
    pub fn assembles(&self) -> bool {
        self.assembled.is_some()
    }

    /// Assembles nothing more, and lets go what nobody leases: nobody has a use for it.
    pub fn stop_assembling(&self) {
        if let Some(assembled) = &self.assembled {
            assembled.end();
        }
    }

    /// What is assembled; `None` where nothing is.
    #[must_use]
    pub fn assembled_status(&self) -> Option<AssembledStatus> {
        self.assembled.as_ref().map(Assembled::status)
    }

    /// The inodes that are assembled now.
    #[must_use]
    pub fn assembled_inodes(&self) -> Vec<Ino> {
        self.assembled.as_ref().map(|assembled| assembled.table.lock().inodes()).unwrap_or_default()
    }

    /// Whether the inode is assembled now.
    #[must_use]
    pub fn is_assembled(&self, ino: Ino) -> bool {
        let Some(assembled) = &self.assembled else { return false };
        assembled.busy.load(Ordering::SeqCst) > 0 && assembled.table.lock().has(ino)
    }

    /// Takes the assembled file of an inode, if there is one. Does not wait for one to be made.
    #[must_use]
    pub fn lease_assembled(self: &Arc<Self>, ino: Ino) -> Option<AssembledLease> {
        let plain = self.assembled.as_ref()?.table.lock().lease(ino)?;
        Some(AssembledLease { volume: Arc::clone(self), ino, plain })
    }

    /// Takes the assembled file of an inode over from a volume that was handed over ([`AssembledLease::into_plain`]), with a lease. Before anybody can
    /// have changed the inode. `None`: nothing is assembled here, or it cannot be told how large the file is.
    #[must_use]
    pub fn adopt_assembled(self: &Arc<Self>, ino: Ino, plain: Arc<PlainFile>) -> Option<AssembledLease> {
        let assembled = self.assembled.as_ref()?;
        let bytes = plain.disk_bytes().ok()?;
        assembled.next_number.fetch_max(plain.number() + 1, Ordering::Relaxed);
        assembled.change(|table| table.adopt(ino, Arc::clone(&plain), bytes));
        Some(AssembledLease { volume: Arc::clone(self), ino, plain })
    }

    /// The inode is removed: its assembled file goes, with its last lease if there is one.
    pub(crate) fn forget_assembled(&self, ino: Ino) {
        let Some(assembled) = &self.assembled else { return };
        assembled.change(|table| {
            table.before_change(ino);
            table.doom(ino);
        });
    }

    /// Says that a file was opened for reading: one that is opened again is worth being assembled. Cheap.
    pub fn opened_for_reading(&self, ino: Ino, size: u64) {
        if let Some(assembled) = &self.assembled {
            assembled.opened(ino, size);
        }
    }

    /// Takes note of a read that was asked of us: a file of which a good part was read is worth being assembled.
    pub(crate) fn note_read(&self, ino: Ino, size: u64, len: u64) {
        let Some(assembled) = self.assembled.as_ref().filter(|assembled| size >= assembled.min) else {
            return;
        };
        // Whoever reads does not wait for whoever counts.
        if let Some(mut table) = assembled.table.try_lock()
            && table.note_read(ino, size, len, assembled.capacity)
        {
            drop(table);
            assembled.want(ino);
        }
    }

    /// Assembles what waits to be, and scrubs a little: one round of the background thread. Says whether it assembled something.
    #[doc(hidden)]
    pub fn assemble_round(&self) -> bool {
        let Some(assembled) = &self.assembled else { return false };
        assembled.round(self)
    }
}

/// Assembles and scrubs until the volume stops or is gone.
pub(crate) fn run(volume: &Weak<Volume>) {
    while let Some(volume) = volume.upgrade() {
        let Some(assembled) = &volume.assembled else { return };
        if volume.upkeep.stopping() {
            return;
        }
        assembled.wait();
        if volume.upkeep.stopping() {
            return;
        }
        volume.assemble_round();
    }
}
