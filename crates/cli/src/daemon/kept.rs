//! Who keeps the files of the mount: a volume on this machine, or servers.

use std::sync::Arc;

use forebay_client::WarmInto;
use forebay_object::{Backend, StoreUrl};
use forebay_volume::{Volume, Warming};
use serde_json::{Value, json};

use crate::{
    control::Progress,
    daemon::settle::settle,
    error::CliError,
    shared::{Keeper, SharedUrl},
};

/// Who keeps the files.
#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Here(Arc<Volume>),
    ByServers { url: SharedUrl, keeper: Arc<dyn Keeper>, read_only: bool },
}

impl Kept {
    /// The volume, for what only one on this machine can do.
    pub(crate) fn here(&self) -> Result<&Arc<Volume>, CliError> {
        match self {
            Kept::Here(volume) => Ok(volume),
            Kept::ByServers { url, .. } => Err(CliError::Told(format!(
                "'{url}' is a shared volume, of which this is not done by a mount but by its servers"
            ))),
        }
    }

    pub(crate) fn volume(&self) -> Option<&Arc<Volume>> {
        self.here().ok()
    }

    /// What people call it.
    pub(crate) fn name(&self) -> String {
        match self {
            Kept::Here(volume) => volume.paths().root.display().to_string(),
            Kept::ByServers { url, .. } => url.to_string(),
        }
    }

    pub(crate) fn read_only(&self) -> bool {
        match self {
            Kept::Here(volume) => volume.read_only(),
            Kept::ByServers { read_only, .. } => *read_only,
        }
    }

    /// Bytes that the store, or the servers, do not have.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        match self {
            Kept::Here(volume) => volume.dirty_bytes(),
            Kept::ByServers { keeper, .. } => keeper.unsettled_bytes(),
        }
    }

    /// What becomes of so many that are not brought there.
    pub(crate) fn fate(&self, bytes: u64) -> String {
        match self {
            Kept::Here(_) => {
                format!(
                    "{bytes} bytes are not in the store; they are durable here and stored after the next mount"
                )
            }
            Kept::ByServers { .. } => format!("{bytes} bytes did not reach the servers: they are lost"),
        }
    }

    /// Whether the end may come without a drain: what is not drained stays here.
    pub(crate) fn outlives_this(&self) -> bool {
        matches!(self, Kept::Here(_))
    }

    /// Empties the caches of what was read, and says in words which.
    pub(crate) fn empty_caches(&self) -> Vec<&'static str> {
        match self {
            Kept::Here(volume) => volume.empty_caches(),
            Kept::ByServers { keeper, .. } => keeper.empty_caches(),
        }
    }

    /// Brings them there.
    pub(crate) fn drain(&self) -> Result<(), CliError> {
        match self {
            Kept::Here(volume) => Ok(volume.drain(&mut |_| {})?),
            Kept::ByServers { keeper, .. } => keeper.settle().map_err(CliError::Told),
        }
    }

    /// The same, and leaves nothing to tidy up. Tells of progress meanwhile.
    pub(crate) fn settle(&self, tell: &mut dyn FnMut(Progress)) -> Result<(), CliError> {
        match self {
            Kept::Here(volume) => settle(volume, tell),
            Kept::ByServers { .. } => self.drain(),
        }
    }

    /// Where files can be brought near.
    ///
    /// # Errors
    /// The store is a directory of this machine: its files are near.
    pub(crate) fn can_warm(&self) -> Result<WarmInto, CliError> {
        match self {
            Kept::Here(volume) => match volume.store().url() {
                StoreUrl::File(_) if !volume.has_cache() => Err(CliError::Told(format!(
                    "the store of '{}' is a directory of this machine: its files are here already",
                    self.name()
                ))),
                _ => Ok(WarmInto { here: volume.has_cache(), group: false }),
            },
            Kept::ByServers { keeper, .. } => Ok(keeper.can_warm()),
        }
    }

    /// Who brings them.
    pub(crate) fn warming(&self, into: WarmInto) -> Option<Box<dyn Warming + '_>> {
        match self {
            Kept::Here(volume) => Some(Box::new(&**volume)),
            Kept::ByServers { keeper, .. } => keeper.warming(into),
        }
    }

    /// Chunks that have left the cache on this machine's disk since the mount.
    pub(crate) fn evictions(&self) -> u64 {
        match self {
            Kept::Here(volume) => volume.cache_evictions(),
            Kept::ByServers { keeper, .. } => keeper.evictions(),
        }
    }

    pub(crate) fn close(&self) -> Result<(), CliError> {
        match self {
            Kept::Here(volume) => Ok(volume.close()?),
            Kept::ByServers { keeper, .. } => keeper.close().map_err(CliError::Told),
        }
    }

    /// Where bytes of objects came from, where that is counted.
    pub(crate) fn read_from(&self) -> Option<[(&'static str, u64); 3]> {
        match self {
            Kept::Here(_) => None,
            Kept::ByServers { keeper, .. } => keeper.read_from(),
        }
    }

    /// Where bytes of files were written to, where that is counted.
    pub(crate) fn written_to(&self) -> Option<[(&'static str, u64); 3]> {
        match self {
            Kept::Here(_) => None,
            Kept::ByServers { keeper, .. } => keeper.written_to(),
        }
    }

    /// What a status says of it, as an object.
    pub(crate) fn status(&self) -> Value {
        match self {
            Kept::Here(volume) => serde_json::to_value(volume.status()).unwrap_or(Value::Null),
            Kept::ByServers { url, keeper, .. } => {
                let servers: Vec<String> = url.servers.iter().map(ToString::to_string).collect();
                let mut status = json!({
                    "path": url.to_string(),
                    "volume": url.volume,
                    "servers": servers,
                    "dirty_bytes": keeper.unsettled_bytes(),
                });
                if let (Some(status), Value::Object(further)) = (status.as_object_mut(), keeper.status()) {
                    status.extend(further);
                }
                status
            }
        }
    }
}
