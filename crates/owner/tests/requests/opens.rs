//! Inodes that have lost their last name and that sessions have open.

use std::time::Duration;

use forebay_cluster::Lease;
use forebay_protocol::{Answer, Failure, Operation, Push, Rights};
use forebay_types::Ino;

use super::{
    contents::{commit, extent, file, numbers, object},
    world::{Client, Server, World, make, make_directory, until},
};

fn unlink(name: &str, open: &[Ino]) -> Operation {
    Operation::Unlink(Ino::ROOT, name.as_bytes().to_vec(), open.to_vec())
}

fn is_gone(client: &Client<'_>, ino: Ino) -> bool {
    match client.ask(Operation::Inode(ino)).answer() {
        Answer::Inode(inode) => {
            assert_eq!(inode.row.nlink, 0);
            false
        }
        other => {
            assert_eq!(other, Answer::Failed(Failure::Stale));
            true
        }
    }
}

/// A session that has the file open when another takes its name away.
fn opened_and_unlinked(server: &Server, opener: &Client<'_>, other: &Client<'_>, open: bool) -> Ino {
    let ino = other.inode(make("a")).ino;
    let kept = opener.ask_for(Operation::Inode(ino), Lease::Read).get().unwrap().grants[0];
    let gone = other.ask(unlink("a", &[]));
    until("the recall", || {
        server.told(opener.session).contains(&Push::Recall { ino, keep: None, stamp: kept.stamp })
    });
    server.owner.returned(opener.session, ino, kept.stamp, None, open);
    let gone = gone.answer();
    assert_eq!(gone.inode().unwrap().row.nlink, 0);
    assert_eq!(gone.leaves_orphan(), open, "{gone:?}");
    ino
}

fn rename_over(from: &str, to: &str, open: &[Ino]) -> Operation {
    Operation::Rename {
        from: Ino::ROOT,
        name: from.as_bytes().to_vec(),
        to: Ino::ROOT,
        new_name: to.as_bytes().to_vec(),
        mode: forebay_meta::RenameMode::Replace,
        open: open.to_vec(),
    }
}

#[test]
fn what_another_session_has_open_lives_until_it_is_released() {
    for world in World::both() {
        let server = world.owner();
        let (opener, other) = (server.begin(1), server.begin(2));
        let ino = opened_and_unlinked(&server, &opener, &other, true);
        server.owner.tidy().unwrap();
        assert!(!is_gone(&opener, ino));
        assert_eq!(opener.ask(Operation::Release(vec![ino])).answer(), Answer::Committed(vec![ino]));
        assert!(is_gone(&opener, ino), "at once");
        let ino = opened_and_unlinked(&server, &opener, &other, false);
        assert!(is_gone(&other, ino), "at once");
        server.stop().unwrap();
    }
}

#[test]
fn what_the_session_itself_has_open_lives_too() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let (ino, new) = (client.inode(make("a")).ino, client.inode(make("b")).ino);
    client.inode(unlink("a", &[ino]));
    assert!(!is_gone(&client, ino));
    assert!(matches!(client.ask(rename_over("b", "c", &[])).answer(), Answer::Renamed(_, None)));
    let third = client.inode(make("d")).ino;
    let Answer::Renamed(moved, Some(replaced)) = client.ask(rename_over("c", "d", &[third])).answer() else {
        panic!("nothing replaced")
    };
    assert_eq!((moved.ino, replaced.ino), (new, third));
    assert!(!is_gone(&client, third));
    let nameless = Operation::MakeNameless(Ino::ROOT, super::world::new_file());
    let nameless = client.inode(nameless).ino;
    let directory = client.inode(super::world::make_directory("e")).ino;
    client.inode(Operation::Rmdir(Ino::ROOT, b"e".to_vec(), vec![directory]));
    server.owner.tidy().unwrap();
    let all = [ino, third, nameless, directory];
    assert!(all.iter().all(|ino| server.owner.is_open(*ino) && !is_gone(&client, *ino)));
    assert_eq!(client.ask(Operation::Release(all.to_vec())).answer(), Answer::Committed(all.to_vec()));
    assert!(all.iter().all(|ino| is_gone(&client, *ino)));
    server.stop().unwrap();
}

