//! The bytes of messages: what was encoded is decoded, their layout stays, and bytes that are no message are an error.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod messages;
mod samples;

use forebay_cluster::{Lease, SessionId, SlotNumber, Stamp};
use forebay_group::{Candidate, GroupId, MemberId, MemberState, View};
use forebay_protocol::{
    Answer, Bounds, Failure, GroupRule, Message, OpenSegments, Operation, Placing, PolicyChange, PolicyEdit,
    Push, Recall, Refusal, Request, Settle, Step, StoreSegments, StoredSegment,
    group::{GroupRequest, WriteClass},
};
use forebay_types::{Epoch, Ino, PolicyId, SegmentId, SyncClass, Timespec};
use proptest::prelude::*;

use crate::messages::all;
use crate::samples::{
    OBJECT, TIME, answers, answers_on_sets, group_member, group_view, on_policies, on_sets, operations,
};

#[test]
fn members_of_a_view_have_one_order() {
    let view = group_view();
    let bytes = view.encode();
    assert_eq!(View::decode(&bytes).unwrap(), view);
    let one = [&[1; 16][..], &group_member(MemberState::Draining).encode()].concat();
    let two = [&[2; 16][..], &one[16..]].concat();
    let (head, rest) = (&bytes[..4], &bytes[4 + 2 * one.len()..]);
    assert_eq!([head, &one, &two, rest].concat(), bytes);
    View::decode(&[head, &two, &one, rest].concat()).unwrap_err();
    View::decode(&[head, &one, &one, rest].concat()).unwrap_err();
}

#[test]
fn what_was_encoded_is_decoded() {
    for (text, bytes, read) in all() {
        assert_eq!(read(&bytes).as_ref(), Some(&bytes), "{text}");
    }
    for answer in answers() {
        assert_eq!(Answer::decode(&answer.encode()).unwrap(), answer);
    }
}

#[test]
fn a_message_that_is_cut_or_goes_on_is_refused() {
    for (text, bytes, read) in all() {
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), None, "{text} cut to {len}");
        }
        assert_eq!(read(&[&bytes[..], &[0]].concat()), None, "{text} with a byte more");
    }
}

