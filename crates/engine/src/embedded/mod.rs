//! The embedded engine: fjall, an LSM tree in a directory, one process at a time.
//!
//! Guarantees: a commit that failed is no reason to stop. fjall takes nothing more after one (its log may end in a torn batch), so it is
//! closed and opened again, which cuts the torn batch off, once there is room. Until then rows are read as they were; what the
//! failed batch had is there as a whole or not at all. Relies on the caller to keep what it could not commit and to commit it again.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use fjall::config::PartitioningPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use parking_lot::{Mutex, RwLock};

use self::{
    explain::explain,
    frozen::{page, value, values},
    reserve::Reserve,
};
use crate::{Batch, Engine, EngineError, Outcome, RowPage, Writers};

mod explain;
mod frozen;
mod journal_tail;
mod reserve;
#[cfg(test)]
mod tests;

pub use frozen::FrozenEngine;

const CACHE_BYTES: u64 = 32 << 20;
const MEMTABLE_BYTES: u64 = 16 << 20;
const LOG_BYTES: u64 = 64 << 20;
/// Batches of so many rows become a sorted file at once. Smaller ones go through the engine's log and its table in memory: they would be
/// many small files, and each file costs several syncs where the log costs one.
const INGEST_MIN: usize = 16 << 10;
/// Free bytes below which a commit is not begun, besides what its rows take.
const COMMIT_ROOM: u64 = 64 << 10;
/// Free bytes, besides twice the rows, from which on a failed engine is opened again.
const REOPEN_ROOM: u64 = 1 << 20;
/// Commits that are refused after a failure before it is tried again although no space was freed.
const PATIENCE: u32 = 32;
/// How often it is tried to have a directory, and what lies between.
const LOCK_TRIES: u32 = 30;
const LOCK_AGAIN: Duration = Duration::from_millis(10);

/// Why an engine takes no rows at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineFault {
    /// There is no space for them.
    NoSpace,
    /// Anything else.
    Other,
}

/// An LSM tree in a directory.
pub struct EmbeddedEngine {
    place: PathBuf,
    /// The directory, which nobody else has while this lives: also while it is opened again.
    _alone: File,
    /// `None` where it could not be opened again after a failure.
    opened: RwLock<Option<Opened>>,
    /// Held by the one commit at a time.
    commit: Mutex<Health>,
    fault: AtomicU8,
    reserve: Reserve,
    /// Shared with what reads a frozen state, which keeps the engine from being opened again.
    readers: Arc<()>,
}

struct Opened {
    database: Database,
    rows: Keyspace,
    /// Set by a sorted file that could not be written: what there is of it takes space until the engine is opened again, so no other is tried.
    log_only: AtomicBool,
}

/// What earlier commits left.
#[derive(Default)]
struct Health {
    broken: bool,
    /// Free bytes when a commit failed last.
    free_then: u64,
    /// Whether that was for want of space.
    was_full: bool,
    /// Commits that failed one after the other.
    failures: u32,
    /// Commits that were refused since then.
    refused: u32,
}

impl Health {
    fn fail(&mut self, error: &EngineError, free: u64) {
        self.was_full = matches!(error, EngineError::NoSpace { .. });
        (self.broken, self.free_then, self.refused) = (true, free, 0);
        self.failures = self.failures.saturating_add(1);
    }
}

impl std::fmt::Debug for EmbeddedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmbeddedEngine({})", self.place.display())
    }
}

/// How the rows of a new engine are laid out in its files. One that is there keeps what it was made with.
///
/// A table's filter is in parts of 4 KiB from the second level on, and so is its index from the third: a look-up reads and checks one part of each. As one block, which is what the engine makes
/// otherwise, a filter is as large as its table has many rows (80 KiB for 64,000), too large for the engine's cache to keep beside rows, and was read and checked whole for each row that is not there.
fn options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(MEMTABLE_BYTES)
        .filter_block_partitioning_policy(PartitioningPolicy::new([false, true]))
        .index_block_partitioning_policy(PartitioningPolicy::new([false, false, true]))
}

impl Opened {
    fn open(dir: &Path) -> Result<Opened, EngineError> {
        let failed = |error| explain(dir, error);
        journal_tail::cut_torn_tail(dir).map_err(|error| failed(fjall::Error::Io(error)))?;
        make_lock_file(dir).map_err(|error| failed(fjall::Error::Io(error)))?;
        let database = Database::builder(dir)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(LOG_BYTES)
            .worker_threads(1)
            .manual_journal_persist(true)
            .open()
            .map_err(failed)?;
        let rows = database.keyspace("rows", options).map_err(failed)?;
        database.persist(PersistMode::SyncAll).map_err(failed)?;
        Ok(Opened { database, rows, log_only: AtomicBool::new(false) })
    }

