//! Where one server at a time has the place, its beats renew the ownership, and nothing else does.

use std::{sync::Arc, thread, time::Duration};

use forebay_cluster::{Lease, Moment, Ownership, ServerId, Terms};
use forebay_engine::{Batch, Engine, EngineError, Outcome, RowPage, Writers};
use forebay_owner::{StandsBy, Ticks, stand_by};
use forebay_protocol::{Operation, Push, Refusal};
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
    world.ticks.pass(Duration::from_secs(60));
    assert!(world.owner_alone_by(Moment::default(), None).is_none(), "it has not heard of a beat");
    let began = world.ticks.now();
    let server = world.owner_alone(Moment::default()).unwrap();
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
    world.ticks.pass(Duration::from_secs(60));
    let server = world.owner_alone(Moment::default()).unwrap();
    let (writer, reader) = (server.begin(1), server.begin(2));
    let granted = writer.ask_for(Operation::Inode(Ino::ROOT), Lease::Write).get().unwrap();
    let seen = reader.ask(lookup("a"));
    until("the recall", || !server.told(writer.session).is_empty());
    world.ticks.pass(Duration::from_millis(2_500));
    let before = world.engine.committed();
    server.owner.returned(writer.session, Ino::ROOT, granted.grants[0].stamp, None, false);
    until("the row of the lease that is returned", || world.engine.committed() > before);
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
    let client = first.begin(1);
    client.ask(make("a")).answer();
    world.ticks.pass(Duration::from_millis(2_999));
    assert!(world.owner_alone(alone_since).is_none());
    world.ticks.pass(Duration::from_millis(1));
    let next = world.owner_alone(alone_since).unwrap();
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

/// Who asks is refused before he is heard; so nobody is too late for that.
#[test]
fn sessions_live_on_while_no_beat_is_heard_of() {
    let world = World::new();
    world.ticks.pass(Duration::from_secs(60));
    let first = world.owner_alone(Moment::default()).unwrap();
    let client = first.begin(1);
    first.stop().unwrap();
    // The next server has the place, and cannot say so any more.
    let next = world.owner_alone(Moment::default()).unwrap();
    for _ in 0..10 {
        world.ticks.pass(Duration::from_secs(3));
        thread::sleep(A_WHILE / 2);
    }
    assert!(refuses(&next));
    next.owner.renewed(world.ticks.now());
    next.owner.reclaim(client.session, &[]).unwrap();
    // Then they end as ever.
    for _ in 0..12 {
        world.ticks.pass(Duration::from_secs(1));
        next.owner.renewed(world.ticks.now());
    }
    let ended = Push::Ended { session: client.session };
    until("the end of the session", || next.told(client.session).contains(&ended));
    next.stop().unwrap();
}

/// An engine that another process has opened since.
#[derive(Debug)]
struct ShutOut(Arc<dyn Engine>);

impl Engine for ShutOut {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.0.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.0.get_many(keys)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        self.0.scan(from, to, limit)
    }

    fn commit(&self, _: &Batch<'_>) -> Result<Outcome, EngineError> {
        Ok(Outcome::Fenced)
    }

    fn writers(&self) -> Writers {
        Writers::One
    }

    fn size_on_disk(&self) -> u64 {
        0
    }
}

struct Patient {
    pauses: u32,
}

impl StandsBy for Patient {
    fn pause(&mut self, _: Duration) {
        self.pauses += 1;
    }

    fn stopped(&self) -> bool {
        self.pauses > 100
    }
}

#[test]
fn an_engine_that_is_shut_out_is_not_stood_by_with() {
    let world = World::new();
    let engine: Arc<dyn Engine> = Arc::new(ShutOut(Arc::clone(&world.engine) as _));
    let ownership = Ownership::new(ServerId([1; 16]), "test:1".to_owned(), Terms::default());
    let mut by = Patient { pauses: 0 };
    assert!(stand_by(&engine, ownership, world.ticks.as_ref(), &mut by).unwrap().is_none());
    assert_eq!(by.pauses, 1, "it is to be opened again at once");
}
