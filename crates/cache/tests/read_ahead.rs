//! What is read ahead of which reads.

use std::ops::Range;

use forebay_cache::{Advice, MAX_WINDOW, MIN_WINDOW, Pattern, ReadAhead};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn none(pattern: Pattern) -> Advice {
    Advice { pattern, ahead: Vec::new() }
}

fn sequential(range: Range<u64>) -> Advice {
    Advice { pattern: Pattern::Sequential, ahead: vec![range] }
}

/// Reads `range` of stream 1 in steps of `step`; the ranges to read ahead, each with where the reader had come.
fn read(ahead: &ReadAhead, range: Range<u64>, step: u64, len: u64) -> Vec<(u64, Range<u64>)> {
    let mut asked = Vec::new();
    for at in range.step_by(step as usize) {
        asked.extend(ahead.observe(1, at, step, len).ahead.into_iter().map(|range| (at + step, range)));
    }
    asked
}

#[test]
fn a_sequential_reader_gets_windows_that_double() {
    let ahead = ReadAhead::new(MAX_WINDOW);
    assert_eq!(ahead.observe(1, 0, 4096, GIB), none(Pattern::Start), "one read is no evidence");
    assert_eq!(ahead.observe(1, 4096, 4096, GIB), sequential(8192..8192 + MIN_WINDOW));
    let asked = read(&ahead, 8192..128 * MIB + 8192, 4096, GIB);
    let mut end = 8192 + MIN_WINDOW;
    let mut window = MIN_WINDOW;
    for (reader, range) in asked {
        window = (2 * window).min(MAX_WINDOW);
        assert_eq!(range.start, end, "without gap or overlap");
        assert_eq!(range.end, reader + window);
        end = range.end;
    }
    assert_eq!(window, MAX_WINDOW);
    assert!(end > 128 * MIB + MAX_WINDOW / 2, "the reader stays well behind");
}

#[test]
fn the_window_keeps_its_limit() {
    for limit in [MIN_WINDOW / 4, MIN_WINDOW, 3 * MIB] {
        for (reader, range) in read(&ReadAhead::new(limit), 0..20 * MIB, 131_072, GIB) {
            assert!(range.end - reader <= limit);
        }
    }
    assert_eq!(read(&ReadAhead::new(0), 0..20 * MIB, 131_072, GIB), []);
    let endless = read(&ReadAhead::new(u64::MAX), 0..GIB, MIB, 2 * GIB);
    assert!(endless.iter().all(|(at, range)| range.end - at <= MAX_WINDOW));
}

#[test]
fn jumps_shrink_the_window_and_close_it() {
    let ahead = ReadAhead::new(8 * MIB);
    read(&ahead, 0..32 * MIB, MIB, 8 * GIB);
    let far = |i: u64| 2 * GIB + i * i * 100 * MIB;
    let mut windows = Vec::new();
    let mut at = 32 * MIB;
    for jump in 0..6 {
        assert_eq!(ahead.observe(1, far(jump), 4096, 8 * GIB), none(Pattern::Random));
        let asked = loop {
            let advice = ahead.observe(1, at, MIB, 8 * GIB);
            assert_eq!(advice.pattern, Pattern::Sequential, "the other reader is still known");
            at += MIB;
            if let [range] = advice.ahead.as_slice() {
                break range.end - at;
            }
        };
        windows.push(asked);
        assert_eq!(ahead.observe(1, far(jump) + 64 * MIB, 4096, 8 * GIB), none(Pattern::Random));
    }
    assert!(windows.windows(2).all(|pair| pair[1] <= pair[0]), "{windows:?}");
    assert!(windows[5] < windows[0] && windows[5] <= MIB, "{windows:?}");
}

#[test]
fn a_new_place_begins_with_the_first_window() {
    let ahead = ReadAhead::new(MAX_WINDOW);
    read(&ahead, 0..32 * MIB, MIB, GIB);
    assert_eq!(ahead.observe(1, 500 * MIB, MIB, GIB), none(Pattern::Random));
    assert_eq!(ahead.observe(1, 501 * MIB, MIB, GIB), sequential(502 * MIB..502 * MIB + MIN_WINDOW));
    assert_eq!(ahead.observe(1, 0, MIB, GIB), none(Pattern::Start), "back to the start");
    assert_eq!(ahead.observe(1, MIB, MIB, GIB), sequential(2 * MIB..2 * MIB + MIN_WINDOW));
}

