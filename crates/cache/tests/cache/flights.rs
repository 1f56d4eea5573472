use std::{sync::atomic::Ordering::SeqCst, thread};

use forebay_cache::{Hint, ReadError};

use crate::store::{CHUNK, Down, MIB, check, each_kind, object, until};

const READERS: u64 = 32;

#[test]
fn however_many_readers_wait_one_fetch_is_made() {
    each_kind(64 * MIB, |cache, store| {
        store.closed.store(true, SeqCst);
        thread::scope(|scope| {
            for reader in 0..READERS {
                scope.spawn(move || check(cache, object(1), MIB, reader * 100..CHUNK - reader));
            }
            until("all others wait", || cache.stats().joined == READERS - 1);
            assert_eq!(cache.stats().in_flight, 1);
            store.closed.store(false, SeqCst);
        });
        assert_eq!(store.take_requests(), [0..CHUNK]);
        let stats = cache.stats();
        assert_eq!((stats.misses, stats.joined, stats.in_flight), (1, READERS - 1, 0));
    });
}

#[test]
fn readers_who_come_at_any_time_cause_one_fetch_a_chunk() {
    each_kind(64 * MIB, |cache, store| {
        for id in 0..8 {
            thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| (0..8).for_each(|_| check(cache, object(id), MIB, 0..MIB)));
                }
            });
        }
        assert_eq!(store.take_requests().len(), 8);
        assert_eq!(cache.stats().fetched_bytes, 8 * MIB);
    });
}

#[test]
fn a_reader_fetches_its_own_chunks_while_it_waits_for_those_of_others() {
    each_kind(64 * MIB, |cache, store| {
        store.closed.store(true, SeqCst);
        thread::scope(|scope| {
            scope.spawn(|| check(cache, object(1), MIB, CHUNK..2 * CHUNK));
            until("the first is on its way", || store.entered() == 1);
            scope.spawn(|| check(cache, object(1), MIB, 0..MIB));
            until("all are on their way", || store.entered() == 3);
            store.closed.store(false, SeqCst);
        });
        assert_eq!(store.take_requests(), [0..CHUNK, CHUNK..2 * CHUNK, 2 * CHUNK..MIB]);
    });
}

#[test]
fn several_requests_of_one_read_are_made_at_the_same_time() {
    each_kind(64 * MIB, |cache, store| {
        store.closed.store(true, SeqCst);
        thread::scope(|scope| {
            scope.spawn(|| check(cache, object(1), 32 * MIB, 0..32 * MIB));
            until("all four are on their way", || store.entered() == 4);
            store.closed.store(false, SeqCst);
        });
    });
}

#[test]
fn all_who_wait_get_the_error_and_the_next_reader_tries_again() {
    each_kind(64 * MIB, |cache, store| {
        store.closed.store(true, SeqCst);
        store.failing.store(true, SeqCst);
        thread::scope(|scope| {
            let read = || cache.read(object(1), MIB, 0, 10, Hint::Nearby);
            let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
            until("all others wait", || cache.stats().joined == READERS - 1);
            store.closed.store(false, SeqCst);
            for reader in readers {
                assert_eq!(reader.join().unwrap(), Err(ReadError::Fetch(Down)));
            }
        });
        store.failing.store(false, SeqCst);
        check(cache, object(1), MIB, 0..10);
        assert_eq!(store.take_requests().len(), 2);
    });
}

#[test]
fn a_fetch_that_panics_leaves_nobody_waiting() {
    each_kind(64 * MIB, |cache, store| {
        store.closed.store(true, SeqCst);
        store.panicking.store(true, SeqCst);
        thread::scope(|scope| {
            let read = || cache.read(object(1), MIB, 0, 10, Hint::Nearby);
            let first = scope.spawn(read);
            until("the first is on its way", || store.entered() == 1);
            let second = scope.spawn(read);
            until("the second waits", || cache.stats().joined == 1);
            store.closed.store(false, SeqCst);
            assert!(first.join().is_err());
            assert_eq!(second.join().unwrap(), Err(ReadError::Abandoned { object: object(1) }));
        });
        store.panicking.store(false, SeqCst);
        check(cache, object(1), MIB, 0..10);
    });
}

#[test]
fn what_is_forgotten_or_distrusted_on_its_way_is_not_kept() {
    each_kind(64 * MIB, |cache, store| {
        for distrust in [false, true] {
            let asked = store.entered();
            store.closed.store(true, SeqCst);
            thread::scope(|scope| {
                scope.spawn(|| check(cache, object(1), MIB, 0..10));
                until("it is on its way", || store.entered() == asked + 1);
                match distrust {
                    true => cache.distrust(object(1), 5, 1),
                    false => cache.forget(object(1)),
                }
                scope.spawn(|| check(cache, object(1), MIB, 20..30));
                until("it is asked for again", || store.entered() == asked + 2);
                cache.forget(object(1));
                store.closed.store(false, SeqCst);
            });
            assert_eq!((cache.stats().chunks, cache.stats().in_flight), (0, 0));
        }
    });
}
