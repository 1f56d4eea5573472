//! The threads that serve a mount over io_uring.
//!
//! The kernel has a queue for each possible processor and puts a request into the queue of the processor that asks. Each
//! queue has threads of its own, pinned to that processor, and each thread has one ring entry: the processor that asks
//! is the one that answers.
//!
//! Guarantees: as long as fewer than the limit of a queue's threads are busy, one of them waits for the next request, so
//! that whatever an operation waits for can still come in by the same queue. A request whose answer is deferred keeps its
//! entry and frees its thread. Threads and entries are made when they are needed and kept until the mount ends: the
//! kernel takes no entry back.
//!
//! Order that must hold: all queues are registered before any request is served (the kernel sends none before), and the
//! slots are gone before the device is closed.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno as Os;

use crate::device::Device;
use crate::dispatch::{Dispatcher, Outcome};
use crate::errno::Errno;
use crate::fs::Filesystem;
use crate::lock_reply::ReplyPort;
use crate::protocol::Opcode;
use crate::reply::Reply;
use crate::ring::{Event, Resume, Ring, Slot, SlotPort};

/// The kernel's list of processors that may ever be there; it has a queue for each.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Nudges are numbered from here on: the kernel counts its own requests from 2.
const NUDGE: u64 = 1 << 62;

/// All queues of a mount.
pub(super) struct Queues<F: ?Sized> {
    queues: Vec<Arc<Queue<F>>>,
    gate: Arc<Gate>,
}

/// What all queues of a mount have in common.
pub(super) struct Plan {
    /// Bytes of the largest request or answer after its headers, in bytes; the kernel refuses less than it may need.
    pub payload_len: usize,
    /// Most threads a queue, besides those whose answer is deferred.
    pub max_threads: usize,
    /// Takes the mount away after an error, so that the other threads end.
    pub give_up: Box<dyn Fn() + Send + Sync>,
}

/// What the queues' threads have in common with whoever waits for them.
#[derive(Default)]
struct Gate {
    /// Requests may be served. Set under the lock, once.
    open: AtomicBool,
    state: Mutex<Phase>,
    changed: Condvar,
}

#[derive(Default)]
struct Phase {
    /// Threads that have not ended.
    running: usize,
    /// First threads that have registered their entry.
    registered: usize,
    /// The first error that ended a thread.
    failed: Option<Os>,
}

struct Queue<F: ?Sized> {
    dispatcher: Arc<Dispatcher<F>>,
    device: Arc<Device>,
    number: u16,
    plan: Arc<Plan>,
    /// Threads that wait for a request.
    waiting: AtomicUsize,
    nudges: AtomicU64,
    /// The file that an operation was last asked for.
    file: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct State {
    threads: usize,
    /// Threads without an entry: theirs was kept by a deferred answer.
    parked: usize,
    /// Parked threads that shall register a new entry.
    wanted: usize,
    /// Slots whose deferred answer is there.
    returned: VecDeque<Slot>,
    ended: bool,
}

/// What a thread begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// An entry of its own.
    Entry,
    /// A slot that came back with its answer.
    Returned,
}

/// What a thread goes on with.
enum Turn {
    Register,
    Commit(Slot),
    End,
}

impl<F: Filesystem + ?Sized> Queues<F> {
    /// Registers an entry with each queue. Nothing is served before [`Queues::open`].
    ///
    /// Errors: what ended the first thread that could not begin; the connection is of no use then, since the kernel
    /// waits for rings that never come.
    pub(super) fn register(
        dispatcher: &Arc<Dispatcher<F>>,
        device: &Arc<Device>,
        plan: Plan,
    ) -> io::Result<Queues<F>> {
        let plan = Arc::new(plan);
        let gate = Arc::new(Gate::default());
        let queue = |number| {
            Arc::new(Queue {
                dispatcher: Arc::clone(dispatcher),
                device: Arc::clone(device),
                number,
                plan: Arc::clone(&plan),
                waiting: AtomicUsize::new(0),
                nudges: AtomicU64::new(0),
                file: AtomicU64::new(0),
                state: Mutex::default(),
                changed: Condvar::new(),
                gate: Arc::clone(&gate),
            })
        };
        let queues = Queues { queues: (0..possible_processors()?).map(queue).collect(), gate };
        for queue in &queues.queues {
            if let Err(error) = queue.start(Begin::Entry) {
                queues.gate.state.lock().failed.get_or_insert(errno(&error));
                queues.gate.changed.notify_all();
                break;
            }
        }
        let mut phase = queues.gate.state.lock();
        while phase.registered < queues.queues.len() && phase.failed.is_none() {
            queues.gate.changed.wait(&mut phase);
        }
        let failed = phase.failed;
        drop(phase);
        if let Some(error) = failed {
            // Nobody has passed the gate, so all end.
            queues.join().ok();
            return Err(error.into());
        }
        Ok(queues)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.queues.len()
    }

