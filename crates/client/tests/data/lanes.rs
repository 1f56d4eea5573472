//! Writing over the logs of a group's members. The owner asserts that every member of a set has what a commit names, and that nothing is named once it was settled.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use forebay_client::{ClientError, ContentsOptions, Members};
use forebay_object::Operation;
use forebay_types::{Compression, Ino};

use crate::{
    fleet::{Fault, Fleet, id},
    owner::{HasCopies, Mishap},
    world::{BLOCK, Client, Random, World, bytes, until},
};

fn over(world: &World, fleet: &Arc<Fleet>) -> Client {
    world.client_with(options(world, fleet))
}

fn options(world: &World, fleet: &Arc<Fleet>) -> ContentsOptions {
    *world.owner.fleet.lock() = Some(Arc::clone(fleet) as Arc<dyn HasCopies>);
    ContentsOptions { members: Some(Arc::clone(fleet) as Arc<dyn Members>), ..world.options() }
}

fn write(client: &Client, ino: Ino, seed: u64, len: usize) -> Vec<u8> {
    let data = bytes(seed, len);
    client.write(ino, 0, &data);
    data
}

#[test]
fn an_fsync_puts_nothing_and_others_read_what_members_have() {
    let world = World::new();
    let fleet = Fleet::of(3);
    let client = over(&world, &fleet);
    let (one, two) = (world.make(), world.make());
    let (first, second) = (write(&client, one, 1, 5000), write(&client, two, 2, 3 << 20));
    client.contents.settle_all().unwrap();
    assert!(world.objects().is_empty(), "nothing went to the store");
    client.forget(one);
    assert_eq!(client.read_all(one), first);
    let other = over(&world, &fleet);
    assert!(other.read_all(one) == first && other.read_all(two) == second);
    // One member of each set is enough.
    fleet.set_fault(1, Some(Fault::Refuses));
    assert!(over(&world, &fleet).read_all(two) == second);
    fleet.set_fault(1, None);
    // The client ends: all is sealed and settled, members put it, and it is read from the store.
    client.contents.stop();
    let lanes = world.owner.lanes.lock().clone();
    assert!(lanes.values().all(|row| row.settled && row.sealed.is_some()), "{lanes:?}");
    assert!(fleet.put(&world) > 0);
    assert!(other.read_all(one) == first && other.read_all(two) == second, "who knew the sets asks again");
    assert!(world.read_elsewhere(two) == second);
}

#[test]
fn one_copy_is_on_this_machine_or_in_the_store() {
    let world = World::new();
    let fleet = Fleet::of(3);
    fleet.set_class(1, &[2]);
    let client = over(&world, &fleet);
    let known = || world.owner.lanes.lock().clone();
    let (small, large) = (world.make(), world.make());
    let (first, second) = (write(&client, small, 1, 5000), write(&client, large, 2, 9 << 20));
    client.contents.settle_all().unwrap();
    assert!(world.objects().is_empty(), "nothing went to the store");
    assert!(known().len() > 2 && known().values().all(|row| row.set == [id(2)]), "{:?}", known());
    let other = over(&world, &fleet);
    assert!(other.read_all(small) == first && other.read_all(large) == second);
    // It takes nothing any more, or is not there: never one of the others alone.
    for refuses in [true, false] {
        if refuses {
            fleet.set_fault(2, Some(Fault::Refuses));
        } else {
            fleet.set_active(2, false);
        }
        let ino = world.make();
        let data = write(&client, ino, 3, 300_000);
        client.settle(ino);
        assert!(world.read_elsewhere(ino) == data, "the store has it");
        fleet.set_fault(2, None);
    }
    assert!(known().values().all(|row| row.set == [id(2)]), "{:?}", known());
    // Another disk of this machine comes up; then more is promised, and what is open has too few copies.
    for (copies, seed) in [(1, 4), (2, 5)] {
        fleet.set_class(copies, &[2, 3]);
        let (before, put, ino) = (known(), world.objects().len(), world.make());
        write(&client, ino, seed, 5000);
        client.settle(ino);
        let opened: Vec<_> =
            known().into_iter().filter(|(segment, _)| !before.contains_key(segment)).collect();
        assert_eq!((opened.len(), world.objects().len()), (1, put));
        assert_eq!((opened[0].1.set.len(), opened[0].1.set[0]), (usize::from(copies), id(3)));
    }
    client.contents.stop();
    assert!(known().values().all(|row| row.settled && row.sealed.is_some()));
}

