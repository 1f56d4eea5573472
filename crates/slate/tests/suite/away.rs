//! Stores that are away, late, or lose answers.

use std::{sync::Arc, time::Duration};

use forebay_engine::{Engine, EngineError, EngineHost, Outcome, settle};
use forebay_object::{Fault, Faults, FaultyStore, ObjectStore, Operation};
use forebay_slate::{SlateHost, Waits};

use crate::{
    contract::{all, batch},
    owner::{MARK, Owner, settled},
    places::{PATIENT, open, store},
};

const IMPATIENT: Waits = Waits { commit: Duration::from_millis(300), ..PATIENT };

fn over(dir: &tempfile::TempDir, waits: Waits) -> (Arc<FaultyStore>, SlateHost) {
    let faulty = Arc::new(FaultyStore::new(Arc::new(store(dir.path())), 1));
    let host = SlateHost::over(ObjectStore::over(Arc::clone(&faulty) as _), waits).unwrap();
    (faulty, host)
}

#[test]
fn a_store_that_comes_back_is_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let (faulty, host) = over(&dir, IMPATIENT);
    // Made by one that waits for it.
    drop(open(dir.path()).registry().unwrap());
    let engine = loop {
        match host.registry() {
            Err(EngineError::Unreachable { .. }) => {}
            engine => break engine.unwrap(),
        }
    };
    let mut owner = Owner::new();
    owner.next(|batch| Ok(settled_of(engine.as_ref(), batch)));
    faulty.set_away(true);
    let first = batch(&[(MARK, Some(&1_u32.to_be_bytes()))], &[(MARK, Some(b"two"))]);
    assert_eq!(engine.commit(&first).unwrap(), Outcome::Unknown);
    let unsettled = settle(engine.as_ref(), &first, MARK).unwrap_err();
    assert!(matches!(unsettled, EngineError::Unreachable { .. }), "{unsettled}");
    assert!(
        unsettled.to_string().contains("away") || unsettled.to_string().contains("answer"),
        "{unsettled}"
    );
    assert_eq!(
        engine.get(MARK).unwrap(),
        Some(1_u32.to_be_bytes().to_vec()),
        "what is not durable is not shown"
    );
    let fenced = engine.commit(&batch(&[(MARK, None)], &[(MARK, Some(b"three"))])).unwrap_err();
    assert!(matches!(fenced, EngineError::Unreachable { .. }), "fenced by what may not come: {fenced}");
    faulty.set_away(false);
    assert_eq!(settled(engine.as_ref(), &first), Outcome::Committed);
    assert_eq!(engine.get(MARK).unwrap(), Some(b"two".to_vec()));
    drop(engine);
    assert_eq!(all(open(dir.path()).registry().unwrap().as_ref()).len(), 2);
}

fn settled_of(engine: &dyn Engine, batch: &forebay_engine::Batch<'_>) -> Outcome {
    match engine.commit(batch).unwrap() {
        Outcome::Unknown => settled(engine, batch),
        outcome => outcome,
    }
}

/// A put that took place and was answered by an error looks to SlateDB as if another writer had begun. What is said of it is true all the same.
#[test]
fn a_lost_answer_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let (faulty, host) = over(&dir, PATIENT);
    let engine = host.registry().unwrap();
    faulty.plan(Operation::PutNew, Fault::LoseAnswer);
    let first = batch(&[(MARK, None)], &[(MARK, Some(b"one")), (b"row", Some(b"1"))]);
    assert_eq!(engine.commit(&first).unwrap(), Outcome::Unknown);
    assert_eq!(settled(engine.as_ref(), &first), Outcome::Committed);
    let second = batch(&[(MARK, Some(b"one"))], &[(MARK, Some(b"two"))]);
    assert_eq!(engine.commit(&second).unwrap(), Outcome::Fenced, "it was shut out, by itself");
    let engine = host.registry().unwrap();
    assert_eq!(engine.get(b"row").unwrap(), Some(b"1".to_vec()));
    assert_eq!(engine.commit(&second).unwrap(), Outcome::Committed);
}

/// Another writer begins while a put of the former one is on its way.
#[test]
fn a_put_that_is_still_to_come_finds_its_key_taken() {
    let dir = tempfile::tempdir().unwrap();
    let (faulty, host) = over(&dir, IMPATIENT);
    drop(open(dir.path()).registry().unwrap());
    let former = loop {
        match host.registry() {
            Err(EngineError::Unreachable { .. }) => {}
            engine => break engine.unwrap(),
        }
    };
    faulty.set_away(true);
    let first = batch(&[(MARK, None)], &[(MARK, Some(b"one"))]);
    assert_eq!(former.commit(&first).unwrap(), Outcome::Unknown);
    let latter = open(dir.path()).registry().unwrap();
    faulty.set_away(false);
    assert_eq!(settled(former.as_ref(), &first), Outcome::Fenced);
    assert_eq!(latter.get(MARK).unwrap(), None);
    assert_eq!(latter.commit(&first).unwrap(), Outcome::Committed);
    assert_eq!(former.get(MARK).unwrap(), Some(b"one".to_vec()));
}

/// Whatever goes wrong with requests: what is there is exactly what was said to be committed.
#[test]
fn what_is_said_is_true_over_a_store_of_faults() {
    let dir = tempfile::tempdir().unwrap();
    let (faulty, host) = over(&dir, PATIENT);
    let mut engine = host.registry().unwrap();
    faulty.set_faults(Faults { fail_before: 30, throttle: 10, lose_answer: 40, ..Faults::default() });
    let (mut owner, mut opened) = (Owner::new(), 0);
    while owner.committed.len() < 60 {
        let outcome = owner.next(|batch| Ok(settled_of(engine.as_ref(), batch)));
        if outcome != Some(Outcome::Committed) {
            owner.check(engine.as_ref());
            // It was shut out by a lost answer.
            engine = loop {
                match host.registry() {
                    Err(EngineError::Locked { .. } | EngineError::Unreachable { .. }) => {}
                    engine => break engine.unwrap(),
                }
            };
            opened += 1;
        }
        owner.check(engine.as_ref());
    }
    faulty.set_faults(Faults::default());
    assert!(opened > 0, "no answer of the log was lost");
    owner.check(open(dir.path()).registry().unwrap().as_ref());
}
