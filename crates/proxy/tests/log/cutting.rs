//! A log that ends anywhere: what comes before the cut is there, what comes behind it is not, and nothing is damaged.

use forebay_proxy::log::Log;
use forebay_types::{Epoch, SegmentId};

use crate::{
    disk::MemoryDisk,
    setting::{S, V, bytes, open, options, put, synced, wait},
};

const NAME: &str = "0000000000000001.log";

/// Records of several kinds, none of which any other one calls durable, but the first: all of one round.
fn one_round() -> (MemoryDisk, Vec<(u64, u64)>) {
    let disk = MemoryDisk::new();
    let log = open(&disk, 1);
    wait(log.synced(log.status().end)).unwrap();
    // Nothing of what follows is synced before all of it is appended.
    disk.hold(true);
    let mut ends = Vec::new();
    for at in 0..8 {
        put(&log, S, at * 500, &bytes(at, 500)).unwrap();
        ends.push((log.status().end, (at + 1) * 500));
    }
    log.fence(V, SegmentId(1), Epoch(3)).unwrap();
    disk.hold(false);
    drop(log);
    (disk.killed(), ends)
}

#[test]
fn a_log_that_is_cut_anywhere_has_what_came_before() {
    let (disk, _) = one_round();
    let whole = disk.bytes(NAME);
    let used = 4096 + whole[4096..].iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let mut least = 0;
    for cut in 4096..=used {
        let mut torn = whole[..cut].to_vec();
        torn.resize(whole.len(), 0);
        disk.set(NAME, torn);
        let (log, opened) = Log::open(options(&disk.killed(), 2)).unwrap();
        assert!(!opened.lost && opened.damaged == 0, "cut at {cut}: {opened:?}");
        let end = log.kept(V, S).map_or(0, |kept| {
            assert!(!kept.damaged, "cut at {cut}");
            kept.end()
        });
        assert!(end >= least && end.is_multiple_of(500), "cut at {cut}: {end}");
        least = end;
        for at in 0..end / 500 {
            assert_eq!(log.read(V, S, at * 500, (at + 1) * 500).unwrap().0, bytes(at, 500));
        }
    }
    assert_eq!(least, 4000);
}

/// Only the length counts that the file has: it was cut off by the file system.
#[test]
fn a_file_may_be_shorter_than_it_was() {
    let (disk, _) = one_round();
    let whole = disk.bytes(NAME);
    for cut in (0..whole.len().min(12_000)).step_by(97) {
        disk.set(NAME, whole[..cut].to_vec());
        let again = disk.killed();
        let opened = Log::open(options(&again, 2)).unwrap().0;
        let end = opened.kept(V, S).map_or(0, |kept| kept.end());
        for at in 0..end / 500 {
            assert_eq!(opened.read(V, S, at * 500, (at + 1) * 500).unwrap().0, bytes(at, 500));
        }
    }
}

#[test]
fn after_a_cut_the_log_goes_on_and_is_read_again() {
    let (disk, ends) = one_round();
    let mut torn = disk.bytes(NAME);
    torn[4096 + ends[2].0 as usize + 100] ^= 1;
    disk.set(NAME, torn);
    let disk = disk.killed();
    let log = open(&disk, 2);
    synced(&log, S, 1500, &bytes(9, 700));
    drop(log);
    let (log, opened) = Log::open(options(&disk.killed(), 3)).unwrap();
    assert!(!opened.lost, "{opened:?}");
    let kept = log.kept(V, S).unwrap();
    assert_eq!((kept.end(), kept.damaged), (2200, false));
    assert_eq!(log.read(V, S, 1500, 2200).unwrap().0, bytes(9, 700));
}
