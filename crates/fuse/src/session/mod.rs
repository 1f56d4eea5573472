//! A mounted file system and the `/dev/fuse` transport that serves it.
//!
//! Order that must hold: INIT is answered before any worker starts; `started` runs before the first operation; `destroy`
//! runs after the last worker has ended.

mod queues;
mod workers;

use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use rustix::io::Errno as Os;

use crate::backing::BackingFiles;
use crate::device::{Device, Received};
use crate::dispatch::Dispatcher;
use crate::errno::Errno;
use crate::flags::Capabilities;
use crate::fs::Filesystem;
use crate::init::{Agreed, Disagreement, negotiate};
use crate::mount::{self, MountError, MountOptions, find};
use crate::notify::Notifier;
use crate::protocol::{
    Dialect, Header, MAJOR, MINOR, OLDEST_MINOR, Opcode, Operation, decode, put_init, put_u32, split,
};
use crate::reply::Reply;
use crate::ring;
use queues::{Plan, Queues};

/// The kernel's least size of a buffer for answers (`FUSE_MIN_READ_BUFFER`).
const LEAST_PAYLOAD: usize = 8192;

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
    Ok(Session { line: Line::new(device), mounted: Mounted::at(path), options: options.clone() })
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

    /// Serves until the file system is unmounted (or its connection aborted), and returns when all requests in flight
    /// have been answered and [`Filesystem::destroy`] has run.
    ///
    /// If the kernel refuses the rings it had agreed to, the mount is made again and served by `/dev/fuse`:
    /// [`Filesystem::init`] runs a second time then.
    pub fn run<F: Filesystem + ?Sized>(
        mut self,
        fs: Arc<F>,
        options: &SessionOptions,
    ) -> Result<(), SessionError> {
        let mut over_uring = options.transport != Transport::DevFuse && uring_is_usable();
        let result = loop {
            let agreed = self.begin(&*fs, over_uring)?;
            let dispatcher = Arc::new(Dispatcher {
                fs: Arc::clone(&fs),
                dialect: Dialect::of(agreed.capabilities),
                pending: Arc::default(),
                observer: options.observer.clone(),
            });
            let queues = if agreed.capabilities.contains(Capabilities::OVER_IO_URING) {
                match self.register(&dispatcher, &agreed, options) {
                    Ok(queues) => Some(queues),
                    Err(error) => {
                        tracing::warn!("the kernel refused io_uring, requests travel by /dev/fuse: {error}");
                        drop(dispatcher);
                        self.mount_again()?;
                        over_uring = false;
                        continue;
                    }
                }
            } else {
                None
            };
            if let (Some(kb), Some(number)) = (options.read_ahead_kb, self.mounted.number) {
                raise_read_ahead(number, kb);
            }
            guarded("started", || fs.started(&agreed));
            break self.serve(dispatcher, queues, &agreed, options);
        };
        guarded("destroy", || fs.destroy());
        result
    }

    fn register<F: Filesystem + ?Sized>(
        &self,
        dispatcher: &Arc<Dispatcher<F>>,
        agreed: &Agreed,
        options: &SessionOptions,
    ) -> io::Result<Queues<F>> {
        let mounted = self.mounted.clone();
        let plan = Plan {
            payload_len: options.ring_payload.unwrap_or((agreed.max_write as usize).max(LEAST_PAYLOAD)),
            max_threads: options.max_workers,
            give_up: Box::new(move || mounted.detach()),
        };
        Queues::register(dispatcher, &self.line.device(), plan)
    }

    /// Serves by the rings, if there are any, and by `/dev/fuse`, by which interrupts and forgets come in any case.
    fn serve<F: Filesystem + ?Sized>(
        &self,
        dispatcher: Arc<Dispatcher<F>>,
        queues: Option<Queues<F>>,
        agreed: &Agreed,
        options: &SessionOptions,
    ) -> Result<(), SessionError> {
        match &queues {
            Some(queues) => {
                queues.open();
                tracing::info!("requests travel over io_uring, {} queues", queues.count());
            }
            None => match (options.transport, uring_advice()) {
                (Transport::DevFuse, _) => tracing::info!("requests travel by /dev/fuse, as asked"),
                (Transport::Auto, advice) => tracing::info!("requests travel by /dev/fuse: {advice}"),
                (Transport::IoUring, advice) => tracing::warn!("requests travel by /dev/fuse: {advice}"),
            },
        }
        let by_device = workers::serve(self, dispatcher, agreed, options);
        let by_rings = queues.map_or(Ok(()), |queues| queues.join().map_err(|error| self.lost(error)));
        by_device.and(by_rings)
    }

    /// Takes the mount away, whose connection is of no use, and makes it again.
    fn mount_again(&mut self) -> Result<(), SessionError> {
        self.mounted.detach();
        let mount_again = || mount::attach(&self.mounted.path, &self.options);
        let (device, path) = mount_again().map_err(SessionError::NotMountedAgain)?;
        *self.line.0.write() = Arc::new(device);
        self.mounted = Mounted::at(path);
        Ok(())
    }

    fn lost(&self, error: Os) -> SessionError {
        SessionError::Device { path: self.mounted.path.clone(), error: error.into() }
    }

    /// Answers INIT.
    fn begin<F: Filesystem + ?Sized>(&self, fs: &F, over_uring: bool) -> Result<Agreed, SessionError> {
        let device = self.line.device();
        let mut buffer = vec![0; 64 << 10];
        let mut reply = Reply::default();
        loop {
            let len = match device.receive(&mut buffer).map_err(|error| self.lost(error))? {
                Received::Request(len) => len,
                Received::Again => continue,
                Received::Ended => return Err(SessionError::EndedEarly(self.mounted.path.clone())),
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
            let wish = |offer: &_| {
                catch_unwind(AssertUnwindSafe(|| fs.init(offer)))
                    .unwrap_or(Err(Errno::EIO))
                    .map(|wish| wish.over_uring(over_uring))
            };
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
            device.send(&reply).map_err(|error| self.lost(error))?;
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
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

/// Whether it makes sense to ask the kernel for rings: agreed once, they must come.
fn uring_is_usable() -> bool {
    match ring::probe() {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!("no io_uring: {error}");
            false
        }
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
