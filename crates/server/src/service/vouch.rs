//! Whether the bearer of a token may use a volume, for a member of a proxy group whom he showed it to.

use std::sync::Arc;

use forebay_protocol::{
    Refusal, Rights,
    group::{Vouch, Vouched},
};
use forebay_rpc::Peer;
use forebay_types::{Ino, VolumeId};

use super::{Refused, Service, hello::shows_a_part};
use crate::{
    admin::{check, volume_info},
    registry::{RegistryError, TokenRow, View, VolumeRow, VolumeState, now},
    secret::Secret,
};

/// How long a member may go by an answer, in milliseconds: a token that is revoked counts for so long there.
const FOR_MS: u64 = 10_000;

impl Service {
    /// [`forebay_protocol::Kind::Vouch`]: asked by those who may administer, which members of a group are.
    pub(super) fn vouch(&self, peer: &Arc<Peer>, vouch: &Vouch) -> Result<Vouched, Refused> {
        check(&self.cluster, peer)?;
        let secret = vouch.token.as_deref().map(Secret::parse);
        let look = |view: &View| {
            let volume = view.volume(vouch.volume).map(|(name, row)| (name.to_owned(), row.clone()));
            let token = match &secret {
                Some(Some(secret)) => {
                    let row = view.tokens.get(&secret.id).cloned();
                    row.filter(|row| secret.fits(&row.digest) && row.volume == vouch.volume)
                }
                _ => None,
            };
            (volume, token)
        };
        let mut found = look(&self.cluster.registry.view());
        if found.0.is_none() || (vouch.token.is_some() && found.1.is_none()) {
            // It may have been made a moment ago, by way of another server.
            found =
                look(&*self.cluster.registry.refresh().map_err(|error: RegistryError| Refused::from(error))?);
        }
        let (volume, token) = found;
        let rights = rights(vouch, token.as_ref(), self.cluster.insecure)?;
        let (name, row) = volume.ok_or_else(|| Refusal::NoVolume(vouch.volume.to_string()))?;
        ready(&name, &row)?;
        let known = self.cluster.groups.known();
        let group = known.groups.get(&row.group).map(|found| found.row.id);
        let whole = !token.is_some_and(|token| shows_a_part(&token));
        Ok(Vouched { volume: volume_info(&name, &row), rights, for_ms: FOR_MS, group, whole })
    }
}

fn rights(vouch: &Vouch, token: Option<&TokenRow>, insecure: bool) -> Result<Rights, Refusal> {
    let denied = |why: &str, volume: VolumeId| Refusal::Denied(format!("{why} {volume}"));
    match (&vouch.token, token) {
        (None, _) if insecure => Ok(Rights::ALL),
        (None, _) => Err(denied("a token is needed for the volume", vouch.volume)),
        (Some(_), None) => {
            Err(denied("the token is unknown, was revoked, or is not for the volume", vouch.volume))
        }
        (Some(_), Some(token)) if token.has_expired(now()) => {
            Err(denied("the token has expired, ask for another one for the volume", vouch.volume))
        }
        (Some(_), Some(token)) => Ok(Rights {
            root: Ino::ROOT,
            read_only: token.read_only,
            no_exec: token.no_exec,
            root_squash: token.root_squash,
        }),
    }
}

fn ready(name: &str, row: &VolumeRow) -> Result<(), Refusal> {
    match row.state {
        VolumeState::Ready => Ok(()),
        state => Err(Refusal::Unavailable(format!("the volume '{name}' is {}", state.as_str()))),
    }
}
