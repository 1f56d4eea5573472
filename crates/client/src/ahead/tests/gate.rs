//! Where a test has requests wait that tell the owner of what was done ahead, and takes steps out of them as if it refused them.

use forebay_protocol::{Answer, Failure, Operation};
use parking_lot::{Condvar, Mutex};

use crate::error::ClientError;

#[derive(Default)]
struct State {
    closed: bool,
    /// Those that wait fail.
    broken: bool,
    /// Requests at the gate, or past it.
    came: u64,
    /// The first steps that are refused, so many.
    refuses: usize,
}

#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

/// Steps that the owner was not told of.
pub struct Refused(u32);

impl Gate {
    /// From now on requests wait. The next one is refused its first steps, so many.
    pub fn close(&self, refuses: usize) {
        let mut state = self.state.lock();
        (state.closed, state.refuses, state.came) = (true, refuses, 0);
    }

    pub fn open(&self) {
        self.state.lock().closed = false;
        self.changed.notify_all();
    }

    /// Whoever waits finds the session over, or finds that it is.
    pub fn break_down(&self) {
        self.state.lock().broken = true;
        self.changed.notify_all();
    }

    /// Waits until a request is there.
    pub fn wait(&self) {
        let mut state = self.state.lock();
        while state.came == 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Requests that came since it was closed.
    pub fn came(&self) -> u64 {
        self.state.lock().came
    }

    pub(super) fn pass(&self, operation: Operation) -> Result<(Operation, Refused), ClientError> {
        let Operation::Ahead(mut steps) = operation else { return Ok((operation, Refused(0))) };
        let mut state = self.state.lock();
        state.came += 1;
        self.changed.notify_all();
        while state.closed && !state.broken {
            self.changed.wait(&mut state);
        }
        if std::mem::take(&mut state.broken) {
            return Err(ClientError::SessionEnded);
        }
        let refused = std::mem::take(&mut state.refuses).min(steps.len());
        steps.drain(..refused);
        Ok((Operation::Ahead(steps), Refused(refused as u32)))
    }
}

impl Refused {
    pub(super) fn put_into(&self, answer: &mut Answer) {
        if let Answer::Ahead(failed) = answer
            && self.0 > 0
        {
            failed.iter_mut().for_each(|(at, _)| *at += self.0);
            failed.splice(0..0, (0..self.0).map(|at| (at, Failure::Exists)));
        }
    }
}
