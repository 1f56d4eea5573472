//! Locks of sessions: who waits, who is told, and what outlives whom.

use std::time::Duration;

use forebay_locks::{LockKind, LockRange, LockRequest, LockSpace};
use forebay_protocol::{Answer, Failure, Operation, Push};
use forebay_types::Ino;

use super::world::{Client, Server, World, make};

use LockKind::{Exclusive, Shared};

fn record(owner: u64, start: u64, end: u64, kind: LockKind) -> LockRequest {
    let range = LockRange { start, end, kind, pid: owner as u32 };
    LockRequest { space: LockSpace::Record, owner, fh: owner + 100, range }
}

fn whole(owner: u64, kind: LockKind) -> LockRequest {
    LockRequest { space: LockSpace::Flock, ..record(owner, 0, u64::MAX, kind) }
}

fn lock(client: &Client<'_>, ino: Ino, request: LockRequest, wait: bool) -> Answer {
    client.ask(Operation::Lock(ino, request, wait)).answer()
}

fn unlock(client: &Client<'_>, ino: Ino, request: &LockRequest) {
    let range = (request.range.start, request.range.end);
    let unlock = Operation::Unlock(ino, request.space, request.owner, range);
    assert_eq!(client.ask(unlock).answer(), Answer::Done);
}

fn conflict(client: &Client<'_>, ino: Ino, request: LockRequest) -> Option<LockRange> {
    match client.ask(Operation::TestLock(ino, request)).answer() {
        Answer::Conflict(range) => range,
        other => panic!("{other:?}"),
    }
}

fn is_told(server: &Server, client: &Client<'_>, ino: Ino) -> bool {
    server.told(client.session).contains(&Push::LockFree { ino })
}

const BUSY: Answer = Answer::Failed(Failure::WouldBlock);

#[test]
fn owners_of_two_sessions_are_two_though_their_numbers_are_one() {
    let world = World::new();
    let server = world.owner();
    let (one, two) = (server.begin(1), server.begin(2));
    let ino = one.inode(make("a")).ino;
    for (held, wanted) in
        [(record(7, 0, 9, Exclusive), record(7, 5, 5, Shared)), (whole(7, Shared), whole(7, Exclusive))]
    {
        assert_eq!(lock(&one, ino, held, false), Answer::Done);
        assert_eq!(lock(&one, ino, held, false), Answer::Done, "its own is not in its way");
        assert_eq!(lock(&two, ino, wanted, false), BUSY);
        assert_eq!(conflict(&two, ino, wanted).map(|range| range.start), Some(0));
        assert_eq!(conflict(&one, ino, wanted), None);
        unlock(&one, ino, &held);
        assert_eq!(lock(&two, ino, wanted, false), Answer::Done);
        unlock(&two, ino, &wanted);
    }
    let missing = lock(&one, Ino(1 << 30), record(1, 0, 0, Shared), false);
    assert_eq!(missing, Answer::Failed(Failure::Stale));
    let backwards = lock(&one, ino, record(1, 9, 0, Shared), false);
    assert_eq!(backwards, Answer::Failed(Failure::Invalid));
    server.stop().unwrap();
}

#[test]
fn those_who_wait_are_told_in_order_and_ask_again() {
    let world = World::new();
    let server = world.owner();
    let (holder, first, second) = (server.begin(1), server.begin(2), server.begin(3));
    let ino = holder.inode(make("a")).ino;
    let wanted = record(5, 0, 9, Exclusive);
    assert_eq!(lock(&holder, ino, wanted, true), Answer::Done);
    assert_eq!(lock(&first, ino, wanted, true), Answer::Waits);
    assert_eq!(lock(&second, ino, wanted, true), Answer::Waits);
    assert_eq!(lock(&first, ino, wanted, true), Answer::Waits, "asked again, it keeps its place");
    assert!(!is_told(&server, &first, ino));
    unlock(&holder, ino, &wanted);
    assert!(is_told(&server, &first, ino) && !is_told(&server, &second, ino));
    assert_eq!(lock(&second, ino, wanted, true), Answer::Waits, "it is the first one's");
    assert_eq!(lock(&first, ino, wanted, true), Answer::Done);
    let all = Operation::UnlockHandle(ino, 105);
    assert_eq!(first.ask(all).answer(), Answer::Done);
    assert!(is_told(&server, &second, ino));
    assert_eq!(lock(&second, ino, wanted, true), Answer::Done);
    server.stop().unwrap();
}

#[test]
fn locks_outlive_the_owner_and_not_the_session() {
    for world in World::both() {
        let server = world.owner();
        let (one, two) = (server.begin(1), server.begin(2));
        let ino = one.inode(make("a")).ino;
        assert_eq!(lock(&one, ino, record(5, 0, 9, Exclusive), false), Answer::Done);
        unlock(&one, ino, &record(5, 3, 4, Exclusive));
        assert_eq!(lock(&one, ino, whole(6, Exclusive), false), Answer::Done);
        let later = world.owner();
        for session in [one.session, two.session] {
            later.owner.reclaim(session, &[]).unwrap();
        }
        let (one, two) = (later.client(one.session, one.next()), later.client(two.session, two.next()));
        assert_eq!(lock(&two, ino, record(5, 3, 4, Exclusive), false), Answer::Done, "that was given up");
        assert_eq!(lock(&two, ino, record(5, 9, 9, Shared), false), BUSY);
        assert_eq!(lock(&two, ino, whole(5, Shared), true), Answer::Waits);
        assert_eq!(lock(&one, ino, whole(6, Exclusive), false), Answer::Done, "it has that still");
        later.owner.end_session(one.session);
        super::world::until("the end", || is_told(&later, &two, ino));
        assert_eq!(lock(&two, ino, whole(5, Shared), true), Answer::Done);
        assert_eq!(lock(&two, ino, record(5, 0, 9, Exclusive), false), Answer::Done);
        let last = world.owner();
        last.owner.reclaim(two.session, &[]).unwrap();
        let third = last.begin(3);
        assert_eq!(
            conflict(&third, ino, record(1, 0, 9, Shared)).map(|range| (range.start, range.end)),
            Some((0, 9))
        );
        last.stop().unwrap();
    }
}

