//! One connection, several parts that answer on it: reads, and what is about segments that are being written.

use std::sync::Arc;

use forebay_protocol::{
    Kind, Message,
    group::{Greet, Vouch},
};
use forebay_rpc::{Handler, Handling, Peer, connection::Request};

use crate::{reads, writeback};

/// Gives each request to the part that answers it.
#[derive(Clone, Debug)]
pub(super) struct Serving {
    pub(super) reads: reads::Serving,
    pub(super) writes: writeback::Serving,
}

impl Serving {
    /// Who greets may read and write by what he shows, or nothing. A member shows its name, by which it reads nothing.
    fn greet(&self, peer: &Arc<Peer>, request: Request) -> Handling {
        let (serving, peer) = (self.clone(), Arc::clone(peer));
        Box::pin(async move {
            let body = request.body.clone();
            let greeted = serving.writes.handle(&peer, request).await?;
            if !is_member(&body)
                && let Err(refusal) = serving.reads.0.let_in(&peer, &body).await
            {
                serving.closed(&peer);
                return Err(refusal);
            }
            Ok(greeted)
        })
    }
}

fn is_member(greet: &[u8]) -> bool {
    let token = Greet::decode(greet).ok().and_then(|greet| greet.token);
    token.as_deref().and_then(Vouch::as_member).is_some()
}

impl Handler for Serving {
    fn handle(&self, peer: &Arc<Peer>, request: Request) -> Handling {
        match Kind::of(request.kind) {
            Some(Kind::Greet) => self.greet(peer, request),
            Some(kind) if writeback::WriteBack::answers(kind) => self.writes.handle(peer, request),
            _ => self.reads.handle(peer, request),
        }
    }

    fn closed(&self, peer: &Arc<Peer>) {
        self.reads.closed(peer);
        self.writes.closed(peer);
    }
}
