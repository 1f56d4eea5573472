//! What waits for what was done here before, and what fails with it.

use std::{sync::Arc, time::Duration};

use forebay_protocol::{Answer, Failure, Operation};
use forebay_types::{FileKind, Ino};

use super::cluster::{Client, Cluster, make, rename};
use crate::{asks::Asks, error::ClientError};

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
        std::thread::sleep(WHILE);
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
        std::thread::sleep(WHILE);
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
