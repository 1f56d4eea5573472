//! Members that die, stores that are away.

use std::{sync::atomic::Ordering::SeqCst, time::Duration};

use forebay_group::MemberId;
use forebay_object::Operation;

use crate::bed::{World, until};

#[test]
fn who_dies_between_put_and_store_leaves_garbage_and_the_next_one_puts() {
    let world = World::new();
    let (mut a, mut b) = (world.member(1), world.member(2));
    world.view(1, &[a.id, b.id]);
    let writer = world.writer(1);
    let (segment, whole, ino) = writer.writes("a", &[&a, &b], 5000);
    a.around.way.cut_at_store.store(true, SeqCst);
    a.starts();
    until("its object is in the store", || a.around.way.cut.load(SeqCst));
    a.dies();
    let first = world.objects();
    assert_eq!(first.len(), 1);
    b.starts();
    until("the other one has a session", || !b.around.way.sessions.lock().is_empty());
    std::thread::sleep(Duration::from_millis(300));
    assert!(b.has(segment) && writer.place(ino).is_none(), "it is the first one's turn");
    world.pass(16);
    until("the next one puts", || b.is_empty());
    writer.is_stored(&world, ino, &whole);
    assert_eq!(b.counted().puts, 1);
    assert_ne!(vec![writer.place(ino).unwrap().object.key()], first);
    // What the dead one has put is garbage of its session.
    let session = a.around.way.sessions.lock()[0];
    world.owner.end_session(session);
    let garbage = || world.owner.garbage().unwrap().iter().map(|one| one.key()).collect::<Vec<_>>();
    until("garbage", || {
        world.pass(61);
        !garbage().is_empty()
    });
    until("all of it", || garbage().contains(&first[0]));
    assert!(!garbage().contains(&writer.place(ino).unwrap().object.key()));
    assert!(a.has(segment), "its disk has it still");
    a.comes_back(8);
    until("it is told that it is stored", || a.is_empty());
    assert_eq!(a.counted().puts, 0);
}

#[test]
fn while_the_store_is_away_everything_stays_and_goes_there_once_it_is_back() {
    let world = World::new();
    let (mut a, mut b) = (world.member(1), world.member(2));
    world.store.set_away(true);
    a.starts();
    b.starts();
    let writer = world.writer(1);
    let written: Vec<_> = ["a", "b", "c"].iter().map(|name| writer.writes(name, &[&a, &b], 20_000)).collect();
    until("it is tried", || world.store.count(Operation::PutNew) >= 2);
    // Also when it is the other one's turn.
    let before = world.store.count(Operation::PutNew);
    world.pass(16);
    until("the other one tries as well", || world.store.count(Operation::PutNew) >= before + 4);
    for (segment, whole, _) in &written {
        for member in [&a, &b] {
            let (bytes, _) = member.log.read(crate::bed::V, *segment, 0, whole.len() as u64).unwrap();
            assert!(bytes == *whole, "who reads back waits for nobody");
        }
    }
    assert_eq!((a.counted().dropped, b.counted().dropped), (0, 0));
    world.store.set_away(false);
    until("both are clean", || a.is_empty() && b.is_empty());
    written.iter().for_each(|(_, whole, ino)| writer.is_stored(&world, *ino, whole));
}

#[test]
fn a_lost_copy_is_made_anew_at_a_third_member() {
    let world = World::new();
    let (mut a, mut b, mut c) = (world.member(1), world.member(2), world.member(3));
    let [id_a, id_b, id_c] = [1, 2, 3].map(|number| MemberId([number; 16]));
    world.view(1, &[id_a, id_b, id_c]);
    world.store.set_away(true);
    let writer = world.writer(1);
    let (segment, whole, ino) = writer.writes("a", &[&a, &b], 20_000);
    a.around.others.lock().insert(id_c, c.log.clone());
    a.starts();
    b.starts();
    c.starts();
    until("both have offered it", || {
        !a.around.way.sessions.lock().is_empty() && !b.around.way.sessions.lock().is_empty()
    });
    b.dies();
    world.view(2, &[id_a, id_c]);
    until("a copy elsewhere", || {
        world.pass(1);
        c.has(segment)
    });
    until("its row names it", || world.row(segment).is_some_and(|row| row.set == [id_a.0, id_c.0]));
    assert!(c.has(segment) && a.has(segment));
    until("it is counted", || a.counted().repaired == 1);
    // The one that made it is lost, too.
    a.dies();
    world.view(3, &[id_c]);
    world.store.set_away(false);
    until("it is stored from there", || c.is_empty());
    writer.is_stored(&world, ino, &whole);
    b.comes_back(9);
    until("the former one is told", || b.is_empty());
}

#[test]
fn what_a_writer_leaves_open_is_fenced_and_stored_at_what_all_have() {
    let world = World::new();
    let (mut a, mut b) = (world.member(1), world.member(2));
    a.starts();
    b.starts();
    let writer = world.writer(1);
    let (ino, segment) = (writer.make("a"), writer.open(&[&a, &b]));
    let first = crate::writer::run(segment, 0, ino, &[5; 3000]);
    [&a, &b].iter().for_each(|member| member.append(segment, 1, &first));
    writer.commits(ino, segment, 64, 3000);
    // It did not get to the other one.
    a.append(segment, 1, &crate::writer::run(segment, first.len() as u64, ino, &[6; 900]));
    until("both are known", || {
        !a.around.way.sessions.lock().is_empty() && !b.around.way.sessions.lock().is_empty()
    });
    world.owner.end_session(writer.session);
    until("both are clean", || {
        world.pass(1);
        a.is_empty() && b.is_empty()
    });
    assert!(a.counted().fenced >= 1 && b.counted().fenced >= 1);
    let other = world.writer(2);
    other.is_stored(&world, ino, &first);
}
