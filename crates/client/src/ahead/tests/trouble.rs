//! Clients and owners that end in the middle, and operations that the owner does not do.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use forebay_cluster::Lease;
use forebay_meta::{SetAttr, SetXattr};
use forebay_protocol::{Answer, Failure, Operation, Step};
use forebay_types::{FileKind, Ino, Timespec};

use super::cluster::{Cluster, make};
use crate::{asks::Asks, error::ClientError};

#[test]
fn after_the_end_of_a_client_a_prefix_is_there_with_what_was_synced() {
    for round in 0..8_u64 {
        let cluster = Cluster::new();
        let (writer, reader) = (cluster.slow_client(1, Duration::from_millis(3)), cluster.client(2));
        let top = writer.directory(Ino::ROOT, "top");
        let (mut synced, end) = (0, 100 + 137 * round);
        for number in 0..end {
            let file = writer.file(top, &format!("f{number:05}"));
            if number % (50 + round) == 7 {
                writer.ahead.settle(&[file]).unwrap();
                synced = number + 1;
            }
        }
        writer.link.cut.store(true, Ordering::SeqCst);
        cluster.end_session(writer.link.session);
        let names = reader.names(top);
        for (at, name) in names.iter().enumerate() {
            assert_eq!(*name, format!("f{at:05}"));
        }
        assert!((synced..=end).contains(&(names.len() as u64)), "{synced} synced, {} there", names.len());
    }
}

#[test]
fn a_client_whose_session_ended_says_what_is_lost() {
    let cluster = Cluster::new();
    let (writer, other) = (cluster.slow_client(1, Duration::from_millis(20)), cluster.client(2));
    let top = writer.directory(Ino::ROOT, "top");
    let file = writer.file(top, "a");
    writer.ahead.settle(&[file]).unwrap();
    cluster.end_session(writer.link.session);
    let late = writer.file(top, "late");
    assert_eq!(writer.ahead.settle(&[late]), Err(ClientError::SessionEnded));
    assert_eq!(writer.ahead.settle(&[late]), Ok(()), "told once");
    assert_eq!(writer.ahead.settle_all(), Err(ClientError::SessionEnded));
    assert_eq!(writer.ahead.settle_all(), Ok(()));
    assert_eq!(writer.ahead.settle(&[file]), Ok(()), "that one was there");
    assert_eq!(other.names(top), ["a"]);
}

#[test]
fn owners_that_take_over_do_everything_once() {
    let cluster = Cluster::new();
    let (writer, reader) = (cluster.slow_client(1, Duration::from_millis(1)), cluster.client(2));
    let top = writer.directory(Ino::ROOT, "top");
    let mut files: Vec<Ino> = Vec::new();
    for number in 0..2000 {
        files.push(writer.file(top, &format!("f{number:05}")));
        if number % 400 == 399 {
            cluster.take_over();
        }
    }
    writer.ahead.settle_all().unwrap();
    assert_eq!(*writer.link.wrong.lock(), []);
    let names = reader.names(top);
    assert_eq!(names.len(), 2000);
    for (name, file) in names.iter().zip(&files) {
        assert_eq!(reader.ask(Operation::Lookup(top, name.as_bytes().to_vec())).inode().unwrap().ino, *file);
    }
}

#[test]
fn what_the_owner_refuses_is_said_by_the_next_sync() {
    let cluster = Cluster::new();
    let client = cluster.client(1);
    // Numbers that nobody gave it.
    client.link.runs_from.store(1 << 30, Ordering::SeqCst);
    let other = client.directory(Ino::ROOT, "other");
    let bad = client.file(other, "bad");
    client.ask(Operation::SetAttr(bad, SetAttr { mode: Some(0o600), ..SetAttr::default() }));
    let said = client.ahead.settle(&[bad]);
    assert!(matches!(said, Err(ClientError::Failed(_))), "{said:?}");
    assert_eq!(client.ahead.settle(&[bad]), Ok(()), "told once");
    assert!(client.link.wrong.lock().contains(&bad));
    assert!(client.ahead.settle_all().is_err());
    assert_eq!(client.ahead.settle_all(), Ok(()));
    assert_eq!(client.ahead.settle(&[Ino::ROOT]), Ok(()));
    // From here on the owner is asked.
    let looked = client.ask(Operation::Lookup(other, b"bad".to_vec()));
    assert_eq!(looked, Answer::Failed(Failure::NotFound));
}

