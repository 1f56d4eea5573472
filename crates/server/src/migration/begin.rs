//! What is asked about moves, and what is refused before anything is done.

use std::sync::Arc;

use forebay_engine::EngineUrl;
use forebay_format::moving_row::PLACE_MAX;
use forebay_protocol::{MigratePhase, MigrateRequest, MigrateStatus, Refusal};
use forebay_rpc::Peer;

use super::{Migration, mover::Mover};
use crate::{
    admin::{check, invalid, unavailable},
    cluster::Cluster,
    hosting::Hosted,
    place::{DatabasePlace, DatabasePlaceError},
    registry::{Change, PlaceAddress, VolumePlace, VolumeRow, VolumeState},
    service::{Refused, owner_of},
};

/// [`forebay_protocol::Kind::Migrate`]
pub(crate) fn migrate(
    cluster: &Arc<Cluster>,
    peer: &Arc<Peer>,
    request: &MigrateRequest,
) -> Result<MigrateStatus, Refused> {
    check(cluster, peer)?;
    let view = cluster.registry.refresh()?;
    let name = request.volume.as_str();
    let row = view.volumes.get(name).filter(|row| row.state == VolumeState::Ready);
    let row = row.ok_or_else(|| Refusal::NoVolume(name.to_owned()))?;
    let Some(hosted) = cluster.hosted(row.id) else {
        return Err(Refusal::NotOwner { address: None }.into());
    };
    owner_of(cluster, &hosted)?;
    match &request.to {
        Some(to) => begin(cluster, &hosted, row, to),
        None => tell(cluster, &hosted, row),
    }
}

fn tell(cluster: &Cluster, hosted: &Hosted, row: &VolumeRow) -> Result<MigrateStatus, Refused> {
    if let Some(migration) = hosted.migration() {
        return Ok(migration.status());
    }
    let place = cluster.places.host(&row.place.address).map_err(unavailable)?.place();
    Ok(MigrateStatus { place, ..MigrateStatus::default() })
}

fn begin(
    cluster: &Arc<Cluster>,
    hosted: &Arc<Hosted>,
    row: &VolumeRow,
    to: &str,
) -> Result<MigrateStatus, Refused> {
    if to.len() > PLACE_MAX {
        return Err(invalid("the address of the place is too long"));
    }
    let parsed: DatabasePlace = to.parse().map_err(|error: DatabasePlaceError| invalid(error.to_string()))?;
    reachable(cluster, &parsed, to)?;
    // Opened as given: an address of a place that is open already may have another password.
    let host = parsed.open().map_err(|error| invalid(error.to_string()))?;
    let address = match host.place() == cluster.host.place() {
        true => PlaceAddress::default(),
        false => PlaceAddress(to.to_owned()),
    };
    let (from, target) =
        (cluster.places.host(&row.place.address).map_err(unavailable)?.place(), host.place());
    if let Some(migration) = hosted.migration().filter(|migration| migration.goes_on()) {
        let status = migration.status();
        if status.to == target {
            return Ok(status);
        }
        let other = match status.phase {
            MigratePhase::CleaningUp => "what it left where it was is still being removed".to_owned(),
            _ => format!("it is being moved to {}", status.to),
        };
        return Err(invalid(format!(
            "the volume '{}' cannot be moved to {target} now: {other}",
            hosted.name
        )));
    }
    if from == target {
        let told = stay(cluster, row, address, target.clone())?;
        // Whoever watches by asking again hears how it was.
        let moved = hosted.migration().map(|migration| migration.status());
        return Ok(moved
            .filter(|moved| moved.phase == MigratePhase::Done && moved.to == target)
            .unwrap_or(told));
    }
    if row.left.is_some() {
        let why = "what it left where it was before is still being removed: ask again";
        return Err(invalid(format!("the volume '{}' cannot be moved now: {why}", hosted.name)));
    }
    drop(host);
    start(cluster, hosted, Migration::new(address, from, target, MigratePhase::Copying))
}

/// Refuses a place that others of the servers that live could not reach.
fn reachable(cluster: &Cluster, to: &DatabasePlace, shown: &str) -> Result<(), Refused> {
    let living = cluster.members.lock().living().len();
    match to {
        DatabasePlace::Engine(EngineUrl::Directory(_)) if living > 1 => Err(invalid(format!(
            "{shown} is a directory of one machine, and {living} servers are there: move it to PostgreSQL or an object store, or stop the others first"
        ))),
        _ => Ok(()),
    }
}

/// The volume is there already; its address may have another password.
fn stay(
    cluster: &Cluster,
    row: &VolumeRow,
    address: PlaceAddress,
    place: String,
) -> Result<MigrateStatus, Refused> {
    cluster.registry.change(|view| match view.volume(row.id) {
        Some((name, found)) if found.place == row.place && found.place.address != address => {
            let place = VolumePlace { address: address.clone(), ..found.place.clone() };
            let changed = VolumeRow { place, ..found.clone() };
            Ok::<_, Refused>((vec![Change::Volume(name.to_owned(), Some(changed))], ()))
        }
        _ => Ok((Vec::new(), ())),
    })?;
    Ok(MigrateStatus { to: place.clone(), place, phase: MigratePhase::Done, ..MigrateStatus::default() })
}

fn start(
    cluster: &Arc<Cluster>,
    hosted: &Arc<Hosted>,
    migration: Migration,
) -> Result<MigrateStatus, Refused> {
    let mover = Mover::new(cluster, hosted).ok_or(Refusal::NotOwner { address: None })?;
    let begun = hosted.begin_migration(migration, move |migration| mover.run(migration));
    let begun = begun
        .ok_or_else(|| unavailable("it was begun by somebody else, or there can be no thread for it"))?;
    Ok(begun.status())
}
