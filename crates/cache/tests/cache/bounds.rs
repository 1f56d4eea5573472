use std::{fs, path::Path, sync::Arc};

use forebay_cache::{CacheOptions, DiskCache, MAX_WINDOW};

use crate::store::{CHUNK, Cache, MIB, Store, check, each_kind, object, open, room_for};

/// Bytes of disk that the files can take at most: their lengths, but for the hole behind the headers that are in use.
fn disk_bytes(dir: &Path, slots: u64) -> u64 {
    let lengths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    let table = 2 * MIB;
    lengths
        .map(|len| if len > table { len - table + (slots * 128).next_multiple_of(4096) } else { len })
        .sum()
}

fn fill(cache: &Cache, ids: std::ops::Range<u64>, capacity: u64) {
    for id in ids {
        check(cache, object(id), 3 * CHUNK + 5, 0..3 * CHUNK + 5);
        let stats = cache.stats();
        assert!(stats.used_bytes <= capacity, "{} of {capacity} bytes used", stats.used_bytes);
        assert_eq!(stats.capacity_bytes, capacity);
    }
}

#[test]
fn the_capacity_is_kept_also_after_it_was_made_smaller() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    for (round, chunks) in [(0, 40), (1, 9), (2, 3), (3, 0), (4, 25)] {
        let capacity = room_for(chunks);
        let cache = open(dir.path(), capacity, &store);
        assert!(cache.stats().used_bytes <= capacity && cache.stats().chunks <= chunks);
        assert!(disk_bytes(dir.path(), chunks) <= capacity, "before anything is added");
        fill(&cache, 100 * round..100 * round + 20, capacity);
        assert!(cache.stats().chunks <= chunks && cache.stats().chunks + 3 >= chunks);
        assert!(disk_bytes(dir.path(), chunks) <= capacity);
    }
}

#[test]
fn the_capacity_is_kept_by_many_threads() {
    each_kind(room_for(10), |cache, _| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || fill(cache, 100 * thread..100 * thread + 30, room_for(10)));
            }
        });
        assert_eq!(cache.stats().chunks, 10);
        assert!(cache.stats().evictions > 0);
    });
}

#[test]
fn a_cache_of_no_bytes_passes_everything_through() {
    for capacity in [0, 1, CHUNK] {
        each_kind(capacity, |cache, store| {
            check(cache, object(1), MIB, 10..20);
            check(cache, object(1), MIB, 10..20);
            cache.prefetch(object(1), MIB, 0..MIB);
            cache.insert(object(2), 5, 0, b"12345");
            assert_eq!(store.take_requests().len(), 2);
            assert_eq!((cache.stats().chunks, cache.read_ahead_limit()), (0, 0));
        });
    }
}

#[test]
fn read_ahead_stays_within_what_new_chunks_may_take() {
    let limit = |capacity| {
        DiskCache::memory(capacity, Arc::new(Store::default()), CacheOptions::default())
            .unwrap()
            .read_ahead_limit()
    };
    assert_eq!(limit(1 << 34), MAX_WINDOW);
    assert_eq!(limit(room_for(200)), 10 * CHUNK);
}

/// Every write to this device fails for want of space.
const FULL: &str = "/dev/full";

#[test]
fn a_full_disk_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    drop(open(dir.path(), 64 * MIB, &store));
    let slab = dir.path().join("slab-00000.chunks");
    fs::remove_file(&slab).unwrap();
    std::os::unix::fs::symlink(FULL, &slab).unwrap();
    let cache = open(dir.path(), 64 * MIB, &store);
    for _ in 0..3 {
        check(&cache, object(1), MIB, 0..MIB);
    }
    cache.insert(object(2), 3, 0, b"123");
    let stats = cache.stats();
    assert_eq!((stats.skipped_full, stats.disk_errors, stats.chunks, stats.fetches), (13, 0, 0, 3));
}
