//! What one client has done, the other one sees.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use forebay_client::Settings;
use forebay_meta::{SetAttr, SetXattr};
use forebay_protocol::Operation;
use forebay_types::Ino;
use forebay_vfs::{Files, VfsError};

use super::world::{World, directory, file, until};

const HALF_A_SECOND: Duration = Duration::from_millis(500);

#[test]
fn names_made_removed_and_moved_are_seen_both_ways() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    assert_eq!(two.find("a"), None);
    let ino = one.make("a");
    assert_eq!(two.find("a"), Some(ino), "a missing name is kept only until it is there");
    assert_eq!(one.names(), ["a"]);
    two.make("b");
    assert_eq!(one.names(), ["a", "b"]);
    two.rename("a", "c");
    assert_eq!((one.find("a"), one.find("c")), (None, Some(ino)));
    one.unlink("c", &[]);
    assert_eq!(two.find("c"), None);
    assert_eq!(two.names(), ["b"]);
    assert!(matches!(two.volume.inode(ino), Err(VfsError::Stale(_))));
}

#[test]
fn what_is_known_under_a_lease_is_not_asked_for_again() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    let dir = one.volume.make(Ino::ROOT, b"d", &directory()).unwrap().ino;
    let look = |client: &super::world::Client| {
        assert_eq!(client.find("a"), Some(ino));
        assert_eq!(client.find("none"), None);
        assert_eq!(client.names(), ["a", "d"]);
        assert!(client.volume.xattrs(ino).unwrap().is_empty());
        client.volume.inode(dir).unwrap();
        client.volume.inode(Ino::ROOT).unwrap();
    };
    for client in [&one, &two] {
        look(client);
        let asked = client.asked();
        look(client);
        look(client);
        assert_eq!(client.asked(), asked, "all of it is known");
        assert!(client.volume.lifetime(ino).unwrap() > std::time::Duration::ZERO);
    }
}

#[test]
fn a_create_is_one_request_and_its_directory_is_counted() {
    let world = World::new();
    // In a delegated directory it is none: `ahead.rs` counts those.
    let one = world.client_with(Settings { ahead: false, ..Settings::of("v", "one") });
    one.find("x");
    let before = one.volume.inode(Ino::ROOT).unwrap();
    let asked = one.asked();
    for at in 0..10 {
        one.make(&format!("f{at}"));
        one.volume.inode(Ino::ROOT).unwrap();
    }
    one.volume.make(Ino::ROOT, b"d", &directory()).unwrap();
    one.unlink("f3", &[]);
    assert_eq!(one.asked() - asked, 12, "a request for each change");
    let counted = one.volume.inode(Ino::ROOT).unwrap();
    assert_eq!(one.asked() - asked, 12);
    let told = world.client("two").volume.inode(Ino::ROOT).unwrap();
    assert_eq!(counted.directory, told.directory);
    assert_eq!(told.directory.unwrap().entries, before.directory.unwrap().entries + 10);
}

#[test]
fn a_small_file_is_read_by_one_request() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("small");
    one.write(ino, 0, &[7; 900]);
    one.volume.sync_file(ino).unwrap();
    // The directory is known, the file is not.
    two.find("x");
    let asked = two.asked();
    let found = two.find("small").unwrap();
    two.volume.opened(found);
    assert_eq!(two.size(found), 900);
    assert_eq!(two.read(found), [7; 900]);
    two.volume.closed(found);
    assert_eq!(two.asked() - asked, 1, "its name, its row and its bytes come at once");
}

#[test]
fn attributes_are_seen_both_ways() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    assert_eq!(two.volume.inode(ino).unwrap().row.mode, 0o644);
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    one.volume.set_attr(ino, &set).unwrap();
    assert_eq!(two.volume.inode(ino).unwrap().row.mode, 0o600);
    assert!(matches!(two.volume.xattr(ino, b"user.a"), Err(VfsError::NoAttribute)));
    one.volume.set_xattr(ino, b"user.a", b"1", SetXattr::Any).unwrap();
    assert_eq!(two.volume.xattr(ino, b"user.a").unwrap(), b"1");
    two.volume.remove_xattr(ino, b"user.a").unwrap();
    assert!(matches!(one.volume.xattr(ino, b"user.a"), Err(VfsError::NoAttribute)));
    assert!(one.volume.xattrs(ino).unwrap().is_empty());
}

