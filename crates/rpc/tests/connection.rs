//! The protocol without I/O: two connections whose bytes a test carries.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

mod pair;

use bytes::Bytes;
use forebay_rpc::{
    Time,
    connection::{CallError, Carrier, Event, Limits, Outgoing, ProtocolError, Reply, Role, Terms, Timeouts},
    wire::{Class, Code, FrameType, Header, Preface, Refusal},
};
use pair::{Pair, Side, ask, small};
use proptest::prelude::*;

#[test]
fn a_request_is_answered() {
    let mut pair = Pair::ready();
    let id = pair.left.call(small(7, "question"), pair.now);
    let request = pair.request(Side::Right);
    assert_eq!((request.id, request.kind, &request.body[..]), (id, 7, &b"question"[..]));
    assert!(pair.right.reply(id, Reply { body: "answer".into(), bulk: "data".into() }, pair.now));
    assert!(!pair.right.reply(id, Reply::default(), pair.now), "there is one answer");
    let reply = pair.answer(Side::Left, id).unwrap();
    assert_eq!((&reply.body[..], &reply.bulk[..]), (&b"answer"[..], &b"data"[..]));
}

#[test]
fn a_push_is_a_request_in_the_other_direction_and_comes_after_what_was_sent_before() {
    let mut pair = Pair::ready();
    let grant = pair.left.call(small(1, "grant"), pair.now);
    pair.request(Side::Right);
    pair.right.reply(grant, Reply::default(), pair.now);
    let recall = pair.right.call(small(2, "recall"), pair.now);
    pair.carry();
    let events: Vec<_> = std::iter::from_fn(|| pair.left.next_event()).collect();
    assert!(matches!(&events[..], [Event::Answer { .. }, Event::Request(r)] if r.id == recall), "{events:?}");
    pair.left.reply(recall, Reply::default(), pair.now);
    pair.answer(Side::Right, recall).unwrap();
}

#[test]
fn a_refusal_says_all_it_has() {
    let mut pair = Pair::ready();
    let id = ask(&mut pair);
    let refusal = Refusal::new(Code::NOT_OWNER, "elsewhere").redirected("b:1").detailed(vec![1]);
    pair.right.refuse(id, &refusal, pair.now);
    let error = pair.answer(Side::Left, id).unwrap_err();
    assert_eq!((error.class(), error.not_done()), (Class::Elsewhere, true));
    assert_eq!(error, CallError::Refused(refusal));
}

#[test]
fn without_credit_a_request_waits_and_goes_when_an_answer_came() {
    let limits = Limits { requests: 2, ..Limits::default() };
    let mut pair = Pair::with(Terms::default(), Terms { limits, ..Terms::default() });
    let ids: Vec<_> = (0..3).map(|_| pair.left.call(small(1, ""), pair.now)).collect();
    pair.request(Side::Right);
    pair.request(Side::Right);
    assert_eq!(pair.right.next_event(), None);
    pair.right.reply(ids[1], Reply::default(), pair.now);
    pair.answer(Side::Left, ids[1]).unwrap();
    assert_eq!(pair.request(Side::Right).id, ids[2]);
}

#[test]
fn credit_in_bytes_counts_the_reply_too() {
    let limits = Limits { bytes: 1000, ..Limits::default() };
    let mut pair = Pair::with(Terms::default(), Terms { limits, ..Terms::default() });
    let request = Outgoing { reply_max: 500, ..small(1, "x") };
    let first = pair.left.call(request.clone(), pair.now);
    let second = pair.left.call(request.clone(), pair.now);
    let never = pair.left.call(Outgoing { reply_max: 1000, ..request }, pair.now);
    pair.request(Side::Right);
    assert_eq!(pair.right.next_event(), None);
    pair.right.reply(first, Reply::default(), pair.now);
    pair.carry();
    assert_eq!(pair.request(Side::Right).id, second);
    let error = pair.answer(Side::Left, never).unwrap_err();
    assert_eq!(error.class(), Class::Never, "{error}");
}

#[test]
fn a_reply_that_is_too_large_becomes_a_refusal() {
    let mut pair = Pair::ready();
    let id = pair.left.call(Outgoing { reply_max: 3, ..small(1, "") }, pair.now);
    pair.request(Side::Right);
    pair.right.reply(id, Reply { body: "1234".into(), bulk: Bytes::new() }, pair.now);
    let error = pair.answer(Side::Left, id).unwrap_err();
    assert!(matches!(error, CallError::Refused(Refusal { code: Code::TOO_LARGE, .. })), "{error}");
}

