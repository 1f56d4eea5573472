//! Readers that jump: what they fetch, and what is kept of it.

use std::thread;

use forebay_cache::Hint;

use crate::store::{
    CHUNK, Cache, MIB, Store, check, check_as, content, each_kind, object, open, room_for, until,
};

const GRAIN: u64 = 16 * 1024;
const LEN: u64 = 8 * CHUNK - 1000;

fn jump(cache: &Cache, range: std::ops::Range<u64>) {
    check_as(cache, object(1), LEN, range, Hint::Random);
}

#[test]
fn a_jump_fetches_its_grains_in_one_request_and_keeps_them() {
    each_kind(16 * MIB, |cache, store| {
        jump(cache, 100_000..104_096);
        assert_eq!(store.take_requests(), [6 * GRAIN..7 * GRAIN]);
        jump(cache, 6 * GRAIN..7 * GRAIN);
        assert_eq!(store.take_requests(), []);
        jump(cache, CHUNK - 10..CHUNK + 10);
        assert_eq!(store.take_requests(), [CHUNK - GRAIN..CHUNK + GRAIN], "over the edge of a chunk");
        jump(cache, 5 * GRAIN + 1..7 * GRAIN + 1);
        assert_eq!(store.take_requests(), [5 * GRAIN..8 * GRAIN]);
        jump(cache, 5 * GRAIN..8 * GRAIN);
        jump(cache, CHUNK - GRAIN..CHUNK + GRAIN);
        assert_eq!(store.take_requests(), [], "parts of a chunk are kept beside each other");
        jump(cache, LEN - 1..LEN);
        assert_eq!(store.take_requests(), [LEN / GRAIN * GRAIN..LEN]);
        jump(cache, LEN - 100..LEN);
        assert_eq!(store.take_requests(), []);
        assert_eq!(cache.stats().chunks, 3);
    });
}

#[test]
fn a_reader_that_stays_gets_the_rest_of_the_chunk() {
    each_kind(16 * MIB, |cache, store| {
        jump(cache, 100_000..104_096);
        check(cache, object(1), LEN, 100_000..104_096);
        assert_eq!(store.take_requests(), [6 * GRAIN..7 * GRAIN], "what is there is enough for it");
        check(cache, object(1), LEN, 0..10);
        assert_eq!(store.take_requests(), [0..CHUNK]);
        jump(cache, 3 * CHUNK..3 * CHUNK + 1);
        cache.prefetch(object(1), LEN, 3 * CHUNK..4 * CHUNK);
        until("it is read ahead", || store.entered() == 4 && cache.stats().in_flight == 0);
        assert_eq!(store.take_requests(), [3 * CHUNK..3 * CHUNK + GRAIN, 3 * CHUNK..4 * CHUNK]);
        check(cache, object(1), LEN, 0..CHUNK);
        check(cache, object(1), LEN, 3 * CHUNK..4 * CHUNK);
        assert_eq!(store.take_requests(), []);
        jump(cache, 5 * CHUNK..5 * CHUNK + 1);
        cache.insert(object(1), LEN, 5 * CHUNK, &content(object(1), 5 * CHUNK..6 * CHUNK));
        store.take_requests();
        check(cache, object(1), LEN, 5 * CHUNK..6 * CHUNK);
        assert_eq!(store.take_requests(), []);
    });
}

#[test]
fn parts_are_there_after_a_restart_and_in_no_more_space_than_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new();
    {
        let cache = open(dir.path(), room_for(4), &store);
        for chunk in 0..8 {
            jump(&cache, chunk * CHUNK + 3 * GRAIN..chunk * CHUNK + 4 * GRAIN);
            jump(&cache, chunk * CHUNK..chunk * CHUNK + GRAIN);
        }
        assert!(cache.stats().chunks == 4 && cache.stats().used_bytes <= cache.stats().capacity_bytes);
    }
    store.take_requests();
    let cache = open(dir.path(), room_for(4), &store);
    assert_eq!(cache.stats().chunks, 4);
    let again = |chunk: &u64| {
        jump(&cache, chunk * CHUNK + 3 * GRAIN..chunk * CHUNK + 4 * GRAIN);
        jump(&cache, chunk * CHUNK..chunk * CHUNK + GRAIN);
        store.take_requests().is_empty()
    };
    assert_eq!(
        [7, 6, 1, 0].iter().filter(|chunk| again(chunk)).count(),
        4,
        "the first and the last two are here"
    );
}

#[test]
fn one_request_serves_all_who_want_the_same_grains_and_others_do_not_wait_for_it() {
    each_kind(16 * MIB, |cache, store| {
        store.closed.store(true, std::sync::atomic::Ordering::SeqCst);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| jump(cache, 0..10));
            }
            until("one asks and two wait", || store.entered() == 1 && cache.stats().joined == 2);
            scope.spawn(|| jump(cache, 4 * GRAIN..4 * GRAIN + 10));
            until("the other asks for itself", || store.entered() == 2);
            store.closed.store(false, std::sync::atomic::Ordering::SeqCst);
        });
        assert_eq!(store.take_requests(), [0..GRAIN, 4 * GRAIN..5 * GRAIN]);
        jump(cache, 0..10);
        assert_eq!(store.take_requests(), []);
        assert_eq!(cache.stats().in_flight, 0);
    });
}

#[test]
fn what_was_distrusted_or_forgotten_is_fetched_again() {
    each_kind(16 * MIB, |cache, store| {
        jump(cache, 0..10);
        jump(cache, 3 * GRAIN..3 * GRAIN + 10);
        cache.distrust(object(1), 5, 1);
        store.take_requests();
        jump(cache, 0..10);
        assert_eq!(store.take_requests(), [0..GRAIN]);
        cache.forget(object(1));
        jump(cache, 0..10);
        assert_eq!(store.take_requests(), [0..GRAIN]);
        assert_eq!(cache.stats().chunks, 1);
    });
}
