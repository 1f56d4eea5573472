use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use forebay_env::FileLock;
use forebay_types::VolumeId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::{
    CHUNK_BYTES, CacheError, CacheStats, Fetch, MAX_WINDOW, ObjectKey, ReadError, directory,
    flight::Flight,
    index::Index,
    key::{ChunkKey, Object},
    memory::Memory,
    prefetch::{Executor, Queue},
    slabs::{Slabs, slots_in},
    stats::Counters,
    storage::{Piece, Put, Storage, joined},
};

/// How many read-ahead threads there are, and how much may wait for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheOptions {
    /// Threads that read ahead, each with a request of at most 2 MiB at a time. With 0, nothing is read ahead.
    pub prefetch_threads: usize,
    /// Ranges of at most 2 MiB that may wait for these threads; more are dropped.
    pub prefetch_queue: usize,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions { prefetch_threads: 12, prefetch_queue: 128 }
    }
}

/// What a reader knows about its reads, used to tell what is worth keeping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hint {
    /// One of several reads that go through the object: the reads that one pass makes of one chunk are one use of it.
    Sequential,
    /// One that is likely to be followed by others near it; each is a use.
    Nearby,
    /// One that jumps: nothing around it is fetched, and each read is a use.
    Random,
}

/// A bounded cache of ranges of immutable objects, on a disk or in memory. All methods may be called from many threads.
///
/// Dropping it is [`shutdown`](DiskCache::shutdown).
pub struct DiskCache<F: Fetch> {
    pub(crate) shared: Arc<Shared<F>>,
    executor: Executor,
}

/// What the readers and the threads that read ahead share.
pub(crate) struct Shared<F: Fetch> {
    pub fetch: F,
    pub storage: Storage,
    pub state: Mutex<State<F::Error>>,
    pub counters: Counters,
    pub queue: Queue,
    capacity: u64,
    _lock: Option<FileLock>,
}

/// What is kept and what is on its way. A chunk may be in both for a moment, and in neither only if it is nowhere.
pub(crate) struct State<E> {
    pub index: Index,
    pub flights: FxHashMap<ChunkKey, Arc<Flight<E>>>,
}

impl<F: Fetch> DiskCache<F> {
    /// Opens the cache of `volume` in `dir`, or makes one there, bounded to `capacity_bytes` of disk. What it held when
    /// it was closed, or when its process was killed, is in it again as far as the capacity allows.
    ///
    /// # Errors
    /// [`CacheError`]: the directory is another's, in use, of a newer format, or cannot be read or written. A foreign
    /// directory is left as it was.
    pub fn open(
        dir: &Path,
        volume: VolumeId,
        capacity_bytes: u64,
        fetch: F,
        options: CacheOptions,
    ) -> Result<DiskCache<F>, CacheError> {
        let lock = directory::claim(dir, volume)?;
        let slots = slots_in(capacity_bytes);
        let slabs = Slabs::open(dir, slots)?;
        let mut index = Index::new(slots);
        slabs.recover(|slot, header| index.recover(slot, header.key, header.len, header.present));
        index.recovered();
        DiskCache::start(Storage::Slabs(slabs), index, Some(lock), capacity_bytes, fetch, options)
    }

    /// A cache of `capacity_bytes` of memory, empty. It may take more for what came with what it holds: at most twice as much, and an eighth.
    ///
    /// # Errors
    /// [`CacheError::Thread`].
    pub fn memory(capacity_bytes: u64, fetch: F, options: CacheOptions) -> Result<DiskCache<F>, CacheError> {
        let index = Index::new(slots_in(capacity_bytes));
        DiskCache::start(
            Storage::Memory(Memory::new(capacity_bytes / 8)),
            index,
            None,
            capacity_bytes,
            fetch,
            options,
        )
    }

    fn start(
        storage: Storage,
        index: Index,
        lock: Option<FileLock>,
        capacity: u64,
        fetch: F,
        options: CacheOptions,
    ) -> Result<DiskCache<F>, CacheError> {
        let state = Mutex::new(State { index, flights: FxHashMap::default() });
        let queue = Queue::new(options.prefetch_queue);
        let counters = Counters::default();
        let shared = Arc::new(Shared { fetch, storage, state, counters, queue, capacity, _lock: lock });
        let executor = Executor::start(&shared, options.prefetch_threads)?;
        Ok(DiskCache { shared, executor })
    }

    /// The bytes `offset..offset + len` of `object`, which is `object_len` long: from the cache, and what is missing from
    /// the store, in requests of whole chunks, of at most 8 MiB, in parallel if there are several. Chunks that another
    /// thread is fetching are waited for. The answer may share memory with a whole request: copy what is to be kept long.
    ///
    /// # Errors
    /// [`ReadError`], the same for all who waited for a fetch. Never for a fault of the cache's disk.
    pub fn read(
        &self,
        object: ObjectKey,
        object_len: u64,
        offset: u64,
        len: u64,
        hint: Hint,
    ) -> Result<Bytes, ReadError<F::Error>> {
        Ok(joined(&self.read_pieces((object, object_len), offset, len, hint)?))
    }

