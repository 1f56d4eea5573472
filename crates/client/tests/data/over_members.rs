//! Writing over members' logs on disk, by way of the network. The owner asserts that each member of a set has on stable storage what a commit names.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use forebay_client::{TellsLoss, Within};
use forebay_group::ViewEpoch;
use forebay_protocol::group::{SegmentAnswer, SegmentRefusal, Taken};
use forebay_types::{Compression, Epoch, Ino};

use crate::{
    fleet::id,
    remote::{Fault, Group},
    world::{Client, World, bytes, until},
};

fn over(world: &World, group: &Arc<Group>) -> Client {
    world.client_with(group.options(world, "elsewhere"))
}

fn write(client: &Client, ino: Ino, seed: u64, len: usize) -> Vec<u8> {
    let data = bytes(seed, len);
    client.write(ino, 0, &data);
    data
}

#[test]
fn a_sync_returns_once_exactly_k_logs_have_it() {
    for copies in [2, 3] {
        let world = World::with(Compression::None);
        let group = Group::of(&world, 4, Some(copies));
        let client = over(&world, &group);
        let (one, two) = (world.make(), world.make());
        let (first, second) = (write(&client, one, 1, 5000), write(&client, two, 2, 9 << 20));
        client.settle(one);
        client.settle(two);
        assert!(world.objects().is_empty(), "nothing went to the store");
        let lanes = world.owner.lanes.lock().clone();
        assert!(lanes.len() > 3, "{lanes:?}");
        for (segment, row) in &lanes {
            assert_eq!(row.set.len(), usize::from(copies));
            for number in 1..=4 {
                let has = group.kept(number).get(segment).is_some_and(|(end, _)| *end > 0);
                assert!(!has || row.set.contains(&id(number)), "{number} has {segment}: {row:?}");
            }
        }
        // Nothing of it is in the store: others read what members have, also where one of each set is gone.
        let other = over(&world, &group);
        assert!(other.read_all(one) == first && other.read_all(two) == second);
        group.kill(1);
        let third = over(&world, &group);
        assert!(third.read_all(one) == first && third.read_all(two) == second);
    }
}

#[test]
fn at_the_end_members_hear_of_the_ends_of_segments() {
    let world = World::new();
    let group = Group::of(&world, 3, Some(2));
    let client = over(&world, &group);
    let ino = world.make();
    write(&client, ino, 1, 300_000);
    client.settle(ino);
    client.contents.stop();
    let lanes = world.owner.lanes.lock().clone();
    assert!(lanes.values().all(|row| row.settled && row.sealed.is_some()), "{lanes:?}");
    let kept: Vec<_> =
        (1..=3).flat_map(|number| group.kept(number)).filter(|(_, (end, _))| *end > 0).collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(kept.iter().all(|(_, (_, sealed))| *sealed), "{kept:?}");
}

#[test]
fn a_member_that_is_lost_in_the_middle_costs_nothing() {
    enum Loss {
        Killed,
        Fails(Fault),
    }
    for loss in [Loss::Killed, Loss::Fails(Fault::Deaf), Loss::Fails(Fault::Mute)] {
        let world = World::with(Compression::None);
        let group = Group::of(&world, 3, Some(2));
        let client = over(&world, &group);
        let (one, two) = (world.make(), world.make());
        let first = write(&client, one, 1, 100_000);
        client.settle(one);
        match loss {
            Loss::Killed => group.kill(2),
            // In the middle of what comes.
            Loss::Fails(fault) => group.plan(2, 2, fault),
        }
        let second = write(&client, two, 2, 12 << 20);
        client.settle(two);
        assert!(world.objects().is_empty(), "two members are left");
        // Not even that one is needed.
        group.kill(2);
        let other = over(&world, &group);
        assert!(other.read_all(one) == first && other.read_all(two) == second);
    }
}

type Lie = fn(&mut Taken);

#[test]
fn a_member_that_lies_is_not_believed() {
    let lies: [(&str, Lie); 7] = [
        ("more than was sent", |taken| ends(taken, |end| end + 4096)),
        ("less than was sent", |taken| ends(taken, |end| end - 1)),
        ("another member", |taken| taken.member = id(3)),
        ("no answer at all", |taken| taken.parts.clear()),
        ("two answers", |taken| taken.parts.push(taken.parts[0])),
        ("a later epoch", |taken| refuses(taken, SegmentRefusal::Fenced(Epoch(2)))),
        ("an earlier epoch", |taken| refuses(taken, SegmentRefusal::Fenced(Epoch(0)))),
    ];
    for (what, lie) in lies {
        let world = World::new();
        let group = Group::of(&world, 3, Some(2));
        let client = over(&world, &group);
        let ino = world.make();
        group.plan(2, 0, Fault::Lies(lie));
        // In each directory the segments of some are placed on it.
        let data = write(&client, ino, 1, 16 << 20);
        client.settle(ino);
        assert!(group.appends(2) > 0, "{what}: it was not asked");
        assert!(world.objects().is_empty(), "{what}: two members are left");
        assert!(over(&world, &group).read_all(ino) == data, "{what}");
    }
}

