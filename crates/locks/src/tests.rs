use super::*;

const A: Ino = Ino(10);
const B: Ino = Ino(11);

fn record(owner: u64, start: u64, end: u64, kind: LockKind) -> LockRequest {
    let range = LockRange { start, end, kind, pid: owner as u32 };
    LockRequest { space: LockSpace::Record, owner, fh: owner + 100, range }
}

fn whole(owner: u64, kind: LockKind) -> LockRequest {
    LockRequest { space: LockSpace::Flock, ..record(owner, 0, u64::MAX, kind) }
}

fn granted(locks: &mut Locks, ino: Ino, request: LockRequest) -> Vec<Ticket> {
    let (outcome, woken) = locks.set(ino, request, false);
    assert_eq!(outcome, Outcome::Granted);
    woken
}

fn waits(locks: &mut Locks, ino: Ino, request: LockRequest) -> Ticket {
    match locks.set(ino, request, true).0 {
        Outcome::Waits(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

use LockKind::{Exclusive, Shared};

#[test]
fn readers_share_and_a_writer_is_alone() {
    let mut locks = Locks::default();
    granted(&mut locks, A, record(1, 0, 9, Shared));
    granted(&mut locks, A, record(2, 5, 20, Shared));
    assert_eq!(locks.set(A, record(3, 9, 9, Exclusive), false).0, Outcome::Conflict);
    granted(&mut locks, A, record(3, 21, 30, Exclusive));
    granted(&mut locks, B, record(3, 9, 9, Exclusive));
    assert_eq!(locks.conflict(A, &record(3, 0, 100, Exclusive)).unwrap().pid, 1);
    assert_eq!(locks.conflict(A, &record(1, 0, 4, Exclusive)), None);
}

#[test]
fn the_two_spaces_do_not_meet() {
    let mut locks = Locks::default();
    granted(&mut locks, A, record(1, 0, u64::MAX, Exclusive));
    granted(&mut locks, A, whole(2, Exclusive));
}

#[test]
fn an_owners_locks_split_and_join() {
    let mut locks = Locks::default();
    granted(&mut locks, A, record(1, 0, 99, Exclusive));
    locks.unlock(A, LockSpace::Record, 1, (40, 59));
    granted(&mut locks, A, record(2, 40, 59, Exclusive));
    let range = locks.conflict(A, &record(3, 30, 100, Shared)).unwrap();
    assert_eq!((range.start, range.end), (0, 39));
    locks.unlock(A, LockSpace::Record, 2, (0, u64::MAX));
    granted(&mut locks, A, record(1, 40, 59, Exclusive));
    let range = locks.conflict(A, &record(3, 50, 50, Shared)).unwrap();
    assert_eq!((range.start, range.end), (0, 99));
}

#[test]
fn a_downgrade_of_a_part_lets_readers_in() {
    let mut locks = Locks::default();
    granted(&mut locks, A, record(1, 0, 99, Exclusive));
    let reader = waits(&mut locks, A, record(2, 10, 19, Shared));
    let writer = waits(&mut locks, A, record(3, 10, 19, Exclusive));
    assert_eq!(granted(&mut locks, A, record(1, 0, 49, Shared)), [reader]);
    assert_eq!(locks.unlock(A, LockSpace::Record, 1, (0, 99)), []);
    assert_eq!(locks.unlock(A, LockSpace::Record, 2, (10, 19)), [writer]);
}

#[test]
fn those_who_wait_are_served_in_order() {
    let mut locks = Locks::default();
    granted(&mut locks, A, record(1, 0, 0, Exclusive));
    let first = waits(&mut locks, A, record(2, 0, 0, Exclusive));
    let second = waits(&mut locks, A, record(3, 0, 0, Exclusive));
    assert_eq!(locks.unlock(A, LockSpace::Record, 1, (0, 0)), [first]);
    assert_eq!(locks.unlock(A, LockSpace::Record, 2, (0, 0)), [second]);
    assert_eq!(locks.unlock(A, LockSpace::Record, 3, (0, 0)), []);
    assert_eq!(locks.files(), 0);
}

#[test]
fn one_who_gave_up_is_passed_over() {
    let mut locks = Locks::default();
    granted(&mut locks, A, record(1, 0, 0, Exclusive));
    let first = waits(&mut locks, A, record(2, 0, 0, Exclusive));
    let second = waits(&mut locks, A, record(3, 0, 0, Exclusive));
    locks.cancel(first);
    assert_eq!(locks.unlock(A, LockSpace::Record, 1, (0, 0)), [second]);
}

#[test]
fn a_cycle_is_refused_over_files_and_owners() {
    let mut locks = Locks::default();
    granted(&mut locks, A, record(1, 0, 0, Exclusive));
    granted(&mut locks, B, record(2, 0, 0, Exclusive));
    granted(&mut locks, B, record(3, 5, 5, Shared));
    waits(&mut locks, B, record(1, 0, 0, Shared));
    waits(&mut locks, A, record(3, 0, 0, Shared));
    assert_eq!(locks.set(A, record(2, 0, 0, Exclusive), true).0, Outcome::Deadlock);
    waits(&mut locks, B, record(4, 5, 5, Exclusive));
    locks.unlock(B, LockSpace::Record, 2, (0, 0));
    waits(&mut locks, A, record(2, 0, 0, Exclusive));
}

#[test]
fn a_flock_conversion_gives_up_first() {
    let mut locks = Locks::default();
    granted(&mut locks, A, whole(1, Shared));
    granted(&mut locks, A, whole(2, Shared));
    assert_eq!(locks.set(A, whole(1, Exclusive), false).0, Outcome::Conflict);
    granted(&mut locks, A, whole(2, Exclusive));
    let waiting = waits(&mut locks, A, whole(1, Shared));
    assert_eq!(granted(&mut locks, A, whole(2, Shared)), [waiting]);
}

#[test]
fn a_closed_handle_takes_its_record_locks_along() {
    let mut locks = Locks::default();
    granted(&mut locks, A, record(1, 0, 0, Exclusive));
    granted(&mut locks, A, whole(1, Exclusive));
    let waiting = waits(&mut locks, A, record(2, 0, 0, Shared));
    assert_eq!(locks.release_handle(A, 7), []);
    assert_eq!(locks.release_handle(A, 101), [waiting]);
    assert_eq!(locks.set(A, whole(2, Shared), false).0, Outcome::Conflict);
}
