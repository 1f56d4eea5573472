use std::sync::Arc;

use forebay_protocol::{Refusal, VolumeInfo, VolumeRequest, VolumeSet};
use forebay_rpc::Peer;
use forebay_types::{Compression, Timespec, VolumeId};

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
        VolumeRequest::Deleted(id) => deleted(cluster, *id).map(|deleted| deleted.into_iter().collect()),
        VolumeRequest::Set(name, set) => change(cluster, name, set).map(|changed| vec![changed]),
        VolumeRequest::Delete(name, objects) => {
            removing::remove(cluster, name, *objects).map(|gone| vec![gone])
        }
    }
}

/// A volume of which it is on record that it never comes back. Where nothing is on record, nothing is known: it may have been made by way of another server.
fn deleted(cluster: &Cluster, id: VolumeId) -> Result<Option<VolumeInfo>, Refused> {
    if let Some(name) = cluster.registry.deleted(id)? {
        let none = Option::<String>::None;
        return Ok(Some(VolumeInfo {
            name,
            id,
            store: String::new(),
            endpoint: none.clone(),
            region: none,
            block_size: 0,
            compression: Compression::None,
            created: Timespec::default(),
            limit: None,
            generation: 0,
        }));
    }
    let view = cluster.registry.refresh()?;
    let goes = view.volume(id).filter(|(_, row)| row.state == VolumeState::Deleting);
    Ok(goes.map(|(name, row)| volume_info(name, row)))
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
