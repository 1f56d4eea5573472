use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

use super::*;

const FILE: Ino = Ino(9);

type Answers = Arc<Mutex<Vec<(u64, &'static str)>>>;

struct Asked {
    unique: u64,
    interrupted: Arc<AtomicBool>,
    answers: Answers,
}

impl LockWaiter for Asked {
    fn unique(&self) -> u64 {
        self.unique
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    fn answer(self: Box<Self>, result: Result<(), VfsError>) {
        let text = match result {
            Ok(()) => "granted",
            Err(VfsError::Locked) => "locked",
            Err(VfsError::Deadlock) => "deadlock",
            Err(VfsError::Interrupted) => "interrupted",
            Err(_) => "other",
        };
        self.answers.lock().push((self.unique, text));
    }
}

#[derive(Default)]
struct World {
    table: LockTable,
    answers: Answers,
}

impl World {
    fn ask(&self, owner: u64, wait: bool, interrupted: bool) {
        let range = LockRange { start: 0, end: 9, kind: LockKind::Exclusive, pid: 1 };
        let request = LockRequest { space: LockSpace::Record, owner, fh: owner, range };
        let interrupted = Arc::new(AtomicBool::new(interrupted));
        let waiter = Asked { unique: owner, interrupted, answers: Arc::clone(&self.answers) };
        self.table.set(FILE, request, wait, Box::new(waiter));
    }

    fn heard(&self) -> Vec<(u64, &'static str)> {
        std::mem::take(&mut *self.answers.lock())
    }
}

#[test]
fn each_request_has_one_answer() {
    let world = World::default();
    world.ask(1, false, false);
    world.ask(2, false, false);
    world.ask(3, true, false);
    assert_eq!(world.heard(), [(1, "granted"), (2, "locked")]);
    assert_eq!(world.table.waiting(), 1);
    world.table.release_owner(FILE, LockSpace::Record, 1);
    assert_eq!(world.heard(), [(3, "granted")]);
    world.table.release_handle(FILE, 3);
    assert_eq!((world.heard(), world.table.waiting()), (Vec::new(), 0));
}

#[test]
fn a_signal_ends_the_wait_before_and_after_it_began() {
    let world = World::default();
    world.ask(1, false, false);
    world.ask(2, true, true);
    world.ask(3, true, false);
    world.table.interrupt(3);
    world.table.interrupt(3);
    assert_eq!(world.heard(), [(1, "granted"), (2, "interrupted"), (3, "interrupted")]);
    world.table.unlock(FILE, LockSpace::Record, 1, (0, 9));
    assert_eq!(world.heard(), []);
}

/// The kernel has closed the first file, gives its owner's number to the next one, and tells of the close later.
#[test]
fn a_close_that_is_told_late_takes_no_lock_of_the_next_open_file() {
    let world = World::default();
    let whole = |owner, fh| {
        let range = LockRange { start: 0, end: u64::MAX, kind: LockKind::Exclusive, pid: 1 };
        let request = LockRequest { space: LockSpace::Flock, owner, fh, range };
        let (interrupted, answers) = (Arc::default(), Arc::clone(&world.answers));
        world.table.set(FILE, request, false, Box::new(Asked { unique: fh, interrupted, answers }));
    };
    whole(1, 10);
    whole(1, 11);
    Locks::release_flock(&world.table, FILE, 1, 10);
    whole(2, 20);
    Locks::release_flock(&world.table, FILE, 1, 11);
    whole(2, 21);
    assert_eq!(world.heard(), [(10, "granted"), (11, "granted"), (20, "locked"), (21, "granted")]);
}