    /// Lets requests be served.
    pub(super) fn open(&self) {
        let _phase = self.gate.state.lock();
        self.gate.open.store(true, Ordering::Release);
        self.gate.changed.notify_all();
    }

    /// Waits until the mount has ended and all threads with it; the first error of one of them.
    pub(super) fn join(self) -> Result<(), Os> {
        let mut phase = self.gate.state.lock();
        while phase.running > 0 {
            self.gate.changed.wait(&mut phase);
        }
        phase.failed.map_or(Ok(()), Err)
    }
}

impl<F: Filesystem + ?Sized> Queue<F> {
    fn start(self: &Arc<Self>, begin: Begin) -> io::Result<()> {
        self.state.lock().threads += 1;
        self.gate.state.lock().running += 1;
        let queue = Arc::clone(self);
        let started = std::thread::Builder::new().name(format!("fuse-{}", self.number)).spawn(move || {
            let result = queue.work(begin);
            queue.ended(result);
        });
        if let Err(error) = started {
            self.state.lock().threads -= 1;
            self.gate.state.lock().running -= 1;
            return Err(error);
        }
        Ok(())
    }

    /// One thread is through: with it ends the queue, since that happens only when the mount ends.
    fn ended(self: Arc<Self>, result: io::Result<()>) {
        let (gate, plan) = (Arc::clone(&self.gate), Arc::clone(&self.plan));
        {
            let mut state = self.state.lock();
            state.ended = true;
            state.threads -= 1;
            state.returned.clear();
        }
        self.changed.notify_all();
        drop(self);
        let mut phase = gate.state.lock();
        if let Err(error) = &result {
            phase.failed.get_or_insert(errno(error));
        }
        phase.running -= 1;
        gate.changed.notify_all();
        drop(phase);
        if result.is_err() && gate.open.load(Ordering::Acquire) {
            (plan.give_up)();
        }
    }

    fn work(self: &Arc<Self>, begin: Begin) -> io::Result<()> {
        pin(self.number);
        let mut ring = Ring::new(&self.device, self.number)?;
        let mut reply = Reply::default();
        let mut turn = match begin {
            Begin::Entry => Turn::Register,
            Begin::Returned => self.park(),
        };
        loop {
            match turn {
                Turn::Register => {
                    if !ring.register(self.slot())? || !self.pass_gate() {
                        return Ok(());
                    }
                    self.nudge();
                }
                Turn::Commit(slot) => ring.commit(slot),
                Turn::End => return Ok(()),
            }
            self.waiting.fetch_add(1, Ordering::AcqRel);
            let event = ring.wait();
            let was_last = self.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
            turn = match event? {
                Event::Ended => return Ok(()),
                Event::Lost => Turn::Register,
                Event::Request(slot) => {
                    if was_last {
                        self.reinforce();
                    }
                    match self.serve(slot, &mut reply) {
                        Some(slot) => Turn::Commit(slot),
                        None => self.park(),
                    }
                }
            };
        }
    }

    fn slot(self: &Arc<Self>) -> Slot {
        let queue: Arc<dyn Resume> = Arc::clone(self) as Arc<dyn Resume>;
        Slot::new(self.plan.payload_len, Arc::new(SlotPort::new(Arc::downgrade(&queue))))
    }

    /// Says that this thread's entry is registered, and waits for the others' and for [`Queues::open`]. False: another
    /// queue could not begin, and so none does.
    fn pass_gate(&self) -> bool {
        if self.gate.open.load(Ordering::Acquire) {
            return true;
        }
        let mut phase = self.gate.state.lock();
        phase.registered += 1;
        self.gate.changed.notify_all();
        while !self.gate.open.load(Ordering::Acquire) && phase.failed.is_none() {
            self.gate.changed.wait(&mut phase);
        }
        self.gate.open.load(Ordering::Acquire)
    }

    /// Has the kernel use the new entry for requests that came when there was none: it looks for them only when an
    /// answer is handed in, and those who hold the other entries may be waiting for these very requests.
    ///
    /// Operations that wait for others are on regular files in use, and of these the kernel can be asked. Where it knows no such file,
    /// the requests come with the next answer. (Nothing here may make a request of its own mount, not in a child process either: it
    /// waits, cannot be killed, and keeps the connection of a server that is.)
    fn nudge(&self) {
        let unique = NUDGE + 2 * self.nudges.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.device.ask_back(unique, self.file.load(Ordering::Relaxed)) {
            tracing::debug!(queue = self.number, "requests may have to wait for an answer: {error}");
        }
    }

