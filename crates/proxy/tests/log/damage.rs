//! Bytes that are not what they were: found, never handed on, and the copies that may have had them count for nothing.

use forebay_group::Verdict;
use forebay_proxy::log::Log;
use forebay_types::{Epoch, SegmentId};
use proptest::prelude::*;

use crate::{
    disk::MemoryDisk,
    setting::{S, V, bytes, open, options, put, read_all, synced},
};

const NAME: &str = "0000000000000001.log";
const SEALED: SegmentId = SegmentId(1);
const LAST: SegmentId = SegmentId(2);

/// Four rounds, each of which calls durable what came before: a sealed segment, an open one in two pieces, another one.
fn rounds() -> MemoryDisk {
    let disk = MemoryDisk::new();
    let log = open(&disk, 1);
    synced(&log, SEALED, 0, &bytes(1, 300));
    let seal = log.seal(V, SEALED, Epoch(1), (300, crc32c::crc32c(&bytes(1, 300)))).unwrap();
    crate::setting::wait(log.synced(seal.upto)).unwrap();
    synced(&log, S, 0, &bytes(2, 300));
    synced(&log, S, 300, &bytes(3, 300));
    synced(&log, LAST, 0, &bytes(4, 300));
    synced(&log, LAST, 300, &bytes(5, 300));
    drop(log);
    disk.killed()
}

fn expected(segment: SegmentId) -> Vec<u8> {
    match segment {
        SEALED => bytes(1, 300).to_vec(),
        S => [bytes(2, 300), bytes(3, 300)].concat(),
        _ => [bytes(4, 300), bytes(5, 300)].concat(),
    }
}

