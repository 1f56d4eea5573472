//! Clients that look at what another one does.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use forebay_meta::{SetAttr, SetTime};
use forebay_protocol::{Answer, Failure, Operation};
use forebay_types::{FileKind, Ino, Timespec};

use super::cluster::{Cluster, make, rename};

#[test]
fn who_works_alone_does_not_wait_for_the_owner() {
    let cluster = Cluster::new();
    let alone = cluster.client(1);
    let top = alone.directory(Ino::ROOT, "top");
    let asked = alone.asked();
    for number in 0..300 {
        let inner = alone.directory(top, &format!("d{number}"));
        let file = alone.file(inner, "file");
        let time = Timespec { secs: 77, nanos: 1 };
        let set = SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
        let Answer::Inode(set) = alone.ask(Operation::SetAttr(file, set)) else { panic!() };
        assert_eq!((set.ino, set.row.mtime), (file, time));
        let again = alone.ask(make(inner, "file", FileKind::Regular));
        assert_eq!(again, Answer::Failed(Failure::Exists));
        assert!(matches!(
            alone.ask(rename((inner, "file"), (top, &format!("f{number}")))),
            Answer::Renamed(..)
        ));
        assert_eq!(
            alone.ask(Operation::Rmdir(top, format!("d{number}").into(), Vec::new())).inode().unwrap().ino,
            inner
        );
    }
    alone.ahead.settle_all().unwrap();
    assert!(alone.asked() - asked < 150, "{} requests", alone.asked() - asked);
    // What the owner has is what was told here.
    let other = cluster.client(2);
    let expected: Vec<Answer> = alone
        .names(top)
        .iter()
        .map(|name| alone.ask(Operation::Lookup(top, name.as_bytes().to_vec())))
        .collect();
    let seen: Vec<Answer> = other
        .names(top)
        .iter()
        .map(|name| other.ask(Operation::Lookup(top, name.as_bytes().to_vec())))
        .collect();
    assert_eq!(expected.len(), 300);
    assert_eq!(seen, expected);
}

#[test]
fn others_see_what_was_done_and_nothing_out_of_order() {
    let cluster = Cluster::new();
    let (writer, reader) = (cluster.slow_client(1, Duration::from_millis(1)), cluster.client(2));
    let top = writer.directory(Ino::ROOT, "top");
    let dirs = [writer.directory(top, "even"), writer.directory(top, "odd")];
    // The reader is told their numbers: it does not look for their names.
    writer.ahead.settle_all().unwrap();
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut looks, before) = (0, writer.asked());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..2500_u64 {
                let directory = dirs[number as usize % 2];
                // A file under another name first: nobody is to see a file whose name came before those of earlier ones.
                writer.file(directory, "new");
                writer.ask(rename((directory, "new"), (directory, &format!("f{number:05}"))));
                done.store(number + 1, Ordering::SeqCst);
            }
            over.store(true, Ordering::SeqCst);
        });
        while !over.load(Ordering::SeqCst) {
            let first = (looks % 2) as usize;
            let before = done.load(Ordering::SeqCst);
            let one = files(&reader.names(dirs[first]), first);
            let between = done.load(Ordering::SeqCst);
            let two = files(&reader.names(dirs[1 - first]), 1 - first);
            let after = done.load(Ordering::SeqCst);
            // As many as were there when it was asked, at least; and no more than when it was answered.
            let of = |number: u64, parity: usize| (number + 1 - parity as u64) / 2;
            assert!((of(before, first)..=of(between + 1, first)).contains(&one), "{before} {one} {between}");
            assert!(
                (of(between, 1 - first)..=of(after + 1, 1 - first)).contains(&two),
                "{between} {two} {after}"
            );
            // What is seen later has all that came before what was seen first.
            assert!(two + 1 >= one, "{one} of one and then {two} of the other");
            looks += 1;
            // So many files later, however long they take.
            while done.load(Ordering::SeqCst) < after + looks * 7 % 40 && !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    writer.ahead.settle_all().unwrap();
    assert_eq!(files(&reader.names(dirs[0]), 0) + files(&reader.names(dirs[1]), 1), 2500);
    assert!(
        looks > 1 && writer.asked() - before < 5000,
        "{looks} looks, {} requests",
        writer.asked() - before
    );
}

