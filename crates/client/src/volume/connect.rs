//! Making a shared volume: from addresses, or from parts.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use forebay_env::SystemClock;
use forebay_object::{ObjectStore, StoreOptions, StoreUrl};
use forebay_protocol::{VolumeInfo, group::here_directories};
use forebay_rpc::{Address, Security};
use forebay_types::VolumeId;
use parking_lot::Mutex;

use super::{
    SharedVolume,
    ahead::Beneath,
    core::Core,
    desk::{Desk, Reception},
    jobs::Jobs,
    locks::SharedLocks,
    opens::Opens,
    root::Root,
    seals::Seals,
};
use crate::{
    ahead::{Ahead, AheadOptions},
    asks::Asks,
    data::{Contents, ContentsOptions, StoreCache},
    error::ClientError,
    group::{Reader, VolumeGroup},
    link::{Events, Link, LinkConfig, Patience},
    names::Names,
    ticks::{SystemTicks, Ticks},
    transport::{RpcTransport, Transport},
};

/// Where a volume is, and who asks for it.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Servers; any of them.
    pub addresses: Vec<Address>,
    /// How connections are protected.
    pub security: Security,
    /// How the store is reached, where the volume does not say it.
    pub store: StoreOptions,
    /// Where objects are cached, and how many bytes of them; `None` for memory.
    pub cache: Option<(PathBuf, u64)>,
    /// How long the first connection may take.
    pub patience: Duration,
    /// The rest.
    pub settings: Settings,
}

/// How a shared volume is used.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The volume's name.
    pub volume: String,
    /// The secret of a token.
    pub token: Option<String>,
    /// What the client calls itself, for people.
    pub client: String,
    /// How long an operation waits for the owner; `None`: until it has an answer.
    pub timeout: Option<Duration>,
    /// Nothing is changed.
    pub read_only: bool,
    /// How many names and inodes are kept, about.
    pub names: usize,
    /// Whether to work ahead of the owner in directories that nobody else works in.
    pub ahead: bool,
}

impl Settings {
    /// The usual ones.
    #[must_use]
    pub fn of(volume: &str, client: &str) -> Settings {
        Settings {
            volume: volume.to_owned(),
            token: None,
            client: client.to_owned(),
            timeout: None,
            read_only: false,
            names: 500_000,
            ahead: true,
        }
    }
}

impl SharedVolume {
    /// Connects to a volume's owner, and opens its store.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(options: ConnectOptions) -> Result<SharedVolume, ClientError> {
        let ConnectOptions { addresses, security, store, cache, patience, settings } = options;
        let transport = RpcTransport::start(addresses, security.clone())
            .map_err(|error| ClientError::Unexpected(format!("no connection: {error}")))?;
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let reader = Reader {
            volume: settings.volume.clone(),
            id: VolumeId([0; 16]),
            token: settings.token.clone(),
            client: settings.client.clone(),
            here: here_directories(rustix::process::geteuid().as_raw()),
            security,
        };
        let asked = Arc::clone(&transport);
        let open = |info: &VolumeInfo| {
            let (store, contents) = open_store(info, store, cache)?;
            let group = VolumeGroup::start(asked, Reader { id: info.id, ..reader })
                .map_err(|error| ClientError::Unexpected(format!("no thread to follow a group: {error}")))?;
            Ok((store, contents.through(&group)))
        };
        SharedVolume::over(transport, settings, Arc::new(SystemTicks), patience, open)
    }

    /// The same over any transport, with any clock. `open` opens the store and says how contents are kept.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn over(
        transport: Arc<dyn Transport>,
        settings: Settings,
        ticks: Arc<dyn Ticks>,
        patience: Duration,
        open: impl FnOnce(&VolumeInfo) -> Result<(ObjectStore, ContentsOptions), ClientError>,
    ) -> Result<SharedVolume, ClientError> {
        let failed = |error: std::io::Error| ClientError::Unexpected(format!("cannot begin: {error}"));
        let names = Names::new(Arc::clone(&ticks), settings.names.max(64));
        let reception = Reception::new(Arc::clone(&names));
        let config = LinkConfig {
            volume: settings.volume,
            token: settings.token,
            client: settings.client,
            timeout: settings.timeout,
        };
        let events: Arc<dyn Events> = Arc::clone(&reception) as _;
        let link = Link::start(transport, config, Arc::downgrade(&events), ticks).map_err(failed)?;
        let (info, rights) = link.volume(&Patience::new(Some(patience), None))?;
        let (store, options) = open(&info)?;
        let link = Arc::new(link);
        let ahead = AheadOptions {
            delegates: settings.ahead && !settings.read_only && !rights.read_only && !rights.root_squash,
            ..AheadOptions::new(info.block_size)
        };
        let under = Arc::new(Beneath { link: Arc::clone(&link), names: Arc::clone(&names) });
        let leases = Arc::clone(&reception);
        let ahead = Ahead::start(under, leases as _, Arc::new(SystemClock), ahead).map_err(failed)?;
        let desk = Arc::new(Desk { names, link, ahead, reception });
        let bytes = Contents::start(Arc::clone(&desk) as Arc<dyn Asks>, store, &info, options)?;
        let learning = Arc::downgrade(&bytes);
        desk.names.teach(Box::new(move |answer| {
            if let Some(bytes) = learning.upgrade() {
                bytes.learn(answer);
            }
        }));
        let core = Arc::new_cyclic(|core| Core {
            desk,
            bytes,
            jobs: Jobs::new(core.clone()),
            opens: Opens::default(),
            seals: Seals::default(),
            locks: SharedLocks::new(core.clone()),
            kernel: OnceLock::new(),
            read_only: settings.read_only || rights.read_only,
            info,
            rights,
            root: Root(rights.root),
            appends: [const { Mutex::new(()) }; super::core::APPENDS],
        });
        core.desk.reception.open(Arc::downgrade(&core));
        Ok(SharedVolume { core })
    }
}

/// The store as the volume names it.
fn open_store(
    info: &VolumeInfo,
    mut options: StoreOptions,
    cache: Option<(PathBuf, u64)>,
) -> Result<(ObjectStore, ContentsOptions), ClientError> {
    let failed = |error: &dyn std::fmt::Display| ClientError::Store(format!("{}: {error}", info.store));
    let url: StoreUrl = info.store.parse().map_err(|error| failed(&error))?;
    if let Some(endpoint) = &info.endpoint {
        options.endpoint = Some(endpoint.clone());
    }
    if let Some(region) = &info.region {
        options.region = Some(region.clone());
    }
    let store = ObjectStore::open(&url, &options).map_err(|error| failed(&error))?;
    let mut contents = ContentsOptions::of(&store);
    if let Some((directory, bytes)) = cache {
        contents.cache = StoreCache::Directory(directory, bytes);
    }
    Ok((store, contents))
}
