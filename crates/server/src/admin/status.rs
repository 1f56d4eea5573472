use std::sync::Arc;

use forebay_protocol::{OwnedStatus, ServerStatus};
use forebay_rpc::Peer;

use super::{check, overview::members};
use crate::{
    cluster::Cluster,
    hosting::{Hosted, Standing},
    service::Refused,
};

/// [`forebay_protocol::Kind::Status`]
pub(crate) fn status(cluster: &Arc<Cluster>, peer: &Arc<Peer>) -> Result<ServerStatus, Refused> {
    check(cluster, peer)?;
    let mut volumes: Vec<_> = cluster.hosted.read().values().map(|hosted| owned(cluster, hosted)).collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(ServerStatus {
        server: cluster.address.clone(),
        engine: cluster.host.place(),
        members: members(cluster)?,
        volumes,
    })
}

fn owned(cluster: &Cluster, hosted: &Hosted) -> OwnedStatus {
    let (name, epoch) = (hosted.name.clone(), hosted.epoch());
    match hosted.standing() {
        Standing::StandsBy(owner) => {
            OwnedStatus { name, epoch, owner: owner.unwrap_or_default(), ..OwnedStatus::default() }
        }
        Standing::Owns(owner) => {
            let status = owner.status();
            let clients = hosted.links.all().into_iter().map(|(_, link)| link.client).collect();
            OwnedStatus {
                name,
                epoch,
                owner: cluster.address.clone(),
                sessions: Some(status.sessions),
                clients,
                waiting: status.waiting,
                batches: status.batches,
                used: status.used,
            }
        }
    }
}
