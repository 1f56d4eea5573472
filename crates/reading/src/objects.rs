//! Reading objects of data: through a cache on the local disk where the store is elsewhere, and straight from the files of a store that is a
//! directory of this machine.
//!
//! What is read is not verified here; who finds it wrong says so ([`ObjectReader::distrust`]), and the next read asks the store again.

use std::{fmt, ops::Range, path::Path};

use bytes::Bytes;
use forebay_cache::{CacheError, CacheOptions, CacheStats, DiskCache, Fetch, Hint, ObjectKey, ReadError};
use forebay_data::{Access, Parts, SourceError};
use forebay_format::row::ObjectRef;
use forebay_object::{Backend, ErrorKind, ObjectError, ObjectStore, Patience, StoreUrl};
use forebay_types::{SegmentId, VolumeId};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::{
    files::ObjectFiles,
    key::object_key,
    warm::{NotWarm, Stored, Warmed},
};

/// How far a reader of a local directory is read ahead of, in bytes: enough to keep a disk busy; more would only fill the page cache.
const LOCAL_WINDOW: u64 = 8 << 20;

/// Reads ranges of objects.
pub struct ObjectReader {
    store: ObjectStore,
    via: Via,
}

/// What stands before the store.
enum Via {
    /// Nothing: each read is a request.
    Nothing,
    /// The store is a directory of this machine.
    Files(ObjectFiles),
    /// It is elsewhere.
    Cache(Cached),
}

/// The cache of a store elsewhere.
struct Cached {
    cache: DiskCache<FromStore>,
    /// Lengths of objects.
    lens: RwLock<FxHashMap<ObjectRef, u64>>,
    /// Held while an object's length is asked for, so that it is asked for once: by the object's number.
    asking: [Mutex<()>; ASKING],
}

/// Lengths of so many objects are asked for at a time.
const ASKING: usize = 32;

struct FromStore(ObjectStore);

impl Fetch for FromStore {
    type Error = ObjectError;

    fn fetch(&self, object: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, ObjectError> {
        let object = ObjectRef { epoch: object.epoch, id: object.id };
        self.0.get_range(&object_key(object), offset..offset + len)
    }
}

impl fmt::Debug for ObjectReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let via = match &self.via {
            Via::Nothing => "not cached",
            Via::Files(_) => "by its files",
            Via::Cache(_) => "cached",
        };
        write!(f, "ObjectReader({}, {via})", self.store.url())
    }
}

fn cache_key(object: ObjectRef) -> ObjectKey {
    ObjectKey { epoch: object.epoch, id: object.id }
}

impl ObjectReader {
    /// Reads from the store each time.
    #[must_use]
    pub fn uncached(store: &ObjectStore) -> ObjectReader {
        ObjectReader { store: store.patient(Patience::Quick), via: Via::Nothing }
    }

    /// Reads from the files of a store that is a directory; as [`ObjectReader::uncached`] where it is none.
    #[must_use]
    pub fn by_files(store: &ObjectStore) -> ObjectReader {
        let via = match store.url() {
            StoreUrl::File(root) => Via::Files(ObjectFiles::new(root.clone())),
            _ => Via::Nothing,
        };
        ObjectReader { store: store.patient(Patience::Quick), via }
    }

    /// Reads through the cache in `dir`, of at most `capacity` bytes.
    ///
    /// # Errors
    /// [`CacheError`] where the directory cannot be a cache.
    pub fn cached(
        store: &ObjectStore,
        volume: VolumeId,
        dir: &Path,
        capacity: u64,
    ) -> Result<ObjectReader, CacheError> {
        let store = store.patient(Patience::Quick);
        let fetch = FromStore(store.clone());
        let cache = DiskCache::open(dir, volume, capacity, fetch, CacheOptions::default())?;
        Ok(ObjectReader::over(store, cache))
    }

    /// Reads through a cache of at most `capacity` bytes in memory.
    ///
    /// # Errors
    /// [`CacheError`] where its threads cannot be started.
    pub fn in_memory(store: &ObjectStore, capacity: u64) -> Result<ObjectReader, CacheError> {
        let store = store.patient(Patience::Quick);
        let cache = DiskCache::memory(capacity, FromStore(store.clone()), CacheOptions::default())?;
        Ok(ObjectReader::over(store, cache))
    }

