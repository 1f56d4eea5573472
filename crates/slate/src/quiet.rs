//! Whether another process lives that has a database open.
//!
//! A server writes to its registry every second. So a log that does not grow for some seconds is nobody's, or that of a server that cannot commit.
//! This is a matter of manners: who opens a database shuts out the former one in any case. But from what was seen here the next one knows for how long the former one has not committed
//! anything ([`Still`]).
//!
//! How long a log has stood still is counted from the end of the look that found its last object to the beginning of the one that found no other: what grew while a slow store
//! was answering was not seen, and says that somebody lives.

use std::{
    thread,
    time::{Duration, Instant},
};

use forebay_engine::EngineError;
use forebay_object::Backend;

use crate::place::Place;

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A log that others may write to, and a clock.
trait Watched {
    /// The time since any start.
    fn now(&self) -> Duration;

    fn pause(&self, time: Duration);

    /// The last object of the log after one that is known, or that one.
    fn newest(&self, known: Option<String>) -> Result<Option<String>, EngineError>;
}

/// The log of a database in a place.
struct Log<'a> {
    place: &'a Place,
    path: String,
    began: Instant,
}

/// A log that stands still: nothing came after its last object, if it has one, between this moment and the last look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Still<T> {
    last: Option<String>,
    since: T,
}

impl Still<Instant> {
    /// For how long nobody else has put anything, asked by the process that has opened the database since and still has it. Opening puts one object, behind which no other writer puts any: so
    /// it is the only new one, and the next after the last, unless somebody else was still there. Where it is the first of all, nobody ever was.
    pub(crate) fn alone(&self, place: &Place, path: &str) -> Result<Option<Alone>, EngineError> {
        let page = place.store.list(&wal(path), self.last.as_deref());
        let page = page.map_err(|error| place.explain(&error))?;
        let keys: Vec<&str> = page.entries.iter().map(|entry| entry.key.as_str()).collect();
        let alone = if self.last.is_some() { Alone::Since(self.since) } else { Alone::Always };
        Ok((is_next(self.last.as_deref(), &keys) && page.next.is_none()).then_some(alone))
    }
}

/// How long a process has had a database alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Alone {
    Always,
    Since(Instant),
}

/// Whether there is one new object, and none that has gone again was before it. Without a former one nothing is known of that.
fn is_next(last: Option<&str>, new: &[&str]) -> bool {
    let [new] = new else { return false };
    last.is_none_or(|last| number(last).is_some_and(|last| Some(last + 1) == number(new)))
}

/// An object of the log is called by its number: `…/wal/00000000000000000042.sst`.
fn number(key: &str) -> Option<u64> {
    key.rsplit('/').next()?.split('.').next()?.parse().ok()
}

fn wal(path: &str) -> String {
    format!("{path}/wal")
}

impl Watched for Log<'_> {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }

    fn newest(&self, mut known: Option<String>) -> Result<Option<String>, EngineError> {
        loop {
            let page = self.place.store.list(&self.path, known.as_deref());
            let page = page.map_err(|error| self.place.explain(&error))?;
            known = page.entries.last().map(|last| last.key.clone()).or(known);
            if page.next.is_none() {
                return Ok(known);
            }
        }
    }
}

/// Looks for as long as the place says whether a log grows: `None` as soon as it does. Where there is none, it does not.
pub(crate) fn stands_still(place: &Place, path: &str) -> Result<Option<Still<Instant>>, EngineError> {
    let log = Log { place, path: wal(path), began: Instant::now() };
    let still = watch(&log, place.waits.quiet)?;
    Ok(still.map(|Still { last, since }| Still { last, since: log.began + since }))
}

