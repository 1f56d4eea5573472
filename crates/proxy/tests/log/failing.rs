//! Disks that are full, and disks that fail.

use forebay_group::Verdict;
use forebay_proxy::log::{Log, OpenError, PutError};
use forebay_types::SegmentId;

use crate::{
    disk::MemoryDisk,
    setting::{S, V, append_of, bytes, may, open, options, put, read_all, synced, wait},
};

fn fill(log: &Log) -> u64 {
    let piece = bytes(1, 4000);
    for segment in 0..10_000 {
        let mut last = None;
        // Now and then it looks whether there is room for another file.
        for _ in 0..200 {
            last = Some(log.append(V, &append_of(SegmentId(segment), 1, 0, &piece), &may));
            if !matches!(last, Some(Err(PutError::Full))) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        match last.unwrap() {
            Ok(step) => wait(log.synced(step.upto)).unwrap(),
            Err(PutError::Full) => return segment,
            Err(error) => panic!("refused otherwise: {error}"),
        }
    }
    panic!("never refused");
}

#[test]
fn a_full_disk_refuses_what_is_new_and_goes_on_with_what_frees_space() {
    let disk = MemoryDisk::new();
    disk.limit(Some(3 * (64 << 10)));
    let log = open(&disk, 1);
    let segments = fill(&log);
    assert!((35..46).contains(&segments), "{segments}");
    assert!(log.failure().is_none());
    let first = log.kept(V, SegmentId(0)).unwrap();
    let seal = log.seal(V, SegmentId(0), first.epoch, (first.end(), first.check())).unwrap();
    wait(log.synced(seal.upto)).unwrap();
    assert_eq!(read_all(&log, SegmentId(1)).unwrap(), bytes(1, 4000), "what is there can be read");
    for segment in 0..segments {
        assert!(log.judged(V, SegmentId(segment), Verdict::Clean).unwrap(), "a drop needs no room of others");
    }
    assert_eq!(synced(&log, SegmentId(20_000), 0, &bytes(2, 4000)), 4000, "there is room again");
    drop(log);
    let log = open(&disk.killed(), 2);
    assert_eq!(log.offers(V).len(), 1);
}

#[test]
fn a_log_is_opened_on_a_full_disk_as_long_as_there_is_a_little_room() {
    let disk = MemoryDisk::new();
    let log = Log::open(forebay_proxy::log::LogOptions { file_len: 8 << 20, ..options(&disk, 1) }).unwrap().0;
    synced(&log, S, 0, &bytes(1, 100));
    drop(log);
    let disk = disk.killed();
    disk.forget("spare");
    disk.limit(Some(2 << 20));
    let again = |incarnation| forebay_proxy::log::LogOptions {
        file_len: 8 << 20,
        reserve: 4 << 20,
        ..options(&disk, incarnation)
    };
    let log = Log::open(again(2)).unwrap().0;
    let refused = log.append(V, &append_of(SegmentId(1), 1, 0, &bytes(1, 100)), &may);
    assert!(matches!(refused, Err(PutError::Full)), "{refused:?}");
    assert!(log.judged(V, S, Verdict::Clean).unwrap());
    drop(log);
    let disk2 = disk.killed();
    disk2.limit(Some(1));
    disk2.forget("spare");
    let refused = Log::open(options(&disk2, 3));
    assert!(matches!(refused, Err(OpenError::NoSpace { .. })), "{refused:?}");
}

#[test]
fn a_failed_sync_is_the_end_of_all_promises() {
    for write in [false, true] {
        let disk = MemoryDisk::new();
        let log = open(&disk, 1);
        synced(&log, S, 0, &bytes(1, 100));
        match write {
            true => disk.fail_write_after(0),
            false => disk.fail_sync_after(0),
        }
        let step = put(&log, S, 100, &bytes(2, 100)).unwrap();
        let failed = wait(log.synced(step.upto)).unwrap_err();
        assert!(failed.to_string().contains(if write { "write to" } else { "sync" }), "{failed}");
        let refused = log.append(V, &append_of(S, 1, 200, &bytes(3, 100)), &may);
        assert!(matches!(refused, Err(PutError::Failed(_))), "{refused:?}");
        assert!(matches!(log.judged(V, S, Verdict::Clean), Err(PutError::Failed(_))));
        assert!(wait(log.synced(step.upto)).is_err(), "and not at the second time");
        assert!(log.failure().is_some() && log.status().synced < step.upto);
        let kept = log.read(V, S, 0, 100);
        assert!(kept.is_err() || kept.unwrap().0 == bytes(1, 100), "nothing unsynced is handed out");
        drop(log);
        let log = open(&disk.killed(), 2);
        assert!(log.kept(V, S).unwrap().end() >= 100);
        assert_eq!(read_all(&log, S).unwrap()[..100], bytes(1, 100));
    }
}

/// A file system that gives space away twice.
#[test]
fn space_that_is_not_there_is_waited_for() {
    let disk = MemoryDisk::new();
    let log = open(&disk, 1);
    synced(&log, S, 0, &bytes(1, 100));
    disk.fill(true);
    let step = put(&log, S, 100, &bytes(2, 100)).unwrap();
    while log.append(V, &append_of(SegmentId(1), 1, 0, &bytes(1, 1)), &may).is_ok() {
        std::thread::yield_now();
    }
    assert!(log.failure().is_none() && log.status().synced < step.upto);
    disk.fill(false);
    wait(log.synced(step.upto)).unwrap();
    assert_eq!(read_all(&log, S).unwrap().len(), 200);
}

#[test]
fn the_budget_refuses_new_segments_first() {
    let disk = MemoryDisk::new();
    let budget = forebay_group::Budget { limit: 1000 };
    let log = Log::open(forebay_proxy::log::LogOptions { budget, ..options(&disk, 1) }).unwrap().0;
    put(&log, S, 0, &bytes(1, 1000)).unwrap();
    let refused = log.append(V, &append_of(SegmentId(1), 1, 0, &bytes(1, 1)), &may);
    assert!(matches!(refused, Err(PutError::Full)));
    put(&log, S, 1000, &bytes(1, 1000)).unwrap();
    log.judged(V, S, Verdict::Gone).unwrap();
    put(&log, SegmentId(1), 0, &bytes(1, 1)).unwrap();
}
