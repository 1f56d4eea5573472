use std::io::{self, IoSlice, Read, Write};

use rustls::{ClientConnection, Connection, Error, ServerConnection, pki_types::ServerName};

use crate::net::Socket;

use super::{Credentials, Identity, Subject};

/// Records are read from the socket in pieces of up to this many bytes.
const PIECE: usize = 32 << 10;

/// One connection's TLS.
#[derive(Debug)]
pub(crate) struct Session {
    tls: Connection,
    /// Bytes of the socket that TLS did not take yet.
    piece: Box<[u8]>,
    start: usize,
    end: usize,
    ended: bool,
}

/// What became of reading.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Got {
    /// So many bytes of the peer.
    Bytes(usize),
    /// None are there.
    Nothing,
    /// The end.
    End,
}

impl Session {
    pub(crate) fn acceptor(credentials: &Credentials) -> Result<Session, Error> {
        Ok(Session::new(ServerConnection::new(credentials.server())?.into()))
    }

    pub(crate) fn initiator(credentials: &Credentials, host: &str) -> Result<Session, Error> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Error::General(format!("'{host}' cannot be in a certificate")))?;
        Ok(Session::new(ClientConnection::new(credentials.client(), name)?.into()))
    }

    fn new(tls: Connection) -> Session {
        Session { tls, piece: vec![0; PIECE].into_boxed_slice(), start: 0, end: 0, ended: false }
    }

    /// Who the peer is, once the handshake is over.
    pub(crate) fn identity(&self) -> Identity {
        let certificate = self.tls.peer_certificates().and_then(|chain| chain.first());
        match certificate.and_then(|certificate| Subject::of(certificate)) {
            Some(subject) => Identity::Certificate(subject),
            None => Identity::Unproven,
        }
    }

    /// Reads into `to`. What TLS itself has to say is written by the next flush.
    pub(crate) fn read(&mut self, socket: &Socket, to: &mut [u8]) -> io::Result<Result<Got, Error>> {
        loop {
            match self.tls.reader().read(to) {
                Ok(0) => return Ok(Ok(Got::End)),
                Ok(len) => return Ok(Ok(Got::Bytes(len))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer closed without a farewell of TLS; what was sent is framed, so nothing can be cut off unnoticed.
                Err(_) => return Ok(Ok(Got::End)),
            }
            if self.start == self.end {
                if self.ended {
                    return Ok(Ok(Got::End));
                }
                match socket.read(&mut self.piece) {
                    Ok(0) => self.ended = true,
                    Ok(len) => (self.start, self.end) = (0, len),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Ok(Got::Nothing)),
                    Err(error) => return Err(error),
                }
            }
            self.start += self.tls.read_tls(&mut &self.piece[self.start..self.end])?;
            if let Err(error) = self.tls.process_new_packets() {
                return Ok(Err(error));
            }
        }
    }

    /// Takes plain bytes to be sent: how many.
    pub(crate) fn take(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        // Before the handshake is over TLS would keep them, without a bound that we know.
        if self.tls.is_handshaking() { Ok(0) } else { self.tls.writer().write_vectored(slices) }
    }

    /// Writes records. Says whether all are out.
    pub(crate) fn flush(&mut self, socket: &Socket) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Out(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(crate) fn close(&mut self, socket: &Socket) {
        self.tls.send_close_notify();
        // The peer may be gone; there is nothing left to lose.
        let _ = self.flush(socket);
    }
}

struct Out<'a>(&'a Socket);

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
