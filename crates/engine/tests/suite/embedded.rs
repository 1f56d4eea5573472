//! What only the embedded engine does.

use std::{collections::BTreeMap, sync::Arc};

use forebay_engine::{Batch, EmbeddedEngine, Engine, EngineError, Outcome};

use crate::contract::{all, batch, contract, keys};

#[test]
fn the_embedded_engine_keeps_the_contract_and_its_rows_when_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(dir.path()).unwrap();
    contract(&engine);
    let before = all(&engine);
    drop(engine);
    let engine = EmbeddedEngine::open(dir.path()).unwrap();
    assert!(all(&engine) == before);
    engine.settle().unwrap();
    assert!(all(&engine) == before);
    assert_eq!(keys(&engine, b"b", Some(b"a"), 10), (vec![], false), "an empty range is no error");
    engine.commit(&batch(&[], &[(b"after", Some(b"1"))])).unwrap();
    assert!(engine.size_on_disk() > 0);
}

/// A batch that is large enough to become a sorted file at once; every seventh row is a deletion.
fn large(round: u32) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let key = |number: u32| [b"large".as_slice(), &number.to_be_bytes()].concat();
    let value = |at: u32| (at % 7 != round).then(|| format!("{round} {at}").into_bytes());
    (0..20_000).map(|at| (key(at * (round + 1)), value(at))).collect()
}

#[test]
fn the_embedded_engine_takes_large_batches_among_small_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = EmbeddedEngine::open(dir.path()).unwrap();
    let mut model = BTreeMap::new();
    for round in 0..6_u32 {
        let small = |value: &str| {
            let beside = (b"beside".to_vec(), Some(value.into()));
            vec![(large(round)[round as usize].0.clone(), None), (large(0)[70].0.clone(), None), beside]
        };
        let mut reversed = large(round / 2);
        reversed.reverse();
        for rows in [small("before"), large(round), small("after"), reversed] {
            let expect = vec![(b"beside".to_vec(), model.get(b"beside".as_slice()).cloned())];
            let batch = Batch { expect, ..Batch::of(&rows) };
            assert_eq!(engine.commit(&batch).unwrap(), Outcome::Committed);
            for (key, value) in rows {
                match value {
                    Some(value) => drop(model.insert(key, value)),
                    None => drop(model.remove(&key)),
                }
            }
        }
        let expected: Vec<_> = model.clone().into_iter().collect();
        assert!(all(&engine) == expected, "round {round}");
        let frozen = engine.frozen().unwrap();
        engine.commit(&Batch::of(&large(round + 1))).unwrap();
        assert!(all(&frozen) == expected, "what is frozen does not change, round {round}");
        let more = large(round);
        let refused = Batch { expect: vec![(b"beside".to_vec(), None)], ..Batch::of(&more) };
        assert_eq!(engine.commit(&refused).unwrap(), Outcome::Fenced);
        drop(frozen);
        drop(engine);
        engine = EmbeddedEngine::open(dir.path()).unwrap();
        for (key, value) in large(round + 1) {
            match value {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
        assert!(all(&engine) == model.clone().into_iter().collect::<Vec<_>>(), "reopened, round {round}");
    }
    engine.settle().unwrap();
    assert!(all(&engine) == model.into_iter().collect::<Vec<_>>(), "settled");
}

#[test]
fn the_embedded_engine_is_one_process_s() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(EmbeddedEngine::open(dir.path()).unwrap());
    let second = EmbeddedEngine::open(dir.path());
    assert!(matches!(second, Err(EngineError::Locked { .. })), "{second:?}");
    drop(engine);
    EmbeddedEngine::open(dir.path()).unwrap();
}
