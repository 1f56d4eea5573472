//! What one client has done, the other one sees.

use forebay_client::Settings;
use forebay_meta::{SetAttr, SetXattr};
use forebay_types::Ino;
use forebay_vfs::{Files, VfsError};

use super::world::{World, directory, file};

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
