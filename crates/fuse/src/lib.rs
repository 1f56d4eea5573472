//! The FUSE protocol, spoken to the kernel directly, over io_uring or `/dev/fuse`.
//!
//! A file system implements [`Filesystem`]; [`mount`] attaches it to a directory and [`Session::run`] serves it until
//! it is unmounted. The layers, each of which knows only those above it in this list:
//!
//! - [`types`], [`Errno`], [`flags`]: values that cross the interface.
//! - [`protocol`]: bytes to [`protocol::Operation`] and values to bytes; no input or output, no panics on any input.
//! - [`Filesystem`] and the reply buffers: what an operation is asked and answers.
//! - dispatch: one decoded request to one method call to one encoded reply, for whatever transport.
//! - ring: requests and answers over io_uring.
//! - [`Session`]: begins a mount and serves it by the threads of one transport or both.
//!
//! Guarantees: every request that expects an answer gets exactly one, also when the method panics (EIO) or drops its
//! [`LockReply`] (EIO). Requests are served concurrently and in no particular order; the kernel orders what depends on
//! each other. A method that blocks holds one worker and never the rest, up to [`SessionOptions::max_workers`].
//! `docs/design/kernel-interface.md` gives the reasons.

mod arrivals;
mod backing;
mod device;
mod dispatch;
mod errno;
mod fs;
mod inherited;
mod init;
mod lock_reply;
mod mount;
mod notify;
mod reply;
mod request;
mod ring;
mod session;
mod signalled;

pub mod flags;
pub mod null;
pub mod protocol;
pub mod types;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod warm;

pub use backing::{Backing, BackingFiles, is_held_elsewhere, may_pass_through};
pub use errno::Errno;
pub use fs::Filesystem;
pub use inherited::close_inherited;
pub use init::{Agreed, InitConfig, KernelOffer};
pub use lock_reply::LockReply;
pub use mount::{MountError, MountOptions, Mounted, UnmountError, is_mounted, mount_table, resolve, unmount};
pub use notify::Notifier;
pub use protocol::Opcode;
pub use reply::{DirBuffer, DirPlusBuffer, ReadBuffer};
pub use request::Request;
pub use session::{
    Ended, Knock, Observer, OwnedFdOf, PauseError, Paused, Pauser, Session, SessionError, SessionOptions,
    Transport, URING_PARAMETER, mount, uring_advice,
};