#[test]
fn deadlines_end_on_both_sides_and_keep_their_credit_until_the_answer() {
    let limits = Limits { requests: 1, ..Limits::default() };
    let mut pair = Pair::with(Terms::default(), Terms { limits, ..Terms::default() });
    let id = pair.left.call(Outgoing { deadline_ms: 100, ..small(1, "") }, pair.now);
    let waiting = pair.left.call(Outgoing { deadline_ms: 100, ..small(1, "") }, pair.now);
    let later = pair.left.call(small(1, "later"), pair.now);
    pair.request(Side::Right);
    assert_eq!(pair.left.next_time(), pair.now.after(100));
    pair.pass(100);
    let error = pair.answer(Side::Left, id).unwrap_err();
    assert_eq!((&error, error.class()), (&CallError::Deadline { sent: true }, Class::Unknown));
    let error = pair.answer(Side::Left, waiting).unwrap_err();
    assert_eq!((&error, error.class()), (&CallError::Deadline { sent: false }, Class::Here));
    assert_eq!(pair.right.next_event(), Some(Event::Over { id, code: Code::DEADLINE }));
    assert_eq!(pair.right.next_event(), Some(Event::Over { id, code: Code::CANCELLED }));
    assert_eq!(pair.right.next_event(), None, "the credit is still taken");
    pair.right.refuse(id, &Refusal::new(Code::DEADLINE, ""), pair.now);
    pair.carry();
    assert_eq!(pair.left.next_event(), None, "nobody waits for this answer");
    assert_eq!(pair.request(Side::Right).id, later);
}

#[test]
fn a_deadline_that_the_peer_sees_first_is_one() {
    let mut pair = Pair::ready();
    let id = ask(&mut pair);
    pair.right.refuse(id, &Refusal::new(Code::DEADLINE, ""), pair.now);
    assert_eq!(pair.answer(Side::Left, id), Err(CallError::Deadline { sent: true }));
}

#[test]
fn a_cancelled_request_has_no_event_and_a_late_answer_is_no_error() {
    let mut pair = Pair::ready();
    let id = ask(&mut pair);
    pair.right.reply(id, Reply::default(), pair.now);
    pair.left.cancel(id, pair.now);
    pair.carry();
    assert_eq!((pair.left.next_event(), pair.right.next_event()), (None, None));
    let unsent = pair.left.call(small(1, ""), pair.now);
    pair.left.cancel(unsent, pair.now);
    pair.carry();
    assert!(matches!(pair.right.next_event(), Some(Event::Request(_))));
    assert_eq!(pair.right.next_event(), Some(Event::Over { id: unsent, code: Code::CANCELLED }));
}

#[test]
fn a_peer_that_never_answers_what_was_given_up_is_cut_off() {
    let mut pair = Pair::ready();
    let id = ask(&mut pair);
    pair.left.cancel(id, pair.now);
    pair.carry();
    for _ in 0..9 {
        pair.pass(3_000);
    }
    pair.now = pair.now.after(3_000);
    assert_eq!(pair.left.tick(pair.now), Err(ProtocolError::Unanswered { id }));
}

#[test]
fn silence_is_asked_about_and_then_the_end() {
    let mut pair = Pair::ready();
    pair.now = pair.now.after(5_000);
    pair.left.tick(pair.now).unwrap();
    assert!(pair.left.unwritten() > 0, "a ping");
    assert_eq!(pair.left.next_time(), pair.now.after(10_000));
    pair.now = pair.now.after(10_000);
    assert_eq!(pair.left.tick(pair.now), Err(ProtocolError::Silent(15_000)));
}

#[test]
fn a_process_that_was_stopped_asks_before_it_gives_its_peer_up() {
    let mut pair = Pair::ready();
    pair.now = pair.now.after(600_000);
    pair.left.tick(pair.now).unwrap();
    pair.left.tick(pair.now).unwrap();
    pair.carry();
    pair.pass(4_000);
    assert_eq!(pair.left.tick(pair.now), Ok(()));
}

