//! Numbers of segments and objects that the owner has given to the session.

use std::collections::VecDeque;

use forebay_format::row::ObjectRef;
use forebay_protocol::{Answer, Operation};
use forebay_types::{ObjectId, SegmentId};
use parking_lot::Mutex;

use crate::{Asks, ClientError};

/// Segments, and objects, that are asked for at a time.
const AT_A_TIME: u32 = 16;
/// So few are left when more are asked for.
const LOW: usize = 6;

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

    fn pop(&self, session: u64) -> Option<Pair> {
        let mut stock = self.stock.lock();
        if stock.session != session {
            *stock = Stock { session, pairs: VecDeque::new() };
        }
        stock.pairs.pop_front()
    }

    fn left(&self, session: u64) -> usize {
        let stock = self.stock.lock();
        if stock.session == session { stock.pairs.len() } else { 0 }
    }

    fn ask(&self, asks: &dyn Asks, session: u64) -> Result<(), ClientError> {
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
        let mut stock = self.stock.lock();
        if stock.session != session {
            *stock = Stock { session, pairs: VecDeque::new() };
        }
        stock.pairs.extend((0..u64::from(count)).map(|at| Pair {
            segment: SegmentId(numbers.first_segment.0 + at),
            object: ObjectRef {
                epoch: numbers.first_object.epoch,
                id: ObjectId(numbers.first_object.id.0 + at),
            },
        }));
        Ok(())
    }
}
