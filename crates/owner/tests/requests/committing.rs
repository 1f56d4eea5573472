use std::{thread, time::Duration};

use forebay_cluster::{Lease, SlotNumber};
use forebay_meta::{NewInode, SetAttr};
use forebay_protocol::{Answer, Failure, Operation, Refusal, Request};
use forebay_types::{Epoch, Ino};

use super::{
    held::Mode,
    world::{World, lookup, make, make_directory, new_file, until},
};

#[test]
fn what_was_changed_is_answered_when_it_is_committed() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    world.engine.set(Mode::Holds);
    let made = client.ask(make("a"));
    let before = world.engine.asked();
    until("the batch", || world.engine.asked() >= before);
    let seen = client.ask(lookup("a"));
    let elsewhere = client.ask(Operation::Inode(Ino::ROOT));
    assert!(!made.is_there() && !seen.is_there(), "it may still be lost");
    assert!(!elsewhere.is_there(), "the root's times changed with it");
    world.engine.set(Mode::Works);
    let inode = made.answer();
    assert!(inode.inode().is_some());
    assert_eq!(seen.answer(), inode);
    drop(elsewhere.answer());
    assert_eq!(client.ask(lookup("b")).answer(), Answer::Failed(Failure::NotFound));
    assert_eq!(client.ask(make("a")).answer(), Answer::Failed(Failure::Exists));
    server.stop().unwrap();
}

#[test]
fn what_comes_while_a_batch_is_on_its_way_is_the_next_one() {
    let world = World::new();
    let server = world.owner();
    let clients: Vec<_> = (0..64).map(|id| server.begin(id)).collect();
    world.engine.set(Mode::Holds);
    let asked = world.engine.asked();
    let first = clients[0].ask(make("first"));
    until("the first batch", || world.engine.asked() > asked);
    let rest: Vec<_> =
        clients[1..].iter().enumerate().map(|(at, client)| client.ask(make(&format!("{at}")))).collect();
    let committed = world.engine.committed();
    world.engine.set(Mode::Works);
    drop(first.answer());
    for made in rest {
        assert!(made.answer().inode().is_some());
    }
    let batches = world.engine.committed() - committed;
    assert!(batches <= 3, "{batches} batches for 64 requests");
    server.stop().unwrap();
}

/// A thread that sleeps need not be woken for it.
#[test]
fn who_brings_a_request_commits_it_where_nobody_does() {
    let world = World::new();
    let server = world.owner();
    let (client, other) = (server.begin(1), server.begin(2));
    let here = Some(thread::current().id());
    // The owner's own thread looks now and then whether there is something to commit, and may find one of them.
    let by_itself = (0..50).filter(|number| {
        assert!(client.ask_here(make(&format!("{number}"))).answer().inode().is_some());
        world.engine.committed_by() == here
    });
    assert!(by_itself.count() > 0);
    // Nor is anybody kept by the batch of another one.
    world.engine.set(Mode::Holds);
    let asked = world.engine.asked();
    let first = client.ask_by(true, make("first"));
    until("the first batch", || world.engine.asked() > asked);
    let second = other.ask_here(make("second"));
    assert!(!first.is_there() && !second.is_there());
    world.engine.set(Mode::Works);
    assert!(first.answer().inode().is_some() && second.answer().inode().is_some());
    server.stop().unwrap();
}

#[test]
fn an_owner_that_stops_waits_for_who_commits() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    world.engine.set(Mode::Holds);
    let asked = world.engine.asked();
    let made = client.ask_by(true, make("a"));
    until("the batch", || world.engine.asked() > asked);
    server.owner.stop();
    let committed = world.engine.committed();
    world.engine.set(Mode::Works);
    server.ended().unwrap();
    assert!(world.engine.committed() > committed, "what was on its way came first");
    assert!(made.answer().inode().is_some());
}

#[test]
fn a_request_repeated_to_a_later_owner_is_carried_out_once() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let request = client.request(make("once"), None);
    let first = server.submit(request.clone()).answer();
    assert_eq!(server.submit(request.clone()).answer(), first, "the same owner");
    // The first owner goes on living, and is deposed.
    let later = world.owner();
    assert_eq!(later.owner.epoch(), Some(Epoch(2)));
    let refused = later.submit(request.clone()).get();
    assert_eq!(refused, Err(Refusal::MustReclaim { epoch: Epoch(2) }));
    later.owner.reclaim(client.session, &[]).unwrap();
    assert_eq!(later.submit(request).answer(), first, "a later one");
    let again = later.client(client.session, 2);
    assert_eq!(again.ask(make("once")).answer(), Answer::Failed(Failure::Exists));
    later.stop().unwrap();
}

#[test]
fn a_deposed_owner_changes_and_answers_nothing() {
    for beside in [false, true] {
        is_deposed(beside);
    }
}

