//! One proxy, from its start to its end.

mod directory;
mod metrics;

use std::{
    path::PathBuf,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use forebay_group::{GroupTerms, Incarnation, Member, MemberState, placement::WEIGHT_MAX};
use forebay_object::StoreOptions;
use forebay_protocol::{
    Kind,
    group::{GroupInfo, GroupRequest, MemberNumbers},
};
use forebay_rpc::{
    Address, BindError, Gate, Security, Server, ServerConfig,
    wire::{Code, Refusal},
};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

pub(crate) use directory::io_error;
pub use directory::{Directory, DirectoryError};

use crate::{
    membership::{Meta, MetaError, Place, Standing},
    reads::{Before, Counts, HITS, MISSES, Objects, ObjectsError, Reads, Serving, door},
};

/// The least cache that is worth a proxy, in bytes.
pub const CACHE_MIN: u64 = 64 << 20;
/// How long the metadata servers may take to tell of the group, in milliseconds.
const GROUP_MS: u32 = 10_000;
/// How often it is looked who may still read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long connections are given to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a proxy runs.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// Metadata servers.
    pub meta: Vec<Address>,
    /// The group's name.
    pub group: String,
    /// Where its marker, its cache and its log are.
    pub directory: PathBuf,
    /// Bytes of the cache.
    pub cache: u64,
    /// Where it listens.
    pub listen: Vec<Address>,
    /// Where clients and other members reach it; by default the first address that it listens at.
    pub advertise: Option<Address>,
    /// How connections are protected, to it and from it.
    pub security: Security,
    /// Whether clients on this machine need no certificate.
    pub insecure: bool,
    /// Its share, 1 to [`WEIGHT_MAX`]; by default the GiB of its cache.
    pub weight: Option<u32>,
    /// Its machine's name: clients there take it first.
    pub node: String,
    /// Its failure domain; by default its node.
    pub zone: Option<String>,
    /// How stores are reached, where volumes do not say it.
    pub store: StoreOptions,
    /// How long things last: the same as at the metadata servers.
    pub terms: GroupTerms,
}

/// Why a proxy does not run. Its text is a line for a person.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The cache in it.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// It cannot listen.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The metadata servers.
    #[error("{0}")]
    Meta(#[from] MetaError),
    /// The system refuses.
    #[error("the system refuses: {0}")]
    Io(#[from] std::io::Error),
    /// Anything else, a sentence already.
    #[error("{0}")]
    Told(String),
}

/// What a member without a log says of itself.
struct Cached {
    objects: Arc<Objects>,
    counts: Arc<Counts>,
    /// Reads by the last time, and the load that was told then.
    last: Mutex<(u64, std::time::Instant)>,
}

impl Standing for Cached {
    fn log(&self) -> (u64, u64) {
        (0, 0)
    }

    fn numbers(&self) -> MemberNumbers {
        let stats = self.objects.stats();
        let (reads, now) = (self.counts.reads(), std::time::Instant::now());
        let mut last = self.last.lock();
        let passed = now.duration_since(last.1).as_secs_f64().max(0.001);
        let load = ((reads - last.0) as f64 / passed) as u64;
        *last = (reads, now);
        MemberNumbers { dirty_bytes: 0, used: stats.used_bytes, capacity: stats.capacity_bytes, load }
    }
}

/// A proxy. Dropping it ends it as a crash would: the group counts it out.
pub struct Proxy {
    place: Arc<Place>,
    reads: Arc<Reads>,
    network: Option<Server>,
    runtime: Option<Runtime>,
    looking: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
    advertised: String,
    group: String,
    _directory: Directory,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({} in {})", self.advertised, self.group)
    }
}

