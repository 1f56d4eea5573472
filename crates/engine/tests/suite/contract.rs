//! The contract of [`Engine`], as cases that any engine has to pass. Each case has keys of its own.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use forebay_engine::{Batch, Engine, KEY_MAX, Outcome, settle};

pub type Change<'a> = (&'a [u8], Option<&'a [u8]>);
type OwnedRow = (Vec<u8>, Option<Vec<u8>>);

/// All of it. The engine is empty before.
pub fn contract(engine: &dyn Engine) {
    keeps_rows_in_order(engine);
    pages_many_rows(engine);
    gets_many(engine);
    orders_any_bytes(engine);
    fences(engine);
    takes_large_values(engine);
    takes_large_batches(engine);
    settles(engine);
    reads_are_snapshots(engine);
    counts_under_fences(engine);
    one_of_many_creates(engine);
    fences_on_absent_rows_exclude_each_other(engine);
}

pub fn batch<'a>(expect: &[Change<'_>], rows: &[Change<'a>]) -> Batch<'a> {
    let expect = expect.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec))).collect();
    Batch { expect, rows: rows.to_vec() }
}

pub fn keys(engine: &dyn Engine, from: &[u8], to: Option<&[u8]>, limit: usize) -> (Vec<Vec<u8>>, bool) {
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

pub fn all(engine: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    engine.scan(b"", None, usize::MAX).unwrap().rows
}

pub fn commit(engine: &dyn Engine, rows: &[OwnedRow]) {
    assert_eq!(engine.commit(&Batch::of(rows)).unwrap(), Outcome::Committed);
}

fn gets_many(engine: &dyn Engine) {
    let (one, two, none) = (b"many 1".as_slice(), b"many 2".as_slice(), b"many 3".as_slice());
    assert_eq!(engine.get_many(&[]).unwrap(), Vec::<Option<Vec<u8>>>::new());
    engine.commit(&batch(&[], &[(one, Some(b"1")), (two, Some(b""))])).unwrap();
    let found = engine.get_many(&[two, none, one, two]).unwrap();
    assert_eq!(found, [Some(vec![]), None, Some(b"1".to_vec()), Some(vec![])]);
}

/// Keys of all bytes that an encoding or a collation could trip over.
fn orders_any_bytes(engine: &dyn Engine) {
    let bytes = [0x00, 0x01, b'\'', b'A', b'\\', b'a', 0x7f, 0x80, 0xc3, 0xff];
    let mut tails: Vec<Vec<u8>> = vec![vec![]];
    for length in 1..=3 {
        let shorter: Vec<_> = tails.iter().filter(|tail| tail.len() == length - 1).cloned().collect();
        tails.extend(shorter.iter().flat_map(|tail| bytes.map(|byte| [tail.as_slice(), &[byte]].concat())));
    }
    let keys: Vec<Vec<u8>> = tails.iter().map(|tail| [b"bytes".as_slice(), tail].concat()).collect();
    let mut rows: Vec<OwnedRow> = keys.iter().map(|key| (key.clone(), Some(key.clone()))).collect();
    rows.push(([b"bytes".as_slice(), &vec![0xff; KEY_MAX - 5]].concat(), Some(b"longest".to_vec())));
    rows.reverse();
    commit(engine, &rows);
    rows.sort();
    let found = engine.scan(b"bytes", Some(b"bytet"), usize::MAX).unwrap().rows;
    assert_eq!(found.len(), rows.len());
    assert!(found.iter().zip(&rows).all(|(found, row)| found.0 == row.0 && Some(&found.1) == row.1.as_ref()));
    for (at, (key, value)) in rows.iter().enumerate().step_by(37) {
        assert_eq!(&engine.get(key).unwrap(), value);
        let to = [key.as_slice(), b"\x00"].concat();
        assert_eq!(engine.scan(key, Some(&to), 10).unwrap().rows.len(), 1);
        assert_eq!(engine.scan(b"bytes", Some(key), usize::MAX).unwrap().rows.len(), at);
    }
}

/// Bytes that no compression makes small.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn takes_large_values(engine: &dyn Engine) {
    let large = [noise(8 << 20, 1), vec![7; 8 << 20], noise(3000, 2)];
    let rows: Vec<OwnedRow> = (0_u8..)
        .zip(&large)
        .map(|(at, value)| ([b"value".as_slice(), &[at]].concat(), Some(value.clone())))
        .collect();
    commit(engine, &rows);
    assert!(engine.get(b"value\x00").unwrap().as_ref() == Some(&large[0]));
    let page = engine.scan(b"value", Some(b"valuf"), 10).unwrap();
    assert!(page.rows.into_iter().map(|(_, value)| value).eq(large.clone()));
    let replaced = [(b"value\x00".to_vec(), Some(b"small".to_vec())), (b"value\x01".to_vec(), None)];
    commit(engine, &replaced);
    assert!(
        engine.get_many(&[b"value\x00", b"value\x01", b"value\x02"]).unwrap()
            == [Some(b"small".to_vec()), None, Some(large[2].clone())]
    );
}

