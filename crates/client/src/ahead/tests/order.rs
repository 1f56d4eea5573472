//! What waits for what was done here before, and what fails with it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use forebay_meta::SetAttr;
use forebay_protocol::{Answer, Failure, Operation};
use forebay_types::{FileKind, Ino};

use super::cluster::{Client, Cluster, make, rename};
use crate::{ahead::Begun, asks::Asks, error::ClientError, link::Patience};

/// Long enough for what does not wait to be seen.
const WHILE: Duration = Duration::from_millis(100);

/// A client, another one, a directory of the other, and one that is delegated to the first.
fn world(cluster: &Cluster) -> (Arc<Client>, Arc<Client>, Ino, Ino) {
    let (writer, other) = (cluster.client(1), cluster.client(2));
    let place = other.directory(Ino::ROOT, "place");
    other.file(place, "there");
    other.ahead.settle_all().unwrap();
    let top = writer.directory(Ino::ROOT, "top");
    (writer, other, place, top)
}

#[test]
fn no_change_of_a_name_overtakes_what_was_done_in_another_directory() {
    let cluster = Cluster::new();
    let (writer, other, ..) = world(&cluster);
    let name = |name: &str| name.as_bytes().to_vec();
    for at in 0..6 {
        // What one makes is not delegated to the other.
        let place = other.directory(Ino::ROOT, &format!("place{at}"));
        other.file(place, "there");
        other.directory(place, "directory");
        other.ahead.settle_all().unwrap();
        let top = writer.directory(Ino::ROOT, &format!("top{at}"));
        let linked = writer.file(top, "linked");
        writer.ahead.settle_all().unwrap();
        let change = match at {
            0 => make(place, "made", FileKind::Regular),
            1 => make(place, "made", FileKind::Directory),
            2 => Operation::Link(linked, place, name("linked")),
            3 => rename((place, "there"), (place, "moved")),
            4 => Operation::Unlink(place, name("there"), Vec::new()),
            _ => Operation::Rmdir(place, name("directory"), Vec::new()),
        };
        writer.link.gate.close(0);
        writer.file(top, "before");
        let before = other.names(place);
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| writer.ask(change.clone()));
            writer.link.gate.wait();
            std::thread::sleep(WHILE);
            let overtakes = changing.is_finished();
            let seen = other.names(place);
            writer.link.gate.open();
            assert!(!overtakes, "{change:?}");
            assert_eq!(seen, before, "{change:?}");
            let changed = changing.join().unwrap();
            assert!(!matches!(changed, Answer::Failed(_)), "{change:?}: {changed:?}");
        });
        assert_ne!(other.names(place), before, "{change:?}");
        assert_eq!(other.names(top), ["before", "linked"]);
    }
}

#[test]
fn what_waits_fails_with_the_step_that_it_depends_on() {
    let cluster = Cluster::new();
    let (writer, other, place, top) = world(&cluster);
    let (file, kept) = (writer.file(top, "a"), writer.file(top, "kept"));
    writer.ahead.settle_all().unwrap();
    writer.link.gate.close(1);
    assert!(matches!(writer.ask(rename((top, "a"), (top, "b"))), Answer::Renamed(..)));
    // It is under way alone: what follows waits here.
    writer.link.gate.wait();
    let next = writer.file(top, "a");
    writer.ask(Operation::Unlink(top, b"a".to_vec(), Vec::new()));
    writer.file(top, "a");
    let beside = writer.file(top, "beside");
    std::thread::scope(|scope| {
        // At the owner it would move the file that was to be "b".
        let moving = scope.spawn(|| writer.ahead.ask(rename((top, "a"), (place, "x")), None));
        writer.wait_until_busy(place);
        writer.link.gate.open();
        let moved = moving.join().unwrap();
        assert_eq!(moved.map(|response| response.answer), Err(ClientError::Failed(Failure::Exists)));
    });
    let failed = Err(ClientError::Failed(Failure::Exists));
    assert_eq!(writer.ahead.settle(&[next]), failed);
    assert_eq!(writer.ahead.settle(&[file]), failed);
    assert_eq!(writer.ahead.settle(&[kept]), Ok(()));
    assert_eq!(writer.ahead.settle(&[beside]), Ok(()));
    assert_eq!(writer.ahead.settle_all(), failed);
    let mut names = other.names(top);
    names.sort();
    assert_eq!(names, ["a", "beside", "kept"]);
    assert_eq!(other.ask(Operation::Lookup(top, b"a".to_vec())).inode().unwrap().ino, file);
    assert_eq!(other.names(place), ["there"]);
    // It is over then: the name is anybody's.
    assert!(matches!(writer.ask(rename((top, "a"), (place, "x"))), Answer::Renamed(..)));
}