    /// The same as it lies in memory, one part behind the other: nothing is copied.
    ///
    /// # Errors
    /// As [`DiskCache::read`].
    pub fn read_parts(
        &self,
        object: ObjectKey,
        object_len: u64,
        offset: u64,
        len: u64,
        hint: Hint,
    ) -> Result<Vec<Bytes>, ReadError<F::Error>> {
        let pieces = self.read_pieces((object, object_len), offset, len, hint)?;
        Ok(pieces.iter().map(Piece::bytes).collect())
    }

    fn read_pieces(
        &self,
        (object, object_len): (ObjectKey, u64),
        offset: u64,
        len: u64,
        hint: Hint,
    ) -> Result<Vec<Piece>, ReadError<F::Error>> {
        let whole = Object { key: object, len: object_len };
        match offset.checked_add(len).map(|end| offset..end).filter(|range| whole.holds(range)) {
            Some(range) => self.shared.read(whole, &range, hint),
            None => Err(ReadError::OutOfRange { object, object_len, offset, len }),
        }
    }

    /// Has the chunks of `range` (cut to the object) fetched by the threads that read ahead, but for those that are
    /// cached or on their way then. Returns at once; if too much is waiting already, nothing happens.
    pub fn prefetch(&self, object: ObjectKey, object_len: u64, range: Range<u64>) {
        let whole = Object { key: object, len: object_len };
        let range = range.start..range.end.min(object_len);
        if whole.holds(&range) && self.shared.state.lock().index.limit() > 0 {
            self.shared.queue_ahead(whole, &range);
        }
    }

    /// How far a reader may be ahead of itself without pushing its own unread chunks out, in bytes: for
    /// [`ReadAhead::new`](crate::ReadAhead::new).
    #[must_use]
    pub fn read_ahead_limit(&self) -> u64 {
        let index = &self.shared.state.lock().index;
        let half = u64::from(index.small_target().min(index.limit())) * CHUNK_BYTES / 2;
        half.min(MAX_WINDOW)
    }

    /// Keeps those chunks of `object`, `object_len` long, that lie wholly in `bytes`, which begin at `offset`.
    pub fn insert(&self, object: ObjectKey, object_len: u64, offset: u64, bytes: &[u8]) {
        let whole = Object { key: object, len: object_len };
        let range = offset..offset.saturating_add(bytes.len() as u64);
        if !whole.holds(&range) {
            return;
        }
        for index in whole.chunks(&range) {
            let chunk = whole.bytes(&(index..index + 1));
            if range.start <= chunk.start && chunk.end <= range.end {
                let payload = &bytes[(chunk.start - offset) as usize..(chunk.end - offset) as usize];
                self.shared.keep(&all_of(whole.chunk(index), payload), None);
            }
        }
    }

    /// Keeps all chunks of `object`, whose bytes are those of the file at `path`, which nobody changes meanwhile.
    ///
    /// # Errors
    /// If the file cannot be read; what came before is kept.
    pub fn insert_file(&self, object: ObjectKey, path: &Path) -> Result<(), CacheError> {
        let failed = |source| CacheError::Io { action: "read", path: PathBuf::from(path), source };
        let file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let whole = Object { key: object, len };
        if !whole.holds(&(0..len)) {
            return Err(failed(io::ErrorKind::FileTooLarge.into()));
        }
        let mut payload = Vec::new();
        for index in whole.chunks(&(0..len)) {
            payload.resize(whole.chunk_len(index) as usize, 0);
            file.read_exact_at(&mut payload, u64::from(index) * CHUNK_BYTES).map_err(failed)?;
            self.shared.keep(&all_of(whole.chunk(index), &payload), None);
        }
        Ok(())
    }

    /// Drops all chunks of a deleted object. What is being fetched of it is not kept.
    pub fn forget(&self, object: ObjectKey) {
        let slots = {
            let mut state = self.shared.state.lock();
            state.flights.retain(|key, _| key.object != object);
            state.index.remove_object(object)
        };
        self.shared.clear(&slots);
    }

    /// Drops all chunks of these objects, pinned or not. What is being fetched of them is not kept. Says how many bytes were here.
    pub fn forget_all_of(&self, wanted: impl Fn(&ObjectKey) -> bool) -> u64 {
        let (slots, bytes) = {
            let mut state = self.shared.state.lock();
            let before = state.index.used_bytes();
            state.flights.retain(|key, _| !wanted(&key.object));
            let slots = state.index.remove_objects(wanted);
            (slots, before - state.index.used_bytes())
        };
        self.shared.clear(&slots);
        bytes
    }

    /// Drops all chunks. What is being fetched is not kept.
    pub fn empty(&self) {
        let slots = {
            let mut state = self.shared.state.lock();
            state.flights.clear();
            state.index.remove_all()
        };
        self.shared.clear(&slots);
    }

