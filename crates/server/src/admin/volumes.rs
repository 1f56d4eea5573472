use std::sync::Arc;

use forebay_protocol::{Refusal, VolumeInfo, VolumeRequest, VolumeSet};
use forebay_rpc::Peer;

use super::{check, making, removing, volume_info};
use crate::{
    cluster::Cluster,
    registry::{Change, VolumeRow, VolumeState},
    service::Refused,
};

/// [`forebay_protocol::Kind::Volumes`]
pub(crate) fn volumes(
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    request: &VolumeRequest,
) -> Result<Vec<VolumeInfo>, Refused> {
    check(cluster, peer)?;
    match request {
        VolumeRequest::Create(wanted) => making::make(cluster, wanted).map(|made| vec![made]),
        VolumeRequest::List => {
            let view = cluster.registry.refresh()?;
            let there = view.volumes.iter().filter(|(_, row)| row.state != VolumeState::Deleting);
            Ok(there.map(|(name, row)| volume_info(name, row)).collect())
        }
        VolumeRequest::Show(name) => {
            let view = cluster.registry.refresh()?;
            let row = view.volumes.get(name).ok_or_else(|| Refusal::NoVolume(name.clone()))?;
            Ok(vec![volume_info(name, row)])
        }
        VolumeRequest::Set(name, set) => change(cluster, name, set).map(|changed| vec![changed]),
        VolumeRequest::Delete(name, objects) => {
            removing::remove(cluster, name, *objects).map(|gone| vec![gone])
        }
    }
}

/// Mounts see it when they next begin a session.
fn change(cluster: &Arc<Cluster>, name: &str, set: &VolumeSet) -> Result<VolumeInfo, Refused> {
    cluster.registry.change(|view| {
        let row = view.volumes.get(name).filter(|row| row.state == VolumeState::Ready);
        let row = row.ok_or_else(|| Refused::from(Refusal::NoVolume(name.to_owned())))?;
        let endpoint = match &set.endpoint {
            Some(endpoint) => endpoint.clone().unwrap_or_default(),
            None => row.endpoint.clone(),
        };
        let changed = VolumeRow {
            compression: set.compression.unwrap_or(row.compression),
            limit: set.limit.unwrap_or(row.limit),
            endpoint,
            generation: row.generation + 1,
            ..row.clone()
        };
        let info = volume_info(name, &changed);
        Ok((vec![Change::Volume(name.to_owned(), Some(changed))], info))
    })
}