    fn over(store: ObjectStore, cache: DiskCache<FromStore>) -> ObjectReader {
        let cached = Cached { cache, lens: RwLock::default(), asking: Default::default() };
        ObjectReader { store, via: Via::Cache(cached) }
    }

    /// How far a sequential reader should be read ahead of, in bytes; 0: not at all.
    #[must_use]
    pub fn read_ahead_limit(&self) -> u64 {
        match &self.via {
            Via::Nothing => 0,
            Via::Files(_) => LOCAL_WINDOW,
            Via::Cache(cached) => cached.cache.read_ahead_limit(),
        }
    }

    fn in_cache(&self) -> Option<&Cached> {
        match &self.via {
            Via::Cache(cached) => Some(cached),
            Via::Nothing | Via::Files(_) => None,
        }
    }

    /// Fills `out` with bytes of an object, for a segment that is in it. Returns how many came: fewer only where the object has no more.
    ///
    /// # Errors
    /// [`SourceError`]; `out` may then have bytes that mean nothing.
    pub fn read(
        &self,
        segment: SegmentId,
        object: ObjectRef,
        offset: u64,
        out: &mut [u8],
        access: Access,
    ) -> Result<usize, SourceError> {
        if let Via::Files(files) = &self.via
            && files.read(object, offset, out)
        {
            return Ok(out.len());
        }
        let range = offset..offset.saturating_add(out.len() as u64);
        let read = match self.in_cache() {
            Some(cached) => self.read_cached(cached, segment, object, range, access),
            None => self
                .store
                .get_range(&object_key(object), range)
                .map(|bytes| vec![bytes])
                .map_err(Wrong::Store),
        };
        let parts = read.map_err(|wrong| wrong.explain(segment, offset))?;
        let mut got = 0;
        for part in parts {
            let len = part.len().min(out.len() - got);
            out[got..got + len].copy_from_slice(&part[..len]);
            got += len;
        }
        Ok(got)
    }

    /// Whether [`ObjectReader::share`] ever gives anything.
    #[must_use]
    pub fn shares(&self) -> bool {
        self.in_cache().is_some()
    }

