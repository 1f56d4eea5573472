//! Rows that nobody may own where they are.

use std::{sync::Arc, time::Duration};

use forebay_engine::{Batch, Engine, EngineError, Outcome, Writers, settle};
use forebay_format::{key::Key, moving_row::MovingRow, row::Row, shared_row::FenceRow};

use crate::{
    cluster::Cluster,
    error::ServerError,
    hosting::{Hosted, database},
    registry::{Change, PlaceAddress, RegistryError, VolumePlace, VolumeRow},
};

/// How often the registry is looked at for where a volume is now.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What keeps everybody from owning the rows of an engine, if anything does.
///
/// # Errors
/// [`ServerError`].
pub(crate) fn closed(engine: &dyn Engine) -> Result<Option<MovingRow>, ServerError> {
    let value = engine.get(&Key::Fence.encode())?;
    let Some(value) = value.filter(|value| MovingRow::is_meant(value)) else { return Ok(None) };
    let damaged = |error: forebay_format::FormatError| ServerError::Told(format!("{engine:?}: {error}"));
    MovingRow::decode(&value).map(Some).map_err(damaged)
}

/// Where a move brings a volume.
pub(super) fn brought(address: PlaceAddress, nonce: [u8; 16]) -> VolumePlace {
    let brought_by = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    VolumePlace { address, brought_by }
}

/// Follows a volume that was moved from `row`'s place, or ends the move for its dead owner. Returns when the registry says where it is, or hosting ends.
pub(crate) fn follow(
    cluster: &Arc<Cluster>,
    hosted: &Hosted,
    row: &VolumeRow,
    closed: &MovingRow,
) -> Result<(), ServerError> {
    let MovingRow::Moved { nonce, epoch, to } = closed else {
        return Err(ServerError::Told(format!(
            "the rows of the volume '{}' were being moved here, and are not whole",
            hosted.name
        )));
    };
    let (to, since) = (brought(PlaceAddress(to.clone()), *nonce), cluster.ticks.now());
    while !hosted.ends() {
        let view = cluster.registry.refresh()?;
        if view.volume(row.id).is_none_or(|(_, found)| found.place != row.place) {
            return Ok(());
        }
        let host = cluster.places.host(&to.address)?;
        let waited = cluster.ticks.now().since(since) >= cluster.terms.take_after;
        if waited && (host.writers() == Writers::Many || cluster.prefers_itself(row.id)) {
            let name = database(row.id, &to).map_err(|error| ServerError::Told(error.to_string()))?;
            let engine = host.open(&name)?;
            let nobodys = FenceRow { epoch: *epoch, server: None, beat: 0, address: String::new() };
            activate(engine.as_ref(), *nonce, &nobodys)?;
            enter(cluster, row, &to)?;
            tracing::info!(volume = hosted.name, "its move to {} was brought to its end", host.place());
            return Ok(());
        }
        hosted.pause(LOOK_EVERY);
    }
    Ok(())
}

/// Lets the rows of a move that was sealed be owned, under this fence. Somebody may have done so before.
///
/// # Errors
/// [`EngineError`]; [`EngineError::Unreachable`] where nobody knows whether it is done.
pub(super) fn activate(engine: &dyn Engine, nonce: [u8; 16], fence: &FenceRow) -> Result<(), EngineError> {
    let (key, value) = (Key::Fence.encode(), fence.encode());
    let failed = |detail: String| EngineError::Failed { place: format!("{engine:?}"), detail };
    let found = engine.get(&key)?;
    let incoming = match found.as_deref().filter(|found| MovingRow::is_meant(found)) {
        // Its owner was here already.
        None if found.is_some() => return Ok(()),
        None => return Err(failed("the rows that were moved here are gone".to_owned())),
        Some(incoming) => incoming,
    };
    match MovingRow::decode(incoming).map_err(|error| failed(error.to_string()))? {
        MovingRow::Incoming { nonce: found, .. } if found == nonce => {}
        // And the volume has gone on from here.
        MovingRow::Moved { .. } => return Ok(()),
        MovingRow::Incoming { .. } => return Err(failed("rows of another move are there".to_owned())),
    }
    let expect = vec![(key.clone(), Some(incoming.to_vec()))];
    let batch = Batch { expect, rows: vec![(&key, Some(&value))] };
    let outcome = match engine.commit(&batch)? {
        Outcome::Unknown => settle(engine, &batch, &key)?,
        known => known,
    };
    match outcome {
        // Fenced: by whoever activated it first.
        Outcome::Committed | Outcome::Fenced => Ok(()),
        Outcome::Unknown => {
            let detail = "nobody knows whether the move is over".to_owned();
            Err(EngineError::Unreachable { place: format!("{engine:?}"), detail })
        }
    }
}

/// Enters in the registry that a volume which was at `row`'s place is at `to`.
///
/// # Errors
/// [`RegistryError`].
pub(super) fn enter(cluster: &Cluster, row: &VolumeRow, to: &VolumePlace) -> Result<(), RegistryError> {
    cluster.registry.change(|view| {
        let Some((name, found)) = view.volume(row.id).filter(|(_, found)| found.place == row.place) else {
            return Ok((Vec::new(), ()));
        };
        let moved = VolumeRow { place: to.clone(), left: Some(row.place.clone()), ..found.clone() };
        Ok((vec![Change::Volume(name.to_owned(), Some(moved))], ()))
    })
}
