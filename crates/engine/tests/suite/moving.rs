//! Rows that are copied under a writer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use forebay_engine::{
    Batch, CopyError, CopyMark, Engine, EngineError, Keys, MemoryEngine, MovableEngine, Outcome, RowPage,
    Writers, compare_all, compare_rows, copy_all, copy_rows, settle,
};
use parking_lot::Mutex;

const LIMIT: Duration = Duration::from_secs(60);

type Rows = Vec<(Vec<u8>, Option<Vec<u8>>)>;
type Late = (Vec<(Vec<u8>, Option<Vec<u8>>)>, Rows);

/// Loses the answer of every third commit: of a batch that was taken, of one that was not, or of one that comes after the next.
#[derive(Debug, Default)]
struct Loses {
    rows: MemoryEngine,
    commits: AtomicU64,
    late: Mutex<Option<Late>>,
}

impl Engine for Loses {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.rows.get(key)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.rows.get_many(keys)
    }

    fn scan(&self, from: &[u8], to: Option<&[u8]>, limit: usize) -> Result<RowPage, EngineError> {
        self.rows.scan(from, to, limit)
    }

    fn commit(&self, batch: &Batch<'_>) -> Result<Outcome, EngineError> {
        let number = self.commits.fetch_add(1, SeqCst);
        let late = self.late.lock().take();
        let outcome = match (number % 3, number / 3 % 3) {
            (1, 0) => self.rows.commit(batch).map(|_| Outcome::Unknown),
            (1, 1) => Ok(Outcome::Unknown),
            (1, _) => {
                let rows = batch.rows.iter().map(|(key, value)| (key.to_vec(), value.map(<[u8]>::to_vec)));
                *self.late.lock() = Some((batch.expect.clone(), rows.collect()));
                Ok(Outcome::Unknown)
            }
            _ => self.rows.commit(batch),
        };
        if let Some((expect, rows)) = late {
            self.rows.commit(&Batch { expect, ..Batch::of(&rows) })?;
        }
        outcome
    }

    fn writers(&self) -> Writers {
        Writers::Many
    }

    fn size_on_disk(&self) -> u64 {
        0
    }
}

const MARK: &[u8] = b"0mark";

fn mark() -> CopyMark<impl Fn(u64) -> Vec<u8>> {
    CopyMark { key: MARK.to_vec(), value: |batches: u64| batches.to_be_bytes().to_vec(), batches: 0 }
}

fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) {
    let row = [(key.to_vec(), Some(value.to_vec()))];
    engine.commit(&Batch::of(&row)).unwrap();
}

fn all(engine: &dyn Engine) -> BTreeMap<Vec<u8>, Vec<u8>> {
    engine.scan(b"", None, usize::MAX).unwrap().rows.into_iter().collect()
}

/// Commits rows one batch after the other, each with a mark of its own, and settles what is not known. Returns what must be there.
fn writes(engine: &dyn Engine, over: &AtomicBool) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut there, mut number) = (BTreeMap::new(), 0_u64);
    let mut seed = 7_u64;
    while !over.load(SeqCst) || number < 200 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = format!("row{:05}", (seed >> 33) % 6000).into_bytes();
        let value = (number % 5 > 0).then(|| number.to_be_bytes().to_vec());
        let (before, after) = (number.to_be_bytes().to_vec(), (number + 1).to_be_bytes().to_vec());
        let rows = [(key.clone(), value.clone()), (b"author".to_vec(), Some(after.clone()))];
        let batch = Batch { expect: vec![(b"author".to_vec(), Some(before))], ..Batch::of(&rows) };
        let mut outcome = engine.commit(&batch).unwrap();
        while outcome == Outcome::Unknown {
            outcome = settle(engine, &batch, b"author").unwrap();
        }
        assert_eq!(outcome, Outcome::Committed);
        there.insert(b"author".to_vec(), after);
        match value {
            Some(value) => there.insert(key, value),
            None => there.remove(&key),
        };
        number += 1;
    }
    there
}

