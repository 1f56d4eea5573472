//! One metadata server, from its start to its end.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use forebay_cluster::{ServerId, Terms};
use forebay_engine::EngineError;
use forebay_group::GroupTerms;
use forebay_owner::{SystemTicks, Ticks};
use forebay_rpc::{
    Address, Gate, Security, Server, ServerConfig,
    wire::{BODY_MAX, Code, Refusal},
};
use parking_lot::{Condvar, Mutex, RwLock};
use tokio::runtime::Runtime;

use crate::{
    cluster::{Cluster, Tenure},
    counts::Counts,
    error::ServerError,
    groups::Groups,
    hosting::Hosted,
    members::Members,
    metrics,
    migration::MigrationWatch,
    place::DatabasePlace,
    places::Places,
    registry::{Registry, RegistryError},
    service::{Service, Serving},
    standby,
};

/// How often a server says that it lives.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How long a server goes on that has its place alone and cannot say so.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// How often it is looked whether another server lives at this one's address.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Requests that wait for an engine or a store at a time; others wait for them.
const WORKERS: usize = 128;
/// How long connections are given to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a server runs.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where the databases are.
    pub engine: DatabasePlace,
    /// Where it listens.
    pub listen: Vec<Address>,
    /// Where clients and other servers reach it; by default the first address that it listens at.
    pub advertise: Option<Address>,
    /// How connections are protected.
    pub security: Security,
    /// Whether clients on this machine need neither token nor certificate, and may administer.
    pub insecure: bool,
    /// Names of certificates that may administer; empty: all.
    pub admins: Vec<String>,
    /// How long things last: the same at all servers.
    pub terms: Terms,
    /// How long things last in groups of proxies: the same at all servers and proxies.
    pub group_terms: GroupTerms,
    /// The clock of these terms.
    pub ticks: Ticking,
}

/// A process's clock, as an option.
#[derive(Clone)]
pub struct Ticking(pub Arc<dyn Ticks>);

impl Default for Ticking {
    fn default() -> Ticking {
        Ticking(Arc::new(SystemTicks))
    }
}

impl std::fmt::Debug for Ticking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticking")
    }
}

/// A metadata server. Dropping it ends it as a crash would: volumes are not given up.
pub struct MetaServer {
    cluster: Arc<Cluster>,
    network: Option<Server>,
    runtime: Option<Runtime>,
    beats: Option<Beats>,
    failure: Failure,
}

struct Beats {
    ends: Arc<Ends>,
    /// One says that the server lives, and does nothing else: whoever is slow does not hold it up. One keeps up with the registry, and one renews members of groups.
    threads: [JoinHandle<()>; 3],
}

/// The end of threads, which wait meanwhile.
#[derive(Default)]
struct Ends(Mutex<bool>, Condvar);

impl Ends {
    fn end(&self) {
        *self.0.lock() = true;
        self.1.notify_all();
    }

    /// Whether it has not come within this time.
    fn goes_on_for(&self, time: Duration) -> bool {
        let mut ended = self.0.lock();
        if !*ended {
            self.1.wait_for(&mut ended, time);
        }
        !*ended
    }
}

/// Why a server cannot go on.
type Failure = Arc<Mutex<Option<ServerError>>>;

/// Says so where a thread panics that the server cannot do without.
struct Needed(Failure);

impl Drop for Needed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.lock() = Some(ServerError::Told("a thread of the server has panicked".to_owned()));
        }
    }
}

/// What was warned of last: the same is said once.
#[derive(Default)]
struct Warned(String);

impl Warned {
    fn of<E: std::fmt::Display>(&mut self, result: &Result<(), E>) {
        let error = result.as_ref().err().map(ToString::to_string).unwrap_or_default();
        if !error.is_empty() && error != self.0 {
            tracing::warn!("the registry is tried again: {error}");
        }
        self.0 = error;
    }
}

impl std::fmt::Debug for MetaServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MetaServer({})", self.cluster.address)
    }
}

