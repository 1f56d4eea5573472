//! Commits that go along with what was done before them.

use std::{sync::atomic::Ordering, time::Duration};

use forebay_meta::WriteAttr;
use forebay_protocol::{Answer, Commit, Contents, Failure, FileCommit, Operation};
use forebay_types::{FileKind, Ino, Timespec};

use super::cluster::{Client, Cluster, make};
use crate::{asks::Asks, error::ClientError};

/// Long enough for what does not wait to be seen.
const WHILE: Duration = Duration::from_millis(100);

pub fn commit(bytes: &[(Ino, &[u8])]) -> Operation {
    let file = |(ino, bytes): &(Ino, &[u8])| FileCommit {
        ino: *ino,
        inline: Some(bytes.to_vec()),
        extents: Vec::new(),
        size: bytes.len() as u64,
        attr: WriteAttr::default(),
        mtime: Timespec { secs: 5, nanos: 0 },
    };
    Operation::Commit(Box::new(Commit { objects: Vec::new(), files: bytes.iter().map(file).collect() }))
}

fn contents(client: &Client, ino: Ino) -> Option<Contents> {
    client.ask(Operation::Inode(ino)).inode().unwrap().contents.clone()
}

fn inline(bytes: &[u8]) -> Option<Contents> {
    Some(Contents::Inline(bytes.to_vec()))
}

#[test]
fn what_makes_a_file_and_its_bytes_are_one_request() {
    let cluster = Cluster::new();
    let (client, other) = (cluster.client(1), cluster.client(2));
    let top = client.directory(Ino::ROOT, "top");
    client.file(top, "first");
    client.ahead.settle_all().unwrap();
    let asked = client.asked();
    let files: Vec<Ino> = (0..100)
        .map(|number| {
            let file = client.file(top, &format!("f{number}"));
            assert_eq!(client.ask(commit(&[(file, b"bytes")])), Answer::Committed(Vec::new()));
            assert_eq!(client.ahead.settle(&[file]), Ok(()));
            file
        })
        .collect();
    let asked = client.asked() - asked;
    assert!((100..120).contains(&asked), "{asked}");
    for file in files {
        assert_eq!(contents(&other, file), inline(b"bytes"));
        assert_eq!(contents(&client, file), inline(b"bytes"), "no more told of what was made");
    }
}

#[test]
fn a_commit_is_told_what_became_of_it_alone() {
    let cluster = Cluster::new();
    let (client, other) = (cluster.client(1), cluster.client(2));
    let top = client.directory(Ino::ROOT, "top");
    client.ahead.settle_all().unwrap();
    // What makes its file is refused, with the request under way.
    client.link.gate.close(1);
    let (refused, beside) = (client.file(top, "refused"), client.file(top, "beside"));
    std::thread::scope(|scope| {
        let one = scope.spawn(|| client.ask(commit(&[(refused, b"no"), (beside, b"yes")])));
        client.link.gate.wait();
        client.link.gate.open();
        // It went by itself, and was told that the file is gone.
        assert_eq!(one.join().unwrap(), Answer::Committed(vec![refused]));
    });
    assert_eq!(client.ahead.settle(&[refused]), Err(ClientError::Failed(Failure::Exists)));
    assert_eq!(client.ahead.settle(&[beside]), Ok(()));
    assert_eq!(contents(&other, beside), inline(b"yes"));
    assert_eq!(other.names(top), ["beside"]);
    // The session ends while it waits.
    let next = client.directory(Ino::ROOT, "next");
    client.ahead.settle(&[next]).unwrap();
    client.link.gate.close(0);
    let lost = client.file(next, "lost");
    std::thread::scope(|scope| {
        let one = scope.spawn(|| client.ahead.ask(commit(&[(lost, b"no")]), None));
        client.link.gate.wait();
        // What makes the file may be under way before it.
        client.wait_until_busy(lost);
        client.link.gate.break_down();
        assert_eq!(one.join().unwrap().map(|told| told.answer), Err(ClientError::SessionEnded));
    });
    client.link.gate.open();
}

#[test]
fn what_a_commit_changes_is_not_changed_meanwhile() {
    let cluster = Cluster::new();
    let (client, other) = (cluster.client(1), cluster.client(2));
    let top = client.directory(Ino::ROOT, "top");
    client.ahead.settle_all().unwrap();
    client.link.gate.close(0);
    let file = client.file(top, "file");
    std::thread::scope(|scope| {
        let one = scope.spawn(|| client.ask(commit(&[(file, b"bytes")])));
        client.link.gate.wait();
        client.wait_until_busy(file);
        let removing = scope.spawn(|| client.ask(Operation::Unlink(top, b"file".to_vec(), Vec::new())));
        let looking = scope.spawn(|| client.ask(Operation::Inode(file)));
        // Others are made meanwhile.
        client.file(top, "beside");
        std::thread::sleep(WHILE);
        assert!(!one.is_finished() && !removing.is_finished() && !looking.is_finished());
        client.link.gate.open();
        assert_eq!(one.join().unwrap(), Answer::Committed(Vec::new()));
        assert_eq!(removing.join().unwrap().inode().unwrap().row.size, 5);
        looking.join().unwrap();
    });
    assert_eq!(other.names(top), ["beside"]);
}

#[test]
fn commits_are_carried_out_once_by_whoever_owns_the_volume() {
    let cluster = Cluster::new();
    let (client, other) = (cluster.slow_client(1, Duration::from_millis(1)), cluster.client(2));
    let top = client.directory(Ino::ROOT, "top");
    for number in 0..400 {
        let (file, bytes) = (client.file(top, &format!("f{number}")), format!("bytes of {number}"));
        if number % 40 == 7 {
            cluster.take_over();
            // It is heard of, so that others are not waited for.
            assert!(matches!(other.ask(Operation::Space), Answer::Space(_)));
        }
        let told = client.ask(commit(&[(file, bytes.as_bytes())]));
        assert_eq!(told, Answer::Committed(Vec::new()), "{number}");
        let again = client.ask(make(top, &format!("f{number}"), FileKind::Regular));
        assert_eq!(again, Answer::Failed(Failure::Exists));
    }
    client.ahead.settle_all().unwrap();
    assert_eq!(*client.link.wrong.lock(), []);
    assert!(!client.link.cut.load(Ordering::SeqCst));
    for number in 0..400 {
        let told = other.ask(Operation::Lookup(top, format!("f{number}").into()));
        assert_eq!(told.inode().unwrap().contents, inline(format!("bytes of {number}").as_bytes()));
    }
}
