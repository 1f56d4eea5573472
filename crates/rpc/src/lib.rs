//! Requests between parts of Forebay: framing, connections, TLS. Messages are numbers of kinds and opaque bodies; it knows nothing of files.
//!
//! Guarantees: the invariants of `docs/design/wire.md`, which has the layouts. [`connection`] is the protocol without I/O, which a simulation
//! drives as well; [`Server`] and [`Client`] drive it over sockets.

pub mod connection;
mod driver;
mod net;
mod time;
mod tls;
pub mod wire;

pub use driver::{
    ASKED_EVERY, BindError, Call, Client, ClientConfig, ConnectError, Gate, Handler, Handling, Peer, Server,
    ServerConfig,
};
pub use net::{Address, AddressError};
pub use time::Time;
pub use tls::{CertificateFiles, Credentials, Identity, Security, Subject, TlsError};