/// Who removes it is told, and so may have to say what it has kept back of it.
#[test]
fn a_removal_says_whether_others_have_the_inode_open() {
    let world = World::new();
    let server = world.owner();
    let (remover, other) = (server.begin(1), server.begin(2));
    for (at, moves) in [(0, false), (1, true)] {
        for (open, elsewhere) in [(false, false), (true, false), (false, true), (true, true)] {
            let (name, new) = (format!("a{at}{open}{elsewhere}"), format!("b{at}{open}{elsewhere}"));
            let ino = remover.inode(make(&name)).ino;
            remover.inode(make(&new));
            if elsewhere {
                assert_eq!(other.ask(Operation::Hold(vec![ino])).answer(), Answer::Committed(vec![]));
            }
            let said: &[Ino] = if open { &[ino] } else { &[] };
            let removal = if moves { rename_over(&new, &name, said) } else { unlink(&name, said) };
            let request = remover.request(removal, None);
            let answer = server.submit(request.clone()).answer();
            assert_eq!(answer.leaves_orphan(), elsewhere, "{answer:?}");
            assert_eq!(server.submit(request).answer(), answer, "asked again, it says the same");
            // The last one to have it is told that it is gone.
            let gone = |gone: bool| if gone { Answer::Committed(vec![ino]) } else { Answer::Done };
            if open {
                assert_eq!(remover.ask(Operation::Release(vec![ino])).answer(), gone(!elsewhere));
            }
            if elsewhere {
                assert_eq!(other.ask(Operation::Release(vec![ino])).answer(), gone(true));
            }
            assert!(is_gone(&other, ino));
        }
    }
    // What has a name is not gone.
    let ino = remover.inode(make("named")).ino;
    assert_eq!(remover.ask(Operation::Release(vec![ino])).answer(), Answer::Done);
    server.stop().unwrap();
}

/// Who has come to have it open by a lease alone, or is about to, is in no row.
#[test]
fn what_others_have_a_lease_on_is_not_gone_with_a_release() {
    let world = World::new();
    let server = world.owner();
    let (remover, other) = (server.begin(1), server.begin(2));
    for waits in [false, true] {
        let ino = remover.inode(make("a")).ino;
        let granted = remover.ask_for(Operation::Inode(ino), Lease::Write).get().unwrap().grants;
        assert!(!remover.ask(unlink("a", &[ino])).answer().leaves_orphan());
        let asked = other.ask_for(Operation::Inode(ino), Lease::Read);
        if !waits {
            server.owner.returned(remover.session, ino, granted[0].stamp, None, true);
            assert_eq!(asked.get().unwrap().grants.len(), 1);
        }
        assert_eq!(remover.ask(Operation::Release(vec![ino])).answer(), Answer::Done);
        assert!(!waits || !is_gone(&remover, ino), "who waits for it gets it");
    }
    server.stop().unwrap();
}

/// Sessions that have yet to say what they have may have it open.
#[test]
fn a_removal_after_a_takeover_takes_an_inode_for_open() {
    let world = World::new();
    let server = world.owner();
    let (remover, other) = (server.begin(1), server.begin(2));
    let ino = remover.inode(make("a")).ino;
    for ino in [Ino::ROOT, ino] {
        drop(remover.ask_for(Operation::Inode(ino), Lease::Write).get().unwrap());
    }
    let later = world.owner();
    let leases = [(Ino::ROOT, Lease::Write), (ino, Lease::Write)];
    assert_eq!(later.owner.reclaim(remover.session, &leases).unwrap().1.len(), 2);
    let remover = later.client(remover.session, remover.next());
    assert!(remover.ask(unlink("a", &[])).answer().leaves_orphan());
    later.owner.reclaim(other.session, &[]).unwrap();
    later.owner.tidy().unwrap();
    assert!(is_gone(&remover, ino));
    later.stop().unwrap();
}

