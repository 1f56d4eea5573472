//! Whatever changes something is carried out once, however often it is sent and to whom.

use forebay_locks::{LockKind, LockRange, LockRequest, LockSpace};
use forebay_meta::{RenameMode, SetAttr, SetXattr, WriteAttr};
use forebay_protocol::{Answer, Operation, Refusal, Request};
use forebay_types::{Ino, Timespec};

use super::{
    contents::{commit, extent, file, numbers, object},
    world::{Client, Server, World, make, make_directory, new_file},
};

/// One of each operation that changes something, in an order in which each succeeds.
fn all(client: &Client<'_>) -> Vec<Operation> {
    let name = |name: &str| name.as_bytes().to_vec();
    let (one, two) = (client.inode(make("one")).ino, client.inode(make("two")).ino);
    client.inode(make_directory("directory"));
    client.inode(make("gone"));
    let given = numbers(client, 2);
    let put = object(&given, 0, 5000);
    let files = vec![file(one, vec![(0, extent(put.segments[0].id, 0, 4000))]), file(Ino(1 << 30), vec![])];
    let range = LockRange { start: 0, end: 9, kind: LockKind::Exclusive, pid: 1 };
    let request = LockRequest { space: LockSpace::Record, owner: 1, fh: 1, range };
    let attr = WriteAttr::default();
    vec![
        Operation::Make(Ino::ROOT, name("new"), new_file()),
        Operation::MakeNameless(Ino::ROOT, new_file()),
        Operation::Link(one, Ino::ROOT, name("link")),
        Operation::Unlink(Ino::ROOT, name("gone"), vec![]),
        Operation::Rmdir(Ino::ROOT, name("directory"), vec![]),
        Operation::Rename {
            from: Ino::ROOT,
            name: name("new"),
            to: Ino::ROOT,
            new_name: name("newer"),
            mode: RenameMode::NoReplace,
            open: vec![],
        },
        Operation::SetAttr(one, SetAttr { mode: Some(0o600), ..SetAttr::default() }),
        Operation::SetAtime(one, Timespec { secs: 1 << 40, nanos: 0 }),
        Operation::SetXattr(one, name("user.a"), name("value"), SetXattr::Create),
        Operation::RemoveXattr(one, name("user.a")),
        Operation::Numbers(1, 1),
        commit(vec![put], files),
        Operation::Punch { ino: one, from: 10, to: 20, size: None, attr },
        Operation::Share { source: one, from: 0, target: two, to: 0, len: 100, attr },
        Operation::Lock(one, request, false),
        Operation::Unlock(one, LockSpace::Record, 1, (0, 4)),
        Operation::UnlockHandle(one, 1),
        Operation::Release(vec![one]),
    ]
}

#[test]
fn each_change_is_answered_again_by_the_same_owner_and_a_later_one() {
    for world in World::both() {
        let mut last = world.owner();
        let client = last.begin(1);
        let (session, operations) = (client.session, all(&client));
        let mut next = client.next();
        for operation in operations {
            let client = last.client(session, next);
            let request = client.request(operation.clone(), None);
            next = client.next();
            let first = last.submit(request.clone()).answer();
            assert!(!matches!(first, Answer::Failed(_)), "{operation:?}: {first:?}");
            assert_eq!(last.submit(request.clone()).answer(), first, "{operation:?}");
            let later = world.owner();
            later.owner.reclaim(session, &[]).unwrap();
            assert_eq!(later.submit(request).answer(), first, "{operation:?} at a later owner");
            last = later;
        }
        last.stop().unwrap();
    }
}

#[test]
fn a_late_copy_of_an_answered_request_is_refused_and_its_session_lives_on() {
    for world in World::both() {
        let mut last = world.owner();
        let client = last.begin(1);
        let (session, mut next) = (client.session, client.next());
        let mut old: Vec<Request> = Vec::new();
        for name in ["a", "b", "c"] {
            let client = last.client(session, next);
            let request = client.request(make(name), None);
            next = client.next();
            let made = last.submit(request.clone()).answer();
            assert!(made.inode().is_some(), "{name}: {made:?}");
            refuses_late_copies(&last, &old);
            old.push(request);
            // The next owner knows it from the rows.
            let later = world.owner();
            later.owner.reclaim(session, &[]).unwrap();
            refuses_late_copies(&later, &old[..old.len() - 1]);
            assert_eq!(
                later.submit(old[old.len() - 1].clone()).answer(),
                made,
                "{name}: the last one is repeated"
            );
            last = later;
        }
        last.stop().unwrap();
    }
}

fn refuses_late_copies(server: &Server, copies: &[Request]) {
    for copy in copies {
        let refused = server.submit(copy.clone()).get();
        assert!(matches!(refused, Err(Refusal::Invalid(_))), "{copy:?}: {refused:?}");
        assert_eq!(server.owner.renew(copy.session), Ok(()), "its session lives on");
    }
}
