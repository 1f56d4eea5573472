//! Commits in one request with what clients have done by themselves.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_cluster::Lease;
use forebay_format::row::ObjectRef;
use forebay_meta::{SetAttr, WriteAttr};
use forebay_protocol::{Answer, Commit, ObjectCommit, Operation};
use forebay_types::{Epoch, Ino, ObjectId};

use super::{
    ahead::{commit, made, run, step, take, tell},
    contents::{self, extent, file, numbers, object},
    world::{Client, World, lookup, make},
};

const BLOCK: u64 = 4 << 20;
/// Blocks of a hole, which is removed by more than two records, and from the beginning of one to that of the next.
const HOLE: u64 = 600;
const STRIDE: u64 = HOLE + 2;

/// A file of so many times [`STRIDE`] blocks.
fn long_file(client: &Client<'_>, strides: u64) -> Ino {
    let ino = client.inode(make("long")).ino;
    let put = object(&numbers(client, 1), 0, 5000);
    let segment = put.segments[0].id;
    let mut objects = vec![put];
    let extents: Vec<_> = (0..strides * STRIDE).map(|at| (at * BLOCK, extent(segment, 0, 1))).collect();
    for extents in extents.chunks(4000) {
        let commit = contents::commit(std::mem::take(&mut objects), vec![file(ino, extents.to_vec())]);
        assert_eq!(client.ask(commit).answer(), Answer::Committed(Vec::new()));
    }
    ino
}

/// What was cut off a file is removed by whoever changes it, where it is very much: what the engine does not let read then is no reason to refuse the steps that follow.
#[test]
fn what_was_done_waits_for_the_engine_where_its_first_step_cleans() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let (cuts, rounds) = (64, 20);
    let long = long_file(&client, cuts + rounds);
    let punch = |number: u64| {
        let (from, attr) = (number * STRIDE * BLOCK, WriteAttr::default());
        let punch = Operation::Punch { ino: long, from, to: from + HOLE * BLOCK, size: None, attr };
        assert!(!matches!(client.ask(punch).answer(), Answer::Failed(_)));
    };
    (1..cuts).for_each(punch);
    take(&client, &[Ino::ROOT, long]);
    let run = run(&client);
    let before = world.engine.failed_reads();
    for round in 0..rounds {
        // One more: there are as many as a file may have.
        punch(cuts + round);
        let first = match round % 2 {
            0 => contents::commit(Vec::new(), vec![file(long, Vec::new())]),
            _ => Operation::SetAttr(long, SetAttr { size: Some(1 << 50), ..SetAttr::default() }),
        };
        let name = format!("made{round}");
        let steps = vec![step(first), made(Ino::ROOT, &name, Ino::in_run(run, round as u16))];
        world.engine.fail_after(round / 2);
        assert_eq!(tell(&client, steps), Answer::Ahead(Vec::new()), "{round}");
        world.engine.fail_next(0);
        assert_eq!(client.inode(lookup(&name)).ino, Ino::in_run(run, round as u16));
    }
    assert!(world.engine.failed_reads() > before + 4, "{}", world.engine.failed_reads() - before);
    server.stop().unwrap();
}

/// A session that returns leases while the owner looks for them: a commit without them fails, and nothing else.
#[test]
fn a_lease_that_is_returned_meanwhile_refuses_no_more_than_its_commits() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    take(&client, &[Ino::ROOT]);
    let run = run(&client);
    let object =
        ObjectCommit { object: ObjectRef { epoch: Epoch(1), id: ObjectId(1) }, segments: Vec::new() };
    let mut numbers = (0..).map(|at| Ino::in_run(run, at));
    let mut makes = |many| -> Vec<_> {
        numbers.by_ref().take(many).map(|ino| made(Ino::ROOT, &format!("{}", ino.0), ino)).collect()
    };
    for _ in 0..40 {
        let told = client.ask_for(Operation::Ahead(makes(64)), Lease::Write).get().unwrap();
        let files: Vec<(Ino, &[u8])> = told.grants.iter().map(|grant| (grant.ino, &b"x"[..])).collect();
        assert_eq!((told.answer, files.len()), (Answer::Ahead(Vec::new()), 64));
        // Commits that take long to look at, and are none that may be.
        let refused = Commit { objects: vec![object.clone()], ..commit(&files) };
        let mut steps = makes(1);
        steps.extend((0..2000).map(|_| step(Operation::Commit(Box::new(refused.clone())))));
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !begun.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                for grant in &told.grants {
                    server.owner.returned(client.session, grant.ino, grant.stamp, None, false);
                }
            });
            begun.store(true, Ordering::SeqCst);
            match tell(&client, steps) {
                Answer::Ahead(failed) => assert_eq!(failed.len(), 2000),
                other => panic!("{other:?}"),
            }
        });
    }
    server.stop().unwrap();
}
