//! What the namespace needs of an engine, asked of each.

use std::{collections::BTreeMap, sync::Arc};

use forebay_meta::{Batch, EmbeddedEngine, Engine, EngineError, MemoryEngine, Outcome};

type Change<'a> = (&'a [u8], Option<&'a [u8]>);

fn batch<'a>(expect: &[Change<'_>], rows: &[Change<'a>]) -> Batch<'a> {
    let expect = expect.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect();
    Batch { expect, rows: rows.to_vec() }
}

fn keys(engine: &dyn Engine, from: &[u8], to: Option<&[u8]>, limit: usize) -> (Vec<Vec<u8>>, bool) {
    let page = engine.scan(from, to, limit).unwrap();
    (page.rows.into_iter().map(|(key, _)| key).collect(), page.more)
}

fn keeps_rows_in_order(engine: &dyn Engine) {
    assert_eq!(keys(engine, b"", None, 10), (vec![], false));
    let rows: [Change<'_>; 6] = [
        (b"b", Some(b"2")),
        (b"a\xff", Some(b"3")),
        (b"a", Some(b"1")),
        (b"a\x00", Some(b"")),
        (b"\xff\xff", Some(b"9")),
        (b"gone", None),
    ];
    assert_eq!(engine.commit(&batch(&[], &rows)).unwrap(), Outcome::Committed);
    let all: Vec<Vec<u8>> =
        vec![b"a".into(), b"a\x00".into(), b"a\xff".into(), b"b".into(), b"\xff\xff".into()];
    assert_eq!(keys(engine, b"", None, 10), (all.clone(), false));
    assert_eq!(
        keys(engine, b"", None, 5),
        (all.clone(), false),
        "a full page is not always followed by more"
    );
    assert_eq!(keys(engine, b"", None, 4), (all[..4].to_vec(), true));
    assert_eq!(keys(engine, b"a\x00", Some(b"b"), 10), (all[1..3].to_vec(), false));
    assert_eq!(keys(engine, b"a\x00", Some(b"b"), 1), (all[1..2].to_vec(), true));
    assert_eq!(keys(engine, b"a\x00\x00", Some(b"b"), 1), (all[2..3].to_vec(), false));
    assert_eq!(keys(engine, b"b", Some(b"b"), 10), (vec![], false));
    assert_eq!(engine.get(b"a\x00").unwrap(), Some(Vec::new()), "an empty value is a value");
    assert_eq!(engine.get(b"gone").unwrap(), None);
    engine.commit(&batch(&[], &[(b"a", None), (b"b", Some(b"two"))])).unwrap();
    assert_eq!(engine.get(b"a").unwrap(), None);
    assert_eq!(engine.get(b"b").unwrap(), Some(b"two".to_vec()));
    assert_eq!(keys(engine, b"", None, 10), (all[1..].to_vec(), false));
}

fn pages_many_rows(engine: &dyn Engine) {
    let key = |number: u32| [b"page".as_slice(), &number.to_be_bytes()].concat();
    for part in 0..4 {
        let rows: Vec<_> = (0..500).map(|at| (key(at * 4 + part), Some(vec![part as u8; 100]))).collect();
        engine.commit(&Batch::of(&rows)).unwrap();
    }
    let (mut from, mut seen) = (key(0), 0);
    loop {
        let page = engine.scan(&from, Some(b"pagf"), 333).unwrap();
        for (found, value) in &page.rows {
            assert_eq!((found, value), (&key(seen), &vec![(seen % 4) as u8; 100]));
            seen += 1;
        }
        let Some((last, _)) = page.rows.last().filter(|_| page.more) else { break };
        from = [last.as_slice(), b"\x00"].concat();
    }
    assert_eq!(seen, 2000);
}

fn fences(engine: &dyn Engine) {
    let put = |expect: &[Change<'_>], value: &[u8]| {
        engine.commit(&batch(expect, &[(b"fenced", Some(value)), (b"beside", Some(value))])).unwrap()
    };
    assert_eq!(put(&[(b"fenced", Some(b"1"))], b"0"), Outcome::Fenced);
    assert_eq!(engine.get(b"beside").unwrap(), None, "all or nothing");
    assert_eq!(put(&[(b"fenced", None)], b"1"), Outcome::Committed);
    assert_eq!(put(&[(b"fenced", None)], b"2"), Outcome::Fenced);
    assert_eq!(put(&[(b"fenced", Some(b"1")), (b"beside", Some(b"x"))], b"2"), Outcome::Fenced);
    assert_eq!(put(&[(b"fenced", Some(b"1")), (b"beside", Some(b"1"))], b"2"), Outcome::Committed);
    assert_eq!(engine.get(b"fenced").unwrap(), Some(b"2".to_vec()));
    engine.commit(&Batch::default()).unwrap();
}

fn suite(engine: &dyn Engine) {
    keeps_rows_in_order(engine);
    pages_many_rows(engine);
    fences(engine);
}

#[test]
fn the_memory_engine_passes_the_suite() {
    suite(&MemoryEngine::default());
}

#[test]
fn the_embedded_engine_passes_the_suite_and_keeps_it_when_reopened() {
    let dir = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(dir.path()).unwrap();
    suite(&engine);
    let all = engine.scan(b"", None, usize::MAX).unwrap().rows;
    drop(engine);
    let engine = EmbeddedEngine::open(dir.path()).unwrap();
    assert_eq!(engine.scan(b"", None, usize::MAX).unwrap().rows, all);
    engine.settle().unwrap();
    assert_eq!(engine.scan(b"", None, usize::MAX).unwrap().rows, all);
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

fn all(engine: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    engine.scan(b"", None, usize::MAX).unwrap().rows
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