#[test]
fn bytes_are_read_as_they_were_written_elsewhere() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    for round in 0..10_u8 {
        let (writer, reader) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        // In the row, in an extent, and grown from one to the other.
        let bytes = vec![round + 1; if round < 3 { 100 } else { 5_000 * usize::from(round) }];
        writer.write(ino, 0, &bytes);
        assert_eq!(writer.size(ino), bytes.len() as u64);
        assert_eq!(reader.size(ino), bytes.len() as u64, "round {round}");
        assert_eq!(reader.read(ino), bytes, "round {round}");
        assert_eq!(writer.read(ino), bytes);
        reader.write(ino, 7, b"abc");
        assert_eq!(&writer.read(ino)[..12], [&bytes[..7], b"abc", &bytes[10..12]].concat());
    }
    let shorter = SetAttr { size: Some(5), ..SetAttr::default() };
    one.volume.set_attr(ino, &shorter).unwrap();
    assert_eq!(two.read(ino).len(), 5);
    assert_eq!(one.read(ino).len(), 5);
}

#[test]
fn an_inode_that_is_open_elsewhere_outlives_its_name() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    one.write(ino, 0, b"still here");
    two.volume.opened(ino);
    assert_eq!(two.size(ino), 10);
    one.unlink("a", &[]);
    assert_eq!(two.find("a"), None);
    assert_eq!(two.read(ino), b"still here");
    two.write(ino, 10, b", and written");
    assert_eq!(two.read(ino), b"still here, and written");
    assert_eq!(two.volume.inode(ino).unwrap().row.nlink, 0);
    two.volume.closed(ino);
    world.is_purged(ino);
}

#[test]
fn a_release_that_is_under_way_does_not_release_what_a_recall_says_to_be_open() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    one.write(ino, 0, b"still here");
    two.volume.opened(ino);
    assert_eq!(two.size(ino), 10);
    // The lease goes back with the word that it is open, so the owner is told when it is closed; on a slow way.
    one.write(ino, 0, b"still");
    *two.wire.slow.lock() = Some((|operation| matches!(operation, Operation::Release(_)), HALF_A_SECOND));
    two.volume.closed(ino);
    until("a release is under way", || two.wire.slow_ones.load(SeqCst) == 1);
    two.volume.opened(ino);
    assert_eq!(two.size(ino), 10);
    one.write(ino, 0, b"Still");
    one.volume.sync_file(ino).unwrap();
    until("the release has come", || two.wire.slow_ones.load(SeqCst) == 0);
    one.unlink("a", &[]);
    assert_eq!(two.read(ino), b"Still here");
    two.volume.closed(ino);
    world.is_purged(ino);
}

#[test]
fn what_is_closed_while_it_is_removed_does_not_stay() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    for (name, removes) in [("a", true), ("b", false)] {
        let ino = one.make(name);
        one.make("other");
        two.volume.opened(ino);
        assert_eq!(two.size(ino), 0);
        let is_removal =
            |operation: &Operation| matches!(operation, Operation::Unlink(..) | Operation::Rename { .. });
        *two.wire.slow.lock() = Some((is_removal, HALF_A_SECOND));
        std::thread::scope(|scope| {
            scope.spawn(|| if removes { two.unlink(name, &[]) } else { two.rename("other", name) });
            until("a removal is under way", || two.wire.slow_ones.load(SeqCst) == 1);
            two.volume.closed(ino);
        });
        *two.wire.slow.lock() = None;
        world.is_purged(ino);
        two.volume.unlink(Ino::ROOT, if removes { b"other" } else { b"b" }, &|_| false).unwrap();
    }
}

#[test]
fn an_inode_that_its_remover_has_open_lives_until_it_is_closed() {
    let world = World::new();
    let one = world.client("one");
    let ino = one.make("a");
    one.volume.opened(ino);
    one.write(ino, 0, &[5; 3000]);
    one.unlink("a", &[ino]);
    assert_eq!(one.volume.nameless(ino).unwrap().row.nlink, 0);
    assert_eq!(one.read(ino), [5; 3000]);
    one.volume.sync_file(ino).unwrap();
    one.volume.closed(ino);
    world.is_purged(ino);
    let nameless = one.volume.make_nameless(Ino::ROOT, &file()).unwrap().ino;
    one.write(nameless, 0, b"x");
    one.volume.link(nameless, Ino::ROOT, b"named").unwrap();
    assert_eq!(world.client("two").read(nameless), b"x");
}
