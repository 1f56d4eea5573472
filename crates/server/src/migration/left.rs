//! What a volume left behind where it was.

use std::sync::Arc;

use forebay_engine::EngineError;
use forebay_format::moving_row::MovingRow;
use forebay_owner::VolumeOwner;
use forebay_protocol::MigratePhase;

use super::{Migration, closed, insist};
use crate::{
    cluster::Cluster,
    hosting::{Hosted, database},
    registry::{Change, RegistryError, VolumePlace, VolumeRow},
};

/// Begins to remove what a volume has left, as the registry has it, where a former owner has not come to that.
pub(crate) fn clean_up(cluster: &Arc<Cluster>, hosted: &Arc<Hosted>, owner: &Arc<VolumeOwner>) {
    let view = cluster.registry.view();
    let Some((_, row)) = view.volume(hosted.id) else { return };
    if row.left.is_none() {
        return;
    }
    let shown = cluster.places.host(&row.place.address).map_or_else(|_| String::new(), |host| host.place());
    let cleaning = Migration::new(row.place.address.clone(), shown.clone(), shown, MigratePhase::CleaningUp);
    hosted.begin_migration(cleaning, {
        let (cluster, hosted, owner) = (Arc::clone(cluster), Arc::clone(hosted), Arc::downgrade(owner));
        move |migration| {
            let goes_on = || hosted.is_owned_by(&owner);
            if remove_left(&cluster, &hosted, &goes_on) {
                migration.tell(|status| status.phase = MigratePhase::Done);
            }
        }
    });
}

/// Removes what a volume left, however often that has to be tried. Returns whether it is done.
pub(super) fn remove_left(cluster: &Cluster, hosted: &Hosted, goes_on: &dyn Fn() -> bool) -> bool {
    let what = format!("what the volume '{}' left where it was is not removed", hosted.name);
    insist(&what, goes_on, || remove_once(cluster, hosted)).is_some()
}

fn remove_once(cluster: &Cluster, hosted: &Hosted) -> Result<(), String> {
    let view = cluster.registry.refresh().map_err(|error| error.to_string())?;
    let Some((_, row)) = view.volume(hosted.id) else { return Ok(()) };
    let Some(left) = row.left.clone() else { return Ok(()) };
    remove_database(cluster, row, &left).map_err(|error| error.to_string())?;
    let id = row.id;
    let entered = cluster.registry.change(|view| {
        let Some((name, found)) = view.volume(id).filter(|(_, found)| found.left.as_ref() == Some(&left))
        else {
            return Ok::<_, RegistryError>((Vec::new(), ()));
        };
        let forgotten = VolumeRow { left: None, ..found.clone() };
        Ok((vec![Change::Volume(name.to_owned(), Some(forgotten))], ()))
    });
    entered.map_err(|error| error.to_string())
}

fn remove_database(cluster: &Cluster, row: &VolumeRow, left: &VolumePlace) -> Result<(), String> {
    let name = database(row.id, left).map_err(|error| error.to_string())?;
    let host = cluster.places.host(&left.address).map_err(|error| error.to_string())?;
    let engine = match host.open(&name) {
        Ok(engine) => engine,
        Err(EngineError::Missing { .. }) => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    match closed(engine.as_ref()).map_err(|error| error.to_string())? {
        Some(MovingRow::Moved { .. }) => {}
        _ => return Err(format!("somebody may own what is left in {}", host.place())),
    }
    drop(engine);
    match host.remove(&name) {
        Ok(()) | Err(EngineError::Missing { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
