//! What is there, and nothing else: for those who can do without.

use bytes::Bytes;

use crate::{
    CHUNK_BYTES, DiskCache, Fetch, Hint, ObjectKey,
    cache::Shared,
    key::Object,
    read::Plan,
    storage::{in_order, joined},
};

impl<F: Fetch> DiskCache<F> {
    /// The bytes `offset..offset + len` of an object where all of them are here, verified; fewer where the object ends before. `None` where some are
    /// missing: nothing is fetched, and no flight is waited for. Needs no length of the object: what is here has it.
    #[must_use]
    pub fn peek(&self, object: ObjectKey, offset: u64, len: u64, hint: Hint) -> Option<Bytes> {
        let wanted = offset..offset.checked_add(len)?;
        let unbounded = Object { key: object, len: wanted.end };
        if wanted.is_empty() || !unbounded.holds(&wanted) {
            return None;
        }
        self.shared.peek(unbounded, hint, wanted.start)
    }
}

impl<F: Fetch> Shared<F> {
    fn peek(&self, wanted: Object, hint: Hint, offset: u64) -> Option<Bytes> {
        let range = offset..wanted.len;
        let (plan, range) = {
            let state = self.state.lock();
            let mut found = Vec::new();
            // Where the object ends, as far as that is told by a chunk that is shorter than others.
            let mut end = None;
            for index in wanted.chunks(&range) {
                if end.is_some() {
                    break;
                }
                let chunk = state.index.find(wanted.chunk(index))?;
                let chunk_end = u64::from(index) * CHUNK_BYTES + u64::from(chunk.len);
                end = (u64::from(chunk.len) < CHUNK_BYTES).then_some(chunk_end);
                found.push((index, chunk, chunk_end));
            }
            let range = offset..range.end.min(end.unwrap_or(u64::MAX));
            if range.is_empty() {
                return None;
            }
            // Long enough that each of these chunks has the length that it was kept with.
            let object = Object { key: wanted.key, len: found.last()?.2 };
            let mut plan: Plan<F::Error> = Plan { cached: Vec::new(), joined: Vec::new(), owned: Vec::new() };
            for (index, chunk, _) in found {
                if object.grains(index, &range) & !chunk.present != 0 || chunk.len != object.chunk_len(index)
                {
                    return None;
                }
                plan.add_cached(object, index, chunk);
            }
            (plan, range)
        };
        let mut pieces = Vec::with_capacity(plan.cached.len());
        for run in &plan.cached {
            pieces.extend(self.read_run(run, &range, hint).ok()?);
        }
        Some(joined(&in_order(pieces)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use forebay_types::{Epoch, ObjectId, VolumeId};

    use super::*;
    use crate::CacheOptions;

    const OBJECT: ObjectKey = ObjectKey { epoch: Epoch(3), id: ObjectId(9) };
    const LEN: u64 = 2 * CHUNK_BYTES + 100_000;

    #[derive(Default)]
    struct Store(AtomicU64);

    fn byte(at: u64) -> u8 {
        (at % 251) as u8
    }

    impl Fetch for Store {
        type Error = ();

        fn fetch(&self, _: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, ()> {
            self.0.fetch_add(1, SeqCst);
            Ok((offset..offset + len).map(byte).collect::<Vec<u8>>().into())
        }
    }

    #[test]
    fn what_is_there_is_given_and_nothing_is_fetched() {
        let dir = tempfile::tempdir().unwrap();
        for reopened in [false, true] {
            let options = CacheOptions { prefetch_threads: 0, prefetch_queue: 0 };
            let cache =
                DiskCache::open(dir.path(), VolumeId([1; 16]), 4 << 20, Store::default(), options).unwrap();
            let peek = |offset: u64, len: u64| cache.peek(OBJECT, offset, len, Hint::Nearby);
            if !reopened {
                assert_eq!(peek(0, 10), None);
                cache.read(OBJECT, LEN, CHUNK_BYTES + 5, 10, Hint::Nearby).unwrap();
                assert_eq!(peek(0, 10), None, "the first chunk is not there");
                assert_eq!(peek(CHUNK_BYTES - 1, 2), None, "a part of it is not there");
                cache.read(OBJECT, LEN, 0, LEN, Hint::Sequential).unwrap();
            }
            let fetches = cache.stats().fetches;
            for (offset, len, comes) in [
                (0, 1, 1),
                (17, 300_000, 300_000),
                (0, LEN, LEN),
                (CHUNK_BYTES * 2, LEN, 100_000),
                (LEN - 5, 1 << 20, 5),
            ] {
                let bytes = peek(offset, len).unwrap();
                assert_eq!(bytes.len() as u64, comes, "{offset} {len}");
                assert!(bytes.iter().zip(offset..).all(|(found, at)| *found == byte(at)));
            }
            for (offset, len) in [(LEN, 5), (0, 0), (u64::MAX, 5), (LEN + CHUNK_BYTES, 5)] {
                assert_eq!(peek(offset, len), None, "{offset} {len}");
            }
            assert_eq!(cache.stats().fetches, fetches);
        }
    }

    #[test]
    fn grains_that_are_not_there_and_damage_are_no_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let options = CacheOptions { prefetch_threads: 0, prefetch_queue: 0 };
        let cache =
            DiskCache::open(dir.path(), VolumeId([1; 16]), 4 << 20, Store::default(), options).unwrap();
        cache.read(OBJECT, LEN, 20_000, 100, Hint::Random).unwrap();
        assert!(cache.peek(OBJECT, 16_384, 16_384, Hint::Random).is_some());
        assert_eq!(cache.peek(OBJECT, 16_000, 1_000, Hint::Random), None);
        let slab = dir.path().join("slab-00000.chunks");
        let file = std::fs::OpenOptions::new().write(true).open(slab).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"xx", (2 << 20) + 20_000).unwrap();
        assert_eq!(cache.peek(OBJECT, 16_384, 16_384, Hint::Random), None);
        assert_eq!((cache.stats().corrupt, cache.stats().chunks), (1, 0), "it is dropped");
    }
}
