use std::sync::atomic::Ordering::SeqCst;

use forebay_cache::{Hint, ReadError};

use crate::store::{CHUNK, Down, MIB, check, content, each_kind, object};

#[test]
fn any_range_reads_right_cold_and_warm() {
    let len = 5 * CHUNK + 12_345;
    let ranges = [
        0..1,
        0..len,
        1..CHUNK,
        CHUNK - 1..CHUNK + 1,
        CHUNK..2 * CHUNK,
        3 * CHUNK + 17..5 * CHUNK + 7,
        16_384..32_768,
        16_383..32_769,
        5 * CHUNK..len,
        len - 1..len,
        2 * CHUNK..2 * CHUNK,
    ];
    each_kind(64 * MIB, |cache, store| {
        for (id, range) in (0..).zip(ranges.clone()) {
            check(cache, object(id), len, range.clone());
            store.take_requests();
            check(cache, object(id), len, range);
            assert_eq!(store.take_requests(), [], "the second read is from the cache");
        }
        check(cache, object(0), len, 0..len);
    });
}

#[test]
fn an_empty_object_has_nothing_to_fetch() {
    each_kind(MIB, |cache, store| {
        check(cache, object(1), 0, 0..0);
        assert_eq!(store.take_requests(), []);
    });
}

#[test]
fn a_range_outside_the_object_is_refused() {
    each_kind(MIB, |cache, store| {
        for (offset, len) in [(0, 101), (101, 0), (u64::MAX, 2)] {
            let error = cache.read(object(1), 100, offset, len, Hint::Nearby).unwrap_err();
            assert_eq!(error, ReadError::OutOfRange { object: object(1), object_len: 100, offset, len });
        }
        let endless = cache.read(object(1), u64::MAX, 0, 1, Hint::Nearby);
        assert!(matches!(endless, Err(ReadError::OutOfRange { .. })));
        assert_eq!(store.take_requests(), []);
    });
}

#[test]
fn a_random_reader_fetches_only_the_chunks_it_needs() {
    each_kind(64 * MIB, |cache, store| {
        let len = 16 * MIB + 100;
        check(cache, object(1), len, 5 * CHUNK + 70_000..5 * CHUNK + 74_096);
        assert_eq!(store.take_requests(), [5 * CHUNK..6 * CHUNK]);
        check(cache, object(1), len, 16 * MIB + 50..16 * MIB + 60);
        assert_eq!(store.take_requests(), [16 * MIB..len], "the last chunk ends with the object");
        assert_eq!(cache.stats().fetched_bytes, CHUNK + 100);
    });
}

#[test]
fn what_is_missing_side_by_side_is_one_request() {
    each_kind(64 * MIB, |cache, store| {
        let len = 40 * CHUNK;
        check(cache, object(1), len, 3 * CHUNK..3 * CHUNK + 1);
        store.take_requests();
        check(cache, object(1), len, 10..7 * CHUNK);
        assert_eq!(store.take_requests(), [0..3 * CHUNK, 4 * CHUNK..7 * CHUNK]);
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.joined), (1, 7, 0));
    });
}

#[test]
fn a_long_read_is_cut_into_requests_of_8_mib() {
    each_kind(64 * MIB, |cache, store| {
        check(cache, object(1), 20 * MIB, MIB..20 * MIB);
        assert_eq!(store.take_requests(), [MIB..9 * MIB, 9 * MIB..17 * MIB, 17 * MIB..20 * MIB]);
    });
}

#[test]
fn a_store_that_answers_short_is_an_error_and_nothing_is_kept() {
    each_kind(MIB, |cache, store| {
        store.short.store(true, SeqCst);
        let error = cache.read(object(1), 1000, 0, 10, Hint::Nearby).unwrap_err();
        assert_eq!(error, ReadError::WrongLength { object: object(1), offset: 0, wanted: 1000, got: 999 });
        assert_eq!(cache.stats().chunks, 0);
        store.short.store(false, SeqCst);
        check(cache, object(1), 1000, 0..10);
    });
}