#[test]
fn rows_move_under_a_writer_whose_answers_get_lost() {
    let source = Arc::new(Loses::default());
    put(&source.rows, b"author", &0_u64.to_be_bytes());
    for number in 0..6000 {
        put(&source.rows, format!("row{number:05}").as_bytes(), b"old");
    }
    let target: Arc<dyn Engine> = Arc::new(Loses::default());
    put(target.as_ref(), MARK, &0_u64.to_be_bytes());
    let movable = MovableEngine::new(Arc::clone(&source) as _);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| writes(&movable, &over));
        let mut mark = mark();
        assert!(movable.note(LIMIT));
        copy_all(source.as_ref(), target.as_ref(), &mut mark, &mut |_| true).unwrap().unwrap();
        let (differ, _) =
            compare_all(source.as_ref(), target.as_ref(), MARK, &mut |_| true).unwrap().unwrap();
        let mut changed = Keys::new();
        loop {
            let paused = movable.pause(LIMIT).unwrap();
            let noted = paused.noted();
            changed.extend(noted.iter().cloned());
            copy_rows(source.as_ref(), target.as_ref(), &noted, &mut mark).unwrap();
            if !paused.is_unsettled() {
                assert!(compare_rows(source.as_ref(), target.as_ref(), &noted, MARK).unwrap().is_empty());
                paused.exchange(Arc::clone(&target));
                break;
            }
        }
        assert!(differ.is_subset(&changed), "only what was changed differed");
        over.store(true, SeqCst);
        let there = writer.join().unwrap();
        let mut found = all(target.as_ref());
        found.remove(MARK);
        found.retain(|_, value| value != b"old");
        assert_eq!(found, there);
    });
    let before = source.commits.load(SeqCst);
    put(&movable, b"after", b"");
    assert_eq!(source.commits.load(SeqCst), before, "all goes to the new engine");
}

#[test]
fn a_row_that_differs_or_is_missing_is_found() {
    let (one, other) = (MemoryEngine::default(), MemoryEngine::default());
    for number in 0..5000 {
        put(&one, format!("{number:05}").as_bytes(), b"same");
        put(&other, format!("{number:05}").as_bytes(), b"same");
    }
    let compare = || compare_all(&one, &other, MARK, &mut |_| true).unwrap().unwrap();
    assert_eq!(compare(), (Keys::new(), 5000));
    put(&other, b"02000", b"other");
    put(&other, b"9more", b"");
    put(&one, b"03000a", b"");
    put(&one, MARK, b"not looked at");
    let differ: Keys = [b"02000".to_vec(), b"9more".to_vec(), b"03000a".to_vec()].into();
    assert_eq!(compare().0, differ);
    assert_eq!(compare_rows(&one, &other, &differ, MARK).unwrap(), differ);
}

#[test]
fn a_copy_ends_where_another_one_has_begun() {
    let (one, other) = (MemoryEngine::default(), MemoryEngine::default());
    put(&one, b"a", b"1");
    put(&other, MARK, b"another copy's");
    let copied = copy_all(&one, &other, &mut mark(), &mut |_| true);
    assert!(matches!(copied, Err(CopyError::Fenced)), "{copied:?}");
    assert_eq!(all(&other).len(), 1);
}

/// Is exchanged for another engine while it is read, and removed.
#[derive(Debug, Default)]
struct Goes {
    before: std::sync::OnceLock<(std::sync::Weak<MovableEngine>, Arc<dyn Engine>)>,
    empties: bool,
}

impl Goes {
    fn goes<T>(&self, empty: T) -> Result<T, EngineError> {
        let (movable, next) = self.before.get().unwrap();
        movable.upgrade().unwrap().pause(LIMIT).unwrap().exchange(Arc::clone(next));
        match self.empties {
            true => Ok(empty),
            false => Err(EngineError::Missing { place: "here".to_owned(), name: "it".to_owned() }),
        }
    }
}

impl Engine for Goes {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        self.goes(None)
    }

    fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, EngineError> {
        self.goes(vec![None; keys.len()])
    }

    fn scan(&self, _: &[u8], _: Option<&[u8]>, _: usize) -> Result<RowPage, EngineError> {
        self.goes(MemoryEngine::default().scan(b"", None, 1)?)
    }

    fn commit(&self, _: &Batch<'_>) -> Result<Outcome, EngineError> {
        Ok(Outcome::Fenced)
    }

    fn writers(&self) -> Writers {
        Writers::Many
    }

    fn size_on_disk(&self) -> u64 {
        0
    }
}

#[test]
fn a_read_that_an_exchange_overtakes_is_made_of_the_new_engine() {
    for empties in [false, true] {
        let movable = || {
            let next = MemoryEngine::default();
            put(&next, b"a", b"1");
            let old = Arc::new(Goes { empties, ..Goes::default() });
            let movable = Arc::new(MovableEngine::new(Arc::clone(&old) as _));
            old.before.set((Arc::downgrade(&movable), Arc::new(next))).unwrap();
            movable
        };
        assert_eq!(movable().get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(movable().get_many(&[b"a"]).unwrap(), [Some(b"1".to_vec())]);
        assert_eq!(all(movable().as_ref()).len(), 1);
    }
}
