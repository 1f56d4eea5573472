//! Room that is set aside for what sessions are about to commit.

use forebay_meta::WriteAttr;
use forebay_protocol::{Answer, Failure, Operation, Push, Rights};

use crate::{
    contents::{commit, extent, file, numbers, object},
    world::{Client, Server, World, make},
};

fn reserve(client: &Client<'_>, needs: u64, spare: u64) -> Option<u64> {
    match client.ask(Operation::Reserve { needs, spare }).answer() {
        Answer::Reserved(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// A client with a file, and how it commits bytes to it.
struct Writes<'a> {
    client: Client<'a>,
    ino: forebay_types::Ino,
}

impl<'a> Writes<'a> {
    fn new(server: &'a Server, session: u128) -> Writes<'a> {
        let client = server.begin(session);
        let ino = client.inode(make(&format!("file{session}"))).ino;
        Writes { client, ino }
    }

    fn commit(&self, bytes: u64) -> Answer {
        let given = numbers(&self.client, 1);
        let mut put = object(&given, 0, bytes + 100);
        put.segments[0].raw = bytes;
        let all = extent(put.segments[0].id, 0, u32::try_from(bytes).unwrap());
        let files = vec![file(self.ino, vec![(0, all)])];
        self.client.ask(commit(vec![put], files)).answer()
    }
}

#[test]
fn what_is_set_aside_for_one_nobody_else_commits() {
    let world = World::new();
    let server = world.owner();
    let (one, other) = (Writes::new(&server, 1), Writes::new(&server, 2));
    assert_eq!(reserve(&one.client, 600, 0), None, "there is no limit");
    server.owner.set_limit(Some(1000));
    assert_eq!(reserve(&one.client, 600, 0), Some(600));
    assert_eq!(reserve(&other.client, 600, 0), Some(400), "what there is of it");
    assert_eq!(reserve(&one.client, 600, 0), Some(600), "its own is not in its way");
    assert_eq!(other.commit(500), Answer::Failed(Failure::NoSpace));
    assert_eq!(other.commit(400), Answer::Committed(vec![]));
    assert_eq!(one.commit(600), Answer::Committed(vec![]));
    assert_eq!(reserve(&one.client, 100, 0), Some(0));
    server.stop().unwrap();
}

#[test]
fn what_is_committed_is_spent_and_what_is_not_wanted_is_others() {
    let world = World::new();
    let server = world.owner();
    let (one, other) = (Writes::new(&server, 1), Writes::new(&server, 2));
    server.owner.set_limit(Some(10_000));
    assert_eq!(reserve(&one.client, 9000, 0), Some(9000));
    assert_eq!(one.commit(3000), Answer::Committed(vec![]));
    assert_eq!(reserve(&other.client, 5000, 0), Some(1000), "6,000 are the first one's still");
    assert_eq!(reserve(&one.client, 0, 0), Some(0));
    assert_eq!(reserve(&other.client, 5000, 0), Some(5000));
    assert_eq!(reserve(&one.client, 5000, 0), Some(2000));
    server.owner.end_session(other.client.session);
    assert_eq!(reserve(&one.client, 5000, 0), Some(5000), "who is gone has nothing");
    server.stop().unwrap();
}

#[test]
fn what_is_set_aside_stays_though_the_limit_falls_and_is_not_for_copies() {
    let world = World::new();
    let server = world.owner();
    let one = Writes::new(&server, 1);
    server.owner.set_limit(Some(1000));
    assert_eq!(one.commit(300), Answer::Committed(vec![]));
    assert_eq!(reserve(&one.client, 600, 0), Some(600));
    let attr = WriteAttr::default();
    let to = one.client.inode(make("copy")).ino;
    let copy = Operation::Share { source: one.ino, from: 0, target: to, to: 0, len: 300, attr };
    assert_eq!(one.client.ask(copy.clone()).answer(), Answer::Failed(Failure::NoSpace));
    server.owner.set_limit(Some(500));
    assert_eq!(reserve(&one.client, 600, 0), Some(600));
    assert_eq!(one.commit(600), Answer::Committed(vec![]));
    assert_eq!(reserve(&one.client, 600, 0), Some(0));
    server.owner.set_limit(Some(1200));
    assert!(one.client.ask(copy).answer().inode().is_some(), "nothing is set aside any more");
    server.stop().unwrap();
}

#[test]
fn little_is_given_to_spare_where_little_is_free() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    server.owner.set_limit(Some(64_000));
    assert_eq!(reserve(&client, 0, 1 << 30), Some(1000));
    assert_eq!(reserve(&client, 32_000, 1 << 30), Some(32_500));
    assert_eq!(reserve(&client, 1 << 40, 1 << 30), Some(64_000));
    server.stop().unwrap();
}

#[test]
fn sessions_are_told_that_there_is_a_limit_and_that_there_is_none() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let told = || server.told(client.session);
    server.owner.set_limit(None);
    assert_eq!(told(), []);
    server.owner.set_limit(Some(5));
    server.owner.set_limit(Some(7));
    assert_eq!(told(), [Push::Limited(true)]);
    server.owner.set_limit(None);
    assert_eq!(told(), [Push::Limited(false)]);
    server.stop().unwrap();
}

#[test]
fn who_may_not_write_has_nothing_set_aside() {
    let world = World::new();
    let server = world.owner();
    server.owner.set_limit(Some(1000));
    let reads = server.begin_with(1, Rights { read_only: true, ..Rights::ALL });
    let answer = reads.ask(Operation::Reserve { needs: 900, spare: 0 }).answer();
    assert_eq!(answer, Answer::Failed(Failure::ReadOnly));
    assert_eq!(reserve(&server.begin(2), 900, 0), Some(900));
    server.stop().unwrap();
}
