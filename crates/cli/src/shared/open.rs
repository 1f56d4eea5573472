//! From a URL to a volume that can be mounted.

use std::{sync::Arc, time::Duration};

use forebay_client::{ConnectOptions, GroupStatus, Settings, SharedVolume, WarmInto};
use forebay_object::StoreOptions;
use forebay_protocol::Rights;
use forebay_types::Ino;
use forebay_vfs::{Files, KernelCaches};
use forebay_volume::Warming;
use serde_json::{Value, json};

use super::{Keeper, Opened, SharedOptions, SharedUrl};
use crate::{commands::servers::connect, error::CliError};

/// How long the servers may take to answer the first time. A mount that was asked for is one that somebody waits for, so this one ends.
const FIRST_PATIENCE: Duration = Duration::from_secs(60);

/// Begins a session with whoever serves the volume.
///
/// # Errors
/// Nobody answers, or they refuse.
pub(crate) fn open_shared(url: &SharedUrl, options: &SharedOptions) -> Result<Opened, CliError> {
    let settings = Settings {
        token: options.access.token.clone(),
        timeout: options.patience,
        read_only: options.read_only,
        ahead: options.ahead,
        ..Settings::of(&url.volume, &host_name())
    };
    let options = ConnectOptions {
        addresses: url.servers.clone(),
        security: options.access.security.clone(),
        store: StoreOptions::default(),
        cache: options.cache_dir.clone().map(|directory| (directory, options.cache_size)),
        patience: FIRST_PATIENCE,
        settings,
    };
    let told = |error| CliError::Told(format!("'{url}' cannot be mounted: {error}"));
    // A connection knows why it does not come, a session does not.
    let connection = connect(&options.addresses, &options.security, FIRST_PATIENCE);
    drop(connection.map_err(|error| CliError::Told(format!("'{url}' cannot be mounted: {error}")))?);
    let volume = Arc::new(SharedVolume::connect(options).map_err(told)?);
    let files: Arc<dyn Files> = Arc::clone(&volume) as _;
    let rights = *volume.rights();
    Ok(Opened { files, keeper: Arc::new(Session(volume)), rights })
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What a token leaves out, in words; nothing of one that leaves out nothing.
fn rights(rights: &Rights) -> Vec<&'static str> {
    let words = [
        (rights.root != Ino::ROOT, "a part of the volume"),
        (rights.read_only, "read-only"),
        (rights.no_exec, "noexec"),
        (rights.root_squash, "root squashed"),
    ];
    words.into_iter().filter_map(|(has, word)| has.then_some(word)).collect()
}

/// A group of the volume: its name, whether the mount goes by it, and how far away it is where that is measured and it answers.
fn group_json(group: &GroupStatus) -> Value {
    let round_trip = group.round_trip.map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    json!({ "name": group.name, "chosen": group.chosen, "round_trip_us": round_trip })
}

/// A session, as the process behind a mount keeps it.
#[derive(Debug)]
struct Session(Arc<SharedVolume>);

impl Keeper for Session {
    fn serve(&self, kernel: Option<Arc<dyn KernelCaches>>) {
        if let Some(kernel) = kernel {
            self.0.set_kernel(kernel);
        }
    }

    fn status(&self) -> Value {
        let mut status = json!({
            "volume": self.0.info().name,
            "store": self.0.info().store,
            "session": self.0.session(),
            "rights": rights(self.0.rights()),
            "root_inode": self.0.rights().root.0,
        });
        let (group, from) = self.0.read_from();
        status["group"] = json!(group);
        status["groups"] = self.0.groups().iter().map(group_json).collect();
        status["read_bytes"] = json!({ "node": from.node, "group": from.group, "store": from.store });
        let to = self.0.written_to();
        status["written_bytes"] = json!({ "node": to.node, "group": to.group, "store": to.store });
        if let Some(trouble) = self.0.trouble() {
            status["error"] = trouble.into();
        }
        status
    }

    fn read_from(&self) -> Option<[(&'static str, u64); 3]> {
        let (_, from) = self.0.read_from();
        Some([("node", from.node), ("group", from.group), ("store", from.store)])
    }

    fn written_to(&self) -> Option<[(&'static str, u64); 3]> {
        let to = self.0.written_to();
        Some([("node", to.node), ("group", to.group), ("store", to.store)])
    }

    fn can_warm(&self) -> WarmInto {
        self.0.can_warm()
    }

    fn warming(&self, into: WarmInto) -> Option<Box<dyn Warming + '_>> {
        Some(Box::new(self.0.nearby(into)))
    }

    fn evictions(&self) -> u64 {
        self.0.evictions()
    }

    fn empty_caches(&self) -> Vec<&'static str> {
        self.0.empty_caches()
    }

    fn unsettled_bytes(&self) -> u64 {
        self.0.unsettled_bytes()
    }

    fn settle(&self) -> Result<(), String> {
        self.0.settle().map_err(|error| error.to_string())
    }

    fn close(&self) -> Result<(), String> {
        self.0.close().map_err(|error| error.to_string())
    }
}