fn takes_large_batches(engine: &dyn Engine) {
    let key = |number: u32| [b"batch".as_slice(), &number.to_be_bytes()].concat();
    let rows: Vec<OwnedRow> = (0..100_000).map(|at| (key(at), Some(noise(60, at.into())))).collect();
    commit(engine, &rows);
    let rows: Vec<OwnedRow> =
        (0..100_000).map(|at| (key(at), (at % 10 == 3).then(|| b"new".to_vec()))).collect();
    let fenced = Batch { expect: vec![(key(5), None)], ..Batch::of(&rows) };
    assert_eq!(engine.commit(&fenced).unwrap(), Outcome::Fenced);
    assert_eq!(engine.scan(b"batch", Some(b"batci"), usize::MAX).unwrap().rows.len(), 100_000);
    commit(engine, &rows);
    let found = engine.scan(b"batch", Some(b"batci"), usize::MAX).unwrap().rows;
    assert_eq!(found.len(), 10_000);
    assert!((0..).zip(found).all(|(at, row)| row == (key(at * 10 + 3), b"new".to_vec())));
}

/// A batch is settled whether or not its first attempt was committed, also when others came after it.
fn settles(engine: &dyn Engine) {
    let fence = (b"settle fence".to_vec(), Some(b"epoch 1".to_vec()));
    let mark = b"settle mark".as_slice();
    let of = |old: Option<&[u8]>, rows| {
        let expect = vec![fence.clone(), (mark.to_vec(), old.map(<[u8]>::to_vec))];
        Batch { expect, rows }
    };
    commit(engine, std::slice::from_ref(&fence));
    let first = of(None, vec![(mark, Some(b"1")), (b"settle row", Some(b"first"))]);
    assert_eq!(settle(engine, &first, mark).unwrap(), Outcome::Committed, "it had not come");
    assert_eq!(settle(engine, &first, mark).unwrap(), Outcome::Committed, "it had come");
    assert_eq!(engine.commit(&first).unwrap(), Outcome::Fenced, "it does not come twice");
    let second = of(Some(b"1"), vec![(mark, Some(b"2"))]);
    assert_eq!(engine.commit(&second).unwrap(), Outcome::Committed);
    let third = of(Some(b"2"), vec![(mark, Some(b"3")), (b"settle row", Some(b"third"))]);
    commit(engine, &[(fence.0.clone(), Some(b"epoch 2".to_vec()))]);
    assert_eq!(
        settle(engine, &second, mark).unwrap(),
        Outcome::Committed,
        "although somebody took over since"
    );
    assert_eq!(settle(engine, &third, mark).unwrap(), Outcome::Fenced);
    assert_eq!(engine.get(b"settle row").unwrap(), Some(b"first".to_vec()));
    settle(engine, &of(Some(b"2"), vec![(mark, Some(b"2"))]), mark).unwrap_err();
    settle(engine, &of(Some(b"2"), vec![]), mark).unwrap_err();
}

