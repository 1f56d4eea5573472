//! A volume that goes: its tokens and its name at once, then its objects if that is wished, its rows, and last its entry, so that what a crash leaves is
//! deleted by asking again.

use std::sync::Arc;

use forebay_cluster::SessionId;
use forebay_engine::EngineError;
use forebay_object::Backend;
use forebay_protocol::{Refusal, VolumeInfo};

use super::{
    invalid,
    making::{MARK, store_of},
    unavailable, volume_info,
};
use crate::{
    cluster::Cluster,
    hosting::database,
    registry::{Change, DeletedRow, RegistryError, VolumeRow, VolumeState},
    service::{Refused, owner_of},
};

/// What the keys of a shared volume's objects begin with.
const DATA: &str = forebay_format::row::DATA_KEYS;

pub(super) fn remove(cluster: &Arc<Cluster>, name: &str, objects: bool) -> Result<VolumeInfo, Refused> {
    let view = cluster.registry.refresh()?;
    let row = view.volumes.get(name).ok_or_else(|| Refusal::NoVolume(name.to_owned()))?.clone();
    let hosted = cluster.hosted(row.id);
    if row.state == VolumeState::Ready {
        let Some(hosted) = &hosted else { return Err(Refusal::NotOwner { address: None }.into()) };
        // Members of its group only have what nobody needs any more.
        in_use(name, &owner_of(cluster, hosted)?.mounts(), &hosted.links.all())?;
    }
    let gone = VolumeRow { state: VolumeState::Deleting, ..row.clone() };
    cluster.registry.change(|view| {
        let mut changes: Vec<Change> = view
            .tokens
            .iter()
            .filter(|(_, token)| token.volume == row.id)
            .map(|(id, _)| Change::Token(*id, None))
            .collect();
        match view.volumes.get(name) {
            Some(found) if found.id == row.id => {
                changes.push(Change::Volume(name.to_owned(), Some(gone.clone())));
                Ok((changes, ()))
            }
            _ => Err(Refused::from(Refusal::NoVolume(name.to_owned()))),
        }
    })?;
    cluster.follow().map_err(unavailable)?;
    if let Some(hosted) = hosted {
        hosted.stop();
        hosted.join();
    }
    if objects {
        delete_objects(&row).map_err(unavailable)?;
    }
    forget(cluster, name, &row)?;
    Ok(volume_info(name, &gone))
}

fn in_use(
    name: &str,
    mounts: &[SessionId],
    links: &[(SessionId, crate::links::Link)],
) -> Result<(), Refused> {
    if mounts.is_empty() {
        return Ok(());
    }
    let clients: Vec<&str> = links
        .iter()
        .filter(|(session, _)| mounts.contains(session))
        .map(|(_, link)| link.client.as_str())
        .collect();
    let who = if clients.is_empty() { String::new() } else { format!(" ({})", clients.join(", ")) };
    Err(invalid(format!("the volume '{name}' is mounted {} times{who}: unmount it first", mounts.len())))
}

fn delete_objects(row: &VolumeRow) -> Result<(), String> {
    let store = store_of(row)?;
    loop {
        // What is deleted is not listed again.
        let page = store.list(DATA, None).map_err(|error| error.to_string())?;
        if page.entries.is_empty() {
            break;
        }
        for object in &page.entries {
            store.delete(&object.key).map_err(|error| error.to_string())?;
        }
    }
    store.delete(MARK).map_err(|error| error.to_string())
}

/// Removes the database and the entry of a volume, also what it left in another place. In its place stays that it was deleted, for those who have bytes of it.
pub(super) fn forget(cluster: &Arc<Cluster>, name: &str, row: &VolumeRow) -> Result<(), Refused> {
    // The place may have changed since: nothing moves it any more.
    let view = cluster.registry.refresh()?;
    let row = view.volume(row.id).map_or(row, |(_, row)| row);
    for place in row.left.iter().chain([&row.place]) {
        let database = database(row.id, place).map_err(unavailable)?;
        match cluster.places.host(&place.address).and_then(|host| host.remove(&database)) {
            Ok(()) | Err(EngineError::Missing { .. }) => {}
            Err(error) => return Err(unavailable(error)),
        }
    }
    cluster.registry.change(|view| {
        let ours = view.volumes.get(name).is_some_and(|found| found.id == row.id);
        let deleted = DeletedRow { name: name.to_owned() };
        let changes = match ours {
            true => vec![Change::Volume(name.to_owned(), None), Change::Deleted(row.id, deleted)],
            false => Vec::new(),
        };
        Ok::<_, RegistryError>((changes, ()))
    })?;
    Ok(())
}
