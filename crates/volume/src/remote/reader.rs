//! Reading objects of data: through a cache on the local disk where the store is elsewhere, and straight from the volume's own directory.
//!
//! What is read is not verified here; who finds it wrong says so ([`ObjectReader::distrust`]), and the next read asks the store again.

use std::{fmt, path::Path};

use bytes::Bytes;
use forebay_cache::{CacheOptions, CacheStats, DiskCache, Fetch, Hint, ObjectKey, ReadAhead, ReadError};
use forebay_data::SourceError;
use forebay_format::row::ObjectRef;
use forebay_object::{Backend, ErrorKind, ObjectError, ObjectStore, Patience};
use forebay_types::{SegmentId, VolumeId};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::{error::VolumeError, source::object_key};

/// Reads ranges of objects.
pub(crate) struct ObjectReader {
    store: ObjectStore,
    cached: Option<Cached>,
}

/// The cache of a store elsewhere.
struct Cached {
    cache: DiskCache<FromStore>,
    ahead: Mutex<ReadAhead>,
    /// Lengths of objects, asked for once.
    lens: RwLock<FxHashMap<ObjectRef, u64>>,
}

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
        let cache = if self.cached.is_some() { "cached" } else { "not cached" };
        write!(f, "ObjectReader({}, {cache})", self.store.url())
    }
}

fn cache_key(object: ObjectRef) -> ObjectKey {
    ObjectKey { epoch: object.epoch, id: object.id }
}

impl ObjectReader {
    /// Reads from the store each time.
    pub(crate) fn uncached(store: &ObjectStore) -> ObjectReader {
        ObjectReader { store: store.patient(Patience::Quick), cached: None }
    }

    /// Reads through the cache in `dir`, of at most `capacity` bytes.
    ///
    /// # Errors
    /// [`VolumeError::Option`] where the directory cannot be a cache.
    pub(crate) fn cached(
        store: &ObjectStore,
        volume: VolumeId,
        dir: &Path,
        capacity: u64,
    ) -> Result<ObjectReader, VolumeError> {
        let store = store.patient(Patience::Quick);
        let cache = DiskCache::open(dir, volume, capacity, FromStore(store.clone()), CacheOptions::default())
            .map_err(|error| VolumeError::Option(error.to_string()))?;
        let ahead = Mutex::new(ReadAhead::new(cache.read_ahead_limit()));
        Ok(ObjectReader { store, cached: Some(Cached { cache, ahead, lens: RwLock::default() }) })
    }

    /// Bytes of an object, for a segment that is in it.
    pub(crate) fn read(
        &self,
        segment: SegmentId,
        object: ObjectRef,
        offset: u64,
        len: u32,
    ) -> Result<Bytes, SourceError> {
        let read = match &self.cached {
            Some(cached) => self.read_cached(cached, segment, object, offset, u64::from(len)),
            None => self
                .store
                .get_range(&object_key(object), offset..offset + u64::from(len))
                .map_err(Wrong::Store),
        };
        read.map_err(|wrong| match wrong {
            Wrong::Store(error) => explain(segment, offset, &error),
            Wrong::Source(error) => error,
        })
    }

    fn read_cached(
        &self,
        cached: &Cached,
        segment: SegmentId,
        object: ObjectRef,
        offset: u64,
        len: u64,
    ) -> Result<Bytes, Wrong> {
        let (key, object_len) = (cache_key(object), self.object_len(cached, object)?);
        let stream = object.id.0 ^ object.epoch.0 << 48;
        let ahead = cached.ahead.lock().observe(stream, offset, len, object_len);
        let hint = if ahead.is_some() { Hint::Sequential } else { Hint::Random };
        if let Some(range) = ahead {
            cached.cache.prefetch(key, object_len, range);
        }
        cached.cache.read(key, object_len, offset, len, hint).map_err(|error| match error {
            ReadError::Fetch(error) => Wrong::Store(error),
            ReadError::Abandoned { .. } => {
                Wrong::Source(SourceError::Unavailable { segment, detail: error.to_string() })
            }
            ReadError::WrongLength { .. } | ReadError::OutOfRange { .. } => {
                Wrong::Source(SourceError::Corrupt { segment, offset, detail: error.to_string() })
            }
        })
    }

    fn object_len(&self, cached: &Cached, object: ObjectRef) -> Result<u64, Wrong> {
        if let Some(len) = cached.lens.read().get(&object) {
            return Ok(*len);
        }
        let len = self.store.head(&object_key(object)).map_err(Wrong::Store)?.size;
        cached.lens.write().insert(object, len);
        Ok(len)
    }

    /// Says that bytes that were read are not what was written.
    pub(crate) fn distrust(&self, object: ObjectRef, offset: u64, len: u32) {
        if let Some(cached) = &self.cached {
            cached.cache.distrust(cache_key(object), offset, u64::from(len));
        }
    }

    /// Says that an object was put from the file at `path`: who wrote it is likely to read it.
    pub(crate) fn uploaded(&self, object: ObjectRef, path: &Path) {
        let Some(cached) = &self.cached else { return };
        if let Err(error) = cached.cache.insert_file(cache_key(object), path) {
            tracing::warn!("an uploaded object is not cached: {error}");
        }
    }

    /// Says that an object was deleted.
    pub(crate) fn deleted(&self, object: ObjectRef) {
        if let Some(cached) = &self.cached {
            cached.cache.forget(cache_key(object));
            cached.lens.write().remove(&object);
        }
    }

    /// Drops all that the cache holds.
    pub(crate) fn empty_cache(&self) {
        if let Some(cached) = &self.cached {
            cached.cache.empty();
        }
    }

    /// What the cache holds and has done; `None` where there is none.
    pub(crate) fn stats(&self) -> Option<CacheStats> {
        self.cached.as_ref().map(|cached| cached.cache.stats())
    }
}

enum Wrong {
    Store(ObjectError),
    Source(SourceError),
}

fn explain(segment: SegmentId, offset: u64, error: &ObjectError) -> SourceError {
    let detail = error.to_string();
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NoBucket => SourceError::NotFound { segment, detail },
        ErrorKind::Corrupt => SourceError::Corrupt { segment, offset, detail },
        _ => SourceError::Unavailable { segment, detail },
    }
}
