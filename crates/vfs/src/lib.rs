//! POSIX semantics over the files of a volume ([`Files`]): what a system call means, without the kernel, and whoever keeps the files.
//!
//! Guarantees: an inode stays usable while a handle on it is open, whatever becomes of its names; what an operation returned is seen by
//! every later one; locks are granted in the order in which they began to wait. Relies on [`Files`] for atomic changes, and on
//! the caller (the kernel with `default_permissions`) for permission checks by mode, owner and ACL: here is only what a file system has to
//! do itself, which is inheritance, set-id bits, ACLs that follow the mode, and the root user of a mount where it is nobody ([`Vfs::permits`]).
//!
//! Order that must hold: an inode's count of handles goes up before its existence is asked for, and a removal asks for that count while it takes
//! place; so either the removal sees the handle, or the handle sees the removal. The files are never called with a lock of this
//! crate held, except [`removals`], which only readers of removed inodes wait for, and to tell of first and last handles.

mod access;
mod acl;
mod attrs;
mod creation;
mod cursor;
mod dirs;
mod error;
pub mod files;
mod handover;
pub mod locks;
mod names;
mod open_files;
mod open_inodes;
mod options;
mod ranges;
mod removals;
pub mod serving;
mod setid;
mod shards;
mod squash;
mod vfs;
mod xattrs;

pub use acl::{Acl, AclEntry, AclTag};
pub use attrs::SetAttr;
pub use cursor::Listed;
pub use error::{Failure, VfsError};
pub use files::{
    By, Files, KernelCaches, ReadPiece, ReadPieces, Space, Through, Told, Whence, Write, WriteAt,
};
pub use forebay_meta::{EngineError, LogError, MetaError, RenameMode, SetTime, SetXattr};
pub use handover::Handover;
pub use locks::{LockKind, LockRange, LockRequest, LockSpace, LockTable, LockWaiter, Locks};
pub use open_files::{Asked, Open, Opened, Written};
pub use options::{AtimeMode, Caller, LockKeeper, VfsOptions};
pub use ranges::Fallocate;
pub use setid::Kill;
pub use squash::{NOBODY, Wish};
pub use vfs::Vfs;
