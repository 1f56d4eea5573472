//! The bytes of messages to a member of a proxy group: what was encoded is decoded, their layout stays, and bytes that are no message are an error.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::fmt::Debug;

use forebay_group::{GroupId, Incarnation, MemberId, ViewEpoch};
use forebay_protocol::{
    Message, Rights, VolumeInfo,
    group::{
        AppendPart, Appends, Copied, Copies, Fence, FenceAnswer, Greet, Greeted, ReadBack, ReadBackAnswer,
        Seal, SegmentAnswer, SegmentRefusal, Taken, Vouch, VouchIn, Vouched,
    },
};
use forebay_types::{Compression, Epoch, SegmentId, Timespec, VolumeId};
use proptest::prelude::*;

type Again = fn(&[u8]) -> Option<Vec<u8>>;

fn of<M: Message + Debug>(message: &M) -> (String, Vec<u8>, Again) {
    (format!("{message:?}"), message.encode(), |bytes| M::decode(bytes).ok().map(|found| found.encode()))
}

const MEMBER: MemberId = MemberId([2; 16]);
const SEAL: Seal = Seal { segment: SegmentId(256), epoch: Epoch(1), len: 300, check: 0xdead_beef };

fn part(offset: u64) -> AppendPart {
    AppendPart {
        segment: SegmentId(256),
        epoch: Epoch(1),
        copies: Copies::Several,
        offset,
        len: 300,
        check: 7,
    }
}

fn volume() -> VolumeInfo {
    VolumeInfo {
        name: "v".to_owned(),
        id: VolumeId([9; 16]),
        store: "s3://b".to_owned(),
        endpoint: None,
        region: None,
        block_size: 1 << 22,
        compression: Compression::Lz4,
        created: Timespec { secs: 5, nanos: 0 },
        limit: None,
        generation: 1,
    }
}

fn all() -> Vec<(String, Vec<u8>, Again)> {
    let greet = Greet {
        group: GroupId([1; 16]),
        volume: VolumeId([9; 16]),
        token: Some("fbt".to_owned()),
        client: "m".to_owned(),
    };
    let greeted = Greeted {
        member: MemberId([2; 16]),
        incarnation: Incarnation([3; 16]),
        view: ViewEpoch(5),
        draining: true,
    };
    let why = |why| SegmentAnswer::Refused(why);
    let parts = vec![
        SegmentAnswer::Synced { end: 300 },
        why(SegmentRefusal::Fenced(Epoch(3))),
        why(SegmentRefusal::Sealed(4)),
        why(SegmentRefusal::EndsAt(5)),
        why(SegmentRefusal::Different),
        why(SegmentRefusal::Damaged),
        why(SegmentRefusal::Full),
        why(SegmentRefusal::Draining),
        why(SegmentRefusal::Out),
    ];
    vec![
        of(&greet),
        of(&greeted),
        of(&Vouch { volume: VolumeId([9; 16]), token: None, certificate: Some("a".to_owned()) }),
        of(&VouchIn {
            group: GroupId([8; 16]),
            vouch: Vouch { volume: VolumeId([9; 16]), token: Some("s".to_owned()), certificate: None },
        }),
        of(&Vouched { volume: volume(), rights: Rights::ALL, for_ms: 10_000, group: None, whole: true }),
        of(&Appends { parts: vec![part(64), part(65)] }),
        of(&SEAL),
        of(&Copied { seal: SEAL }),
        of(&Taken { member: MEMBER, parts, pace_us: 1500, view: ViewEpoch(5), draining: false }),
        of(&Fence { segment: SegmentId(256), epoch: Epoch(2) }),
        of(&FenceAnswer::Fenced { end: 300, check: 7, sealed: Some(300), damaged: false }),
        of(&FenceAnswer::Refused(SegmentRefusal::Fenced(Epoch(9)))),
        of(&ReadBack { segment: SegmentId(256), from: 1, to: 300 }),
        of(&ReadBackAnswer::Read { check: 7 }),
        of(&ReadBackAnswer::Refused(SegmentRefusal::EndsAt(5))),
    ]
}

#[test]
fn what_was_encoded_is_decoded() {
    for (text, bytes, again) in all() {
        assert_eq!(again(&bytes).as_ref(), Some(&bytes), "{text}");
    }
}

#[test]
fn a_message_that_is_cut_or_goes_on_is_refused() {
    for (text, bytes, again) in all() {
        for len in 0..bytes.len() {
            assert_eq!(again(&bytes[..len]), None, "{text} cut to {len}");
        }
        assert_eq!(again(&[&bytes[..], &[0]].concat()), None, "{text} with a byte more");
    }
}

/// Old and new releases talk to each other: bytes that were given out do not change.
#[test]
fn the_bytes_stay() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let appends = Appends { parts: vec![part(64), part(65)] };
    assert_eq!(hex(&appends.encode()), "0280020101 40ac0207 80020101 41ac0207".replace(' ', ""));
    // The fourth byte of a part was always 1 in builds that did not look at it.
    let other = |at: usize, value: u8| {
        let mut bytes = appends.encode();
        bytes[at] = value;
        Appends::decode(&bytes)
    };
    assert_eq!(other(4, 1), Ok(appends.clone()));
    assert_eq!(other(4, 2).map(|appends| appends.parts[0].copies), Ok(Copies::One));
    assert!(other(4, 0).is_err() && other(4, 3).is_err());
    assert_eq!(hex(&SEAL.encode()), "800201ac02effdb6f50d");
    let taken = Taken {
        member: MEMBER,
        parts: vec![SegmentAnswer::Synced { end: 300 }, SegmentAnswer::Refused(SegmentRefusal::Out)],
        pace_us: 1,
        view: ViewEpoch(5),
        draining: true,
    };
    assert_eq!(hex(&taken.encode()), format!("{}0201ac020208010501", "02".repeat(16)));
    assert_eq!(hex(&Fence { segment: SegmentId(256), epoch: Epoch(2) }.encode()), "800202");
    let fenced = FenceAnswer::Fenced { end: 300, check: 7, sealed: Some(300), damaged: false };
    assert_eq!(hex(&fenced.encode()), "01ac020701ac0200");
    assert_eq!(hex(&ReadBack { segment: SegmentId(256), from: 1, to: 300 }.encode()), "800201ac02");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Any bytes are a message or an error, and whatever is a message is read again as itself.
    #[test]
    fn hostile_bytes_are_an_error(which in 0_usize..1000, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let all = all();
        let (_, mut bytes, again) = all[which % all.len()].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(found) = again(&bytes) {
            prop_assert_eq!(again(&found), Some(found));
        }
    }
}
