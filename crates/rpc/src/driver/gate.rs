use std::sync::{Arc, OnceLock};

use super::{Handler, Handling, Peer};
use crate::{
    connection::Request,
    wire::{Code, Refusal},
};

/// Stands before a handler that is made later: who listens at a port that the system chooses knows only then where it is reached. Until it is opened requests
/// are refused as [`Code::BUSY`], to be repeated after 100 ms.
#[derive(Debug)]
pub struct Gate<H>(OnceLock<H>);

impl<H> Default for Gate<H> {
    fn default() -> Gate<H> {
        Gate(OnceLock::new())
    }
}

impl<H> Gate<H> {
    /// Lets requests in. The first handler stays.
    pub fn open(&self, handler: H) {
        self.0.get_or_init(|| handler);
    }
}

impl<H: Handler> Handler for Gate<H> {
    fn handle(&self, peer: &Arc<Peer>, request: Request) -> Handling {
        match self.0.get() {
            Some(handler) => handler.handle(peer, request),
            None => Box::pin(async {
                let refusal = Refusal::new(Code::BUSY, "it is starting");
                Err(Refusal { retry_after_ms: 100, ..refusal })
            }),
        }
    }

    fn closed(&self, peer: &Arc<Peer>) {
        if let Some(handler) = self.0.get() {
            handler.closed(peer);
        }
    }

    fn is_breach(&self, refusal: &Refusal) -> bool {
        self.0.get().is_some_and(|handler| handler.is_breach(refusal))
    }
}
