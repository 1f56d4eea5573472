//! Numbers of objects that the owner has given to the session. Each is for one object.

use std::collections::VecDeque;

use forebay_client::{ClientError, Link, Patience};
use forebay_format::row::ObjectRef;
use forebay_protocol::{Answer, Operation};
use forebay_types::ObjectId;
use parking_lot::Mutex;

/// Objects that are asked for at a time.
const AT_A_TIME: u32 = 16;

#[derive(Debug, Default)]
struct Stock {
    /// Of which session they are.
    session: u64,
    objects: VecDeque<ObjectRef>,
}

#[derive(Debug, Default)]
pub(super) struct Numbers(Mutex<Stock>);

impl Numbers {
    /// A number, and the session in which it is good. Waits for the owner where none is left.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) fn next(&self, link: &Link) -> Result<(u64, ObjectRef), ClientError> {
        let mut stock = self.0.lock();
        if stock.session == link.number()
            && let Some(object) = stock.objects.pop_front()
        {
            return Ok((stock.session, object));
        }
        let answered =
            link.ask(Operation::Numbers(0, AT_A_TIME), None, None, (), &Patience::new(None, None))?;
        let numbers = match answered.response.answer {
            Answer::Numbers(numbers) => numbers,
            Answer::Failed(failure) => return Err(ClientError::Failed(failure)),
            other => return Err(ClientError::Unexpected(format!("{other:?} to a request for numbers"))),
        };
        let first = numbers.first_object;
        let all =
            (0..u64::from(numbers.objects)).map(|at| ObjectRef { id: ObjectId(first.id.0 + at), ..first });
        *stock = Stock { session: answered.number, objects: all.collect() };
        let object = stock.objects.pop_front();
        let none = || ClientError::Unexpected("no numbers".to_owned());
        object.map(|object| (stock.session, object)).ok_or_else(none)
    }
}