#[test]
fn a_failing_store_fails_only_what_is_not_cached() {
    each_kind(4 * MIB, |cache, store| {
        check(cache, object(1), MIB, 0..CHUNK);
        store.failing.store(true, SeqCst);
        check(cache, object(1), MIB, 100..CHUNK);
        let read = cache.read(object(1), MIB, 0, CHUNK + 1, Hint::Nearby);
        assert_eq!(read.unwrap_err(), ReadError::Fetch(Down));
        store.failing.store(false, SeqCst);
        check(cache, object(1), MIB, 0..CHUNK + 1);
        assert_eq!((cache.stats().failed_fetches, cache.stats().in_flight), (1, 0));
    });
}

#[test]
fn what_is_inserted_is_not_fetched() {
    let dir = tempfile::tempdir().unwrap();
    each_kind(16 * MIB, |cache, store| {
        let len = 3 * CHUNK + 99;
        cache.insert(object(1), len, 0, &content(object(1), 0..len));
        check(cache, object(1), len, 0..len);

        let path = dir.path().join("upload");
        std::fs::write(&path, content(object(2), 0..len)).unwrap();
        cache.insert_file(object(2), &path).unwrap();
        check(cache, object(2), len, 0..len);
        assert_eq!(store.take_requests(), []);

        // Whole chunks only: of these bytes, chunk 1 and the last one.
        cache.insert(object(3), len, 7, &content(object(3), 7..2 * CHUNK + 7));
        cache.insert(object(3), len, 3 * CHUNK, &content(object(3), 3 * CHUNK..len));
        check(cache, object(3), len, 0..len);
        assert_eq!(store.take_requests(), [0..CHUNK, 2 * CHUNK..3 * CHUNK]);

        cache.insert(object(4), len, 3 * CHUNK, &content(object(4), 3 * CHUNK..len + 1));
        assert!(cache.insert_file(object(4), &dir.path().join("nothing")).is_err());
        assert_eq!(cache.stats().chunks, 12);
    });
}

#[test]
fn forgotten_and_distrusted_chunks_are_fetched_again() {
    each_kind(16 * MIB, |cache, store| {
        let len = 4 * CHUNK;
        for id in 1..=2 {
            check(cache, object(id), len, 0..len);
        }
        store.take_requests();
        cache.distrust(object(1), CHUNK + 5, CHUNK);
        assert_eq!((cache.stats().distrusted, cache.stats().chunks), (2, 6));
        check(cache, object(1), len, 0..len);
        assert_eq!(store.take_requests(), [CHUNK..3 * CHUNK]);

        cache.forget(object(1));
        assert_eq!((cache.stats().chunks, cache.stats().used_bytes), (4, 4 * CHUNK));
        check(cache, object(2), len, 0..len);
        assert_eq!(store.take_requests(), [], "the other object is still there");
        check(cache, object(1), len, 0..len);
        assert_eq!(store.take_requests(), [0..len]);
        cache.distrust(object(1), u64::MAX, 9);
    });
}

#[test]
fn an_emptied_cache_fetches_everything_again_and_keeps_it() {
    each_kind(64 * MIB, |cache, store| {
        for id in 0..5 {
            check(cache, object(id), 3 * CHUNK, 0..3 * CHUNK);
        }
        assert_eq!(cache.stats().chunks, 15);
        cache.empty();
        assert_eq!((cache.stats().chunks, cache.stats().used_bytes), (0, 0));
        store.take_requests();
        for id in 0..5 {
            check(cache, object(id), 3 * CHUNK, 0..3 * CHUNK);
        }
        assert_eq!(store.take_requests().len(), 5);
        assert_eq!((cache.stats().chunks, cache.stats().evictions), (15, 0));
    });
}

#[test]
fn a_chunk_of_another_length_is_not_used() {
    each_kind(16 * MIB, |cache, store| {
        check(cache, object(1), CHUNK + 10, CHUNK..CHUNK + 10);
        store.take_requests();
        check(cache, object(1), 2 * CHUNK, CHUNK..CHUNK + 20);
        assert_eq!(store.take_requests(), [CHUNK..2 * CHUNK]);
        assert_eq!((cache.stats().chunks, cache.stats().used_bytes), (1, CHUNK));
    });
}
