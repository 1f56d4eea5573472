use forebay_cache::Hint;

use crate::store::{CHUNK, Cache, check_as, each_kind, object, room_for};

const ROOM: u64 = 64;
const HOT: u64 = 20;

/// Reads chunks `0..count` of `id` in order, each by four reads, as a copying program does.
fn pass(cache: &Cache, id: u64, count: u64) {
    for quarter in 0..4 * count {
        let range = quarter * CHUNK / 4..(quarter + 1) * CHUNK / 4;
        check_as(cache, object(id), 1024 * CHUNK, range, Hint::Sequential);
    }
}

#[test]
fn a_hot_set_survives_a_scan_of_ten_times_the_capacity() {
    each_kind(room_for(ROOM), |cache, store| {
        pass(cache, 1, HOT);
        pass(cache, 1, HOT);
        store.take_requests();
        pass(cache, 2, 10 * ROOM);
        assert_eq!(store.take_requests().len() as u64, 10 * ROOM);
        pass(cache, 1, HOT);
        assert_eq!(store.take_requests(), [], "the hot set is still there");
    });
}

#[test]
fn a_hot_set_survives_a_scan_that_is_read_ahead() {
    each_kind(room_for(ROOM), |cache, store| {
        pass(cache, 1, HOT);
        pass(cache, 1, HOT);
        for start in (0..10 * ROOM).step_by(4) {
            let range = start * CHUNK..(start + 4) * CHUNK;
            let fetched = cache.stats().fetched_bytes;
            cache.prefetch(object(2), 1024 * CHUNK, range.clone());
            crate::store::until("it was read ahead", || {
                cache.stats().fetched_bytes == fetched + 4 * CHUNK && cache.stats().in_flight == 0
            });
            for at in range.step_by(CHUNK as usize / 4) {
                check_as(cache, object(2), 1024 * CHUNK, at..at + CHUNK / 4, Hint::Sequential);
            }
        }
        store.take_requests();
        pass(cache, 1, HOT);
        assert_eq!(store.take_requests(), [], "the hot set is still there");
    });
}

#[test]
fn a_new_hot_set_replaces_an_old_one() {
    each_kind(room_for(ROOM), |cache, store| {
        (0..5).for_each(|_| pass(cache, 1, ROOM));
        (0..10).for_each(|_| pass(cache, 2, ROOM / 2));
        store.take_requests();
        pass(cache, 2, ROOM / 2);
        assert_eq!(store.take_requests(), []);
    });
}

#[test]
fn what_comes_back_soon_after_it_left_stays() {
    each_kind(room_for(ROOM), |cache, store| {
        pass(cache, 9, ROOM);
        pass(cache, 1, 4);
        pass(cache, 2, ROOM / 4);
        store.take_requests();
        pass(cache, 1, 4);
        assert_eq!(store.take_requests().len(), 4, "it had left");
        pass(cache, 3, 4 * ROOM);
        store.take_requests();
        pass(cache, 1, 4);
        assert_eq!(store.take_requests(), [], "a scan no longer moves it");
    });
}

/// A training set of five times the capacity: each epoch reads all of it, in the same order.
#[test]
fn of_a_cycle_longer_than_the_cache_a_part_stays() {
    each_kind(room_for(ROOM), |cache, store| {
        pass(cache, 1, 5 * ROOM);
        for _ in 0..3 {
            store.take_requests();
            pass(cache, 1, 5 * ROOM);
            let found = 5 * ROOM - store.take_requests().len() as u64;
            assert!(found * 10 >= ROOM * 8, "{found} of {ROOM}");
        }
    });
}
