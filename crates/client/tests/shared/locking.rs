//! Locks of several clients.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use forebay_meta::SetAttr;
use forebay_types::Ino;
use forebay_vfs::{
    By, Files, LockKind, LockRange, LockRequest, LockSpace, LockWaiter, Through, VfsError, Write, WriteAt,
};
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

/// Through the handle that [`request`] locks with.
fn through(owner: u64) -> Through {
    Through { fh: owner, lock_owner: None }
}

fn write(client: &Client, ino: Ino, owner: u64, data: &[u8]) -> Result<u64, VfsError> {
    let by = By { through: Some(through(owner)), ..By::default() };
    client.volume.write(ino, &Write { at: WriteAt::Offset(0), data, by })
}

/// Two counts under its lock while one, who had it, is cut off.
fn count_elsewhere(one: &Client, two: &Client, ino: Ino) {
    let (_, waits) = lock(two, ino, 1, LockKind::Exclusive, true);
    until("the lock of a client that is cut off", || is_ok(&waits));
    assert_eq!(two.read(ino), b"457");
    write(two, ino, 1, b"462").unwrap();
    two.volume.sync_file(ino).unwrap();
    two.volume.locks().unwrap().release_owner(ino, LockSpace::Flock, 1);
    one.wire.mend();
}

fn locked_at_457(world: &std::sync::Arc<World>) -> (Client, Client, Ino) {
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("counter");
    one.write(ino, 0, b"457");
    one.volume.sync_file(ino).unwrap();
    // The right to write goes, so that the next write has to ask for it.
    assert_eq!(two.read(ino), b"457");
    assert!(is_ok(&lock(&one, ino, 1, LockKind::Exclusive, false).1));
    assert_eq!(one.read(ino), b"457");
    (one, two, ino)
}

fn is_refused<T: std::fmt::Debug>(result: Result<T, VfsError>) {
    assert!(matches!(result, Err(VfsError::Failed(_))), "{result:?}");
}

#[test]
fn a_write_that_waits_while_its_lock_is_lost_is_not_carried_out() {
    let world = World::new();
    let (one, two, ino) = locked_at_457(&world);
    one.wire.cut();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(&one, ino, 1, b"458"));
        count_elsewhere(&one, &two, ino);
        is_refused(writing.join().unwrap());
    });
    one.volume.sync_file(ino).unwrap();
    assert_eq!((two.read(ino), one.read(ino)), (b"462".to_vec(), b"462".to_vec()));
}

#[test]
fn who_has_lost_a_lock_neither_sees_nor_changes_the_file_through_it() {
    let world = World::new();
    let (one, two, ino) = locked_at_457(&world);
    let session = one.volume.session();
    one.wire.cut();
    count_elsewhere(&one, &two, ino);
    until("the next session", || one.volume.session() > session);
    let locks = one.volume.locks().unwrap();
    let by = By { through: Some(through(1)), ..By::default() };
    is_refused(locks.refuse_lost(ino, through(1)));
    is_refused(write(&one, ino, 1, b"458"));
    is_refused(one.volume.write(ino, &Write { at: WriteAt::End(3), data: b"458", by }));
    is_refused(one.volume.punch(ino, 0, 2, None, by));
    is_refused(one.volume.allocate(ino, 100, by));
    let other = one.make("other");
    one.write(other, 0, b"458");
    is_refused(one.volume.copy_range((other, 0), (ino, 0), 3, by));
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    is_refused(one.volume.set_attr_through(ino, &cut, through(1)));
    assert_eq!(two.read(ino), b"462");
    // Others here have lost nothing.
    locks.refuse_lost(ino, through(2)).unwrap();
    locks.refuse_lost(other, through(1)).unwrap();
    write(&one, ino, 2, b"463").unwrap();
    // Once it was given up, it can be had again.
    locks.release_owner(ino, LockSpace::Flock, 1);
    locks.refuse_lost(ino, through(1)).unwrap();
    assert!(is_ok(&lock(&one, ino, 1, LockKind::Exclusive, false).1));
    write(&one, ino, 1, b"464").unwrap();
    assert_eq!(two.read(ino), b"464");
}

#[test]
fn record_locks_are_lost_for_their_owner_and_what_was_unlocked_is_not_lost() {
    let world = World::new();
    let (one, two) = (world.client("one"), world.client("two"));
    let ino = one.make("a");
    let record = |owner, start, end| LockRequest {
        space: LockSpace::Record,
        owner,
        fh: owner + 100,
        range: LockRange { start, end, kind: LockKind::Exclusive, pid: 1 },
    };
    let set = |request| {
        let (unique, outcome) = (NEXT.fetch_add(1, SeqCst), Outcome::default());
        let waiter = Box::new(Waiter(unique, Arc::clone(&outcome)));
        one.volume.locks().unwrap().set(ino, request, false, waiter);
        assert!(is_ok(&outcome));
    };
    let locks = one.volume.locks().unwrap();
    set(record(1, 0, 9));
    for (start, end) in [(20, 29), (30, 49)] {
        set(record(2, start, end));
    }
    locks.unlock(ino, LockSpace::Record, 2, (0, 39)).unwrap();
    locks.unlock(ino, LockSpace::Record, 2, (40, i64::MAX as u64)).unwrap();
    let session = one.volume.session();
    one.wire.cut();
    until("the end of the session", || world.owner().unwrap().status().sessions < 2);
    one.wire.mend();
    until("the next session", || one.volume.session() > session);
    // By another descriptor of the same process.
    is_refused(locks.refuse_lost(ino, Through { fh: 7, lock_owner: Some(1) }));
    is_refused(locks.refuse_lost(ino, Through { fh: 101, lock_owner: None }));
    locks.refuse_lost(ino, Through { fh: 7, lock_owner: Some(3) }).unwrap();
    locks.refuse_lost(ino, Through { fh: 102, lock_owner: Some(2) }).unwrap();
    set(record(2, 0, 9));
    locks.release_owner(ino, LockSpace::Record, 1);
    locks.refuse_lost(ino, Through { fh: 101, lock_owner: Some(1) }).unwrap();
    assert_eq!(two.read(ino), b"");
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