    /// Serves the request in `slot`. The slot comes back with the answer in it, unless the answer is deferred.
    fn serve(&self, mut slot: Slot, reply: &mut Reply) -> Option<Slot> {
        let began = self.dispatcher.clock();
        let header = match slot.header() {
            Ok(header) => header,
            Err(error) => {
                tracing::error!("the kernel sent what is no request: {error}");
                slot.put_answer(0, Some(Errno::EIO));
                return Some(slot);
            }
        };
        reply.start();
        slot.port.expect(header.unique);
        if Opcode::from_raw(header.opcode).is_some_and(is_of_a_file) {
            self.file.store(header.nodeid, Ordering::Relaxed);
        }
        let port: Arc<dyn ReplyPort> = Arc::clone(&slot.port) as Arc<dyn ReplyPort>;
        let dialect = self.dispatcher.dialect;
        let outcome = self.dispatcher.serve(&header, |op| slot.parts(&header, op, dialect), &port, reply);
        match outcome {
            Outcome::Answer { error, bytes } => {
                slot.put_reply(header.unique, reply);
                // What was read of files is shared with caches: let go of it before the next request.
                reply.start();
                self.dispatcher.observe(began, header.opcode, error, bytes);
                Some(slot)
            }
            // A nudge. What else wants no answer comes by the device.
            Outcome::Silent => {
                slot.put_answer(header.unique, None);
                Some(slot)
            }
            Outcome::Deferred => {
                let port = Arc::clone(&slot.port);
                port.defer(header.unique, slot)
            }
        }
    }

    /// Sees to it that somebody waits for requests.
    fn reinforce(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.parked > state.wanted + state.returned.len() {
            state.wanted += 1;
            drop(state);
            self.changed.notify_one();
            return;
        }
        if state.threads >= self.plan.max_threads.max(2) + state.parked {
            return;
        }
        drop(state);
        if let Err(error) = self.start(Begin::Entry) {
            tracing::warn!("cannot start another thread, requests may have to wait: {error}");
        }
    }

    /// What a thread does that has no entry: its own waits for a deferred answer.
    fn park(self: &Arc<Self>) -> Turn {
        let mut state = self.state.lock();
        state.parked += 1;
        // Nobody else may be there to take the request that the answer depends on.
        if self.waiting.load(Ordering::Acquire) == 0 && state.returned.is_empty() {
            state.wanted += 1;
        }
        let turn = loop {
            if state.ended {
                break Turn::End;
            }
            if let Some(slot) = state.returned.pop_front() {
                break Turn::Commit(slot);
            }
            if state.wanted > 0 {
                state.wanted -= 1;
                break Turn::Register;
            }
            self.changed.wait(&mut state);
        };
        state.parked -= 1;
        turn
    }
}

impl<F: Filesystem + ?Sized> Resume for Queue<F> {
    fn resume(self: Arc<Self>, slot: Slot) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        state.returned.push_back(slot);
        let somebody = state.parked >= state.wanted + state.returned.len();
        drop(state);
        if somebody {
            self.changed.notify_one();
        } else if let Err(error) = self.start(Begin::Returned) {
            tracing::error!("cannot start a thread, an answer waits for one that is free: {error}");
        }
    }
}

/// Operations that may wait, on what is mostly a regular file and is in use while they do.
fn is_of_a_file(op: Opcode) -> bool {
    matches!(
        op,
        Opcode::Read | Opcode::Write | Opcode::Setlk | Opcode::Setlkw | Opcode::Fsync | Opcode::Flush
    )
}

/// A thread that cannot be pinned (the processor is off, or not ours to use) serves its queue from wherever it runs.
fn pin(processor: u16) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(usize::from(processor));
    if let Err(error) = rustix::thread::sched_setaffinity(None, &only) {
        tracing::debug!("the thread of processor {processor}'s queue is not pinned: {error}");
    }
}

/// How many queues the kernel has: one for each in a list like `0-3,8`.
fn possible_processors() -> io::Result<u16> {
    let list = std::fs::read_to_string(POSSIBLE)?;
    count(&list).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{POSSIBLE} says '{}'", list.trim()))
    })
}

fn count(list: &str) -> Option<u16> {
    let mut sum = 0u16;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        sum = sum.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(sum)
}

fn errno(error: &io::Error) -> Os {
    error.raw_os_error().map_or(Os::IO, Os::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn processors_are_counted_in_the_kernels_list() {
        assert_eq!(count("0\n"), Some(1));
        assert_eq!(count("0-3\n"), Some(4));
        assert_eq!(count("0-1,4-7,12\n"), Some(7));
        for wrong in ["", "3-1", "a", "0-65535"] {
            assert_eq!(count(wrong), None, "{wrong}");
        }
    }
}