fn watch(log: &impl Watched, quiet: Duration) -> Result<Option<Still<Duration>>, EngineError> {
    let last = log.newest(None)?;
    let since = log.now();
    let mut begun = since;
    while last.is_some() && begun.saturating_sub(since) < quiet {
        log.pause(quiet.saturating_sub(log.now().saturating_sub(since)).min(LOOK_EVERY));
        begun = log.now();
        if log.newest(last.clone())? != last {
            return Ok(None);
        }
    }
    Ok(Some(Still { last, since }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const QUIET: Duration = Duration::from_secs(4);

    /// A log whose writer puts an object at these times, over a store that takes so long for each look: what it tells of was so when the look began.
    struct Slow {
        now: Cell<Duration>,
        takes: RefCell<Vec<Duration>>,
        written: Vec<Duration>,
        looks: Cell<usize>,
    }

    impl Slow {
        fn new(takes: &[f64], written: &[f64]) -> Slow {
            let seconds = |all: &[f64]| all.iter().map(|at| Duration::from_secs_f64(*at)).collect();
            let takes: Vec<Duration> = seconds(takes);
            Slow {
                now: Cell::default(),
                takes: RefCell::new(takes.into_iter().rev().collect()),
                written: seconds(written),
                looks: Cell::new(0),
            }
        }
    }

    impl Watched for Slow {
        fn now(&self) -> Duration {
            self.now.get()
        }

        fn pause(&self, time: Duration) {
            self.now.set(self.now.get() + time);
        }

        fn newest(&self, known: Option<String>) -> Result<Option<String>, EngineError> {
            let begun = self.now.get();
            let last = self.written.iter().filter(|at| **at <= begun).max();
            self.pause(self.takes.borrow_mut().pop().unwrap_or_default());
            self.looks.set(self.looks.get() + 1);
            Ok(last.map(|at| format!("{:08}", at.as_millis())).max(known))
        }
    }

    #[test]
    fn a_log_that_does_not_grow_is_quiet_after_so_long() {
        let log = Slow::new(&[], &[0.0]);
        let still = watch(&log, QUIET).unwrap().unwrap();
        assert_eq!((still.last.as_deref(), still.since), (Some("00000000"), Duration::ZERO));
        assert_eq!((log.now.get(), log.looks.get()), (QUIET, 9));
        let none = Slow::new(&[], &[]);
        assert_eq!(watch(&none, QUIET).unwrap(), Some(Still { last: None, since: Duration::ZERO }));
        assert_eq!(none.now.get(), Duration::ZERO);
    }

    #[test]
    fn the_one_that_opening_puts_comes_right_behind_the_last() {
        let key = |number: u64| format!("registry/wal/{number:020}.sst");
        let is_next = |last: Option<u64>, new: &[u64]| {
            let keys: Vec<String> = new.iter().copied().map(key).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            super::is_next(last.map(key).as_deref(), &keys)
        };
        assert!(is_next(Some(41), &[42]) && is_next(None, &[1]));
        assert!(!is_next(Some(41), &[]) && !is_next(Some(41), &[42, 43]) && !is_next(None, &[1, 2]));
        assert!(!is_next(Some(41), &[43]), "one before it was collected, or is not listed");
        assert!(!super::is_next(Some(&key(41)), &["registry/wal/of-another-make"]));
    }

    #[test]
    fn a_first_look_that_takes_long_says_nothing_of_what_came_meanwhile() {
        let log = Slow::new(&[10.0], &[0.0, 1.0, 9.5]);
        assert_eq!(watch(&log, QUIET).unwrap(), None);
    }

    #[test]
    fn a_look_counts_from_when_it_began() {
        // The second begins at 0.5 s, and ends when the log might have stood still for long.
        let log = Slow::new(&[0.0, 6.0], &[0.0, 3.0]);
        assert_eq!(watch(&log, QUIET).unwrap(), None);
        assert_eq!(log.looks.get(), 3);
        // The third begins late enough.
        let dead = Slow::new(&[0.0, 6.0, 6.0], &[0.0]);
        assert!(watch(&dead, QUIET).unwrap().is_some());
        assert_eq!(dead.looks.get(), 3);
    }
}
