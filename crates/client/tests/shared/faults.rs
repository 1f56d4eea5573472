//! Owners that die, clients that are cut off, answers that are lost.

use std::sync::atomic::Ordering::SeqCst;

use forebay_types::Ino;
use forebay_vfs::{Files, VfsError};

use super::world::{World, file, until};

#[test]
fn requests_whose_answers_are_lost_are_carried_out_once() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    for at in 0..20 {
        one.wire.loses.store(1 + at % 3, SeqCst);
        // Carried out twice, it would find the name taken.
        one.make(&format!("f{at}"));
        one.wire.loses.store(1, SeqCst);
        one.rename(&format!("f{at}"), &format!("g{at}"));
    }
    assert_eq!(two.names().len(), 20);
    assert_eq!(two.volume.inode(Ino::ROOT).unwrap().directory.unwrap().entries, 20);
}

#[test]
fn a_takeover_repeats_what_was_under_way_and_keeps_leases_and_bytes() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    one.write(ino, 0, b"kept back over a takeover");
    two.find("a");
    let session = one.volume.session();
    std::thread::scope(|scope| {
        let making = scope.spawn(|| {
            for at in 0..30 {
                one.make(&format!("one{at}"));
            }
        });
        for at in 0..3 {
            until("some of them", || two.names().len() > 5 * at);
            world.kill();
            two.wire.loses.store(1, SeqCst);
            world.start();
            two.make(&format!("two{at}"));
        }
        making.join().unwrap();
    });
    assert_eq!(one.volume.session(), session, "the session lives");
    let names = two.names();
    assert_eq!(names.len(), 34, "{names:?}");
    assert_eq!(one.names(), names);
    assert_eq!(two.read(ino), b"kept back over a takeover");
}

#[test]
fn a_client_that_is_cut_off_serves_nothing_after_its_term_and_changes_nothing() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    one.write(ino, 0, b"first");
    one.volume.sync_file(ino).unwrap();
    one.write(ino, 0, b"never");
    let session = one.volume.session();
    one.wire.cut();
    assert_eq!(one.find("a"), Some(ino), "it may answer until its term ends");
    // Waits for the end of the other one's session.
    two.write(ino, 0, b"second");
    two.rename("a", "b");
    assert!(one.volume.lifetime(ino).unwrap().is_zero(), "its term was over before");
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| (one.find("a"), one.find("b")));
        let syncing = scope.spawn(|| one.volume.sync_file(ino));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!looking.is_finished() && !syncing.is_finished(), "nobody can tell");
        one.wire.mend();
        assert_eq!(looking.join().unwrap(), (None, Some(ino)));
        let lost = syncing.join().unwrap();
        assert!(matches!(lost, Err(VfsError::Failed(_))), "{lost:?}");
    });
    assert!(one.volume.session() > session);
    assert_eq!(one.read(ino), b"second");
    assert_eq!(two.read(ino), b"second");
    one.volume.sync_file(ino).unwrap();
    one.write(ino, 0, b"third!");
    assert_eq!(two.read(ino), b"third!");
}

#[test]
fn a_file_of_which_bytes_were_lost_takes_no_other_ones_place() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let (whole, new) = (one.make("target"), one.make("new"));
    one.write(whole, 0, b"whole");
    one.volume.sync_file(whole).unwrap();
    assert_eq!(two.find("new"), Some(new), "its making is told, and its bytes are not");
    one.write(new, 0, b"lost");
    let session = one.volume.session();
    one.wire.cut();
    // Waits for the end of its session.
    two.volume.set_xattr(new, b"user.a", b"", forebay_meta::SetXattr::Any).unwrap();
    one.wire.mend();
    until("the next session", || one.volume.session() > session);
    let rename = || {
        let (from, to) = ((Ino::ROOT, &b"new"[..]), (Ino::ROOT, &b"target"[..]));
        one.volume.rename(from, to, forebay_meta::RenameMode::Replace, &|_| false).map(drop)
    };
    for _ in 0..2 {
        assert!(matches!(rename(), Err(VfsError::Failed(_))), "it is not whole, and nobody was told");
    }
    assert_eq!(two.read(whole), b"whole");
    // Written anew it is whole, and fsync says all the same what was lost.
    let empty = forebay_meta::SetAttr { size: Some(0), ..Default::default() };
    one.volume.set_attr(new, &empty).unwrap();
    one.write(new, 0, b"again");
    rename().unwrap();
    assert_eq!(two.read(new), b"again");
    assert!(matches!(one.volume.sync_file(new), Err(VfsError::Failed(_))));
    one.volume.sync_file(new).unwrap();
}

#[test]
fn what_is_open_is_held_again_in_the_next_session() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    one.write(ino, 0, b"bytes");
    one.volume.sync_file(ino).unwrap();
    one.volume.opened(ino);
    one.size(ino);
    let session = one.volume.session();
    world.owner().unwrap();
    one.wire.cut();
    // Another change of what it has a lease on ends its session.
    two.make("b");
    two.volume.set_xattr(ino, b"user.a", b"", forebay_meta::SetXattr::Any).unwrap();
    one.wire.mend();
    until("the next session", || one.volume.session() > session);
    until("a lease", || !one.volume.lifetime(ino).unwrap().is_zero());
    two.unlink("a", &[]);
    world.owner().unwrap().tidy().unwrap();
    assert_eq!(one.read(ino), b"bytes");
    one.volume.closed(ino);
    world.is_purged(ino);
}

#[test]
fn a_client_that_is_closed_leaves_all_that_it_wrote() {
    let world = World::new();
    let two = world.client("two");
    let mut inos = Vec::new();
    {
        let one = world.client("one");
        let dir = one.volume.make(Ino::ROOT, b"d", &super::world::directory()).unwrap().ino;
        for at in 0..50 {
            let ino = one.volume.make(dir, format!("{at}").as_bytes(), &file()).unwrap().ino;
            one.write(ino, 0, format!("bytes of {at}").as_bytes());
            inos.push(ino);
        }
        one.volume.close().unwrap();
    }
    for (at, ino) in inos.into_iter().enumerate() {
        assert_eq!(two.read(ino), format!("bytes of {at}").as_bytes());
    }
}