impl Proxy {
    /// Starts a proxy, and begins to join: it serves reads at once, whether or not it is let in yet. `None` once `stopped` says so, which is asked while the
    /// metadata servers do not answer.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn start(options: &ProxyOptions, stopped: &dyn Fn() -> bool) -> Result<Option<Proxy>, ProxyError> {
        check(options)?;
        let meta = Meta::start(&options.meta, &options.security)?;
        let wait = meta.wait(stopped);
        if stopped() {
            return Ok(None);
        }
        wait.map_err(ProxyError::Told)?;
        let group = find_group(&meta, &options.group)?;
        let directory = Directory::claim(&options.directory, group.id)?;
        let objects = Arc::new(Objects::open(&directory, options.cache, options.store.clone())?);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("fb-proxy")
            .max_blocking_threads(MISSES + HITS)
            .enable_all()
            .build()?;
        let gate = Arc::new(Gate::default());
        let network = {
            let _within = runtime.enter();
            let config = ServerConfig::new(options.security.clone());
            Server::bind(&options.listen, config, Arc::clone(&gate) as _)?
        };
        let advertised = advertised(options, network.addresses())?;
        let member = member(options, advertised.clone());
        let name = format!("the proxy at {advertised}");
        let counts = Arc::new(Counts::default());
        let last = Mutex::new((0, std::time::Instant::now()));
        let standing = Cached { objects: Arc::clone(&objects), counts: Arc::clone(&counts), last };
        let identity = (group.id, directory.member);
        let place = Place::start(identity, member, options.terms, meta.clone(), Arc::new(standing))?;
        let place = Arc::new(place);
        let before = Before::new(group.id, options.security.clone(), name);
        let door = door(meta, group.id);
        let reads = Arc::new(Reads::new(objects, Arc::clone(&place), door, counts, before));
        gate.open(Serving(Arc::clone(&reads)));
        let looking = Some(look(Arc::clone(&reads))?);
        Ok(Some(Proxy {
            place,
            reads,
            network: Some(network),
            runtime: Some(runtime),
            looking,
            advertised,
            group: options.group.clone(),
            _directory: directory,
        }))
    }

    /// Where it listens, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        self.network.as_ref().map_or(&[], Server::addresses)
    }

    /// Where clients and other members reach it.
    #[must_use]
    pub fn advertised(&self) -> &str {
        &self.advertised
    }

    /// Its place in the group.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Why it cannot go on, if that is so.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.place.failure()
    }

    /// Answers what metrics there are, whenever it is called.
    #[must_use]
    pub fn metrics(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let (reads, group) = (Arc::clone(&self.reads), self.group.clone());
        Arc::new(move || metrics::text(&reads, &group))
    }

    /// Leaves the group, so that nobody asks here any more, and ends.
    pub fn stop(mut self) {
        self.place.stop(true);
        self.end_looking();
        if let (Some(network), Some(runtime)) = (self.network.take(), &self.runtime) {
            let refusal = Refusal::new(Code::GOING_AWAY, "the proxy stops");
            runtime.block_on(network.shutdown(&refusal, FAREWELL));
        }
    }

    fn end_looking(&mut self) {
        if let Some((until, thread)) = self.looking.take() {
            drop(until);
            if thread.join().is_err() {
                tracing::error!("the thread that looks who may read panicked");
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.network.take());
        self.place.stop(false);
        self.end_looking();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(FAREWELL);
        }
    }
}

fn look(reads: Arc<Reads>) -> std::io::Result<(mpsc::Sender<()>, JoinHandle<()>)> {
    let (until, ended) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("fb-door".to_owned()).spawn(move || {
        while ended.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
            reads.door.look(&reads.objects);
        }
    })?;
    Ok((until, thread))
}

/// Without TLS there is this machine alone, and only where that was asked for.
fn check(options: &ProxyOptions) -> Result<(), ProxyError> {
    let told = |text: String| Err(ProxyError::Told(text));
    if options.listen.is_empty() {
        return told("a proxy needs an address to listen at: give --listen ADDR".to_owned());
    }
    if options.cache < CACHE_MIN {
        return told(format!(
            "a cache of {} bytes is too small for a proxy: give --cache-size 64MiB or more",
            options.cache
        ));
    }
    if let Some(weight) = options.weight.filter(|weight| !(1..=WEIGHT_MAX).contains(weight)) {
        return told(format!("{weight} is no weight: a member's share is from 1 to {WEIGHT_MAX}"));
    }
    let tcp = options.listen.iter().find(|address| matches!(address, Address::Tcp { .. }));
    match (&options.security, tcp) {
        (Security::Insecure, Some(address)) if !options.insecure => told(format!(
            "will not listen at {address} without TLS: give --tls-ca, --tls-cert and --tls-key (`forebay pki` makes them), or --insecure for clients of this machine alone"
        )),
        _ => Ok(()),
    }
}

fn find_group(meta: &Meta, name: &str) -> Result<GroupInfo, ProxyError> {
    let request = GroupRequest::Show(name.to_owned());
    let groups: Vec<GroupInfo> = meta.ask(Kind::Groups, &request, GROUP_MS)?;
    let none = || ProxyError::Told("the server's answer names no group".to_owned());
    groups.into_iter().next().ok_or_else(none)
}

fn member(options: &ProxyOptions, address: String) -> Member {
    let share = u32::try_from(options.cache >> 30).unwrap_or(WEIGHT_MAX);
    Member {
        // Drawn by whoever joins.
        incarnation: Incarnation::default(),
        address,
        node: options.node.clone(),
        zone: options.zone.clone().unwrap_or_else(|| options.node.clone()),
        weight: options.weight.unwrap_or(share).clamp(1, WEIGHT_MAX),
        state: MemberState::Active,
    }
}

/// Where clients reach the proxy.
fn advertised(options: &ProxyOptions, addresses: &[Address]) -> Result<String, ProxyError> {
    if let Some(address) = &options.advertise {
        return Ok(address.to_string());
    }
    let tcp = addresses.iter().find(|address| matches!(address, Address::Tcp { .. }));
    let Some(address) = tcp.or(addresses.first()) else {
        return Err(ProxyError::Told("the proxy listens nowhere".to_owned()));
    };
    match address {
        Address::Tcp { host, .. } if matches!(host.as_str(), "0.0.0.0" | "::") => {
            Err(ProxyError::Told(format!(
                "clients cannot reach a proxy at {address}: say with --advertise under which name or number they reach this machine"
            )))
        }
        address => Ok(address.to_string()),
    }
}
