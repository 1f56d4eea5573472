//! One database as an engine.
//!
//! Reads go to a snapshot that is durable whole: SlateDB shows a batch before it is, and a crash would take back what was read. After each
//! commit the next snapshot takes its place; nobody waits for it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_engine::{Batch, Engine, EngineError, KEY_MAX, Outcome, RowPage, Writers};
use parking_lot::{Mutex, RwLock};
use slatedb::{CloseReason, Db, DbSnapshot, DbStatus};
use tokio::sync::watch;

use crate::{
    bucket::Bucket,
    explain,
    place::Place,
    quiet::{Alone, Still},
    reading,
};

pub(crate) struct SlateEngine {
    pub(crate) place: Arc<Place>,
    /// The prefix of its keys in the store.
    path: String,
    /// For messages.
    pub(crate) name: String,
    pub(crate) bucket: Bucket,
    cache_id: u64,
    pub(crate) db: Db,
    status: watch::Receiver<DbStatus>,
    /// Held from the look at a batch's fences until the batch is in SlateDB's hands: batches follow one another.
    pub(crate) turn: Mutex<()>,
    /// Who holds it puts the log to the store, for all whose batches are in it.
    pub(crate) flushing: Arc<tokio::sync::Mutex<u32>>,
    /// The newest one that is durable.
    visible: RwLock<Arc<DbSnapshot>>,
    /// No other process has committed anything that it handed over later.
    alone: Alone,
}

impl std::fmt::Debug for SlateEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SlateEngine({})", self.name)
    }
}

impl SlateEngine {
    /// Opens a database, which is made if it is not there.
    pub(crate) fn open(place: &Arc<Place>, path: &str) -> Result<SlateEngine, EngineError> {
        let (bucket, cache_id) = (Bucket::new(place.store.clone()), place.cache_id());
        let name = format!("{}, below {path}", place.name);
        let db = place.open(path, &bucket, cache_id)?;
        let visible = db.snapshot().map_err(|error| explain::of_slate(&name, &error))?;
        Ok(SlateEngine {
            place: Arc::clone(place),
            path: path.to_owned(),
            name,
            bucket,
            cache_id,
            status: db.subscribe(),
            db,
            turn: Mutex::default(),
            flushing: Arc::default(),
            visible: RwLock::new(visible),
            alone: Alone::Since(Instant::now()),
        })
    }

    /// The same, opened after its log was seen to stand still.
    pub(crate) fn after(mut self, still: &Still<Instant>) -> Result<SlateEngine, EngineError> {
        if let Some(alone) = still.alone(&self.place, &self.path)? {
            self.alone = alone;
        }
        Ok(self)
    }

    /// Why it can be used no more.
    pub(crate) fn closed(&self) -> Option<CloseReason> {
        self.status.borrow().close_reason
    }

    /// Up to where all is durable.
    pub(crate) fn durable(&self) -> u64 {
        self.status.borrow().durable_seq
    }

    /// Shows a snapshot that has become durable.
    pub(crate) fn show(&self, snapshot: Arc<DbSnapshot>) {
        let mut visible = self.visible.write();
        if visible.seq() < snapshot.seq() {
            *visible = snapshot;
        }
    }

    /// What came in time.
    fn came<T>(&self, read: Option<Result<T, slatedb::Error>>) -> Result<T, EngineError> {
        match read {
            Some(read) => read.map_err(|error| explain::of_slate(&self.name, &error)),
            None => Err(explain::too_late(&self.name, self.place.last_trouble())),
        }
    }

    fn read<T>(
        &self,
        here: impl AsyncFn(&DbSnapshot) -> Result<T, slatedb::Error>,
        there: impl AsyncFn(&slatedb::DbReader) -> Result<T, slatedb::Error>,
    ) -> Result<T, EngineError> {
        if self.closed().is_none() {
            let snapshot = Arc::clone(&self.visible.read());
            let read = self.place.wait(self.place.waits.read, here(&snapshot));
            if !matches!(read, Some(Err(_))) || self.closed().is_none() {
                return self.came(read);
            }
        }
        if self.closed() != Some(CloseReason::Fenced) {
            return Err(self.unusable());
        }
        // What this one wrote itself and what others wrote since is in the store, and what has not come there must not come any more: who asks
        // settles by the answer.
        self.came(self.place.wait(self.place.waits.read, async {
            let sealed = self.bucket.seal().await;
            sealed
                .map_err(|error| slatedb::Error::unavailable(error.to_string()).with_source(error.into()))?;
            let reader = self.place.look(&self.path, &self.bucket, self.cache_id).await?;
            let read = there(&reader).await;
            if let Err(error) = reader.close().await {
                tracing::debug!("{}: {error}", self.name);
            }
            read
        }))
    }

    /// The error of everything that is asked of a database that SlateDB gave up.
    pub(crate) fn unusable(&self) -> EngineError {
        let detail = match self.closed() {
            Some(CloseReason::Panic) => "SlateDB has failed; start this server again".to_owned(),
            reason => {
                let trouble =
                    self.place.last_trouble().map_or(String::new(), |trouble| format!(" ({trouble})"));
                format!("SlateDB has closed it: {reason:?}{trouble}; start this server again")
            }
        };
        EngineError::Failed { place: self.name.clone(), detail }
    }
}

impl Drop for SlateEngine {
    fn drop(&mut self) {
        // All that was promised is durable. An orderly end makes the next start shorter, and is worth waiting for to nobody.
        let (db, name) = (self.db.clone(), self.name.clone());
        self.place.close(self.path.clone(), async move {
            if let Err(error) = db.close().await {
                tracing::debug!("{name}: closing: {error}");
            }
        });
    }
}

impl Engine for SlateEngine {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.read(
            async |snapshot| reading::get(snapshot, key).await,
            async |reader| reading::get(reader, key).await,
        )
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.read(
            async |snapshot| reading::get_many(snapshot, keys).await,
            async |reader| reading::get_many(reader, keys).await,
        )
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        self.read(
            async |snapshot| reading::scan(snapshot, from, to, limit).await,
            async |reader| reading::scan(reader, from, to, limit).await,
        )
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        if batch.expect.is_empty() && batch.rows.is_empty() {
            return Ok(Outcome::Committed);
        }
        if batch.rows.iter().any(|(key, _)| key.len() > KEY_MAX) {
            let detail = format!("a key is longer than {KEY_MAX} bytes");
            return Err(EngineError::Failed { place: self.name.clone(), detail });
        }
        self.commit_batch(batch)
    }

    fn writers(&self) -> Writers {
        Writers::One
    }

    fn alone_for(&self) -> Option<Duration> {
        Some(match self.alone {
            Alone::Always => Duration::MAX,
            Alone::Since(since) => since.elapsed(),
        })
    }

    /// Of tables; what is only in the log is not counted.
    fn size_on_disk(&self) -> u64 {
        self.status.borrow().current_manifest.all_sst_views().map(|view| view.estimate_size()).sum()
    }
}
