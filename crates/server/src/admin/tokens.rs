use std::sync::Arc;

use forebay_protocol::{Refusal, TokenInfo, TokenRequest};
use forebay_rpc::Peer;

use super::{check, invalid, time, unavailable};
use crate::{
    cluster::Cluster,
    registry::{Change, TokenId, TokenRow, View, VolumeState, now},
    secret::Secret,
    service::Refused,
};

/// [`forebay_protocol::Kind::Tokens`]: tokens, and the secret of one that was just made.
pub(crate) fn tokens(
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    request: &TokenRequest,
) -> Result<(Vec<TokenInfo>, String), Refused> {
    check(cluster, peer)?;
    match request {
        TokenRequest::Create(wanted) => make(cluster, wanted),
        TokenRequest::List(volume) => {
            let view = cluster.registry.refresh()?;
            if let Some(name) = volume.as_ref().filter(|name| !view.volumes.contains_key(*name)) {
                return Err(Refusal::NoVolume(name.clone()).into());
            }
            let infos = view.tokens.iter().filter_map(|(id, row)| info(&view, *id, row));
            let asked = infos.filter(|info| volume.as_ref().is_none_or(|name| *name == info.volume));
            Ok((asked.collect(), String::new()))
        }
        TokenRequest::Revoke(id) => revoke(cluster, id).map(|gone| (vec![gone], String::new())),
    }
}

fn info(view: &View, id: TokenId, row: &TokenRow) -> Option<TokenInfo> {
    let (name, _) = view.volume(row.volume)?;
    Some(TokenInfo {
        id: id.to_string(),
        volume: name.to_owned(),
        root: row.root.clone(),
        read_only: row.read_only,
        no_exec: row.no_exec,
        root_squash: row.root_squash,
        created: time(row.created),
        expires: (row.expires != 0).then(|| time(row.expires)),
    })
}

fn make(cluster: &Arc<Cluster>, wanted: &TokenInfo) -> Result<(Vec<TokenInfo>, String), Refused> {
    let root = root(&wanted.root)?;
    let expires = match wanted.expires {
        None => 0,
        Some(at) => match u64::try_from(at.secs) {
            Ok(at) if at > now() => at,
            _ => return Err(invalid("the token would have expired already")),
        },
    };
    let secret = Secret::draw().map_err(unavailable)?;
    let made = cluster.registry.change(|view| {
        let volume = view.volumes.get(&wanted.volume).filter(|row| row.state == VolumeState::Ready);
        let volume = volume.ok_or_else(|| Refused::from(Refusal::NoVolume(wanted.volume.clone())))?;
        if view.tokens.contains_key(&secret.id) {
            return Err(unavailable("the number drawn for the token is taken: ask again"));
        }
        let row = TokenRow {
            digest: secret.digest(),
            volume: volume.id,
            root: root.clone(),
            read_only: wanted.read_only,
            no_exec: wanted.no_exec,
            root_squash: wanted.root_squash,
            created: now(),
            expires,
        };
        let made = info(view, secret.id, &row);
        Ok((vec![Change::Token(secret.id, Some(row))], made))
    })?;
    Ok((made.into_iter().collect(), secret.text()))
}

/// The root that a token shows, as it is kept: `/a/b`, without what leads nowhere.
fn root(wanted: &str) -> Result<String, Refused> {
    let names: Vec<&str> = wanted.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if !wanted.starts_with('/') || names.contains(&"..") || wanted.len() > 2048 {
        return Err(invalid(format!(
            "'{wanted}' cannot be a token's root: write /DIR, from the volume's root on"
        )));
    }
    Ok(format!("/{}", names.join("/")))
}

fn revoke(cluster: &Arc<Cluster>, id: &str) -> Result<TokenInfo, Refused> {
    let number = u64::from_str_radix(id, 16).ok().filter(|_| id.len() == 16).map(TokenId);
    let none = || invalid(format!("there is no token '{id}': `forebay token list` shows them"));
    let number = number.ok_or_else(none)?;
    cluster.registry.change(|view| {
        let row = view.tokens.get(&number).ok_or_else(none)?;
        let gone = info(view, number, row).ok_or_else(none)?;
        Ok((vec![Change::Token(number, None)], gone))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use super::root;

    #[test]
    fn roots_are_kept_without_what_leads_nowhere() {
        for (wanted, kept) in [("/", "/"), ("/a", "/a"), ("//a/./b/", "/a/b")] {
            assert_eq!(root(wanted).unwrap(), kept);
        }
        for wrong in ["", "a", "/a/../b", ".."] {
            root(wrong).unwrap_err();
        }
    }
}
