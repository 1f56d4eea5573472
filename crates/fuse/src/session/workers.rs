//! The threads that serve a mount.
//!
//! Guarantees: as long as fewer than the limit are busy, one is always waiting for the next request. A worker that turns
//! from waiting to busy and was the last one waiting starts another; one that would wait while enough others do ends. For a pause, all
//! end that have no request: descriptors are made not to wait, then the threads that wait are woken.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno as Os;
use rustix::process::Pid;

use super::handover::Unserved;
use super::pause::{Knock, Part, PartState, Pause, PauseError};
use super::{Session, SessionError, SessionOptions, wake};
use crate::device::{Device, Received};
use crate::dispatch::{Dispatcher, Outcome};
use crate::fs::Filesystem;
use crate::init::Agreed;
use crate::lock_reply::ReplyPort;
use crate::protocol::{Header, split};
use crate::reply::Reply;

/// Beyond the base so many idle workers are kept, so that a burst does not start and end threads all the time.
const SPARE_IDLE: usize = 2;

/// A request is at most its largest write and two headers; an attribute's value may have 64 KiB, whatever the largest
/// write is.
const HEADERS: usize = 4096;
const LEAST_BUFFER: usize = 128 << 10;

struct Pool<F: ?Sized> {
    dispatcher: Arc<Dispatcher<F>>,
    /// The descriptor of the mount itself; used by the first worker, and by all where it cannot be cloned.
    main: Arc<Device>,
    buffer_len: usize,
    keep_idle: usize,
    max: usize,
    base: usize,
    idle: AtomicUsize,
    complained: AtomicBool,
    pause: Arc<Pause>,
    gate: Arc<Gate>,
}

/// Outlives the pool: a worker lets go of the pool, and so of the file system, before it counts as ended.
#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    /// The workers, and where each reads.
    active: Vec<(Pid, Arc<Device>)>,
    /// Clones that ended workers left behind. They stay open: a lock's answer may still have to go out by one.
    spare: Vec<Arc<Device>>,
    /// The mount has ended.
    ended: bool,
    /// The first error that ended a worker.
    failed: Option<Os>,
}

/// What became of serving.
pub(super) struct Served {
    /// The mount has ended.
    pub(super) ended: bool,
    /// Descriptors besides the mount's own.
    pub(super) clones: Vec<Arc<Device>>,
}

/// The workers of a session, not begun yet.
pub(super) struct Workers<F: ?Sized>(Arc<Pool<F>>);

impl<F: Filesystem + ?Sized> Workers<F> {
    /// Workers for this session's requests, which may use the descriptors `clones`.
    pub(super) fn new(
        session: &Session,
        dispatcher: Arc<Dispatcher<F>>,
        agreed: &Agreed,
        options: &SessionOptions,
        clones: Vec<Arc<Device>>,
    ) -> Workers<F> {
        let base = options.base_workers();
        let gate = Arc::new(Gate::default());
        gate.state.lock().spare = clones;
        Workers(Arc::new(Pool {
            dispatcher,
            main: session.line.device(),
            buffer_len: (agreed.max_write as usize + HEADERS).max(LEAST_BUFFER),
            keep_idle: base + SPARE_IDLE,
            max: options.max_workers.max(base),
            base,
            idle: AtomicUsize::new(0),
            complained: AtomicBool::new(false),
            pause: Arc::clone(&session.pause),
            gate,
        }))
    }

    /// What a pause stops.
    pub(super) fn part(&self) -> Weak<dyn Part> {
        let part: Arc<dyn Part> = Arc::clone(&self.0) as Arc<dyn Part>;
        Arc::downgrade(&part)
    }

