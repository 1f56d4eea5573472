use std::{fs, path::Path, thread};

use crate::store::{CHUNK, MIB, Store, check, content, object, open, room_for};

#[test]
fn what_was_cached_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    let len = 5 * CHUNK + 77;
    {
        let cache = open(dir.path(), 64 * MIB, &store);
        check(&cache, object(1), len, 0..len);
        cache.insert(object(2), len, 0, &content(object(2), 0..len));
        check(&cache, object(3), len, 0..len);
        cache.forget(object(3));
        cache.distrust(object(1), 0, 1);
    }
    store.take_requests();
    let cache = open(dir.path(), 64 * MIB, &store);
    let stats = cache.stats();
    assert_eq!((stats.chunks, stats.used_bytes), (11, 2 * len - CHUNK));
    check(&cache, object(1), len, CHUNK..len);
    check(&cache, object(2), len, 0..len);
    assert_eq!(store.take_requests(), []);
    check(&cache, object(1), len, 0..CHUNK);
    assert_eq!(store.take_requests(), [0..CHUNK], "what was distrusted stays away");
}

#[test]
fn a_scan_after_a_restart_leaves_most_of_the_content() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    check(&open(dir.path(), room_for(50), &store), object(1), 50 * CHUNK, 0..50 * CHUNK);
    let cache = open(dir.path(), room_for(50), &store);
    let chunk_by_chunk = |id, count: u64| {
        (0..count).for_each(|at| check(&cache, object(id), count * CHUNK, at * CHUNK..(at + 1) * CHUNK));
    };
    chunk_by_chunk(2, 200);
    store.take_requests();
    chunk_by_chunk(1, 50);
    let fetched: u64 = store.take_requests().iter().map(|range| range.end - range.start).sum();
    assert!(fetched <= 6 * CHUNK, "{fetched} bytes were pushed out");
}

/// Copies the files of a cache that is in use: what a killed process would leave, and worse, since the copy takes time.
fn snapshot(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn what_a_killed_process_leaves_is_read_right() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    let cache = open(dir.path(), room_for(20), &store);
    let len = 3 * CHUNK + 1;
    for round in 0..6 {
        let copy = tempfile::tempdir().unwrap();
        thread::scope(|scope| {
            for id in 0..20 {
                let cache = &cache;
                scope.spawn(move || check(cache, object(100 * round + id), len, 0..len));
            }
            snapshot(dir.path(), copy.path());
        });
        let left = open(copy.path(), room_for(20), &store);
        for id in 0..20 {
            check(&left, object(100 * round + id), len, 0..len);
        }
        if round > 0 {
            check(&left, object(100 * round - 50), len, 0..len);
        }
    }
}