#[test]
fn an_attribute_that_the_owner_refuses_is_as_it_was() {
    let cluster = Cluster::new();
    let client = cluster.client(1);
    let top = client.directory(Ino::ROOT, "top");
    let mode = |ino| client.ask(Operation::Inode(ino)).inode().unwrap().row.mode;
    let chmod = |ino| Operation::SetAttr(ino, SetAttr { mode: Some(0o600), ..SetAttr::default() });
    let attribute = || (b"user.a".to_vec(), b"value".to_vec());
    let set_xattr = |ino| Operation::SetXattr(ino, attribute().0, attribute().1, SetXattr::Any);
    let has_xattr = |ino| client.ask(Operation::Xattr(ino, attribute().0)) == Answer::Bytes(attribute().1);
    for (name, is_mode) in [("a", true), ("b", false)] {
        let (file, beside) = (client.file(top, name), client.file(top, &format!("beside {name}")));
        client.ahead.settle_all().unwrap();
        client.link.gate.close(1);
        client.ask(if is_mode { chmod(file) } else { set_xattr(file) });
        client.link.gate.wait();
        client.ask(chmod(beside));
        client.link.gate.open();
        assert_eq!(client.ahead.settle(&[file]), Err(ClientError::Failed(Failure::Exists)));
        assert_eq!(client.ahead.settle(&[beside]), Ok(()));
        assert_eq!((mode(file), has_xattr(file), mode(beside)), (0o644, false, 0o600));
        assert!(client.ahead.settle_all().is_err());
        assert_eq!(std::mem::take(&mut *client.link.wrong.lock()), [file]);
    }
}

#[test]
fn an_answer_that_cannot_be_read_loses_nothing_that_was_not_asked_for() {
    let cluster = Cluster::new();
    let (client, reader) = (cluster.client(1), cluster.client(2));
    let [one, two] = ["one", "two"].map(|name| client.directory(Ino::ROOT, name));
    let warm = [client.file(one, "warm"), client.file(two, "warm")];
    client.ahead.settle(&warm).unwrap();
    client.link.gate.close(0);
    client.link.garbles.store(true, Ordering::SeqCst);
    let first = client.file(one, "first");
    client.link.gate.wait();
    // These are in no request yet.
    let (second, third) = (client.file(two, "second"), client.file(one, "third"));
    client.link.gate.open();
    assert!(client.ahead.settle(&[first]).is_err(), "nobody knows");
    assert_eq!(client.ahead.settle(&[second, third]), Ok(()));
    assert!(client.ahead.settle_all().is_err());
    assert_eq!(reader.names(two), ["second", "warm"]);
    assert_eq!(reader.names(one), ["first", "third", "warm"]);
}