impl MetaServer {
    /// Starts a server. Where another process has the place of the engine, waits until it is free. `None` once `stopped` says so, which is asked five times a
    /// second.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(
        options: &ServerOptions,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Option<MetaServer>, ServerError> {
        check(options)?;
        let host = options.engine.open()?;
        let Some(engine) = standby::wait_for(|| host.registry(), stopped)? else { return Ok(None) };
        let tenure = Tenure::of(engine.as_ref(), options.ticks.0.as_ref());
        let registry = Registry::open(engine, host.place())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("fb-net")
            .max_blocking_threads(WORKERS)
            .enable_all()
            .build()?;
        let gate = Arc::new(Gate::default());
        let mut config = ServerConfig::new(options.security.clone());
        // What a client has kept back comes as one message.
        config.terms.limits.body = BODY_MAX;
        let network = {
            let _within = runtime.enter();
            Server::bind(&options.listen, config, Arc::clone(&gate) as _)?
        };
        let address = advertised(options, network.addresses())?;
        let server = ServerId(forebay_env::random()?);
        let cluster = Arc::new(Cluster {
            places: Places::new(Arc::clone(&host)),
            host,
            registry,
            server,
            members: Mutex::new(Members::new(server, address.clone(), tenure.is_some())),
            tenure,
            hosted: RwLock::new(BTreeMap::new()),
            groups: Groups::new(options.group_terms),
            terms: options.terms,
            ticks: Arc::clone(&options.ticks.0),
            runtime: runtime.handle().clone(),
            counts: Counts::default(),
            insecure: options.insecure,
            admins: options.admins.clone(),
            address,
            began: Instant::now(),
            watch: Mutex::default(),
        });
        if !wait_for_former_self(&cluster, stopped)? {
            return Ok(None);
        }
        // What is not certain may be told by the next one: that another server has the place.
        while !cluster.beat(1)? && cluster.tenure.is_some() {
            if stopped() {
                return Ok(None);
            }
        }
        cluster.keep_up()?;
        gate.open(Serving(Arc::new(Service::new(Arc::clone(&cluster)))));
        let failure = Arc::default();
        let mut server =
            MetaServer { cluster, network: Some(network), runtime: Some(runtime), beats: None, failure };
        server.beats = Some(server.begin_beats()?);
        Ok(Some(server))
    }

    fn begin_beats(&self) -> std::io::Result<Beats> {
        let ends = Arc::new(Ends::default());
        let thread = |name: &str, work: fn(&Arc<Cluster>, &Ends, &Failure)| {
            let (cluster, ends, failure) =
                (Arc::clone(&self.cluster), Arc::clone(&ends), Arc::clone(&self.failure));
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn(move || {
                let _needed = Needed(Arc::clone(&failure));
                work(&cluster, &ends, &failure);
            })
        };
        let threads = [
            thread("fb-beats", beats)?,
            thread("fb-members", keeps_up)?,
            thread("fb-renewals", |cluster, _, _| cluster.groups.renewals.run(cluster))?,
        ];
        Ok(Beats { ends, threads })
    }

    /// Where it listens, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        self.network.as_ref().map_or(&[], Server::addresses)
    }

    /// Where clients and other servers reach it.
    #[must_use]
    pub fn advertised(&self) -> &str {
        &self.cluster.address
    }

    /// Why it cannot go on, if that is so.
    #[must_use]
    pub fn failure(&self) -> Option<ServerError> {
        self.failure.lock().take()
    }

    /// Answers what metrics there are, whenever it is called.
    #[must_use]
    pub fn metrics(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let cluster = Arc::clone(&self.cluster);
        Arc::new(move || metrics::text(&cluster))
    }

    /// Has `watch` told of each step of moves of volumes, for tests.
    pub fn watch_migrations(&self, watch: MigrationWatch) {
        *self.cluster.watch.lock() = Some(watch);
    }

    /// Gives all volumes up in order, so that other servers have them at once, and ends.
    pub fn stop(mut self) {
        let all: Vec<Arc<Hosted>> = self.cluster.hosted.read().values().cloned().collect();
        all.iter().for_each(|hosted| hosted.stop());
        all.iter().for_each(|hosted| hosted.join());
        // Before, they may renew what is given up.
        self.end_beats();
        if let Err(error) = self.cluster.registry.put_member(self.cluster.server, None) {
            tracing::warn!("other servers will miss this one for a while: {error}");
        }
        if let (Some(network), Some(runtime)) = (self.network.take(), &self.runtime) {
            let refusal = Refusal::new(Code::GOING_AWAY, "the server stops");
            runtime.block_on(network.shutdown(&refusal, FAREWELL));
        }
    }

    fn end_beats(&mut self) {
        if let Some(Beats { ends, threads }) = self.beats.take() {
            ends.end();
            self.cluster.groups.renewals.stop();
            for thread in threads {
                if thread.join().is_err() {
                    tracing::error!("a thread of members panicked");
                }
            }
        }
    }
}

