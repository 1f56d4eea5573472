//! Files: one after the other, removed when nothing needs them; what a log is opened on.

use forebay_group::{Budget, GroupId, Incarnation, Verdict, ViewEpoch};
use forebay_proxy::log::{Directory, Log, LogOptions, OpenError, PutError};
use forebay_types::{Epoch, SegmentId};

use crate::{
    disk::MemoryDisk,
    setting::{GROUP, MEMBER, S, V, bytes, open, options, put, read_all, synced, wait},
};

fn logs(disk: &MemoryDisk) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.ends_with(".log")).collect()
}

/// Waits for what the log's thread does by itself.
fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("never: {what}");
}

#[test]
fn a_log_goes_on_where_it_ended() {
    let disk = MemoryDisk::new();
    let log = open(&disk, 1);
    let (first, second) = (bytes(1, 1000), bytes(2, 5000));
    assert_eq!(synced(&log, S, 0, &first), 1000);
    wait(log.synced(log.acknowledge(ViewEpoch(9)).unwrap())).unwrap();
    let end = log.status().end;
    drop(log);
    let log = open(&disk.killed(), 2);
    assert_eq!((log.status().view, log.status().dirty), (ViewEpoch(9), 1000));
    assert!(log.status().end > end, "positions never go back");
    synced(&log, S, 1000, &second);
    assert_eq!(read_all(&log, S).unwrap(), [&first[..], &second[..]].concat());
    let part = log.read(V, S, 999, 1002).unwrap();
    assert_eq!((part.0.to_vec(), part.1), (vec![first[999], second[0], second[1]], crc32c::crc32c(&part.0)));
    assert!(log.read(V, S, 5000, 6001).is_err() && log.read(V, SegmentId(1), 0, 1).is_err());
}

#[test]
fn files_follow_each_other_and_go_when_nothing_needs_them() {
    let disk = MemoryDisk::new();
    let log = open(&disk, 1);
    let piece = bytes(3, 20_000);
    for segment in 0..10 {
        synced(&log, SegmentId(segment), 0, &piece);
    }
    assert!(logs(&disk).len() >= 4, "{:?}", disk.names());
    for segment in 1..10 {
        assert!(log.judged(V, SegmentId(segment), Verdict::Clean).unwrap());
    }
    // The oldest file is needed, so all stay.
    synced(&log, SegmentId(20), 0, &piece);
    assert_eq!(logs(&disk)[0], "0000000000000001.log");
    assert!(log.judged(V, SegmentId(0), Verdict::Gone).unwrap());
    until("old files are removed", || logs(&disk).len() <= 2);
    drop(log);
    let log = open(&disk.killed(), 2);
    assert_eq!(log.offers(V).len(), 1, "what was given up does not come back");
    assert_eq!(read_all(&log, SegmentId(20)).unwrap(), piece);
}

#[test]
fn what_is_known_of_the_log_outlives_its_files() {
    let disk = MemoryDisk::new();
    let log = open(&disk, 1);
    log.acknowledge(ViewEpoch(5)).unwrap();
    let piece = bytes(3, 30_000);
    for segment in 0..6 {
        synced(&log, SegmentId(segment), 0, &piece);
        log.judged(V, SegmentId(segment), Verdict::Clean).unwrap();
    }
    synced(&log, S, 0, &piece);
    until("old files are removed", || logs(&disk)[0] != "0000000000000001.log");
    drop(log);
    assert_eq!(open(&disk.killed(), 2).status().view, ViewEpoch(5));
}

#[test]
fn a_fence_and_a_seal_are_there_after_a_stop() {
    let disk = MemoryDisk::new();
    let log = open(&disk, 1);
    let piece = bytes(3, 300);
    synced(&log, S, 0, &piece);
    synced(&log, S, 300, &piece);
    let (step, fenced, sealed) = log.fence(V, S, Epoch(4)).unwrap();
    assert_eq!((fenced.end, fenced.damaged, sealed), (600, false, None));
    log.fence(V, SegmentId(9), Epoch(2)).unwrap();
    let seal = log.seal(V, S, Epoch(4), (300, crc32c::crc32c(&piece))).unwrap();
    assert!(seal.upto > step.upto);
    wait(log.synced(seal.upto)).unwrap();
    drop(log);
    let log = open(&disk.killed(), 2);
    let kept = log.kept(V, S).unwrap();
    assert_eq!((kept.epoch, kept.sealed, kept.end()), (Epoch(4), Some((300, crc32c::crc32c(&piece))), 300));
    let late = put(&log, SegmentId(9), 0, &piece);
    assert!(matches!(late, Err(PutError::Refused(forebay_group::LogError::Fenced(Epoch(2))))), "{late:?}");
}

#[test]
fn a_log_of_somebody_else_is_refused_and_not_touched() {
    let disk = MemoryDisk::new();
    drop(open(&disk, 1));
    let disk = disk.killed();
    let before: Vec<_> = disk.names().into_iter().map(|name| (name.clone(), disk.bytes(&name))).collect();
    let other = LogOptions { group: GroupId([9; 16]), ..options(&disk, 2) };
    let refused = Log::open(other);
    assert!(
        matches!(&refused, Err(OpenError::Foreign { why, .. }) if why.contains("01010101")),
        "{refused:?}"
    );
    let mut later = disk.bytes("0000000000000001.log");
    later[8] = 2;
    let crc = crc32c::crc32c(&later[..76]);
    later[76..80].copy_from_slice(&crc.to_le_bytes());
    disk.set("0000000000000001.log", later);
    assert!(matches!(Log::open(options(&disk, 2)), Err(OpenError::Newer { .. })));
    disk.set("0000000000000001.log", before[0].1.clone());
    let after: Vec<_> = disk.names().into_iter().map(|name| (name.clone(), disk.bytes(&name))).collect();
    assert!(before == after);
    let wrong_name = MemoryDisk::new();
    drop(open(&wrong_name, 1));
    let wrong_name = wrong_name.killed();
    forebay_proxy::log::Disk::rename(&wrong_name, "0000000000000001.log", "0000000000000002.log").unwrap();
    assert!(matches!(Log::open(options(&wrong_name, 2)), Err(OpenError::Foreign { .. })));
}

/// A real directory, and threads that come and go: many appends share a sync.
#[test]
fn many_writers_share_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let disk = std::sync::Arc::new(Directory::new(dir.path()));
    let of = |incarnation| {
        let ids = (GROUP, MEMBER, Incarnation([incarnation; 16]));
        LogOptions { file_len: 1 << 20, ..LogOptions::new(disk.clone(), ids, Budget { limit: 1 << 30 }) }
    };
    let log = Log::open(of(1)).unwrap().0;
    std::thread::scope(|scope| {
        for writer in 0..16 {
            let log = &log;
            scope.spawn(move || {
                for at in 0..50 {
                    synced(log, SegmentId(writer), at * 100, &bytes(writer + at, 100));
                }
            });
        }
    });
    let counts = log.counts();
    assert_eq!((counts.appends, counts.append_bytes), (800, 80_000));
    assert!(counts.syncs < 600, "{counts:?}");
    drop(log);
    let log = Log::open(of(2)).unwrap().0;
    for writer in 0..16 {
        let all: Vec<u8> = (0..50).flat_map(|at| bytes(writer + at, 100)).collect();
        assert_eq!(read_all(&log, SegmentId(writer)).unwrap(), all);
    }
}
