use std::time::Duration;

use forebay_cluster::{Lease, SessionId};
use forebay_meta::NewInode;
use forebay_protocol::{Answer, Failure, Operation, Push, Refusal, Rights};
use forebay_types::{FileKind, Ino};

use super::held::Mode;
use super::world::{Server, World, lookup, make, new_file, until};

fn recalls(server: &Server, session: SessionId) -> Vec<Push> {
    server.pushes.lock().iter().filter(|push| push.0 == session).map(|push| push.1.clone()).collect()
}

#[test]
fn a_change_waits_until_what_others_keep_is_returned() {
    let world = World::new();
    let server = world.owner();
    let (reader, writer) = (server.begin(1), server.begin(2));
    let response = reader
        .ask_for(
            Operation::Entries { directory: Ino::ROOT, after: None, limit: 10, inodes: false },
            Lease::Read,
        )
        .get()
        .unwrap();
    let grant = response.grants[0];
    assert_eq!((grant.ino, grant.lease), (Ino::ROOT, Lease::Read));
    let made = writer.ask(make("a"));
    until("the recall", || !recalls(&server, reader.session).is_empty());
    let recall = Push::Recall { ino: Ino::ROOT, keep: None, stamp: grant.stamp };
    assert_eq!(recalls(&server, reader.session), [recall]);
    assert!(!made.is_there());
    server.owner.returned(reader.session, Ino::ROOT, grant.stamp, None, false);
    assert!(made.answer().inode().is_some());
    server.stop().unwrap();
}

#[test]
fn a_client_that_is_not_heard_of_is_in_nobodys_way() {
    let world = World::new();
    let server = world.owner();
    let (silent, other) = (server.begin(1), server.begin(2));
    let granted = silent.ask_for(Operation::Inode(Ino::ROOT), Lease::Write).get().unwrap();
    assert_eq!(granted.grants[0].lease, Lease::Write);
    let made = other.ask(make("a"));
    for _ in 0..40 {
        // The owner keeps its fence, and the other client says that it lives.
        world.ticks.pass(Duration::from_millis(500));
        until("a beat", || server.owner.renew(other.session).is_ok());
    }
    assert!(made.answer().inode().is_some());
    assert_eq!(server.owner.renew(silent.session), Err(Refusal::SessionEnded));
    let late = silent.ask(Operation::Unlink(Ino::ROOT, b"a".to_vec(), Vec::new()));
    assert_eq!(late.get(), Err(Refusal::SessionEnded));
    assert!(other.ask(lookup("a")).answer().inode().is_some());
    server.stop().unwrap();
}

/// One that lives but is stuck holds nobody up for good.
#[test]
fn a_client_that_returns_nothing_is_ended_though_it_is_heard_of() {
    let world = World::new();
    let server = world.owner();
    let (keeper, other) = (server.begin(1), server.begin(2));
    drop(keeper.ask_for(Operation::Inode(Ino::ROOT), Lease::Write).get().unwrap());
    let made = other.ask(make("a"));
    until("the recall", || !server.told(keeper.session).is_empty());
    world.pass(&server, &[&keeper, &other], Duration::from_secs(58));
    server.owner.tidy().unwrap();
    assert!(server.owner.lives(keeper.session) && !made.is_there());
    world.pass(&server, &[&keeper, &other], Duration::from_secs(10));
    server.owner.tidy().unwrap();
    assert!(made.answer().inode().is_some());
    assert_eq!(server.owner.renew(keeper.session), Err(Refusal::SessionEnded));
    server.stop().unwrap();
}

#[test]
fn a_name_that_changes_while_it_is_waited_for_is_looked_at_again() {
    let world = World::new();
    let server = world.owner();
    let (holder, one, maker, other) = (server.begin(1), server.begin(2), server.begin(3), server.begin(4));
    drop(one.ask(make("a")).answer());
    let root = holder.ask_for(Operation::Inode(Ino::ROOT), Lease::Read).get().unwrap().grants[0];
    let unlink = || Operation::Unlink(Ino::ROOT, b"a".to_vec(), Vec::new());
    let first = one.ask(unlink());
    let made = maker.ask_for(make("a"), Lease::Read);
    // When this arrives, "a" is still the first file, which nobody has a lease on.
    let second = other.ask(unlink());
    server.owner.returned(holder.session, Ino::ROOT, root.stamp, None, false);
    let made = made.get().unwrap();
    let (ino, grant) = (made.answer.inode().unwrap().ino, made.grants[0]);
    assert_eq!((grant.ino, grant.lease), (ino, Lease::Read), "and none on the directory: others wait for it");
    assert_ne!(first.answer().inode().unwrap().ino, ino);
    let recall = Push::Recall { ino, keep: None, stamp: grant.stamp };
    until("the recall", || recalls(&server, maker.session) == [recall.clone()]);
    assert!(!second.is_there());
    server.owner.returned(maker.session, ino, grant.stamp, None, false);
    assert_eq!(second.answer().inode().unwrap().ino, ino);
    assert_eq!(one.ask(lookup("a")).answer(), Answer::Failed(Failure::NotFound));
    server.stop().unwrap();
}

#[test]
fn leases_to_write_outlive_the_owner() {
    let world = World::new();
    let server = world.owner();
    let writer = server.begin(1);
    let granted = writer.ask_for(Operation::Inode(Ino::ROOT), Lease::Write).get().unwrap().grants[0];
    let later = world.owner();
    let reader = later.begin(2);
    let seen = reader.ask(Operation::Inode(Ino::ROOT));
    until("the recall", || !recalls(&later, writer.session).is_empty());
    assert!(!seen.is_there());
    let (_, given) = later.owner.reclaim(writer.session, &[(Ino::ROOT, Lease::Write)]).unwrap();
    assert_eq!(given.len(), 1);
    assert!(given[0].stamp > granted.stamp);
    later.owner.returned(writer.session, Ino::ROOT, given[0].stamp, Some(Lease::Read), false);
    assert!(seen.answer().inode().is_some());
    later.stop().unwrap();
}