/// What is offered as good is what was written; what was acknowledged and is not there is not offered as good, but at the end, where nothing says that it was.
fn nothing_wrong(log: &Log, what: &str) {
    for segment in [SEALED, S, LAST] {
        let Some(kept) = log.kept(V, segment) else {
            let fenced = log.fence(V, segment, Epoch(2)).unwrap().1;
            assert!(fenced.damaged || segment == LAST, "{what}: {segment} is not there, and nobody says so");
            continue;
        };
        if kept.damaged {
            continue;
        }
        if let Some(all) = read_all(log, segment) {
            let whole = expected(segment);
            assert!(whole.starts_with(&all), "{what}: {segment} has other bytes");
            assert!(all.len() == whole.len() || segment == LAST, "{what}: {segment} ends at {}", all.len());
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_noticed_and_nothing_wrong_is_offered() {
    let disk = rounds();
    let whole = disk.bytes(NAME);
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let (mut lost, mut damaged) = (0, 0);
    for at in (0..80).chain(4096..used) {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        let again = MemoryDisk::new();
        forebay_proxy::log::Disk::create(&again, NAME, 0).unwrap();
        again.set(NAME, flipped);
        // A head that names somebody else is refused as a whole.
        let Ok((log, opened)) = Log::open(options(&again, 2)) else {
            assert!(at < 80, "not opened with a bit flipped at {at}");
            continue;
        };
        lost += u32::from(opened.lost);
        damaged += u32::from(opened.damaged > 0);
        nothing_wrong(&log, &format!("a bit at {at}"));
    }
    assert!(lost > 300 && damaged > 1000, "{lost} with lost records, {damaged} with damaged bytes");
}

#[test]
fn damaged_bytes_of_one_segment_cost_that_one_alone() {
    let disk = rounds();
    let mut bytes_now = disk.bytes(NAME);
    // In the bytes of the first piece of S: the third round.
    let at = bytes_now.windows(300).position(|window| window == &bytes(2, 300)[..]).unwrap();
    bytes_now[at] ^= 1;
    disk.set(NAME, bytes_now);
    let (log, opened) = Log::open(options(&disk.killed(), 2)).unwrap();
    assert_eq!((opened.lost, opened.damaged), (false, 1));
    let damaged = |segment| log.kept(V, segment).unwrap().damaged;
    assert!(damaged(S) && !damaged(SEALED) && !damaged(LAST));
    assert!(log.offers(V).iter().any(|offer| offer.segment == S && offer.damaged));
    assert!(put(&log, S, 600, &bytes(9, 10)).is_err() && log.read(V, S, 0, 1).is_err());
    assert!(!log.fence(V, SegmentId(99), Epoch(2)).unwrap().1.damaged, "that one was never here");
    assert!(log.judged(V, S, Verdict::Clean).unwrap());
}

/// Nobody knows whose record it was: all that were open then count for nothing, for ever, and what comes later does.
#[test]
fn a_record_that_nobody_knows_costs_all_that_may_have_been_meant() {
    let disk = rounds();
    let mut bytes_now = disk.bytes(NAME);
    let at = bytes_now.windows(300).position(|window| window == &bytes(2, 300)[..]).unwrap();
    bytes_now[at - 60] ^= 1;
    disk.set(NAME, bytes_now);
    let mut disk = disk.killed();
    for incarnation in 2..5 {
        let (log, opened) = Log::open(options(&disk, incarnation)).unwrap();
        assert!(opened.lost && log.status().lost);
        let damaged = |segment| log.kept(V, segment).unwrap().damaged;
        assert!(damaged(S) && !damaged(SEALED) && !damaged(LAST), "the last one was opened later");
        assert!(log.fence(V, SegmentId(99), Epoch(2)).unwrap().1.damaged, "it may have been here");
        let fresh = SegmentId(1000 + u64::from(incarnation));
        synced(&log, fresh, 0, &bytes(9, 100));
        for old in 2..=incarnation {
            assert_eq!(read_all(&log, SegmentId(1000 + u64::from(old))).unwrap(), bytes(9, 100));
        }
        drop(log);
        disk = disk.killed();
    }
}

/// The file with the damage goes; that something was lost is known for ever.
#[test]
fn what_was_lost_is_known_when_its_file_is_gone() {
    let disk = rounds();
    let mut bytes_now = disk.bytes(NAME);
    let at = bytes_now.windows(300).position(|window| window == &bytes(2, 300)[..]).unwrap();
    bytes_now[at - 60] ^= 1;
    disk.set(NAME, bytes_now);
    let disk = disk.killed();
    let log = open(&disk, 2);
    for segment in [SEALED, S, LAST] {
        assert!(log.judged(V, segment, Verdict::Gone).unwrap());
    }
    let mut segment = 100;
    while disk.names().iter().any(|name| name == NAME) {
        synced(&log, SegmentId(segment), 0, &bytes(1, 20_000));
        log.judged(V, SegmentId(segment), Verdict::Gone).unwrap();
        segment += 1;
    }
    drop(log);
    let (log, opened) = Log::open(options(&disk.killed(), 3)).unwrap();
    assert!(opened.lost && log.fence(V, SegmentId(99), Epoch(2)).unwrap().1.damaged);
}

#[test]
fn a_file_that_is_gone_or_unreadable_is_noticed() {
    let make = || {
        let disk = MemoryDisk::new();
        let log = open(&disk, 1);
        for segment in 0..8 {
            synced(&log, SegmentId(segment), 0, &bytes(segment, 20_000));
        }
        drop(log);
        disk.killed()
    };
    let second = "0000000000000002.log";
    let disk = make();
    disk.forget(second);
    let (log, opened) = Log::open(options(&disk, 2)).unwrap();
    assert!(opened.lost && log.kept(V, SegmentId(0)).unwrap().damaged);
    let disk = make();
    let mut headless = disk.bytes(second);
    headless[20] ^= 1;
    disk.set(second, headless);
    assert!(Log::open(options(&disk, 2)).unwrap().1.lost);
    let disk = make();
    disk.set_unreadable(second, 3);
    let (log, opened) = Log::open(options(&disk, 2)).unwrap();
    assert!(opened.lost || opened.damaged > 0, "{opened:?}");
    for segment in 0..8 {
        let kept = log.kept(V, SegmentId(segment));
        if kept.is_some_and(|kept| !kept.damaged) {
            assert_eq!(read_all(&log, SegmentId(segment)).unwrap(), bytes(segment, 20_000));
        }
    }
}

/// The disk loses bytes while the process runs.
#[test]
fn bytes_that_change_later_are_noticed_when_they_are_read() {
    let disk = MemoryDisk::new();
    let log = open(&disk, 1);
    synced(&log, S, 0, &bytes(2, 300));
    synced(&log, S, 300, &bytes(3, 300));
    let mut bytes_now = disk.bytes(NAME);
    let at = bytes_now.windows(300).position(|window| window == &bytes(3, 300)[..]).unwrap();
    bytes_now[at] ^= 1;
    disk.set(NAME, bytes_now);
    assert_eq!(log.read(V, S, 0, 300).unwrap().0, bytes(2, 300));
    assert!(log.read(V, S, 0, 600).is_err());
    assert!(log.kept(V, S).unwrap().damaged && log.offers(V)[0].damaged);
}

/// Somebody stores a copy of a log in a segment: what is in it are bytes, also where the record around them is damaged.
#[test]
fn a_log_inside_a_log_is_no_log() {
    let inner = rounds().bytes(NAME);
    let used = inner.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let inner: bytes::Bytes = inner[4096..used].to_vec().into();
    let disk = MemoryDisk::new();
    let log = open(&disk, 9);
    synced(&log, SegmentId(77), 0, &inner);
    synced(&log, SegmentId(78), 0, &bytes(1, 10));
    drop(log);
    let disk = disk.killed();
    let mut bytes_now = disk.bytes(NAME);
    let at = bytes_now.windows(64).position(|window| window == &inner[..64]).unwrap();
    bytes_now[at - 10] ^= 1;
    disk.set(NAME, bytes_now);
    let (log, opened) = Log::open(options(&disk.killed(), 10)).unwrap();
    assert!(opened.lost);
    for segment in [SEALED, S, LAST] {
        assert!(log.kept(V, segment).is_none(), "{segment} was never written");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever is on the disk, opening ends, and what it offers as good is what was written.
    #[test]
    fn any_damage_is_borne(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 1_usize..2000), 1..5)) {
        let disk = rounds();
        let mut bytes_now = disk.bytes(NAME);
        let used = bytes_now.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        for (at, byte, len) in changes {
            let at = at.index(used);
            let to = (at + len).min(used);
            bytes_now[at..to].iter_mut().for_each(|old| *old = old.wrapping_add(byte));
        }
        disk.set(NAME, bytes_now);
        if let Ok((log, _)) = Log::open(options(&disk.killed(), 2)) {
            for segment in [SEALED, S, LAST] {
                let good = log.kept(V, segment).is_some_and(|kept| !kept.damaged);
                if let Some(all) = read_all(&log, segment).filter(|_| good) {
                    prop_assert!(expected(segment).starts_with(&all));
                }
            }
        }
    }
}
