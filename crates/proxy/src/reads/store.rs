//! The stores of volumes, behind one cache.

use std::{collections::BTreeSet, fmt, ops::Range, sync::Arc};

use bytes::Bytes;
use forebay_cache::{CacheError, CacheOptions, DiskCache, Fetch, Hint, ObjectKey, Pinned, ReadError, Warmed};
use forebay_format::row::ObjectRef;
use forebay_object::{
    Backend, ErrorKind, ObjectError, ObjectStore, Operation, Patience, StoreOptions, StoreUrl,
};
use forebay_protocol::{VolumeInfo, group::Walk};
use forebay_reading::object_key;
use forebay_types::VolumeId;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::numbers::{Numbers, VolumeNumber};
use crate::process::{Directory, DirectoryError};

/// Lengths of objects that are remembered; all are forgotten when there are more.
const LENGTHS_MAX: usize = 1 << 20;
/// Objects whose lengths are asked for at a time.
const ASKING: usize = 64;

/// A volume's store, as its registry names it and this process's environment opens it.
struct Opened {
    /// What it was opened by: it is opened anew where that changes.
    by: VolumeInfo,
    store: ObjectStore,
}

#[derive(Default)]
struct Stores(RwLock<FxHashMap<VolumeNumber, Opened>>);

impl Fetch for Stores {
    type Error = ObjectError;

    fn fetch(&self, key: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, ObjectError> {
        let (volume, object) = VolumeNumber::of(key);
        self.of(volume, object)?.get_range(&object_key(object), offset..offset + len)
    }
}

impl Stores {
    fn of(&self, volume: VolumeNumber, object: ObjectRef) -> Result<ObjectStore, ObjectError> {
        let store = self.0.read().get(&volume).map(|opened| opened.store.clone());
        store.ok_or_else(|| {
            let (url, key) = (StoreUrl::File("/".into()), object_key(object));
            ObjectError::new(ErrorKind::Other, Operation::GetRange, &url, &key, "the volume is not open here")
        })
    }
}

/// The cache of a proxy, over the stores of all volumes that are read through it.
pub(crate) struct Objects {
    cache: DiskCache<Arc<Stores>>,
    stores: Arc<Stores>,
    numbers: Mutex<Numbers>,
    lengths: RwLock<FxHashMap<ObjectKey, u64>>,
    asking: [Mutex<()>; ASKING],
    /// How stores are reached, where volumes do not say it.
    options: StoreOptions,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({:?})", self.cache.stats())
    }
}

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// Its directory.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The numbers of volumes.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

impl Objects {
    /// Opens the cache in a member's directory, of at most `capacity` bytes.
    pub(crate) fn open(
        directory: &Directory,
        capacity: u64,
        options: StoreOptions,
    ) -> Result<Objects, ObjectsError> {
        // The cache is the member's: its marker has the member's id where a mount's has the volume's.
        let owner = VolumeId(directory.member.0);
        let dir = directory.path.join("cache");
        let numbers = Numbers::open(&directory.path, &dir, owner)?;
        let stores = Arc::new(Stores::default());
        // Clients read ahead.
        let threads = CacheOptions { prefetch_threads: 0, prefetch_queue: 0 };
        let cache = DiskCache::open(&dir, owner, capacity, Arc::clone(&stores), threads)?;
        Ok(Objects {
            cache,
            stores,
            numbers: Mutex::new(numbers),
            lengths: RwLock::default(),
            asking: [const { Mutex::new(()) }; ASKING],
            options,
        })
    }

