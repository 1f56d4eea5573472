#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::sync::atomic::AtomicBool;

use forebay_types::{Epoch, ObjectId};

use super::*;

const MIB: u64 = 1 << 20;

fn object(number: u64) -> ObjectRef {
    ObjectRef { epoch: Epoch(1), id: ObjectId(number) }
}

fn stored(number: u64, range: Range<u64>) -> Stored {
    Stored { segment: SegmentId(number), object: object(number), range }
}

/// Files of these lengths, each one object; small ones all in object 0, side by side.
struct Store {
    lens: Vec<u64>,
    asked: Mutex<Vec<(ObjectRef, Range<u64>)>>,
    /// The object of this number fails.
    fails: Option<u64>,
    moved: AtomicBool,
    /// For this one, which has a segment of its own, another rule holds.
    apart: Option<u64>,
}

const SMALL: u64 = 3000;
const APART: u64 = 77;

impl Store {
    fn new(lens: &[u64]) -> Store {
        Store {
            lens: lens.to_vec(),
            asked: Mutex::default(),
            fails: None,
            moved: AtomicBool::new(false),
            apart: None,
        }
    }
}

impl Warming for Store {
    fn len(&self, ino: Ino) -> Result<u64, String> {
        self.lens.get(ino.0 as usize).copied().ok_or_else(|| "no such file".to_owned())
    }

    fn stored(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<Stored>, String> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let small = self.lens[ino.0 as usize] <= SMALL;
        Ok(vec![if small {
            let segment = SegmentId(if self.apart == Some(ino.0) { APART } else { 0 });
            Stored { segment, ..stored(0, ino.0 * SMALL..ino.0 * SMALL + SMALL) }
        } else {
            stored(ino.0, range.clone())
        }])
    }

    fn rule(&self, segment: SegmentId) -> u8 {
        u8::from(segment == SegmentId(APART))
    }

    fn bring(&self, stored: &Stored) -> Result<Warmed, NotWarm> {
        assert!(stored.range.end - stored.range.start <= REQUEST);
        self.asked.lock().push((stored.object, stored.range.clone()));
        if self.moved.swap(false, Relaxed) {
            return Err(NotWarm::Moved(stored.segment));
        }
        if self.fails == Some(stored.object.id.0) {
            return Err(NotWarm::Failed("it is away".to_owned()));
        }
        Ok(Warmed { cached: 0, fetched: stored.range.end - stored.range.start, lost: 0 })
    }
}

fn warm(store: &Store, files: &[u64]) -> (Warmer, Vec<Result<(), String>>) {
    let files: Vec<Ino> = files.iter().map(|number| Ino(*number)).collect();
    let warmer = Warmer::default();
    let outcomes = warmer.warm(store, &files, &|| true);
    (warmer, outcomes)
}

#[test]
fn small_files_that_lie_side_by_side_are_one_request_and_large_ones_many() {
    let store = Store::new(&[SMALL; 1000]);
    let (warmer, outcomes) = warm(&store, &(0..1000).collect::<Vec<_>>());
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(*store.asked.lock(), [(object(0), 0..1000 * SMALL)]);
    assert_eq!(warmer.progress.seen.load(Relaxed), 1000 * SMALL);

    let len = 200 * MIB + 17;
    let store = Store::new(&[0, len]);
    let (warmer, outcomes) = warm(&store, &[1, 0]);
    assert_eq!(outcomes, [Ok(()), Ok(())]);
    assert_eq!(warmer.progress.fetched.load(Relaxed), len);
    let mut asked: Vec<_> = store.asked.lock().iter().map(|(_, range)| range.clone()).collect();
    asked.sort_unstable_by_key(|range| range.start);
    assert_eq!(asked.len(), 26);
    assert!(asked.windows(2).all(|two| two[0].end == two[1].start), "each byte once");
}

#[test]
fn one_request_has_nothing_for_which_another_rule_holds() {
    let mut store = Store::new(&[SMALL; 6]);
    store.apart = Some(2);
    let (_, outcomes) = warm(&store, &[0, 1, 2, 3, 4, 5]);
    assert!(outcomes.iter().all(Result::is_ok));
    let mut asked: Vec<_> = store.asked.lock().iter().map(|(_, range)| range.clone()).collect();
    asked.sort_unstable_by_key(|range| range.start);
    assert_eq!(asked, [0..2 * SMALL, 2 * SMALL..3 * SMALL, 3 * SMALL..6 * SMALL]);
}

#[test]
fn what_fails_is_told_of_those_files_whose_bytes_it_has() {
    let mut store = Store::new(&[SMALL, SMALL, 9 * MIB, SMALL, 70 * MIB]);
    store.fails = Some(2);
    let (_, outcomes) = warm(&store, &[0, 2, 3, 77, 4]);
    let told: Vec<Option<&str>> =
        outcomes.iter().map(|outcome| outcome.as_ref().err().map(String::as_str)).collect();
    assert_eq!(told, [None, Some("it is away"), None, Some("no such file"), None]);
}

#[test]
fn what_moved_meanwhile_is_asked_for_again() {
    let store = Store::new(&[SMALL, 5 * MIB]);
    store.moved.store(true, Relaxed);
    let (_, outcomes) = warm(&store, &[1]);
    assert_eq!((outcomes, store.asked.lock().len()), (vec![Ok(())], 2));
}

#[test]
fn nothing_more_is_fetched_once_nobody_waits() {
    let store = Store::new(&[SMALL, 500 * MIB]);
    let rounds = AtomicUsize::new(0);
    let goes_on = || rounds.fetch_add(1, Relaxed) < 2;
    let outcomes = Warmer::default().warm(&store, &[Ino(0), Ino(1)], &goes_on);
    assert!(outcomes[0].is_ok() && outcomes[1].is_err());
    assert_eq!(store.asked.lock().len(), 17, "one for the small file, two windows of the other");
}