#[test]
fn a_peer_that_does_not_read_or_write_on_is_cut_off_and_one_byte_a_second_does_not_help() {
    let timeouts = Timeouts { ping_ms: 1_000_000, ..Timeouts::default() };
    let mut pair = Pair::with(Terms { timeouts, ..Terms::default() }, Terms::default());
    pair.left.call(small(1, "question"), pair.now);
    let bytes = pair.taken(Side::Left, usize::MAX);
    pair.left.call(small(1, "never read"), pair.now);
    for byte in &bytes[..29] {
        pair.now = pair.now.after(1_000);
        pair.left.tick(pair.now).unwrap();
        pair.left.written(1);
        pair.feed(Side::Right, &[*byte]).unwrap();
        pair.right.tick(pair.now).unwrap();
    }
    pair.now = pair.now.after(1_000);
    assert_eq!(pair.left.tick(pair.now), Err(ProtocolError::SlowReader(30_000)));
    pair.now = pair.now.after(1_000);
    assert_eq!(pair.right.tick(pair.now), Err(ProtocolError::SlowWriter(30_000)));
}

#[test]
fn a_half_open_peer_has_ten_seconds() {
    let mut pair = Pair::fresh(Terms::default(), Terms::default());
    let bytes = pair.taken(Side::Left, 12);
    pair.feed(Side::Right, &bytes).unwrap();
    pair.now = pair.now.after(9_999);
    pair.right.tick(pair.now).unwrap();
    pair.now = pair.now.after(1);
    assert_eq!(pair.right.tick(pair.now), Err(ProtocolError::NoPreface(10_000)));
}

#[test]
fn go_away_says_what_was_taken_and_the_rest_was_not_done() {
    let mut pair = Pair::ready();
    let taken = ask(&mut pair);
    pair.right.go_away(&Refusal::new(Code::GOING_AWAY, "restart").redirected("c:1"), pair.now);
    let passed_over = pair.left.call(small(1, "sent before the go-away came"), pair.now);
    pair.carry();
    let error = pair.answer(Side::Left, passed_over).unwrap_err();
    assert!(error.not_done(), "{error}");
    assert!(matches!(pair.left.next_event(), Some(Event::GoingAway(r)) if r.redirect == "c:1"));
    assert_eq!(pair.right.next_event(), None, "no handler sees it");
    let after = pair.left.call(small(1, ""), pair.now);
    assert!(pair.answer(Side::Left, after).unwrap_err().not_done());
    assert!(!pair.left.finished());
    pair.right.reply(taken, Reply::default(), pair.now);
    pair.answer(Side::Left, taken).unwrap();
    assert!(pair.left.finished() && !pair.right.finished());
    pair.now = pair.now.after(30_000);
    assert_eq!(pair.right.tick(pair.now), Err(ProtocolError::NotClosed(30_000)));
}

#[test]
fn a_lost_connection_tells_what_was_never_sent() {
    let mut pair = Pair::ready();
    let sent = pair.left.call(small(1, "sent"), pair.now);
    pair.taken(Side::Left, 1);
    let unsent = pair.left.call(small(1, "unsent"), pair.now);
    pair.left.lost("cut");
    let error = pair.answer(Side::Left, sent).unwrap_err();
    assert_eq!(error.class(), Class::Unknown);
    let error = pair.answer(Side::Left, unsent).unwrap_err();
    assert_eq!((error.class(), error.not_done()), (Class::Elsewhere, true));
    let after = pair.left.call(small(1, ""), pair.now);
    assert!(pair.answer(Side::Left, after).unwrap_err().not_done());
}

#[test]
fn releases_mix_as_long_as_they_have_a_version_in_common() {
    let of = |oldest, newest, features| Terms { oldest, newest, features, ..Terms::default() };
    let pair = Pair::with(of(1, 3, 0b1011), of(2, 5, 0b1110));
    for side in [&pair.left, &pair.right] {
        let agreed = side.agreed().unwrap();
        assert_eq!((agreed.version, agreed.features), (3, 0b1010));
    }
    let mut pair = Pair::fresh(of(1, 1, 0), of(2, 5, 0));
    let error = pair.try_carry().unwrap_err();
    assert!(error.to_string().contains("1 to 1") && error.to_string().contains("2 to 5"), "{error}");
    let error = pair.try_carry().unwrap_err();
    assert!(matches!(&error, ProtocolError::Refused(r) if r.code == Code::VERSION), "{error}");
    for features in [(1 << 40, 0), (0, 1 << 40)] {
        let mut pair = Pair::fresh(of(1, 1, features.0), of(1, 1, features.1));
        assert!(matches!(pair.try_carry(), Err(ProtocolError::Features { .. })));
    }
}