fn is_deposed(beside: bool) {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    world.engine.set(Mode::Away);
    let lost = client.ask_by(beside, make("lost"));
    // It cannot commit; another takes over as soon as the engine is there.
    world.ticks.pass(Duration::from_secs(4));
    world.engine.set(Mode::Holds);
    let taker = std::thread::scope(|scope| {
        let taking = scope.spawn(|| world.owner());
        // The taker first sees the fence, then its own pauses let time pass.
        world.engine.set(Mode::Works);
        taking.join().unwrap()
    });
    let outcome = lost.get();
    taker.owner.reclaim(client.session, &[]).unwrap();
    let seen = taker.client(client.session, 5).ask(lookup("lost")).answer();
    match outcome {
        // It was committed before the other took over.
        Ok(response) => assert_eq!(seen, response.answer),
        Err(refusal) => {
            assert!(matches!(refusal, Refusal::NotOwner { .. }));
            assert_eq!(seen, Answer::Failed(Failure::NotFound));
        }
    }
    server.ended().unwrap();
    let refused = client.ask(lookup("lost")).get();
    assert!(matches!(refused, Err(Refusal::NotOwner { .. })), "{refused:?}");
    taker.stop().unwrap();
}

#[test]
fn a_batch_of_which_nobody_can_tell_is_settled_before_it_is_answered() {
    let modes = [Mode::LosesAnswers, Mode::LosesBatches, Mode::Away];
    for (mode, beside) in modes.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        let world = World::new();
        let server = world.owner();
        let client = server.begin(1);
        world.engine.set(mode);
        let (asked, committed) = (world.engine.asked(), world.engine.committed());
        let made = client.ask_by(beside, make("a"));
        until("a second try", || world.engine.asked() > asked + 1);
        if mode != Mode::LosesAnswers {
            assert!(!made.is_there());
            world.engine.set(Mode::Works);
        }
        let made = made.answer();
        world.engine.set(Mode::Works);
        assert_eq!(client.ask(lookup("a")).answer(), made, "{mode:?}");
        assert!(world.engine.committed() > committed);
        server.stop().unwrap();
    }
}

/// A client that is told that a server is not the owner takes it that its request was not carried out there.
#[test]
fn what_may_be_committed_is_not_refused() {
    for beside in [false, true] {
        breaks_off(beside);
    }
}

fn breaks_off(beside: bool) {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    world.engine.set(Mode::BreaksOff);
    let request = client.request(make("a"), None);
    let made = match beside {
        true => server.submit_beside(request.clone()),
        false => server.submit(request.clone()),
    };
    until("the commit", || world.engine.mode() == Mode::Away);
    let next = world.owner_over(&world.engine.beside());
    world.engine.set(Mode::Works);
    server.ended().unwrap();
    assert!(made.never_comes(), "nobody could tell");
    next.owner.reclaim(client.session, &[]).unwrap();
    assert!(next.submit(request).answer().inode().is_some(), "it was carried out, once");
    next.stop().unwrap();
}

#[test]
fn sessions_live_on_when_the_engine_was_away_for_longer_than_their_term() {
    let world = World::new();
    let server = world.owner();
    let (client, silent) = (server.begin(1), server.begin(2));
    world.engine.set(Mode::Away);
    let made = client.ask(make("a"));
    let asked = world.engine.asked();
    for _ in 0..15 {
        world.ticks.pass(Duration::from_secs(1));
        drop(server.owner.renew(client.session));
    }
    until("a try", || world.engine.asked() > asked);
    let refused = server.owner.renew(client.session);
    assert!(matches!(refused, Err(Refusal::NotOwner { .. })), "{refused:?}");
    world.engine.set(Mode::Works);
    assert!(made.answer().inode().is_some());
    assert_eq!(server.owner.renew(client.session), Ok(()), "it asked all the time");
    world.pass(&server, &[&client], Duration::from_secs(5));
    assert!(server.owner.lives(silent.session), "nobody could tell whether it asked");
    world.pass(&server, &[&client], Duration::from_secs(6));
    until("the end of who does not ask", || !server.owner.lives(silent.session));
    server.stop().unwrap();
}

/// Else a volume that takes longer to open than others wait would go to and fro between them.
#[test]
fn a_volume_is_kept_while_it_is_opened() {
    let world = World::new();
    world.engine.set(Mode::HoldsScans);
    let server = std::thread::scope(|scope| {
        let opening = scope.spawn(|| world.owner());
        until("the taking", || world.engine.committed() > 0);
        for _ in 0..12 {
            let before = world.engine.committed();
            world.ticks.pass(Duration::from_secs(1));
            until("a beat", || world.engine.committed() > before);
        }
        world.engine.set(Mode::Works);
        opening.join().unwrap()
    });
    assert_eq!(server.owner.epoch(), Some(Epoch(1)));
    let client = server.begin(1);
    assert!(client.ask(make("a")).answer().inode().is_some());
    server.stop().unwrap();
}