/// Old and new releases talk to each other: bytes that were given out do not change.
#[test]
fn the_bytes_stay() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let request = |operation| Request {
        session: SessionId(2),
        slot: Some((SlotNumber(1), 300)),
        operation,
        wish: None,
    };
    let session = "02000000000000000000000000000000";
    let lookup = request(Operation::Lookup(Ino(1), b"ab".to_vec())).encode();
    assert_eq!(hex(&lookup), format!("{session}0101ac02{}00", "0101026162"));
    let release = request(Operation::Release(vec![Ino(1), Ino(300)])).encode();
    assert_eq!(hex(&release), format!("{session}0101ac02{}00", "2e0201ac02"));
    let unlink = request(Operation::Unlink(Ino(1), b"a".to_vec(), vec![Ino(7)])).encode();
    assert_eq!(hex(&unlink), format!("{session}0101ac02{}00", "230101610107"));
    let time = Timespec { secs: 1, nanos: 5 };
    let step = Step { time, made: Some(Ino(3)), operation: Operation::RemoveXattr(Ino(2), b"a".to_vec()) };
    assert_eq!(hex(&Operation::Ahead(vec![step]).encode()), "33010205010329020161");
    assert_eq!(hex(&Operation::Hold(vec![Ino(1), Ino(300)]).encode()), "340201ac02");
    assert_eq!(hex(&Operation::Seal(vec![Ino(5), Ino(300)]).encode()), "350205ac02");
    assert_eq!(hex(&Answer::Failed(Failure::Sealed).encode()), "0516");
    assert_eq!(hex(&Answer::Failed(Failure::BelowClass).encode()), "0518");
    let classes =
        Answer::Classes(vec![(PolicyId(300), SyncClass::Object), (PolicyId(1), SyncClass::Replica(8))]);
    assert_eq!(hex(&classes.encode()), "1502ac02000108");
    // One copy, where releases that do not know the class know of 2 to 8 and of 0 for the store: they refuse it.
    let local = Answer::Classes(vec![(PolicyId(1), SyncClass::Local)]);
    assert_eq!(hex(&local.encode()), "15010101");
    let local = GroupRequest::SetClass("v".to_owned(), WriteClass::Local);
    let single = GroupRequest::SetClass("v".to_owned(), WriteClass::Replica(Some(1)));
    assert_eq!(hex(&local.encode()), hex(&single.encode()));
    assert_eq!(GroupRequest::decode(&single.encode()), Ok(local));
    let edit = PolicyEdit { durability: Some(Some(SyncClass::Replica(3))), ..PolicyEdit::default() };
    let set = PolicyChange::Set(Ino(5), edit);
    assert_eq!(hex(&Operation::ChangePolicy(set).encode()), "3a010501010300000000");
    assert_eq!(hex(&Operation::Classes(vec![PolicyId(300)]).encode()), "0d01ac02");
    assert_eq!(hex(&Operation::GroupRules(vec![PolicyId(300)]).encode()), "0f01ac02");
    let bounds = Some(Bounds { here: true, groups: vec![GroupId([7; 16])] });
    let rules = Answer::GroupRules(vec![
        GroupRule { policy: PolicyId(300), class: Some(SyncClass::Replica(2)), bounds },
        GroupRule { policy: PolicyId(1), class: None, bounds: None },
    ]);
    let group = "07".repeat(16);
    assert_eq!(hex(&rules.encode()), format!("1902ac020102010101{group}010000"));
    assert_eq!(hex(&Operation::Reserve { needs: 300, spare: 5 }.encode()), "0eac0205");
    assert_eq!(hex(&Answer::Reserved(Some(300)).encode()), "1801ac02");
    assert_eq!(hex(&Answer::Ahead(vec![(1, Failure::NotEmpty)]).encode()), "0e010106");
    assert_eq!(hex(&Answer::AheadGone(vec![(1, Failure::NotEmpty)], vec![Ino(5)]).encode()), "160101060105");
    let step = Step { time, made: None, operation: Operation::Commit(Box::default()) };
    assert_eq!(hex(&Operation::Ahead(vec![step]).encode()), "33010205002b0000");
    assert_eq!(hex(&Answer::Failed(Failure::NotEmpty).encode()), "0506");
    assert_eq!(hex(&Answer::Committed(vec![Ino(5)]).encode()), "090105");
    let recall = Push::Recall { ino: Ino(5), keep: None, stamp: Stamp { epoch: Epoch(3), number: 8 } };
    assert_eq!(hex(&recall.encode()), "0105000308");
    let stamp = Stamp { epoch: Epoch(3), number: 8 };
    let one = Recall { ino: Ino(5), keep: None, stamp };
    let several = Push::Recalls(vec![one, Recall { ino: Ino(6), keep: Some(Lease::Read), ..one }]);
    assert_eq!(hex(&several.encode()), format!("0902{}{}", "05000308", "0601010308"));
    assert_eq!(hex(&Refusal::MustReclaim { epoch: Epoch(4) }.encode()), "0304");
    // Every tag in use, so that none comes to mean something else unnoticed.
    let tag_of = |operation: &Operation| operation.encode()[0];
    let tags: Vec<u8> = operations().iter().map(tag_of).collect();
    assert_eq!(tags, (1..=9).chain([14]).chain(32..=53).collect::<Vec<u8>>());
    let tags: Vec<u8> = on_sets().iter().map(tag_of).collect();
    assert_eq!(tags, [10, 11, 54, 54, 55, 56, 57]);
    let tags: Vec<u8> = on_policies().iter().map(tag_of).collect();
    assert_eq!(tags, [13, 15, 58, 58, 58, 58]);
    let tags: Vec<u8> = answers_on_sets().iter().map(|answer| answer.encode()[0]).collect();
    assert_eq!(tags, [15, 16, 17, 18]);
    let tags: Vec<u8> = answers().iter().map(|answer| answer.encode()[0]).collect();
    assert_eq!(tags, [0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 19, 20, 24, 24]);
}

