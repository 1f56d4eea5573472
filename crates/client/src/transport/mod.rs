//! How messages get to the owner of a volume and back.

mod rpc;

use std::{sync::Weak, time::Duration};

use forebay_cluster::SessionId;
use forebay_protocol::{
    Hello, Push, Reclaim, Reclaimed, Refusal, Request, Response, Return, Welcome,
    group::{GroupView, ViewOf, ViewsOf},
};

pub use rpc::RpcTransport;

/// Why a message has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The server refuses it: nothing was done.
    Refused(Refusal),
    /// The connection was lost, or no answer came in time: it was done or not, and may be repeated.
    Lost(String),
    /// It was done, and what the server said of it cannot be had.
    Unreadable(String),
    /// It cannot be sent, here or elsewhere: nothing was done.
    Never(String),
}

/// Who is told what comes unasked. Its methods do not wait.
pub trait Listener: Send + Sync {
    /// The owner says something.
    fn pushed(&self, push: Push);

    /// The connection is gone: a greeting is needed before anything else is answered.
    fn lost(&self);
}

/// Messages to one of several servers. After [`Transport::hello`] the others work until the connection is lost; then they fail until the next greeting. Each
/// waits in the calling thread, `patience` long at most, and many threads call at once.
pub trait Transport: Send + Sync {
    /// Who is told from now on.
    fn listen(&self, listener: Weak<dyn Listener>);

    /// Begins or resumes a session on a connection.
    ///
    /// # Errors
    /// [`Trouble`].
    fn hello(&self, hello: &Hello, patience: Duration) -> Result<Welcome, Trouble>;

    /// Makes a request. `urgent`: others wait for it, and it is not held up by requests that wait. Where `goes_on` is given it is asked now and then while the answer is waited
    /// for, and ends that: then it is as if the owner were not available. A transport that never waits for long need not ask.
    ///
    /// # Errors
    /// [`Trouble`].
    fn ask(
        &self,
        request: &Request,
        urgent: bool,
        patience: Duration,
        goes_on: Option<&dyn Fn() -> bool>,
    ) -> Result<Response, Trouble>;

    /// Says that the session lives.
    ///
    /// # Errors
    /// [`Trouble`].
    fn renew(&self, session: SessionId, patience: Duration) -> Result<(), Trouble>;

    /// Says which leases the session has of a former owner.
    ///
    /// # Errors
    /// [`Trouble`].
    fn reclaim(&self, reclaim: &Reclaim, patience: Duration) -> Result<Reclaimed, Trouble>;

    /// Returns leases of one session, [`forebay_protocol::RETURNS_MAX`] at most.
    ///
    /// # Errors
    /// [`Trouble`].
    fn give_back(&self, returned: &[Return], patience: Duration) -> Result<(), Trouble>;

    /// Ends the session.
    ///
    /// # Errors
    /// [`Trouble`].
    fn end(&self, session: SessionId, patience: Duration) -> Result<(), Trouble>;

    /// Asks for the group through which a volume is read, of any server. A transport without groups has none.
    ///
    /// # Errors
    /// [`Trouble`]; [`Trouble::Never`] where the servers know of no groups.
    fn view_of(&self, asked: &ViewOf, patience: Duration) -> Result<Option<GroupView>, Trouble> {
        let _ = (asked, patience);
        Ok(None)
    }

    /// Asks for all groups through which a volume is read, in the volume's order, of any server.
    ///
    /// # Errors
    /// [`Trouble`]; [`Trouble::Never`] where the server that was asked tells of one alone, by [`Transport::view_of`].
    fn views_of(&self, asked: &ViewsOf, patience: Duration) -> Result<Vec<GroupView>, Trouble> {
        let _ = (asked, patience);
        Err(Trouble::Never("several groups are not known here".to_owned()))
    }

    /// Gives the connection up, with all that waits on it, and goes to this address, or to the next one.
    fn elsewhere(&self, address: Option<&str>);

    /// Gives the connection up for good.
    fn close(&self);
}
