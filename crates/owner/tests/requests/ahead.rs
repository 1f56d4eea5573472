//! What clients have done by themselves: what is refused of it, and whom that concerns.

use forebay_cluster::Lease;
use forebay_meta::{RenameMode, SetAttr, SetXattr, WriteAttr};
use forebay_protocol::{Answer, Commit, Contents, Failure, FileCommit, ObjectCommit, Operation, Push, Step};
use forebay_types::{Ino, Timespec};

use super::{
    held::Mode,
    world::{Client, World, lookup, make, make_directory, new_file, until},
};

const TIME: Timespec = Timespec { secs: 7, nanos: 0 };

pub fn step(operation: Operation) -> Step {
    Step { time: TIME, made: None, operation }
}

pub fn made(parent: Ino, name: &str, ino: Ino) -> Step {
    let operation = Operation::Make(parent, name.as_bytes().to_vec(), new_file());
    Step { time: TIME, made: Some(ino), operation }
}

fn unlink(name: &str) -> Step {
    step(Operation::Unlink(Ino::ROOT, name.as_bytes().to_vec(), Vec::new()))
}

fn rename(from: &str, to: &str) -> Step {
    step(Operation::Rename {
        from: Ino::ROOT,
        name: from.as_bytes().to_vec(),
        to: Ino::ROOT,
        new_name: to.as_bytes().to_vec(),
        mode: RenameMode::NoReplace,
        open: Vec::new(),
    })
}

fn chmod(ino: Ino, mode: u16) -> Operation {
    Operation::SetAttr(ino, SetAttr { mode: Some(mode), ..SetAttr::default() })
}

pub fn run(client: &Client<'_>) -> u64 {
    match client.ask(Operation::Runs(1)).answer() {
        Answer::Runs(first, _) => first,
        other => panic!("{other:?}"),
    }
}

pub fn take(client: &Client<'_>, inos: &[Ino]) {
    for ino in inos {
        let granted = client.ask_for(Operation::Inode(*ino), Lease::Write).get().unwrap().grants;
        assert!(granted.iter().any(|grant| grant.ino == *ino && grant.lease == Lease::Write));
    }
}

pub fn tell(client: &Client<'_>, steps: Vec<Step>) -> Answer {
    client.ask_for(Operation::Ahead(steps), Lease::Write).answer()
}

#[test]
fn what_depends_on_a_refused_step_is_refused_and_nothing_else() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let (a, b) = (client.inode(make("a")).ino, client.inode(make("b")).ino);
    let c = client.inode(make("c")).ino;
    let run = run(&client);
    let ino = |at| Ino::in_run(run, at);
    take(&client, &[Ino::ROOT, a, b, c]);
    // The file that was to be b is not removed in place of the one that was to be a.
    let moved = vec![
        rename("a", "b"),
        made(Ino::ROOT, "a", ino(0)),
        step(chmod(ino(0), 0o600)),
        unlink("a"),
        made(Ino::ROOT, "other", ino(1)),
    ];
    let failed = (0..4).map(|at| (at, Failure::Exists)).collect();
    assert_eq!(tell(&client, moved), Answer::Ahead(failed));
    assert_eq!(client.inode(lookup("a")).ino, a);
    assert_eq!(client.inode(lookup("other")).ino, ino(1));
    // Nor is its only name taken off a file that was to have another.
    let linked = vec![step(Operation::Link(c, Ino::ROOT, b"b".to_vec())), unlink("c"), step(chmod(b, 0o611))];
    assert_eq!(tell(&client, linked), Answer::Ahead(vec![(0, Failure::Exists), (1, Failure::Exists)]));
    assert_eq!(client.inode(lookup("c")).ino, c);
    assert_eq!(client.inode(lookup("b")).row.mode, 0o611, "that depends on nothing");
    // What was to be made in a directory that was not made.
    let in_it = vec![made(Ino::ROOT, "b", ino(2)), made(ino(2), "in it", ino(3)), unlink("other")];
    assert_eq!(tell(&client, in_it), Answer::Ahead(vec![(0, Failure::Exists), (1, Failure::Exists)]));
    server.stop().unwrap();
}

/// What is made, opened and removed before the owner hears of any of it is its client's to change like any other file.
#[test]
fn what_was_made_and_lost_its_name_in_one_request_may_be_changed_while_it_is_open() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    take(&client, &[Ino::ROOT]);
    let run = run(&client);
    let (open, closed) = (Ino::in_run(run, 0), Ino::in_run(run, 1));
    let removed = |name: &str, open: Vec<Ino>| step(Operation::Unlink(Ino::ROOT, name.into(), open));
    let steps = vec![
        made(Ino::ROOT, "open", open),
        made(Ino::ROOT, "closed", closed),
        removed("open", vec![open]),
        removed("closed", vec![]),
    ];
    let told = client.ask_for(Operation::Ahead(steps), Lease::Write).get().unwrap();
    assert_eq!(told.answer, Answer::Ahead(Vec::new()));
    assert_eq!(told.grants.iter().map(|grant| grant.ino).collect::<Vec<_>>(), [open]);
    let cut = SetAttr { size: Some(1000), ..SetAttr::default() };
    let steps = vec![step(Operation::SetAttr(open, cut)), step(chmod(open, 0o600))];
    assert_eq!(tell(&client, steps), Answer::Ahead(Vec::new()));
    let row = client.inode(Operation::Inode(open)).row;
    assert_eq!((row.nlink, row.size, row.mode), (0, 1000, 0o600));
    server.stop().unwrap();
}