/// While one thread gives all rows one new value after the other, no page and no set of gets has two of them.
fn reads_are_snapshots(engine: &dyn Engine) {
    const ROWS: u8 = 40;
    let key = |at: u8| [b"snapshot".as_slice(), &[at]].concat();
    let put = |round: u32| {
        let value = round.to_be_bytes().to_vec();
        commit(engine, &(0..ROWS).map(|at| (key(at), Some(value.clone()))).collect::<Vec<_>>());
    };
    put(0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            (1..=60).for_each(put);
            done.store(true, Ordering::Release);
        });
        let keys: Vec<_> = (0..ROWS).map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut last = Vec::new();
        while !done.load(Ordering::Acquire) || last != 60_u32.to_be_bytes() {
            let page = engine.scan(b"snapshot", Some(b"snapshou"), usize::MAX).unwrap().rows;
            assert_eq!(page.len(), usize::from(ROWS));
            assert!(page.iter().all(|(_, value)| *value == page[0].1), "a page of two states");
            assert!(page[0].1 >= last, "a state that was over");
            let many = engine.get_many(&keys).unwrap();
            assert!(many.iter().all(|value| *value == many[0]), "gets of two states");
            last = many[0].clone().unwrap();
            assert!(last >= page[0].1, "a state that was over");
        }
    });
}

/// Adds one to a counter row under a fence, until it was not fenced.
fn count(engine: &dyn Engine, key: &[u8], beside: &[u8]) {
    loop {
        let old = engine.get(key).unwrap();
        let number = old.as_deref().map_or(0, |old| u32::from_be_bytes(old.try_into().unwrap()));
        let new = (number + 1).to_be_bytes();
        let mine = [beside, &new].concat();
        let batch =
            Batch { expect: vec![(key.to_vec(), old)], rows: vec![(key, Some(&new)), (&mine, Some(beside))] };
        match engine.commit(&batch).unwrap() {
            Outcome::Committed => return,
            Outcome::Fenced => {}
            Outcome::Unknown => panic!("nothing was cut"),
        }
    }
}

fn counts_under_fences(engine: &dyn Engine) {
    const EACH: u32 = 40;
    thread::scope(|scope| {
        for writer in [b"counted by 1 ".as_slice(), b"counted by 2 "] {
            scope.spawn(move || (0..EACH).for_each(|_| count(engine, b"counter", writer)));
        }
    });
    assert_eq!(engine.get(b"counter").unwrap(), Some((2 * EACH).to_be_bytes().to_vec()));
    assert_eq!(
        engine.scan(b"counted by", Some(b"counted bz"), usize::MAX).unwrap().rows.len(),
        2 * EACH as usize
    );
}

/// Runs work on as many threads as there is work, all begun together.
fn race<T: Send>(work: &[&(dyn Fn() -> T + Sync)]) -> Vec<T> {
    let start = Barrier::new(work.len());
    thread::scope(|scope| {
        let started = |one| {
            let start = &start;
            move || {
                start.wait();
                let one: &(dyn Fn() -> T + Sync) = one;
                one()
            }
        };
        let threads: Vec<_> = work.iter().map(|one| scope.spawn(started(*one))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn one_of_many_creates(engine: &dyn Engine) {
    for round in 0_u8..15 {
        let key = [b"created".as_slice(), &[round]].concat();
        let create = |who: &[u8]| engine.commit(&batch(&[(&key, None)], &[(&key, Some(who))])).unwrap();
        let outcomes = race(&[&|| create(b"0"), &|| create(b"1"), &|| create(b"2")]);
        let made: Vec<_> = (0..3).filter(|who| outcomes[*who] == Outcome::Committed).collect();
        assert_eq!(made.len(), 1, "{outcomes:?}");
        assert_eq!(engine.get(&key).unwrap(), Some(made[0].to_string().into_bytes()));
    }
}

/// Two batches, each of which puts what the other expects to be absent: at most one of them is committed, in either form of expectation.
fn fences_on_absent_rows_exclude_each_other(engine: &dyn Engine) {
    for round in 0_u8..15 {
        let [one, two] = [1, 2].map(|side| [b"skew".as_slice(), &[round, side]].concat());
        let put =
            |expect: Change<'_>, key: &[u8]| engine.commit(&batch(&[expect], &[(key, Some(b"1"))])).unwrap();
        let value = (round % 2 == 1).then_some(b"0".as_slice());
        if value.is_some() {
            commit(engine, &[(one.clone(), value.map(<[u8]>::to_vec))]);
        }
        let outcomes = race(&[&|| put((&one, value), &two), &|| put((&two, None), &one)]);
        assert!(outcomes.contains(&Outcome::Committed), "{outcomes:?}");
        assert!(outcomes.contains(&Outcome::Fenced), "{outcomes:?}");
    }
}
