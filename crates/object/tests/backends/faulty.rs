use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_object::{
    Backend, DirectoryStore, ErrorKind, Fault, Faults, FaultyStore, ObjectStore, Operation,
};

use crate::suite::{content, keys, kind, suite};

fn store(seed: u64) -> (tempfile::TempDir, FaultyStore) {
    let dir = tempfile::tempdir().unwrap();
    let inner = DirectoryStore::create(dir.path()).unwrap();
    (dir, FaultyStore::new(Arc::new(inner), seed))
}

#[test]
fn passes_the_suite_while_nothing_is_wrong() {
    let (_dir, store) = store(1);
    store.set_faults(Faults { delay: 10, delay_by: Duration::from_micros(200), ..Faults::default() });
    suite(&store);
    assert!(store.count(Operation::PutNew) > 1000);
    assert!(store.total() > store.count(Operation::PutNew));
}

#[test]
fn planned_faults_happen_once_and_in_order() {
    let (_dir, store) = store(2);
    store.plan(Operation::PutNew, Fault::FailBefore);
    store.plan(Operation::PutNew, Fault::Throttle);
    store.plan(Operation::PutNew, Fault::Refuse(ErrorKind::NoSpace));
    store.plan(Operation::PutNew, Fault::LoseAnswer);
    let put = || store.put_new("a", content(1, 100));
    let lost = put().unwrap_err();
    assert!(lost.kind() == ErrorKind::Unreachable && lost.is_transient(), "{lost}");
    assert_eq!(kind(store.head("a")), ErrorKind::NotFound);
    assert_eq!(kind(put()), ErrorKind::Throttled);
    assert_eq!(kind(put()), ErrorKind::NoSpace);
    assert_eq!(kind(put()), ErrorKind::Unreachable);
    assert_eq!(store.get("a").unwrap().0, content(1, 100), "only the answer was lost");
    assert_eq!(kind(put()), ErrorKind::AlreadyExists);
    assert_eq!(store.count(Operation::PutNew), 5);
}

#[test]
fn damage_is_in_what_is_read_not_in_what_is_stored() {
    let (_dir, store) = store(3);
    let good = content(1, 100);
    store.put_new("a", good.clone()).unwrap();
    store.plan(Operation::GetRange, Fault::FlipBit);
    let flipped = store.get_range("a", 0..100).unwrap();
    let bits: u32 = flipped.iter().zip(&good).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(bits, 1);
    store.plan(Operation::GetRange, Fault::Truncate);
    assert!(store.get_range("a", 0..100).unwrap().len() < 100);
    store.plan(Operation::Get, Fault::FlipBit);
    assert_ne!(store.get("a").unwrap().0, good);
    assert_eq!(store.get("a").unwrap().0, good);
    assert_eq!(store.get_range("a", 0..100).unwrap(), good);
}

#[test]
fn a_store_that_is_away_does_nothing() {
    let (_dir, faulty) = store(4);
    let faulty = Arc::new(faulty);
    let store = ObjectStore::over(faulty.clone());
    store.put_new("a", Bytes::new()).unwrap();
    faulty.set_away(true);
    assert_eq!(kind(store.put_new("b", Bytes::new())), ErrorKind::Unreachable);
    assert_eq!(kind(store.delete("a")), ErrorKind::Unreachable);
    assert_eq!(kind(store.list("", None)), ErrorKind::Unreachable);
    let last = store.last_error().unwrap();
    assert_eq!((last.error.kind(), last.error.operation()), (ErrorKind::Unreachable, Operation::List));
    assert_eq!(store.counters().operation(Operation::Delete).errors, 1);
    faulty.set_away(false);
    assert_eq!(keys(&store, ""), ["a"]);
}

#[test]
fn chance_is_the_same_for_the_same_seed() {
    let run = |seed| {
        let (_dir, store) = store(seed);
        store.set_faults(Faults { fail_before: 200, lose_answer: 200, throttle: 200, ..Faults::default() });
        (0..60)
            .map(|i| store.put_new(&format!("k/{i}"), Bytes::new()).map_err(|e| e.kind()).err())
            .collect::<Vec<_>>()
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
    let kinds = run(5);
    for kind in [None, Some(ErrorKind::Unreachable), Some(ErrorKind::Throttled)] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
}