#[test]
fn a_peer_can_be_refused_with_a_reason() {
    let refuse = Some(Refusal::new(Code::BUSY, "too many connections"));
    let mut pair = Pair::fresh(Terms::default(), Terms { refuse, ..Terms::default() });
    pair.try_carry().unwrap_err();
    let error = pair.try_carry().unwrap_err();
    assert!(matches!(&error, ProtocolError::Refused(r) if r.code == Code::BUSY), "{error}");
}

/// A frame as a hostile peer makes it.
fn forged(header: Header, payload: &[u8]) -> Vec<u8> {
    let checksum = Some(crc32c::crc32c(payload));
    let mut bytes = Header { body: payload.len() as u32, checksum, ..header }.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

fn request(id: u64) -> Header {
    Header { kind: 1, deadline_ms: 1000, reply_max: 10, ..Header::bare(FrameType::Request, id) }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn every_broken_rule_is_refused_with_its_reason() {
    let bare = Header::bare;
    let f = forged;
    let huge = |header: Header, body, bulk| Header { body, bulk, ..header }.encode().to_vec();
    let limits = Limits { requests: 2, bytes: 1000, body: 100, bulk: 200 };
    type Check = fn(&ProtocolError) -> bool;
    let cases: Vec<(&str, Vec<u8>, Check)> = vec![
        ("replay", [f(request(1), b""), f(request(1), b"")].concat(), |e| {
            matches!(e, ProtocolError::Replayed { id: 1, last: 1 })
        }),
        ("out of order", [f(request(5), b""), f(request(4), b"")].concat(), |e| {
            matches!(e, ProtocolError::Replayed { id: 4, last: 5 })
        }),
        ("number 0", f(request(0), b""), |e| matches!(e, ProtocolError::Replayed { .. })),
        ("body", huge(request(1), 101, 0), |e| matches!(e, ProtocolError::Oversized { what: "body", .. })),
        ("bulk", huge(request(1), 0, 201), |e| matches!(e, ProtocolError::Oversized { what: "bulk", .. })),
        ("largest", huge(request(1), u32::MAX, u32::MAX), |e| matches!(e, ProtocolError::Oversized { .. })),
        ("no deadline", f(Header { deadline_ms: 0, ..request(1) }, b""), |e| {
            matches!(e, ProtocolError::Deadline { .. })
        }),
        ("endless", f(Header { deadline_ms: u32::MAX, ..request(1) }, b""), |e| {
            matches!(e, ProtocolError::Deadline { .. })
        }),
        ("too many", [1, 2, 3].map(|id| f(request(id), b"")).concat(), |e| {
            matches!(e, ProtocolError::TooManyRequests { max: 2 })
        }),
        ("bytes", f(Header { reply_max: 1001, ..request(1) }, b""), |e| {
            matches!(e, ProtocolError::TooManyBytes { .. })
        }),
        ("reply to nothing", f(bare(FrameType::Reply, 9), b""), |e| {
            matches!(e, ProtocolError::UnknownAnswer { id: 9 })
        }),
        ("error to nothing", f(bare(FrameType::Error, 9), b""), |e| {
            matches!(e, ProtocolError::UnknownAnswer { id: 9 })
        }),
        ("cancel ahead", f(bare(FrameType::Cancel, 1), b""), |e| {
            matches!(e, ProtocolError::UnknownCancel { id: 1 })
        }),
        ("cancel with a body", f(bare(FrameType::Cancel, 0), b"x"), |e| {
            matches!(e, ProtocolError::Oversized { .. })
        }),
        ("pong", f(bare(FrameType::Pong, 1), b""), |e| matches!(e, ProtocolError::UnknownPong { id: 1 })),
        ("ping with a body", huge(bare(FrameType::Ping, 1), 1 << 30, 0), |e| {
            matches!(e, ProtocolError::Oversized { .. })
        }),
        ("pings", f(bare(FrameType::Ping, 1), b"").repeat(65), |e| {
            matches!(e, ProtocolError::TooManyPings { max: 64 })
        }),
        ("go-away", f(bare(FrameType::GoAway, 0), b"x"), |e| matches!(e, ProtocolError::Malformed { .. })),
        ("large go-away", huge(bare(FrameType::GoAway, 0), 1 << 20, 0), |e| {
            matches!(e, ProtocolError::Oversized { .. })
        }),
        ("no checksum", Header { checksum: None, ..request(1) }.encode().to_vec(), |e| {
            matches!(e, ProtocolError::NoChecksum { id: 1 })
        }),
        ("wrong checksum", Header { checksum: Some(1), ..request(1) }.encode().to_vec(), |e| {
            matches!(e, ProtocolError::PayloadChecksum { id: 1, .. })
        }),
        ("type", f(bare(FrameType::Unknown(77), 1), b""), |e| {
            matches!(e, ProtocolError::UnknownFrame { number: 77 })
        }),
        ("a preface again", Terms::default().release.into_bytes().repeat(20), |e| {
            matches!(e, ProtocolError::HeaderChecksum { .. })
        }),
    ];
    for (name, bytes, is) in cases {
        for step in [1, 7, usize::MAX] {
            let mut pair = Pair::with(Terms::default(), Terms { limits, ..Terms::default() });
            let result =
                bytes.chunks(step.min(bytes.len())).try_for_each(|part| pair.feed(Side::Right, part));
            let error = result.expect_err(name);
            assert!(is(&error), "{name}: {error}");
            assert_eq!(pair.feed(Side::Right, b"more"), Err(error), "{name}: it stays dead");
            let told = pair.try_carry().expect_err(name);
            let told = matches!(told, ProtocolError::Ended(_) | ProtocolError::UnknownPong { .. });
            assert!(told, "{name}: the peer is told");
        }
    }
}

#[test]
fn payloads_go_without_checksums_where_both_sides_know_that_on_a_unix_socket() {
    let over = |carrier| Terms::default().over(carrier);
    // An older release does not know of it.
    let older = || Terms { features: 0, ..over(Carrier::Unix) };
    let cases = [
        (over(Carrier::Tcp), over(Carrier::Tcp), true),
        (over(Carrier::Unix), over(Carrier::Unix), false),
        (older(), over(Carrier::Unix), true),
        (over(Carrier::Unix), older(), true),
        // Who asks for it elsewhere does not get it.
        (over(Carrier::Unix), over(Carrier::Tcp), true),
        (over(Carrier::Tls), over(Carrier::Tls), false),
    ];
    for (left, right, checked) in cases {
        let mut pair = Pair::with(left, right);
        pair.left.call(small(1, "question"), pair.now);
        let sent = pair.taken(Side::Left, usize::MAX);
        assert_eq!(sent[1] & 1 == 1, checked, "a checksum is sent");
        pair.feed(Side::Right, &sent).unwrap();
        let bare = pair.feed(Side::Right, &Header { checksum: None, ..request(2) }.encode());
        assert_eq!(bare.is_err(), checked, "it may be left out");
        let wrong = pair.feed(Side::Right, &Header { checksum: Some(1), ..request(3) }.encode());
        assert!(wrong.is_err(), "one that is there is looked at");
    }
}

#[test]
fn a_reply_larger_than_asked_for_is_refused_before_there_is_room_for_it() {
    let mut pair = Pair::ready();
    let id = ask(&mut pair);
    let header = Header { body: 64 << 20, ..Header::bare(FrameType::Reply, id) };
    let error = pair.feed(Side::Left, &header.encode()).unwrap_err();
    assert!(matches!(error, ProtocolError::Oversized { what: "reply", .. }), "{error}");
    assert!(matches!(pair.feed(Side::Left, &[]), Err(ProtocolError::Oversized { .. })));
}

#[test]
fn a_frame_of_a_later_release_is_passed_over() {
    let mut pair = Pair::ready();
    let mut header = Header { body: 40_000, ..Header::bare(FrameType::Unknown(99), 3) }.encode();
    header[1] = 0x80;
    let crc = crc32c::crc32c(&header[..32]);
    header[32..].copy_from_slice(&crc.to_le_bytes());
    let bytes = [&header[..], &[7; 40_000], &forged(request(1), b"after")].concat();
    pair.feed(Side::Right, &bytes).unwrap();
    assert_eq!(&pair.request(Side::Right).body[..], b"after");
}

/// What both sides say in a conversation of every type of frame, and how many events it makes on the right.
fn conversation(carry: impl Fn(&mut Pair)) -> Vec<Event> {
    let mut pair = Pair::fresh(Terms::default(), Terms::default());
    carry(&mut pair);
    let mut seen = Vec::new();
    for len in [0, 10, 5_000, 40_000] {
        let bulk = Bytes::from(vec![3; len * 2]);
        pair.left.call(Outgoing { bulk, ..small(1, &"q".repeat(len)) }, pair.now);
    }
    let cancelled = pair.left.call(small(2, "cancelled"), pair.now);
    pair.left.cancel(cancelled, pair.now);
    carry(&mut pair);
    for id in 1..=3 {
        pair.right.reply(id, Reply { body: vec![4; 20_000].into(), bulk: vec![5; 9_000].into() }, pair.now);
    }
    pair.right.refuse(4, &Refusal::new(Code::BUSY, "no"), pair.now);
    pair.right.go_away(&Refusal::new(Code::GOING_AWAY, "bye"), pair.now);
    carry(&mut pair);
    for side in [Side::Left, Side::Right] {
        seen.extend(std::iter::from_fn(|| pair.side(side).next_event()));
    }
    seen
}

#[test]
fn every_split_of_the_bytes_makes_the_same_events() {
    let whole = conversation(Pair::carry);
    assert_eq!(whole.len(), 13);
    for step in (1..80).chain([4_095, 4_096, 16_383, 16_384, 16_385]) {
        assert!(conversation(|pair| pair.carry_by(step)) == whole, "{step}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_wait_for_more(bytes in prop::collection::vec(any::<u8>(), 0..300), ready: bool, magic: bool) {
        let mut pair = if ready { Pair::ready() } else { Pair::fresh(Terms::default(), Terms::default()) };
        let start = if magic && !ready { forebay_rpc::wire::MAGIC.to_vec() } else { Vec::new() };
        let _ = pair.feed(Side::Right, &[start, bytes].concat());
    }

    #[test]
    fn damaged_conversations_never_panic(at in 0_usize..40_000, with in 1_u8.., cut in 0_usize..40_000) {
        let mut pair = Pair::ready();
        for len in [0, 10, 5_000, 9_000] {
            pair.left.call(Outgoing { bulk: vec![3; len].into(), ..small(1, &"q".repeat(len)) }, pair.now);
        }
        let mut bytes = pair.taken(Side::Left, usize::MAX);
        let len = bytes.len();
        bytes[at % len] ^= with;
        bytes.truncate(len.min(cut.max(at % len + 1)));
        let result = pair.feed(Side::Right, &bytes);
        let seen = std::iter::from_fn(|| pair.right.next_event()).filter(|e| matches!(e, Event::Request(_))).count();
        prop_assert!(seen < 4, "a damaged request was handed on");
        prop_assert!(result.is_err() || bytes.len() < len || seen < 4);
    }

    #[test]
    fn valid_headers_with_any_fields_never_panic(fields in prop::collection::vec((1_u8..9, 0_u64..6, 0_u32..3000, 0_u32..300, any::<u16>(), 0_u32..3000), 1..20)) {
        let mut pair = Pair::ready();
        ask(&mut pair);
        for (frame, id, reply_max, body, kind, deadline_ms) in fields {
            let frame = [FrameType::Request, FrameType::Reply, FrameType::Error, FrameType::Cancel, FrameType::Ping, FrameType::Pong, FrameType::GoAway, FrameType::Unknown(9)][usize::from(frame - 1)];
            let header = Header { kind, deadline_ms, reply_max, ..Header::bare(frame, id) };
            let bytes = forged(header, &vec![1; body as usize]);
            let _ = pair.feed(Side::Left, &bytes);
            let _ = pair.feed(Side::Right, &bytes);
        }
    }

    #[test]
    fn any_preface_is_answered_or_refused(oldest: u16, newest: u16, features: u64, body: u32, bulk: u32, requests: u32, limit: u32, code: u16) {
        let limits = Limits { body, bulk, requests, bytes: limit };
        let refused = (code % 4 == 0).then_some(Code(code));
        let preface = Preface { oldest, newest, refused, features, limits, release: "x".into(), text: "y".into() };
        for role in [Role::Initiator, Role::Acceptor] {
            let mut one = forebay_rpc::connection::Connection::new(role, Terms::default(), Time(0));
            let bytes = preface.encode();
            one.space()[..bytes.len()].copy_from_slice(&bytes);
            let _ = one.received(bytes.len(), Time(0));
        }
    }
}
