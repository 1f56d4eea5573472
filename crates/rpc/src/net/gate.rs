use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::Socket;

/// What stands between a socket and the runtime's reactor: an epoll instance with the socket as its only member.
///
/// A thread that waits for its answer reads the socket by itself, and closes the gate meanwhile: so that bytes wake that thread alone, and no thread of the
/// runtime. Opening and closing it is one system call; a gate that is opened over bytes that are there tells the reactor so.
#[derive(Debug)]
pub(crate) struct Gate(OwnedFd);

impl Gate {
    pub(crate) fn new(socket: &Socket) -> io::Result<Gate> {
        let gate = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&gate, socket, EventData::new_u64(0), EventFlags::empty())?;
        Ok(Gate(gate))
    }

    /// What the reactor is to hear of.
    pub(crate) fn set(&self, socket: &Socket, read: bool, write: bool) -> io::Result<()> {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, read);
        flags.set(EventFlags::OUT, write);
        Ok(epoll::modify(self.0.as_fd(), socket, EventData::new_u64(0), flags)?)
    }
}

impl AsFd for Gate {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
