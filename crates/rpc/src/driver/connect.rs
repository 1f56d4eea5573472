//! Making connections.

use std::{io, net::SocketAddr, sync::Arc, time::Instant};

use crate::{
    connection::{Connection, Role, Terms},
    net::{Address, Socket, is_loopback},
    time::Time,
    tls::{Security, Session, explain},
};

use super::channel::Channel;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name means nothing.
    #[error("cannot find '{host}': {source}")]
    Resolve {
        /// The name.
        host: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Nobody answers there.
    #[error("cannot reach {address}: {source}")]
    Reach {
        /// Where.
        address: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Without TLS only this machine is allowed.
    #[error(
        "{address} is not on this machine: without TLS only loopback addresses and Unix sockets are allowed"
    )]
    Insecure {
        /// Where.
        address: String,
    },
    /// TLS cannot begin.
    #[error("cannot begin TLS with {address}: {}", explain(source))]
    Tls {
        /// With whom.
        address: String,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
}

/// Connects to `address`; prefaces are still to be exchanged.
pub(super) async fn connect(
    address: &Address,
    security: &Security,
    terms: &Terms,
) -> Result<Arc<Channel>, ConnectError> {
    let reach = |source| ConnectError::Reach { address: address.to_string(), source };
    let (socket, session) = match address {
        Address::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await.map_err(reach)?;
            (stream.into_std().and_then(Socket::unix).map_err(reach)?, None)
        }
        Address::Tcp { host, port } => {
            let session = match security {
                Security::Insecure => None,
                Security::Tls(credentials) => {
                    let tls = |source| ConnectError::Tls { address: address.to_string(), source };
                    Some(Box::new(Session::initiator(credentials, host).map_err(tls)?))
                }
            };
            let stream = reach_host(address, host, *port, session.is_none()).await?;
            (stream.into_std().and_then(Socket::tcp).map_err(reach)?, session)
        }
    };
    let terms = terms.over(socket.carrier(session.is_some()));
    let core = Connection::new(Role::Initiator, terms, Time(0));
    Channel::new(socket, core, session, Instant::now()).map_err(reach)
}

/// Tries the numbers of a host, one after the other.
async fn reach_host(
    address: &Address,
    host: &str,
    port: u16,
    insecure: bool,
) -> Result<tokio::net::TcpStream, ConnectError> {
    let resolve = |source| ConnectError::Resolve { host: host.to_owned(), source };
    let numbers: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await.map_err(resolve)?.collect();
    let mut last = resolve(io::Error::from(io::ErrorKind::NotFound));
    for number in numbers {
        if insecure && !is_loopback(number.ip()) {
            return Err(ConnectError::Insecure { address: number.to_string() });
        }
        match tokio::net::TcpStream::connect(number).await {
            Ok(stream) => return Ok(stream),
            Err(source) => last = ConnectError::Reach { address: address.to_string(), source },
        }
    }
    Err(last)
}
