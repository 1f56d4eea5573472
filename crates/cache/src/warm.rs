//! Bringing near what somebody will want: nothing is handed on, and what is here already is neither read nor fetched.

use std::ops::{AddAssign, Range};

use crate::{
    DiskCache, Fetch, ObjectKey, ReadError,
    cache::Shared,
    key::Object,
    read::{Purpose, REQUEST_CHUNKS},
};

/// Times that what is missing is fetched: others may have been fetching a part of the same chunks.
const ATTEMPTS: u32 = 2;

/// What became of bytes that were to be in a cache. All are bytes of whole chunks, as they are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Warmed {
    /// Bytes that were there.
    pub cached: u64,
    /// Bytes that came, from the store or by the fetch of somebody else.
    pub fetched: u64,
    /// Bytes of these that are not there now: the cache's disk is full or failing, or others have pushed them out.
    pub lost: u64,
}

impl AddAssign for Warmed {
    fn add_assign(&mut self, other: Warmed) {
        self.cached += other.cached;
        self.fetched += other.fetched;
        self.lost += other.lost;
    }
}

impl<F: Fetch> DiskCache<F> {
    /// Has the chunks of `range` (cut to the object) in the cache, and returns when they are: those that are there are left alone, the others are
    /// fetched, in requests of at most 8 MiB, or waited for where they are on their way.
    ///
    /// # Errors
    /// [`ReadError`], of the first request that failed; what came before it is kept.
    pub fn warm(
        &self,
        object: ObjectKey,
        object_len: u64,
        range: Range<u64>,
    ) -> Result<Warmed, ReadError<F::Error>> {
        let whole = Object { key: object, len: object_len };
        let range = range.start.min(object_len)..range.end.min(object_len);
        match whole.holds(&range) {
            true => self.shared.warm(whole, &range),
            false => {
                let (offset, len) = (range.start, range.end.saturating_sub(range.start));
                Err(ReadError::OutOfRange { object, object_len, offset, len })
            }
        }
    }
}

impl<F: Fetch> DiskCache<F> {
    /// How many bytes of the chunks of `range` (cut to the object) are not in the cache now.
    #[must_use]
    pub fn missing(&self, object: ObjectKey, object_len: u64, range: Range<u64>) -> u64 {
        let whole = Object { key: object, len: object_len };
        let range = range.start.min(object_len)..range.end.min(object_len);
        if !whole.holds(&range) {
            return 0;
        }
        let all: Vec<u32> = whole.chunks(&range).collect();
        bytes(whole, &self.shared.missing(whole, &all))
    }
}

impl<F: Fetch> Shared<F> {
    fn warm(&self, object: Object, range: &Range<u64>) -> Result<Warmed, ReadError<F::Error>> {
        let all: Vec<u32> = object.chunks(range).collect();
        let mut missing = self.missing(object, &all);
        let mut warmed =
            Warmed { cached: bytes(object, &all) - bytes(object, &missing), ..Warmed::default() };
        warmed.fetched = bytes(object, &missing);
        for _ in 0..ATTEMPTS {
            if missing.is_empty() {
                break;
            }
            let wanted = object.bytes(&(all[0]..all[all.len() - 1] + 1));
            let purpose =
                Purpose { wanted: Some(&wanted), narrow: false, trust: true, request_chunks: REQUEST_CHUNKS };
            let plan = self.plan(object, missing.iter().copied(), purpose);
            self.fly_all(&plan.owned);
            for flight in plan.owned.iter().chain(plan.joined.iter().map(|(flight, _)| flight)) {
                // Those who wait for bytes have them before they are kept.
                flight.wait()?;
                flight.wait_end();
            }
            missing = self.missing(object, &missing);
            // What came by a flight of ours and did not stay would not stay the next time.
            if plan.joined.is_empty() && plan.owned.iter().all(|flight| flight.shared) {
                break;
            }
        }
        warmed.lost = bytes(object, &self.missing(object, &all));
        Ok(warmed)
    }

    /// Those of the chunks that are not here with all of their bytes.
    fn missing(&self, object: Object, chunks: &[u32]) -> Vec<u32> {
        let index = &self.state.lock().index;
        let is_missing = |chunk: &u32| {
            let all = object.grains(*chunk, &object.bytes(&(*chunk..*chunk + 1)));
            let found = index.find(object.chunk(*chunk));
            !found.is_some_and(|found| found.len == object.chunk_len(*chunk) && all & !found.present == 0)
        };
        chunks.iter().copied().filter(is_missing).collect()
    }
}

