use std::sync::{Arc, OnceLock};

use forebay_rpc::{
    Handler, Handling, Peer,
    connection::Request,
    wire::{Code, Refusal},
};

use super::Serving;

/// Stands before the service: a server listens before it knows where it is reached.
#[derive(Debug, Default)]
pub(crate) struct Gate(OnceLock<Serving>);

impl Gate {
    /// Lets requests in.
    pub(crate) fn open(&self, serving: Serving) {
        // A gate is opened once.
        let _ = self.0.set(serving);
    }
}

impl Handler for Gate {
    fn handle(&self, peer: &Arc<Peer>, request: Request) -> Handling {
        match self.0.get() {
            Some(serving) => serving.handle(peer, request),
            None => Box::pin(async {
                let refusal = Refusal::new(Code::BUSY, "the server is starting");
                Err(Refusal { retry_after_ms: 100, ..refusal })
            }),
        }
    }

    fn closed(&self, peer: &Arc<Peer>) {
        if let Some(serving) = self.0.get() {
            serving.closed(peer);
        }
    }
}
