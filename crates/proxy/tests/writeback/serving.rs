use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use forebay_group::{GroupId, Verdict};
use forebay_protocol::{
    Kind, Message, Refusal,
    group::{
        Appends, Copied, FenceAnswer, Greet, ReadBackAnswer, Seal, SegmentAnswer, SegmentRefusal, Taken,
    },
};
use forebay_rpc::{connection::CallError, wire::Code};
use forebay_types::{Epoch, SegmentId};

use crate::bed::{Caller, MEMBER, V, bytes, member, serve};

const S: SegmentId = SegmentId(256);
const J: SegmentId = SegmentId(512);

fn refused(why: SegmentRefusal) -> SegmentAnswer {
    SegmentAnswer::Refused(why)
}

fn denied(error: &CallError) -> bool {
    let CallError::Refused(refusal) = error else { return false };
    matches!(Refusal::decode(&refusal.detail), Ok(Refusal::Denied(_)))
}

#[test]
fn what_was_appended_is_answered_when_it_is_durable_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let bed = serve(dir.path(), 1 << 30, 1);
    let caller = Caller::connect(&bed.address);
    let greeted = caller.greet("write").unwrap();
    assert_eq!((greeted.member, greeted.view.0, greeted.draining), (MEMBER, 5, false));
    // Data and the record that names it, in one message.
    let (data, record) = (bytes(1, 100_000), bytes(2, 90));
    let parts = [(S, 0, data.clone()), (J, 0, record.clone()), (S, 100_000, record.clone())];
    let taken = caller.appends(&parts, 60_000).unwrap();
    let ends = [100_000, 90, 100_090].map(|end| SegmentAnswer::Synced { end });
    assert_eq!((taken.parts, taken.pace_us, taken.view.0), (ends.to_vec(), 0, 5));
    assert!(bed.log.status().synced >= 100_000);
    assert_eq!(caller.append(J, 0, &record), SegmentAnswer::Synced { end: 90 }, "again");
    assert_eq!(caller.append(J, 0, &bytes(3, 90)), refused(SegmentRefusal::Different));
    assert_eq!(caller.append(J, 91, &record), refused(SegmentRefusal::EndsAt(90)));
    let (answer, back) = caller.read(S, 99_990, 100_050);
    assert_eq!(answer, ReadBackAnswer::Read { check: crc32c::crc32c(&back) });
    assert_eq!(back, [&data[99_990..], &record[..50]].concat());
    assert_eq!(caller.read(S, 0, 100_091).0, ReadBackAnswer::Refused(SegmentRefusal::EndsAt(100_090)));
    assert_eq!(caller.seal(S, 1, &data), SegmentAnswer::Synced { end: 100_000 });
    assert_eq!(caller.append(S, 100_000, &record), refused(SegmentRefusal::Sealed(100_000)));
    assert_eq!(bed.served.counted().refused, 3);
    drop(bed);
    let bed = serve(dir.path(), 1 << 30, 2);
    let caller = Caller::greeted(&bed.address, "read");
    assert_eq!(caller.read(S, 0, 100_000).1, data);
}

#[test]
fn who_recovers_a_segment_stops_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    let bed = serve(dir.path(), 1 << 30, 1);
    let (writer, other) = (Caller::greeted(&bed.address, "write"), Caller::greeted(&bed.address, &member()));
    writer.append(S, 0, &bytes(1, 300));
    assert!(denied(&writer.fence(S, 2).unwrap_err()), "a writer fences nobody");
    let fenced = other.fence(S, 2).unwrap();
    let check = crc32c::crc32c(&bytes(1, 300));
    assert_eq!(fenced, FenceAnswer::Fenced { end: 300, check, sealed: None, damaged: false });
    assert_eq!(other.fence(S, 2).unwrap(), fenced, "again");
    assert_eq!(other.fence(S, 1).unwrap(), FenceAnswer::Refused(SegmentRefusal::Fenced(Epoch(2))));
    assert_eq!(writer.append(S, 300, &bytes(1, 1)), refused(SegmentRefusal::Fenced(Epoch(2))));
    assert_eq!(writer.seal(S, 1, &bytes(1, 300)), refused(SegmentRefusal::Fenced(Epoch(2))));
}

