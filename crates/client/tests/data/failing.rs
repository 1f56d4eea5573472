//! Stores and owners that fail, and what becomes of what was kept back.

use std::time::Duration;

use forebay_client::{ClientError, ContentsOptions, Room};
use forebay_meta::{SetAttr, SetTime};
use forebay_object::{Backend, ErrorKind, Fault, Operation};
use forebay_protocol::Failure;

use crate::{
    owner::Mishap,
    world::{World, bytes, until},
};

#[test]
fn a_put_whose_answer_is_lost_is_known_again() {
    let world = World::new();
    let client = world.client();
    let (ino, data) = (world.make(), bytes(1, 50_000));
    client.write(ino, 0, &data);
    world.faulty.plan(Operation::PutNew, Fault::LoseAnswer);
    client.settle(ino);
    assert_eq!((world.faulty.count(Operation::PutNew), world.objects().len()), (2, 1));
    assert_eq!(world.read_elsewhere(ino), data);
    client.write(ino, 0, &data);
    world.faulty.plan(Operation::PutNew, Fault::FailBefore);
    client.settle(ino);
    assert_eq!(world.objects().len(), 2);
    world.assert_accounted_for();
}

#[test]
fn somebody_elses_object_is_not_taken_for_ours() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    client.write(ino, 0, &bytes(1, 50_000));
    client.settle(ino);
    // Whatever is under the next name was put by nobody who may.
    let next = world.owner.given.lock().first().copied().unwrap();
    let foreign = world.store().get(&world.objects().first().unwrap().key()).unwrap().0;
    world.store().put_new(&next.key(), foreign).unwrap();
    client.write(ino, 0, &bytes(2, 50_000));
    world.faulty.plan(Operation::PutNew, Fault::FailBefore);
    assert!(matches!(client.try_settle(ino), Err(ClientError::Store(_))));
    client.settle(ino);
    assert_eq!(world.read_elsewhere(ino), bytes(2, 50_000));
}

#[test]
fn a_commit_that_is_on_its_way_does_not_land_over_a_later_one() {
    let world = World::new();
    let client = world.client();
    let (ino, former, later) = (world.make(), bytes(1, 50_000), bytes(2, 50_000));
    client.write(ino, 0, &former);
    world.owner.mishaps.lock().push(Mishap::Held);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.try_settle(ino));
        until("a commit on its way", || world.owner.held() == 1);
        client.write(ino, 0, &later);
        world.faulty.set_away(true);
        assert!(matches!(client.try_settle(ino), Err(ClientError::Store(_))), "both layers come back");
        world.faulty.set_away(false);
        let puts = world.faulty.count(Operation::PutNew);
        let second = scope.spawn(|| client.settle(ino));
        let times = scope.spawn(|| {
            let mtime = Some(SetTime::Now);
            client.contents.before_set_attr(ino, &SetAttr { mtime, ..SetAttr::default() })
        });
        until("the next one is put", || world.faulty.count(Operation::PutNew) > puts);
        // As long as it takes to see that neither goes ahead; with less of it this finds less.
        let overtakes = || second.is_finished() || times.is_finished();
        let _ = (0..50).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            overtakes()
        });
        let overtook = overtakes();
        world.owner.release();
        assert!(!overtook, "the commit before may yet land over it");
        second.join().unwrap();
        times.join().unwrap().unwrap();
        drop(first.join().unwrap());
    });
    assert!(world.read_elsewhere(ino) == later);
}