#[test]
fn a_random_reader_gets_nothing() {
    let ahead = ReadAhead::new(MAX_WINDOW);
    let mut random = 0;
    for i in 1..10_000_u64 {
        let at = (i * i * 7_919 + i * 104_729) * 4096 % GIB;
        let advice = ahead.observe(1, at, 4096, GIB);
        assert!(advice.ahead.is_empty() || advice.pattern == Pattern::Sequential, "{advice:?}");
        random += u32::from(advice.pattern == Pattern::Random);
    }
    assert!(random > 9_900, "{random} of 9,999");
}

#[test]
fn a_reader_in_steps_is_foreseen_and_no_further_than_it_goes() {
    for (first, stride) in [(0, 3 * MIB as i64), (GIB, -(3 * MIB as i64)), (GIB, -(64 * KIB as i64))] {
        let ahead = ReadAhead::new(MAX_WINDOW);
        let at = |i: i64| first.checked_add_signed(stride * i).unwrap();
        let mut foreseen = std::collections::BTreeSet::new();
        for i in 0..40 {
            let advice = ahead.observe(1, at(i), 64 * KIB, 2 * GIB);
            assert!(i < 5 || advice.pattern == Pattern::Strided, "{stride} at {i}: {advice:?}");
            assert!(i < 6 || foreseen.contains(&at(i)), "{stride} at {i}");
            for range in advice.ahead {
                assert_eq!(range.end - range.start, 64 * KIB);
                assert!(foreseen.insert(range.start), "advised twice: {range:?}");
                let steps = (range.start as i64 - at(i) as i64) / stride;
                assert!(
                    (1..=8).contains(&steps) && range.start == at(i + steps),
                    "{stride} at {i}: {range:?}"
                );
            }
        }
    }
    let ahead = ReadAhead::new(MAX_WINDOW);
    for i in (0..4_u64).rev() {
        for range in ahead.observe(1, i * MIB, MIB, 4 * MIB).ahead {
            assert!(range.end <= 4 * MIB, "before its beginning a stream has nothing");
        }
    }
}

#[test]
fn two_readers_of_one_stream_are_told_apart() {
    let ahead = ReadAhead::new(MAX_WINDOW);
    let mut ends = [0; 2];
    for i in 0..64 {
        for (reader, start) in [0, 512 * MIB].into_iter().enumerate() {
            for range in ahead.observe(1, start + i * MIB, MIB, GIB).ahead {
                ends[reader] = range.end - start;
            }
        }
    }
    assert!(ends.iter().all(|end| *end > 64 * MIB + MIN_WINDOW), "{ends:?}");
}

#[test]
fn nothing_is_read_ahead_past_the_end() {
    let len = 3 * MIB + 77;
    let asked = read(&ReadAhead::new(MAX_WINDOW), 0..len, 131_072, len);
    assert_eq!(asked.last().map(|(_, range)| range.end), Some(len));
    assert!(asked.iter().all(|(_, range)| range.start < range.end));
    let ahead = ReadAhead::new(MAX_WINDOW);
    assert_eq!(read(&ahead, 0..2 * MIB, MIB, 2 * MIB), []);
    assert_eq!(ahead.observe(1, u64::MAX - 5, 100, u64::MAX).ahead, []);
}

#[test]
fn requests_that_arrive_out_of_order_are_still_one_stream() {
    let ahead = ReadAhead::new(MAX_WINDOW);
    let mut covered = 0;
    for pair in (0..128).step_by(2) {
        for at in [pair + 1, pair] {
            let advice = ahead.observe(1, at * MIB, MIB, GIB);
            assert!(pair == 0 || advice.pattern == Pattern::Sequential, "{at}: {advice:?}");
            for range in advice.ahead {
                assert!(covered == 0 || range.start == covered.max((at + 1) * MIB), "no gap, no overlap");
                covered = range.end;
            }
        }
    }
    assert!(covered > 128 * MIB + MAX_WINDOW / 2);
}

#[test]
fn reading_the_same_place_again_and_again_is_no_evidence() {
    let ahead = ReadAhead::new(MAX_WINDOW);
    assert!((0..100).all(|_| ahead.observe(1, 0, 4096, GIB).ahead.is_empty()));
}

#[test]
fn the_stream_quiet_longest_makes_room() {
    let ahead = ReadAhead::new(MAX_WINDOW);
    for stream in 0..5000 {
        ahead.observe(stream, 0, MIB, GIB);
        ahead.observe(0, stream * MIB, MIB, u64::MAX);
    }
    assert_eq!(ahead.observe(0, 5000 * MIB, MIB, u64::MAX).pattern, Pattern::Sequential, "used since");
    assert_eq!(ahead.observe(1, MIB, MIB, GIB).pattern, Pattern::Random, "a quiet one was forgotten");
}