fn bytes(object: Object, chunks: &[u32]) -> u64 {
    chunks.iter().map(|chunk| u64::from(object.chunk_len(*chunk))).sum()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use std::sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    use bytes::Bytes;
    use forebay_types::{Epoch, ObjectId, VolumeId};

    use super::*;
    use crate::{CHUNK_BYTES, CacheOptions, Hint};

    const OBJECT: ObjectKey = ObjectKey { epoch: Epoch(3), id: ObjectId(9) };
    const LEN: u64 = 40 * CHUNK_BYTES + 1000;

    #[derive(Default)]
    struct Store {
        asked: Mutex<Vec<(u64, u64)>>,
        away: AtomicBool,
    }

    impl Fetch for Store {
        type Error = ();

        fn fetch(&self, _: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, ()> {
            self.asked.lock().unwrap().push((offset, len));
            if self.away.load(SeqCst) {
                return Err(());
            }
            Ok((offset..offset + len).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into())
        }
    }

    fn cache(capacity: u64) -> (tempfile::TempDir, std::sync::Arc<Store>, DiskCache<std::sync::Arc<Store>>) {
        let (dir, store) = (tempfile::tempdir().unwrap(), std::sync::Arc::new(Store::default()));
        let options = CacheOptions { prefetch_threads: 0, prefetch_queue: 0 };
        let cache = DiskCache::open(dir.path(), VolumeId([1; 16]), capacity, store.clone(), options).unwrap();
        (dir, store, cache)
    }

    #[test]
    fn what_is_missing_is_fetched_once_and_what_is_here_never() {
        let (_dir, store, cache) = cache(64 << 20);
        cache.read(OBJECT, LEN, 3 * CHUNK_BYTES, 1, Hint::Nearby).unwrap();
        cache.read(OBJECT, LEN, 5 * CHUNK_BYTES, 1, Hint::Random).unwrap();
        store.asked.lock().unwrap().clear();
        let warmed = cache.warm(OBJECT, LEN, 100..u64::MAX).unwrap();
        assert_eq!(warmed, Warmed { cached: CHUNK_BYTES, fetched: LEN - CHUNK_BYTES, lost: 0 });
        let asked: u64 = store.asked.lock().unwrap().iter().map(|(_, len)| len).sum();
        assert_eq!(asked, LEN - CHUNK_BYTES, "the one of which a part was here is fetched whole");
        assert!(store.asked.lock().unwrap().len() <= 4, "in large requests");
        store.asked.lock().unwrap().clear();
        assert_eq!(cache.warm(OBJECT, LEN, 0..LEN).unwrap(), Warmed { cached: LEN, fetched: 0, lost: 0 });
        assert_eq!((cache.missing(OBJECT, LEN, 0..u64::MAX), cache.missing(OBJECT, LEN, 5..5)), (0, 0));
        cache.distrust(OBJECT, LEN - 1, 1);
        assert_eq!(cache.missing(OBJECT, LEN, 0..LEN), 1000);
        assert_eq!(
            cache.warm(OBJECT, LEN, 0..LEN).unwrap(),
            Warmed { cached: LEN - 1000, fetched: 1000, lost: 0 }
        );
        store.asked.lock().unwrap().clear();
        assert_eq!(cache.warm(OBJECT, LEN, 7..7).unwrap(), Warmed::default());
        assert_eq!(cache.warm(OBJECT, LEN, LEN + 7..LEN + 9).unwrap(), Warmed::default());
        assert_eq!(cache.read(OBJECT, LEN, 0, LEN, Hint::Sequential).unwrap().len() as u64, LEN);
        assert!(store.asked.lock().unwrap().is_empty());
    }

    #[test]
    fn what_does_not_fit_is_said_to_be_lost() {
        let (_dir, _, cache) = cache(16 * (CHUNK_BYTES + 129) + 16_384);
        let warmed = cache.warm(OBJECT, LEN, 0..LEN).unwrap();
        assert_eq!((warmed.cached, warmed.fetched), (0, LEN));
        let kept = cache.stats().used_bytes;
        assert!(kept > 0 && warmed.lost >= LEN - 16 * CHUNK_BYTES, "{warmed:?}, {kept} are kept");
    }

    #[test]
    fn what_others_are_fetching_is_there_when_it_is_said_to_be() {
        let (_dir, _, cache) = cache(64 << 20);
        for round in 0..100 {
            let object = ObjectKey { epoch: Epoch(3), id: ObjectId(round) };
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let warmed = cache.warm(object, 3 * CHUNK_BYTES, 0..3 * CHUNK_BYTES).unwrap();
                        assert_eq!(warmed.lost, 0, "{warmed:?}");
                    });
                }
            });
            cache.forget(object);
        }
    }

    #[test]
    fn a_store_that_fails_is_an_error_and_is_asked_again_the_next_time() {
        let (_dir, store, cache) = cache(64 << 20);
        store.away.store(true, SeqCst);
        assert!(cache.warm(OBJECT, LEN, 0..LEN).is_err());
        store.away.store(false, SeqCst);
        assert_eq!(cache.warm(OBJECT, LEN, 0..LEN).unwrap(), Warmed { cached: 0, fetched: LEN, lost: 0 });
    }
}
