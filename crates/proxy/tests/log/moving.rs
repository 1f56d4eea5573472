//! A log that has grown too long: what is left of its oldest file is appended anew, and the file goes.

use forebay_group::Verdict;
use forebay_proxy::log::{Log, LogOptions};
use forebay_types::{Epoch, SegmentId};

use crate::{
    disk::MemoryDisk,
    setting::{S, V, bytes, open, options, put, read_all, synced, wait},
};

fn short(disk: &MemoryDisk, incarnation: u8) -> LogOptions {
    LogOptions { len_max: 4 * (64 << 10), ..options(disk, incarnation) }
}

fn first_file(disk: &MemoryDisk) -> String {
    disk.names().into_iter().find(|name| name.ends_with(".log")).unwrap()
}

/// A segment, a fence and a seal that stay while everything else comes and goes.
#[test]
fn a_few_that_stay_do_not_hold_the_log() {
    let disk = MemoryDisk::new();
    let log = Log::open(short(&disk, 1)).unwrap().0;
    let (open_one, sealed, fenced) = (S, SegmentId(1), SegmentId(2));
    synced(&log, open_one, 0, &bytes(1, 1000));
    synced(&log, sealed, 0, &bytes(2, 2000));
    synced(&log, sealed, 2000, &bytes(3, 2000));
    let check = crc32c::crc32c(&bytes(2, 2000));
    log.seal(V, sealed, Epoch(5), (2000, check)).unwrap();
    log.fence(V, fenced, Epoch(6)).unwrap();
    for round in 0..60_u64 {
        let segment = SegmentId(100 + round);
        synced(&log, segment, 0, &bytes(round, 20_000));
        if round.is_multiple_of(7) {
            let end = log.kept(V, open_one).unwrap().end();
            synced(&log, open_one, end, &bytes(round, 100));
        }
        log.judged(V, segment, Verdict::Clean).unwrap();
    }
    synced(&log, SegmentId(5), 0, &bytes(1, 1));
    assert!(log.status().len <= 7 * (64 << 10), "{:?}", log.status());
    assert!(log.counts().moved_bytes > 3000);
    assert_ne!(first_file(&disk), "0000000000000001.log");
    let whole: Vec<u8> = [bytes(1, 1000)]
        .into_iter()
        .chain((0..60).step_by(7).map(|round| bytes(round, 100)))
        .flatten()
        .collect();
    assert_eq!(read_all(&log, open_one).unwrap(), whole);
    let before = log.offers(V);
    drop(log);
    let log = Log::open(short(&disk.killed(), 2)).unwrap().0;
    assert_eq!(log.offers(V), before);
    assert_eq!(read_all(&log, open_one).unwrap(), whole);
    assert_eq!(read_all(&log, sealed).unwrap(), bytes(2, 2000));
    assert_eq!(log.kept(V, sealed).unwrap().sealed, Some((2000, check)));
    let late = put(&log, fenced, 0, &bytes(1, 1));
    assert!(late.is_err(), "the fence is still there");
}

/// All of it is wanted: moving it would gain nothing, for ever.
#[test]
fn what_is_wanted_as_a_whole_stays_where_it_is() {
    let disk = MemoryDisk::new();
    let log = Log::open(short(&disk, 1)).unwrap().0;
    for segment in 0..20 {
        synced(&log, SegmentId(segment), 0, &bytes(segment, 20_000));
    }
    assert_eq!((log.counts().moved_bytes, first_file(&disk).as_str()), (0, "0000000000000001.log"));
}

/// What is moved has rotted: it is not moved as good.
#[test]
fn what_cannot_be_read_is_not_moved() {
    let disk = MemoryDisk::new();
    let log = open(&disk, 1);
    synced(&log, S, 0, &bytes(1, 1000));
    drop(log);
    let disk = disk.killed();
    let log = Log::open(short(&disk, 2)).unwrap().0;
    let name = "0000000000000001.log";
    let mut rotten = disk.bytes(name);
    let at = rotten.windows(1000).position(|window| window == &bytes(1, 1000)[..]).unwrap();
    rotten[at] ^= 1;
    disk.set(name, rotten);
    for round in 0..20_u64 {
        synced(&log, SegmentId(100 + round), 0, &bytes(round, 20_000));
        log.judged(V, SegmentId(100 + round), Verdict::Clean).unwrap();
    }
    let step = put(&log, SegmentId(5), 0, &bytes(1, 1)).unwrap();
    wait(log.synced(step.upto)).unwrap();
    assert!(log.kept(V, S).unwrap().damaged);
}
