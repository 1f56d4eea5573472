//! Chunks that stay whatever else is read, for as long as somebody wants that.
//!
//! Guarantees: what is pinned leaves only when it is deleted, distrusted or no longer wanted, and is at most half of the cache; the rest is shared by all
//! others. Pins are in memory alone: after an opening nothing is pinned, and what was is there until something else takes its place.

use std::ops::Range;

use crate::{CHUNK_BYTES, DiskCache, Fetch, Hint, ObjectKey, ReadError, index::Pin, key::Object};

/// What became of bytes that are to stay. All are bytes of whole chunks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pinned {
    /// They are here, and stay.
    pub stays: u64,
    /// They would stay, but are not here, or not all of their chunk: ranges of the object, of whole chunks.
    pub missing: Vec<Range<u64>>,
    /// There is no room for them among those that stay.
    pub no_room: u64,
}

impl Pinned {
    /// Bytes that would stay, and are not here.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        self.missing.iter().map(|range| range.end - range.start).sum()
    }
}

impl<F: Fetch> DiskCache<F> {
    /// Has those chunks of `range` (cut to the object) stay that are here. `mark` is any number but that of the time before: [`DiskCache::unpin_others`] lets those leave that did
    /// not get it. Where there is no room for all, the first of them have it.
    #[must_use]
    pub fn pin(&self, object: ObjectKey, object_len: u64, range: Range<u64>, mark: u8) -> Pinned {
        let whole = Object { key: object, len: object_len };
        let range = range.start.min(object_len)..range.end.min(object_len);
        let mut pinned = Pinned::default();
        if !whole.holds(&range) {
            return pinned;
        }
        let index = &mut self.shared.state.lock().index;
        let mut wanted = 0;
        for chunk in whole.chunks(&range) {
            let (len, bytes) = (whole.chunk_len(chunk), whole.bytes(&(chunk..chunk + 1)));
            match index.pin(whole.chunk(chunk), (len, whole.grains(chunk, &bytes)), mark) {
                Pin::Stays => pinned.stays += u64::from(len),
                Pin::NoRoom => pinned.no_room += u64::from(len),
                Pin::Missing if wanted >= index.pins_left() => pinned.no_room += u64::from(len),
                Pin::Missing => {
                    wanted += 1;
                    match pinned.missing.last_mut() {
                        Some(last) if last.end == bytes.start => last.end = bytes.end,
                        _ => pinned.missing.push(bytes),
                    }
                }
            }
        }
        pinned
    }

    /// The same, with what of `range`, at most 8 MiB, is missing fetched: chunk by chunk it is pinned as it comes, so that none makes way for the next. What is missing still, others
    /// have pushed out in that moment, or the disk does not take it.
    ///
    /// # Errors
    /// [`ReadError`], of the request that failed; what was here before it stays.
    pub fn pin_fetched(
        &self,
        object: ObjectKey,
        object_len: u64,
        range: Range<u64>,
        mark: u8,
    ) -> Result<Pinned, ReadError<F::Error>> {
        for missing in self.pin(object, object_len, range.clone(), mark).missing {
            let (start, len) = (missing.start, missing.end - missing.start);
            let bytes = self.read(object, object_len, start, len, Hint::Sequential)?;
            let mut at = start;
            while at < missing.end {
                let end = missing.end.min(at + CHUNK_BYTES);
                if !self.pin(object, object_len, at..end, mark).missing.is_empty() {
                    self.insert(
                        object,
                        object_len,
                        at,
                        &bytes[(at - start) as usize..(end - start) as usize],
                    );
                    let _ = self.pin(object, object_len, at..end, mark);
                }
                at = end;
            }
        }
        Ok(self.pin(object, object_len, range, mark))
    }

    /// Has those chunks of `range` stay that stay already, where nobody can say how long the object is. Says how many bytes that are.
    #[must_use]
    pub fn pin_again(&self, object: ObjectKey, range: Range<u64>, mark: u8) -> u64 {
        let whole = Object { key: object, len: range.end };
        if !whole.holds(&range) {
            return 0;
        }
        let index = &mut self.shared.state.lock().index;
        whole.chunks(&range).map(|chunk| index.pin_again(whole.chunk(chunk), mark)).sum()
    }

    /// Lets chunks leave again that were pinned, and not with this mark since, but for objects that `stay` as they are. Says how many bytes leave.
    pub fn unpin_others(&self, mark: u8, stay: impl Fn(&ObjectKey) -> bool) -> u64 {
        self.shared.state.lock().index.unpin_others(mark, stay)
    }