    /// Serves until the mount has ended, or was paused, and all workers have ended. First of all what was `left`: requests by the descriptors that
    /// they were read from, 0 the mount's own.
    pub(super) fn serve(self, session: &Session, left: &[Unserved]) -> Result<Served, SessionError> {
        let pool = self.0;
        let (gate, pause) = (Arc::clone(&pool.gate), Arc::clone(&pool.pause));
        pool.set_nonblocking(&gate.state.lock(), false);
        pool.serve_left(left);
        if let Err(error) = pool.start_base() {
            return Err(SessionError::NoThread { path: session.mounted.path.clone(), error });
        }
        drop(pool);
        let mut state = gate.state.lock();
        while (state.running > 0 || pause.is_undecided()) && state.failed.is_none() {
            gate.changed.wait(&mut state);
        }
        let failed = state.failed;
        drop(state);
        if failed.is_some() {
            // The others wait for requests that nobody may send any more: taking the mount away wakes them.
            session.mounted.detach();
        }
        let mut state = gate.state.lock();
        while state.running > 0 {
            gate.changed.wait(&mut state);
        }
        match failed {
            Some(error) => Err(session.lost(error)),
            None => Ok(Served { ended: state.ended, clones: std::mem::take(&mut state.spare) }),
        }
    }
}

impl<F: Filesystem + ?Sized> Part for Pool<F> {
    fn stop(&self, _knock: Option<&mut Knock<'_>>) {
        let state = self.gate.state.lock();
        self.set_nonblocking(&state, true);
        state.active.iter().for_each(|(thread, _)| wake::wake(*thread));
    }

    fn state(&self) -> PartState {
        let state = self.gate.state.lock();
        match state.running {
            0 if state.ended => PartState::Ended,
            0 => PartState::Stopped,
            _ => PartState::Running,
        }
    }

    fn obstacle(&self) -> Option<PauseError> {
        None
    }

    fn go_on(self: Arc<Self>) {
        self.set_nonblocking(&self.gate.state.lock(), false);
        if let Err(error) = self.start_base() {
            tracing::error!("cannot start threads, requests wait for those that are left: {error}");
        }
    }

    fn decided(&self) {
        let _state = self.gate.state.lock();
        self.gate.changed.notify_all();
    }
}

impl<F: Filesystem + ?Sized> Pool<F> {
    /// A descriptor for one more worker.
    fn device(&self) -> Arc<Device> {
        if let Some(spare) = self.gate.state.lock().spare.pop() {
            return spare;
        }
        match self.main.clone_connection() {
            Ok(clone) => Arc::new(clone),
            Err(error) => {
                if !self.complained.swap(true, Ordering::Relaxed) {
                    tracing::info!("workers share one queue, as /dev/fuse cannot be cloned: {error}");
                }
                Arc::clone(&self.main)
            }
        }
    }

    /// Serves requests that the session before took and did not answer. They do not block: they wait for locks.
    fn serve_left(&self, left: &[Unserved]) {
        let devices: Vec<_> = {
            let state = self.gate.state.lock();
            [&self.main].into_iter().chain(&state.spare).cloned().collect()
        };
        let mut reply = Reply::default();
        for (number, request) in left {
            let Some(device) = devices.get(*number) else { continue };
            let port: Arc<dyn ReplyPort> = Arc::clone(device) as Arc<dyn ReplyPort>;
            self.serve(device, &port, request, &mut reply);
        }
    }

