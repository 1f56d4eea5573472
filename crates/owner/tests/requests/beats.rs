//! Where one server at a time has the place, its beats renew the ownership, and nothing else does.

use std::{thread, time::Duration};

use forebay_cluster::{Lease, Moment};
use forebay_owner::Ticks;
use forebay_protocol::{Operation, Refusal};
use forebay_types::Ino;

use super::world::{Server, World, lookup, make, until};

/// Long enough for the committing thread to commit again if it wants to.
const A_WHILE: Duration = Duration::from_millis(300);

fn refuses(server: &Server) -> bool {
    matches!(server.owner.renew(forebay_cluster::SessionId(9)), Err(Refusal::NotOwner { .. }))
}

#[test]
fn an_owner_answers_as_long_as_its_server_beats_and_puts_no_beats_of_its_own() {
    let world = World::new();
    let server = world.owner_alone(Moment::default()).unwrap();
    assert!(refuses(&server), "it has not heard of a beat");
    let began = world.ticks.now();
    server.owner.renewed(began);
    let client = server.begin(1);
    let asked = world.engine.asked();
    world.ticks.pass(Duration::from_millis(1_999));
    thread::sleep(A_WHILE);
    assert_eq!(world.engine.asked(), asked, "nothing is to be committed");
    let made = client.ask(make("a")).answer();
    world.ticks.pass(Duration::from_millis(1));
    assert!(refuses(&server), "what was committed meanwhile is no beat");
    server.owner.renewed(began + Duration::from_secs(2));
    assert_eq!(client.ask(lookup("a")).answer(), made);
    server.owner.renewed(began);
    assert!(!refuses(&server), "one that is told late changes nothing");
    server.stop().unwrap();
}

#[test]
fn what_may_not_be_looked_up_waits_for_the_next_beat() {
    let world = World::new();
    let server = world.owner_alone(Moment::default()).unwrap();
    server.owner.renewed(world.ticks.now());
    let (writer, reader) = (server.begin(1), server.begin(2));
    let granted = writer.ask_for(Operation::Inode(Ino::ROOT), Lease::Write).get().unwrap();
    let seen = reader.ask(lookup("a"));
    until("the recall", || !server.told(writer.session).is_empty());
    world.ticks.pass(Duration::from_millis(2_500));
    server.owner.returned(writer.session, Ino::ROOT, granted.grants[0].stamp, None, false);
    thread::sleep(A_WHILE);
    let asked = world.engine.asked();
    thread::sleep(A_WHILE);
    assert_eq!(world.engine.asked(), asked, "committing would be in vain");
    assert!(!seen.is_there());
    server.owner.renewed(world.ticks.now());
    seen.answer();
    server.stop().unwrap();
}

#[test]
fn the_next_server_waits_from_when_it_has_the_place_and_not_from_when_it_saw_the_volume() {
    let world = World::new();
    world.ticks.pass(Duration::from_secs(60));
    let first = world.owner_alone(Moment::default()).unwrap();
    let alone_since = world.ticks.now();
    first.owner.renewed(alone_since);
    let client = first.begin(1);
    client.ask(make("a")).answer();
    world.ticks.pass(Duration::from_millis(2_999));
    assert!(world.owner_alone(alone_since).is_none());
    world.ticks.pass(Duration::from_millis(1));
    let next = world.owner_alone(alone_since).unwrap();
    next.owner.renewed(world.ticks.now());
    first.owner.renewed(alone_since);
    assert!(refuses(&first) && !refuses(&next));
    next.owner.reclaim(client.session, &[]).unwrap();
    assert!(next.client(client.session, 2).ask(lookup("a")).answer().inode().is_some());
    // It puts nothing by itself; what it does put tells it.
    first.owner.renewed(world.ticks.now());
    let late = client.ask(make("late")).get();
    assert!(matches!(late, Err(Refusal::NotOwner { .. })), "{late:?}");
    first.ended().unwrap();
    next.stop().unwrap();
}