#[test]
fn disks_of_this_machine_take_segments_in_turn() {
    let world = World::with(Compression::None);
    let fleet = Fleet::of(3);
    fleet.set_class(1, &[2, 3]);
    let client = over(&world, &fleet);
    // Each fills a segment, and is no stream.
    for seed in 0..6 {
        let ino = world.make();
        write(&client, ino, seed, 3 << 20);
        client.settle(ino);
    }
    let known = world.owner.lanes.lock().clone();
    let having = |number| known.values().filter(|row| row.set == [id(number)]).count();
    assert_eq!((having(2), having(3)), (3, 3), "{known:?}");
}

#[test]
fn a_segment_is_filled_by_one_batch_after_the_other() {
    let world = World::new();
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    for seed in 0..20 {
        let ino = world.make();
        write(&client, ino, seed, 4000);
        client.settle(ino);
    }
    assert_eq!(world.owner.counted("open"), 1);
    let lanes = world.owner.lanes.lock().clone();
    assert_eq!(lanes.len(), 1, "small files of one directory lie in one segment: {lanes:?}");
}

#[test]
fn a_stream_lies_in_many_segments() {
    let world = World::with(Compression::None);
    let fleet = Fleet::of(4);
    let client = over(&world, &fleet);
    let ino = world.make();
    let data = write(&client, ino, 7, 20 << 20);
    client.settle(ino);
    let used: Vec<_> = {
        let segments = world.owner.ns.segments();
        segments.into_iter().filter(|(_, row)| row.live > 0).map(|(id, _)| id).collect()
    };
    assert!((5..=8).contains(&used.len()), "{used:?}");
    assert!(used.iter().all(|segment| segment.0.is_multiple_of(256)));
    assert!(over(&world, &fleet).read_all(ino) == data);
}

#[test]
fn a_stream_is_appended_to_several_segments_at_a_time_where_that_takes_long() {
    let world = World::new();
    let fleet = Fleet::of(4);
    let client = over(&world, &fleet);
    let ino = world.make();
    // The second one takes until a third has begun, which only another thread can begin.
    fleet.set_takes(Duration::from_millis(35));
    fleet.accompany(2);
    let data = write(&client, ino, 1, 24 << 20);
    client.settle(ino);
    assert!((2..=4).contains(&fleet.most_under_way()), "{}", fleet.most_under_way());
    assert!(over(&world, &fleet).read_all(ino) == data);
}

#[test]
fn a_full_segment_is_put_while_its_batch_is_under_way() {
    let world = World::with(Compression::None);
    let fleet = Fleet::of(4);
    let client = over(&world, &fleet);
    let ino = world.make();
    let data = write(&client, ino, 3, 12 << 20);
    // Of 24 of half a MiB.
    fleet.hold(20);
    thread::scope(|scope| {
        scope.spawn(|| client.settle(ino));
        let (sealed, taken) = (fleet.await_sealed(), fleet.put(&world));
        let live: u64 = world.owner.ns.segments().iter().map(|(_, row)| row.live).sum();
        fleet.let_go_on();
        assert!(sealed && taken > 0 && live == 0, "{taken} segments, {live} bytes of the batch are named");
    });
    assert!(over(&world, &fleet).read_all(ino) == data);
}

#[test]
fn a_writer_gives_members_the_time_that_they_ask_for() {
    let world = World::with(Compression::None);
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    fleet.set_pace(2, Duration::from_millis(20));
    let ino = world.make();
    let data = write(&client, ino, 1, 6 << 20);
    let began = Instant::now();
    client.settle(ino);
    // 12 appends of half a MiB each, and nobody helps.
    assert!(began.elapsed() >= 12 * Duration::from_millis(20));
    assert_eq!(fleet.most_under_way(), 1);
    assert!(over(&world, &fleet).read_all(ino) == data);
}

