//! The side that is connected to.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinHandle};

use crate::{
    connection::{Connection, ProtocolError, Role, Terms},
    net::{Address, Listener, Socket, is_loopback},
    time::Time,
    tls::{Identity, Security, Session, TlsError},
    wire::{Code, Refusal},
};

use super::{
    channel::Channel,
    complaints::Complaints,
    link::Broken,
    peer::{Handler, Peer},
    task::{Task, Watch},
};

/// How long what peers do wrong again is counted until that is said.
const COUNTED_FOR: Duration = Duration::from_secs(60);

/// How a server listens.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// How connections are protected.
    pub security: Security,
    /// What is offered and asked for.
    pub terms: Terms,
    /// Connections at a time; more are refused with [`Code::BUSY`].
    pub connections_max: usize,
    /// Connections at a time that have not exchanged prefaces; a new one ends the oldest.
    pub handshakes_max: usize,
}

impl ServerConfig {
    /// The usual limits.
    #[must_use]
    pub fn new(security: Security) -> ServerConfig {
        ServerConfig { security, terms: Terms::default(), connections_max: 16_384, handshakes_max: 256 }
    }
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The system refuses.
    #[error("cannot listen at {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Without TLS only this machine is allowed.
    #[error(
        "will not listen at {address} without TLS: give certificates (`forebay pki` makes them), or a loopback address or Unix socket"
    )]
    Insecure {
        /// Where.
        address: String,
    },
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A server that listens. It goes on until [`Server::shutdown`]; dropping it ends it at once.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<Address>,
    listening: Vec<JoinHandle<()>>,
}

struct Shared {
    config: ServerConfig,
    handler: Arc<dyn Handler>,
    open: Mutex<Open>,
    /// A connection ended.
    ended: Notify,
    complaints: Mutex<Complaints>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "{:?}", self.config)
    }
}

impl Shared {
    /// Says what was left out of the log, and returns whether that is to be looked at again later.
    fn sum_up(&self) -> bool {
        // Held while it is written: nothing begins a minute in between.
        let mut complaints = self.complaints.lock();
        for line in complaints.minute_over() {
            tracing::warn!("{line}");
        }
        !complaints.is_empty()
    }
}

#[derive(Default)]
struct Open {
    last: u64,
    /// By when they came.
    channels: BTreeMap<u64, Arc<Channel>>,
    /// Those that have not exchanged prefaces.
    handshakes: BTreeSet<u64>,
}

impl Server {
    /// Listens at these addresses, and serves connections in the runtime that this is called in.
    ///
    /// # Errors
    /// An address that cannot be had, or that is not allowed without TLS.
    pub fn bind(
        addresses: &[Address],
        config: ServerConfig,
        handler: Arc<dyn Handler>,
    ) -> Result<Server, BindError> {
        let mut listeners = Vec::new();
        for address in addresses {
            listeners.extend(listen(address, &config.security)?);
        }
        let (open, ended, complaints) = (Mutex::default(), Notify::new(), Mutex::default());
        let shared = Arc::new(Shared { config, handler, open, ended, complaints });
        let addresses = listeners.iter().map(|(_, at)| at.clone()).collect();
        let listening = listeners
            .into_iter()
            .map(|(listener, at)| tokio::spawn(accept(shared.clone(), listener, at)))
            .collect();
        Ok(Server { shared, addresses, listening })
    }

    /// Where it listens, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Connections that are open: all, and those of them that have not exchanged prefaces.
    #[must_use]
    pub fn connections(&self) -> (usize, usize) {
        let open = self.shared.open.lock();
        (open.channels.len(), open.handshakes.len())
    }

    /// Stops listening, tells every peer why, answers what was taken, and ends when all connections have, or `patience` is over.
    pub async fn shutdown(mut self, refusal: &Refusal, patience: Duration) {
        self.stop_listening();
        let channels: Vec<_> = self.shared.open.lock().channels.values().cloned().collect();
        for channel in channels {
            match channel.lock().link.core.agreed().is_some() {
                true => {}
                false => channel.drop_now("the server stops"),
            }
            channel.go_away(refusal);
        }
        // What is left after that is ended by `drop`.
        let _ = tokio::time::timeout(patience, self.all_ended()).await;
    }

    async fn all_ended(&self) {
        loop {
            let ended = self.shared.ended.notified();
            if self.shared.open.lock().channels.is_empty() {
                return;
            }
            ended.await;
        }
    }

