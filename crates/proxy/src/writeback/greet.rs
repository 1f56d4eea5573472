//! Who may do what on a connection.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_protocol::{
    Message, Refusal, Rights,
    group::{Greet, Greeted, Vouch},
};
use forebay_rpc::{
    Identity, Peer,
    connection::Reply,
    wire::{Code, Refusal as WireRefusal},
};
use forebay_types::VolumeId;
use parking_lot::Mutex;

use super::{Refused, WriteBack, decode, reply};

/// The pause before a server is asked again that did not answer.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Bytes of a client's name at most.
const CLIENT_MAX: usize = 1024;

/// What a connection is for.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) volume: VolumeId,
    vouch: Vouch,
    /// Another member, which may fence and bring copies.
    member: bool,
    /// A client of this machine, by what its kernel says.
    pub(super) here: bool,
    standing: Mutex<(Rights, Instant)>,
}

impl Bound {
    /// Refuses whoever may only read.
    pub(super) fn may_write(&self) -> Result<(), Refused> {
        match self.standing.lock().0.read_only {
            true => Err(Refusal::Denied("the token lets its bearer read, and no more".to_owned()).into()),
            false => Ok(()),
        }
    }

    /// Refuses whoever is no member.
    pub(super) fn is_member(&self) -> Result<(), Refused> {
        let denied = || Refusal::Denied("only members of the group do that".to_owned());
        if self.member { Ok(()) } else { Err(denied().into()) }
    }
}

fn is_unavailable(detail: &[u8]) -> bool {
    matches!(Refusal::decode(detail), Ok(Refusal::Unavailable(_)))
}

fn place(peer: &Arc<Peer>) -> usize {
    Arc::as_ptr(peer).addr()
}

impl WriteBack {
    /// [`forebay_protocol::Kind::Greet`]
    pub(super) async fn greet(self: &Arc<Self>, peer: Arc<Peer>, body: &[u8]) -> Result<Reply, Refused> {
        let greet: Greet = decode(body)?;
        if greet.group != self.group {
            let why = format!("this is a member of the group {}, not of {}", self.group, greet.group);
            return Err(Refusal::Invalid(why).into());
        }
        if greet.client.len() > CLIENT_MAX {
            return Err(Refusal::Invalid("the client's name is too long".to_owned()).into());
        }
        if greet.token.is_none() && matches!(peer.identity, Identity::Certificate(_)) {
            // A server may let processes of its own machine in without one; this is not for it to say.
            return Err(Refusal::Denied("a token is needed for the volume".to_owned()).into());
        }
        let member = greet.token.as_deref().and_then(Vouch::as_member);
        if let Some((group, ..)) = member.filter(|(group, ..)| *group != self.group) {
            let why = format!("members of the group {group} have nothing to say in the group {}", self.group);
            return Err(Refusal::Denied(why).into());
        }
        // Names of members are in views, which every client has: who shows one is to be trusted as one.
        let certificate = match &peer.identity {
            Identity::Certificate(subject) if member.is_some() => Some(subject.name.clone()),
            _ => None,
        };
        let member = member.is_some();
        let vouch = Vouch { volume: greet.volume, token: greet.token, certificate };
        let (rights, until) = self.ask(vouch.clone()).await?;
        let here = !member && matches!(peer.identity, Identity::Local { .. });
        let bound =
            Bound { volume: greet.volume, vouch, member, here, standing: Mutex::new((rights, until)) };
        self.bound.lock().insert(place(&peer), Arc::new(bound));
        let (incarnation, view, draining) = self.standing.now();
        Ok(reply(&Greeted { member: self.member, incarnation, view, draining }, Bytes::new()))
    }

    async fn ask(self: &Arc<Self>, vouch: Vouch) -> Result<(Rights, Instant), Refused> {
        let (asks, from) = (Arc::clone(self), Instant::now());
        let asked = tokio::task::spawn_blocking(move || asks.vouching.vouch(&vouch));
        let vouched = asked.await.map_err(|error| WireRefusal::new(Code::FAILED, error.to_string()))??;
        Ok((vouched.rights, from + Duration::from_millis(vouched.for_ms)))
    }

    /// What a connection is for, and still may be for: what a server said of its token counts for a while.
    pub(super) async fn entered(self: &Arc<Self>, peer: &Arc<Peer>) -> Result<Arc<Bound>, Refused> {
        let bound = self.bound.lock().get(&place(peer)).cloned();
        let bound =
            bound.ok_or_else(|| Refusal::Denied("the first message of a connection is Greet".to_owned()))?;
        if Instant::now() < bound.standing.lock().1 {
            return Ok(bound);
        }
        match self.ask(bound.vouch.clone()).await {
            Ok(standing) => *bound.standing.lock() = standing,
            // Nobody can revoke a token meanwhile, and a member whom no server answers soon takes nothing in.
            Err(Refused(refusal)) if is_unavailable(&refusal.detail) => {
                bound.standing.lock().1 = Instant::now() + AGAIN_AFTER;
            }
            Err(refused) => {
                self.forget(peer);
                return Err(refused);
            }
        }
        Ok(bound)
    }

    /// The connection is gone, or is for nothing any more.
    pub(super) fn forget(&self, peer: &Arc<Peer>) {
        self.bound.lock().remove(&place(peer));
    }
}