    fn write(&self, batch: &Batch<'_>) -> fjall::Result<()> {
        let ascending = || batch.rows.is_sorted_by(|(one, _), (next, _)| one < next);
        let files = batch.rows.len() >= INGEST_MIN && !self.log_only.load(Ordering::Relaxed);
        if files && ascending() {
            self.ingest(batch).inspect_err(|_| self.log_only.store(true, Ordering::Relaxed))
        } else {
            self.insert(batch)
        }
    }

    /// Writes rows to the engine's log, synced, and to its table in memory.
    fn insert(&self, batch: &Batch<'_>) -> fjall::Result<()> {
        let mut write = self.database.batch().durability(Some(PersistMode::SyncAll));
        for (key, value) in &batch.rows {
            match value {
                Some(value) => write.insert(&self.rows, *key, *value),
                None => write.remove(&self.rows, *key),
            }
        }
        write.commit()
    }

    /// Writes rows, in the order of their keys, to a sorted file that is synced before it counts.
    fn ingest(&self, batch: &Batch<'_>) -> fjall::Result<()> {
        let mut file = self.rows.start_ingestion()?;
        for (key, value) in &batch.rows {
            match value {
                Some(value) => file.write(*key, *value)?,
                None => file.write_tombstone(*key)?,
            }
        }
        file.finish()
    }
}

/// Makes the file that keeps other processes out of an engine, should somebody have removed it: fjall refuses to open one without.
fn make_lock_file(dir: &Path) -> io::Result<()> {
    let path = dir.join("lock");
    if dir.join("version").exists() && !path.exists() {
        File::create(&path)?;
    }
    Ok(())
}

