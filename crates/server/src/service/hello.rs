//! The first message of a connection.

use std::sync::Arc;

use bytes::Bytes;

use forebay_owner::VolumeOwner;
use forebay_protocol::{Hello, Message, Refusal, Response, Rights, VolumeInfo, Welcome, group::Vouch};
use forebay_rpc::{
    Peer,
    wire::{Code, Refusal as WireRefusal},
};
use forebay_types::Ino;
use tokio::sync::oneshot;

use super::{Bound, Refused, Service, ask::owner_of, decode};
use crate::{
    admin::{check, volume_info},
    hosting::Hosted,
    links::Link,
    registry::{RegistryError, TokenId, TokenRow, View, VolumeRow, VolumeState, now},
    secret::Secret,
};

/// A session that is being begun.
struct Beginning {
    hello: Hello,
    row: VolumeRow,
    hosted: Arc<Hosted>,
    owner: Arc<VolumeOwner>,
    rights: Rights,
    begins: bool,
    /// Hears when its row is committed; nothing where it goes on.
    committed: Option<oneshot::Receiver<Result<Response, Refusal>>>,
}

impl Service {
    /// [`forebay_protocol::Kind::Hello`]: begins a session, or goes on with one on this connection.
    pub(super) async fn hello(self: Arc<Self>, peer: Arc<Peer>, body: Bytes) -> Result<Vec<u8>, Refused> {
        let (service, of) = (Arc::clone(&self), Arc::clone(&peer));
        let working = tokio::task::spawn_blocking(move || service.begin(&of, &body));
        let beginning =
            working.await.map_err(|error| WireRefusal::new(Code::FAILED, error.to_string()))??;
        let Beginning { hello, row, hosted, owner, rights, begins, committed } = beginning;
        if let Some(committed) = committed {
            let said = committed.await.unwrap_or(Err(Refusal::NotOwner { address: None }));
            said?;
        }
        let Some(epoch) = owner.epoch() else {
            return Err(Refusal::NotOwner { address: None }.into());
        };
        // One that lived has the rights with which it began.
        let rights = owner.rights(hello.session).unwrap_or(rights);
        let link = Link { peer: Arc::clone(&peer), client: hello.client.clone() };
        self.bind(&peer, Bound { hosted, session: hello.session }, link);
        // What it was told before it was on this connection.
        owner.tell_again(hello.session);
        let term_ms = u64::try_from(self.cluster.terms.session.as_millis()).unwrap_or(u64::MAX);
        // Not what the entry says: of a limit that came since then the session may not have been told.
        let volume = VolumeInfo { limit: owner.limit(), ..volume_info(&hello.volume, &row) };
        Ok(Welcome { epoch, term_ms, begun: begins, volume, rights }.encode())
    }

