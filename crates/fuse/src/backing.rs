//! Passthrough: files that the kernel reads by itself, without a request.
//!
//! [`BackingFiles::register`] hands an open file to the kernel and gives a [`Backing`], whose number goes into the answer
//! to an open ([`crate::types::Opened::passthrough`]). From then on the kernel reads and maps that file in place of the
//! one that was opened. A registration is a reference: opens that were answered with it go on after it is dropped.
//!
//! Registering needs PASSTHROUGH agreed on at INIT and CAP_SYS_ADMIN; whether requests travel over io_uring does not
//! matter. A registration holds the connection only weakly, so that none delays the session's end; with the connection
//! the kernel forgets them all.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Weak};

use rustix::io::Errno as Os;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Updater, ioctl, opcode};
use rustix::thread::CapabilitySet;

use crate::device::Device;
use crate::errno::Errno;
use crate::session::{Line, WeakLine};

const GROUP: u8 = 229;
const OPEN: Opcode = opcode::write::<BackingMap>(GROUP, 1);
const F_SETSIG: i32 = 10;
const CLOSE: Opcode = opcode::write::<u32>(GROUP, 2);

/// Whether this process may register files: it has CAP_SYS_ADMIN in effect.
pub fn may_pass_through() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Whether somebody still has `file` open, or mapped, besides this one descriptor, which must be open for writing: an
/// open that the kernel answers by itself, or a mapping that outlived it, of which nobody tells. For a file that no new open can come
/// for meanwhile, since one would have to wait for the answer. False also means that nothing will change the file unseen.
///
/// # Errors
/// What the file's file system says if it knows no leases; then it is to be taken for held.
pub fn is_held_elsewhere(file: impl AsFd) -> Result<bool, Errno> {
    let fd = file.as_fd().as_raw_fd();
    // Should somebody open it all the same, the kernel tells by this signal, which does nothing unless it is waited for.
    let told = fcntl(fd, F_SETSIG, libc::SIGURG);
    match told.and_then(|()| fcntl(fd, libc::F_SETLEASE, libc::F_WRLCK)) {
        Ok(()) => fcntl(fd, libc::F_SETLEASE, libc::F_UNLCK).map(|()| false).map_err(Errno::from),
        Err(Os::AGAIN) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Registers files with a mount's connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BackingFiles {
    line: WeakLine,
}

impl BackingFiles {
    pub(crate) fn new(line: &Line) -> BackingFiles {
        BackingFiles { line: line.downgrade() }
    }

    /// A file that another process has registered with this connection, by its number ([`Backing::leave`]). `None`: the mount has ended.
    #[must_use]
    pub fn adopt(&self, id: NonZeroU32) -> Option<Backing> {
        Some(Backing { id, device: Arc::downgrade(&self.line.device()?) })
    }

    /// Hands a file to the kernel, which keeps it open until the registration and all opens answered with it are gone.
    /// Does not wait for a request, so threads that serve may call it.
    ///
    /// # Errors
    /// `EPERM` without the capability or the agreement, `ELOOP` if the file's file system is stacked itself,
    /// `EINVAL` or `ENOTSUP` if the file is not one that can be read this way, `ENOTCONN` when the mount has ended.
    pub fn register(&self, file: impl AsFd) -> Result<Backing, Errno> {
        let device = self.line.device().ok_or(Errno::ENOTCONN)?;
        let map = BackingMap { fd: file.as_fd().as_raw_fd(), flags: 0, padding: 0 };
        let id = open(device.as_fd(), map).map_err(|error| match error {
            Os::NODEV | Os::CONNABORTED => Errno::ENOTCONN,
            other => other.into(),
        })?;
        Ok(Backing { id, device: Arc::downgrade(&device) })
    }
}

/// A file that is registered; dropped, no further open can be answered with it.
#[derive(Debug)]
pub struct Backing {
    id: NonZeroU32,
    device: Weak<Device>,
}

impl Backing {
    /// The kernel's number for it.
    pub fn id(&self) -> NonZeroU32 {
        self.id
    }

    /// Leaves it registered, for another process that has the connection ([`BackingFiles::adopt`]).
    #[must_use]
    pub fn leave(mut self) -> NonZeroU32 {
        self.device = Weak::new();
        self.id
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let Some(device) = self.device.upgrade() else { return };
        if let Err(error) = close(device.as_fd(), self.id.get())
            && error != Os::NODEV
        {
            tracing::debug!(id = self.id, "a passthrough file was not given back: {error}");
        }
    }
}

/// The kernel's `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

// SAFETY: the opcode is FUSE_DEV_IOC_BACKING_OPEN, whose argument is a pointer to a `struct fuse_backing_map` that the
// kernel only reads; `as_ptr` gives one that lives as long as `self`. The result is the call's own return value.
unsafe impl Ioctl for BackingMap {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPEN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> Result<u32, Os> {
        u32::try_from(out).map_err(|_| Os::INVAL)
    }
}

fn open(device: BorrowedFd<'_>, map: BackingMap) -> Result<NonZeroU32, Os> {
    // SAFETY: `BackingMap` says what the kernel reads; the file it names is borrowed by the caller for the call.
    let id = unsafe { ioctl(device, map) }?;
    NonZeroU32::new(id).ok_or(Os::INVAL)
}

fn close(device: BorrowedFd<'_>, mut id: u32) -> Result<(), Os> {
    // SAFETY: FUSE_DEV_IOC_BACKING_CLOSE takes a pointer to a u32 that the kernel only reads; `id` lives across the call.
    unsafe { ioctl(device, Updater::<CLOSE, u32>::new(&mut id)) }
}

/// One of the commands of fcntl that take a number.
fn fcntl(fd: i32, command: i32, argument: i32) -> Result<(), Os> {
    // SAFETY: these commands read and write no memory of ours; a descriptor that is not open is an error.
    let result = unsafe { libc::fcntl(fd, command, argument) };
    if result == -1 {
        Err(Os::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Os::IO))
    } else {
        Ok(())
    }
}
