//! From sealed segments in logs to objects in the store.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use forebay_object::{Backend, Fault, Operation};
use forebay_proxy::volumes::Pace;

use crate::bed::{World, pace, until};

#[test]
fn what_two_members_have_is_stored_once_and_given_up() {
    let world = World::new();
    let (mut a, mut b) = (world.member(1), world.member(2));
    world.view(1, &[a.id, b.id]);
    let writer = world.writer(1);
    let written = [("a", 400_000), ("b", 5_000)].map(|(name, len)| writer.writes(name, &[&a, &b], len));
    a.starts();
    b.starts();
    until("both are clean", || a.is_empty() && b.is_empty());
    assert_eq!((a.counted().puts, b.counted().puts), (1, 0), "the first of the set puts");
    until("both are counted", || (a.counted().dropped, b.counted().dropped) == (2, 2));
    assert_eq!(world.objects().len(), 1, "of one directory");
    let footer = world.footer(&world.objects()[0]);
    assert_eq!(footer.volume, crate::bed::V);
    // Who has put it may keep all of it.
    until("it is handed on", || !a.around.stored.lock().is_empty());
    let (stored, other) = (a.around.stored.lock().clone(), b.around.stored.lock().len());
    assert_eq!((stored.len(), other), (1, 0));
    assert_eq!(stored[0].1, written.each_ref().map(|(segment, ..)| *segment));
    assert_eq!(stored[0].2, world.store.get(&world.objects()[0]).unwrap().0);
    for ((segment, whole, ino), entry) in written.iter().zip(&footer.segments) {
        writer.is_stored(&world, *ino, whole);
        assert_eq!((entry.id, entry.len, entry.runs.len()), (*segment, whole.len() as u64, 2));
        assert!(entry.runs.iter().all(|run| run.ino == *ino));
        until("the row goes", || world.row(*segment).is_none());
        for member in [&a, &b] {
            let (place, bytes) = member.around.kept.lock()[segment].clone();
            assert_eq!((place.offset, &bytes), (entry.offset, whole));
        }
    }
    // What is written later goes the same way, and a session that has nothing to do ends.
    let (_, whole, ino) = writer.writes("c", &[&b, &a], 3000);
    until("both are clean", || a.is_empty() && b.is_empty());
    writer.is_stored(&world, ino, &whole);
    assert_eq!((a.counted().puts, b.counted().puts), (1, 1));
    let lives = |member: &crate::bed::Member| {
        member.around.way.sessions.lock().iter().filter(|session| world.owner.lives(**session)).count()
    };
    until("no session", || lives(&a) + lives(&b) == 0);
}

#[test]
fn small_segments_of_a_directory_go_out_together_whoever_wrote_them() {
    let world = World::new();
    let (mut a, mut b) = (world.member(1), world.member(2));
    world.view(1, &[a.id, b.id]);
    let written = [(1, "a"), (2, "b"), (3, "c")].map(|(session, name)| {
        let writer = world.writer(session);
        let written = writer.writes(name, &[&a, &b], 5000 + session as usize);
        (writer, written)
    });
    a.starts();
    b.starts();
    until("both are clean", || a.is_empty() && b.is_empty());
    assert_eq!((world.objects().len(), a.counted().puts, b.counted().puts), (1, 1, 0));
    let mut put: Vec<_> =
        world.footer(&world.objects()[0]).segments.iter().map(|segment| segment.id).collect();
    put.sort_unstable();
    assert_eq!(put, written.each_ref().map(|(_, (segment, ..))| *segment));
    for (writer, (_, whole, ino)) in &written {
        writer.is_stored(&world, *ino, whole);
    }
}

#[test]
fn what_is_open_waits_for_its_writer() {
    let world = World::new();
    let (mut a, mut b) = (world.member(1), world.member(2));
    a.starts();
    b.starts();
    let writer = world.writer(1);
    let (ino, segment) = (writer.make("a"), writer.open(&[&a, &b]));
    let bytes = crate::writer::run(segment, 0, ino, &[3; 700]);
    [&a, &b].iter().for_each(|member| member.append(segment, 1, &bytes));
    writer.commits(ino, segment, 64, 700);
    until("sessions", || !a.around.way.sessions.lock().is_empty());
    std::thread::sleep(Duration::from_millis(300));
    assert!(a.has(segment) && b.has(segment) && world.objects().is_empty());
    // One that takes more than all have is cut where the writer seals.
    b.append(segment, 1, &crate::writer::run(segment, bytes.len() as u64, ino, &[4; 9]));
    a.seal(segment, &bytes);
    writer.settles(segment, &bytes);
    until("both are clean", || a.is_empty() && b.is_empty());
    writer.is_stored(&world, ino, &bytes);
}

#[test]
fn a_member_that_drains_puts_at_once() {
    let world = World::new();
    let (mut a, b) = (world.member(1), world.member(2));
    let never = Pace { put_after: Duration::from_secs(3600), ..pace() };
    a.starts_at(never);
    let writer = world.writer(1);
    let (_, whole, ino) = writer.writes("a", &[&a, &b], 5000);
    until("a session", || !a.around.way.sessions.lock().is_empty());
    std::thread::sleep(Duration::from_millis(300));
    assert!(world.objects().is_empty(), "it waits for company");
    a.around.acting.lock().as_mut().unwrap().draining = true;
    until("it is clean", || a.is_empty());
    writer.is_stored(&world, ino, &whole);
}

#[test]
fn puts_wait_for_streams_of_the_machine_and_not_for_ever() {
    for yields_for in [Duration::from_secs(3600), Duration::from_millis(200)] {
        let world = World::new();
        let (mut a, b) = (world.member(1), world.member(2));
        a.around.stream.store(true, SeqCst);
        let writer = world.writer(1);
        let (_, whole, ino) = writer.writes("a", &[&a, &b], 5000);
        a.starts_at(Pace { yields_for, ..pace() });
        until("a session", || !a.around.way.sessions.lock().is_empty());
        if yields_for > crate::bed::NEVER {
            std::thread::sleep(Duration::from_millis(300));
            assert!(world.objects().is_empty(), "it yields");
            a.around.stream.store(false, SeqCst);
        }
        until("it is clean", || a.is_empty());
        writer.is_stored(&world, ino, &whole);
    }
}

#[test]
fn an_answer_to_a_put_that_is_lost_makes_no_second_object() {
    let world = World::new();
    let (mut a, b) = (world.member(1), world.member(2));
    world.store.plan(Operation::PutNew, Fault::LoseAnswer);
    let writer = world.writer(1);
    let (_, whole, ino) = writer.writes("a", &[&a, &b], 5000);
    a.starts();
    until("it is clean", || a.is_empty());
    writer.is_stored(&world, ino, &whole);
    assert_eq!((world.objects().len(), world.store.count(Operation::PutNew)), (1, 2));
}

#[test]
fn an_answer_to_store_that_is_lost_is_the_same_again() {
    let world = World::new();
    let (mut a, b) = (world.member(1), world.member(2));
    a.around.way.loses.store(2, SeqCst);
    let writer = world.writer(1);
    let (_, whole, ino) = writer.writes("a", &[&a, &b], 5000);
    a.starts();
    // An offer may say sooner that it is stored.
    until("it is told again", || a.around.way.stores.load(SeqCst) == 3);
    until("it is clean", || a.is_empty());
    writer.is_stored(&world, ino, &whole);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!((a.around.way.stores.load(SeqCst), a.counted().not_taken), (3, 0));
    assert_eq!((world.objects().len(), a.counted().puts), (1, 1));
}