#[test]
fn a_directory_that_fills_segments_by_large_appends_has_them_apart() {
    let world = World::with(Compression::None);
    let fleet = Fleet::of(4);
    let client = over(&world, &fleet);
    let apart = || world.owner.lanes.lock().values().filter(|row| row.apart).count();
    let synced = |times: u64, len: usize| {
        for seed in 0..times {
            let ino = world.make();
            write(&client, ino, seed, len);
            client.settle(ino);
        }
        world.owner.lanes.lock().len()
    };
    assert_eq!((synced(60, 60 << 10), apart()), (2, 0), "small files keep each other company");
    assert_eq!((synced(5, 1 << 20), apart()), (3, 0), "none was filled by large ones alone");
    synced(12, 1 << 20);
    assert!(apart() > 0);
}

#[test]
fn no_batch_goes_beyond_the_end_of_a_segment() {
    let world = World::of_blocks(Compression::None, 4 << 20);
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    // Just too little to be appended by itself, and the largest run: twice that is not quite a full segment.
    for seed in 0..6 {
        let (one, two) = (world.make(), world.make());
        let (first, second) = (write(&client, one, seed, 400_000), write(&client, two, seed + 100, 1 << 20));
        client.contents.settle_all().unwrap();
        let other = over(&world, &fleet);
        assert!(other.read_all(one) == first && other.read_all(two) == second, "{seed}");
    }
    assert!(world.objects().is_empty(), "nothing went to the store");
}

#[test]
fn a_member_that_fails_costs_nothing() {
    for fault in [Fault::Refuses, Fault::Mute] {
        for at in 1..6 {
            let world = World::new();
            let fleet = Fleet::of(3);
            let client = over(&world, &fleet);
            let ino = world.make();
            fleet.plan(at, 2, fault);
            let data = write(&client, ino, at, 6 << 20);
            client.settle(ino);
            assert!(world.objects().is_empty(), "two members are left");
            fleet.set_fault(2, None);
            assert!(over(&world, &fleet).read_all(ino) == data, "{fault:?} at {at}");
            client.contents.stop();
            // What a member has beyond what was acknowledged is of no use to anybody.
            for row in world.owner.lanes.lock().values() {
                assert!(row.settled && row.sealed.is_some());
            }
            fleet.put(&world);
            assert!(world.read_elsewhere(ino) == data, "{fault:?} at {at}");
        }
    }
}

#[test]
fn segments_of_members_that_fail_while_they_are_opened_are_opened_anew() {
    let world = World::with(Compression::None);
    let fleet = Fleet::of(3);
    let client = over(&world, &fleet);
    let (small, large) = (world.make(), world.make());
    let first = write(&client, small, 1, 5000);
    world.owner.holds_opened.store(true, Ordering::SeqCst);
    let second = std::thread::scope(|scope| {
        let settles = scope.spawn(|| client.settle(small));
        until("segments on their way", || world.owner.held() == 1);
        let member = world.owner.lanes.lock().values().next().unwrap().set[0];
        fleet.set_fault(member.0[0], Some(Fault::Refuses));
        let second = write(&client, large, 2, 12 << 20);
        client.settle(large);
        world.owner.release();
        settles.join().unwrap();
        second
    });
    assert!(world.objects().is_empty(), "two members are left");
    let other = over(&world, &fleet);
    assert!(other.read_all(small) == first && other.read_all(large) == second);
}

#[test]
fn who_waits_for_members_hears_that_others_learnt_where_the_store_has_it() {
    let world = World::new();
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    let (one, two) = (world.make(), world.make());
    let (first, second) = (write(&client, one, 1, 5000), write(&client, two, 2, 5000));
    client.contents.settle_all().unwrap();
    client.contents.stop();
    assert_eq!(world.owner.lanes.lock().len(), 1, "both lie in one segment");
    let other = over(&world, &fleet);
    (1..=2).for_each(|member| fleet.set_fault(member, Some(Fault::Refuses)));
    fleet.set_fails_after(Duration::from_secs(1));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| other.read_all(one) == first);
        until("a read that nobody answers", || fleet.failing() > 0);
        fleet.put(&world);
        assert!(other.read_all(two) == second, "it is in the store by now");
        assert!(waits.join().unwrap());
    });
}

