//! The store that the rest of Forebay holds: any backend, counted.

use std::{ops::Range, path::Path, sync::Arc, time::Instant};

use bytes::Bytes;

use crate::{
    Backend, BucketStore, Counters, DirectoryStore, ETag, ErrorKind, Expected, LastError, Meta, ObjectError,
    Operation, Page, Patience, PutOutcome, StoreOptions, StoreUrl, Swept, check_key, key::check_prefix,
};

/// An opened store. Cheap to clone; clones share connections, limits and counters. Keys are checked here, before any backend sees
/// them.
#[derive(Clone, Debug)]
pub struct ObjectStore {
    backend: Arc<dyn Backend>,
    counters: Arc<Counters>,
}

impl ObjectStore {
    /// Opens the store at an address. No request is made to a bucket; [`probe`](crate::probe()) makes some.
    ///
    /// # Errors
    /// `NoBucket` for a directory that is not there (unless it may be created); `Other` for options that make no sense.
    pub fn open(url: &StoreUrl, options: &StoreOptions) -> Result<ObjectStore, ObjectError> {
        let counters = Arc::new(Counters::default());
        let backend: Arc<dyn Backend> = match url {
            StoreUrl::File(dir) if options.create_directory => Arc::new(DirectoryStore::create(dir)?),
            StoreUrl::File(dir) => Arc::new(DirectoryStore::open(dir)?),
            _ => Arc::new(BucketStore::open(url, options, Arc::clone(&counters))?),
        };
        Ok(ObjectStore { backend, counters })
    }

    /// A store over any backend, with counters of its own.
    #[must_use]
    pub fn over(backend: Arc<dyn Backend>) -> ObjectStore {
        ObjectStore { backend, counters: Arc::new(Counters::default()) }
    }

    /// The same store with another patience.
    #[must_use]
    pub fn patient(&self, patience: Patience) -> ObjectStore {
        let backend = self.backend.with_patience(patience).unwrap_or_else(|| Arc::clone(&self.backend));
        ObjectStore { backend, counters: Arc::clone(&self.counters) }
    }

    /// What was asked of the store through this handle and its clones.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The last trouble with the store.
    #[must_use]
    pub fn last_error(&self) -> Option<LastError> {
        self.counters.last_error()
    }

    fn counted<T>(
        &self,
        operation: Operation,
        key: &str,
        bytes: impl Fn(&T) -> u64,
        run: impl FnOnce(&dyn Backend) -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let good = if operation == Operation::List { check_prefix(key) } else { check_key(key) };
        good.map_err(|reason| ObjectError::new(ErrorKind::Other, operation, self.url(), key, reason))?;
        let start = Instant::now();
        let result = run(&*self.backend);
        self.counters.ended(operation, start.elapsed(), result.as_ref().map(bytes));
        result
    }
}

impl Backend for ObjectStore {
    fn url(&self) -> &StoreUrl {
        self.backend.url()
    }

    fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectError> {
        let size = bytes.len() as u64;
        self.counted(Operation::PutNew, key, |_| size, |backend| backend.put_new(key, bytes))
    }

    fn put_new_file(&self, key: &str, file: &Path) -> Result<PutOutcome, ObjectError> {
        let size = || file.metadata().map_or(0, |meta| meta.len());
        self.counted(Operation::PutNewFile, key, |_| size(), |backend| backend.put_new_file(key, file))
    }

    fn put_if(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<PutOutcome, ObjectError> {
        let size = bytes.len() as u64;
        self.counted(Operation::PutIf, key, |_| size, |backend| backend.put_if(key, bytes, expected))
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        self.counted(
            Operation::GetRange,
            key,
            |got: &Bytes| got.len() as u64,
            |backend| backend.get_range(key, range),
        )
    }

    fn get(&self, key: &str) -> Result<(Bytes, ETag), ObjectError> {
        self.counted(
            Operation::Get,
            key,
            |got: &(Bytes, ETag)| got.0.len() as u64,
            |backend| backend.get(key),
        )
    }

    fn head(&self, key: &str) -> Result<Meta, ObjectError> {
        self.counted(Operation::Head, key, |_| 0, |backend| backend.head(key))
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.counted(Operation::Delete, key, |()| 0, |backend| backend.delete(key))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        self.counted(Operation::List, prefix, |_| 0, |backend| backend.list(prefix, after))
    }

    fn sweep(&self, remove: bool) -> Result<Swept, ObjectError> {
        self.backend.sweep(remove)
    }

    fn with_patience(&self, patience: Patience) -> Option<Arc<dyn Backend>> {
        Some(Arc::new(self.patient(patience)))
    }
}
