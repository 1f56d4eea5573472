//! Commits in one request with what clients have done by themselves.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_cluster::Lease;
use forebay_format::row::ObjectRef;
use forebay_protocol::{Answer, Commit, ObjectCommit, Operation};
use forebay_types::{Epoch, Ino, ObjectId};

use super::{
    ahead::{commit, made, run, step, take, tell},
    world::World,
};

/// A session that returns leases while the owner looks for them: a commit without them fails, and nothing else.
#[test]
fn a_lease_that_is_returned_meanwhile_refuses_no_more_than_its_commits() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    take(&client, &[Ino::ROOT]);
    let run = run(&client);
    let object = ObjectCommit { object: ObjectRef { epoch: Epoch(1), id: ObjectId(1) }, segments: Vec::new() };
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
