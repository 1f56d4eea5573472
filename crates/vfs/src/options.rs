use std::{fmt, sync::Arc};

use forebay_env::{Clock, SystemClock};

/// When a read changes the access time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtimeMode {
    /// When it is not after the last change, or older than a day.
    #[default]
    Relative,
    /// Always.
    Strict,
    /// Never.
    Off,
}

/// Who keeps the locks of flock(2) and fcntl(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LockKeeper {
    /// The kernel, which sees them all while one machine has the volume: no lock, and no close, costs a request.
    #[default]
    Kernel,
    /// The vfs, in [`crate::LockTable`]: where a file may have several inodes in the kernel, or several kernels have the volume.
    Vfs,
}

/// How files behave where POSIX leaves a choice.
#[derive(Clone)]
pub struct VfsOptions {
    /// Access times.
    pub atime: AtimeMode,
    /// What access times are taken from and compared with; the same clock as the namespace's.
    pub clock: Arc<dyn Clock>,
    /// Locks.
    pub locks: LockKeeper,
    /// Whether there are ACLs. Without, those that files have stay there, unseen and without effect.
    pub acls: bool,
    /// Whether the root user is nobody: see [`crate::Vfs::permits`].
    pub root_squash: bool,
}

impl Default for VfsOptions {
    fn default() -> VfsOptions {
        VfsOptions {
            atime: AtimeMode::default(),
            clock: Arc::new(SystemClock),
            locks: LockKeeper::default(),
            acls: true,
            root_squash: false,
        }
    }
}

impl fmt::Debug for VfsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfsOptions")
            .field("atime", &self.atime)
            .field("locks", &self.locks)
            .field("acls", &self.acls)
            .field("root_squash", &self.root_squash)
            .finish_non_exhaustive()
    }
}

/// Who asks.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// User of new inodes; 0 keeps set-id bits where others lose them.
    pub uid: u32,
    /// Group of new inodes.
    pub gid: u32,
    /// Whether the caller is in a group, by any of its groups. Asked only where a set-group-id bit depends on it.
    pub in_group: &'a dyn Fn(u32) -> bool,
}

impl Caller<'_> {
    /// The superuser.
    pub const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, in_group: &|_| true };
}

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("uid", &self.uid).field("gid", &self.gid).finish_non_exhaustive()
    }
}
