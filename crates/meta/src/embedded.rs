use std::{
    io,
    ops::Bound,
    path::{Path, PathBuf},
};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};
use parking_lot::Mutex;

use crate::engine::{Batch, Engine, EngineError, Outcome, RowPage, Writers};

const CACHE_BYTES: u64 = 32 << 20;
const MEMTABLE_BYTES: u64 = 16 << 20;
const LOG_BYTES: u64 = 64 << 20;

/// The embedded engine: fjall, an LSM tree in a directory, one process at a time.
pub struct EmbeddedEngine {
    place: PathBuf,
    database: Database,
    rows: Keyspace,
    commit: Mutex<()>,
}

impl std::fmt::Debug for EmbeddedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmbeddedEngine({})", self.place.display())
    }
}

impl EmbeddedEngine {
    /// Opens the engine in `dir`, or makes a new one where there is none. Names of a new one are not durable yet.
    ///
    /// # Errors
    /// [`EngineError::Locked`] while another process has it, [`EngineError::Damaged`] where its files are not its own.
    pub fn open(dir: &Path) -> Result<EmbeddedEngine, EngineError> {
        let failed = |error| explain(dir, error);
        crate::journal_tail::cut_torn_tail(dir).map_err(|error| failed(fjall::Error::Io(error)))?;
        let database = Database::builder(dir)
            .cache_size(CACHE_BYTES)
            .max_journaling_size(LOG_BYTES)
            .worker_threads(1)
            .manual_journal_persist(true)
            .open()
            .map_err(failed)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
        let rows = database.keyspace("rows", options).map_err(failed)?;
        database.persist(PersistMode::SyncAll).map_err(failed)?;
        Ok(EmbeddedEngine { place: dir.to_owned(), database, rows, commit: Mutex::new(()) })
    }

    /// Writes all rows to sorted files and merges these, so that the engine takes as little space as it can.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn settle(&self) -> Result<(), EngineError> {
        self.rows.rotate_memtable_and_wait().map_err(|error| explain(&self.place, error))?;
        self.rows.major_compact().map_err(|error| explain(&self.place, error))
    }

    /// The rows as they are now, to be read while later batches are committed. What is replaced meanwhile takes space until this is
    /// dropped.
    #[must_use]
    pub fn frozen(&self) -> FrozenEngine {
        FrozenEngine {
            place: self.place.clone(),
            rows: self.rows.clone(),
            snapshot: self.database.snapshot(),
        }
    }
}

/// The rows of an [`EmbeddedEngine`] at one moment. Takes no batches.
pub struct FrozenEngine {
    place: PathBuf,
    rows: Keyspace,
    snapshot: Snapshot,
}

impl std::fmt::Debug for FrozenEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FrozenEngine({})", self.place.display())
    }
}

impl Engine for FrozenEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let value = self.snapshot.get(&self.rows, key).map_err(|error| explain(&self.place, error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let guards = self.snapshot.range::<&[u8], _>(&self.rows, (Bound::Included(from), end));
        page(&self.place, guards, limit)
    }

    fn commit(&self, _: &Batch) -> Result<Outcome, EngineError> {
        let detail = "rows of one moment do not change".to_owned();
        Err(EngineError::Failed { place: self.place.display().to_string(), detail })
    }

    fn writers(&self) -> Writers {
        Writers::One
    }

    fn size_on_disk(&self) -> u64 {
        self.rows.disk_space()
    }
}

fn page(place: &Path, guards: fjall::Iter, limit: usize) -> Result<RowPage, EngineError> {
    let mut page = RowPage::default();
    for guard in guards {
        if page.rows.len() == limit {
            page.more = true;
            break;
        }
        let (key, value) = guard.into_inner().map_err(|error| explain(place, error))?;
        page.rows.push((key.to_vec(), value.to_vec()));
    }
    Ok(page)
}

fn explain(place: &Path, error: fjall::Error) -> EngineError {
    let place = place.display().to_string();
    let io = |error: &io::Error, place: &String| {
        (error.kind() == io::ErrorKind::StorageFull).then(|| EngineError::NoSpace { place: place.clone() })
    };
    match &error {
        fjall::Error::Locked => EngineError::Locked { place },
        fjall::Error::Io(source) => {
            io(source, &place).unwrap_or_else(|| EngineError::Failed { place, detail: source.to_string() })
        }
        fjall::Error::Poisoned => EngineError::Failed {
            place,
            detail: "an earlier write failed, so it takes no more; unmount and mount the volume again".into(),
        },
        fjall::Error::JournalRecovery(_)
        | fjall::Error::InvalidVersion(_)
        | fjall::Error::Decompress(_)
        | fjall::Error::InvalidTrailer
        | fjall::Error::InvalidTag(_)
        | fjall::Error::Unrecoverable => EngineError::Damaged { place, detail: error.to_string() },
        fjall::Error::Storage(inner) => explain_storage(place, inner),
        _ => EngineError::Failed { place, detail: error.to_string() },
    }
}

fn explain_storage(place: String, error: &(dyn std::error::Error + 'static)) -> EngineError {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(source) = inner.downcast_ref::<io::Error>() {
            if source.kind() == io::ErrorKind::StorageFull {
                return EngineError::NoSpace { place };
            }
            return EngineError::Failed { place, detail: source.to_string() };
        }
        cause = inner.source();
    }
    EngineError::Damaged { place, detail: error.to_string() }
}

impl Engine for EmbeddedEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let value = self.rows.get(key).map_err(|error| explain(&self.place, error))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        page(&self.place, self.rows.range::<&[u8], _>((Bound::Included(from), end)), limit)
    }

    fn commit(&self, batch: &Batch) -> Result<Outcome, EngineError> {
        let _one_at_a_time = self.commit.lock();
        for (key, value) in &batch.expect {
            if self.get(key)? != *value {
                return Ok(Outcome::Fenced);
            }
        }
        let mut write = self.database.batch().durability(Some(PersistMode::SyncAll));
        for (key, value) in &batch.rows {
            match value {
                Some(value) => write.insert(&self.rows, key.as_slice(), value.as_slice()),
                None => write.remove(&self.rows, key.as_slice()),
            }
        }
        write.commit().map_err(|error| explain(&self.place, error))?;
        Ok(Outcome::Committed)
    }

    fn writers(&self) -> Writers {
        Writers::One
    }

    fn size_on_disk(&self) -> u64 {
        self.rows.disk_space()
    }
}
