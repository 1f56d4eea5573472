use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Weak},
};

use crate::{
    connection::{Agreed, Outgoing, Reply, Request},
    tls::Identity,
    wire::Refusal,
};

use super::channel::{Call, Channel};

/// A handler's future.
pub type Handling = Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>;

/// What answers requests: of clients at a server, and of the server (pushes) at a client.
///
/// All requests of one connection are handled by one task, which polls many at a time: a handler that computes for long, or blocks, holds
/// up its own connection, and hands such work to a thread of its own. Calls are made in the order in which requests arrive. The future is dropped when the deadline passes or the caller
/// cancels; what must not be left half done belongs into a task of its own.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request.
    fn handle(&self, peer: &Arc<Peer>, request: Request) -> Handling;

    /// A peer is there: before its first request.
    fn opened(&self, _peer: &Arc<Peer>) {}

    /// It is gone: after its last request. Futures of its requests are dropped.
    fn closed(&self, _peer: &Arc<Peer>) {}

    /// Whether a peer that was refused so asked for what no peer should: a server writes a line of it to its log.
    fn is_breach(&self, refusal: &Refusal) -> bool {
        refusal.code.is_breach()
    }
}

/// The other side of a connection.
pub struct Peer {
    /// Who it is.
    pub identity: Identity,
    /// Where it is, for people.
    pub address: String,
    /// What both agreed on.
    pub agreed: Agreed,
    pub(super) channel: Weak<Channel>,
}

impl fmt::Debug for Peer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{self}")
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{} at {}", self.identity, self.address)
    }
}

impl Peer {
    /// Asks the peer: of a server, this is a push. Nothing if it is gone.
    #[must_use]
    pub fn call(&self, request: Outgoing) -> Option<Call> {
        self.channel.upgrade().map(|channel| channel.call(request))
    }

    /// Ends the connection to it.
    pub fn disconnect(&self) {
        if let Some(channel) = self.channel.upgrade() {
            channel.drop_now("we ended the connection");
        }
    }
}
