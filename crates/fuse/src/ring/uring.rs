//! One thread's io_uring instance, and the two commands of FUSE over it.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use io_uring::{IoUring, cqueue, opcode::UringCmd80, squeue, types::Fd};
use rustix::io::Errno as Os;

use crate::device::Device;
use crate::ring::Slot;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// What came of waiting.
pub(crate) enum Event {
    /// A request is in the slot.
    Request(Slot),
    /// The request was gone when it was answered, and the kernel keeps the entry no longer.
    Lost,
    /// The mount is gone.
    Ended,
    /// The thread was woken and shall wait no longer; the armed slot is given up.
    Woken,
}

/// An instance of one thread: made, used and dropped by it.
pub(crate) struct Ring {
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: i32,
    queue: u16,
    armed: Option<Slot>,
}

impl Ring {
    /// An instance for the queue of processor `queue` of this connection. `device` must outlive it.
    ///
    /// Errors: what `io_uring_setup(2)` gives; ENOSYS and EPERM mean that the system has none or does not want it used.
    pub(crate) fn new(device: &Device, queue: u16) -> io::Result<Ring> {
        Ok(Ring { uring: build()?, device: device.raw(), queue, armed: None })
    }

    /// Tells the kernel of a new slot, which may receive requests from then on. False: the mount is gone.
    ///
    /// Errors: EOPNOTSUPP if the kernel does not want it any more, EINVAL if the buffers are too small.
    pub(crate) fn register(&mut self, slot: Slot) -> Result<bool, Os> {
        self.push(REGISTER, slot);
        self.uring.submit().map_err(errno)?;
        // A refusal is there at once.
        let refused = self.uring.completion().next();
        match refused {
            Some(refused) => {
                self.armed = None;
                match Os::from_raw_os_error(-refused.result()) {
                    error if has_ended(error) => Ok(false),
                    error => Err(error),
                }
            }
            None => Ok(true),
        }
    }

    /// Hands in the answer in `slot`, and the slot with it; the next [`Ring::wait`] sends it.
    pub(crate) fn commit(&mut self, slot: Slot) {
        self.push(COMMIT_AND_FETCH, slot);
    }

    /// Sends what was handed in and waits for the armed slot's next request.
    ///
    /// A signal ends the wait if `give_up` is set.
    ///
    /// Errors: what `io_uring_enter(2)` gives, or the kernel's refusal of an answer.
    pub(crate) fn wait(&mut self, give_up: &AtomicBool) -> Result<Event, Os> {
        loop {
            let event = self.uring.completion().next();
            if let Some(event) = event {
                return self.completed(event.result());
            }
            match self.uring.submit_and_wait(1).map_err(errno) {
                Err(Os::INTR) if give_up.load(Ordering::Acquire) => return Ok(Event::Woken),
                Ok(_) | Err(Os::INTR | Os::AGAIN | Os::BUSY) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn completed(&mut self, result: i32) -> Result<Event, Os> {
        let slot = self.armed.take();
        match (result, slot) {
            (0.., Some(mut slot)) => {
                slot.received();
                Ok(Event::Request(slot))
            }
            (0.., None) => Ok(Event::Lost),
            (error, _) => match Os::from_raw_os_error(-error) {
                error if has_ended(error) => Ok(Event::Ended),
                Os::NOENT => Ok(Event::Lost),
                error => Err(error),
            },
        }
    }

    fn push(&mut self, command: u32, slot: Slot) {
        debug_assert!(self.armed.is_none(), "a ring has one slot armed");
        let mut arguments = [0; 80];
        arguments[8..16].copy_from_slice(&slot.commit_id.to_ne_bytes());
        arguments[16..18].copy_from_slice(&self.queue.to_ne_bytes());
        let vectors = slot.vectors();
        let mut entry = UringCmd80::new(Fd(self.device), command)
            .addr((command == REGISTER).then_some(vectors.as_ptr() as u64))
            .cmd(arguments)
            .build();
        if command == REGISTER {
            set_len(&mut entry, vectors.len() as u32);
        }
        self.armed = Some(slot);
        enqueue(&mut self.uring, &entry);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still write to a slot that is armed, until the instance is gone some time after this.
        std::mem::forget(self.armed.take());
    }
}

fn has_ended(error: Os) -> bool {
    matches!(error, Os::NOTCONN | Os::CONNABORTED | Os::NODEV | Os::CANCELED)
}

/// Whether this process can make rings as they are needed here.
///
/// Errors: as [`Ring::new`].
pub(crate) fn probe() -> io::Result<()> {
    build().map(drop)
}

fn build() -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    // Requests are copied into a slot only while its own thread waits, which saves interrupting it.
    // A child process has no part in a ring: with its memory mapped there, the kernel would keep the mount of a server that was killed.
    IoUring::builder().dontfork().setup_single_issuer().setup_defer_taskrun().build(2)
}

/// The command's count of buffers, for which the library has no field.
#[allow(unsafe_code)]
fn set_len(entry: &mut squeue::Entry128, len: u32) {
    const _: () = assert!(size_of::<squeue::Entry128>() == 128);
    // SAFETY: the type is `repr(C)` and is the kernel's `struct io_uring_sqe` of 128 bytes, in which bytes 24 to 27 are
    // `len`; all its bytes are plain integers.
    unsafe { std::ptr::from_mut(entry).cast::<u8>().add(24).cast::<u32>().write_unaligned(len) }
}

#[allow(unsafe_code)]
fn enqueue(uring: &mut IoUring<squeue::Entry128, cqueue::Entry>, entry: &squeue::Entry128) {
    // SAFETY: what the entry points to (the slot's vectors and memory) is kept in `Ring::armed` until the kernel has
    // completed the entry, or is leaked; the descriptor is the caller's to keep open.
    let full = unsafe { uring.submission().push(entry) };
    debug_assert!(full.is_ok(), "one entry at a time fits into two");
}

fn errno(error: io::Error) -> Os {
    error.raw_os_error().map_or(Os::IO, Os::from_raw_os_error)
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("fd", &self.uring.as_raw_fd())
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
