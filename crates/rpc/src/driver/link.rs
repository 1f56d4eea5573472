//! A connection on its socket: bytes between [`Connection`], TLS and the kernel. Nothing here waits.

use std::{
    io::{self, IoSlice},
    net::Shutdown,
    time::Instant,
};

use crate::{
    connection::{Connection, ProtocolError},
    net::Socket,
    time::Time,
    tls::{Got, Identity, Session, explain},
};

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("{0}")]
    Protocol(#[from] ProtocolError),
    #[error("{}", explain(.0))]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Socket(#[from] io::Error),
    #[error("the peer closed the connection")]
    Closed,
    #[error("all was said")]
    Finished,
    #[error("{0}")]
    Dropped(&'static str),
}

/// What is left to read.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// Nothing until more comes.
    Nothing,
    /// Perhaps more.
    Perhaps,
}

/// Bytes that are read in one turn, so that others have theirs.
const TURN_MAX: usize = 1 << 20;
const SLICES: usize = 16;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) core: Connection,
    tls: Option<Box<Session>>,
    start: Instant,
    /// The socket took less than it was given.
    pub(super) blocked: bool,
}

impl Link {
    /// A connection without I/O that began at `start`.
    pub(super) fn new(core: Connection, tls: Option<Box<Session>>, start: Instant) -> Link {
        Link { core, tls, start, blocked: false }
    }

    pub(super) fn now(&self) -> Time {
        Time(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// When `time` is.
    pub(super) fn instant(&self, time: Time) -> Instant {
        self.start + std::time::Duration::from_millis(time.0.min(1 << 40))
    }

    pub(super) fn identity(&self, socket: &Socket) -> Identity {
        match &self.tls {
            Some(session) => session.identity(),
            None => socket.identity(),
        }
    }

    /// Reads what is there.
    pub(super) fn fill(&mut self, socket: &Socket) -> Result<Left, Broken> {
        let now = self.now();
        let mut turn = 0;
        while self.core.wants_read() {
            let space = self.core.space();
            let room = space.len();
            let len = match &mut self.tls {
                Some(session) => match session.read(socket, space)?? {
                    Got::Bytes(len) => len,
                    Got::Nothing => return Ok(Left::Nothing),
                    Got::End => return Err(Broken::Closed),
                },
                None => match socket.read(space) {
                    Ok(0) => return Err(Broken::Closed),
                    Ok(len) => len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Left::Nothing),
                    Err(error) => return Err(error.into()),
                },
            };
            self.core.received(len, now)?;
            turn += len;
            // A short read says that nothing more is there, unless it is the end: whoever hears of bytes but once looks again.
            if turn >= TURN_MAX || (self.tls.is_none() && len < room) {
                break;
            }
        }
        Ok(Left::Perhaps)
    }

    /// Writes what there is, as far as the socket takes it.
    pub(super) fn flush(&mut self, socket: &Socket) -> Result<(), Broken> {
        self.blocked = !self.write_out(socket)?;
        Ok(())
    }

    fn write_out(&mut self, socket: &Socket) -> Result<bool, Broken> {
        loop {
            // TLS holds at most one buffer full; the rest waits where it is counted.
            if let Some(session) = &mut self.tls
                && !session.flush(socket)?
            {
                return Ok(false);
            }
            if self.core.unwritten() == 0 {
                return Ok(true);
            }
            let mut slices = [IoSlice::new(&[]); SLICES];
            let count = self.core.slices(&mut slices);
            let slices = &slices[..count];
            let len = match &mut self.tls {
                Some(session) => match session.take(slices)? {
                    0 => return Ok(true),
                    len => len,
                },
                None => match socket.write(slices) {
                    Ok(len) => len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error.into()),
                },
            };
            self.core.written(len);
        }
    }

    /// Says the last words as far as the socket takes them, and closes.
    pub(super) fn close(&mut self, socket: &Socket) {
        // The reason why it ends is told already; a peer that is gone hears no last words.
        let _ = self.flush(socket);
        if let Some(session) = &mut self.tls {
            session.close(socket);
        }
        socket.shutdown(Shutdown::Write);
    }
}
