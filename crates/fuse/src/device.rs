//! `/dev/fuse`: opening, cloning, reading requests, writing replies.
//!
//! Order that must hold: a reply goes to the descriptor that its request was read from; clones have queues of their own,
//! and closing one aborts the requests read from it. So whoever owes an answer keeps its [`Device`] alive.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Os;

use crate::errno::Errno;
use crate::lock_reply::ReplyPort;
use crate::protocol::{OUT_HEADER, put_u32, put_u64};
use crate::reply::{Piece, Reply};

/// Where the kernel's end is.
pub(crate) const PATH: &str = "/dev/fuse";

/// One open descriptor of a mount's connection.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
}

/// What came of reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// Nothing this time: read again.
    Again,
    /// Nothing there, and the descriptor is one that does not wait.
    Nothing,
    /// The mount is gone.
    Ended,
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Most pieces that one system call takes.
const MAX_SLICES: usize = 1024;

impl Device {
    pub(crate) fn open() -> Result<Device, Os> {
        let fd = rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Device { fd })
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Device {
        Device { fd }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn raw(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Another descriptor of the same connection, with a queue of its own.
    pub(crate) fn clone_connection(&self) -> Result<Device, Os> {
        let clone = Device::open()?;
        attach(clone.fd.as_fd(), self.fd.as_fd())?;
        Ok(clone)
    }

    /// Waits for a request and reads it whole.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Received, Os> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(0) => Ok(Received::Ended),
            Ok(len) => Ok(Received::Request(len)),
            // ENOENT: the request was interrupted before it was read.
            Err(Os::INTR | Os::NOENT) => Ok(Received::Again),
            Err(Os::AGAIN) => Ok(Received::Nothing),
            // ENODEV: unmounted; ECONNABORTED: aborted through /sys/fs/fuse.
            Err(Os::NODEV | Os::CONNABORTED) => Ok(Received::Ended),
            Err(error) => Err(error),
        }
    }

    /// Has reads return at once where there is nothing to read, in all processes that have this descriptor.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> Result<(), Os> {
        let flags = rustix::fs::fcntl_getfl(&self.fd)?;
        let wanted = if nonblocking { flags | OFlags::NONBLOCK } else { flags - OFlags::NONBLOCK };
        rustix::fs::fcntl_setfl(&self.fd, wanted)
    }

    pub(crate) fn wait_readable(&self) -> Result<(), Os> {
        use rustix::event::{PollFd, PollFlags, poll};
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None) {
            Ok(_) | Err(Os::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sends a finished reply with one system call.
    pub(crate) fn send(&self, reply: &Reply) -> Result<(), Os> {
        let pieces = reply.data.pieces();
        if pieces.is_empty() {
            return self.write(&reply.head);
        }
        let needed: usize = 1 + pieces.iter().map(slices_of).sum::<usize>();
        if needed > MAX_SLICES {
            let mut whole = reply.head.clone();
            whole.extend_from_slice(&reply.data.to_vec());
            return self.write(&whole);
        }
        // A read's answer is most often one or two pieces: no allocation for them.
        let mut few = [IoSlice::new(&[]); 20];
        if needed <= few.len() {
            let used = fill(&mut few, &reply.head, pieces);
            return sent(rustix::io::writev(&self.fd, few.get(..used).unwrap_or(&few)));
        }
        let mut many = vec![IoSlice::new(&[]); needed];
        fill(&mut many, &reply.head, pieces);
        sent(rustix::io::writev(&self.fd, &many))
    }

    /// Sends a notification made of these parts.
    pub(crate) fn write_parts(&self, parts: &[IoSlice<'_>]) -> Result<(), Os> {
        rustix::io::writev(&self.fd, parts).map(drop)
    }

    /// Has the kernel put a request into the queue of the processor that this runs on: NOTIFY_REPLY about `file`, of
    /// which nothing is wanted. `unique` must be even and none of the kernel's own. Does not wait.
    ///
    /// Errors: ENOENT if the kernel does not know the inode, EINVAL if it is no regular file.
    pub(crate) fn ask_back(&self, unique: u64, file: u64) -> Result<(), Os> {
        const RETRIEVE: u32 = 5;
        let mut bytes = Vec::with_capacity(OUT_HEADER + 32);
        put_u32(&mut bytes, (OUT_HEADER + 32) as u32);
        put_u32(&mut bytes, RETRIEVE);
        put_u64(&mut bytes, 0);
        put_u64(&mut bytes, unique);
        put_u64(&mut bytes, file);
        put_u64(&mut bytes, 0);
        put_u64(&mut bytes, 0);
        rustix::io::write(&self.fd, &bytes).map(drop)
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Os> {
        sent(rustix::io::write(&self.fd, bytes))
    }
}

fn slices_of(piece: &Piece) -> usize {
    match piece {
        Piece::Bytes(_) => 1,
        Piece::Zeros(count) => count.div_ceil(ZEROS.len()),
    }
}

fn fill<'a>(slices: &mut [IoSlice<'a>], head: &'a [u8], pieces: &'a [Piece]) -> usize {
    let mut used = 0;
    let mut put = |bytes: &'a [u8]| {
        if let Some(slot) = slices.get_mut(used) {
            *slot = IoSlice::new(bytes);
            used += 1;
        }
    };
    put(head);
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => put(bytes),
            Piece::Zeros(count) => {
                let mut left = *count;
                while left > 0 {
                    let run = ZEROS.get(..left).unwrap_or(&ZEROS);
                    put(run);
                    left -= run.len();
                }
            }
        }
    }
    used
}

/// A reply may come too late: the request was aborted or the mount is gone. Nobody waits for it then.
fn sent(result: Result<usize, Os>) -> Result<(), Os> {
    match result {
        Ok(_) | Err(Os::NOENT | Os::NODEV | Os::CONNABORTED | Os::PERM | Os::NOTCONN) => Ok(()),
        Err(error) => Err(error),
    }
}

impl ReplyPort for Device {
    fn answer(&self, unique: u64, error: Option<Errno>) {
        let mut header = [0; OUT_HEADER];
        let code = error.map_or(0, |error| -error.raw());
        header[0..4].copy_from_slice(&(OUT_HEADER as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&code.to_ne_bytes());
        header[8..16].copy_from_slice(&unique.to_ne_bytes());
        if let Err(error) = self.write(&header) {
            tracing::error!(unique, "cannot answer a lock request: {error}");
        }
    }

    fn take_back(&self, _: u64) -> Option<i32> {
        Some(self.raw())
    }
}

/// `FUSE_DEV_IOC_CLONE`: makes `clone` a descriptor of the connection of `original`.
#[allow(unsafe_code)]
fn attach(clone: BorrowedFd<'_>, original: BorrowedFd<'_>) -> Result<(), Os> {
    const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
    let mut number = original.as_raw_fd() as u32;
    // SAFETY: the opcode is the kernel's FUSE_DEV_IOC_CLONE, whose argument is a pointer to a u32 that the kernel only
    // reads; `number` lives across the call, and the descriptor it names is borrowed for as long.
    unsafe {
        let request = rustix::ioctl::Updater::<CLONE, u32>::new(&mut number);
        rustix::ioctl::ioctl(clone, request)
    }
}
