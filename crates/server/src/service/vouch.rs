//! Whether the bearer of a token may use a volume, for a member of a proxy group whom he showed it to; and whether a member is who it says.

use std::sync::Arc;

use forebay_group::{GroupId, Incarnation, MemberId};
use forebay_protocol::{
    Refusal, Rights,
    group::{Vouch, VouchIn, Vouched},
};
use forebay_rpc::Peer;
use forebay_types::{Ino, VolumeId};

use super::{Refused, Service, hello::shows_a_part};
use crate::{
    admin::{administers, check, volume_info},
    groups::Known,
    registry::{RegistryError, TokenRow, View, VolumeRow, VolumeState, now},
    secret::Secret,
};

/// How long a member may go by an answer, in milliseconds: a token that is revoked counts for so long there.
const FOR_MS: u64 = 10_000;

impl Service {
    /// [`forebay_protocol::Kind::Vouch`]: asked by those who may administer, which members of a group are.
    pub(super) fn vouch(&self, peer: &Arc<Peer>, vouch: &Vouch) -> Result<Vouched, Refused> {
        self.vouched(peer, vouch, None)
    }

    /// [`forebay_protocol::Kind::VouchIn`], likewise.
    pub(super) fn vouch_in(&self, peer: &Arc<Peer>, asked: &VouchIn) -> Result<Vouched, Refused> {
        self.vouched(peer, &asked.vouch, Some(asked.group))
    }

    /// `by`: the group of the member that asks, where it says.
    fn vouched(&self, peer: &Arc<Peer>, vouch: &Vouch, by: Option<GroupId>) -> Result<Vouched, Refused> {
        check(&self.cluster, peer)?;
        let member = vouch.token.as_deref().and_then(Vouch::as_member);
        if let Some(member) = member {
            let shown = vouch.certificate.as_deref();
            let trusted = shown.map_or(self.cluster.insecure, |name| administers(&self.cluster, name));
            if !trusted {
                let who = shown.map_or("who shows no certificate".to_owned(), |name| format!("'{name}'"));
                let why = format!("{who} may not administer, so it is no member of a group");
                return Err(Refusal::Denied(why).into());
            }
            self.knows_member(member)?;
        }
        let secret = vouch.token.as_deref().filter(|_| member.is_none()).map(Secret::parse);
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
        if found.0.is_none() || (secret.is_some() && found.1.is_none()) {
            // It may have been made a moment ago, by way of another server.
            found =
                look(&*self.cluster.registry.refresh().map_err(|error: RegistryError| Refused::from(error))?);
        }
        let (volume, token) = found;
        let rights = match member {
            Some(_) => Rights::ALL,
            None => rights(vouch, token.as_ref(), self.cluster.insecure)?,
        };
        let (name, mut row) = volume.ok_or_else(|| Refusal::NoVolume(vouch.volume.to_string()))?;
        if by.is_some_and(|by| !self.is_read_through(&row, by)) {
            // It may have been given the group a moment ago, by way of another server.
            let view =
                self.cluster.registry.refresh().map_err(|error: RegistryError| Refused::from(error))?;
            self.cluster.groups.refresh(&self.cluster)?;
            row = view.volume(vouch.volume).map_or(row, |(_, now)| now.clone());
        }
        ready(&name, &row)?;
        if let Some(hosted) = self.cluster.hosted(vouch.volume) {
            hosted.tell_owner(&self.cluster);
        }
        let known = self.cluster.groups.known();
        let ids = || row.groups().filter_map(|name| Some(known.groups.get(name)?.row.id));
        let group = ids().find(|id| Some(*id) == by).or_else(|| Some(known.groups.get(&row.group)?.row.id));
        let whole = !token.is_some_and(|token| shows_a_part(&token));
        Ok(Vouched { volume: volume_info(&name, &row), rights, for_ms: FOR_MS, group, whole })
    }

    fn is_read_through(&self, row: &VolumeRow, group: GroupId) -> bool {
        let known = self.cluster.groups.known();
        row.groups().any(|name| known.groups.get(name).is_some_and(|found| found.row.id == group))
    }

    /// Refuses a member whom its group does not know by this incarnation. One that was counted out, and for which nobody acts, still speaks for what it has:
    /// what it fences, offers and brings goes by the epochs of segments.
    pub(super) fn knows_member(
        &self,
        (group, member, incarnation): (GroupId, MemberId, Incarnation),
    ) -> Result<(), Refused> {
        let known = |known: &Known| {
            known.group(group).is_some_and(|(_, entry)| {
                let row = &entry.row;
                let absent = !row.view.members.contains_key(&member);
                let lost = row.lost.iter().any(|(lost, _)| *lost == member) && !row.removed.contains(&member);
                row.view.names(member, incarnation) || (absent && lost)
            })
        };
        // It may have joined a moment ago, by way of another server.
        let found =
            known(&self.cluster.groups.known()) || known(&*self.cluster.groups.refresh(&self.cluster)?);
        match found {
            true => Ok(()),
            false => {
                let why = format!("the group {group} knows no member {member} as this process");
                Err(Refusal::Denied(why).into())
            }
        }
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