#[test]
fn a_change_fails_that_waited_for_what_was_lost() {
    let cluster = Cluster::new();
    let (writer, other, place, top) = world(&cluster);
    writer.ahead.settle_all().unwrap();
    writer.link.gate.close(0);
    let lost = writer.file(top, "lost");
    writer.link.gate.wait();
    std::thread::scope(|scope| {
        let making = scope.spawn(|| writer.ahead.ask(make(place, "later", FileKind::Regular), None));
        writer.wait_until_busy(place);
        writer.link.gate.break_down();
        let made = making.join().unwrap();
        assert_eq!(made.map(|response| response.answer), Err(ClientError::SessionEnded));
    });
    writer.link.gate.open();
    assert_eq!(other.names(place), ["there"], "not without what came before");
    assert_eq!(writer.ahead.settle(&[lost]), Err(ClientError::SessionEnded));
    writer.file(place, "later");
    assert_eq!(other.names(place), ["later", "there"]);
}

/// Has the owner carry out two operations in this order, and takes their answers in in the other.
fn cross(client: &Client, first: &Operation, second: &Operation) {
    let begin = |operation| match client.ahead.begin(operation, None, &Patience::FOREVER) {
        Ok(Begun::There(passing)) => passing,
        _ => panic!("{operation:?} was to go to the owner"),
    };
    let (one, two) = (begin(first), begin(second));
    let [told_one, told_two] = [first, second].map(|operation| {
        let response = client.link.ask(operation.clone(), None).unwrap();
        assert!(!matches!(response.answer, Answer::Failed(_)), "{operation:?}: {response:?}");
        response
    });
    two.done(second, &told_two);
    one.done(first, &told_one);
}

/// A client in a directory of which it knows the names, and not what most of them stand for.
fn in_known(cluster: &Cluster) -> (Arc<Client>, Arc<Client>, Ino) {
    let (client, other) = (cluster.client(1), cluster.client(2));
    let place = other.directory(Ino::ROOT, "place");
    for number in 0..20 {
        other.file(place, &format!("old{number}"));
    }
    other.ahead.settle_all().unwrap();
    for name in ["a", "b"] {
        client.file(place, name);
    }
    (client, other, place)
}

#[test]
fn of_changes_that_cross_nothing_is_known_if_they_are_of_one_name() {
    let unlink = |place, name: &str| Operation::Unlink(place, name.into(), Vec::new());
    for at in 0..2 {
        let cluster = Cluster::new();
        let (client, other, place) = in_known(&cluster);
        let linked = client.ask(Operation::Lookup(place, b"old8".to_vec())).inode().unwrap().ino;
        let (gone, again) = match at {
            0 => (unlink(place, "old7"), Operation::Link(linked, place, b"old7".to_vec())),
            _ => (rename((place, "old7"), (place, "moved")), rename((place, "old8"), (place, "old7"))),
        };
        cross(&client, &gone, &again);
        let made = client.ask(make(place, "old7", FileKind::Regular));
        assert_eq!(made, Answer::Failed(Failure::Exists), "after {gone:?}, {again:?}");
        let told = client.ask(Operation::Lookup(place, b"old7".to_vec()));
        assert_eq!(told.inode().unwrap().ino, linked);
        client.ahead.settle_all().unwrap();
        assert_eq!(other.names(place), client.names(place));
    }
    // Of different names it does not matter.
    let cluster = Cluster::new();
    let (client, other, place) = in_known(&cluster);
    let there = || client.link.there.load(Ordering::SeqCst);
    let before = there();
    cross(&client, &unlink(place, "old7"), &rename((place, "old8"), (place, "moved")));
    for name in ["old7", "old8", "fresh"] {
        client.file(place, name);
    }
    assert_eq!(there(), before, "made at the owner");
    client.ahead.settle_all().unwrap();
    assert_eq!(other.names(place), client.names(place));
}

#[test]
fn of_changes_of_one_row_that_cross_nothing_is_known() {
    let cluster = Cluster::new();
    let (client, _other, place) = in_known(&cluster);
    // Its row is another now, and nobody has said which.
    client.ask(Operation::Unlink(place, b"old7".to_vec(), Vec::new()));
    let chmod = |mode| Operation::SetAttr(place, SetAttr { mode: Some(mode), ..SetAttr::default() });
    cross(&client, &chmod(0o700), &chmod(0o750));
    assert_eq!(client.ask(Operation::Inode(place)).inode().unwrap().row.mode, 0o750);
}