#[test]
fn nobody_loses_a_lease_to_a_session_that_names_what_it_has_none_on() {
    let world = World::new();
    let server = world.owner();
    let (victim, forger) = (server.begin(1), server.begin(2));
    let (read, written) = (victim.inode(make("read")).ino, victim.inode(make("written")).ino);
    let own = forger.inode(make_directory("own")).ino;
    let granted = victim.ask_for(Operation::Inode(read), Lease::Read).get().unwrap().grants;
    assert_eq!(granted.len(), 1);
    take(&victim, &[written]);
    take(&forger, &[own]);
    let number = Ino::in_run(run(&forger), 0);
    let denied = Answer::Failed(Failure::NotPermitted);
    for ino in [read, written] {
        assert_eq!(tell(&forger, vec![step(chmod(ino, 0o777))]), denied);
        // Nor by what is said to have been made, before or afterwards.
        assert_eq!(tell(&forger, vec![step(chmod(ino, 0o777)), made(own, "x", ino)]), denied);
        let both = vec![made(own, "x", ino), step(chmod(ino, 0o777)), made(own, "y", number)];
        match tell(&forger, both) {
            Answer::Ahead(failed) => {
                assert_eq!(failed[..2], [(0, Failure::NotPermitted), (1, Failure::NotPermitted)]);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(server.told(victim.session), []);
    }
    assert_eq!(victim.inode(Operation::Inode(read)).row.mode, 0o644);
    assert_eq!(victim.inode(Operation::Inode(written)).row.mode, 0o644);
    // Asked for again by its number, what was refused is refused.
    let request = forger.request(Operation::Ahead(vec![step(chmod(written, 0o777))]), Some(Lease::Write));
    assert_eq!(server.submit(request.clone()).answer(), denied);
    assert_eq!(server.submit(request).answer(), denied);
    assert_eq!(server.told(victim.session), []);
    server.stop().unwrap();
}

/// An engine that lets nothing be read for longer than others wait for an owner: the steps before cannot be taken back.
#[test]
fn a_step_waits_for_the_engine_as_long_as_it_takes() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let file = client.inode(make("file")).ino;
    drop(client.ask(Operation::SetXattr(file, b"user.a".to_vec(), b"one".to_vec(), SetXattr::Any)).answer());
    take(&client, &[Ino::ROOT, file]);
    let number = Ino::in_run(run(&client), 0);
    let set = Operation::SetXattr(file, b"user.b".to_vec(), b"two".to_vec(), SetXattr::Create);
    let steps = vec![made(Ino::ROOT, "made", number), step(set)];
    world.engine.set(Mode::ReadsFail);
    std::thread::scope(|scope| {
        let told = scope.spawn(|| tell(&client, steps));
        let failed = world.engine.failed_reads();
        until("many reads", || world.engine.failed_reads() > failed + 70);
        world.engine.set(Mode::Works);
        assert_eq!(told.join().unwrap(), Answer::Ahead(Vec::new()));
    });
    assert_eq!(client.inode(lookup("made")).ino, number);
    server.stop().unwrap();
}

/// An owner that stops meanwhile commits nothing of a request of which it cannot carry out the rest.
#[test]
fn a_request_that_an_owner_cannot_finish_is_the_next_ones() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let file = client.inode(make("file")).ino;
    drop(client.ask(Operation::SetXattr(file, b"user.a".to_vec(), b"one".to_vec(), SetXattr::Any)).answer());
    take(&client, &[Ino::ROOT, file]);
    let number = Ino::in_run(run(&client), 0);
    let set = Operation::SetXattr(file, b"user.b".to_vec(), b"two".to_vec(), SetXattr::Create);
    let steps = vec![made(Ino::ROOT, "made", number), step(set)];
    let request = client.request(Operation::Ahead(steps), Some(Lease::Write));
    let leases = [(Ino::ROOT, Lease::Write), (file, Lease::Write)];
    world.engine.set(Mode::ReadsFail);
    std::thread::scope(|scope| {
        let told = scope.spawn(|| server.submit(request.clone()).get());
        let failed = world.engine.failed_reads();
        until("a read", || world.engine.failed_reads() > failed + 2);
        server.owner.stop();
        world.ticks.pass(std::time::Duration::from_secs(3));
        assert!(matches!(told.join().unwrap(), Err(forebay_protocol::Refusal::NotOwner { .. })));
    });
    server.ended().unwrap();
    world.engine.set(Mode::Works);
    let later = world.owner();
    later.owner.reclaim(client.session, &leases).unwrap();
    assert_eq!(later.submit(request).answer(), Answer::Ahead(Vec::new()));
    later.stop().unwrap();
}

