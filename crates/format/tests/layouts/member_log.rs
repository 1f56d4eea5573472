//! The log of a proxy group's member.

use forebay_format::member_log::{
    BLOCK, BYTES_MAX, FILE_HEAD_LEN, FileHead, RECORD_HEAD_LEN, RecordHead, RecordKind,
};
use forebay_types::{Epoch, SegmentId, VolumeId};
use proptest::prelude::*;

use crate::damage::{always_refused, never_panics, noise};

const INCARNATION: [u8; 16] = *b"an incarnation..";

pub fn file_head() -> FileHead {
    FileHead {
        member: *b"a test's member.",
        group: *b"a test's group..",
        number: 0x1234,
        incarnation: INCARNATION,
        first: 7 << 28,
    }
}

pub fn record_head(kind: RecordKind) -> RecordHead {
    RecordHead {
        kind,
        synced: (1 << 33) - 4 * BLOCK,
        volume: VolumeId(*b"a test's volume."),
        segment: SegmentId(0x100),
        epoch: Epoch(3),
        offset: 0x1_2345,
        len: if kind.has_bytes() { 300 } else { 0 },
        check: 0xdead_beef,
    }
}

/// Where the record is of which the fixture has the head.
pub const POSITION: u64 = (1 << 33) + 128;

pub fn encoded(head: &RecordHead) -> [u8; RECORD_HEAD_LEN] {
    head.encode(&INCARNATION, POSITION)
}

pub fn decoded(bytes: &[u8]) -> Option<RecordHead> {
    RecordHead::decode(bytes, &INCARNATION, POSITION).ok()
}

#[test]
fn a_file_head_bears_damage() {
    let head = file_head();
    let bytes = head.encode();
    assert_eq!(bytes.len(), FILE_HEAD_LEN);
    assert_eq!(FileHead::decode(&bytes), Ok(head));
    always_refused(&bytes, |bytes| FileHead::decode(bytes).is_ok());
}

#[test]
fn a_record_head_bears_damage_and_belongs_where_it_was_written() {
    let head = record_head(RecordKind::Append);
    let bytes = encoded(&head);
    always_refused(&bytes, |bytes| decoded(bytes).is_some());
    assert!(RecordHead::decode(&bytes, &INCARNATION, POSITION + 64).is_err(), "elsewhere in the log");
    assert!(RecordHead::decode(&bytes, b"another one.....", POSITION).is_err(), "of another incarnation");
    assert_eq!(head.size(), 64 + 320);
    for len in [BYTES_MAX + 1, 0] {
        assert_eq!(decoded(&encoded(&RecordHead { len, ..head })), None, "{len} bytes");
    }
    let fence = record_head(RecordKind::Fence);
    assert_eq!((decoded(&encoded(&fence)), fence.size()), (Some(fence), 64));
    assert_eq!(decoded(&encoded(&RecordHead { len: 1, ..fence })), None, "bytes after a fence");
}

#[test]
fn how_far_the_log_was_synced_is_rounded_down() {
    let says = |synced| {
        decoded(&encoded(&RecordHead { synced, ..record_head(RecordKind::Drop) })).map(|head| head.synced)
    };
    assert_eq!(says(POSITION), Some(1 << 33), "the block in which it begins");
    assert_eq!(says((1 << 33) - 1), Some((1 << 33) - BLOCK));
    assert_eq!(says(POSITION + BLOCK), Some(1 << 33), "never more than what is before it");
    let far = RecordHead { synced: 0, ..record_head(RecordKind::Drop) }.encode(&INCARNATION, 1 << 40);
    let far = RecordHead::decode(&far, &INCARNATION, 1 << 40).expect("a head");
    assert_eq!(far.synced, 0, "too far back to be said");
}

proptest! {
    #[test]
    fn noise_is_no_record(bytes in noise()) {
        prop_assert!(decoded(&bytes).is_none());
        prop_assert!(FileHead::decode(&bytes).is_err());
        never_panics(&bytes, |bytes| assert!(decoded(bytes).is_none()));
    }
}