#[test]
fn with_fewer_members_than_copies_objects_are_put() {
    let world = World::new();
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    let (one, two, three) = (world.make(), world.make(), world.make());
    fleet.set_fault(1, Some(Fault::Refuses));
    let first = write(&client, one, 1, 300 << 10);
    client.settle(one);
    assert_eq!(world.objects().len(), 1, "never a single copy");
    fleet.set_active(1, false);
    let second = write(&client, two, 2, 5000);
    client.settle(two);
    assert_eq!(world.objects().len(), 2);
    assert!(world.read_elsewhere(one) == first && world.read_elsewhere(two) == second);
    // In the middle of a batch.
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    fleet.plan(2, 1, Fault::Mute);
    let third = write(&client, three, 3, 3 << 20);
    client.settle(three);
    assert!(world.read_elsewhere(three) == third, "all of it is in the store");
}

#[test]
fn while_the_store_is_away_too_members_are_asked_again() {
    let world = World::new();
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    let ino = world.make();
    world.faulty.set_away(true);
    for fault in [Fault::Refuses, Fault::Mute] {
        fleet.set_fault(1, Some(fault));
        let (data, puts) = (write(&client, ino, 1, 300 << 10), world.faulty.count(Operation::PutNew));
        std::thread::scope(|scope| {
            let settled = scope.spawn(|| client.try_settle(ino));
            until("the store is asked", || world.faulty.count(Operation::PutNew) > puts);
            fleet.set_fault(1, None);
            assert_eq!(settled.join().unwrap(), Ok(()), "{fault:?}");
        });
        assert!(over(&world, &fleet).read_all(ino) == data);
    }
    world.faulty.set_away(false);
    assert!(world.objects().is_empty(), "nothing went to the store");
    world.faulty.set_away(true);
    // Nobody is left who could take it: the application hears of it.
    fleet.set_active(1, false);
    write(&client, ino, 2, 5000);
    assert!(matches!(client.try_settle(ino), Err(ClientError::Store(_))));
    world.faulty.set_away(false);
    client.settle(ino);
    assert_eq!(world.objects().len(), 1);
}

#[test]
fn a_commit_of_which_nobody_can_tell_settles_nothing() {
    let world = World::new();
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    let ino = world.make();
    world.owner.mishaps.lock().push(Mishap::Unanswered);
    let data = write(&client, ino, 1, 5000);
    assert!(matches!(client.try_settle(ino), Err(ClientError::TimedOut(_))));
    client.settle(ino);
    client.contents.stop();
    let lanes = world.owner.lanes.lock().clone();
    assert_eq!(lanes.len(), 2);
    assert_eq!(lanes.values().filter(|row| row.settled).count(), 1, "{lanes:?}");
    assert!(over(&world, &fleet).read_all(ino) == data);
}

#[test]
fn what_is_of_a_former_session_is_left_to_its_recovery() {
    let world = World::new();
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    let (one, two) = (world.make(), world.make());
    let first = write(&client, one, 1, 5000);
    client.settle(one);
    world.owner.end_session();
    client.contents.session_ended(&|_| false);
    let before: Vec<_> = world.owner.lanes.lock().keys().copied().collect();
    let second = write(&client, two, 2, 5000);
    client.settle(two);
    client.contents.stop();
    let lanes = world.owner.lanes.lock().clone();
    assert_eq!(lanes.len(), 2);
    assert!(before.iter().all(|segment| lanes[segment].sealed.is_none()), "{lanes:?}");
    let other = over(&world, &fleet);
    assert!(other.read_all(one) == first && other.read_all(two) == second);
}

#[test]
fn a_member_that_is_drained_gets_no_more_into_what_is_open() {
    let world = World::new();
    let fleet = Fleet::of(3);
    fleet.set_draining(1);
    fleet.set_pace(2, Duration::from_millis(1));
    let client = over(&world, &fleet);
    for seed in 0..6 {
        let ino = world.make();
        let data = write(&client, ino, seed, 5000);
        client.settle(ino);
        assert_eq!(over(&world, &fleet).read_all(ino), data);
    }
    let lanes = world.owner.lanes.lock().clone();
    let mut named = lanes.values().filter(|row| row.set.contains(&id(1)));
    assert!(named.all(|row| row.sealed.is_none_or(|sealed| sealed.len < 9000)), "{lanes:?}");
}

