use forebay_cluster::Lease;
use forebay_protocol::{Operation, Response};

use crate::{error::ClientError, link::Patience};

/// Whom the contents ask: the owner, through the link.
pub trait Asks: Send + Sync {
    /// Has an operation carried out, once if it changes something, and returns what became of it. Waits for the owner as long as the mount's options say.
    ///
    /// # Errors
    /// [`ClientError`]. [`forebay_protocol::Answer::Failed`] is no error here.
    fn ask(&self, operation: Operation, wish: Option<Lease>) -> Result<Response, ClientError>;

    /// As [`Asks::ask`], in the session `held` and in no later one, if one is given: a lock is held in it.
    ///
    /// # Errors
    /// As there; [`ClientError::SessionEnded`] where that session is over.
    fn ask_while(&self, held: Option<u64>, operation: Operation) -> Result<Response, ClientError> {
        match held {
            None => self.ask(operation, None),
            Some(session) => self.ask_in(session, operation, None),
        }
    }

    /// How long the calling thread waits for what it asks for, and for what somebody else asks for on its behalf: from now on, as the mount's options say, and no longer
    /// than the thread lives that it serves.
    fn patience(&self) -> Patience<'static> {
        Patience::FOREVER
    }

    /// Which session is the present one, counted from 1: what was kept back or numbered in an earlier one must not be told in it.
    fn session(&self) -> u64;

    /// As [`Asks::ask`], in this session and in no later one, and until it ends.
    ///
    /// # Errors
    /// As there; [`ClientError::SessionEnded`] where that session is over.
    fn ask_in(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
    ) -> Result<Response, ClientError>;

    /// As [`Asks::ask_in`], as long as `patience` lasts.
    ///
    /// # Errors
    /// As there; those of patience.
    fn ask_within(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
        _patience: &Patience<'_>,
    ) -> Result<Response, ClientError> {
        self.ask_in(session, operation, wish)
    }

    /// As [`Asks::ask_in`]: calls `then` with what became of it. Where `patience` ends before that is known, this returns, and `then` is called by another thread, once.
    ///
    /// # Errors
    /// Those of patience.
    fn ask_to_end(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
        _patience: &Patience<'_>,
        then: Then,
    ) -> Result<(), ClientError> {
        then(self.ask_in(session, operation, wish));
        Ok(())
    }
}

/// What is done with an answer.
pub type Then = Box<dyn FnOnce(Result<Response, ClientError>) + Send>;