#[test]
fn one_that_does_not_act_takes_nothing_in_and_serves_what_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let bed = serve(dir.path(), 1 << 30, 1);
    let caller = Caller::greeted(&bed.address, "write");
    caller.append(S, 0, &bytes(1, 300));
    bed.says.draining.store(true, Ordering::SeqCst);
    assert_eq!(caller.append(J, 0, &bytes(1, 1)), refused(SegmentRefusal::Draining));
    let taken = caller.appends(&[(S, 300, bytes(2, 10))], 60_000).unwrap();
    assert!(taken.draining && taken.parts == [SegmentAnswer::Synced { end: 310 }]);
    bed.says.out.store(true, Ordering::SeqCst);
    assert_eq!(caller.append(S, 310, &bytes(1, 1)), refused(SegmentRefusal::Out));
    assert_eq!(caller.append(S, 0, &bytes(1, 300)), refused(SegmentRefusal::Out), "not even what it has");
    assert_eq!(caller.read(S, 0, 300).1, bytes(1, 300));
    let both = [bytes(1, 300), bytes(2, 10)].concat();
    assert_eq!(caller.seal(S, 1, &both), SegmentAnswer::Synced { end: 310 });
}

#[test]
fn what_has_no_room_waits_and_writers_are_slowed_before() {
    let dir = tempfile::tempdir().unwrap();
    let bed = serve(dir.path(), 8 << 20, 1);
    let caller = Caller::greeted(&bed.address, "write");
    let piece = bytes(1, 4 << 20);
    assert_eq!(caller.appends(&[(S, 0, piece.slice(..3 << 20))], 60_000).unwrap().pace_us, 0);
    let paced = caller.appends(&[(J, 0, piece.slice(..3 << 20))], 60_000).unwrap();
    assert_eq!(paced.pace_us, 50_000);
    caller.append(S, 3 << 20, &piece.slice(..2 << 20));
    assert_eq!(caller.append(SegmentId(9), 0, &bytes(1, 1)), refused(SegmentRefusal::Full));
    let mut at = 5_u64 << 20;
    while bed.log.status().dirty + (4 << 20) <= (72 << 20) {
        assert_eq!(caller.append(S, at, &piece), SegmentAnswer::Synced { end: at + (4 << 20) });
        at += 4 << 20;
    }
    // It waits for as long as its caller does.
    let (goes_on, whole) = (AtomicBool::new(true), [(S, at, piece.clone())]);
    let given_up = std::thread::scope(|scope| {
        let waits = scope.spawn(|| caller.appends_while(&whole, &|| goes_on.load(Ordering::SeqCst)));
        while bed.served.counted().waited < 1 && !waits.is_finished() {
            std::thread::yield_now();
        }
        goes_on.store(false, Ordering::SeqCst);
        waits.join().unwrap()
    });
    assert_eq!(given_up, Err(CallError::GivenUp));
    assert_eq!(bed.served.counted().waited, 1);
    // Others are answered meanwhile, and it goes on when there is room.
    let waits = {
        let (caller, piece) = (caller.clone(), piece.slice(..3 << 20));
        std::thread::spawn(move || caller.append(S, at, &piece))
    };
    while bed.served.counted().waited < 2 {
        std::thread::yield_now();
    }
    assert_eq!(caller.read(J, 0, 10).1, piece[..10]);
    assert!(bed.log.judged(V, J, Verdict::Clean).unwrap());
    assert_eq!(
        waits.join().unwrap(),
        SegmentAnswer::Synced { end: at + (3 << 20) },
        "as much as was dropped"
    );
}

#[test]
fn who_may_not_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bed = serve(dir.path(), 1 << 30, 1);
    let stranger = Caller::connect(&bed.address);
    assert!(denied(&stranger.appends(&[(S, 0, bytes(1, 1))], 10_000).unwrap_err()), "it did not greet");
    assert!(denied(&stranger.greet("wrong").unwrap_err()));
    assert!(denied(&stranger.appends(&[(S, 0, bytes(1, 1))], 10_000).unwrap_err()));
    let greet =
        Greet { group: GroupId([9; 16]), volume: V, token: Some("write".to_owned()), client: String::new() };
    let error = stranger.ask(Kind::Greet, &greet, Bytes::new(), 10_000).unwrap_err();
    assert!(error.to_string().contains("not of 0909"), "{error}");
    let reader = Caller::greeted(&bed.address, "read");
    assert!(denied(&reader.appends(&[(S, 0, bytes(1, 1))], 10_000).unwrap_err()));
    assert_eq!(bed.log.status().segments, 0);
    // A token that is revoked counts no longer than a server said.
    bed.tokens.for_ms.store(0, Ordering::SeqCst);
    let writer = Caller::greeted(&bed.address, "write");
    let asked = bed.tokens.asked.load(Ordering::SeqCst);
    writer.append(S, 0, &bytes(1, 1));
    assert_eq!(bed.tokens.asked.load(Ordering::SeqCst), asked + 1);
    *bed.tokens.now.lock() = Some(Refusal::Unavailable("away".to_owned()));
    assert_eq!(writer.append(S, 1, &bytes(1, 1)), SegmentAnswer::Synced { end: 2 }, "nobody could revoke it");
    *bed.tokens.now.lock() = Some(Refusal::Denied("revoked".to_owned()));
    let cut = || writer.appends(&[(S, 2, bytes(1, 1))], 10_000);
    while cut().is_ok_and(|taken| !taken.parts.is_empty()) {
        std::thread::yield_now();
    }
    assert!(denied(&cut().unwrap_err()));
}