#[test]
fn commits_that_are_not_answered_are_made_again() {
    for mishap in [Mishap::Unheard, Mishap::Unanswered] {
        let world = World::new();
        let client = world.client();
        let (large, tiny) = (world.make(), world.make());
        client.write(large, 0, &bytes(1, 100_000));
        client.write(tiny, 0, &[1; 100]);
        world.owner.mishaps.lock().push(mishap);
        assert!(matches!(client.contents.settle(&[large, tiny]), Err(ClientError::TimedOut(_))));
        assert_eq!(client.read_all(large), bytes(1, 100_000));
        // What was written before and after is put together.
        client.write(large, 50_000, &[9; 100]);
        client.write(tiny, 50, &[2; 100]);
        client.contents.settle(&[large, tiny]).unwrap();
        let mut expected = bytes(1, 100_000);
        expected[50_000..50_100].fill(9);
        assert_eq!(world.read_elsewhere(large), expected);
        assert_eq!(world.read_elsewhere(tiny), [vec![1; 50], vec![2; 100]].concat());
        assert_eq!(client.contents.stats().kept, 0);
        world.assert_accounted_for();
    }
}

#[test]
fn a_later_layer_comes_back_with_an_earlier_one() {
    let world = World::new();
    let client = world.client();
    let (ino, other) = (world.make(), world.make());
    client.write(ino, 0, &[1; 10_000]);
    world.gate.set_closed(true);
    // Failures are planned in the order of the puts.
    (0..3).for_each(|_| world.faulty.plan(Operation::PutNew, Fault::Refuse(ErrorKind::Denied)));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.try_settle(ino));
        world.gate.wait_for(1);
        client.write(ino, 5000, &[2; 10_000]);
        client.write(other, 0, &[3; 3 << 20]);
        let second = scope.spawn(|| client.try_settle(ino));
        world.gate.wait_for(2);
        world.gate.set_closed(false);
        assert!(first.join().unwrap().is_err());
        assert!(second.join().unwrap().is_err());
    });
    let expected = [vec![1; 5000], vec![2; 10_000]].concat();
    assert_eq!(client.read_all(ino), expected);
    until("the planned failures are used up", || client.try_settle(ino).is_ok());
    client.settle(other);
    assert_eq!(world.read_elsewhere(ino), expected);
    assert_eq!(world.read_elsewhere(other), vec![3; 3 << 20]);
    assert_eq!(client.contents.stats().kept, 0);
}

#[test]
fn numbers_that_came_to_nothing_are_given_back() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    client.write(ino, 0, &bytes(1, 50_000));
    (0..200).for_each(|_| world.faulty.plan(Operation::PutNew, Fault::Refuse(ErrorKind::Denied)));
    for round in 0..200 {
        assert!(client.try_settle(ino).is_err(), "{round}");
        let given = world.owner.given.lock().len();
        assert!(given <= 40, "after {round} that failed a session has {given} numbers that it will not use");
    }
    client.settle(ino);
    assert_eq!(world.read_elsewhere(ino), bytes(1, 50_000));
    world.assert_accounted_for();
}

#[test]
fn a_store_that_was_away_gets_everything() {
    let world = World::new();
    let client = world.client_with(ContentsOptions { budget: 300_000, ..world.options() });
    let (ino, other) = (world.make(), world.make());
    client.write(ino, 0, &bytes(1, 200_000));
    world.faulty.set_away(true);
    assert!(matches!(client.try_settle(ino), Err(ClientError::Store(_))));
    assert!(client.contents.has_kept(ino));
    assert_eq!(client.read_all(ino), bytes(1, 200_000));
    assert_eq!(client.contents.take_failure(ino), None, "nothing is lost");
    std::thread::scope(|scope| {
        // Waits for room, and does not fail: the store may come back.
        let writer = scope.spawn(|| client.try_write(other, 0, &bytes(2, 200_000), Room::Wait));
        let tried = world.faulty.count(Operation::PutNew);
        assert!(client.try_settle(ino).is_err());
        assert!(world.faulty.count(Operation::PutNew) > tried);
        world.faulty.set_away(false);
        client.settle(ino);
        writer.join().unwrap().unwrap();
    });
    client.settle(other);
    assert_eq!(world.read_elsewhere(ino), bytes(1, 200_000));
    assert_eq!(world.read_elsewhere(other), bytes(2, 200_000));
}