pub fn commit(bytes: &[(Ino, &[u8])]) -> Commit {
    let file = |(ino, bytes): &(Ino, &[u8])| FileCommit {
        ino: *ino,
        inline: Some(bytes.to_vec()),
        extents: Vec::new(),
        size: bytes.len() as u64,
        attr: WriteAttr::default(),
        mtime: TIME,
    };
    Commit { objects: Vec::new(), files: bytes.iter().map(file).collect() }
}

pub fn committed(bytes: &[(Ino, &[u8])]) -> Step {
    step(Operation::Commit(Box::new(commit(bytes))))
}

fn contents(client: &Client<'_>, ino: Ino) -> Option<Contents> {
    client.inode(Operation::Inode(ino)).contents
}

#[test]
fn a_file_is_made_and_gets_its_bytes_in_one_request() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let old = client.inode(make("old")).ino;
    let run = run(&client);
    let ino = |at| Ino::in_run(run, at);
    take(&client, &[Ino::ROOT, old]);
    let steps = vec![
        made(Ino::ROOT, "a", ino(0)),
        committed(&[(ino(0), b"first"), (old, b"written")]),
        step(chmod(ino(0), 0o600)),
        made(Ino::ROOT, "b", ino(1)),
        committed(&[(ino(1), b"b")]),
        // What it made before it has the lease on, too.
        committed(&[(ino(0), b"second")]),
    ];
    assert_eq!(tell(&client, steps), Answer::Ahead(Vec::new()));
    let told = client.inode(Operation::Inode(ino(0)));
    assert_eq!((told.row.size, told.row.mode, told.row.mtime), (6, 0o600, TIME));
    assert_eq!(told.contents, Some(Contents::Inline(b"second".to_vec())));
    assert_eq!(contents(&client, old), Some(Contents::Inline(b"written".to_vec())));
    assert_eq!(contents(&client, ino(1)), Some(Contents::Inline(b"b".to_vec())));
    // In the next request it goes by the lease that came along.
    assert_eq!(tell(&client, vec![committed(&[(ino(1), b"later")])]), Answer::Ahead(Vec::new()));
    assert_eq!(contents(&client, ino(1)), Some(Contents::Inline(b"later".to_vec())));
    // One that has lost its name since is gone, and takes nothing along.
    let steps = vec![
        made(Ino::ROOT, "short", ino(2)),
        unlink("short"),
        committed(&[(ino(2), b"gone"), (ino(1), b"last")]),
    ];
    let told = tell(&client, steps);
    assert!(
        matches!(&told, Answer::AheadGone(failed, gone) if failed.is_empty() && *gone == [ino(2)]),
        "{told:?}"
    );
    assert_eq!(contents(&client, ino(1)), Some(Contents::Inline(b"last".to_vec())));
    server.stop().unwrap();
}

#[test]
fn nothing_is_refused_for_the_sake_of_a_commit() {
    let world = World::new();
    let server = world.owner();
    let (client, other) = (server.begin(1), server.begin(2));
    let theirs = other.inode(make("theirs")).ino;
    let own = client.inode(make("own")).ino;
    take(&other, &[theirs]);
    let run = run(&client);
    let ino = |at| Ino::in_run(run, at);
    take(&client, &[Ino::ROOT, own]);
    let object = ObjectCommit {
        object: forebay_format::row::ObjectRef {
            epoch: forebay_types::Epoch(1),
            id: forebay_types::ObjectId(1),
        },
        segments: Vec::new(),
    };
    let with_object = Commit { objects: vec![object], ..commit(&[(own, b"x")]) };
    let steps = vec![
        made(Ino::ROOT, "a", ino(0)),
        // Another session has the lease, and is not asked for it.
        committed(&[(theirs, b"stolen"), (own, b"stolen")]),
        step(Operation::Commit(Box::new(with_object))),
        made(Ino::ROOT, "own", ino(1)),
        // Its file was not made.
        committed(&[(ino(1), b"no")]),
        committed(&[(ino(0), b"a")]),
        made(Ino::ROOT, "b", ino(2)),
    ];
    let failed =
        vec![(1, Failure::NotPermitted), (2, Failure::Invalid), (3, Failure::Exists), (4, Failure::Exists)];
    assert_eq!(tell(&client, steps), Answer::Ahead(failed));
    assert_eq!(contents(&client, ino(0)), Some(Contents::Inline(b"a".to_vec())));
    assert_eq!(contents(&client, own), None);
    assert_eq!(client.inode(lookup("b")).ino, ino(2));
    let recalled = |push: &Push| matches!(push, Push::Recall { ino, .. } if *ino == theirs);
    assert!(!server.told(other.session).iter().any(recalled), "for a commit that cannot go along");
    server.stop().unwrap();
}