fn ends(taken: &mut Taken, change: impl Fn(u64) -> u64) {
    for part in &mut taken.parts {
        if let SegmentAnswer::Synced { end } = part {
            *end = change(*end);
        }
    }
}

fn refuses(taken: &mut Taken, why: SegmentRefusal) {
    taken.parts.iter_mut().for_each(|part| *part = SegmentAnswer::Refused(why));
}

#[test]
fn who_has_another_members_address_gets_nothing_for_it() {
    let world = World::new();
    let group = Group::of(&world, 2, Some(2));
    // The second one's disk was lost; what is at its address by now is another member.
    group.confuse(2, 1);
    let client = over(&world, &group);
    let ino = world.make();
    let data = write(&client, ino, 1, 300_000);
    client.settle(ino);
    assert_eq!(world.objects().len(), 1, "one copy is no copy");
    assert!(world.read_elsewhere(ino) == data);
}

#[test]
fn with_fewer_members_than_copies_the_store_has_it_before_a_sync_returns() {
    let world = World::new();
    let group = Group::of(&world, 2, Some(2));
    let client = over(&world, &group);
    let (one, two, three) = (world.make(), world.make(), world.make());
    let first = write(&client, one, 1, 300_000);
    client.settle(one);
    assert!(world.objects().is_empty());
    group.kill(2);
    let second = write(&client, two, 2, 300_000);
    client.settle(two);
    let third = write(&client, three, 3, 300_000);
    client.settle(three);
    assert_eq!(world.objects().len(), 2, "never a single copy");
    assert!(world.read_elsewhere(two) == second && world.read_elsewhere(three) == third);
    assert!(over(&world, &group).read_all(one) == first, "the one that is left has it");
}

#[test]
fn who_does_not_act_or_drains_is_passed_by() {
    let world = World::new();
    let group = Group::of(&world, 4, Some(2));
    group.says(1, |says| says.out.store(true, SeqCst));
    group.says(2, |says| says.draining.store(true, SeqCst));
    let client = over(&world, &group);
    let ino = world.make();
    let data = write(&client, ino, 1, 24 << 20);
    client.settle(ino);
    assert!(world.objects().is_empty(), "two members are left");
    let has = |number| group.kept(number).values().any(|(end, _)| *end > 0);
    assert_eq!([1, 2, 3, 4].map(has), [false, false, true, true]);
    assert!(over(&world, &group).read_all(ino) == data);
}

#[test]
fn a_group_that_nobody_tells_of_at_first_is_asked_for_again_soon() {
    for older in [false, true] {
        is_asked_for_again(older);
    }
}

/// `older`: the servers tell of one group alone, and know of no others.
fn is_asked_for_again(older: bool) {
    let world = World::new();
    let group = Group::of(&world, 2, Some(2));
    group.older.store(older, SeqCst);
    // More often than one asks in a minute who is in no hurry.
    group.silent.store(8, SeqCst);
    let client = over(&world, &group);
    until("the group is told", || group.silent.load(SeqCst) == 0 && group.asked.load(SeqCst) >= 9);
    until("what is written goes to members", || {
        let objects = world.objects().len();
        let ino = world.make();
        write(&client, ino, 1, 5000);
        client.settle(ino);
        world.objects().len() == objects
    });
}

#[test]
fn a_later_view_that_a_member_tells_of_is_asked_for() {
    let world = World::new();
    let group = Group::of(&world, 2, Some(2));
    let client = over(&world, &group);
    let asked = group.asked.load(SeqCst);
    group.says(1, |says| says.view.store(ViewEpoch(2).0, SeqCst));
    // More often than without being told, within the patience of a test.
    until("the view is asked for", || {
        let ino = world.make();
        write(&client, ino, 1, 20_000);
        client.settle(ino);
        group.asked.load(SeqCst) > asked + 10
    });
}

