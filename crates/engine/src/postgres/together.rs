//! Reads of single rows that meet on their way to a server: while some are under way, those that come are collected, and go as one.
//!
//! A server that is milliseconds away answers a few hundred questions a second on each connection; so many requests that each look for a row or two need neither a
//! connection each nor a question each. Guarantees: a row is read after it was asked for. No thread is kept for it: who asks and finds nobody in the way takes
//! along what the others wait for.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use parking_lot::{Condvar, Mutex};

use super::trouble::Trouble;

/// Questions under way at a time. More would have less in each.
const AT_ONCE: usize = 4;
/// Keys in one question, unless a single reader asks for more.
const KEYS_MAX: usize = 2000;

/// The rows that are there.
pub(super) type Found = HashMap<Vec<u8>, Vec<u8>>;
type Answer = Result<Arc<Found>, Trouble>;

struct Asked {
    keys: Vec<Vec<u8>>,
    answer: Mutex<Option<Answer>>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Arc<Asked>>,
    under_way: usize,
}

/// See the module.
#[derive(Default)]
pub(super) struct Together {
    state: Mutex<State>,
    answered: Condvar,
}

impl Together {
    /// What the rows of these keys are, `None` where there is none. `query` asks the server for rows, also of others.
    pub(super) fn read(
        &self,
        keys: &[&[u8]],
        query: impl FnOnce(&[&[u8]]) -> Result<Found, Trouble>,
    ) -> Result<Vec<Option<Vec<u8>>>, Trouble> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.to_vec()).collect();
        let asked = Arc::new(Asked { keys, answer: Mutex::new(None) });
        let mut state = self.state.lock();
        state.waiting.push(Arc::clone(&asked));
        loop {
            let answer = asked.answer.lock().take();
            if let Some(answer) = answer {
                let found = answer?;
                return Ok(asked.keys.iter().map(|key| found.get(key).cloned()).collect());
            }
            // Where it does not wait any more somebody has taken it along.
            let waits = state.waiting.iter().any(|other| Arc::ptr_eq(other, &asked));
            if waits && state.under_way < AT_ONCE {
                break;
            }
            self.answered.wait(&mut state);
        }
        let taken = take(&mut state.waiting, &asked);
        state.under_way += 1;
        drop(state);
        let mut flight = Flight { together: self, taken, answer: None };
        let all: BTreeSet<&[u8]> =
            flight.taken.iter().flat_map(|asked| &asked.keys).map(Vec::as_slice).collect();
        let answer = query(&all.into_iter().collect::<Vec<_>>()).map(Arc::new);
        flight.answer = Some(answer.clone());
        drop(flight);
        let found = answer?;
        Ok(asked.keys.iter().map(|key| found.get(key).cloned()).collect())
    }
}

/// Takes one's own question, and as many of the others as fit, the oldest first.
fn take(waiting: &mut Vec<Arc<Asked>>, own: &Arc<Asked>) -> Vec<Arc<Asked>> {
    let mut keys = own.keys.len();
    let fits = |other: &mut Arc<Asked>| {
        if Arc::ptr_eq(other, own) {
            return true;
        }
        keys += other.keys.len();
        keys <= KEYS_MAX
    };
    waiting.extract_if(.., fits).collect()
}

/// A question under way. However it ends, those who wait for it are told.
struct Flight<'a> {
    together: &'a Together,
    taken: Vec<Arc<Asked>>,
    answer: Option<Answer>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let answer = self.answer.take();
        let answer = answer.unwrap_or_else(|| Err(Trouble::Lost("the read was given up".to_owned())));
        let mut state = self.together.state.lock();
        for asked in &self.taken {
            *asked.answer.lock() = Some(answer.clone());
        }
        state.under_way -= 1;
        drop(state);
        self.together.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        thread,
    };

    use super::*;

    type Told = Result<Vec<Option<Vec<u8>>>, Trouble>;

    /// Rows of which the even ones are there.
    fn rows(keys: &[&[u8]]) -> Found {
        keys.iter().filter(|key| key[0] % 2 == 0).map(|key| (key.to_vec(), vec![key[0]])).collect()
    }

    /// Has `AT_ONCE` questions under way, of which the first ends as `first` says, until `others` wait.
    fn held_up(
        together: &Together,
        others: u8,
        first: impl Fn() -> Result<Found, Trouble> + Sync,
    ) -> (usize, Vec<Told>) {
        let (questions, under_way) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let all_wait = AtomicBool::new(false);
        let hold = |keys: &[&[u8]]| {
            under_way.fetch_add(1, Relaxed);
            while !all_wait.load(Relaxed) {
                all_wait.fetch_or(together.state.lock().waiting.len() == usize::from(others), Relaxed);
                thread::yield_now();
            }
            if keys[0][0] == 200 { first() } else { Ok(rows(keys)) }
        };
        let answers = thread::scope(|scope| {
            for number in 0..AT_ONCE {
                let key = [200 + number as u8];
                scope.spawn(move || catch_unwind(AssertUnwindSafe(|| together.read(&[&key], hold))));
            }
            while under_way.load(Relaxed) < AT_ONCE {
                thread::yield_now();
            }
            let ask = |number: u8| {
                together.read(&[&[number], &[100 + number]], |keys| {
                    questions.fetch_add(1, Relaxed);
                    Ok(rows(keys))
                })
            };
            let asking: Vec<_> = (0..others).map(|number| scope.spawn(move || ask(number))).collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).collect()
        });
        (questions.into_inner(), answers)
    }

    #[test]
    fn what_comes_while_questions_are_under_way_goes_as_one() {
        let together = Together::default();
        let (questions, answers) = held_up(&together, 50, || Ok(Found::new()));
        assert_eq!(questions, 1, "they waited, and then went together");
        for (number, answer) in (0_u8..).zip(answers) {
            let row = |key: u8| key.is_multiple_of(2).then(|| vec![key]);
            assert_eq!(answer, Ok(vec![row(number), row(100 + number)]));
        }
        assert_eq!(together.state.lock().under_way, 0);
    }

    #[test]
    fn a_question_that_panics_leaves_nobody_waiting() {
        let together = Together::default();
        let (_, answers) = held_up(&together, 3, || panic!("on purpose"));
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(together.state.lock().under_way, 0);
    }

    #[test]
    fn all_who_went_along_are_told_of_trouble_and_no_question_has_too_many_keys() {
        let together = Together::default();
        let refused = Trouble::Lost("on purpose".to_owned());
        assert_eq!(together.read(&[b"a"], |_| Err(refused.clone())), Err(refused));
        let big: Vec<Vec<u8>> = (0..KEYS_MAX).map(|number| number.to_string().into_bytes()).collect();
        let asked = |keys: Vec<Vec<u8>>| Arc::new(Asked { keys, answer: Mutex::new(None) });
        let (own, other, third) = (asked(vec![vec![1]]), asked(big), asked(vec![vec![2]]));
        let mut waiting = vec![Arc::clone(&other), Arc::clone(&own), Arc::clone(&third)];
        let taken = take(&mut waiting, &own);
        assert!(taken.len() == 1 && Arc::ptr_eq(&taken[0], &own) && waiting.len() == 2);
        let taken = take(&mut waiting, &other);
        assert!(Arc::ptr_eq(&taken[0], &other), "more than fit, of a single reader");
    }
}
