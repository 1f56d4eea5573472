//! Requests of sessions: handed to the volume's owner.

use std::sync::Arc;

use forebay_cluster::SessionId;
use forebay_owner::VolumeOwner;
use forebay_protocol::{Message, RETURNS_MAX, Reclaim, Reclaimed, Refusal, Request, Return};
use forebay_rpc::{
    Peer,
    wire::{Code, Refusal as WireRefusal},
};

use super::{Bound, Refused, Service, decode};
use crate::{
    cluster::Cluster,
    hosting::{Hosted, Standing},
};

/// After which a request is repeated that is under way already, in milliseconds.
const UNDER_WAY_MS: u32 = 20;

/// The owner of a volume, or where to ask: where nobody owns it, the server that should.
pub(crate) fn owner_of(cluster: &Cluster, hosted: &Hosted) -> Result<Arc<VolumeOwner>, Refused> {
    match hosted.standing() {
        Standing::Owns(owner) => Ok(owner),
        Standing::StandsBy(owner) => {
            let address = owner.or_else(|| cluster.preferred_elsewhere(hosted.id));
            Err(Refusal::NotOwner { address }.into())
        }
    }
}

impl Service {
    fn session(&self, peer: &Arc<Peer>, session: SessionId) -> Result<Arc<Bound>, Refused> {
        let bound = self.bound(peer)?;
        if bound.session == session {
            let links = &bound.hosted.links;
            if links.is_on(session, peer) || bound.hosted.owner().is_none_or(|owner| !owner.lives(session)) {
                return Ok(bound);
            }
            // Recalls would not reach it: it greets again.
            return Err(Refusal::NotOwner { address: None }.into());
        }
        Err(Refusal::Denied("the connection is another session's".to_owned()).into())
    }

    /// [`forebay_protocol::Kind::Ask`]: taken in by a thread that may wait for the engine, and commits where nobody does; answered by whoever commits.
    pub(super) async fn ask(&self, peer: &Arc<Peer>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let request: Request = decode(body)?;
        let bound = self.session(peer, request.session)?;
        let owner = owner_of(&self.cluster, &bound.hosted)?;
        let Some(room) = bound.hosted.links.room(request.session) else {
            let refusal = WireRefusal::new(Code::BUSY, "too many requests of the session are under way");
            return Err(WireRefusal { retry_after_ms: UNDER_WAY_MS, ..refusal }.into());
        };
        let (to, from) = tokio::sync::oneshot::channel();
        let reply = Box::new(move |response| {
            drop(room);
            drop(to.send(response));
        });
        // Not waited for: it goes on when the caller does not.
        drop(tokio::task::spawn_blocking(move || owner.submit_and_commit(request, reply)));
        match from.await {
            Ok(response) => Ok(response?.encode()),
            Err(_) => {
                // The same request came before and is not answered yet.
                let refusal = WireRefusal::new(Code::BUSY, "the request is under way");
                Err(WireRefusal { retry_after_ms: UNDER_WAY_MS, ..refusal }.into())
            }
        }
    }

    /// [`forebay_protocol::Kind::Renew`]
    pub(super) fn renew(&self, peer: &Arc<Peer>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let session: SessionId = decode(body)?;
        let bound = self.session(peer, session)?;
        owner_of(&self.cluster, &bound.hosted)?.renew(session)?;
        Ok(Vec::new())
    }

    /// [`forebay_protocol::Kind::Reclaim`]
    pub(super) fn reclaim(&self, peer: &Arc<Peer>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let Reclaim { session, epoch: said_to, leases } = decode(body)?;
        let bound = self.session(peer, session)?;
        let owner = owner_of(&self.cluster, &bound.hosted)?;
        if let Some(epoch) = owner.epoch().filter(|epoch| *epoch != said_to) {
            // What was said to a former owner is of before what that one gave and took. The session is heard of all the same.
            owner.renew(session)?;
            return Err(Refusal::MustReclaim { epoch }.into());
        }
        let (epoch, grants) = owner.reclaim(session, &leases)?;
        Ok(Reclaimed { epoch, grants }.encode())
    }

    /// [`forebay_protocol::Kind::Return`] and [`forebay_protocol::Kind::Returns`]
    pub(super) fn returned(&self, peer: &Arc<Peer>, leases: &[Return]) -> Result<Vec<u8>, Refused> {
        let Some(Return { session, .. }) = leases.first() else { return Ok(Vec::new()) };
        if leases.len() > RETURNS_MAX || leases.iter().any(|lease| lease.session != *session) {
            let why = format!("{} leases, or of several sessions", leases.len());
            return Err(WireRefusal::new(Code::MALFORMED, why).into());
        }
        let bound = self.session(peer, *session)?;
        owner_of(&self.cluster, &bound.hosted)?.all_returned(leases);
        Ok(Vec::new())
    }

    /// [`forebay_protocol::Kind::End`]
    pub(super) fn end(&self, peer: &Arc<Peer>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        let session: SessionId = decode(body)?;
        let bound = self.session(peer, session)?;
        owner_of(&self.cluster, &bound.hosted)?.end_session(session);
        self.unbind(peer);
        Ok(Vec::new())
    }
}