#[test]
fn another_number_of_copies_counts_for_all_that_is_written_then() {
    let world = World::new();
    let group = Group::of(&world, 3, Some(2));
    let options = group.options(&world, "elsewhere");
    let known = options.members.clone().unwrap();
    let client = world.client_with(options);
    let mut view = 1;
    let mut change = |copies| {
        *group.writes.lock() = copies;
        view += 1;
        group.says(1, |says| says.view.store(view, SeqCst));
        let ino = world.make();
        write(&client, ino, view, 20_000);
        client.settle(ino);
        until("it is heard", || known.writes_over(Within::Any).map(|over| over.copies) == copies);
        let before = world.owner.lanes.lock().len();
        let ino = world.make();
        let data = write(&client, ino, view, 20_000);
        client.settle(ino);
        assert!(over(&world, &group).read_all(ino) == data);
        world.owner.lanes.lock().len() - before
    };
    assert_eq!(change(Some(3)), 1, "what is open has two copies, and three are promised");
    let three = world.owner.lanes.lock().values().filter(|row| row.set.len() == 3).count();
    assert_eq!((three, world.objects().len()), (1, 0));
    change(None);
    assert_eq!(world.objects().len(), 1, "the store has it");
}

#[test]
fn a_volume_of_another_class_is_written_to_the_store() {
    for copies in [None, Some(0), Some(1), Some(9)] {
        let world = World::new();
        let group = Group::of(&world, 3, copies);
        let client = over(&world, &group);
        let ino = world.make();
        let data = write(&client, ino, 1, 300_000);
        client.settle(ino);
        assert_eq!((world.objects().len(), world.owner.counted("open")), (1, 0));
        assert!((1..=3).all(|number| group.appends(number) == 0));
        assert!(world.read_elsewhere(ino) == data);
    }
}

#[test]
fn one_log_of_this_machine_is_enough_where_the_class_says_so_and_none_elsewhere_is() {
    let world = World::with(Compression::None);
    let group = Group::of(&world, 4, Some(1));
    let client = world.client_with(group.options(&world, "node3"));
    let ino = world.make();
    let data = write(&client, ino, 1, 200_000);
    client.settle(ino);
    assert!(world.objects().is_empty(), "nothing went to the store");
    let lanes = world.owner.lanes.lock().clone();
    assert!(!lanes.is_empty() && lanes.values().all(|row| row.set == [id(3)]), "{lanes:?}");
    assert!([1, 2, 4].iter().all(|number| group.appends(*number) == 0));
    assert!(over(&world, &group).read_all(ino) == data, "others read it from there");
    let written = client.contents.stats();
    assert!(written.node_bytes >= 200_000 && written.group_bytes + written.object_bytes == 0, "{written:?}");
    // Its machine goes on without it: what is synced then is in the store.
    group.kill(3);
    let later = world.make();
    let data = write(&client, later, 2, 200_000);
    client.settle(later);
    assert!(world.read_elsewhere(later) == data);
    let later = client.contents.stats();
    assert!(later.node_bytes == written.node_bytes && later.object_bytes >= 200_000, "{later:?}");
    assert!([1, 2, 4].iter().all(|number| group.appends(*number) == 0));
}

#[test]
fn the_first_copy_is_this_machines() {
    let world = World::new();
    let group = Group::of(&world, 4, Some(2));
    let client = world.client_with(group.options(&world, "node3"));
    for seed in 0..4 {
        let ino = world.make();
        let data = write(&client, ino, seed, 200_000);
        client.settle(ino);
        client.forget(ino);
        assert!(client.read_all(ino) == data);
    }
    let lanes = world.owner.lanes.lock().clone();
    assert!(lanes.values().all(|row| row.set[0] == id(3)), "{lanes:?}");
    let read = client.contents.group().unwrap().read_from();
    assert!(read.node > 0 && read.group == 0, "{read:?}");
}

#[test]
fn what_a_huge_file_has_lost_is_asked_by_what_it_has() {
    let world = World::with(Compression::None);
    let group = Group::of(&world, 3, Some(2));
    let client = over(&world, &group);
    let ino = world.make();
    // Half a PiB, nearly all of it a hole.
    for at in [0, 1 << 30, 1 << 49] {
        client.write(ino, at, &bytes(at, 5000));
    }
    client.settle(ino);
    client.contents.something_lost();
    let maps = world.owner.counted("map");
    client.contents.tell_loss(ino, TellsLoss::Sync).unwrap();
    assert_eq!(world.owner.counted("map") - maps, 2, "all that it has, and that nothing follows");
}