#[test]
fn what_was_open_for_long_is_sealed_without_being_asked() {
    let world = World::new();
    let fleet = Fleet::of(2);
    let client = over(&world, &fleet);
    // What the owner does not take is told again.
    world.owner.refuses_settle.store(true, Ordering::SeqCst);
    let ino = world.make();
    let data = write(&client, ino, 1, 5000);
    client.settle(ino);
    until("a seal", || world.owner.lanes.lock().values().all(|row| row.settled));
    assert_eq!(fleet.put(&world), 1);
    client.forget(ino);
    assert_eq!(client.read_all(ino), data);
}

#[test]
fn what_rests_is_sealed_while_all_that_store_are_at_work() {
    let world = World::with(Compression::None);
    let fleet = Fleet::of(2);
    let client = world.client_with(ContentsOptions { batches: 1, ..options(&world, &fleet) });
    let (small, large) = (world.make(), world.make());
    write(&client, small, 1, 5000);
    client.settle(small);
    let rests: Vec<_> = world.owner.lanes.lock().keys().copied().collect();
    fleet.hold(3);
    write(&client, large, 2, 12 << 20);
    thread::scope(|scope| {
        let waits = scope.spawn(|| client.settle(large));
        let is_settled = || rests.iter().all(|segment| world.owner.lanes.lock()[segment].settled);
        let settled = (0..150).any(|_| {
            thread::sleep(Duration::from_millis(100));
            is_settled()
        });
        let held = !waits.is_finished();
        fleet.let_go_on();
        assert!(settled && held);
    });
}

#[test]
fn a_large_group_that_takes_nothing_is_given_up_for_the_store() {
    let world = World::new();
    let fleet = Fleet::of(8);
    let client = over(&world, &fleet);
    // Until the last ones have failed the first ones may be chosen again.
    fleet.set_takes(Duration::from_secs(4));
    (1..=8).for_each(|member| fleet.set_fault(member, Some(Fault::Refuses)));
    let ino = world.make();
    let data = write(&client, ino, 1, 5000);
    thread::scope(|scope| {
        let settles = scope.spawn(|| client.settle(ino));
        let put = (0..300).any(|_| {
            thread::sleep(Duration::from_millis(100));
            settles.is_finished()
        });
        (1..=8).for_each(|member| fleet.set_fault(member, None));
        settles.join().unwrap();
        assert!(put);
    });
    assert!(world.read_elsewhere(ino) == data, "the store has it");
}

#[test]
fn random_writes_with_members_that_come_and_go_are_read_back() {
    let world = World::new();
    let fleet = Fleet::of(4);
    let client = over(&world, &fleet);
    let mut random = Random(11);
    let inos: Vec<Ino> = (0..4).map(|_| world.make()).collect();
    let mut models = vec![Vec::new(); 4];
    for step in 0..120 {
        let file = random.below(4) as usize;
        let (at, len) = (random.below(3 * u64::from(BLOCK)), 1 + random.below(200_000) as usize);
        let data = bytes(step, len);
        client.write(inos[file], at, &data);
        let model: &mut Vec<u8> = &mut models[file];
        let end = at as usize + len;
        model.resize(model.len().max(end), 0);
        model[at as usize..end].copy_from_slice(&data);
        match random.below(8) {
            0 => fleet
                .set_fault(1 + random.below(4) as u8, Some([Fault::Refuses, Fault::Mute][step as usize % 2])),
            1 => (1..5).for_each(|member| fleet.set_fault(member, None)),
            2 => client.contents.settle_all().unwrap(),
            3 => client.settle(inos[file]),
            _ => {}
        }
    }
    (1..5).for_each(|member| fleet.set_fault(member, None));
    client.contents.settle_all().unwrap();
    let other = over(&world, &fleet);
    for (ino, model) in inos.iter().zip(&models) {
        assert!(other.read_all(*ino) == *model);
    }
    client.contents.stop();
    fleet.put(&world);
    for (ino, model) in inos.iter().zip(&models) {
        assert!(world.read_elsewhere(*ino) == *model);
    }
    assert!(fleet.appends() > 0);
}
