//! Volumes with a limit: a write that finds no room is told so, and what was taken in is committed whatever others write.

use std::{
    thread,
    time::{Duration, Instant},
};

use forebay_client::Settings;
use forebay_meta::{LogError, MetaError};
use forebay_types::Ino;
use forebay_vfs::{By, Files, VfsError, Write, WriteAt};

use super::world::{Client, NEVER, World, until};

const MIB: u64 = 1 << 20;

/// Writes a MiB at an offset of so many.
fn write(client: &Client, ino: Ino, at: u64) -> Result<u64, VfsError> {
    let data = vec![7; MIB as usize];
    client.volume.write(ino, &Write { at: WriteAt::Offset(at * MIB), data: &data, by: By::default() })
}

#[track_caller]
fn finds_no_room(result: Result<u64, VfsError>) {
    assert!(
        matches!(result, Err(VfsError::Meta(MetaError::Log(LogError::NoSpace)))),
        "it was not told that the volume is full: {result:?}"
    );
}

#[test]
fn a_write_that_finds_no_room_is_told_so_and_what_was_taken_in_is_committed() {
    let world = World::new();
    world.owner().unwrap().set_limit(Some(20 * MIB));
    let (one, other) = (world.client("one"), world.client("other"));
    let (ours, theirs) = (one.make("ours"), other.make("theirs"));
    for at in 0..8 {
        write(&one, ours, at).unwrap();
    }
    // Nothing of that is committed: it is set aside all the same.
    let took = (0..20).take_while(|at| write(&other, theirs, *at).is_ok()).count();
    assert!((8..=12).contains(&took), "{took} of the 12 MiB that are left, but for what is to spare");
    finds_no_room(write(&other, theirs, took as u64));
    // What fits a row takes nothing.
    other.write(other.make("tiny"), 0, &[1; 100]);
    other.volume.sync_file(theirs).unwrap();
    one.volume.sync_file(ours).unwrap();
    assert_eq!((one.size(ours), other.size(theirs)), (8 * MIB, took as u64 * MIB));
    // What is removed is there for others, who ask again.
    one.volume.unlink(Ino::ROOT, b"ours", &|_| false).unwrap();
    until("room", || {
        world.owner().unwrap().tidy().unwrap();
        write(&other, theirs, took as u64).is_ok()
    });
}

#[test]
fn what_is_written_over_and_over_takes_the_room_of_once() {
    let world = World::new();
    world.owner().unwrap().set_limit(Some(20 * MIB));
    let client = world.client("one");
    let ino = client.make("file");
    for _ in 0..10 {
        for at in 0..8 {
            write(&client, ino, at).unwrap();
        }
    }
    client.volume.sync_file(ino).unwrap();
    assert_eq!(client.size(ino), 8 * MIB);
    // What it replaces is free only once some of it is committed.
    world.owner().unwrap().set_limit(Some(12 * MIB));
    for at in 0..8 {
        write(&client, ino, at).unwrap();
    }
    client.volume.sync_file(ino).unwrap();
}

#[test]
fn a_limit_counts_from_when_it_is_set_and_no_longer_once_it_is_taken_away() {
    let world = World::new();
    let client = world.client("one");
    let ino = client.make("file");
    write(&client, ino, 0).unwrap();
    let asked = client.wire.asked.load(std::sync::atomic::Ordering::SeqCst);
    write(&client, ino, 1).unwrap();
    let now = client.wire.asked.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(now, asked, "without a limit nobody is asked");
    world.owner().unwrap().set_limit(Some(4 * MIB));
    write(&client, ino, 2).unwrap();
    finds_no_room((3..10).map(|at| write(&client, ino, at)).find(Result::is_err).unwrap());
    world.owner().unwrap().set_limit(None);
    for at in 3..10 {
        write(&client, ino, at).unwrap();
    }
    client.volume.sync_file(ino).unwrap();
}

#[test]
fn another_owner_sets_aside_what_is_kept_back() {
    let world = World::new();
    world.owner().unwrap().set_limit(Some(20 * MIB));
    let (one, other) = (world.client("one"), world.client("other"));
    let (ours, theirs) = (one.make("ours"), other.make("theirs"));
    for at in 0..12 {
        write(&one, ours, at).unwrap();
    }
    world.kill();
    world.start();
    let owner = world.owner().unwrap();
    owner.set_limit(Some(20 * MIB));
    one.make("it is greeted");
    until("the renewal", || owner.reserved() + owner.status().used >= 12 * MIB);
    finds_no_room((0..12).map(|at| write(&other, theirs, at)).find(Result::is_err).unwrap());
    one.volume.sync_file(ours).unwrap();
    assert_eq!(one.size(ours), 12 * MIB);
}

#[test]
fn who_is_refused_leaves_what_room_there_is_to_others() {
    let world = World::new();
    world.owner().unwrap().set_limit(Some(MIB / 2));
    let (one, other) = (world.client("one"), world.client("other"));
    let (ours, theirs) = (one.make("ours"), other.make("theirs"));
    finds_no_room(write(&one, ours, 0));
    other.write(theirs, 0, &[5; 400 << 10]);
    other.volume.sync_file(theirs).unwrap();
}

#[test]
fn who_waits_for_room_waits_no_longer_than_he_is_patient() {
    let world = World::new();
    world.owner().unwrap().set_limit(Some(200 * MIB));
    let timeout = Some(Duration::from_millis(300));
    let (one, other) =
        (world.client_with(Settings { timeout, ..Settings::of("v", "one") }), world.client("other"));
    let ino = other.make("file");
    // While there is an owner, it may be slow.
    until("the first write", || write(&one, ino, 0).is_ok());
    world.kill();
    let refused = thread::scope(|scope| {
        let writing = scope.spawn(|| (1..60).map(|at| write(&one, ino, at)).find(Result::is_err));
        let began = Instant::now();
        while !writing.is_finished() && began.elapsed() < NEVER {
            thread::sleep(Duration::from_millis(2));
        }
        let ended = writing.is_finished();
        world.start();
        let refused = writing.join().unwrap();
        assert!(ended, "it waited for an owner");
        refused
    });
    let refused = format!("{:?}", refused.unwrap().unwrap_err());
    assert!(refused.contains("TimedOut"), "{refused}");
}
