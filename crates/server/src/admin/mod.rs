//! What those may ask who run the servers: volumes, tokens, how it stands.

mod groups;
mod making;
mod overview;
mod policies;
mod removing;
mod sets;
mod status;
mod tokens;
mod volumes;

use std::sync::Arc;

use forebay_protocol::{Refusal, VolumeInfo};
use forebay_rpc::{Identity, Peer};
use forebay_types::Timespec;

use crate::{cluster::Cluster, registry::VolumeRow, service::Refused};

pub(crate) use groups::{groups, join, leave};
pub(crate) use making::store_of;
pub(crate) use overview::overview;
pub(crate) use policies::{kept, policies};
pub(crate) use sets::{all_sets, sets};
pub(crate) use status::status;
pub(crate) use tokens::tokens;
pub(crate) use volumes::volumes;

/// Refuses whoever may not administer: a certificate may (if its name is among the admins', where some are named), a process of this machine over the Unix
/// socket may, and anybody on this machine where that was allowed.
pub(crate) fn check(cluster: &Cluster, peer: &Arc<Peer>) -> Result<(), Refused> {
    let may = match &peer.identity {
        Identity::Certificate(subject) => administers(cluster, &subject.name),
        Identity::Local { .. } => true,
        Identity::Unproven => cluster.insecure,
    };
    match may {
        true => Ok(()),
        false => Err(Refusal::Denied(format!(
            "{} may not administer: ask over the server's Unix socket, or with the certificate of an administrator",
            peer.identity
        ))
        .into()),
    }
}

/// Whether the bearer of a certificate with this name may administer.
pub(crate) fn administers(cluster: &Cluster, name: &str) -> bool {
    cluster.admins.is_empty() || cluster.admins.iter().any(|admin| admin == name)
}

pub(crate) fn invalid(why: impl Into<String>) -> Refused {
    Refusal::Invalid(why.into()).into()
}

pub(crate) fn unavailable(why: impl ToString) -> Refused {
    Refusal::Unavailable(why.to_string()).into()
}

fn time(secs: u64) -> Timespec {
    Timespec { secs: i64::try_from(secs).unwrap_or(i64::MAX), nanos: 0 }
}

/// A volume, as clients and administrators are told of it.
pub(crate) fn volume_info(name: &str, row: &VolumeRow) -> VolumeInfo {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    VolumeInfo {
        name: name.to_owned(),
        id: row.id,
        store: row.store.clone(),
        endpoint: some(&row.endpoint),
        region: some(&row.region),
        block_size: row.block_size,
        compression: row.compression,
        created: time(row.created),
        limit: row.limit,
        generation: row.generation,
    }
}
