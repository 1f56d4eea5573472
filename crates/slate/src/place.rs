//! What all databases of one place share: threads, the store, a cache of blocks, and how they are opened.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use forebay_engine::EngineError;
use forebay_object::ObjectStore as Store;
use parking_lot::Mutex;
use slatedb::{
    Db, DbReader, DbReaderMode, Settings,
    config::{
        CompactionWorkerOptions, CompactorOptions, GarbageCollectorDirectoryOptions, GarbageCollectorOptions,
    },
    db_cache::{
        DbCache,
        moka::{MokaCache, MokaCacheOptions},
    },
};
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::{bucket::Bucket, explain};

/// Bytes of blocks that are kept in memory, of all databases together.
const CACHE: u64 = 128 << 20;
/// Threads that make requests; others wait for them.
const REQUESTS: usize = 64;

/// How long is waited.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// For a database to be opened, and for a batch to be durable.
    pub commit: Duration,
    /// For a read.
    pub read: Duration,
    /// For how long the registry must not have been written to before it is taken from whoever may have it. Servers write to it every
    /// second.
    pub quiet: Duration,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { commit: Duration::from_mins(1), read: Duration::from_secs(30), quiet: Duration::from_secs(3) }
    }
}

pub(crate) struct Place {
    /// For messages.
    pub(crate) name: String,
    pub(crate) store: Store,
    pub(crate) waits: Waits,
    cache: Arc<dyn DbCache>,
    next_cache_id: AtomicU64,
    /// Databases that are being closed, by their paths.
    closing: Mutex<Vec<(String, JoinHandle<()>)>>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Place {
    pub(crate) fn new(name: String, store: Store, waits: Waits) -> Result<Place, EngineError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(REQUESTS)
            .thread_name("fb-slate")
            .enable_all()
            .build()
            .map_err(|error| EngineError::Failed { place: name.clone(), detail: error.to_string() })?;
        let options = MokaCacheOptions { max_capacity: CACHE, ..MokaCacheOptions::default() };
        Ok(Place {
            name,
            store,
            waits,
            cache: Arc::new(MokaCache::new_with_opts(options)),
            next_cache_id: AtomicU64::new(1),
            closing: Mutex::default(),
            runtime: Some(runtime),
        })
    }

    /// Waits for something; `None` when it takes too long. It is dropped then.
    pub(crate) fn wait<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let runtime = self.runtime.as_ref()?;
        runtime.block_on(async { tokio::time::timeout(limit, work).await.ok() })
    }

    /// Lets something go on by itself.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(work);
        }
    }

    /// Lets a database be closed, which goes on by itself.
    pub(crate) fn close(&self, path: String, closing: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            let task = runtime.spawn(closing);
            let mut all = self.closing.lock();
            all.retain(|(_, task)| !task.is_finished());
            all.push((path, task));
        }
    }

    /// Waits until a database that was let go here is closed, or that takes too long: one that is writes to the store.
    pub(crate) fn wait_closed(&self, path: &str) {
        let closing: Vec<_> = self.closing.lock().extract_if(.., |(closing, _)| closing == path).collect();
        for (path, task) in closing {
            if self.wait(self.waits.commit, task).is_none() {
                tracing::warn!("{}: {path} is not closed yet; what that writes is left", self.name);
            }
        }
    }

    pub(crate) fn cache_id(&self) -> u64 {
        self.next_cache_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens the database below a prefix, made if it is not there, and shuts out whoever has it open.
    pub(crate) fn open(&self, path: &str, bucket: &Bucket, cache_id: u64) -> Result<Db, EngineError> {
        let builder = Db::builder(path.to_owned(), Arc::new(bucket.clone()))
            .with_settings(settings())
            .with_db_cache(Arc::clone(&self.cache), cache_id);
        let opened = self.wait(self.waits.commit, builder.build());
        let opened = opened.ok_or_else(|| explain::too_late(&self.name, self.last_trouble()))?;
        opened.map_err(|error| explain::of_slate(&self.name, &error))
    }

    /// Looks into a database as the store has it now, and shuts nobody out.
    pub(crate) async fn look(
        &self,
        path: &str,
        bucket: &Bucket,
        cache_id: u64,
    ) -> Result<DbReader, slatedb::Error> {
        let builder = DbReader::builder(path.to_owned(), Arc::new(bucket.clone()));
        let builder = builder.with_reader_mode(DbReaderMode::FollowLatest);
        builder.with_db_cache(Arc::clone(&self.cache), cache_id).build().await
    }

    pub(crate) fn last_trouble(&self) -> Option<String> {
        let last = self.store.last_error()?.error;
        (!last.is_answer()).then(|| last.to_string())
    }
}

/// A store that is away is no reason to give up: it is asked until it answers, and who waits says when that is too long.
const FOR_EVER: Duration = Duration::from_hours(24 * 365);

/// Nothing is put while nothing is written; looking costs requests too, so it is done seldom.
fn settings() -> Settings {
    let garbage = || Some(GarbageCollectorDirectoryOptions::default());
    Settings {
        // Whoever commits sees to it that it is put.
        flush_interval: None,
        manifest_poll_interval: Duration::from_secs(10),
        manifest_update_timeout: FOR_EVER,
        l0_sst_size_bytes: 16 << 20,
        max_unflushed_bytes: 256 << 20,
        compactor_options: Some(CompactorOptions {
            poll_interval: Duration::from_secs(20),
            manifest_update_timeout: FOR_EVER,
            max_concurrent_compactions: 1,
            worker: Some(CompactionWorkerOptions {
                max_concurrent_compactions: 1,
                compactions_poll_interval: Duration::from_secs(20),
                // An upload is collected in memory.
                max_sst_size: 64 << 20,
                ..CompactionWorkerOptions::default()
            }),
            ..CompactorOptions::default()
        }),
        garbage_collector_options: Some(GarbageCollectorOptions {
            manifest_options: garbage(),
            wal_options: garbage(),
            // They keep former writers out for good.
            wal_fence_options: None,
            compacted_options: garbage(),
            compactions_options: garbage(),
            detach_options: None,
            ..GarbageCollectorOptions::default()
        }),
        ..Settings::default()
    }
}