#[test]
fn a_full_store_is_told_to_who_waits() {
    let world = World::new();
    let client = world.client_with(ContentsOptions { budget: 100_000, ..world.options() });
    let ino = world.make();
    client.write(ino, 0, &bytes(1, 90_000));
    world.faulty.plan(Operation::PutNew, Fault::Refuse(ErrorKind::NoSpace));
    let full = Err(ClientError::Failed(Failure::NoSpace));
    assert_eq!(client.try_settle(ino), full);
    assert_eq!(client.try_write(ino, 90_000, &[1; 50_000], Room::Wait), full);
    client.settle(ino);
    client.write(ino, 90_000, &[1; 50_000]);
    client.settle(ino);
    assert_eq!(world.read_elsewhere(ino).len(), 140_000);
}

#[test]
fn wrong_bytes_are_an_error() {
    let world = World::new();
    let client = world.client();
    let (ino, data) = (world.make(), bytes(1, 300_000));
    client.write(ino, 0, &data);
    client.settle(ino);
    let key = world.objects().first().unwrap().key();
    let path = world.dir.path().join("store").join(key);
    let mut stored = std::fs::read(&path).unwrap();
    let reader = world.client();
    // One bit that is wrong once, on its way, is fetched again.
    world.faulty.plan(Operation::GetRange, Fault::FlipBit);
    assert_eq!(reader.read_all(ino), data);
    stored[20_000] ^= 4;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &stored).unwrap();
    let failed = world.client().try_read(ino, 0, 300_000);
    assert!(matches!(&failed, Err(ClientError::Store(why)) if why.contains("damaged")), "{failed:?}");
}

#[test]
fn a_client_that_dies_leaves_only_what_the_owner_can_find() {
    let world = World::new();
    let client = world.client();
    let (ino, other) = (world.make(), world.make());
    client.write(ino, 0, &[1; 5000]);
    client.settle(ino);
    client.write(ino, 0, &[2; 5000]);
    client.write(other, 0, &[2; 5000]);
    world.owner.mishaps.lock().push(Mishap::Unheard);
    assert!(client.contents.settle(&[ino, other]).is_err());
    drop(client);
    assert_eq!(world.objects().len(), 2);
    assert_eq!(world.named().len(), 1);
    world.assert_accounted_for();
    assert_eq!(world.read_elsewhere(ino), [1; 5000]);
    assert!(world.read_elsewhere(other).is_empty());
}

#[test]
fn the_end_of_a_session_loses_what_was_kept_back_and_says_so_once() {
    let world = World::new();
    let client = world.client();
    let (ino, clean) = (world.make(), world.make());
    client.write(clean, 0, &[1; 5000]);
    client.write(ino, 0, &[1; 5000]);
    client.contents.settle_all().unwrap();
    client.write(ino, 2000, &[2; 50_000]);
    // A batch that is on its way is not told in the next session.
    world.gate.set_closed(true);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| client.try_settle(ino));
        world.gate.wait_for(1);
        world.owner.end_session();
        client.contents.session_ended(&|_| false);
        world.gate.set_closed(false);
        let _ = waits.join().unwrap();
    });
    assert_eq!(client.contents.take_failure(clean), None);
    assert_eq!(client.contents.take_failure(ino), Some(ClientError::SessionEnded));
    assert_eq!(client.contents.take_failure(ino), None);
    assert_eq!(client.contents.stats().kept, 0);
    client.forget(ino);
    assert_eq!(client.read_all(ino), [1; 5000]);
    client.write(ino, 0, &[3; 10]);
    client.settle(ino);
    assert_eq!(world.read_elsewhere(ino), [vec![3; 10], vec![1; 4990]].concat());
    assert_eq!(world.named().len(), 2);
    world.assert_accounted_for();
}

#[test]
fn what_an_ended_session_kept_is_not_committed_in_the_next() {
    let world = World::new();
    let client = world.client();
    let ino = world.make();
    client.write(ino, 0, &[1; 5000]);
    // The session is another one already, and nobody has said so.
    world.owner.end_session();
    client.settle(ino);
    assert_eq!(client.contents.take_failure(ino), Some(ClientError::SessionEnded));
    assert!(world.read_elsewhere(ino).is_empty());
}
