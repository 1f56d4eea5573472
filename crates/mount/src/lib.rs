//! A volume behind the kernel: FUSE requests become calls of the vfs, and what these answer becomes replies.
//!
//! Nothing is decided here but which error number stands for which error, and for how long the kernel may keep what it was told: for good
//! on an unshared volume, where nothing changes behind its back, and else until a lease ends or is recalled. Relies on the kernel for permission checks (`default_permissions`).

mod adapter;
mod callers;
mod convert;
mod errno;
mod lock_waiter;
mod moments;
mod notices;
mod passthrough;
mod recalls;
mod sealed;
mod shared;
mod stats;
mod trouble;
mod volume_fs;

pub use errno::errno;
pub use passthrough::{PassthroughStatus, handover::PassthroughHandover};
pub use recalls::Recalls;
pub use stats::{BUCKETS, OpStats, Stats};
pub use volume_fs::{Lifetimes, VolumeFs};
