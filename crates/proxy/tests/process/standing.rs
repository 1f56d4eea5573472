//! What the group is told of what a member has.

use forebay_group::Verdict;
use forebay_protocol::group::{GroupRequest, SegmentAnswer, SegmentRefusal};
use forebay_types::SegmentId;

use crate::{
    cluster::{Cluster, until},
    writers::bytes,
};

/// One that nobody has opened.
const T: SegmentId = SegmentId(512);

fn refused(why: SegmentRefusal) -> SegmentAnswer {
    SegmentAnswer::Refused(why)
}

#[test]
fn a_member_is_drained_when_it_has_nothing_that_is_not_stored() {
    let cluster = Cluster::new();
    let proxy = cluster.proxy("a");
    let segment = cluster.opened(1)[0];
    let writer = cluster.caller(&proxy.addresses()[0], &cluster.token(false));
    assert_eq!(writer.append(segment, 0, &bytes(1, 300)), SegmentAnswer::Synced { end: 300 });
    let shown = cluster.member("what is dirty", |member| member.dirty > 0);
    assert_eq!((shown.dirty, shown.numbers.dirty_bytes, shown.drained), (1, 300, false));
    let (g, id) = ("g".to_owned(), shown.id.to_string());
    let drains = cluster.groups(&GroupRequest::Drain(g.clone(), id.clone())).unwrap().pop().unwrap().epoch;
    let mut end = 300;
    until("answers tell of it", || {
        let taken = writer.appends(&[(segment, end, bytes(2, 10))], 60_000).unwrap();
        end += 10;
        assert_eq!(taken.parts, [SegmentAnswer::Synced { end }], "what is open goes on");
        taken.draining.then_some(())
    });
    assert_eq!(writer.append(T, 0, &bytes(1, 1)), refused(SegmentRefusal::Draining));
    let shown = cluster.member("it has heard of it", |member| member.acknowledged >= drains);
    assert_eq!((shown.dirty, shown.drained), (1, false), "it has what the store has not");
    // On stable storage before it is said.
    assert!(proxy.log().status().view >= drains);
    assert!(cluster.groups(&GroupRequest::Remove(g.clone(), id.clone())).is_err());
    assert!(proxy.log().judged(cluster.volume, segment, Verdict::Clean).unwrap());
    let shown = cluster.member("all is stored", |member| member.drained);
    assert_eq!((shown.dirty, shown.numbers.dirty_bytes), (0, 0));
    assert_eq!(writer.append(segment, 0, &bytes(1, 300)), refused(SegmentRefusal::Draining));
    cluster.groups(&GroupRequest::Remove(g, id)).unwrap();
    until("it hears that it was removed", || proxy.failure());
}

#[test]
fn a_directory_that_lacks_what_its_member_had_is_refused() {
    let cluster = Cluster::new();
    let (log, kept) = (cluster.directory("a/log"), cluster.directory("kept"));
    // An older log is kept aside, then what is appended is told.
    cluster.proxy("a").stop();
    let copied = std::process::Command::new("cp").arg("-a").args([&log, &kept]).status().unwrap();
    assert!(copied.success());
    let proxy = cluster.proxy("a");
    let segment = cluster.opened(1)[0];
    let writer = cluster.caller(&proxy.addresses()[0], &cluster.token(false));
    assert_eq!(writer.append(segment, 0, &bytes(1, 300_000)), SegmentAnswer::Synced { end: 300_000 });
    cluster.member("a renewal with the log's position", |member| member.numbers.dirty_bytes == 300_000);
    proxy.stop();
    let newer = cluster.directory("newer");
    std::fs::rename(&log, &newer).unwrap();
    std::fs::rename(&kept, &log).unwrap();
    let older = cluster.try_proxy("a").unwrap();
    let why = until("it is refused", || older.failure());
    assert!(why.contains("older"), "{why}");
    drop(older);
    std::fs::remove_dir_all(&log).unwrap();
    let none = cluster.try_proxy("a").unwrap();
    until("one without any log is refused", || none.failure());
    drop(none);
    std::fs::remove_dir_all(&log).unwrap();
    std::fs::rename(&newer, &log).unwrap();
    let again = cluster.proxy("a");
    assert_eq!(again.log().status().dirty, 300_000);
}

#[test]
fn what_is_sealed_is_put_into_the_store_and_its_copy_given_up() {
    let cluster = Cluster::new();
    let proxy = cluster.proxy("a");
    let [sealed, open] = cluster.opened(2)[..] else { panic!("two were asked for") };
    let writer = cluster.caller(&proxy.addresses()[0], &cluster.token(false));
    for segment in [sealed, open] {
        assert_eq!(writer.append(segment, 0, &bytes(1, 3000)), SegmentAnswer::Synced { end: 3000 });
    }
    assert_eq!(writer.seal(sealed, 1, &bytes(1, 3000)), SegmentAnswer::Synced { end: 3000 });
    let shown =
        cluster.member("one is stored", |member| member.dirty == 1 && member.numbers.dirty_bytes == 3000);
    assert!(!shown.drained);
    assert!(proxy.log().kept(cluster.volume, sealed).is_none());
    assert_eq!(proxy.log().kept(cluster.volume, open).map(|kept| kept.end()), Some(3000));
    let text = proxy.metrics()();
    for line in ["puts_total{group=\"g\"} 1", "copies_dropped_total{group=\"g\"} 1"] {
        assert!(text.lines().any(|found| found == format!("forebay_proxy_{line}")), "{line}: {text}");
    }
}

#[test]
fn one_that_has_left_takes_nothing_in() {
    let cluster = Cluster::new();
    let proxy = cluster.proxy("a");
    let segment = cluster.opened(1)[0];
    let writer = cluster.caller(&proxy.addresses()[0], &cluster.token(false));
    assert_eq!(writer.append(segment, 0, &bytes(1, 300)), SegmentAnswer::Synced { end: 300 });
    proxy.place().stop(true);
    assert_eq!(writer.append(segment, 300, &bytes(1, 1)), refused(SegmentRefusal::Out));
    assert!(cluster.members().is_empty());
    assert_eq!(writer.read(segment, 0, 300).1, bytes(1, 300));
}
