//! Numbers of segments and objects that the owner has given to the session.

use std::collections::VecDeque;

use forebay_format::row::ObjectRef;
use forebay_protocol::{Answer, Commit, Failure, ObjectCommit, Operation, SegmentCommit};
use forebay_types::{ObjectId, SegmentId};
use parking_lot::{Mutex, MutexGuard};

use crate::{Asks, ClientError};

/// Segments, and objects, that are asked for at a time.
const AT_A_TIME: u32 = 16;
/// So few are left when more are asked for.
const LOW: usize = 6;

/// Spent ones that are given back in one request.
const BACK_MAX: usize = 256;

/// Numbers for one object of one segment. Each is given out once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) segment: SegmentId,
    pub(super) object: ObjectRef,
}

#[derive(Debug, Default)]
struct Stock {
    /// Of which session they are.
    session: u64,
    pairs: VecDeque<Pair>,
    /// Something may have been put under these, and is not committed and never will be.
    spent: Vec<Pair>,
}

#[derive(Debug, Default)]
pub(super) struct NumberStock {
    stock: Mutex<Stock>,
    /// Held while more are asked for.
    asking: Mutex<()>,
}

impl NumberStock {
    /// Numbers that are good in `session`; waits for the owner where none are left.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) fn next(&self, asks: &dyn Asks, session: u64) -> Result<Pair, ClientError> {
        loop {
            if let Some(pair) = self.pop(session) {
                return Ok(pair);
            }
            let _one = self.asking.lock();
            if self.left(session) == 0 {
                self.ask(asks, session)?;
            }
        }
    }

    /// Asks for more where few are left and nobody does so already.
    pub(super) fn stock_up(&self, asks: &dyn Asks, session: u64) {
        if self.left(session) >= LOW {
            return;
        }
        let Some(_one) = self.asking.try_lock() else { return };
        // Who needs one is told what is wrong.
        if let Err(error) = self.ask(asks, session) {
            tracing::debug!(%error, "numbers of segments and objects are asked for later");
        }
    }

    /// Notes numbers of `session` that no commit names, nor will: a session may only have so many that are not committed, so they are given back with the next request
    /// for more. Not for what a commit has named of which nobody knows whether it was carried out.
    pub(super) fn spend(&self, session: u64, pairs: impl IntoIterator<Item = Pair>) {
        let mut stock = self.stock.lock();
        // Those of a session that has ended count for nobody.
        if stock.session == session {
            stock.spent.extend(pairs);
        }
    }

    /// The stock of a session; that of one before is of no use any more.
    fn of(&self, session: u64) -> MutexGuard<'_, Stock> {
        let mut stock = self.stock.lock();
        if stock.session != session {
            *stock = Stock { session, ..Stock::default() };
        }
        stock
    }

    fn pop(&self, session: u64) -> Option<Pair> {
        self.of(session).pairs.pop_front()
    }

    fn left(&self, session: u64) -> usize {
        let stock = self.stock.lock();
        if stock.session == session { stock.pairs.len() } else { 0 }
    }

    /// Says of spent numbers that nothing is to come of them, as objects of nothing: the owner has what is there deleted.
    fn give_back(&self, asks: &dyn Asks, session: u64) -> Result<(), ClientError> {
        let spent = {
            let mut stock = self.of(session);
            let many = stock.spent.len().min(BACK_MAX);
            stock.spent.drain(..many).collect::<Vec<_>>()
        };
        if spent.is_empty() {
            return Ok(());
        }
        let objects = spent.iter().map(|pair| ObjectCommit {
            object: pair.object,
            segments: vec![SegmentCommit { id: pair.segment, offset: 0, len: 0, raw: 0 }],
        });
        let commit = Commit { objects: objects.collect(), files: Vec::new() };
        let asked = asks.ask_in(session, Operation::Commit(Box::new(commit)), None);
        let failed = match asked.map(|response| response.answer) {
            // Refused: an earlier request, of which nobody knew, has given them back.
            Ok(Answer::Committed(_) | Answer::Failed(Failure::Invalid)) => return Ok(()),
            Ok(Answer::Failed(failure)) => ClientError::Failed(failure),
            Ok(other) => ClientError::Unexpected(format!("{other:?} to numbers that are given back")),
            Err(error) => error,
        };
        self.spend(session, spent);
        Err(failed)
    }

    fn ask(&self, asks: &dyn Asks, session: u64) -> Result<(), ClientError> {
        if let Err(error) = self.give_back(asks, session) {
            tracing::debug!(%error, "numbers that came to nothing are given back later");
        }
        let response = asks.ask_in(session, Operation::Numbers(AT_A_TIME, AT_A_TIME), None)?;
        let numbers = match response.answer {
            Answer::Numbers(numbers) => numbers,
            Answer::Failed(failure) => return Err(ClientError::Failed(failure)),
            other => return Err(ClientError::Unexpected(format!("{other:?} to a request for numbers"))),
        };
        let count = numbers.segments.min(numbers.objects);
        if count == 0 {
            return Err(ClientError::Unexpected("no numbers".to_owned()));
        }
        self.of(session).pairs.extend((0..u64::from(count)).map(|at| Pair {
            segment: SegmentId(numbers.first_segment.0 + at),
            object: ObjectRef {
                epoch: numbers.first_object.epoch,
                id: ObjectId(numbers.first_object.id.0 + at),
            },
        }));
        Ok(())
    }
}
