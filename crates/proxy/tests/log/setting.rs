//! Logs of tests, and what is put into them.

use std::future::Future;

use bytes::Bytes;
use forebay_group::{Append, Budget, GroupId, Incarnation, MemberId, NotActing, Step};
use forebay_proxy::log::{Log, LogOptions, PutError, ReadError};
use forebay_types::{Epoch, SegmentId, VolumeId};

use crate::disk::MemoryDisk;

pub const V: VolumeId = VolumeId([7; 16]);
pub const S: SegmentId = SegmentId(256);
pub const GROUP: GroupId = GroupId([1; 16]);
pub const MEMBER: MemberId = MemberId([2; 16]);

/// Files of 64 KiB, of which 8 KiB are kept for what frees space.
pub fn options(disk: &MemoryDisk, incarnation: u8) -> LogOptions {
    let budget = Budget { limit: 1 << 30 };
    LogOptions {
        file_len: 64 << 10,
        reserve: 8 << 10,
        chunk: 16 << 10,
        len_max: 1 << 40,
        ..LogOptions::new(disk.shared(), (GROUP, MEMBER, Incarnation([incarnation; 16])), budget)
    }
}

pub fn open(disk: &MemoryDisk, incarnation: u8) -> Log {
    Log::open(options(disk, incarnation)).unwrap().0
}

pub fn may(_: bool) -> Result<(), NotActing> {
    Ok(())
}

pub fn bytes(seed: u64, len: usize) -> Bytes {
    let seed = seed as u8 as usize;
    (0..len).map(|at| (seed * 31 + at * 7 + at / 251) as u8).collect::<Vec<_>>().into()
}

pub fn append_of(segment: SegmentId, epoch: u64, offset: u64, bytes: &Bytes) -> Append {
    let check = crc32c::crc32c(bytes);
    Append { segment, epoch: Epoch(epoch), offset, bytes: bytes.clone(), check }
}

pub fn put(log: &Log, segment: SegmentId, offset: u64, bytes: &Bytes) -> Result<Step, PutError> {
    loop {
        match log.append(V, &append_of(segment, 1, offset, bytes), &may) {
            // The next file is being made.
            Err(PutError::Full) if log.failure().is_none() => std::thread::yield_now(),
            result => return result,
        }
    }
}

pub fn wait<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Appends, and waits until it is on stable storage.
pub fn synced(log: &Log, segment: SegmentId, offset: u64, bytes: &Bytes) -> u64 {
    let step = put(log, segment, offset, bytes).unwrap();
    wait(log.synced(step.upto)).unwrap();
    step.end
}

/// What is read once it is on stable storage: it may be moved meanwhile.
pub fn read(log: &Log, volume: VolumeId, segment: SegmentId, end: u64) -> Option<Vec<u8>> {
    loop {
        match log.read(volume, segment, 0, end) {
            Ok((bytes, _)) => return Some(bytes.to_vec()),
            Err(ReadError::NotSynced { upto }) => wait(log.synced(upto)).ok()?,
            Err(_) => return None,
        }
    }
}

pub fn read_all(log: &Log, segment: SegmentId) -> Option<Vec<u8>> {
    read(log, V, segment, log.kept(V, segment)?.end())
}
