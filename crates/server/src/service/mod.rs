//! What requests of the network are answered.
//!
//! Guarantees: a thread of the network never waits for an engine or a store; a slow or dead client holds up nobody else; what a client may is decided before
//! anything of its request is looked at.

mod ask;
mod groups;
mod hello;
mod refuse;
mod vouch;
mod wanted;

use std::{fmt, sync::Arc};

use bytes::Bytes;
use forebay_cluster::SessionId;
use forebay_protocol::{Kind, Message, Refusal, Return};
use forebay_rpc::{
    Handler, Handling, Peer,
    connection::{Reply, Request},
    wire::{Code, Refusal as WireRefusal},
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

pub(crate) use ask::owner_of;
pub(crate) use refuse::Refused;

use crate::{admin, cluster::Cluster, hosting::Hosted, links::Link, migration};

/// The session that a connection is for.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) hosted: Arc<Hosted>,
    pub(crate) session: SessionId,
}

/// Answers requests of all connections.
pub(crate) struct Service {
    pub(crate) cluster: Arc<Cluster>,
    /// By the address of the peer in memory, which it keeps for its lifetime.
    bound: Mutex<FxHashMap<usize, Arc<Bound>>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({} connections with a session)", self.bound.lock().len())
    }
}

fn place(peer: &Arc<Peer>) -> usize {
    Arc::as_ptr(peer).addr()
}

impl Service {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Service {
        Service { cluster, bound: Mutex::default() }
    }

    /// The session of a connection.
    fn bound(&self, peer: &Arc<Peer>) -> Result<Arc<Bound>, Refused> {
        let bound = self.bound.lock().get(&place(peer)).cloned();
        bound.ok_or_else(|| Refusal::Denied("the first message of a connection is Hello".to_owned()).into())
    }

    /// The connection is this session's from now on, and the session is on it. Called by the connection's own task, so never after [`Service::unbind`] as it
    /// closes.
    fn bind(&self, peer: &Arc<Peer>, bound: Bound, link: Link) {
        let bound = Arc::new(bound);
        bound.hosted.links.put(bound.session, link);
        let former = self.bound.lock().insert(place(peer), Arc::clone(&bound));
        if let Some(former) = former
            && !(former.session == bound.session && Arc::ptr_eq(&former.hosted, &bound.hosted))
        {
            former.hosted.links.drop_of(former.session, peer);
        }
    }

    fn unbind(&self, peer: &Arc<Peer>) {
        if let Some(bound) = self.bound.lock().remove(&place(peer)) {
            bound.hosted.links.drop_of(bound.session, peer);
        }
    }

    async fn answer(self: Arc<Self>, kind: Kind, peer: Arc<Peer>, body: Bytes) -> Result<Vec<u8>, Refused> {
        match kind {
            Kind::Hello => self.hello(peer, body).await,
            Kind::Ask => self.ask(&peer, &body).await,
            Kind::Renew => self.renew(&peer, &body),
            Kind::RenewMember => self.renew_member(&peer, &body).await,
            Kind::Push | Kind::Recalls => {
                Err(WireRefusal::new(Code::UNSUPPORTED, "only servers push").into())
            }
            _ => {
                let working = tokio::task::spawn_blocking(move || self.work(kind, &peer, &body));
                working.await.map_err(|error| WireRefusal::new(Code::FAILED, error.to_string()))?
            }
        }
    }

