//! How the cluster stands, as one server sees it.

use std::sync::Arc;

use forebay_owner::VolumeOwner;
use forebay_protocol::{ClientStatus, MemberStatus, Overview, OwnerDetail, VolumeStatus};
use forebay_rpc::Peer;

use super::check;
use crate::{
    cluster::Cluster,
    hosting::{Hosted, Standing},
    service::Refused,
};

/// [`forebay_protocol::Kind::Overview`]
pub(crate) fn overview(cluster: &Arc<Cluster>, peer: &Arc<Peer>) -> Result<Overview, Refused> {
    check(cluster, peer)?;
    let mut volumes: Vec<_> = cluster.hosted.read().values().cloned().collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Overview {
        server: cluster.address.clone(),
        engine: cluster.host.place(),
        uptime_ms: millis(cluster.began.elapsed()),
        members: members(cluster)?,
        volumes: volumes.iter().map(|hosted| volume(cluster, hosted)).collect(),
    })
}

/// All servers, in the order of their addresses.
pub(super) fn members(cluster: &Cluster) -> Result<Vec<MemberStatus>, Refused> {
    cluster.look()?;
    let rows = cluster.registry.members()?;
    let living: Vec<_> = {
        let members = cluster.members.lock();
        members.living().into_iter().map(|(id, _)| id).collect()
    };
    let members = rows.into_iter().map(|(id, row)| MemberStatus {
        id: id.0.iter().take(4).map(|byte| format!("{byte:02x}")).collect(),
        address: row.address,
        alive: living.contains(&id),
        release: row.release,
    });
    let mut members: Vec<_> = members.collect();
    members.sort_by(|a, b| a.address.cmp(&b.address));
    Ok(members)
}

fn volume(cluster: &Cluster, hosted: &Hosted) -> VolumeStatus {
    let (name, epoch) = (hosted.name.clone(), hosted.epoch());
    match hosted.standing() {
        Standing::StandsBy(owner) => {
            VolumeStatus { name, epoch, owner: owner.unwrap_or_default(), detail: None }
        }
        Standing::Owns(owner) => {
            let detail = Some(detail(hosted, &owner));
            VolumeStatus { name, epoch, owner: cluster.address.clone(), detail }
        }
    }
}

fn detail(hosted: &Hosted, owner: &VolumeOwner) -> OwnerDetail {
    let links = hosted.links.all();
    let client = |session: forebay_owner::SessionStatus| {
        let link = links.iter().find(|(id, _)| *id == session.session).map(|(_, link)| link);
        let name = match link {
            Some(link) => Some(link.client.clone()),
            None => owner.client_of(session.session).ok().flatten(),
        };
        ClientStatus {
            name: name.unwrap_or_else(|| format!("session {:032x}", session.session.0)),
            address: link.map(|link| link.peer.address.clone()),
            heard_ms: millis(session.heard),
            leases: session.leases,
        }
    };
    let status = owner.status();
    OwnerDetail {
        clients: owner.sessions().into_iter().map(client).collect(),
        waiting: status.waiting,
        batches: status.batches,
        commit_us: status.lately_us,
        used: status.used,
        limit: (status.limit != u64::MAX).then_some(status.limit),
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
