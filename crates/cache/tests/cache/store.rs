use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_cache::{CHUNK_BYTES, CacheError, CacheOptions, DiskCache, Fetch, Hint, ObjectKey};
use forebay_types::{Epoch, ObjectId, VolumeId};

pub const CHUNK: u64 = CHUNK_BYTES;
pub const MIB: u64 = 1 << 20;
pub const VOLUME: VolumeId = VolumeId([5; 16]);

pub type Cache = DiskCache<Arc<Store>>;

/// A store in which every object has bytes that follow from its key, and which can be held up and made to fail.
#[derive(Default)]
pub struct Store {
    /// Requests come in but do not return.
    pub closed: AtomicBool,
    pub failing: AtomicBool,
    pub short: AtomicBool,
    pub panicking: AtomicBool,
    requests: parking_lot::Mutex<Vec<(ObjectKey, Range<u64>)>>,
    entered: AtomicU64,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the store is down")]
pub struct Down;

impl Store {
    pub fn new() -> Arc<Store> {
        Arc::default()
    }

    /// The byte ranges asked for since the last call, in order of their start.
    pub fn take_requests(&self) -> Vec<Range<u64>> {
        let mut requests: Vec<_> = self.requests.lock().drain(..).map(|(_, range)| range).collect();
        requests.sort_by_key(|range| range.start);
        requests
    }

    /// Requests that came in so far.
    pub fn entered(&self) -> u64 {
        self.entered.load(SeqCst)
    }
}

impl Fetch for Store {
    type Error = Down;

    fn fetch(&self, object: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, Down> {
        self.requests.lock().push((*object, offset..offset + len));
        self.entered.fetch_add(1, SeqCst);
        until("the store opens", || !self.closed.load(SeqCst));
        assert!(!self.panicking.load(SeqCst), "a panic of the store, wanted by the test");
        match self.failing.load(SeqCst) {
            true => Err(Down),
            false => Ok(content(*object, offset..offset + len - u64::from(self.short.load(SeqCst)))),
        }
    }
}

/// What the object holds in `range`.
pub fn content(object: ObjectKey, range: Range<u64>) -> Bytes {
    let word = |at: u64| {
        let mixed = (at ^ object.id.0.rotate_left(40) ^ object.epoch.0.rotate_left(52))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).to_le_bytes()
    };
    let words = range.start / 8..range.end.div_ceil(8);
    let mut bytes = Vec::with_capacity((words.end - words.start) as usize * 8);
    words.clone().for_each(|at| bytes.extend_from_slice(&word(at)));
    let skip = (range.start - words.start * 8) as usize;
    Bytes::from(bytes).slice(skip..skip + (range.end - range.start) as usize)
}

pub fn object(id: u64) -> ObjectKey {
    ObjectKey { epoch: Epoch(1), id: ObjectId(id) }
}

/// Waits for a condition that must come about.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The capacity at which exactly `chunks` are kept.
pub fn room_for(chunks: u64) -> u64 {
    chunks * (CHUNK + 129) + 16 * 1024
}

pub fn open(dir: &Path, capacity: u64, store: &Arc<Store>) -> Cache {
    try_open(dir, capacity, store).unwrap()
}

pub fn try_open(dir: &Path, capacity: u64, store: &Arc<Store>) -> Result<Cache, CacheError> {
    DiskCache::open(dir, VOLUME, capacity, store.clone(), CacheOptions::default())
}

/// Runs `test` over a cache on disk and over one in memory, each with its own store.
pub fn each_kind(capacity: u64, test: impl Fn(&Cache, &Arc<Store>)) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    test(&open(dir.path(), capacity, &store), &store);
    let store = Store::new();
    test(&DiskCache::memory(capacity, store.clone(), CacheOptions::default()).unwrap(), &store);
}

/// Reads and compares.
pub fn check(cache: &Cache, object: ObjectKey, object_len: u64, range: Range<u64>) {
    check_as(cache, object, object_len, range, Hint::Nearby);
}

pub fn check_as(cache: &Cache, object: ObjectKey, object_len: u64, range: Range<u64>, hint: Hint) {
    let bytes = cache.read(object, object_len, range.start, range.end - range.start, hint).unwrap();
    assert!(bytes == content(object, range.clone()), "wrong bytes of {object} in {range:?}");
}
