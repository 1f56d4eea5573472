//! What is read ahead of which reads.

use std::ops::Range;

use forebay_cache::{MAX_WINDOW, MIN_WINDOW, ReadAhead};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Reads `range` of stream 1 in steps of `step`; the ranges to read ahead, each with where the reader had come.
fn read(ahead: &mut ReadAhead, range: Range<u64>, step: u64, len: u64) -> Vec<(u64, Range<u64>)> {
    let mut asked = Vec::new();
    for at in range.step_by(step as usize) {
        asked.extend(ahead.observe(1, at, step, len).map(|range| (at + step, range)));
    }
    asked
}

#[test]
fn a_sequential_reader_gets_windows_that_double() {
    let mut ahead = ReadAhead::new(MAX_WINDOW);
    assert_eq!(ahead.observe(1, 0, 4096, GIB), None, "one read is no evidence");
    assert_eq!(ahead.observe(1, 4096, 4096, GIB), Some(8192..8192 + MIN_WINDOW));
    let asked = read(&mut ahead, 8192..64 * MIB + 8192, 4096, GIB);
    let mut end = 8192 + MIN_WINDOW;
    let mut window = MIN_WINDOW;
    for (reader, range) in asked {
        window = (2 * window).min(MAX_WINDOW);
        assert_eq!(range.start, end, "without gap or overlap");
        assert_eq!(range.end, reader + window);
        end = range.end;
    }
    assert_eq!(window, MAX_WINDOW);
    assert!(end > 64 * MIB + MAX_WINDOW / 2, "the reader stays well behind");
}

#[test]
fn the_window_keeps_its_limit() {
    for limit in [MIN_WINDOW / 4, MIN_WINDOW, 3 * MIB] {
        for (reader, range) in read(&mut ReadAhead::new(limit), 0..20 * MIB, 131_072, GIB) {
            assert!(range.end - reader <= limit);
        }
    }
    assert_eq!(read(&mut ReadAhead::new(0), 0..20 * MIB, 131_072, GIB), []);
    assert!(
        read(&mut ReadAhead::new(u64::MAX), 0..GIB, MIB, 2 * GIB)
            .iter()
            .all(|(at, r)| r.end - at <= MAX_WINDOW)
    );
}

#[test]
fn a_seek_closes_the_window() {
    let mut ahead = ReadAhead::new(MAX_WINDOW);
    read(&mut ahead, 0..32 * MIB, MIB, GIB);
    assert_eq!(ahead.observe(1, 500 * MIB, MIB, GIB), None);
    assert_eq!(ahead.observe(1, 501 * MIB, MIB, GIB), Some(502 * MIB..502 * MIB + MIN_WINDOW));
    assert_eq!(ahead.observe(1, 0, MIB, GIB), None, "back to the start");
    assert_eq!(ahead.observe(1, MIB, MIB, GIB), Some(2 * MIB..2 * MIB + MIN_WINDOW));
}

#[test]
fn a_random_reader_gets_nothing() {
    let mut ahead = ReadAhead::new(MAX_WINDOW);
    for i in 0..10_000 {
        let at = i * 7_919 * 4096 % GIB;
        assert_eq!(ahead.observe(1, at, 4096, GIB), None);
    }
}

#[test]
fn nothing_is_read_ahead_past_the_end() {
    let len = 3 * MIB + 77;
    let asked = read(&mut ReadAhead::new(MAX_WINDOW), 0..len, 131_072, len);
    assert_eq!(asked.last().map(|(_, range)| range.end), Some(len));
    assert!(asked.iter().all(|(_, range)| range.start < range.end));
    let mut ahead = ReadAhead::new(MAX_WINDOW);
    assert_eq!(read(&mut ahead, 0..2 * MIB, MIB, 2 * MIB), []);
    assert_eq!(ahead.observe(1, u64::MAX - 5, 100, u64::MAX), None);
}

#[test]
fn requests_that_arrive_out_of_order_are_still_one_stream() {
    let mut ahead = ReadAhead::new(MAX_WINDOW);
    let mut covered = 0;
    for pair in (0..64).step_by(2) {
        for at in [pair + 1, pair] {
            if let Some(range) = ahead.observe(1, at * MIB, MIB, GIB) {
                assert!(covered == 0 || range.start == covered.max((at + 1) * MIB), "no gap, no overlap");
                covered = range.end;
            }
        }
    }
    assert!(covered > 64 * MIB + MAX_WINDOW / 2);
}

#[test]
fn reading_the_same_place_again_and_again_is_no_evidence() {
    let mut ahead = ReadAhead::new(MAX_WINDOW);
    assert!((0..100).all(|_| ahead.observe(1, 0, 4096, GIB).is_none()));
}

#[test]
fn streams_are_told_apart_and_forgotten() {
    let mut ahead = ReadAhead::new(MAX_WINDOW);
    assert_eq!(ahead.observe(1, 0, MIB, GIB), None);
    assert_eq!(ahead.observe(2, MIB, MIB, GIB), None);
    assert!(ahead.observe(1, MIB, MIB, GIB).is_some());
    assert!(ahead.observe(2, 2 * MIB, MIB, GIB).is_some());
    ahead.forget(1);
    assert_eq!(ahead.observe(1, 2 * MIB, MIB, GIB), None);
    assert!(ahead.observe(2, 3 * MIB, MIB, GIB).is_some());
}

#[test]
fn the_stream_quiet_longest_makes_room() {
    let mut ahead = ReadAhead::new(MAX_WINDOW);
    for stream in 0..1024 {
        ahead.observe(stream, 0, MIB, GIB);
    }
    ahead.observe(0, 0, MIB, GIB);
    ahead.observe(5000, 0, MIB, GIB);
    assert!(ahead.observe(0, MIB, MIB, GIB).is_some(), "used since");
    assert!(ahead.observe(1, MIB, MIB, GIB).is_none(), "the quietest was forgotten");
}
