//! A new volume: tried out, entered, made, and only then ready. What a crash leaves half made is seen as that, and can be deleted.

use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::EngineError;
use forebay_env::SystemClock;
use forebay_meta::Namespace;
use forebay_object::{Backend, ErrorKind, ObjectStore, Patience, StoreOptions, StoreUrl, probe};
use forebay_protocol::{Refusal, VolumeInfo, group::WriteClass};
use forebay_types::{
    VolumeId,
    limits::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN},
};

use super::{invalid, removing, unavailable, volume_info};
use crate::{
    cluster::Cluster,
    hosting::database,
    registry::{Change, VolumePlace, VolumeRow, VolumeState, now},
    service::Refused,
};

/// Bytes of a volume's name at most.
const NAME_MAX: usize = 64;
/// The object that says whose a store is.
pub(super) const MARK: &str = "shared-volume";
/// The object that a volume of one machine has in its bucket.
const OWNER_OF_ONE: &str = "owner";

pub(super) fn make(cluster: &Arc<Cluster>, wanted: &VolumeInfo) -> Result<VolumeInfo, Refused> {
    check_wishes(wanted)?;
    let name = wanted.name.as_str();
    if let Some(row) = cluster.registry.refresh()?.volumes.get(name) {
        return Err(taken(name, row.state));
    }
    let url: StoreUrl = wanted.store.parse().map_err(|error| invalid(format!("{error}")))?;
    let id = forebay_env::random().map(VolumeId).map_err(unavailable)?;
    let row = VolumeRow {
        id,
        state: VolumeState::Making,
        store: url.to_string(),
        endpoint: wanted.endpoint.clone().unwrap_or_default(),
        region: wanted.region.clone().unwrap_or_default(),
        block_size: wanted.block_size,
        compression: wanted.compression,
        limit: wanted.limit,
        created: now(),
        generation: 1,
        place: VolumePlace::default(),
        left: None,
        group: String::new(),
        further: Vec::new(),
        class: WriteClass::Object,
    };
    let store = try_out(&url, &row)?;
    cluster.registry.change(|view| match view.volumes.get(name) {
        Some(row) => Err(taken(name, row.state)),
        None => Ok((vec![Change::Volume(name.to_owned(), Some(row.clone()))], ())),
    })?;
    let ready = VolumeRow { state: VolumeState::Ready, ..row.clone() };
    if let Err(refused) = mark(name, &row, &store) {
        // The name is free again; the first error says more.
        let _ = removing::forget(cluster, name, &row);
        return Err(refused);
    }
    match fill(cluster, name, &ready) {
        Err(refused) if !is_ready(cluster, name, &row) => {
            // Nobody takes the store while the entry may be there.
            if removing::forget(cluster, name, &row).is_ok() {
                let _the_first_error_says_more = store.delete(MARK);
            }
            Err(refused)
        }
        // What failed besides is done by whoever follows the registry.
        _ => Ok(volume_info(name, &ready)),
    }
}

/// Whether the volume is ready after all: the answer was lost, not the change.
fn is_ready(cluster: &Cluster, name: &str, row: &VolumeRow) -> bool {
    let view = cluster.registry.refresh();
    let is_ours = |found: &VolumeRow| found.id == row.id && found.state == VolumeState::Ready;
    view.is_ok_and(|view| view.volumes.get(name).is_some_and(is_ours))
}

fn taken(name: &str, state: VolumeState) -> Refused {
    match state {
        VolumeState::Ready => invalid(format!("there is a volume '{name}' already")),
        state => invalid(format!(
            "a volume '{name}' is {}: if that does not end by itself, `forebay volume delete {name}` takes away what is left of it",
            state.as_str()
        )),
    }
}

/// Whether something of this kind may be called so.
pub(super) fn check_name(what: &str, name: &str) -> Result<(), Refused> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    let begins = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if begins && name.len() <= NAME_MAX && name.bytes().all(good) {
        return Ok(());
    }
    Err(invalid(format!(
        "'{name}' cannot be the name of a {what}: it has 1 to {NAME_MAX} of a-z, 0-9, '-', '_' and '.', and begins with a letter or digit"
    )))
}

fn check_wishes(wanted: &VolumeInfo) -> Result<(), Refused> {
    check_name("volume", &wanted.name)?;
    let size = wanted.block_size;
    if !size.is_power_of_two() || !(BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&size) {
        return Err(invalid(format!("a block of {size} bytes: it is a power of two from 256 KiB to 8 MiB")));
    }
    Ok(())
}

/// The store of a volume.
pub(crate) fn store_of(row: &VolumeRow) -> Result<ObjectStore, String> {
    let url: StoreUrl = row.store.parse().map_err(|error| format!("{error}"))?;
    open(&url, row).map_err(|error| error.to_string())
}

fn open(url: &StoreUrl, row: &VolumeRow) -> Result<ObjectStore, forebay_object::ObjectError> {
    let some = |text: &String| (!text.is_empty()).then(|| text.clone());
    let options = StoreOptions {
        endpoint: some(&row.endpoint),
        region: some(&row.region),
        create_directory: true,
        ..StoreOptions::default()
    };
    ObjectStore::open(url, &options)
}

/// Whether the store can do what volumes need, and is nobody's.
fn try_out(url: &StoreUrl, row: &VolumeRow) -> Result<ObjectStore, Refused> {
    let failed = |error: forebay_object::ObjectError| invalid(error.to_string());
    let store = open(url, row).map_err(failed)?.patient(Patience::Quick);
    probe(&store).map_err(failed)?;
    for key in [MARK, OWNER_OF_ONE] {
        match store.get(key) {
            Ok((whose, _)) => {
                let whose = String::from_utf8_lossy(&whose[..whose.len().min(200)]).into_owned();
                return Err(invalid(format!(
                    "the store {url} has another volume's data ({}): give each volume a prefix or directory of its own",
                    whose.trim()
                )));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(store)
}

/// Says in the store whose it is.
fn mark(name: &str, row: &VolumeRow, store: &ObjectStore) -> Result<(), Refused> {
    let mark = format!("volume {} ('{name}')\n", row.id);
    store.put_new(MARK, Bytes::from(mark)).map(drop).map_err(|error| invalid(error.to_string()))
}

/// Makes the database, and says that the volume is ready.
fn fill(cluster: &Arc<Cluster>, name: &str, ready: &VolumeRow) -> Result<(), Refused> {
    make_database(cluster, ready.id).map_err(unavailable)?;
    cluster.registry.change(|view| match view.volumes.get(name) {
        Some(row) if row.id == ready.id && row.state != VolumeState::Deleting => {
            Ok((vec![Change::Volume(name.to_owned(), Some(ready.clone()))], ()))
        }
        _ => Err(Refused::from(Refusal::Unavailable(format!("the volume '{name}' was deleted meanwhile")))),
    })?;
    cluster.follow().map_err(unavailable)
}

fn make_database(cluster: &Cluster, id: VolumeId) -> Result<(), String> {
    let database = database(id, &VolumePlace::default()).map_err(|error| error.to_string())?;
    let engine = match cluster.host.create(&database) {
        // Made by a try whose answer was lost: the name is random, so it is ours.
        Err(EngineError::Exists { .. }) => cluster.host.open(&database),
        other => other,
    };
    let engine = engine.map_err(|error| error.to_string())?;
    Namespace::format_counted(engine.as_ref(), &SystemClock, 0, 0, 0o755).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests;