/// Takes the directory for this process, made where there is none (flock(2)).
fn lock(dir: &Path) -> Result<File, EngineError> {
    let failed = |error| explain(dir, fjall::Error::Io(error));
    std::fs::create_dir_all(dir).map_err(failed)?;
    let alone = File::open(dir).map_err(failed)?;
    // Who had it may be about to end.
    for _ in 0..LOCK_TRIES {
        match alone.try_lock() {
            Ok(()) => return Ok(alone),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_AGAIN),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    Err(EngineError::Locked { place: dir.display().to_string() })
}

impl EmbeddedEngine {
    /// The name of a file in the engine's directory that has no bytes, only space.
    pub const RESERVE: &str = Reserve::NAME;

    /// Opens the engine in `dir`, or makes a new one where there is none. Names of a new one are not durable yet.
    ///
    /// # Errors
    /// [`EngineError::Locked`] while another process has it, [`EngineError::Damaged`] where its files are not its own.
    pub fn open(dir: &Path) -> Result<EmbeddedEngine, EngineError> {
        let alone = lock(dir)?;
        Ok(EmbeddedEngine {
            place: dir.to_owned(),
            _alone: alone,
            opened: RwLock::new(Some(Opened::open(dir)?)),
            commit: Mutex::default(),
            fault: AtomicU8::new(0),
            reserve: Reserve::new(dir),
            readers: Arc::default(),
        })
    }

    /// Why the last commit failed; `None` where it did not. Cheap.
    #[must_use]
    pub fn fault(&self) -> Option<EngineFault> {
        match self.fault.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(EngineFault::NoSpace),
            _ => Some(EngineFault::Other),
        }
    }

    /// Writes all rows to sorted files and merges these, so that the engine takes as little space as it can.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn settle(&self) -> Result<(), EngineError> {
        self.with(|opened| {
            opened.rows.rotate_memtable_and_wait().map_err(|error| explain(&self.place, error))?;
            opened.rows.major_compact().map_err(|error| explain(&self.place, error))
        })
    }

    /// The rows as they are now, to be read while later batches are committed. What is replaced meanwhile takes space until this is
    /// dropped.
    ///
    /// # Errors
    /// [`EngineError`] while the engine cannot be read.
    pub fn frozen(&self) -> Result<FrozenEngine, EngineError> {
        self.with(|opened| {
            Ok(FrozenEngine {
                place: self.place.clone(),
                rows: opened.rows.clone(),
                snapshot: opened.database.snapshot(),
                _reader: Arc::clone(&self.readers),
            })
        })
    }

    fn with<R>(&self, work: impl FnOnce(&Opened) -> Result<R, EngineError>) -> Result<R, EngineError> {
        match self.opened.read().as_ref() {
            Some(opened) => work(opened),
            None => Err(self.failed("it failed, and could not be opened again yet")),
        }
    }

    fn failed(&self, detail: &str) -> EngineError {
        EngineError::Failed { place: self.place.display().to_string(), detail: detail.to_owned() }
    }

    fn no_space(&self) -> EngineError {
        EngineError::NoSpace { place: self.place.display().to_string() }
    }

    /// Closes what failed and opens it anew. Readers wait meanwhile.
    fn reopen(&self) -> Result<(), EngineError> {
        let mut opened = self.opened.write();
        if Arc::strong_count(&self.readers) > 1 {
            let busy = "it failed, and is opened again when a check or a copy that reads it has ended";
            return Err(self.failed(busy));
        }
        drop(opened.take());
        *opened = Some(Opened::open(&self.place)?);
        tracing::info!("the metadata engine in '{}' was opened again", self.place.display());
        Ok(())
    }

    /// Makes sure that the engine takes a batch with so many bytes of rows, as far as this can be told.
    fn prepare(&self, health: &mut Health, bytes: u64) -> Result<(), EngineError> {
        let free = self.reserve.free();
        if !health.broken {
            let enough = |free: u64| free >= bytes.saturating_add(COMMIT_ROOM);
            let room = enough(free) || (self.reserve.release() && enough(self.reserve.free()));
            return if room { Ok(()) } else { Err(self.no_space()) };
        }
        let need = bytes.saturating_mul(2).saturating_add(REOPEN_ROOM);
        let room = free >= need || (self.reserve.release() && self.reserve.free() >= need);
        if !room {
            return Err(self.no_space());
        }
        // What failed once may be over; what failed again waits until something is different.
        let same = self.reserve.free() <= health.free_then || !health.was_full;
        if same && health.failures > 1 && health.refused < PATIENCE {
            health.refused += 1;
            let soon = "an earlier write failed; that is tried again soon";
            return Err(if health.was_full { self.no_space() } else { self.failed(soon) });
        }
        self.reopen()?;
        health.broken = false;
        Ok(())
    }

    /// Commits a batch; after a failure for want of space once more, with what is kept in reserve.
    fn attempt(&self, health: &mut Health, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        let size =
            |(key, value): &(&[u8], Option<&[u8]>)| (key.len() + value.map_or(0, <[u8]>::len) + 32) as u64;
        let bytes = batch.rows.iter().map(size).sum();
        self.prepare(health, bytes)?;
        let error = match self.write(batch) {
            Err(error) => error,
            done => {
                health.failures = 0;
                return done;
            }
        };
        health.fail(&error, self.reserve.free());
        tracing::warn!("a checkpoint could not be stored: {error}");
        if !self.reserve.release() {
            return Err(error);
        }
        self.prepare(health, bytes)?;
        match self.write(batch) {
            // The first attempt may have been what the fences met.
            Ok(Outcome::Fenced) => Ok(Outcome::Unknown),
            Err(error) => {
                health.fail(&error, self.reserve.free());
                Err(error)
            }
            done => {
                health.failures = 0;
                done
            }
        }
    }

    fn write(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        for (key, value) in &batch.expect {
            if self.get(key)? != *value {
                return Ok(Outcome::Fenced);
            }
        }
        self.with(|opened| {
            opened.write(batch).map_err(|error| explain(&self.place, error))?;
            Ok(Outcome::Committed)
        })
    }
}

impl Engine for EmbeddedEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.with(|opened| value(&self.place, &opened.rows, &opened.database.snapshot(), key))
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.with(|opened| values(&self.place, &opened.rows, &opened.database.snapshot(), keys))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        // Without a snapshot fjall's iterators see rows of a batch that is still being applied.
        self.with(|opened| page(&self.place, &opened.rows, &opened.database.snapshot(), (from, to), limit))
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        let mut health = self.commit.lock();
        let result = self.attempt(&mut health, batch);
        let fault = match &result {
            Ok(_) => 0,
            Err(EngineError::NoSpace { .. }) => 1,
            Err(_) => 2,
        };
        self.fault.store(fault, Ordering::Relaxed);
        if fault == 0 {
            self.reserve.fill();
        }
        result
    }

    fn writers(&self) -> Writers {
        Writers::One
    }

    /// Who had it before has ended: nobody lets go of its lock before.
    fn alone_for(&self) -> Option<Duration> {
        Some(Duration::MAX)
    }

    fn size_on_disk(&self) -> u64 {
        self.opened.read().as_ref().map_or(0, |opened| opened.rows.disk_space())
    }
}