impl Drop for MetaServer {
    fn drop(&mut self) {
        drop(self.network.take());
        self.end_beats();
        let all: Vec<Arc<Hosted>> = std::mem::take(&mut *self.cluster.hosted.write()).into_values().collect();
        all.iter().for_each(|hosted| hosted.abandon());
        all.iter().for_each(|hosted| hosted.join());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(FAREWELL);
        }
    }
}

/// Says each second that the server lives.
fn beats(cluster: &Arc<Cluster>, ends: &Ends, failure: &Failure) {
    let (mut beat, mut warned, mut due) = (1, Warned::default(), Instant::now() + BEAT_EVERY);
    while ends.goes_on_for(due.saturating_duration_since(Instant::now())) {
        if Instant::now() < due {
            continue;
        }
        due = Instant::now() + BEAT_EVERY;
        beat += 1;
        let beaten = cluster.beat(beat).map(drop);
        warned.of(&beaten);
        if let Err(error) = beaten
            && is_the_end(cluster, &error)
        {
            *failure.lock() = Some(error.into());
            return;
        }
    }
}

/// Whether a server that cannot beat for this reason has to be started again: another one has its place, or what it stands on has failed for good while its volumes are not answered for.
fn is_the_end(cluster: &Cluster, error: &RegistryError) -> bool {
    let silent = || {
        let last = cluster.tenure.as_ref().and_then(Tenure::last);
        last.is_some_and(|began| cluster.ticks.now().since(began) >= SILENT_MAX)
    };
    match error {
        RegistryError::ShutOut { .. } => true,
        RegistryError::Engine(EngineError::Failed { .. } | EngineError::Damaged { .. }) => silent(),
        _ => false,
    }
}

/// Follows the registry each second.
fn keeps_up(cluster: &Arc<Cluster>, ends: &Ends, failure: &Failure) {
    let mut warned = Warned::default();
    while ends.goes_on_for(BEAT_EVERY) {
        warned.of(&cluster.keep_up());
        if let Some(twin) = twin(cluster)
            && cluster.server > twin
        {
            *failure.lock() = Some(is_twin(cluster));
            return;
        }
    }
}

/// Without TLS there is this machine alone, and only where that was asked for.
fn check(options: &ServerOptions) -> Result<(), ServerError> {
    let told = |text: String| Err(ServerError::Told(text));
    if options.listen.is_empty() {
        return told("a server needs an address to listen at: give --listen ADDR".to_owned());
    }
    let tcp = options.listen.iter().find(|address| matches!(address, Address::Tcp { .. }));
    match (&options.security, tcp) {
        (Security::Insecure, Some(address)) if !options.insecure => told(format!(
            "will not listen at {address} without TLS: give --tls-ca, --tls-cert and --tls-key (`forebay pki` makes them), or --insecure for clients of this machine alone"
        )),
        _ => Ok(()),
    }
}

/// Where clients reach the server.
fn advertised(options: &ServerOptions, addresses: &[Address]) -> Result<String, ServerError> {
    if let Some(address) = &options.advertise {
        return Ok(address.to_string());
    }
    let tcp = addresses.iter().find(|address| matches!(address, Address::Tcp { .. }));
    let Some(address) = tcp.or(addresses.first()) else {
        return Err(ServerError::Told("the server listens nowhere".to_owned()));
    };
    match address {
        Address::Tcp { host, .. } if matches!(host.as_str(), "0.0.0.0" | "::") => {
            Err(ServerError::Told(format!(
                "clients cannot reach a server at {address}: say with --advertise under which name or number they reach this machine"
            )))
        }
        address => Ok(address.to_string()),
    }
}

/// Makes sure that no other server lives at this one's address. What is left of a former process there does not move any more. `false` once it is stopped.
fn wait_for_former_self(cluster: &Arc<Cluster>, stopped: &dyn Fn() -> bool) -> Result<bool, ServerError> {
    loop {
        cluster.look()?;
        if twin(cluster).is_some() {
            return Err(is_twin(cluster));
        }
        let members = cluster.members.lock();
        if !members.may_have_twin() {
            return Ok(true);
        }
        drop(members);
        if stopped() {
            return Ok(false);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn twin(cluster: &Cluster) -> Option<ServerId> {
    cluster.members.lock().twin()
}

fn is_twin(cluster: &Cluster) -> ServerError {
    ServerError::Twin { place: cluster.host.place(), address: cluster.address.clone() }
}
