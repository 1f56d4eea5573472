//! One proxy, from its start to its end.

mod around;
mod directory;
mod here;
mod metrics;
mod options;
mod own;
mod serving;
mod vouches;

use std::{
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use forebay_rpc::{
    Address, BindError, Gate, Server, ServerConfig,
    wire::{Code, Refusal},
};
use tokio::runtime::Runtime;

pub(crate) use directory::io_error;
pub use directory::{Directory, DirectoryError};
pub use options::ProxyOptions;

use around::Around;

use crate::{
    log::{Log, OpenError},
    membership::{Meta, MetaError, Place},
    reads::{self, Before, Counts, Door, HITS, MISSES, Objects, ObjectsError, Reads},
    sweep::{self, Servers, Sweeper},
    volumes::{Pace, Volumes},
    writeback::{self, Vouching, WriteBack},
};

/// The least cache that is worth a proxy, in bytes.
pub const CACHE_MIN: u64 = 64 << 20;
/// How long the metadata servers may take to tell of the group, in milliseconds.
const GROUP_MS: u32 = 10_000;
/// How often it is looked who may still read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Threads in which writers, and what is read back, wait.
const WRITES: usize = 128;
/// How long connections are given to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Why a proxy does not run. Its text is a line for a person.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The directory.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The cache in it.
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    /// The log in it.
    #[error(transparent)]
    Log(#[from] OpenError),
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

/// A proxy. Dropping it ends it as a crash would: the group counts it out.
pub struct Proxy {
    place: Arc<Place>,
    log: Arc<Log>,
    reads: Arc<Reads>,
    writes: Arc<WriteBack>,
    volumes: Arc<Volumes>,
    sweeper: Sweeper,
    network: Option<Server>,
    runtime: Option<Runtime>,
    looking: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
    advertised: String,
    group: String,
    /// Held until the log is closed.
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
        options::check(options)?;
        let meta = Meta::start(&options.meta, &options.security)?;
        let wait = meta.wait(stopped);
        if stopped() {
            return Ok(None);
        }
        wait.map_err(ProxyError::Told)?;
        let group = options::find_group(&meta, &options.group)?.id;
        let directory = Directory::claim(&options.directory, group)?;
        let objects = Arc::new(Objects::open(&directory, options.cache, options.store.clone())?);
        let log = own::open_log(&directory, group, options.cache)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("fb-proxy")
            .max_blocking_threads(MISSES + HITS + WRITES)
            .enable_all()
            .build()?;
        let gate = Arc::new(Gate::default());
        let network = {
            let _within = runtime.enter();
            let config = ServerConfig::new(options.security.clone());
            let addresses = here::with_socket(&options.listen, directory.member);
            Server::bind(&addresses, config, Arc::clone(&gate) as _)?
        };
        let advertised = options::advertised(options, network.addresses())?;
        let counts = Arc::new(Counts::default());
        let own = own::Own::new(Arc::clone(&objects), Arc::clone(&counts), Arc::clone(&log));
        let (ids, member) = ((group, directory.member), options::member(options, advertised.clone()));
        let place = Arc::new(Place::start(ids, member, options.terms, meta.clone(), Arc::new(own))?);
        let servers = (meta.clone(), options.meta.as_slice(), &options.security);
        let asks = Servers::new((directory.member, &options.group), servers.clone(), Arc::clone(&place));
        let sweeper = Sweeper::start(ids, Box::new(asks), Arc::clone(&objects), sweep::Pace::default())?;
        let vouching: Arc<dyn Vouching> = Arc::new(vouches::Vouches::new(meta.clone(), group));
        let writes = WriteBack::new(ids, Arc::clone(&log), Arc::clone(&place) as _, Arc::clone(&vouching));
        let keeps = (Arc::clone(&place), Arc::clone(&objects));
        let around = Around::new(ids, servers, &options.store, keeps, Arc::clone(writes.written_here()));
        let volumes = Volumes::start(ids, Arc::clone(&log), Arc::new(around), Pace::default())?;
        let name = format!("the proxy at {advertised}");
        let before = Before::new(group, options.security.clone(), name);
        let door = Door::new(vouching, group);
        let reads = Arc::new(Reads::new(objects, Arc::clone(&place), door, counts, before));
        gate.open(serving::Serving {
            reads: reads::Serving(Arc::clone(&reads)),
            writes: writeback::Serving(Arc::clone(&writes)),
        });
        let looking = Some(look(Arc::clone(&reads))?);
        Ok(Some(Proxy {
            place,
            log,
            reads,
            writes,
            volumes: Arc::new(volumes),
            sweeper,
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

    /// Its log.
    #[must_use]
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Why it cannot go on, if that is so.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.place.failure()
    }

    /// Answers what metrics there are, whenever it is called.
    #[must_use]
    pub fn metrics(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let (reads, writes) = (Arc::clone(&self.reads), Arc::clone(&self.writes));
        let (log, volumes, group) = (Arc::clone(&self.log), Arc::clone(&self.volumes), self.group.clone());
        let swept = self.sweeper.counted();
        Arc::new(move || {
            let counted = (writes.as_ref(), volumes.counted(), swept.sums());
            metrics::text(&reads, &log, &counted, &group)
        })
    }

    /// Leaves the group, so that nobody asks here any more, and ends.
    pub fn stop(mut self) {
        self.sweeper.stop();
        self.volumes.stop();
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
        self.sweeper.stop();
        self.volumes.stop();
        self.place.stop(false);
        self.end_looking();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(FAREWELL);
        }
        // Whoever still has it only reads: nobody else writes to the directory before this one does no more.
        self.log.close();
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