    /// Bytes of an object as the cache has them in memory; fewer only where the object has no more. `None` where there is no cache.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn share(
        &self,
        segment: SegmentId,
        object: ObjectRef,
        offset: u64,
        len: u32,
        access: Access,
    ) -> Result<Option<Parts>, SourceError> {
        let Some(cached) = self.in_cache() else { return Ok(None) };
        let range = offset..offset.saturating_add(u64::from(len));
        let read = self.read_cached(cached, segment, object, range, access);
        read.map(|parts| Some(Parts::from_vec(parts))).map_err(|wrong| wrong.explain(segment, offset))
    }

    fn read_cached(
        &self,
        cached: &Cached,
        segment: SegmentId,
        object: ObjectRef,
        range: Range<u64>,
        access: Access,
    ) -> Result<Vec<Bytes>, Wrong> {
        let (key, object_len) = (cache_key(object), self.object_len(cached, object)?);
        let hint = match access {
            Access::Random => Hint::Random,
            Access::Nearby => Hint::Nearby,
            Access::Sequential => Hint::Sequential,
        };
        let (offset, len) = (range.start, range.end - range.start);
        cached.cache.read_parts(key, object_len, offset, len, hint).map_err(|error| match error {
            ReadError::Fetch(error) => Wrong::Store(error),
            ReadError::Abandoned { .. } => {
                Wrong::Source(SourceError::Unavailable { segment, detail: error.to_string() })
            }
            ReadError::WrongLength { .. } | ReadError::OutOfRange { .. } => {
                Wrong::Source(SourceError::Corrupt { segment, offset, detail: error.to_string() })
            }
        })
    }

    /// Has bytes of an object brought near, without waiting for them.
    pub fn prefetch(&self, object: ObjectRef, offset: u64, len: u64) {
        match &self.via {
            Via::Nothing => {}
            Via::Files(files) => files.prefetch(object, offset, len),
            Via::Cache(cached) => {
                // Who reads the object later is told what is wrong with it.
                let Ok(object_len) = self.object_len(cached, object) else { return };
                cached.cache.prefetch(cache_key(object), object_len, offset..offset.saturating_add(len));
            }
        }
    }

    /// Has bytes of an object in the cache, and waits for that. `None` where there is no cache.
    ///
    /// # Errors
    /// [`NotWarm`].
    pub fn warm(&self, stored: &Stored) -> Result<Option<Warmed>, NotWarm> {
        let Some(cached) = self.in_cache() else { return Ok(None) };
        let Stored { segment, object, range } = stored;
        let not_warm = |wrong: Wrong| match wrong.explain(*segment, range.start) {
            SourceError::NotFound { segment, .. } => NotWarm::Moved(segment),
            error => NotWarm::Failed(error.to_string()),
        };
        let len = self.object_len(cached, *object).map_err(not_warm)?;
        let warmed =
            cached.cache.warm(cache_key(*object), len, range.clone()).map_err(|error| match error {
                ReadError::Fetch(error) => not_warm(Wrong::Store(error)),
                error => NotWarm::Failed(error.to_string()),
            })?;
        Ok(Some(warmed))
    }

    fn object_len(&self, cached: &Cached, object: ObjectRef) -> Result<u64, Wrong> {
        let known = || cached.lens.read().get(&object).copied();
        if let Some(len) = known() {
            return Ok(len);
        }
        let turn = cached.asking.get(object.id.0 as usize % ASKING);
        let _turn = turn.map(Mutex::lock);
        if let Some(len) = known() {
            return Ok(len);
        }
        let len = self.store.head(&object_key(object)).map_err(Wrong::Store)?.size;
        cached.lens.write().insert(object, len);
        Ok(len)
    }

    /// Says that bytes that were read are not what was written.
    pub fn distrust(&self, object: ObjectRef, offset: u64, len: u32) {
        if let Some(cached) = self.in_cache() {
            cached.cache.distrust(cache_key(object), offset, u64::from(len));
        }
    }

    /// Says that an object was put from the file at `path`: who wrote it is likely to read it.
    pub fn uploaded(&self, object: ObjectRef, path: &Path) {
        let Some(cached) = self.in_cache() else { return };
        if let Ok(about) = path.metadata() {
            cached.lens.write().insert(object, about.len());
        }
        if let Err(error) = cached.cache.insert_file(cache_key(object), path) {
            tracing::warn!("an uploaded object is not cached: {error}");
        }
    }

    /// Says that an object of these bytes was put, from memory.
    pub fn uploaded_bytes(&self, object: ObjectRef, bytes: &[u8]) {
        let Some(cached) = self.in_cache() else { return };
        let len = bytes.len() as u64;
        cached.lens.write().insert(object, len);
        cached.cache.insert(cache_key(object), len, 0, bytes);
    }

    /// Says that an object was deleted.
    pub fn deleted(&self, object: ObjectRef) {
        match &self.via {
            Via::Nothing => {}
            Via::Files(files) => files.forget(object),
            Via::Cache(cached) => {
                cached.cache.forget(cache_key(object));
                cached.lens.write().remove(&object);
            }
        }
    }

    /// Drops all that the cache holds.
    pub fn empty_cache(&self) {
        if let Some(cached) = self.in_cache() {
            cached.cache.empty();
        }
    }

    /// What the cache holds and has done; `None` where there is none.
    #[must_use]
    pub fn stats(&self) -> Option<CacheStats> {
        self.in_cache().map(|cached| cached.cache.stats())
    }
}

enum Wrong {
    Store(ObjectError),
    Source(SourceError),
}

impl Wrong {
    fn explain(self, segment: SegmentId, offset: u64) -> SourceError {
        match self {
            Wrong::Store(error) => explain(segment, offset, &error),
            Wrong::Source(error) => error,
        }
    }
}

fn explain(segment: SegmentId, offset: u64, error: &ObjectError) -> SourceError {
    let detail = error.to_string();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NoBucket => SourceError::NotFound { segment, detail },
        ErrorKind::Corrupt => SourceError::Corrupt { segment, offset, detail },
        _ => SourceError::Unavailable { segment, detail },
    }
}
