//! Times of a file whose bytes are kept back here.

use std::time::Duration;

use forebay_meta::{SetAttr, SetTime};
use forebay_types::{Ino, Timespec};
use forebay_vfs::Files;

use super::world::{Client, World};

/// The time of change of contents, and of anything.
fn times(client: &Client, ino: Ino) -> (Timespec, Timespec) {
    let row = client.volume.inode(ino).unwrap().row;
    (row.mtime, row.ctime)
}

/// Longer than a step of the clock that gives times.
fn tick() {
    std::thread::sleep(Duration::from_millis(25));
}

#[test]
fn a_time_that_is_set_is_not_when_the_file_was_changed() {
    let world = World::new();
    let (client, other) = (world.client("one"), world.client("two"));
    for (name, secs) in [("past", 1), ("future", 4_000_000_000)] {
        let ino = client.make(name);
        client.write(ino, 0, &[1; 3000]);
        let written = times(&client, ino);
        tick();
        let time = Timespec { secs, nanos: 5 };
        let set = SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
        client.volume.set_attr(ino, &set).unwrap();
        let set = times(&client, ino);
        assert!(set.0 == time && set.1 > written.1 && set.1.secs < 4_000_000_000, "{name}: {set:?}");
        // Neither when the bytes arrive.
        client.volume.sync_file(ino).unwrap();
        assert_eq!((times(&client, ino), times(&other, ino)), (set, set), "{name}");
        tick();
        client.write(ino, 0, &[2; 3000]);
        let again = times(&client, ino);
        assert!(again.0 == again.1 && again.1 > set.1, "{name}: {again:?}");
        client.volume.sync_file(ino).unwrap();
        assert_eq!((times(&client, ino), times(&other, ino)), (again, again), "{name}");
    }
}

#[test]
fn a_new_size_is_a_change_after_what_is_kept_back() {
    let world = World::new();
    let (client, other) = (world.client("one"), world.client("two"));
    let ino = client.make("file");
    client.write(ino, 0, &[1; 3000]);
    for size in [2000, 4000] {
        let before = times(&client, ino);
        tick();
        client.volume.set_attr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
        let cut = times(&client, ino);
        assert!(cut.0 > before.0 && cut.1 > before.1, "{size}: {before:?} {cut:?}");
        client.volume.sync_file(ino).unwrap();
        assert_eq!((times(&client, ino), times(&other, ino)), (cut, cut), "{size}");
        client.write(ino, 0, &[2; 1000]);
    }
}