    /// Opens a volume's store, with credentials of this process, and says by which number the volume goes here.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn volume(&self, info: &VolumeInfo) -> Result<VolumeNumber, String> {
        let number = self.numbers.lock().of(info.id).map_err(|error| error.to_string())?;
        let same = |opened: &Opened| {
            let reached =
                |info: &VolumeInfo| (info.store.clone(), info.endpoint.clone(), info.region.clone());
            reached(&opened.by) == reached(info)
        };
        if self.stores.0.read().get(&number).is_some_and(same) {
            return Ok(number);
        }
        let url: StoreUrl = info.store.parse().map_err(|error| format!("{}: {error}", info.store))?;
        let mut options = self.options.clone();
        options.endpoint = info.endpoint.clone().or(options.endpoint);
        options.region = info.region.clone().or(options.region);
        let store = ObjectStore::open(&url, &options).map_err(|error| error.to_string())?;
        let store = store.patient(Patience::Quick);
        self.stores.0.write().insert(number, Opened { by: info.clone(), store });
        Ok(number)
    }

    /// Bytes that are here: fewer only where the object ends.
    pub(crate) fn peek(&self, key: ObjectKey, offset: u64, len: u64, walk: Walk) -> Option<Bytes> {
        self.cache.peek(key, offset, len, hint(walk))
    }

    /// Bytes from here or from the store: fewer only where the object ends.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn read(
        &self,
        key: ObjectKey,
        offset: u64,
        len: u64,
        walk: Walk,
    ) -> Result<Bytes, ObjectError> {
        let object_len = self.length(key)?;
        let start = offset.min(object_len);
        let len = len.min(object_len - start);
        self.cache.read(key, object_len, start, len, hint(walk)).map_err(|error| of_store(key, error))
    }

    /// Bytes of the chunks of a range that are not here.
    pub(crate) fn missing(&self, key: ObjectKey, object_len: u64, range: Range<u64>) -> u64 {
        self.cache.missing(key, object_len, range)
    }

    /// Has those chunks of a range stay that are here ([`DiskCache::pin`]).
    pub(crate) fn pin(&self, key: ObjectKey, object_len: u64, range: Range<u64>, mark: u8) -> Pinned {
        self.cache.pin(key, object_len, range, mark)
    }

    /// The same, with what is missing fetched ([`DiskCache::pin_fetched`]).
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn pin_fetched(
        &self,
        key: ObjectKey,
        object_len: u64,
        range: Range<u64>,
        mark: u8,
    ) -> Result<Pinned, ObjectError> {
        let pinned = self.cache.pin_fetched(key, object_len, range, mark);
        pinned.map_err(|error| of_store(key, error))
    }

    /// Has those chunks of a range stay that stay already ([`DiskCache::pin_again`]).
    pub(crate) fn pin_again(&self, key: ObjectKey, range: Range<u64>, mark: u8) -> u64 {
        self.cache.pin_again(key, range, mark)
    }

    /// Lets others leave than those that were pinned with this mark, or are of one of these volumes. Says how many bytes that are.
    pub(crate) fn unpin_others(&self, mark: u8, but: &BTreeSet<VolumeNumber>) -> u64 {
        self.cache.unpin_others(mark, |key| but.contains(&VolumeNumber::of(key).0))
    }

    /// Volumes other than these of which something may be here, from whatever time.
    pub(crate) fn others(&self, volumes: &BTreeSet<VolumeId>) -> BTreeSet<VolumeNumber> {
        self.numbers.lock().others(volumes)
    }

    /// Drops all that is here of these volumes. Says how many bytes that were.
    pub(crate) fn expel_volumes(&self, volumes: &BTreeSet<VolumeNumber>) -> u64 {
        self.cache.forget_all_of(|key| volumes.contains(&VolumeNumber::of(key).0))
    }

    /// By which number a volume goes here, if it has one.
    pub(crate) fn number(&self, volume: VolumeId) -> Option<VolumeNumber> {
        self.numbers.lock().known(volume)
    }

    /// Drops the chunks of a range. Says how many bytes were here.
    pub(crate) fn expel(&self, key: ObjectKey, range: Range<u64>) -> u64 {
        self.cache.expel(key, range)
    }

    /// Has a range here, and waits for that.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn warm(
        &self,
        key: ObjectKey,
        object_len: u64,
        range: Range<u64>,
    ) -> Result<Warmed, ObjectError> {
        self.cache.warm(key, object_len, range).map_err(|error| of_store(key, error))
    }

    /// The length of an object, which the store is asked for once.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn length(&self, key: ObjectKey) -> Result<u64, ObjectError> {
        let known = || self.lengths.read().get(&key).copied();
        if let Some(len) = known() {
            return Ok(len);
        }
        let _turn = self.asking.get(key.id.0 as usize % ASKING).map(Mutex::lock);
        if let Some(len) = known() {
            return Ok(len);
        }
        let (volume, object) = VolumeNumber::of(&key);
        let len = self.stores.of(volume, object)?.head(&object_key(object))?.size;
        self.learn_length(key, len);
        Ok(len)
    }

    #[cfg(test)]
    pub(crate) fn forget_lengths(&self) {
        self.lengths.write().clear();
    }

    /// The length of an object, if it is known.
    pub(crate) fn known_length(&self, key: ObjectKey) -> Option<u64> {
        self.lengths.read().get(&key).copied()
    }

    fn learn_length(&self, key: ObjectKey, len: u64) {
        let mut lengths = self.lengths.write();
        if lengths.len() >= LENGTHS_MAX {
            lengths.clear();
        }
        lengths.insert(key, len);
    }

    /// Keeps an object that the store has, of which these are all bytes.
    pub(crate) fn keep_whole(&self, key: ObjectKey, bytes: &[u8]) {
        let len = bytes.len() as u64;
        self.learn_length(key, len);
        self.cache.insert(key, len, 0, bytes);
    }

    /// Keeps what another member had of an object.
    pub(crate) fn insert(&self, key: ObjectKey, object_len: u64, offset: u64, bytes: &[u8]) {
        self.cache.insert(key, object_len, offset, bytes);
    }

    /// Drops what somebody found wrong.
    pub(crate) fn distrust(&self, key: ObjectKey, offset: u64, len: u64) {
        self.cache.distrust(key, offset, len);
    }

    /// Drops an object that the store does not have.
    pub(crate) fn forget(&self, key: ObjectKey) {
        self.cache.forget(key);
        self.lengths.write().remove(&key);
    }

    pub(crate) fn stats(&self) -> forebay_cache::CacheStats {
        self.cache.stats()
    }
}

/// What a cache that could not fetch says, as the store would.
fn of_store(key: ObjectKey, error: ReadError<ObjectError>) -> ObjectError {
    match error {
        ReadError::Fetch(error) => error,
        other => {
            let (_, object) = VolumeNumber::of(&key);
            let (url, name) = (StoreUrl::File("/".into()), object_key(object));
            ObjectError::new(ErrorKind::Other, Operation::GetRange, &url, &name, other.to_string())
        }
    }
}

fn hint(walk: Walk) -> Hint {
    match walk {
        Walk::Sequential => Hint::Sequential,
        Walk::Nearby => Hint::Nearby,
        Walk::Random => Hint::Random,
    }
}