    /// Drops the chunks that `range` touches, pinned or not. What is being fetched of them is not kept. Says how many bytes were here.
    pub fn expel(&self, object: ObjectKey, range: Range<u64>) -> u64 {
        let whole = Object { key: object, len: range.end };
        if !whole.holds(&range) {
            return 0;
        }
        let (slots, bytes) = {
            let mut state = self.shared.state.lock();
            let before = state.index.used_bytes();
            let mut slots = Vec::new();
            for chunk in whole.chunks(&range) {
                state.flights.remove(&whole.chunk(chunk));
                slots.extend(state.index.remove(whole.chunk(chunk)));
            }
            (slots, before - state.index.used_bytes())
        };
        self.shared.clear(&slots);
        bytes
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use bytes::Bytes;
    use forebay_types::{Epoch, ObjectId, VolumeId};
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;
    use crate::CacheOptions;

    struct Store;

    impl Fetch for Store {
        type Error = ();

        fn fetch(&self, _: &ObjectKey, offset: u64, len: u64) -> Result<Bytes, ()> {
            Ok((offset..offset + len).map(|at| (at % 251) as u8).collect::<Vec<u8>>().into())
        }
    }

    const LEN: u64 = 10 * CHUNK_BYTES;

    fn object(id: u64) -> ObjectKey {
        ObjectKey { epoch: Epoch(3), id: ObjectId(id) }
    }

    /// A cache of so many chunks.
    fn cache(slots: u64) -> (tempfile::TempDir, DiskCache<Store>) {
        let dir = tempfile::tempdir().unwrap();
        let cache = DiskCache::open(dir.path(), VolumeId([1; 16]), room(slots), Store, NO_THREADS).unwrap();
        (dir, cache)
    }

    const NO_THREADS: CacheOptions = CacheOptions { prefetch_threads: 0, prefetch_queue: 0 };

    fn room(slots: u64) -> u64 {
        slots * (CHUNK_BYTES + 129) + 16_384
    }

    fn scan(cache: &DiskCache<Store>, objects: Range<u64>) {
        for id in objects {
            cache.read(object(id), LEN, 0, LEN, Hint::Nearby).unwrap();
        }
    }

    #[test]
    fn what_is_pinned_stays_and_the_rest_leaves() {
        let (dir, cache) = cache(40);
        cache.warm(object(1), LEN, 0..LEN).unwrap();
        let pinned = cache.pin(object(1), LEN, 0..LEN, 1);
        assert_eq!(pinned, Pinned { stays: LEN, ..Pinned::default() });
        scan(&cache, 2..60);
        assert_eq!(cache.missing(object(1), LEN, 0..LEN), 0, "a scan of fifteen times the cache");
        assert_eq!(cache.stats().pinned_bytes, LEN);
        assert!(cache.stats().chunks <= 40);
        cache.unpin_others(1, |_| false);
        assert_eq!(cache.stats().pinned_bytes, LEN, "it has the mark");
        assert_eq!(cache.unpin_others(2, |_| false), LEN);
        assert_eq!((cache.stats().pinned_bytes, cache.missing(object(1), LEN, 0..LEN)), (0, 0));
        for _ in 0..20 {
            scan(&cache, 2..60);
        }
        assert_ne!(cache.missing(object(1), LEN, 0..LEN), 0, "it may leave again");
        let _ = cache.pin(object(2), LEN, 0..LEN, 1);
        drop(cache);
        let cache = DiskCache::open(dir.path(), VolumeId([1; 16]), room(40), Store, NO_THREADS).unwrap();
        assert_eq!(cache.stats().pinned_bytes, 0, "pins are in memory alone");
    }

    #[test]
    fn half_of_the_cache_may_be_pinned_and_no_pin_takes_the_place_of_another() {
        let (_dir, cache) = cache(41);
        let none = cache.pin(object(1), LEN, 0..LEN, 1);
        assert_eq!((none.stays, none.missing_bytes(), none.no_room), (0, LEN, 0));
        for id in 1..3 {
            cache.warm(object(id), LEN, 0..LEN).unwrap();
            assert_eq!(cache.pin(object(id), LEN, 0..LEN, 1).stays, LEN);
        }
        cache.warm(object(3), LEN, 0..LEN).unwrap();
        let full = cache.pin(object(3), LEN, 0..LEN, 1);
        assert_eq!(full, Pinned { no_room: LEN, ..Pinned::default() });
        assert_eq!(cache.pin(object(4), LEN, 0..LEN, 1).no_room, LEN, "nothing is to be fetched either");
        let stats = cache.stats();
        assert_eq!((stats.pinned_bytes, stats.pinned_max_bytes), (2 * LEN, 20 * CHUNK_BYTES));
        // What is wanted still has its place; what is not makes room.
        assert_eq!(cache.pin(object(2), LEN, 0..LEN, 2).stays, LEN);
        assert_eq!(cache.unpin_others(2, |_| false), LEN);
        cache.warm(object(3), LEN, 0..LEN).unwrap();
        assert_eq!(cache.pin(object(3), LEN, 0..LEN, 2).stays, LEN);
        assert_eq!(cache.stats().pinned_bytes, 2 * LEN);
    }

    #[test]
    fn a_chunk_that_is_here_in_part_is_missing_and_comes_to_be_pinned_with_the_rest() {
        let (_dir, cache) = cache(40);
        cache.read(object(1), LEN, 3 * CHUNK_BYTES + 5, 10, Hint::Random).unwrap();
        cache.read(object(1), LEN, 0, 1, Hint::Nearby).unwrap();
        let pinned = cache.pin(object(1), LEN, 0..4 * CHUNK_BYTES, 1);
        assert_eq!(pinned.stays, CHUNK_BYTES);
        assert_eq!(pinned.missing, std::slice::from_ref(&(CHUNK_BYTES..4 * CHUNK_BYTES)));
        cache.warm(object(1), LEN, CHUNK_BYTES..4 * CHUNK_BYTES).unwrap();
        assert_eq!(cache.pin(object(1), LEN, 0..4 * CHUNK_BYTES, 1).stays, 4 * CHUNK_BYTES);
        cache.distrust(object(1), 0, 1);
        assert_eq!(cache.stats().pinned_bytes, 3 * CHUNK_BYTES, "what is wrong does not stay");
        assert_eq!(cache.expel(object(1), 2 * CHUNK_BYTES..LEN), 2 * CHUNK_BYTES);
        assert_eq!(cache.stats().pinned_bytes, CHUNK_BYTES);
        cache.forget(object(1));
        assert_eq!((cache.stats().pinned_bytes, cache.stats().chunks), (0, 0));
    }

    #[test]
    fn what_nobody_can_say_anything_of_stays_as_it_is() {
        let (_dir, cache) = cache(80);
        for id in 1..4 {
            cache.warm(object(id), LEN, 0..LEN).unwrap();
            assert_eq!(cache.pin(object(id), LEN, 0..LEN, 1).stays, LEN);
        }
        // Some of one by its chunks, without its length; all of another by its name.
        assert_eq!(cache.pin_again(object(1), 0..2 * CHUNK_BYTES, 2), 2 * CHUNK_BYTES);
        assert_eq!(cache.pin_again(object(7), 0..2 * CHUNK_BYTES, 2), 0, "it is not here");
        assert_eq!(cache.unpin_others(2, |object| object.id == ObjectId(2)), 2 * LEN - 2 * CHUNK_BYTES);
        assert_eq!(cache.stats().pinned_bytes, LEN + 2 * CHUNK_BYTES);
        assert_eq!(cache.pin_again(object(3), 0..LEN, 2), 0, "it may leave");
        assert_eq!(cache.unpin_others(2, |_| false), 0, "what stayed has the mark");
        assert_eq!(cache.unpin_others(3, |_| false), LEN + 2 * CHUNK_BYTES);
    }

    #[test]
    fn what_is_fetched_to_be_pinned_does_not_push_itself_out() {
        let (_dir, cache) = cache(20);
        scan(&cache, 100..130);
        let pinned = cache.pin_fetched(object(1), LEN, 0..LEN, 1).unwrap();
        assert_eq!(pinned, Pinned { stays: LEN, ..Pinned::default() }, "the small queue has two");
        let read = cache.read(object(1), LEN, 0, LEN, Hint::Nearby).unwrap();
        assert!(read.iter().zip(0_u64..).all(|(found, at)| *found == (at % 251) as u8));
        assert_eq!(cache.pin_fetched(object(2), LEN, 0..LEN, 1).unwrap().no_room, LEN);
    }

    /// Pins, passes, scans and removals at random: what has the mark of the pass is there, and never more than the share.
    #[test]
    fn pins_at_random() {
        let mut rng = StdRng::seed_from_u64(9);
        let (_dir, cache) = cache(60);
        let mut mark = 1;
        let mut wanted: Vec<u64> = Vec::new();
        for _ in 0..400 {
            match rng.random_range(0..6) {
                0 => scan(&cache, 100..100 + rng.random_range(1..12)),
                1 => {
                    let id = rng.random_range(0..6);
                    cache.forget(object(id));
                    wanted.retain(|other| *other != id);
                }
                2 => {
                    mark = if mark == 255 { 1 } else { mark + 1 };
                    wanted.retain(|id| id % 2 == 0);
                    for id in &wanted {
                        assert_eq!(cache.pin(object(*id), LEN, 0..LEN, mark).stays, LEN, "object {id}");
                    }
                    cache.unpin_others(mark, |_| false);
                    assert_eq!(cache.stats().pinned_bytes, wanted.len() as u64 * LEN);
                }
                _ => {
                    let id = rng.random_range(0..6);
                    let again = cache.pin_fetched(object(id), LEN, 0..LEN, mark).unwrap();
                    assert_eq!(again.stays + again.no_room, LEN, "what was fetched is there");
                    if again.stays == LEN && !wanted.contains(&id) {
                        wanted.push(id);
                    } else if again.stays > 0 && !wanted.contains(&id) {
                        cache.forget(object(id));
                    }
                }
            }
            let stats = cache.stats();
            assert!(stats.pinned_bytes <= stats.pinned_max_bytes && stats.chunks <= 60);
            for id in &wanted {
                assert_eq!(cache.missing(object(*id), LEN, 0..LEN), 0, "object {id} is pinned");
            }
        }
    }
}
