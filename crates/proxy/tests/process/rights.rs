//! Who may do what at a member.

use bytes::Bytes;
use forebay_group::Incarnation;
use forebay_protocol::{
    Kind, Message, Refusal,
    group::{
        Copied, FenceAnswer, Fetch, ReadBackAnswer, Seal, SegmentAnswer, SegmentRefusal, Taken, Vouch, Walk,
    },
};
use forebay_rpc::{
    connection::{CallError, Outgoing, Reply},
    wire::Code,
};
use forebay_types::{Epoch, ObjectId};

use crate::{
    cluster::{Cluster, refusal, until},
    writers::{Caller, bytes},
};

fn denied(error: &CallError) -> String {
    match refusal(error) {
        Some(Refusal::Denied(why)) => why,
        _ => panic!("{error}"),
    }
}

fn near(caller: &Caller) -> Result<Reply, CallError> {
    let (kind, body, bulk) = (Kind::Near as u16, Bytes::new(), Bytes::new());
    caller.0.call_blocking(Outgoing { kind, body, bulk, deadline_ms: 10_000, reply_max: 4096 })
}

#[test]
fn a_token_that_writes_appends_and_one_that_reads_does_not() {
    let cluster = Cluster::new();
    let proxy = cluster.proxy("a");
    let address = &proxy.addresses()[0];
    let segment = cluster.opened(1)[0];
    let stranger = Caller::connect(address);
    assert!(
        denied(&stranger.appends(&[(segment, 0, bytes(1, 1))], 10_000).unwrap_err()).contains("is Greet")
    );
    assert!(near(&stranger).is_err(), "nobody is near who is not let in");
    assert!(cluster.greet(&stranger, "fbt-wrong").is_err());
    assert!(
        denied(&stranger.appends(&[(segment, 0, bytes(1, 1))], 10_000).unwrap_err()).contains("is Greet")
    );
    let writer = cluster.caller(address, &cluster.token(false));
    let reader = cluster.caller(address, &cluster.token(true));
    near(&reader).unwrap();
    assert_eq!(writer.append(segment, 0, &bytes(1, 300)), SegmentAnswer::Synced { end: 300 });
    let refused = reader.appends(&[(segment, 300, bytes(1, 1))], 10_000).unwrap_err();
    assert!(denied(&refused).contains("the token lets its bearer read"));
    assert_eq!(reader.read(segment, 0, 300).1, bytes(1, 300));
    for caller in [&writer, &reader] {
        assert!(denied(&caller.fence(segment, 2).unwrap_err()).contains("only members"));
    }
    assert_eq!(writer.append(segment, 300, &bytes(2, 10)), SegmentAnswer::Synced { end: 310 });
    let text = proxy.metrics()();
    for line in [
        "appends_total{group=\"g\"} 2",
        "append_bytes_total{group=\"g\"} 310",
        "dirty_segments{group=\"g\"} 1",
        "dirty_limit_bytes{group=\"g\"} 33554432",
        "pace_seconds{group=\"g\"} 0",
    ] {
        assert!(text.lines().any(|found| found == format!("forebay_proxy_{line}")), "{line}: {text}");
    }
    assert!(
        text.contains("forebay_proxy_log_bytes{group=\"g\"} ") && text.contains("forebay_proxy_syncs_total{")
    );
    // From here on it is the member's to put.
    let all = [bytes(1, 300), bytes(2, 10)].concat();
    assert_eq!(writer.seal(segment, 1, &all), SegmentAnswer::Synced { end: 310 });
}

#[test]
fn a_member_fences_and_brings_copies_by_its_name() {
    let cluster = Cluster::new();
    let (one, two) = (cluster.proxy("a"), cluster.proxy("b"));
    let address = &one.addresses()[0];
    // The row stays at epoch 1, so whatever comes here in epoch 2 is wanted, and never stored.
    let [segment, copied] = cluster.open(one.place().look(forebay_group::Membership::id), 2)[..] else {
        panic!("two were asked for")
    };
    let writer = cluster.caller(address, &cluster.token(false));
    assert_eq!(writer.append(segment, 0, &bytes(1, 300)), SegmentAnswer::Synced { end: 300 });
    let (id, incarnation) = two.place().look(|place| (place.id(), place.incarnation()));
    let other = Caller::connect(address);
    let wrong = Vouch::member(cluster.group, id, Incarnation([9; 16]));
    assert!(denied(&cluster.greet(&other, &wrong).unwrap_err()).contains("knows no member"));
    let foreign = Vouch::member(forebay_group::GroupId([9; 16]), id, incarnation);
    assert!(denied(&cluster.greet(&other, &foreign).unwrap_err()).contains("have nothing to say"));
    assert!(denied(&other.fence(segment, 2).unwrap_err()).contains("is Greet"));
    cluster.greet(&other, &Vouch::member(cluster.group, id, incarnation)).unwrap();
    let check = crc32c::crc32c(&bytes(1, 300));
    let fenced = FenceAnswer::Fenced { end: 300, check, sealed: None, damaged: false };
    assert_eq!(other.fence(segment, 2).unwrap(), fenced);
    assert_eq!(
        writer.append(segment, 300, &bytes(1, 1)),
        SegmentAnswer::Refused(SegmentRefusal::Fenced(Epoch(2)))
    );
    let whole = bytes(3, 5000);
    let seal = Seal { segment: copied, epoch: Epoch(2), len: 5000, check: crc32c::crc32c(&whole) };
    let copy = |caller: &Caller| caller.ask(Kind::Copy, &Copied { seal }, whole.clone(), 10_000);
    assert!(denied(&copy(&writer).unwrap_err()).contains("only members"));
    let taken = Taken::decode(&copy(&other).unwrap().body).unwrap();
    assert_eq!(taken.parts, [SegmentAnswer::Synced { end: 5000 }]);
    let (answer, back) = other.read(copied, 0, 5000);
    assert!(matches!(answer, ReadBackAnswer::Read { .. }) && back == whole);
    // By its name a member reads no objects: it reads by the token of whom it reads for.
    let object = forebay_format::row::ObjectRef { epoch: Epoch(1), id: ObjectId(1) };
    let fetch = Fetch { object, offset: 0, len: 10, segment, at: 0, walk: Walk::Random, waits: true };
    let error = other.ask(Kind::Fetch, &fetch, Bytes::new(), 10_000).unwrap_err();
    assert!(matches!(&error, CallError::Refused(refusal) if refusal.code == Code::DENIED), "{error}");
}

#[test]
fn what_a_member_has_is_readable_and_fenced_while_no_server_answers_and_nothing_is_taken_in() {
    let mut cluster = Cluster::new();
    let proxy = cluster.proxy("a");
    let [segment, new] = cluster.opened(2)[..] else { panic!("two were asked for") };
    let writer = cluster.caller(&proxy.addresses()[0], &cluster.token(false));
    assert_eq!(writer.append(segment, 0, &bytes(1, 300)), SegmentAnswer::Synced { end: 300 });
    cluster.server.take().unwrap().stop();
    let mut end = 300;
    let refused = until("it cannot renew", || match writer.append(segment, end, &bytes(1, 1)) {
        SegmentAnswer::Synced { end: now } => {
            end = now;
            None
        }
        SegmentAnswer::Refused(why) => Some(why),
    });
    assert_eq!(refused, SegmentRefusal::Out);
    assert_eq!(writer.read(segment, 0, 300).1, bytes(1, 300));
    assert_eq!(writer.append(new, 0, &bytes(1, 1)), SegmentAnswer::Refused(SegmentRefusal::Out));
}