#[test]
fn nothing_is_done_for_a_session_without_the_leases() {
    let cluster = Cluster::new();
    let (client, other) = (cluster.client(1), cluster.client(2));
    let top = client.directory(Ino::ROOT, "top");
    let Answer::Runs(run, _) = client.ask(Operation::Runs(1)) else { panic!() };
    let number = |at| Some(Ino::in_run(run, at));
    let time = Timespec { secs: 5, nanos: 0 };
    let step = |parent, name, made| Step { time, made, operation: make(parent, name, FileKind::Regular) };
    let tell = |link: &dyn Asks, steps: Vec<Step>| {
        link.ask(Operation::Ahead(steps), Some(Lease::Write)).unwrap().answer
    };
    let link: Arc<dyn Asks> = Arc::clone(&client.link) as _;
    assert_eq!(tell(&*link, vec![step(top, "a", number(0))]), Answer::Ahead(Vec::new()));
    // One that names something else is refused whole.
    let both = vec![step(top, "b", number(1)), step(Ino(12345), "c", number(2))];
    assert_eq!(tell(&*link, both), Answer::Failed(Failure::NotPermitted));
    // A number of somebody else's, one that is in use, and none.
    let Answer::Runs(foreign, _) = other.ask(Operation::Runs(1)) else { panic!() };
    let wrong = vec![
        step(top, "b", Some(Ino::in_run(foreign, 0))),
        step(top, "c", number(0)),
        step(top, "d", None),
        step(top, "e", number(3)),
    ];
    let failed = vec![(0, Failure::NotPermitted), (1, Failure::Invalid), (2, Failure::Invalid)];
    assert_eq!(tell(&*link, wrong), Answer::Ahead(failed));
    assert_eq!(other.names(top), ["a", "e"], "what follows is done");
    let told = other.ask(Operation::Lookup(top, b"e".to_vec()));
    assert_eq!(told.inode().unwrap().row.btime, time);
    let after = vec![step(top, "f", number(4))];
    assert_eq!(tell(&*link, after), Answer::Failed(Failure::NotPermitted), "the other has looked");
}

#[test]
fn a_client_that_is_given_no_more_numbers_has_its_files_made_at_the_owner() {
    let cluster = Cluster::new();
    let client = cluster.client(1);
    client.link.no_runs.store(true, Ordering::SeqCst);
    let top = client.directory(Ino::ROOT, "top");
    client.file(top, "a");
    let asked = client.link.asked.load(Ordering::SeqCst);
    for name in ["b", "c", "d", "e"] {
        client.file(top, name);
    }
    assert_eq!(client.link.asked.load(Ordering::SeqCst) - asked, 4, "and asks for them no more");
    client.ahead.settle_all().unwrap();
    assert_eq!(cluster.client(2).names(top), ["a", "b", "c", "d", "e"]);
}

/// A directory that takes too long to read, for one whose mount has a time-out.
#[test]
fn what_is_made_waits_for_no_directory_that_cannot_be_read() {
    let time_out = ClientError::TimedOut(Duration::from_secs(10));
    for error in [time_out, ClientError::Unexpected("no page".to_owned())] {
        let cluster = Cluster::new();
        let (client, other) = (cluster.client(1), cluster.client(2));
        let place = other.directory(Ino::ROOT, "place");
        other.file(place, "there");
        other.ahead.settle_all().unwrap();
        *client.link.late.lock() = Some(error.clone());
        for number in 0..100 {
            let made = client.ahead.ask(make(place, &format!("f{number}"), FileKind::Regular), None);
            assert!(matches!(made, Ok(response) if response.answer.inode().is_some()), "{error}: {number}");
        }
        // At the 2nd, the 10th and the 42nd: it is tried less soon each time.
        assert_eq!(client.link.pages.load(Ordering::SeqCst), 3, "{error}");
        *client.link.late.lock() = None;
        for number in 100..400 {
            client.file(place, &format!("f{number}"));
        }
        let there = client.link.there.load(Ordering::SeqCst);
        assert!((100..300).contains(&there), "{error}: {there} made at the owner");
        assert_eq!(other.names(place).len(), 401);
    }
    // Who has given up waits no longer.
    let cluster = Cluster::new();
    let (client, other) = (cluster.client(1), cluster.client(2));
    let place = other.directory(Ino::ROOT, "place");
    *client.link.late.lock() = Some(ClientError::Interrupted);
    client.file(place, "a");
    let made = client.ahead.ask(make(place, "b", FileKind::Regular), None);
    assert_eq!(made.map(|response| response.answer), Err(ClientError::Interrupted));
    client.file(place, "b");
}