#[test]
fn what_is_open_outlives_the_owner_and_not_the_session() {
    for world in World::both() {
        let server = world.owner();
        let (opener, other) = (server.begin(1), server.begin(2));
        let ino = opened_and_unlinked(&server, &opener, &other, true);
        let later = world.owner();
        later.owner.tidy().unwrap();
        later.owner.reclaim(opener.session, &[]).unwrap();
        later.owner.reclaim(other.session, &[]).unwrap();
        later.owner.tidy().unwrap();
        let other = later.client(other.session, other.next());
        assert!(later.owner.is_open(ino) && !is_gone(&other, ino));
        later.owner.end_session(opener.session);
        drop(other.ask(make("z")).answer());
        later.owner.tidy().unwrap();
        assert!(is_gone(&other, ino));
        // Nothing of the session is left in the rows.
        world.pass(&later, &[&other], Duration::from_secs(1));
        let last = world.owner();
        assert!(!last.owner.is_open(ino));
        last.stop().unwrap();
    }
}

#[test]
fn a_file_with_many_extents_goes_in_steps() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let ino = client.inode(make("a")).ino;
    let given = numbers(&client, 1);
    let put = object(&given, 0, 1 << 20);
    let segment = put.segments[0].id;
    let extents = (0..2000).map(|at| (at * 20, extent(segment, at * 20, 10))).collect();
    assert_eq!(client.ask(commit(vec![put], vec![file(ino, extents)])).answer(), Answer::Committed(vec![]));
    client.inode(unlink("a", &[]));
    for _ in 0..3 {
        server.owner.tidy().unwrap();
    }
    assert!(is_gone(&client, ino));
    let Answer::Space(space) = client.ask(Operation::Space).answer() else { panic!("no space") };
    assert_eq!(space.used, 0);
    server.stop().unwrap();
}

#[test]
fn only_who_has_a_lease_says_that_it_has_the_inode_open() {
    let world = World::new();
    let server = world.owner();
    let (client, other) = (server.begin(1), server.begin(2));
    let ino = client.inode(make("a")).ino;
    server.owner.returned(other.session, ino, forebay_cluster::Stamp::default(), None, true);
    assert!(!server.owner.is_open(ino));
    server.stop().unwrap();
}

#[test]
fn what_a_session_holds_lives_without_a_lease() {
    for world in World::both() {
        let server = world.owner();
        let (holder, other) = (server.begin(1), server.begin(2));
        let ino = other.inode(make("a")).ino;
        let gone = Ino(1 << 30);
        assert_eq!(holder.ask(Operation::Hold(vec![ino, gone])).answer(), Answer::Committed(vec![gone]));
        // Nobody is asked, and it lives, also at another server.
        assert_eq!(other.inode(unlink("a", &[])).row.nlink, 0);
        assert!(server.told(holder.session).is_empty());
        server.owner.tidy().unwrap();
        assert!(!is_gone(&holder, ino));
        let later = world.owner();
        for session in [holder.session, other.session] {
            later.owner.reclaim(session, &[]).unwrap();
        }
        let holder = later.client(holder.session, holder.next());
        later.owner.tidy().unwrap();
        assert!(!is_gone(&holder, ino));
        assert_eq!(holder.ask(Operation::Release(vec![ino])).answer(), Answer::Committed(vec![ino]));
        later.owner.tidy().unwrap();
        assert!(is_gone(&holder, ino));
        assert_eq!(holder.ask(Operation::Hold(vec![ino])).answer(), Answer::Committed(vec![ino]));
        later.stop().unwrap();
    }
}

#[test]
fn a_session_holds_nothing_that_it_does_not_see() {
    let world = World::new();
    let server = world.owner();
    let all = server.begin(1);
    let (own, other) = (all.inode(make_directory("own")).ino, all.inode(make("other")).ino);
    let rights = Rights { root: own, read_only: true, ..Rights::ALL };
    let limited = server.begin_with(2, rights);
    let held = limited.ask(Operation::Hold(vec![other, own, Ino::ROOT])).answer();
    assert_eq!(held, Answer::Committed(vec![other, Ino::ROOT]));
    assert_eq!(limited.ask(Operation::Inode(other)).answer(), Answer::Failed(Failure::Stale));
    server.stop().unwrap();
}