    fn stop_listening(&mut self) {
        for task in self.listening.drain(..) {
            task.abort();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_listening();
        let channels: Vec<_> = self.shared.open.lock().channels.values().cloned().collect();
        for channel in channels {
            channel.drop_now("the server stops");
        }
        self.shared.sum_up();
    }
}

fn listen(address: &Address, security: &Security) -> Result<Vec<(Listener, Address)>, BindError> {
    let failed = |source| BindError::Listen { address: address.to_string(), source };
    let (host, port) = match address {
        Address::Unix(path) => {
            let listener = Listener::unix(path.clone()).map_err(failed)?;
            return Ok(vec![(listener, address.clone())]);
        }
        Address::Tcp { host, port } => (host.as_str(), *port),
    };
    let numbers: Vec<SocketAddr> =
        std::net::ToSocketAddrs::to_socket_addrs(&(host, port)).map_err(failed)?.collect();
    if let Some(number) = numbers.iter().find(|number| !is_loopback(number.ip()))
        && matches!(security, Security::Insecure)
    {
        return Err(BindError::Insecure { address: number.to_string() });
    }
    let mut listeners = Vec::new();
    for number in numbers {
        let listener = Listener::tcp(number).map_err(failed)?;
        let port = match &listener {
            Listener::Tcp(listener) => listener.local_addr().map_err(failed)?.port(),
            Listener::Unix(..) => port,
        };
        listeners.push((listener, Address::Tcp { host: number.ip().to_string(), port }));
    }
    Ok(listeners)
}

async fn accept(shared: Arc<Shared>, listener: Listener, at: Address) {
    loop {
        match listener.accept().await {
            Ok(socket) => begin(&shared, socket),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                complain(
                    &shared,
                    &at.to_string(),
                    &at.to_string(),
                    &format!("cannot accept connections: {error}"),
                );
                // Out of descriptors, most likely: others may give some back.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Begins with a connection. What fails concerns this one only.
fn begin(shared: &Arc<Shared>, socket: Socket) {
    let (from, machine) = (socket.peer(), socket.machine());
    if let Err(error) = try_begin(shared, socket) {
        complain(shared, &from, &machine, &format!("a connection is refused: {error}"));
    }
}

fn try_begin(shared: &Arc<Shared>, socket: Socket) -> Result<(), Broken> {
    let session = match (&shared.config.security, &socket) {
        (Security::Tls(credentials), Socket::Tcp(_)) => Some(Box::new(Session::acceptor(credentials)?)),
        _ => None,
    };
    let mut terms = shared.config.terms.over(socket.carrier(session.is_some()));
    terms.refuse = strangers(&socket.identity());
    let mut open = shared.open.lock();
    if open.channels.len() - open.handshakes.len() >= shared.config.connections_max {
        terms.refuse = Some(Refusal::new(Code::BUSY, "there are too many connections"));
    }
    let core = Connection::new(Role::Acceptor, terms, Time(0));
    let channel = Channel::new(socket, core, session, Instant::now())?;
    open.last += 1;
    let id = open.last;
    let watch = Registration { shared: shared.clone(), id };
    let (from, machine, of) = (channel.socket.peer(), channel.socket.machine(), Arc::clone(shared));
    let task = Task::new(channel.clone(), shared.handler.clone(), watch)?;
    let oldest = match open.handshakes.len() >= shared.config.handshakes_max {
        true => open.handshakes.pop_first().and_then(|oldest| open.channels.get(&oldest).cloned()),
        false => None,
    };
    open.channels.insert(id, channel);
    open.handshakes.insert(id);
    drop(open);
    if let Some(oldest) = oldest {
        oldest.drop_now("there are too many handshakes under way");
    }
    tokio::spawn(async move {
        let why = task.run().await;
        log_end(&of, &from, &machine, &why);
    });
    Ok(())
}

/// Why a process of this machine is refused, if it is another user's.
fn strangers(identity: &Identity) -> Option<Refusal> {
    let Identity::Local { uid, .. } = identity else { return None };
    let own = rustix::process::geteuid().as_raw();
    let text = format!("user {uid} is neither root nor the server's user {own}");
    (*uid != 0 && *uid != own).then(|| Refusal::new(Code::DENIED, text))
}

fn log_end(shared: &Arc<Shared>, from: &str, machine: &str, why: &Broken) {
    match why {
        Broken::Protocol(ProtocolError::Ended(_))
        | Broken::Closed
        | Broken::Finished
        | Broken::Dropped(_) => {
            tracing::debug!("the connection from {from} ended: {why}");
        }
        _ => complain(shared, from, machine, &format!("the connection is cut off: {why}")),
    }
}

/// Writes a line about a peer, unless that machine has one of the kind already: then it is counted.
fn complain(shared: &Arc<Shared>, from: &str, machine: &str, reason: &str) {
    let heard = shared.complaints.lock().hear(machine, reason);
    match heard.is_new {
        true => tracing::warn!("{from}: {reason}"),
        false => tracing::debug!("{from}: {reason}"),
    }
    if heard.begins {
        tokio::spawn(say_what_was_left_out(Arc::downgrade(shared)));
    }
}

/// Goes on for as long as there is something.
async fn say_what_was_left_out(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(COUNTED_FOR).await;
        match shared.upgrade() {
            Some(shared) if shared.sum_up() => {}
            _ => return,
        }
    }
}

/// A connection's place in the list of all.
struct Registration {
    shared: Arc<Shared>,
    id: u64,
}

impl Watch for Registration {
    fn ready(&mut self, peer: &Arc<Peer>) {
        tracing::debug!(release = peer.agreed.release, "{peer} is connected");
        self.shared.open.lock().handshakes.remove(&self.id);
    }

    fn refused(&mut self, channel: &Channel, refusal: &Refusal) {
        if self.shared.handler.is_breach(refusal) {
            // A text may quote what the peer has sent.
            let reason = format!("a request is refused: {}", refusal.to_string().escape_debug());
            complain(&self.shared, &channel.socket.peer(), &channel.socket.machine(), &reason);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut open = self.shared.open.lock();
        open.handshakes.remove(&self.id);
        let channel = open.channels.remove(&self.id);
        drop(open);
        drop(channel);
        self.shared.ended.notify_waiters();
    }
}
