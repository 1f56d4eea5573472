//! How a session begins, is served and ends.
//!
//! Order that must hold: INIT is answered before any worker starts; `started` runs before the first operation; `destroy`
//! runs after the last worker has ended.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rustix::io::Errno as Os;

use super::handover::{Descriptors, Ended, Paused};
use super::queue::{KeptQueue, Plan, Queues};
use super::workers::Workers;
use super::{Mounted, Session, SessionError, SessionOptions, Transport, uring_advice};
use crate::device::Received;
use crate::dispatch::Dispatcher;
use crate::errno::Errno;
use crate::flags::Capabilities;
use crate::fs::Filesystem;
use crate::init::{Agreed, Disagreement, negotiate};
use crate::lock_reply::Pending;
use crate::mount;
use crate::protocol::{Dialect, Header, MAJOR, MINOR, Opcode, Operation, decode, put_init, put_u32, split};
use crate::reply::Reply;
use crate::ring;
use crate::signalled::Signalled;

/// The kernel's least size of a buffer for answers (`FUSE_MIN_READ_BUFFER`).
const LEAST_PAYLOAD: usize = 8192;

impl Session {
    /// Serves until the file system is unmounted (or its connection aborted), or paused by a [`Pauser`], and returns when all requests in
    /// flight have been answered and [`Filesystem::destroy`] has run.
    ///
    /// If the kernel refuses the rings it had agreed to, the mount is made again and served by `/dev/fuse`:
    /// [`Filesystem::init`] runs a second time then.
    pub fn run<F: Filesystem + ?Sized>(
        mut self,
        fs: Arc<F>,
        options: &SessionOptions,
    ) -> Result<Ended, SessionError> {
        let mut over_uring = options.transport != Transport::DevFuse && uring_is_usable();
        let result = loop {
            let agreed = self.begin(&*fs, over_uring)?;
            let dispatcher = dispatcher(&fs, &agreed, options);
            let queues = if agreed.capabilities.contains(Capabilities::OVER_IO_URING) {
                let plan = self.plan(&agreed, options);
                match Queues::register(&dispatcher, &self.line.device(), plan) {
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
            tell_transport(queues.as_ref(), options.transport);
            guarded("started", || fs.started(&agreed));
            break self.serve(dispatcher, queues, agreed, Descriptors::default(), options);
        };
        ended(&*fs, &result);
        result
    }

    /// Goes on with a session that was paused; see [`Paused::run`].
    pub(super) fn run_on<F: Filesystem + ?Sized>(
        self,
        fs: Arc<F>,
        options: &SessionOptions,
        (agreed, descriptors, kept): (Agreed, Descriptors, Option<Vec<KeptQueue>>),
    ) -> Result<Ended, SessionError> {
        let dispatcher = dispatcher(&fs, &agreed, options);
        guarded("started", || fs.started(&agreed));
        let queues = kept
            .map(|kept| Queues::go_on(&dispatcher, &self.line.device(), self.plan(&agreed, options), kept));
        let result = self.serve(dispatcher, queues, agreed, descriptors, options);
        ended(&*fs, &result);
        result
    }

    fn plan(&self, agreed: &Agreed, options: &SessionOptions) -> Plan {
        let mounted = self.mounted.clone();
        Plan {
            payload_len: options.ring_payload.unwrap_or((agreed.max_write as usize).max(LEAST_PAYLOAD)),
            max_threads: options.max_workers,
            give_up: Box::new(move || mounted.detach()),
            pause: Arc::clone(&self.pause),
        }
    }

    /// Serves by the rings, if there are any, and by `/dev/fuse`, by which interrupts and forgets come in any case.
    fn serve<F: Filesystem + ?Sized>(
        self,
        dispatcher: Arc<Dispatcher<F>>,
        queues: Option<Queues<F>>,
        agreed: Agreed,
        Descriptors { clones, left }: Descriptors,
        options: &SessionOptions,
    ) -> Result<Ended, SessionError> {
        let pending = Arc::clone(&dispatcher.pending);
        let workers = Workers::new(&self, dispatcher, &agreed, options, clones);
        if let Some(queues) = &queues {
            queues.open();
        }
        let parts = queues.iter().map(Queues::part).chain([workers.part()]).collect();
        self.pause.begin(parts, pending);
        let by_device = workers.serve(&self, &left);
        let by_rings = queues.map(Queues::join).transpose();
        let by_rings = by_rings.map_err(|error| self.lost(error));
        let is_over = !matches!(&by_device, Ok(served) if !served.ended)
            || !matches!(&by_rings, Ok(served) if !served.as_ref().is_some_and(|served| served.ended));
        let paused = self.pause.end(is_over);
        let (by_device, by_rings) = (by_device?, by_rings?);
        let Some(left) = paused else { return Ok(Ended::Unmounted) };
        let (queues, clones) = (by_rings.map(|served| served.kept), by_device.clones);
        let main = self.line.device();
        let number =
            |descriptor| [&main].into_iter().chain(&clones).position(|device| device.raw() == descriptor);
        let left =
            left.into_iter().filter_map(|left| Some((number(left.descriptor)?, left.request))).collect();
        Ok(Ended::Paused(Box::new(Paused { session: self, agreed, clones, left, queues })))
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

    pub(super) fn lost(&self, error: Os) -> SessionError {
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
                Received::Nothing => {
                    device.wait_readable().map_err(|error| self.lost(error))?;
                    continue;
                }
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

fn dispatcher<F: Filesystem + ?Sized>(
    fs: &Arc<F>,
    agreed: &Agreed,
    options: &SessionOptions,
) -> Arc<Dispatcher<F>> {
    let keeps = |locks| agreed.capabilities.contains(locks);
    let keeps_locks = keeps(Capabilities::POSIX_LOCKS) || keeps(Capabilities::FLOCK_LOCKS);
    Arc::new(Dispatcher {
        fs: Arc::clone(fs),
        dialect: Dialect::of(agreed.capabilities),
        pending: Pending::new(keeps_locks),
        observer: options.observer.clone(),
        signalled: Signalled::default(),
    })
}

fn tell_transport<F: Filesystem + ?Sized>(queues: Option<&Queues<F>>, wanted: Transport) {
    match (queues, wanted) {
        (Some(queues), _) => tracing::info!("requests travel over io_uring, {} queues", queues.count()),
        (None, Transport::DevFuse) => tracing::info!("requests travel by /dev/fuse, as asked"),
        (None, Transport::Auto) => tracing::info!("requests travel by /dev/fuse: {}", uring_advice()),
        (None, Transport::IoUring) => tracing::warn!("requests travel by /dev/fuse: {}", uring_advice()),
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

/// Tells the file system that serving has ended.
fn ended<F: Filesystem + ?Sized>(fs: &F, result: &Result<Ended, SessionError>) {
    match result {
        Ok(Ended::Paused(_)) => guarded("paused", || fs.paused()),
        _ => guarded("destroy", || fs.destroy()),
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
