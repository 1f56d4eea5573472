//! A mounted file system and the `/dev/fuse` transport that serves it.
//!
//! Order that must hold: INIT is answered before any worker starts; `started` runs before the first operation; `destroy`
//! runs after the last worker has ended.

mod workers;

use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno as Os;

use crate::device::{Device, Received};
use crate::dispatch::Dispatcher;
use crate::errno::Errno;
use crate::fs::Filesystem;
use crate::init::{Agreed, Disagreement, negotiate};
use crate::mount::{self, MountError, MountOptions, find};
use crate::notify::Notifier;
use crate::protocol::{
    Dialect, Header, MAJOR, MINOR, OLDEST_MINOR, Opcode, Operation, decode, put_init, put_u32, split,
};
use crate::reply::Reply;

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
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions { min_workers: 0, max_workers: 64, read_ahead_kb: None, observer: None }
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
    device: Arc<Device>,
    path: PathBuf,
    /// The mount's device number, by which it is known again.
    number: Option<(u32, u32)>,
}

/// Mounts on the directory `path`. Every use of it waits until [`Session::run`] serves it.
pub fn mount(path: &Path, options: &MountOptions) -> Result<Session, MountError> {
    let (device, path) = mount::attach(path, options)?;
    let number = find(&path).ok().flatten().map(|mounted| mounted.device);
    Ok(Session { device: Arc::new(device), path, number })
}

impl Session {
    /// The mount point, absolute and free of symlinks.
    pub fn mountpoint(&self) -> &Path {
        &self.path
    }

    /// What tells the kernel of changes; may be taken before [`Session::run`], and works once the mount has begun.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.device))
    }

    /// Serves until the file system is unmounted (or its connection aborted), and returns when all requests in flight
    /// have been answered and [`Filesystem::destroy`] has run.
    pub fn run<F: Filesystem + ?Sized>(
        self,
        fs: Arc<F>,
        options: &SessionOptions,
    ) -> Result<(), SessionError> {
        let agreed = self.begin(&*fs)?;
        if let (Some(kb), Some(number)) = (options.read_ahead_kb, self.number) {
            raise_read_ahead(number, kb);
        }
        let result = {
            let dispatcher = Dispatcher {
                fs: Arc::clone(&fs),
                dialect: Dialect::of(agreed.capabilities),
                pending: Arc::default(),
                observer: options.observer.clone(),
            };
            guarded("started", || fs.started(&agreed));
            workers::serve(&self, Arc::new(dispatcher), &agreed, options)
        };
        guarded("destroy", || fs.destroy());
        result
    }

    fn lost(&self, error: Os) -> SessionError {
        SessionError::Device { path: self.path.clone(), error: error.into() }
    }

    /// Answers INIT.
    fn begin<F: Filesystem + ?Sized>(&self, fs: &F) -> Result<Agreed, SessionError> {
        let mut buffer = vec![0; 64 << 10];
        let mut reply = Reply::default();
        loop {
            let len = match self.device.receive(&mut buffer).map_err(|error| self.lost(error))? {
                Received::Request(len) => len,
                Received::Again => continue,
                Received::Ended => return Err(SessionError::EndedEarly(self.path.clone())),
            };
            let bytes = buffer.get(..len).unwrap_or_default();
            let Ok(header) = Header::decode(bytes) else { continue };
            reply.start();
            let operation = split(&header, Opcode::Init, bytes, Dialect::default()).and_then(|parts| {
                decode(Opcode::Init, header.nodeid, parts.fixed, parts.payload, Dialect::default())
            });
            let Ok(Operation::Init(offer)) = operation else { continue };
            if header.opcode != Opcode::Init.raw() {
                continue;
            }
            let wish =
                |offer: &_| catch_unwind(AssertUnwindSafe(|| fs.init(offer))).unwrap_or(Err(Errno::EIO));
            let (outcome, error) = match negotiate(&offer, wish) {
                Ok((agreed, out)) => {
                    put_init(&mut reply.head, &out);
                    (Some(Ok(agreed)), None)
                }
                Err(Disagreement::AskAgain) => {
                    put_u32(&mut reply.head, MAJOR);
                    put_u32(&mut reply.head, MINOR);
                    (None, None)
                }
                Err(Disagreement::TooOld { major, minor }) => {
                    (Some(Err(SessionError::KernelTooOld { major, minor })), Some(Errno::EPROTO))
                }
                Err(Disagreement::Declined(errno)) => (Some(Err(SessionError::Declined(errno))), Some(errno)),
            };
            reply.finish(header.unique, error);
            self.device.send(&reply).map_err(|error| self.lost(error))?;
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
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

impl Drop for Session {
    fn drop(&mut self) {
        self.detach();
    }
}

fn guarded(what: &str, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!("the file system panicked in {what}");
    }
}

/// Without this a cold buffered read asks for 128 KiB at a time. INIT must have been answered: it resets the value.
fn raise_read_ahead((major, minor): (u32, u32), kb: u32) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, kb.to_string()) {
        tracing::warn!("cannot raise read-ahead to {kb} KiB, cold reads will be slower: {path}: {error}");
    }
}