#[test]
fn a_copy_takes_the_place_of_what_was_there_before() {
    let dir = tempfile::tempdir().unwrap();
    let bed = serve(dir.path(), 1 << 30, 1);
    let (writer, other) = (Caller::greeted(&bed.address, "write"), Caller::greeted(&bed.address, &member()));
    writer.append(S, 0, &bytes(1, 300));
    let whole = bytes(1, 5000);
    let seal = |epoch| Seal { segment: S, epoch: Epoch(epoch), len: 5000, check: crc32c::crc32c(&whole) };
    let copy = |caller: &Caller, seal, bulk: Bytes| caller.ask(Kind::Copy, &Copied { seal }, bulk, 10_000);
    assert!(denied(&copy(&writer, seal(2), whole.clone()).unwrap_err()));
    let taken = |reply: Result<forebay_rpc::connection::Reply, CallError>| {
        Taken::decode(&reply.unwrap().body).unwrap().parts[0]
    };
    assert!(
        matches!(taken(copy(&other, seal(1), whole.clone())), SegmentAnswer::Refused(_)),
        "of the same epoch"
    );
    assert_eq!(taken(copy(&other, seal(2), bytes(9, 5000))), refused(SegmentRefusal::Different));
    assert_eq!(taken(copy(&other, seal(2), whole.clone())), SegmentAnswer::Synced { end: 5000 });
    assert_eq!(taken(copy(&other, seal(2), whole.clone())), SegmentAnswer::Synced { end: 5000 }, "again");
    assert_eq!(other.read(S, 0, 5000).1, whole);
    assert!(copy(&other, seal(2), whole.slice(1..)).is_err());
}

#[test]
fn what_is_no_message_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bed = serve(dir.path(), 1 << 30, 1);
    let caller = Caller::greeted(&bed.address, "write");
    let code = |error: CallError| match error {
        CallError::Refused(refusal) => refusal.code,
        error => panic!("{error}"),
    };
    let short = caller.ask(Kind::Append, &Appends::default(), bytes(1, 10), 10_000).unwrap_err();
    assert_eq!(code(short), Code::MALFORMED);
    let range = forebay_protocol::group::ReadBack { segment: S, from: 5, to: 4 };
    assert_eq!(code(caller.ask(Kind::ReadBack, &range, Bytes::new(), 10_000).unwrap_err()), Code::MALFORMED);
    let far = forebay_protocol::group::ReadBack { segment: S, from: 0, to: 9 << 20 };
    assert_eq!(code(caller.ask(Kind::ReadBack, &far, Bytes::new(), 10_000).unwrap_err()), Code::TOO_LARGE);
    let other = caller.ask(Kind::Hello, &range, Bytes::new(), 10_000).unwrap_err();
    assert_eq!(code(other), Code::UNSUPPORTED);
}

/// Many writers at once share syncs.
#[test]
fn writers_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let bed = serve(dir.path(), 1 << 30, 1);
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let caller = Caller::greeted(&bed.address, "write");
            scope.spawn(move || {
                for at in 0..40 {
                    let end = (at + 1) * 100;
                    assert_eq!(
                        caller.append(SegmentId(writer), at * 100, &bytes(at, 100)),
                        SegmentAnswer::Synced { end }
                    );
                }
            });
        }
    });
    let counts = bed.log.counts();
    assert!(counts.appends == 320 && counts.syncs < 240, "{counts:?}");
}
