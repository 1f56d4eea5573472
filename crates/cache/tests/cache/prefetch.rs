use std::{sync::atomic::Ordering::SeqCst, thread};

use forebay_cache::{CacheOptions, DiskCache};

use crate::store::{CHUNK, MIB, Store, check, each_kind, object, until};

#[test]
fn what_was_read_ahead_is_not_fetched_again() {
    each_kind(256 * MIB, |cache, store| {
        let len = 10 * MIB + 5;
        cache.prefetch(object(1), len, MIB..1 << 60);
        until("all is there", || cache.stats().used_bytes == len - MIB);
        let requests = store.take_requests();
        let ends = [MIB, 2 * MIB, 4 * MIB, 6 * MIB, 8 * MIB, 10 * MIB, len];
        let expected: Vec<_> = ends.windows(2).map(|pair| pair[0]..pair[1]).collect();
        assert_eq!(requests, expected);
        check(cache, object(1), len, MIB..len);
        assert_eq!(store.take_requests(), []);
        cache.prefetch(object(1), len, 0..len);
        until("the rest is there", || cache.stats().used_bytes == len);
        cache.shutdown();
        assert_eq!(store.take_requests(), [0..MIB], "only what was missing");
    });
}

#[test]
fn what_is_on_its_way_is_not_fetched_twice() {
    each_kind(64 * MIB, |cache, store| {
        store.closed.store(true, SeqCst);
        thread::scope(|scope| {
            scope.spawn(|| check(cache, object(1), MIB, 0..CHUNK));
            until("the reader's is on its way", || store.entered() == 1);
            cache.prefetch(object(1), MIB, 0..MIB);
            cache.prefetch(object(1), MIB, 0..MIB);
            until("the rest is too", || store.entered() == 2);
            scope.spawn(|| check(cache, object(1), MIB, 0..MIB));
            until("the second reader waits", || cache.stats().joined == 4);
            store.closed.store(false, SeqCst);
        });
        cache.shutdown();
        assert_eq!(store.take_requests(), [0..CHUNK, CHUNK..MIB]);
    });
}

#[test]
fn what_waits_is_bounded_and_dropped_at_shutdown() {
    let store = Store::new();
    store.closed.store(true, SeqCst);
    let options = CacheOptions { prefetch_threads: 2, prefetch_queue: 3 };
    let cache = DiskCache::memory(256 * MIB, store.clone(), options).unwrap();
    cache.prefetch(object(1), 4 * MIB, 0..4 * MIB);
    until("both threads are busy", || store.entered() == 2);
    for id in 2..12 {
        cache.prefetch(object(id), MIB, 0..MIB);
    }
    assert_eq!((cache.stats().prefetch_queued, cache.stats().prefetch_dropped), (3, 7));
    thread::scope(|scope| {
        scope.spawn(|| cache.shutdown());
        until("the queue is empty", || cache.stats().prefetch_queued == 0);
        store.closed.store(false, SeqCst);
    });
    assert_eq!(store.entered(), 2);
    cache.prefetch(object(20), MIB, 0..MIB);
    assert_eq!(cache.stats().prefetch_queued, 0);
    check(&cache, object(20), MIB, 0..MIB);
}

#[test]
fn a_failed_or_panicked_read_ahead_harms_no_reader() {
    each_kind(64 * MIB, |cache, store| {
        for (id, fault) in [(1, &store.failing), (2, &store.panicking)] {
            fault.store(true, SeqCst);
            // More of them than there are threads.
            for chunk in 0..8 {
                let asked = store.entered();
                cache.prefetch(object(id), 8 * CHUNK, chunk * CHUNK..(chunk + 1) * CHUNK);
                until("it was tried and given up", || {
                    store.entered() > asked && cache.stats().in_flight == 0
                });
            }
            fault.store(false, SeqCst);
            check(cache, object(id), 8 * CHUNK, 0..8 * CHUNK);
        }
        cache.prefetch(object(3), CHUNK, 0..CHUNK);
        until("threads are left", || cache.stats().chunks == 17);
    });
}