#[test]
fn a_lease_to_write_is_told_when_its_row_is_committed() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    world.engine.set(Mode::Holds);
    let ask = || client.ask_for(Operation::Inode(Ino::ROOT), Lease::Write);
    let asked = world.engine.asked();
    let first = ask();
    until("the batch", || world.engine.asked() > asked);
    let again = ask();
    assert!(!first.is_there());
    assert!(!again.is_there(), "it was given before, and may still be lost");
    let reclaimed = server.owner.reclaim(client.session, &[]);
    assert!(matches!(reclaimed, Err(Refusal::MustReclaim { .. })), "{reclaimed:?}");
    world.engine.set(Mode::Works);
    for granted in [first, again] {
        assert_eq!(granted.get().unwrap().grants[0].lease, Lease::Write);
    }
    assert_eq!(server.owner.reclaim(client.session, &[]).unwrap().1.len(), 1);
    server.stop().unwrap();
}

/// A lease to write is returned and its row is not gone yet, so that the next owner finds it.
#[test]
fn what_was_told_before_the_row_of_a_returned_lease_was_gone_is_given_again() {
    let world = World::new();
    let server = world.owner();
    let (writer, reader) = (server.begin(1), server.begin(2));
    let root = Operation::Inode(Ino::ROOT);
    let granted = writer.ask_for(root.clone(), Lease::Write).get().unwrap().grants[0];
    world.engine.set(Mode::Holds);
    server.owner.returned(writer.session, Ino::ROOT, granted.stamp, None, false);
    assert_eq!(reader.ask_for(root, Lease::Read).get().unwrap().grants.len(), 1);
    let next = world.owner_over(&world.engine.beside());
    let reads = [(Ino::ROOT, Lease::Read)];
    let waits = next.owner.reclaim(reader.session, &reads);
    assert!(matches!(waits, Err(Refusal::MustReclaim { .. })), "{waits:?}");
    assert_eq!(next.owner.reclaim(writer.session, &[]).unwrap().1, []);
    let (_, given) = next.owner.reclaim(reader.session, &reads).unwrap();
    assert_eq!(given.iter().map(|grant| grant.lease).collect::<Vec<_>>(), [Lease::Read]);
    world.engine.set(Mode::Works);
    server.ended().unwrap();
    next.stop().unwrap();
}

/// What a name stands for is looked up first, to know whose lease is in the way: that it could not be read does not mean that it is not there.
#[test]
fn a_row_that_cannot_be_read_for_a_moment_is_changed_under_nobodys_lease() {
    for failing in 1..8 {
        let world = World::new();
        let server = world.owner();
        let (reader, remover) = (server.begin(1), server.begin(2));
        let file = reader.inode(make("a")).ino;
        server.stop().unwrap();
        // One that has nothing in memory.
        let next = world.owner();
        let (_, given) = next.owner.reclaim(reader.session, &[(file, Lease::Read)]).unwrap();
        next.owner.reclaim(remover.session, &[]).unwrap();
        world.engine.fail_next(failing);
        let unlink = Operation::Unlink(Ino::ROOT, b"a".to_vec(), Vec::new());
        let removed = next.client(remover.session, 1).ask(unlink);
        until("the recall", || {
            assert!(!removed.is_there());
            !recalls(&next, reader.session).is_empty()
        });
        next.owner.returned(reader.session, file, given[0].stamp, None, false);
        assert!(removed.answer().inode().is_some());
        next.stop().unwrap();
    }
}

/// So is what a session may not: nobody loses a lease for it.
#[test]
fn what_a_session_may_not_takes_nobodys_lease_where_that_cannot_be_read_for_a_moment() {
    let (mut put_off, directory) = (0, || NewInode { kind: FileKind::Directory, mode: 0o755, ..new_file() });
    for passing in 0..12 {
        let world = World::new();
        let server = world.owner();
        let reader = server.begin(1);
        let made = |parent, name: &str, new| {
            reader.inode(Operation::Make(parent, name.as_bytes().to_vec(), new)).ino
        };
        let (own, other) = (made(Ino::ROOT, "own", directory()), made(Ino::ROOT, "other", directory()));
        let deep = made(other, "deep", directory());
        let file = made(deep, "file", new_file());
        let limited = server.begin_with(2, Rights { root: own, ..Rights::ALL });
        server.stop().unwrap();
        // One that has nothing in memory.
        let next = world.owner();
        next.owner.reclaim(reader.session, &[(file, Lease::Read), (deep, Lease::Read)]).unwrap();
        next.owner.reclaim(limited.session, &[]).unwrap();
        let before = world.engine.failed_reads();
        world.engine.fail_after(passing);
        let unlink = Operation::Unlink(deep, b"file".to_vec(), Vec::new());
        let answer = next.client(limited.session, 1).ask(unlink).answer();
        assert_eq!(answer, Answer::Failed(Failure::Stale), "{passing}");
        assert_eq!(recalls(&next, reader.session), [], "the read after {passing} failed");
        put_off += world.engine.failed_reads() - before;
        world.engine.fail_next(0);
        next.stop().unwrap();
    }
    assert!(put_off > 3, "the engine has failed {put_off} reads");
}