/// How many files there are, which are the first ones of this parity.
fn files(names: &[String], parity: usize) -> u64 {
    let mut files: Vec<&String> = names.iter().filter(|name| *name != "new").collect();
    files.sort();
    for (at, name) in files.iter().enumerate() {
        assert_eq!(**name, format!("f{:05}", 2 * at + parity));
    }
    files.len() as u64
}

#[test]
fn what_leaves_a_delegated_directory_leaves_it_after_all_before() {
    let cluster = Cluster::new();
    let (writer, other) = (cluster.slow_client(1, Duration::from_millis(2)), cluster.client(2));
    let place = other.directory(Ino::ROOT, "place");
    other.file(place, "there");
    let top = writer.directory(Ino::ROOT, "top");
    for round in 0..20 {
        let inner = writer.directory(top, "inner");
        for number in 0..20 {
            writer.file(inner, &format!("{number}"));
        }
        let (name, link) = (format!("moved{round}"), format!("linked{round}"));
        let file = writer.file(inner, "file");
        assert_eq!(writer.ask(Operation::Link(file, place, link.into())).inode().unwrap().row.nlink, 2);
        let Answer::Renamed(moved, None) = writer.ask(rename((top, "inner"), (place, &name))) else {
            panic!()
        };
        assert_eq!(moved.ino, inner);
        // The lease on the moved one is still here, and so is what was done in it.
        writer.file(inner, "later");
        assert_eq!(other.names(inner).len(), 22);
        assert_eq!(other.ask(Operation::Lookup(place, name.into())).inode().unwrap().ino, inner);
        assert_eq!(writer.names(top), [""; 0]);
    }
    writer.ahead.settle_all().unwrap();
}

#[test]
fn a_directory_in_which_one_client_makes_more_than_one_is_delegated() {
    let cluster = Cluster::new();
    let (writer, other) = (cluster.client(1), cluster.client(2));
    let place = other.directory(Ino::ROOT, "place");
    let old = other.file(place, "old");
    other.ahead.settle_all().unwrap();
    for number in 0..50 {
        writer.file(place, &format!("new{number}"));
    }
    writer.ahead.settle_all().unwrap();
    assert!(writer.asked() < 40, "{}", writer.asked());
    // Names that were there count, though their inodes are the owner's to tell.
    assert_eq!(writer.ask(make(place, "old", FileKind::Regular)), Answer::Failed(Failure::Exists));
    assert_eq!(writer.ask(Operation::Lookup(place, b"old".to_vec())).inode().unwrap().ino, old);
    writer.ask(rename((place, "old"), (place, "older")));
    writer.ask(Operation::Unlink(place, b"new0".to_vec(), Vec::new()));
    writer.file(place, "old");
    assert_eq!(other.names(place), writer.names(place));
    assert_eq!(other.names(place).len(), 51);
}

/// `cargo test -p forebay-client --lib rate -- --nocapture` prints it.
#[test]
fn the_rate_over_a_link_of_a_millisecond() {
    let cluster = Cluster::new();
    let rate = |delay: Duration, number: u128| {
        let client = cluster.slow_client(number, delay);
        let top = client.directory(Ino::ROOT, &format!("top{number}"));
        let (begun, count) = (Instant::now(), 15_000);
        let mut directory = top;
        for number in 0..count {
            if number % 20 == 0 {
                directory = client.directory(top, &format!("d{number}"));
            }
            let name = format!("f{number}");
            let absent = client.ask(Operation::Lookup(directory, name.clone().into_bytes()));
            assert_eq!(absent, Answer::Failed(Failure::NotFound));
            let file = client.file(directory, &name);
            let mtime = Some(SetTime::To(Timespec { secs: 1, nanos: 0 }));
            client.ask(Operation::SetAttr(file, SetAttr { mtime, ..SetAttr::default() }));
        }
        let made = begun.elapsed();
        client.ahead.settle_all().unwrap();
        let rate = |time: Duration| (f64::from(count) / time.as_secs_f64()) as u64;
        println!(
            "{count} files, {delay:?} of round trip: {} creates/s, {} durable, {} requests",
            rate(made),
            rate(begun.elapsed()),
            client.asked()
        );
        cluster.end_session(client.link.session);
        client.asked()
    };
    for (number, delay) in [(1, 0), (2, 1000), (3, 5000)] {
        assert!(rate(Duration::from_micros(delay), number) < 2000);
    }
}
