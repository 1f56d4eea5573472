use std::{path::PathBuf, sync::Arc, time::Duration};

use forebay_env::{Clock, SystemClock};
use forebay_format::{MasterKey, RunSealer};
use forebay_object::{Backend, ObjectStore, StoreUrl};
use forebay_reading::ObjectReader;
use forebay_types::VolumeId;

use super::{lanes::Members, line::Due};
use crate::{ClientError, group::VolumeGroup};

/// Bytes of objects that are cached in memory where there is no directory for them.
const MEMORY_CACHE: u64 = 256 << 20;

/// What stands between reads and the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreCache {
    /// The files of a store that is a directory; nothing where it is none.
    Files,
    /// So many bytes of memory.
    Memory(u64),
    /// A directory, and how many bytes it may have.
    Directory(PathBuf, u64),
}

impl StoreCache {
    /// What suits a store without a directory for a cache.
    #[must_use]
    pub fn of(store: &ObjectStore) -> StoreCache {
        match store.url() {
            StoreUrl::File(_) => StoreCache::Files,
            _ => StoreCache::Memory(MEMORY_CACHE),
        }
    }

    pub(super) fn open(&self, store: &ObjectStore, volume: VolumeId) -> Result<ObjectReader, ClientError> {
        let opened = match self {
            StoreCache::Files => Ok(ObjectReader::by_files(store)),
            StoreCache::Memory(bytes) => ObjectReader::in_memory(store, *bytes),
            StoreCache::Directory(dir, bytes) => ObjectReader::cached(store, volume, dir, *bytes),
        };
        opened.map_err(|error| ClientError::Store(error.to_string()))
    }
}

/// Whether a write waits where the budget is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It waits until there is room.
    Wait,
    /// It goes over the budget: a page that the kernel writes back, perhaps while the lease is recalled.
    Exceed,
}

/// How contents are kept.
#[derive(Clone)]
pub struct ContentsOptions {
    /// Bytes that are kept back at most, pages that the kernel writes back aside.
    pub budget: u64,
    /// At so many bytes in layers that nobody has begun to store, a batch begins unasked.
    pub batch: u64,
    /// And when something was kept back so long.
    pub age: Duration,
    /// Batches on their way at a time.
    pub batches: usize,
    /// What stands between reads and the store.
    pub cache: StoreCache,
    /// The group of proxies through which objects are read; `None`: from the store.
    pub group: Option<Arc<VolumeGroup>>,
    /// The members of a group over whose logs it is written; `None`: batches are put into the store.
    pub members: Option<Arc<dyn Members>>,
    /// Keys to read with.
    pub keys: Vec<MasterKey>,
    /// The key to write with; `None` writes in the clear.
    pub key: Option<MasterKey>,
    /// Where the times of writes come from.
    pub clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for ContentsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ContentsOptions { budget, batch, age, batches, cache, .. } = self;
        let sealed = self.key.is_some();
        write!(f, "ContentsOptions({budget} {batch} {age:?} {batches} {cache:?}, sealed: {sealed})")
    }
}

impl ContentsOptions {
    /// The usual ones, with what suits the store in front of it.
    #[must_use]
    pub fn of(store: &ObjectStore) -> ContentsOptions {
        ContentsOptions {
            budget: 256 << 20,
            batch: 64 << 20,
            age: Duration::from_secs(5),
            batches: 4,
            cache: StoreCache::of(store),
            group: None,
            members: None,
            keys: Vec::new(),
            key: None,
            clock: Arc::new(SystemClock),
        }
    }

    /// The same, read through the group of a volume as long as that has one, and written over it where the volume says so. Its files would be read past it.
    #[must_use]
    pub fn through(self, group: &Arc<VolumeGroup>) -> ContentsOptions {
        let cache = match self.cache {
            StoreCache::Files if group.name().is_some() => StoreCache::Memory(MEMORY_CACHE),
            cache => cache,
        };
        let members = Some(Arc::clone(group) as Arc<dyn Members>);
        ContentsOptions { cache, group: Some(Arc::clone(group)), members, ..self }
    }

    pub(super) fn due(&self) -> Due {
        Due { bytes: self.batch, age: self.age, batches: self.batches }
    }

    pub(super) fn sealer(&self) -> Result<Option<RunSealer>, ClientError> {
        let Some(key) = &self.key else { return Ok(None) };
        let salt = forebay_env::random()
            .map_err(|error| ClientError::Store(format!("the system has no random bits: {error}")))?;
        let sealer = RunSealer::new(key, salt);
        sealer.map(Some).map_err(|error| ClientError::Store(format!("cannot encrypt: {error}")))
    }
}
