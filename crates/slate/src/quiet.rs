//! Whether another process lives that has a database open.
//!
//! A server writes to its registry every second. So a log that does not grow for some seconds is nobody's, or that of a server that cannot commit.
//! This is a matter of manners: who opens a database shuts out the former one in any case.
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

/// Looks for as long as the place says whether a log grows; ends at once where it does, or where there is none.
pub(crate) fn is_quiet(place: &Place, path: &str) -> Result<bool, EngineError> {
    let log = Log { place, path: format!("{path}/wal"), began: Instant::now() };
    stands_still(&log, place.waits.quiet)
}

fn stands_still(log: &impl Watched, quiet: Duration) -> Result<bool, EngineError> {
    let Some(known) = log.newest(None)? else { return Ok(true) };
    let found = log.now();
    let mut begun = found;
    while begun.saturating_sub(found) < quiet {
        log.pause(quiet.saturating_sub(log.now().saturating_sub(found)).min(LOOK_EVERY));
        begun = log.now();
        if log.newest(Some(known.clone()))?.as_ref() != Some(&known) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
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
        assert!(stands_still(&log, QUIET).is_ok_and(|still| still));
        assert_eq!((log.now.get(), log.looks.get()), (QUIET, 9));
        let none = Slow::new(&[], &[]);
        assert!(stands_still(&none, QUIET).is_ok_and(|still| still));
        assert_eq!(none.now.get(), Duration::ZERO);
    }

    #[test]
    fn a_first_look_that_takes_long_says_nothing_of_what_came_meanwhile() {
        let log = Slow::new(&[10.0], &[0.0, 1.0, 9.5]);
        assert!(stands_still(&log, QUIET).is_ok_and(|still| !still));
    }

    #[test]
    fn a_look_counts_from_when_it_began() {
        // The second begins at 0.5 s, and ends when the log might have stood still for long.
        let log = Slow::new(&[0.0, 6.0], &[0.0, 3.0]);
        assert!(stands_still(&log, QUIET).is_ok_and(|still| !still));
        assert_eq!(log.looks.get(), 3);
        // The third begins late enough.
        let dead = Slow::new(&[0.0, 6.0, 6.0], &[0.0]);
        assert!(stands_still(&dead, QUIET).is_ok_and(|still| still));
        assert_eq!(dead.looks.get(), 3);
    }
}