    /// Starts the workers to begin with. Without any, it is an error.
    fn start_base(self: &Arc<Self>) -> io::Result<()> {
        for number in 0..self.base {
            let device = if number == 0 { Arc::clone(&self.main) } else { self.device() };
            if let Err(error) = self.start(device, usize::MAX)
                && number == 0
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Has reads of all descriptors wait for requests, or not.
    fn set_nonblocking(&self, state: &State, nonblocking: bool) {
        let others = state.active.iter().map(|(_, device)| device).chain(&state.spare);
        for device in others.chain([&self.main]) {
            if let Err(error) = device.set_nonblocking(nonblocking) {
                tracing::error!("cannot change how the device is read: {error}");
            }
        }
    }

    /// Starts a worker unless `limit` are running.
    fn start(self: &Arc<Self>, device: Arc<Device>, limit: usize) -> io::Result<()> {
        {
            let mut state = self.gate.state.lock();
            if state.running >= limit {
                return Ok(());
            }
            state.running += 1;
        }
        let pool = Arc::clone(self);
        let started = std::thread::Builder::new().name("fuse".to_owned()).spawn(move || {
            let thread = rustix::thread::gettid();
            pool.gate.state.lock().active.push((thread, Arc::clone(&device)));
            let result = pool.work(&device);
            let own_queue = !Arc::ptr_eq(&device, &pool.main);
            let (gate, pause) = (Arc::clone(&pool.gate), Arc::clone(&pool.pause));
            drop(pool);
            let mut state = gate.state.lock();
            match result {
                Ok(ended) => state.ended |= ended,
                Err(error) => drop(state.failed.get_or_insert(error)),
            }
            state.active.retain(|(other, _)| *other != thread);
            if own_queue {
                state.spare.push(device);
            }
            state.running -= 1;
            gate.changed.notify_all();
            drop(state);
            pause.thread_ended();
        });
        if let Err(error) = started {
            self.gate.state.lock().running -= 1;
            return Err(error);
        }
        Ok(())
    }

    /// Starts another worker if none is waiting and the limit allows.
    fn reinforce(self: &Arc<Self>) {
        if self.pause.is_wanted() || self.gate.state.lock().running >= self.max {
            return;
        }
        let device = self.device();
        if let Err(error) = self.start(device, self.max) {
            tracing::warn!("cannot start another thread, requests may have to wait: {error}");
        }
    }

    /// Whether this worker shall wait for a request, or enough others do.
    fn begin_waiting(&self) -> bool {
        let enter = |idle: usize| (idle < self.keep_idle).then_some(idle + 1);
        self.idle.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter).is_ok()
    }

    /// Serves until there is nothing to do. True: the mount has ended.
    fn work(self: &Arc<Self>, device: &Arc<Device>) -> Result<bool, Os> {
        let port: Arc<dyn ReplyPort> = Arc::clone(device) as Arc<dyn ReplyPort>;
        let mut buffer = vec![0; self.buffer_len];
        let mut reply = Reply::default();
        while !self.pause.is_wanted() && self.begin_waiting() {
            let received = self.receive(device, &mut buffer);
            let was_last = self.idle.fetch_sub(1, Ordering::AcqRel) == 1;
            let len = match received? {
                Received::Request(len) => len,
                Received::Ended => return Ok(true),
                Received::Again | Received::Nothing => break,
            };
            if was_last {
                self.reinforce();
            }
            self.serve(device, &port, buffer.get(..len).unwrap_or_default(), &mut reply);
        }
        Ok(false)
    }

    /// Waits for a request, or until a pause is wanted.
    fn receive(&self, device: &Device, buffer: &mut [u8]) -> Result<Received, Os> {
        loop {
            match device.receive(buffer)? {
                Received::Again | Received::Nothing if self.pause.is_wanted() => {
                    return Ok(Received::Nothing);
                }
                Received::Again => {}
                Received::Nothing => device.wait_readable()?,
                received => return Ok(received),
            }
        }
    }

    fn serve(&self, device: &Device, port: &Arc<dyn ReplyPort>, bytes: &[u8], reply: &mut Reply) {
        let began = self.dispatcher.clock();
        let header = match Header::decode(bytes) {
            Ok(header) => header,
            Err(error) => {
                tracing::error!("the kernel sent what is no request: {error}");
                return;
            }
        };
        reply.start();
        let dialect = self.dispatcher.dialect;
        let parts = |op| split(&header, op, bytes, dialect);
        let (error, bytes) = match self.dispatcher.serve(&header, parts, port, reply) {
            Outcome::Answer { error, bytes } => (error, bytes),
            Outcome::Deferred => return self.dispatcher.pending.remember(header.unique, bytes),
            Outcome::Silent => return,
        };
        if let Err(failed) = device.send(reply) {
            tracing::error!(
                opcode = header.opcode,
                unique = header.unique,
                "the kernel refused an answer: {failed}"
            );
            port.answer(header.unique, Some(crate::Errno::EIO));
        }
        // What was read of files is shared with caches: let go of it before the next request.
        reply.start();
        self.dispatcher.observe(began, header.opcode, error, bytes);
    }
}