    /// What may wait for an engine or a store, in a thread of its own.
    fn work(&self, kind: Kind, peer: &Arc<Peer>, body: &[u8]) -> Result<Vec<u8>, Refused> {
        match kind {
            Kind::Reclaim => self.reclaim(peer, body),
            Kind::Return => self.returned(peer, &[decode(body)?]),
            Kind::Returns => self.returned(peer, &decode::<Vec<Return>>(body)?),
            Kind::End => self.end(peer, body),
            Kind::Volumes => admin::volumes(&self.cluster, peer, &decode(body)?).map(|all| all.encode()),
            Kind::Tokens => admin::tokens(&self.cluster, peer, &decode(body)?).map(|all| all.encode()),
            Kind::Status => admin::status(&self.cluster, peer).map(|status| status.encode()),
            Kind::Overview => admin::overview(&self.cluster, peer).map(|overview| overview.encode()),
            Kind::Migrate => migration::migrate(&self.cluster, peer, &decode(body)?).map(|all| all.encode()),
            Kind::Policies => admin::policies(&self.cluster, peer, &decode(body)?).map(|info| info.encode()),
            Kind::Kept => admin::kept(&self.cluster, peer, &decode(body)?).map(|all| all.encode()),
            Kind::Wanted => self.wanted(peer, decode(body)?).map(|wanted| wanted.encode()),
            Kind::Groups => admin::groups(&self.cluster, peer, &decode(body)?).map(|all| all.encode()),
            Kind::Join => admin::join(&self.cluster, peer, &decode(body)?).map(|joined| joined.encode()),
            Kind::Leave => admin::leave(&self.cluster, peer, &decode(body)?).map(|()| Vec::new()),
            Kind::Sets => admin::sets(&self.cluster, peer, &decode(body)?).map(|all| all.encode()),
            Kind::ViewOf => self.view_of(peer, body),
            Kind::ViewsOf => self.views_of(peer, body),
            Kind::Vouch => self.vouch(peer, &decode(body)?).map(|vouched| vouched.encode()),
            Kind::VouchIn => self.vouch_in(peer, &decode(body)?).map(|vouched| vouched.encode()),
            Kind::Greet
            | Kind::Append
            | Kind::Seal
            | Kind::Fence
            | Kind::ReadBack
            | Kind::Copy
            | Kind::Warm
            | Kind::Fetch
            | Kind::Peek
            | Kind::Distrust
            | Kind::Near => {
                Err(WireRefusal::new(Code::UNSUPPORTED, "to be asked of a member of a proxy group").into())
            }
            Kind::Hello | Kind::Ask | Kind::Renew | Kind::RenewMember | Kind::Push | Kind::Recalls => {
                Err(WireRefusal::new(Code::UNSUPPORTED, "not to be waited for").into())
            }
        }
    }
}

/// The message that a body is.
fn decode<T: Message>(body: &[u8]) -> Result<T, Refused> {
    T::decode(body).map_err(|error| WireRefusal::new(Code::MALFORMED, error.to_string()).into())
}

/// Answers requests, as the network hands them on.
#[derive(Clone, Debug)]
pub(crate) struct Serving(pub(crate) Arc<Service>);

impl Handler for Serving {
    fn handle(&self, peer: &Arc<Peer>, request: Request) -> Handling {
        let (service, peer) = (Arc::clone(&self.0), Arc::clone(peer));
        Box::pin(async move {
            let Some(kind) = Kind::of(request.kind) else {
                let text = format!("this release knows no message of kind {}", request.kind);
                return Err(WireRefusal::new(Code::UNSUPPORTED, text));
            };
            let cluster = Arc::clone(&service.cluster);
            cluster.counts.came(kind);
            match service.answer(kind, peer, request.body).await {
                Ok(body) => Ok(Reply { body: body.into(), bulk: Bytes::new() }),
                Err(Refused(refusal)) => {
                    cluster.counts.was_refused();
                    Err(refusal)
                }
            }
        })
    }

    fn closed(&self, peer: &Arc<Peer>) {
        self.0.unbind(peer);
    }

    fn is_breach(&self, refusal: &WireRefusal) -> bool {
        let ours = || Refusal::decode(&refusal.detail);
        let is_refused = refusal.code == Code(Kind::REFUSED);
        refusal.code.is_breach()
            || is_refused && matches!(ours(), Ok(Refusal::Denied(_) | Refusal::WrongSlot))
    }
}