    fn begin(&self, peer: &Arc<Peer>, body: &[u8]) -> Result<Beginning, Refused> {
        let hello: Hello = decode(body)?;
        let (row, token) = self.allowed(peer, &hello.volume, hello.token.as_deref())?;
        let Some(hosted) = self.cluster.hosted(row.id) else {
            return Err(Refusal::NotOwner { address: None }.into());
        };
        let owner = owner_of(&self.cluster, &hosted)?;
        if hello.resumes {
            match owner.renew(hello.session) {
                // It is told what is to be reclaimed when it asks for something.
                Ok(()) | Err(Refusal::MustReclaim { .. }) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        let rights = granted(&owner, &hello, token.as_ref().map(|(_, token)| token))?;
        let by = token.as_ref().map(|(id, _)| id.0);
        if owner.token(hello.session).is_some_and(|began| by != Some(began)) {
            // Each ends with its own.
            let why = format!("the session began by another token for the volume '{}'", hello.volume);
            return Err(Refusal::Denied(why).into());
        }
        let begins = !hello.resumes && !owner.lives(hello.session);
        let committed = (!hello.resumes).then(|| {
            let (to, committed) = oneshot::channel();
            let reply = Box::new(move |response| drop(to.send(response)));
            owner.begin_session_by(hello.session, &hello.client, (rights, by), reply);
            committed
        });
        if let Some((_, member, _)) = hello.token.as_deref().and_then(Vouch::as_member) {
            owner.is_of_member(hello.session, member);
        }
        Ok(Beginning { hello, row, hosted, owner, rights, begins, committed })
    }

    /// The volume, and the token by which the caller may use it; none for a member of a group, which shows its name.
    pub(super) fn allowed(
        &self,
        peer: &Arc<Peer>,
        volume: &str,
        token: Option<&str>,
    ) -> Result<(VolumeRow, Option<(TokenId, TokenRow)>), Refused> {
        let member = token.and_then(Vouch::as_member);
        if let Some(member) = member {
            // It puts and offers what its log has.
            check(&self.cluster, peer)?;
            self.knows_member(member)?;
        }
        let free = self.cluster.insecure && !matches!(peer.identity, forebay_rpc::Identity::Certificate(_));
        let free = free || member.is_some();
        let secret = token.filter(|_| member.is_none()).map(Secret::parse);
        let look = |view: &View| {
            let row = view.volumes.get(volume).cloned();
            let token = match &secret {
                Some(Some(secret)) => view.tokens.get(&secret.id).map(|row| (secret.id, row.clone())),
                _ => None,
            };
            (row, token)
        };
        let mut found = look(&self.cluster.registry.view());
        let here = found.0.as_ref().is_some_and(|row| self.cluster.hosted(row.id).is_some());
        if !here || (secret.is_some() && found.1.is_none()) {
            // It may have been made or deleted a moment ago, by way of another server.
            let view =
                self.cluster.registry.refresh().map_err(|error: RegistryError| Refused::from(error))?;
            self.cluster.follow().map_err(|error| Refusal::Unavailable(error.to_string()))?;
            found = look(&view);
        }
        let (row, token) = found;
        let denied = |why: &str| Refused::from(Refusal::Denied(format!("{why} '{volume}'")));
        let token = match (&secret, token) {
            (None, _) if free => None,
            (None, _) => return Err(denied("a token is needed for the volume")),
            (Some(Some(secret)), Some((id, token)))
                if secret.fits(&token.digest) && row.as_ref().is_some_and(|row| row.id == token.volume) =>
            {
                if token.has_expired(now()) {
                    return Err(denied("the token has expired, ask for another one for the volume"));
                }
                Some((id, token))
            }
            _ => return Err(denied("the token is unknown, was revoked, or is not for the volume")),
        };
        let row = row.ok_or_else(|| Refusal::NoVolume(volume.to_owned()))?;
        match row.state {
            VolumeState::Ready => Ok((row, token)),
            state => {
                let why = format!("the volume '{volume}' is {}", state.as_str());
                Err(Refusal::Unavailable(why).into())
            }
        }
    }
}

/// What the session may. One that lives goes on with the directory that it began with, wherever that is by now; by a token that has other rights nobody goes on with it.
fn granted(owner: &VolumeOwner, hello: &Hello, token: Option<&TokenRow>) -> Result<Rights, Refused> {
    let whole = Rights { root: Ino::ROOT, ..token.map_or(Rights::ALL, rights) };
    let narrow = token.filter(|token| shows_a_part(token));
    match (owner.rights(hello.session), narrow) {
        (Some(has), _) => {
            let fits =
                Rights { root: Ino::ROOT, ..has } == whole && (has.root != Ino::ROOT) == narrow.is_some();
            let denied = || Refusal::Denied("the session was begun by a token with other rights".to_owned());
            if fits { Ok(has) } else { Err(denied().into()) }
        }
        (None, Some(token)) => Ok(Rights { root: root(owner, token)?, ..whole }),
        (None, None) => Ok(whole),
    }
}

pub(super) fn shows_a_part(token: &TokenRow) -> bool {
    token.root.split('/').any(|name| !name.is_empty())
}

fn rights(token: &TokenRow) -> Rights {
    Rights {
        root: Ino::ROOT,
        read_only: token.read_only,
        no_exec: token.no_exec,
        root_squash: token.root_squash,
    }
}

/// The directory that a token shows.
fn root(owner: &VolumeOwner, token: &TokenRow) -> Result<Ino, Refused> {
    let names = token.root.split('/').filter(|name| !name.is_empty()).map(str::as_bytes);
    let found = owner.directory_at(names).map_err(|error| Refusal::Unavailable(error.to_string()))?;
    found.ok_or_else(|| {
        Refusal::Denied(format!("the directory '{}' that the token shows is not there", token.root)).into()
    })
}
