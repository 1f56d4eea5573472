use std::{
    io::{self, IoSlice, Read},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt},
};

use crate::{connection::Carrier, tls::Identity};

/// A connected socket that never blocks.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Socket::Tcp(stream))
    }

    pub(crate) fn unix(stream: UnixStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        Ok(Socket::Unix(stream))
    }

    pub(crate) fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let result = match self {
                Socket::Tcp(stream) => (&mut &*stream).read(to),
                Socket::Unix(stream) => (&mut &*stream).read(to),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    /// Never raises SIGPIPE, whatever the process does with it.
    pub(crate) fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            match sendmsg(self, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    /// Waits until there is something to read, or the time is over.
    pub(crate) fn wait_readable(&self, timeout: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 });
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn shutdown(&self, how: Shutdown) {
        // An error says that the peer is gone already.
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(how),
            Socket::Unix(stream) => stream.shutdown(how),
        };
    }

    /// What bytes go over, with TLS or without.
    pub(crate) fn carrier(&self, tls: bool) -> Carrier {
        match self {
            Socket::Unix(_) => Carrier::Unix,
            Socket::Tcp(_) if tls => Carrier::Tls,
            Socket::Tcp(_) => Carrier::Tcp,
        }
    }

    /// What the kernel says about a peer without a certificate.
    pub(crate) fn identity(&self) -> Identity {
        match self {
            Socket::Tcp(_) => Identity::Unproven,
            Socket::Unix(stream) => match sockopt::socket_peercred(stream) {
                Ok(cred) => Identity::Local { uid: cred.uid.as_raw(), pid: cred.pid.as_raw_nonzero().get() },
                Err(_) => Identity::Unproven,
            },
        }
    }

    /// The peer's address, for people.
    pub(crate) fn peer(&self) -> String {
        match self {
            Socket::Tcp(stream) => {
                stream.peer_addr().map_or_else(|_| "a closed connection".to_owned(), |at| at.to_string())
            }
            Socket::Unix(_) => match self.identity() {
                Identity::Local { uid, pid } => format!("process {pid} of user {uid}"),
                _ => "a local process".to_owned(),
            },
        }
    }

    /// Whose the peer is, for people: the same for all connections of a machine, or of a local user.
    pub(crate) fn machine(&self) -> String {
        match self {
            Socket::Tcp(stream) => match stream.peer_addr() {
                Ok(at) => at.ip().to_string(),
                Err(_) => "closed connections".to_owned(),
            },
            Socket::Unix(_) => match self.identity() {
                Identity::Local { uid, .. } => format!("user {uid}"),
                _ => "local processes".to_owned(),
            },
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener, PathBuf),
}

impl Listener {
    pub(crate) fn tcp(address: SocketAddr) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(tokio::net::TcpListener::from_std(listener)?))
    }

    /// Listens at `path`. A socket that a dead server left there is replaced.
    pub(crate) fn unix(path: PathBuf) -> io::Result<Listener> {
        let listener = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && abandoned(&path) => {
                std::fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            other => other?,
        };
        listener.set_nonblocking(true)?;
        Ok(Listener::Unix(tokio::net::UnixListener::from_std(listener)?, path))
    }

    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Tcp(listener) => Socket::tcp(listener.accept().await?.0.into_std()?),
            Listener::Unix(listener, _) => Socket::unix(listener.accept().await?.0.into_std()?),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether there is a socket at which nobody listens.
fn abandoned(path: &PathBuf) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    socket && UnixStream::connect(path).err().is_some_and(refused)
}
