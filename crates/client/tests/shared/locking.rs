//! Locks of several clients.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use forebay_types::Ino;
use forebay_vfs::{Files, LockKind, LockRange, LockRequest, LockSpace, LockWaiter, VfsError};
use parking_lot::Mutex;

use super::world::{Client, World, until};

pub type Outcome = Arc<Mutex<Option<Result<(), String>>>>;

struct Waiter(u64, Outcome);

impl LockWaiter for Waiter {
    fn unique(&self) -> u64 {
        self.0
    }

    fn is_interrupted(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, result: Result<(), VfsError>) {
        *self.1.lock() = Some(result.map_err(|error| format!("{error:?}")));
    }
}

static NEXT: AtomicU64 = AtomicU64::new(1);

pub fn request(owner: u64, kind: LockKind) -> LockRequest {
    let range = LockRange { start: 0, end: u64::MAX, kind, pid: 1 };
    LockRequest { space: LockSpace::Flock, owner, fh: owner, range }
}

pub fn lock(client: &Client, ino: Ino, owner: u64, kind: LockKind, wait: bool) -> (u64, Outcome) {
    let (unique, outcome) = (NEXT.fetch_add(1, SeqCst), Outcome::default());
    let waiter = Box::new(Waiter(unique, Arc::clone(&outcome)));
    client.volume.locks().unwrap().set(ino, request(owner, kind), wait, waiter);
    (unique, outcome)
}

pub fn is_ok(outcome: &Outcome) -> bool {
    matches!(&*outcome.lock(), Some(Ok(())))
}

#[test]
fn locks_of_two_clients_exclude_each_other() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    assert!(is_ok(&lock(&one, ino, 1, LockKind::Exclusive, false).1));
    let refused = lock(&two, ino, 1, LockKind::Shared, false).1;
    assert!(refused.lock().as_ref().unwrap().as_ref().unwrap_err().contains("Locked"));
    let locks = two.volume.locks().unwrap();
    assert!(locks.conflict(ino, &request(1, LockKind::Shared)).unwrap().is_some());
    let (_, waits) = lock(&two, ino, 1, LockKind::Exclusive, true);
    assert!(waits.lock().is_none());
    assert_eq!(locks.waiting(), 1);
    one.volume.locks().unwrap().release_owner(ino, LockSpace::Flock, 1);
    until("the lock", || is_ok(&waits));
    assert!(lock(&one, ino, 1, LockKind::Shared, false).1.lock().as_ref().unwrap().is_err());
    locks.release_owner(ino, LockSpace::Flock, 1);
    assert!(is_ok(&lock(&one, ino, 1, LockKind::Shared, false).1));
}

#[test]
fn who_waits_for_a_lock_can_give_up() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    assert!(is_ok(&lock(&one, ino, 1, LockKind::Exclusive, false).1));
    let (unique, waits) = lock(&two, ino, 1, LockKind::Exclusive, true);
    two.volume.locks().unwrap().interrupt(unique);
    until("the end of its wait", || waits.lock().is_some());
    assert!(waits.lock().as_ref().unwrap().as_ref().unwrap_err().contains("Interrupted"));
    assert_eq!(two.volume.locks().unwrap().waiting(), 0);
    one.volume.locks().unwrap().release_owner(ino, LockSpace::Flock, 1);
    assert!(is_ok(&lock(&one, ino, 2, LockKind::Exclusive, false).1), "nobody has it");
}

#[test]
fn locks_end_with_the_session_and_their_holder_is_told() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    assert!(is_ok(&lock(&one, ino, 1, LockKind::Exclusive, false).1));
    let (_, waits) = lock(&two, ino, 1, LockKind::Exclusive, true);
    let session = one.volume.session();
    one.wire.cut();
    until("the lock of a client that is cut off", || is_ok(&waits));
    one.wire.mend();
    until("the next session", || one.volume.session() > session);
    let locks = one.volume.locks().unwrap();
    let lost = locks.conflict(ino, &request(1, LockKind::Shared));
    assert!(matches!(lost, Err(VfsError::Failed(_))), "{lost:?}");
    assert!(lock(&one, ino, 1, LockKind::Shared, false).1.lock().as_ref().unwrap().is_err());
    locks.release_owner(ino, LockSpace::Flock, 1);
    assert!(!is_ok(&lock(&one, ino, 1, LockKind::Shared, false).1), "the other one has it");
    two.volume.locks().unwrap().release_owner(ino, LockSpace::Flock, 1);
    assert!(is_ok(&lock(&one, ino, 1, LockKind::Shared, false).1));
}

#[test]
fn locks_outlive_their_owner() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    assert!(is_ok(&lock(&one, ino, 1, LockKind::Exclusive, false).1));
    let (_, waits) = lock(&two, ino, 1, LockKind::Exclusive, true);
    world.kill();
    world.start();
    assert!(!is_ok(&lock(&two, ino, 2, LockKind::Shared, false).1));
    assert!(waits.lock().is_none());
    one.volume.locks().unwrap().release_owner(ino, LockSpace::Flock, 1);
    until("the lock", || is_ok(&waits));
}