/// One row that no engine takes would hold up all of a volume for good.
#[test]
fn attributes_that_no_engine_takes_are_refused() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let (long, big) = (vec![b'x'; 300], vec![0; (64 << 10) + 1]);
    for (name, value) in [(long, Vec::new()), (b"user.big".to_vec(), big), (Vec::new(), Vec::new())] {
        let new = NewInode { xattrs: vec![(name.clone(), value.clone())], ..new_file() };
        let set = SetAttr { xattrs: vec![(name, Some(value))], ..SetAttr::default() };
        let refused = Answer::Failed(Failure::Invalid);
        assert_eq!(client.ask(Operation::Make(Ino::ROOT, b"a".to_vec(), new.clone())).answer(), refused);
        assert_eq!(client.ask(Operation::MakeNameless(Ino::ROOT, new)).answer(), refused);
        assert_eq!(client.ask(Operation::SetAttr(Ino::ROOT, set)).answer(), refused);
    }
    server.stop().unwrap();
}

#[test]
fn an_owner_that_stops_hands_over_at_once() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let made = client.ask(make("a")).answer();
    server.stop().unwrap();
    let before = forebay_owner::Ticks::now(world.ticks.as_ref());
    let next = world.owner();
    assert_eq!(forebay_owner::Ticks::now(world.ticks.as_ref()), before, "without waiting");
    next.owner.reclaim(client.session, &[]).unwrap();
    assert_eq!(next.client(client.session, 2).ask(lookup("a")).answer(), made);
    next.stop().unwrap();
}

/// What waits for a lease whose client would have to tell the owner something first would wait for ever: that is refused, too.
#[test]
fn an_owner_that_stops_does_not_wait_for_leases() {
    let world = World::new();
    let server = world.owner();
    let (keeper, other) = (server.begin(1), server.begin(2));
    drop(keeper.ask_for(Operation::Inode(Ino::ROOT), Lease::Write).get().unwrap());
    let request = other.request(make("a"), None);
    let waits = server.submit(request.clone());
    until("the recall", || !server.told(keeper.session).is_empty());
    assert!(!waits.is_there());
    server.stop().unwrap();
    assert_eq!(waits.get(), Err(Refusal::NotOwner { address: None }));
    let next = world.owner();
    let (_, given) = next.owner.reclaim(keeper.session, &[(Ino::ROOT, Lease::Write)]).unwrap();
    assert_eq!(given.len(), 1, "its session goes on, and the lease with it");
    next.owner.reclaim(other.session, &[]).unwrap();
    let waits = next.submit(request);
    until("the recall", || !next.told(keeper.session).is_empty());
    next.owner.returned(keeper.session, Ino::ROOT, given[0].stamp, None, false);
    assert!(waits.answer().inode().is_some(), "carried out once, here");
    next.stop().unwrap();
}

#[test]
fn a_change_without_a_slot_is_refused() {
    let world = World::new();
    let server = world.owner();
    let client = server.begin(1);
    let session = client.session;
    let bare = Request { session, slot: None, operation: make("a"), wish: None };
    assert_eq!(server.submit(bare).get(), Err(Refusal::WrongSlot));
    let needless = Request { session, slot: Some((SlotNumber(0), 1)), operation: lookup("a"), wish: None };
    assert_eq!(server.submit(needless).get(), Err(Refusal::WrongSlot));
    server.stop().unwrap();
}

#[test]
fn what_operations_need_is_read_many_rows_at_once() {
    for world in World::both() {
        let server = world.owner();
        let client = server.begin(1);
        let directory = client.inode(make_directory("directory")).ino;
        for name in ["a", "b", "c", "d"] {
            client.inode(Operation::Make(directory, name.as_bytes().to_vec(), new_file()));
        }
        let name = |name: &str| name.as_bytes().to_vec();
        let rename = Operation::Rename {
            from: directory,
            name: name("a"),
            to: Ino::ROOT,
            new_name: name("moved"),
            mode: forebay_meta::RenameMode::Replace,
            open: Vec::new(),
        };
        let operations = [
            Operation::Lookup(directory, name("a")),
            Operation::Inode(directory),
            Operation::Make(directory, name("new"), new_file()),
            Operation::Unlink(directory, name("b"), Vec::new()),
            Operation::SetAttr(directory, forebay_meta::SetAttr::default()),
            rename,
        ];
        let (session, mut next) = (client.session, client.next());
        server.stop().unwrap();
        for operation in operations {
            // Each new owner has nothing in memory.
            let later = world.owner();
            later.owner.reclaim(session, &[]).unwrap();
            let client = later.client(session, next);
            let (single, many) = world.engine.reads();
            let answer = client.ask(operation.clone()).answer();
            assert!(!matches!(answer, Answer::Failed(_)), "{operation:?}: {answer:?}");
            let (single, many) = (world.engine.reads().0 - single, world.engine.reads().1 - many);
            assert!(single == 0 && many <= 2, "{operation:?}: {single} rows singly, {many} times many");
            next = client.next();
            later.stop().unwrap();
        }
    }
}