    /// Drops the chunks that `offset..offset + len` touches, because the caller found them wrong. What is being fetched of
    /// them is not kept, and not given to reads that start after this.
    pub fn distrust(&self, object: ObjectKey, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let whole = Object { key: object, len: end };
        if !whole.holds(&(offset..end)) {
            return;
        }
        let mut slots = Vec::new();
        {
            let mut state = self.shared.state.lock();
            for index in whole.chunks(&(offset..end)) {
                state.flights.remove(&whole.chunk(index));
                slots.extend(state.index.remove(whole.chunk(index)));
            }
        }
        self.shared.counters.distrusted.add(slots.len() as u64);
        self.shared.clear(&slots);
    }

    /// What it holds and has done.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.shared.stats()
    }

    /// Stops reading ahead: what waits is dropped, what is being fetched is waited for. Reads and insertions go on working.
    pub fn shutdown(&self) {
        self.executor.stop(&self.shared.queue);
    }
}

/// A whole chunk, to be copied.
fn all_of(key: ChunkKey, part: &[u8]) -> Put<'_> {
    Put { key, len: part.len() as u32, at: 0, part, within: None }
}

impl<F: Fetch> Drop for DiskCache<F> {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl<F: Fetch> Shared<F> {
    /// Writes a part of a chunk to a slot, beside what is there of it, and publishes that, unless it is there already, or came by a flight that is no
    /// longer wanted. A fault of the disk is noted, and the chunk not kept.
    pub(crate) fn keep(&self, put: &Put<'_>, flight: Option<&Arc<Flight<F::Error>>>) {
        let Put { key, len, .. } = *put;
        let room = {
            let index = &mut self.state.lock().index;
            match index.find(key) {
                Some(found) if found.len != len || put.present() & !found.present == 0 => None,
                // While it is out of the index, no reader takes header and payload for one that are not.
                Some(found) => index.take(key).map(|taken| (taken.slot, found.present, Some(taken))),
                None => index.reserve().map(|slot| (slot, 0, None)),
            }
        };
        let Some((slot, older, taken)) = room else { return };
        let present = match self.storage.write(slot, put, older) {
            Ok(present) => present,
            Err(error) => {
                self.note_fault(&error);
                self.state.lock().index.release(slot);
                return;
            }
        };
        let published = {
            let State { index, flights } = &mut *self.state.lock();
            let wanted =
                flight.is_none_or(|own| flights.get(&key).is_some_and(|other| Arc::ptr_eq(own, other)));
            let ahead = flight.is_some_and(|own| own.is_ahead());
            wanted
                && match taken {
                    Some(taken) => index.put_back(taken, key, len, present),
                    None => index.publish(slot, key, len, present, ahead),
                }
        };
        if !published {
            self.clear(&[slot]);
        }
    }

    /// Empties reserved slots, then frees them.
    pub(crate) fn clear(&self, slots: &[u32]) {
        if slots.is_empty() {
            return;
        }
        for &slot in slots {
            if let Err(error) = self.storage.erase(slot) {
                self.note_fault(&error);
            }
        }
        let mut state = self.state.lock();
        slots.iter().for_each(|&slot| state.index.release(slot));
    }

    /// Counts a fault of the cache's disk, and logs the first of its kind.
    pub(crate) fn note_fault(&self, error: &io::Error) {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
        if full.contains(&error.kind()) {
            self.counters.skipped_full.add(1);
            if self.counters.logged_full.first() {
                tracing::warn!(%error, "the cache's disk is full: what is read is no longer kept; give it room or a lower bound");
            }
        } else {
            self.counters.disk_errors.add(1);
            if self.counters.logged_error.first() {
                tracing::error!(%error, "the cache's disk fails: reads go to the store instead; look at the disk");
            }
        }
    }

    fn stats(&self) -> CacheStats {
        let counters = &self.counters;
        let prefetch_queued = self.queue.len();
        let state = self.state.lock();
        CacheStats {
            hits: counters.hits.get(),
            misses: counters.misses.get(),
            joined: counters.joined.get(),
            fetches: counters.fetches.get(),
            fetched_bytes: counters.fetched_bytes.get(),
            failed_fetches: counters.failed_fetches.get(),
            evictions: state.index.evictions(),
            chunks: state.index.chunks(),
            used_bytes: state.index.used_bytes(),
            pinned_bytes: state.index.pinned_bytes(),
            pinned_max_bytes: u64::from(state.index.pins_max()) * CHUNK_BYTES,
            capacity_bytes: self.capacity,
            in_flight: state.flights.len() as u64,
            prefetch_queued,
            prefetch_dropped: counters.prefetch_dropped.get(),
            skipped_full: counters.skipped_full.get(),
            disk_errors: counters.disk_errors.get(),
            corrupt: counters.corrupt.get(),
            distrusted: counters.distrusted.get(),
        }
    }
}