/// Numbers that once meant something mean nothing else now.
#[test]
fn what_was_given_up_is_unknown() {
    let bytes_back = [&[12][..], &[0xac, 2], &[0xac, 2], &[3, 1, 2, 3]].concat();
    let error = Operation::decode(&bytes_back).unwrap_err();
    assert!(error.to_string().contains("12 is no Operation"), "{error}");
    let read_back = [&[6][..], &[7; 16], &[0xac, 2], &[0x80, 0x80, 0x40], &[0x80, 0x20]].concat();
    for (number, bytes) in [(3, vec![3]), (6, read_back)] {
        let error = Push::decode(&bytes).unwrap_err();
        assert!(error.to_string().contains(&format!("{number} is no Push")), "{error}");
    }
}

#[test]
fn a_list_that_promises_more_than_there_is_takes_no_memory() {
    let mut bytes = vec![46];
    bytes.extend([0xff; 9]);
    bytes.push(1);
    assert!(Operation::decode(&bytes).is_err());
}

/// What the owner takes of a request is bounded before anything is done with it.
#[test]
fn sets_that_cannot_be_are_refused() {
    let open = on_sets().into_iter().find_map(|operation| match operation {
        Operation::OpenSegments(open) => Some(open),
        _ => None,
    });
    let open = open.unwrap();
    let taken = |open: OpenSegments| Operation::decode(&Operation::OpenSegments(open).encode()).is_ok();
    assert!(taken(open.clone()));
    for count in [0, 257, u32::MAX] {
        assert!(!taken(OpenSegments { count, ..open.clone() }), "{count} segments");
    }
    let member = |at: u8| MemberId([at; 16]);
    for set in [vec![], vec![member(1), member(1)], (0..17).map(member).collect()] {
        assert!(!taken(OpenSegments { placing: Placing::Set(set.clone()), ..open.clone() }), "{set:?}");
    }
    let candidate = |at, weight| Candidate { id: member(at), weight, zone: String::new() };
    let best = |members: Vec<Candidate>, copies| Placing::Best { members, copies, near: None };
    for placing in [
        best(vec![candidate(1, 1)], 2),
        best(vec![candidate(1, 1)], 0),
        best(vec![candidate(1, 1), candidate(1, 2)], 1),
        best(vec![candidate(1, 0)], 1),
        best(vec![candidate(1, (1 << 20) + 1)], 1),
        best(vec![Candidate { zone: "z".repeat(256), ..candidate(1, 1) }], 1),
    ] {
        assert!(!taken(OpenSegments { placing: placing.clone(), ..open.clone() }), "{placing:?}");
    }
    let stored = |segment| StoredSegment {
        segment: SegmentId(segment),
        epoch: Epoch(1),
        len: 9,
        check: 0,
        offset: 0,
        raw: 9,
    };
    let store = |segments| {
        Operation::decode(&Operation::Store(StoreSegments { object: OBJECT, segments }).encode()).is_ok()
    };
    assert!(store(vec![stored(1), stored(2)]));
    assert!(!store(vec![]) && !store(vec![stored(1), stored(1)]));
    assert!(!store(vec![StoredSegment { offset: u64::MAX, ..stored(1) }]));
    assert!(!store((0..4097).map(stored).collect()));
    let settle = |many| Settle { sealed: vec![], settled: (0..many).map(SegmentId).collect() };
    assert!(
        Settle::decode(&settle(4096).encode()).is_ok() && Settle::decode(&settle(4097).encode()).is_err()
    );
}

#[test]
fn what_is_told_afterwards_contains_no_more_of_its_kind() {
    let told = |operation| Operation::Ahead(vec![Step { time: TIME, made: None, operation }]);
    for operation in operations() {
        let may_be = Step::may_be(&operation);
        assert_eq!(Operation::decode(&told(operation.clone()).encode()).is_ok(), may_be, "{operation:?}");
    }
    // Each level that a decoder went down would take some of its stack.
    let level = [51, 1, 0, 0, 0];
    assert!(Operation::decode(&level.repeat(1 << 20)).is_err());
}

#[test]
fn what_changes_something_has_a_slot() {
    for operation in operations().into_iter().chain(on_sets()).chain(on_policies()) {
        assert_eq!(operation.changes(), operation.encode()[0] >= 32, "{operation:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Any bytes are a message or an error, and whatever is a message is read again as itself.
    #[test]
    fn hostile_bytes_are_an_error(which in 0_usize..1000, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let all = all();
        let (_, mut bytes, read) = all[which % all.len()].clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(again) = read(&bytes) {
            prop_assert_eq!(read(&again), Some(again));
        }
    }
}
