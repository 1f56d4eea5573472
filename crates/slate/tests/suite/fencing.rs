//! Whoever opens a database shuts out the one that has it open.

use std::{
    path::Path,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use forebay_engine::{Batch, EngineError, EngineHost, Outcome};
use forebay_object::{Fault, FaultyStore, ObjectStore, Operation};
use forebay_slate::{SlateHost, Waits};

use crate::{
    contract::{all, batch, commit},
    owner::{MARK, settled},
    places::{PATIENT, open, store},
};

fn row(value: &str) -> [(Vec<u8>, Option<Vec<u8>>); 1] {
    [(b"row".to_vec(), Some(value.into()))]
}

/// The same for a directory and a bucket; `open` opens the place as another process would.
pub fn the_last_that_opened_it_writes(place: &dyn Fn() -> Box<dyn EngineHost>) {
    let name = "fenced".parse().unwrap();
    let (one, two) = (place(), place());
    let former = one.create(&name).unwrap();
    commit(former.as_ref(), &row("former"));
    let latter = two.open(&name).unwrap();
    assert_eq!(latter.get(b"row").unwrap(), Some(b"former".to_vec()));
    // A fence that the former's own rows hold, so that it is the store that fences.
    let theirs = batch(&[(b"row", Some(b"former"))], &[(b"row", Some(b"too late"))]);
    assert_ne!(former.commit(&theirs).unwrap(), Outcome::Committed);
    commit(latter.as_ref(), &row("latter"));
    for _ in 0..3 {
        assert_eq!(former.commit(&Batch::of(&row("too late"))).unwrap(), Outcome::Fenced);
        assert_eq!(former.get(b"row").unwrap(), Some(b"latter".to_vec()), "it reads what there is");
    }
    commit(latter.as_ref(), &row("latter again"));
    assert_eq!(former.get_many(&[b"row", b"none"]).unwrap(), [Some(b"latter again".to_vec()), None]);
    assert_eq!(all(former.as_ref()), all(latter.as_ref()));
    drop(latter);
    let back = one.open(&name).unwrap();
    commit(back.as_ref(), &row("back"));
    assert_eq!(all(back.as_ref()).len(), 1);
}

fn places(dir: &Path) -> impl Fn() -> Box<dyn EngineHost> {
    move || Box::new(open(dir))
}

#[test]
fn in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    the_last_that_opened_it_writes(&places(dir.path()));
}

/// What the former said is committed is there, and nothing else, when another opens the database under its commits.
#[test]
fn what_a_writer_said_before_it_was_shut_out_is_true() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = open(dir.path()).registry().unwrap();
    let mut expected = 0_u32;
    for _ in 0..6 {
        let begun = expected;
        let (next, said) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut last = begun;
                loop {
                    let (old, new) = (last.to_be_bytes(), (last + 1).to_be_bytes());
                    let old = (last > 0).then_some(old.as_slice());
                    let batch = batch(&[(MARK, old)], &[(MARK, Some(&new))]);
                    match engine.commit(&batch).unwrap() {
                        Outcome::Committed => last += 1,
                        Outcome::Fenced => return last,
                        Outcome::Unknown if settled(engine.as_ref(), &batch) == Outcome::Committed => {
                            last += 1
                        }
                        Outcome::Unknown => return last,
                    }
                }
            });
            let next = open(dir.path()).registry().unwrap();
            (next, writer.join().unwrap())
        });
        (engine, expected) = (next, said);
        let found = engine.get(MARK).unwrap();
        assert_eq!(found, (expected > 0).then(|| expected.to_be_bytes().to_vec()));
    }
}

/// A server writes to its registry every second; another that comes waits until it does not any more.
#[test]
fn the_registry_is_not_taken_from_who_writes_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).registry().unwrap();
    let waits = Waits { quiet: Duration::from_secs(5), ..PATIENT };
    let other = SlateHost::over(store(dir.path()), waits).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                commit(engine.as_ref(), &row("alive"));
            }
        });
        let locked = other.registry();
        ended.store(true, Ordering::Relaxed);
        assert!(matches!(locked, Err(EngineError::Locked { .. })), "{locked:?}");
    });
    let taken = other.registry().unwrap();
    assert_eq!(taken.get(b"row").unwrap(), Some(b"alive".to_vec()));
    assert_ne!(engine.commit(&Batch::of(&row("too late"))).unwrap(), Outcome::Committed);
    assert_eq!(taken.get(b"row").unwrap(), Some(b"alive".to_vec()));
}

/// The store takes longer for the first look at the log than a log is watched.
#[test]
fn the_registry_is_not_taken_because_the_store_is_slow() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path()).registry().unwrap();
    commit(engine.as_ref(), &row("alive"));
    let waits = Waits { quiet: Duration::from_secs(2), ..PATIENT };
    let slow = Arc::new(FaultyStore::new(Arc::new(store(dir.path())), 1));
    let other = SlateHost::over(ObjectStore::over(Arc::clone(&slow) as _), waits).unwrap();
    slow.plan(Operation::List, Fault::Delay(Duration::from_millis(2500)));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                commit(engine.as_ref(), &row("alive"));
            }
        });
        let locked = other.registry();
        ended.store(true, Ordering::Relaxed);
        assert!(matches!(locked, Err(EngineError::Locked { .. })), "{locked:?}");
    });
    assert_eq!(engine.commit(&Batch::of(&row("goes on"))).unwrap(), Outcome::Committed);
}

/// Who has opened it knows for how long nobody else has put anything: from before it was opened, unless somebody was still there.
#[test]
fn who_opens_the_registry_knows_since_when_nobody_else_has_put_anything() {
    const SLOW: Duration = Duration::from_secs(3);
    for writes in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let former = open(dir.path()).registry().unwrap();
        commit(former.as_ref(), &row("alive"));
        let slow = Arc::new(FaultyStore::new(Arc::new(store(dir.path())), 1));
        let waits = Waits { quiet: Duration::ZERO, ..PATIENT };
        let other = SlateHost::over(ObjectStore::over(Arc::clone(&slow) as _), waits).unwrap();
        // The log was looked at when the first of these comes.
        slow.plan(Operation::PutNew, Fault::Delay(SLOW));
        let (ended, wrote) = (AtomicBool::new(false), Mutex::new(None));
        // As soon as it has begun: what is committed until it is shut out comes after the look.
        let begun = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begun.wait();
                while writes && !ended.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    match former.commit(&Batch::of(&row("still there"))) {
                        Ok(Outcome::Committed) => *wrote.lock().unwrap() = Some(began),
                        _ => break,
                    }
                }
            });
            begun.wait();
            let taken = other.registry().unwrap();
            ended.store(true, Ordering::Relaxed);
            let alone_for = taken.alone_for().unwrap();
            match *wrote.lock().unwrap() {
                Some(began) => assert!(alone_for <= began.elapsed(), "{alone_for:?} {:?}", began.elapsed()),
                None => assert!(!writes && alone_for >= SLOW, "{alone_for:?}"),
            }
        });
    }
}
