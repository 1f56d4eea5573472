//! Certificates: read from files, read again when they change; who a peer is; what went wrong, in a line.

mod explain;
mod files;
mod identity;
mod session;

pub(crate) use explain::explain;
pub use files::{CertificateFiles, Credentials, TlsError};
pub use identity::{Identity, Subject};
pub(crate) use session::{Got, Session};

/// How connections are protected.
#[derive(Clone, Debug)]
pub enum Security {
    /// TCP under TLS, with certificates on both sides; Unix sockets for root and the server's own user.
    Tls(std::sync::Arc<Credentials>),
    /// Nothing: only loopback addresses and Unix sockets are allowed.
    Insecure,
}
