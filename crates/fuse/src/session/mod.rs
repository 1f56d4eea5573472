//! A mounted file system and the threads that serve it: begun and ended in [`run`], by `/dev/fuse` in [`workers`], over io_uring in
//! [`queue`]; stopped between two requests by [`pause`], and gone on with, here or in another process, by [`handover`].

mod deference;
mod handover;
mod pause;
mod policy;
mod processors;
mod queue;
mod run;
mod wake;
mod workers;

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use crate::backing::BackingFiles;
use crate::device::Device;
use crate::errno::Errno;
use crate::mount::{self, MountError, MountOptions, find};
use crate::notify::Notifier;
use crate::protocol::{MAJOR, OLDEST_MINOR, Opcode};
use crate::ring;

pub use handover::{Ended, OwnedFdOf, Paused};
use pause::Pause;
pub use pause::{Knock, PauseError, Pauser};

/// Told of every request that was answered: for metrics. Called by the threads that serve, so it must be quick.
pub trait Observer: Send + Sync + 'static {
    /// One request: from when it was read to when its answer was written, its error, and the bytes of file or directory
    /// content that it moved.
    fn request(&self, op: Opcode, nanos: u64, error: Option<Errno>, bytes: u64);
}

/// How to serve.
#[derive(Clone)]
pub struct SessionOptions {
    /// Workers to begin with; 0: one for each processor. At least 2.
    pub min_workers: usize,
    /// Most workers, which is how many requests may block at a time (locks do not count).
    pub max_workers: usize,
    /// The mount's read-ahead in KiB, set when running as root; `None` leaves the kernel's (128).
    pub read_ahead_kb: Option<u32>,
    /// Told of every request.
    pub observer: Option<Arc<dyn Observer>>,
    /// How requests travel.
    pub transport: Transport,
    /// Bytes of a ring entry's buffer instead of what the kernel needs: for tests, which thereby see it refused.
    #[doc(hidden)]
    pub ring_payload: Option<usize>,
}

/// How requests travel between kernel and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Over io_uring where root has turned it on and rings can be made, otherwise by `/dev/fuse`.
    #[default]
    Auto,
    /// The same, with a warning where it is `/dev/fuse`.
    IoUring,
    /// By reading and writing `/dev/fuse`.
    DevFuse,
}

/// The parameter by which root lets new mounts use io_uring.
pub const URING_PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            min_workers: 0,
            max_workers: 64,
            read_ahead_kb: None,
            observer: None,
            transport: Transport::default(),
            ring_payload: None,
        }
    }
}

impl SessionOptions {
    fn base_workers(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let base = if self.min_workers == 0 { processors } else { self.min_workers };
        base.clamp(2, self.max_workers.max(2))
    }
}

/// Why serving ended before the file system was unmounted, or never began.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The kernel speaks no version that is understood here.
    #[error("the kernel speaks FUSE {major}.{minor}; {MAJOR}.{OLDEST_MINOR} (Linux 5.4) or newer is needed")]
    KernelTooOld {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The file system did not want to begin.
    #[error("the file system refused to begin: {0}")]
    Declined(Errno),
    /// It was unmounted before it had begun.
    #[error("{} was unmounted before the file system had begun", .0.display())]
    EndedEarly(PathBuf),
    /// No thread could be started.
    #[error("cannot start a thread to serve {}: {error}", path.display())]
    NoThread {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The rings were refused and then the mount could not be made again.
    #[error("cannot mount again without io_uring: {0}")]
    NotMountedAgain(#[source] MountError),
    /// Reading from or writing to the kernel failed.
    #[error("lost the connection to the kernel on {}: {error}", path.display())]
    Device {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// A mounted file system. Dropped while still mounted (not run, or ended by an error), it is detached lazily.
#[derive(Debug)]
pub struct Session {
    line: Line,
    mounted: Mounted,
    options: MountOptions,
    pause: Arc<Pause>,
}

/// What a session's mount is known by.
#[derive(Debug, Clone)]
struct Mounted {
    path: PathBuf,
    /// The mount's device number.
    number: Option<(u32, u32)>,
}

impl Mounted {
    fn at(path: PathBuf) -> Mounted {
        let number = find(&path).ok().flatten().map(|mounted| mounted.device);
        Mounted { path, number }
    }

    /// Detaches what is still mounted there, if it is this mount.
    fn detach(&self) {
        let still = find(&self.path).ok().flatten().map(|mounted| mounted.device);
        if still.is_some()
            && still == self.number
            && let Err(error) = mount::unmount(&self.path, true)
        {
            tracing::error!("{error}");
        }
    }
}

/// The connection to the kernel, which is another one if the mount had to be made again.
#[derive(Debug, Clone)]
pub(crate) struct Line(Arc<RwLock<Arc<Device>>>);

impl Line {
    fn new(device: Device) -> Line {
        Line(Arc::new(RwLock::new(Arc::new(device))))
    }

    /// Does not keep the connection open: what still holds it when the session is over would leave callers waiting.
    pub(crate) fn downgrade(&self) -> WeakLine {
        WeakLine(Arc::downgrade(&self.0))
    }

    pub(crate) fn device(&self) -> Arc<Device> {
        Arc::clone(&self.0.read())
    }
}

/// A [`Line`] that ends with its session.
#[derive(Debug, Clone)]
pub(crate) struct WeakLine(Weak<RwLock<Arc<Device>>>);

impl WeakLine {
    /// The device, if the session still has it.
    pub(crate) fn device(&self) -> Option<Arc<Device>> {
        self.0.upgrade().map(|line| Arc::clone(&line.read()))
    }
}

/// Mounts on the directory `path`. Every use of it waits until [`Session::run`] serves it.
pub fn mount(path: &Path, options: &MountOptions) -> Result<Session, MountError> {
    let (device, path) = mount::attach(path, options)?;
    Ok(Session {
        line: Line::new(device),
        mounted: Mounted::at(path),
        options: options.clone(),
        pause: Arc::default(),
    })
}

impl Session {
    /// The mount point, absolute and free of symlinks.
    pub fn mountpoint(&self) -> &Path {
        &self.mounted.path
    }

    /// What tells the kernel of changes; may be taken before [`Session::run`], and works once the mount has begun.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(&self.line)
    }

    /// What registers files that the kernel reads by itself; works once the mount has begun.
    pub fn backing_files(&self) -> BackingFiles {
        BackingFiles::new(&self.line)
    }

    /// What stops [`Session::run`] so that another process can go on; may be taken before.
    pub fn pauser(&self) -> Pauser {
        Pauser(Arc::clone(&self.pause))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.mounted.detach();
    }
}

/// Why a mount that was just made has no rings, and what root could do to have them.
#[must_use]
pub fn uring_advice() -> String {
    match std::fs::read_to_string(URING_PARAMETER) {
        Ok(value) if value.trim() == "N" => {
            format!("io_uring is off; as root `echo Y > {URING_PARAMETER}`, then mount again")
        }
        Ok(_) => match ring::probe() {
            Ok(()) => "the kernel refused the rings".to_owned(),
            Err(error) => format!("this process can make no ring: {error}"),
        },
        Err(_) => "this kernel has no FUSE over io_uring (Linux 6.14 and later do)".to_owned(),
    }
}