/// They are one row, which no engine takes at any length.
#[test]
fn a_session_has_a_bounded_number_of_locks_on_an_inode() {
    let world = World::new();
    let server = world.owner();
    let one = server.begin(1);
    let ino = one.inode(make("a")).ino;
    let full = Answer::Failed(Failure::TooManyLocks);
    let single = |number: u64| record(5, 2 * number, 2 * number, Exclusive);
    for number in 0..4095 {
        assert_eq!(lock(&one, ino, single(number), false), Answer::Done);
    }
    let last = record(5, 10_000, 10_009, Exclusive);
    assert_eq!(lock(&one, ino, last, false), Answer::Done);
    assert_eq!(lock(&one, ino, record(5, 20_000, 20_000, Exclusive), false), full);
    assert_eq!(lock(&one, ino, last, false), Answer::Done, "it has that");
    let middle = |request: &LockRequest| Operation::Unlock(ino, request.space, 5, (10_004, 10_005));
    assert_eq!(one.ask(middle(&last)).answer(), full, "there would be two");
    unlock(&one, ino, &single(7));
    assert_eq!(one.ask(middle(&last)).answer(), Answer::Done);
    unlock(&one, ino, &record(5, 0, u64::MAX, Exclusive));
    assert_eq!(lock(&one, ino, last, false), Answer::Done);
    server.stop().unwrap();
}

#[test]
fn a_lock_that_nobody_claims_is_taken_back() {
    let world = World::new();
    let server = world.owner();
    let (holder, gone, other) = (server.begin(1), server.begin(2), server.begin(3));
    let all = [&holder, &gone, &other];
    let ino = holder.inode(make("a")).ino;
    let (read, write) = (record(5, 0, 9, Shared), record(5, 0, 19, Exclusive));
    assert_eq!(lock(&holder, ino, read, false), Answer::Done);
    assert_eq!(lock(&gone, ino, read, false), Answer::Done);
    assert_eq!(lock(&gone, ino, write, true), Answer::Waits, "the same owner wants more");
    assert_eq!(lock(&other, ino, record(5, 10, 12, Exclusive), true), Answer::Done);
    assert_eq!(lock(&other, ino, read, true), Answer::Done);
    unlock(&other, ino, &record(5, 0, 12, Shared));
    assert!(!is_told(&server, &gone, ino));
    unlock(&holder, ino, &read);
    assert!(is_told(&server, &gone, ino));
    assert_eq!(lock(&other, ino, record(5, 15, 15, Shared), true), Answer::Waits);
    world.pass(&server, &all, Duration::from_secs(4));
    server.owner.tidy().unwrap();
    assert!(!is_told(&server, &other, ino), "it may still ask");
    world.pass(&server, &all, Duration::from_secs(2));
    server.owner.tidy().unwrap();
    assert!(is_told(&server, &other, ino));
    assert_eq!(lock(&other, ino, record(5, 15, 15, Shared), true), Answer::Done);
    assert_eq!(lock(&other, ino, record(5, 0, 9, Shared), false), Answer::Done);
    assert_eq!(lock(&other, ino, record(5, 0, 9, Exclusive), false), BUSY, "what it had before it has again");
    server.stop().unwrap();
}

#[test]
fn a_place_that_nobody_remembers_is_given_up() {
    let world = World::new();
    let server = world.owner();
    let (holder, gone, waits) = (server.begin(1), server.begin(2), server.begin(3));
    let all = [&holder, &gone, &waits];
    let ino = holder.inode(make("a")).ino;
    let wanted = record(5, 0, 9, Exclusive);
    assert_eq!(lock(&holder, ino, wanted, false), Answer::Done);
    assert_eq!(lock(&gone, ino, wanted, true), Answer::Waits);
    assert_eq!(lock(&waits, ino, wanted, true), Answer::Waits);
    for _ in 0..9 {
        world.pass(&server, &all, Duration::from_secs(10));
        server.owner.tidy().unwrap();
        if is_told(&server, &waits, ino) {
            assert_eq!(lock(&waits, ino, wanted, true), Answer::Waits);
        }
    }
    assert!(is_told(&server, &gone, ino), "it was asked");
    unlock(&holder, ino, &wanted);
    assert!(!is_told(&server, &gone, ino));
    assert!(is_told(&server, &waits, ino));
    server.stop().unwrap();
}

#[test]
fn who_waits_for_each_other_is_refused() {
    let world = World::new();
    let server = world.owner();
    let (one, two) = (server.begin(1), server.begin(2));
    let (a, b) = (one.inode(make("a")).ino, one.inode(make("b")).ino);
    assert_eq!(lock(&one, a, record(5, 0, 0, Exclusive), false), Answer::Done);
    assert_eq!(lock(&two, b, record(5, 0, 0, Exclusive), false), Answer::Done);
    assert_eq!(lock(&one, b, record(5, 0, 0, Shared), true), Answer::Waits);
    assert_eq!(lock(&two, a, record(5, 0, 0, Shared), true), Answer::Failed(Failure::Deadlock));
    // One gives up: the other may wait.
    unlock(&one, b, &record(5, 0, 0, Shared));
    assert!(is_told(&server, &one, b), "if it has not, it asks again");
    assert_eq!(lock(&two, a, record(5, 0, 0, Shared), true), Answer::Waits);
    server.stop().unwrap();
}
