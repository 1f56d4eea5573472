//! The threads that serve a mount.
//!
//! Guarantees: as long as fewer than the limit are busy, one is always waiting for the next request. A worker that turns
//! from waiting to busy and was the last one waiting starts another; one that would wait while enough others do ends.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno as Os;

use super::{Session, SessionError, SessionOptions};
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
    idle: AtomicUsize,
    complained: AtomicBool,
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
    /// Clones that ended workers left behind. They stay open: a lock's answer may still have to go out by one.
    spare: Vec<Arc<Device>>,
    /// The first error that ended a worker.
    failed: Option<Os>,
}

/// Serves until the mount has ended and all workers with it.
pub(super) fn serve<F: Filesystem + ?Sized>(
    session: &Session,
    dispatcher: Arc<Dispatcher<F>>,
    agreed: &Agreed,
    options: &SessionOptions,
) -> Result<(), SessionError> {
    let base = options.base_workers();
    let pool = Arc::new(Pool {
        dispatcher,
        main: session.line.device(),
        buffer_len: (agreed.max_write as usize + HEADERS).max(LEAST_BUFFER),
        keep_idle: base + SPARE_IDLE,
        max: options.max_workers.max(base),
        idle: AtomicUsize::new(0),
        complained: AtomicBool::new(false),
        gate: Arc::default(),
    });
    for number in 0..base {
        let device = if number == 0 { Arc::clone(&pool.main) } else { pool.device() };
        if let Err(error) = pool.start(device, usize::MAX)
            && number == 0
        {
            return Err(SessionError::NoThread { path: session.mounted.path.clone(), error });
        }
    }
    let gate = Arc::clone(&pool.gate);
    drop(pool);
    let mut state = gate.state.lock();
    while state.running > 0 && state.failed.is_none() {
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
    failed.map_or(Ok(()), |error| Err(session.lost(error)))
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
            let result = pool.work(&device);
            let own_queue = !Arc::ptr_eq(&device, &pool.main);
            let gate = Arc::clone(&pool.gate);
            drop(pool);
            let mut state = gate.state.lock();
            if let Err(error) = result {
                state.failed.get_or_insert(error);
            }
            if own_queue {
                state.spare.push(device);
            }
            state.running -= 1;
            gate.changed.notify_all();
        });
        if let Err(error) = started {
            self.gate.state.lock().running -= 1;
            return Err(error);
        }
        Ok(())
    }

    /// Starts another worker if none is waiting and the limit allows.
    fn reinforce(self: &Arc<Self>) {
        if self.gate.state.lock().running >= self.max {
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

    fn work(self: &Arc<Self>, device: &Arc<Device>) -> Result<(), Os> {
        let port: Arc<dyn ReplyPort> = Arc::clone(device) as Arc<dyn ReplyPort>;
        let mut buffer = vec![0; self.buffer_len];
        let mut reply = Reply::default();
        while self.begin_waiting() {
            let received = loop {
                match device.receive(&mut buffer) {
                    Ok(Received::Again) => {}
                    other => break other,
                }
            };
            let was_last = self.idle.fetch_sub(1, Ordering::AcqRel) == 1;
            let len = match received? {
                Received::Request(len) => len,
                Received::Again | Received::Ended => return Ok(()),
            };
            if was_last {
                self.reinforce();
            }
            self.serve(device, &port, buffer.get(..len).unwrap_or_default(), &mut reply);
        }
        Ok(())
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
        let Outcome::Answer { error, bytes } = self.dispatcher.serve(&header, parts, port, reply) else {
            return;
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
