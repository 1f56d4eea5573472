//! The threads that serve a mount over io_uring.
//!
//! The kernel has a queue for each possible processor and puts a request into the queue of the processor that asks. Each
//! queue has threads of its own, pinned to that processor, and each thread has one ring entry: the processor that asks
//! is the one that answers.
//!
//! Guarantees: as long as fewer than the limit of a queue's threads are busy, one of them waits for the next request, so
//! that whatever an operation waits for can still come in by the same queue. A request whose answer is deferred keeps its
//! entry and frees its thread. Threads and entries are made when they are needed and kept until the mount ends: the
//! kernel takes no entry back. For a pause each thread ends with a request in its entry, which it keeps instead of serving it: a queue
//! whose entries all have one gives out no further request, and each entry can be gone on with by whoever has the request.
//!
//! Order that must hold: all queues are registered before any request is served (the kernel sends none before), and the
//! slots are gone before the device is closed.

mod all;
mod files;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno as Os;
use rustix::process::Pid;

use super::deference::Deference;
use super::pause::{Knock, Pause};
use super::policy::Policy;
use super::processors::{is_online, may_run_on, pin};
use super::wake;
use crate::device::Device;
use crate::dispatch::{Dispatcher, Outcome};
use crate::errno::Errno;
use crate::fs::Filesystem;
use crate::lock_reply::ReplyPort;
use crate::protocol::Opcode;
use crate::reply::Reply;
use crate::ring::{Event, Resume, Ring, Slot, SlotPort};

pub(super) use all::Queues;
use files::LastFiles;

/// Nudges are numbered from here on: the kernel counts its own requests from 2.
const NUDGE: u64 = 1 << 62;

/// What all queues of a mount have in common.
pub(super) struct Plan {
    /// Bytes of the largest request or answer after its headers, in bytes; the kernel refuses less than it may need.
    pub payload_len: usize,
    /// Most threads a queue, besides those whose answer is deferred.
    pub max_threads: usize,
    /// Takes the mount away after an error, so that the other threads end.
    pub give_up: Box<dyn Fn() + Send + Sync>,
    pub pause: Arc<Pause>,
}

/// What is left of a queue after a pause.
#[derive(Default)]
pub(super) struct KeptQueue {
    /// Requests that nobody has served.
    pub slots: Vec<Slot>,
    /// Nudges so far: no two may have the same number.
    pub nudges: u64,
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
    /// The mount has ended.
    ended: bool,
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
    /// Nudges that came back.
    nudged: AtomicU64,
    /// Nudges that the kernel took, of this process.
    sent: AtomicU64,
    /// Its processor is off, so nothing can be put into it, nor anything come out.
    abandoned: AtomicBool,
    files: Arc<LastFiles>,
    deference: Deference,
    state: Mutex<State>,
    changed: Condvar,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct State {
    threads: usize,
    /// The threads by their numbers.
    active: Vec<Pid>,
    /// Requests that a pause has left unserved.
    kept: Vec<Slot>,
    /// Threads without an entry: theirs was kept by a deferred answer.
    parked: usize,
    /// Parked threads that shall register a new entry.
    wanted: usize,
    /// Slots whose deferred answer is there.
    returned: VecDeque<Slot>,
    ended: bool,
}

/// What a thread begins with.
enum Begin {
    /// An entry of its own.
    Entry,
    /// A slot that came back with its answer.
    Returned,
    /// A request that a pause has left.
    Kept(Slot),
}

/// What a thread goes on with.
enum Turn {
    Register,
    Serve(Slot),
    Commit(Slot),
    End,
}

/// Why a thread ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The mount has ended, or could not begin.
    Ended,
    Paused,
}

impl<F: Filesystem + ?Sized> Queue<F> {
    fn start(self: &Arc<Self>, begin: Begin) -> io::Result<()> {
        self.state.lock().threads += 1;
        self.gate.state.lock().running += 1;
        let queue = Arc::clone(self);
        let started = std::thread::Builder::new().name(format!("fuse-{}", self.number)).spawn(move || {
            let thread = rustix::thread::gettid();
            queue.state.lock().active.push(thread);
            let result = queue.work(begin);
            queue.ended(thread, result);
        });
        if let Err(error) = started {
            self.state.lock().threads -= 1;
            self.gate.state.lock().running -= 1;
            return Err(error);
        }
        Ok(())
    }

    /// One thread is through: with it ends the queue, unless there is a pause.
    fn ended(self: Arc<Self>, thread: Pid, result: io::Result<Why>) {
        let (gate, plan) = (Arc::clone(&self.gate), Arc::clone(&self.plan));
        let paused = matches!(result, Ok(Why::Paused));
        {
            let mut state = self.state.lock();
            state.threads -= 1;
            state.active.retain(|other| *other != thread);
            if !paused {
                state.ended = true;
                state.returned.clear();
            }
        }
        self.changed.notify_all();
        drop(self);
        let mut phase = gate.state.lock();
        phase.ended |= !paused;
        if let Err(error) = &result {
            phase.failed.get_or_insert(errno(error));
        }
        phase.running -= 1;
        gate.changed.notify_all();
        drop(phase);
        plan.pause.thread_ended();
        if result.is_err() && gate.open.load(Ordering::Acquire) {
            (plan.give_up)();
        }
    }

    fn work(self: &Arc<Self>, begin: Begin) -> io::Result<Why> {
        pin(self.number);
        let mut ring = Ring::new(&self.device, self.number)?;
        let mut reply = Reply::default();
        let (mut policy, mut answer_as) = (Policy::Normal, Policy::Normal);
        let mut turn = match begin {
            Begin::Entry => Turn::Register,
            Begin::Returned => self.park(),
            Begin::Kept(slot) => Turn::Serve(slot),
        };
        loop {
            match turn {
                Turn::Register => {
                    if !ring.register(self.slot())? || !self.pass_gate() {
                        return Ok(Why::Ended);
                    }
                    self.nudge();
                }
                Turn::Serve(slot) => {
                    turn = self.serve(slot, &mut reply).map_or_else(|| self.park(), Turn::Commit);
                    continue;
                }
                Turn::Commit(slot) => {
                    self.deference.take_on(&mut policy, answer_as);
                    ring.commit(slot);
                }
                Turn::End => return Ok(self.why()),
            }
            self.waiting.fetch_add(1, Ordering::AcqRel);
            let event = ring.wait(&self.abandoned);
            let was_last = self.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
            turn = match event? {
                Event::Ended => return Ok(Why::Ended),
                Event::Woken => return Ok(Why::Paused),
                Event::Lost => Turn::Register,
                Event::Request(slot) if self.plan.pause.is_wanted() => {
                    self.keep(slot);
                    return Ok(Why::Paused);
                }
                Event::Request(slot) => {
                    let defers = self.deference.took(slot.caller(), self.number);
                    answer_as = if defers { Policy::Idle } else { Policy::Normal };
                    self.deference.take_on(&mut policy, Policy::Normal);
                    if was_last {
                        self.reinforce();
                    }
                    Turn::Serve(slot)
                }
            };
        }
    }

    fn why(&self) -> Why {
        if self.state.lock().ended { Why::Ended } else { Why::Paused }
    }

    /// Leaves a request to whoever goes on.
    fn keep(&self, slot: Slot) {
        if slot.header().is_ok_and(|header| header.opcode == Opcode::NotifyReply.raw()) {
            self.nudged.fetch_add(1, Ordering::Relaxed);
        }
        self.state.lock().kept.push(slot);
    }

    /// Has threads that wait come back with a request, whatever it is, and end. Pins the calling thread to the queue's processor; where it may
    /// not run there, requests of others must do.
    fn stop(&self, knock: Option<&mut Knock<'_>>) {
        let state = self.state.lock();
        self.changed.notify_all();
        if !is_online(self.number) {
            self.abandoned.store(true, Ordering::Release);
            state.active.iter().for_each(|thread| wake::wake(*thread));
            return;
        }
        // Nudges that have not come yet are waited for, but not for ever: they stay in the kernel if they came before an entry was registered, for it
        // looks for them when an answer is handed in, and in a pause none is.
        let under_way = match knock {
            Some(_) => 0,
            None => self.sent.load(Ordering::Relaxed).saturating_sub(self.nudged.load(Ordering::Relaxed)),
        };
        let missing =
            (state.threads - state.parked).saturating_sub(usize::try_from(under_way).unwrap_or(usize::MAX));
        drop(state);
        if missing == 0 {
            return;
        }
        let nudged = if may_run_on(self.number) {
            pin(self.number);
            (0..missing).take_while(|_| self.nudge()).count()
        } else {
            0
        };
        if let Some(knock) = knock.filter(|_| nudged < missing) {
            knock(self.number, missing - nudged);
        }
    }

    /// Starts threads for what a pause has left, at least one.
    fn restart(self: &Arc<Self>) {
        self.abandoned.store(false, Ordering::Release);
        let (kept, idle) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.kept), state.threads == 0)
        };
        let none = kept.is_empty() && idle;
        let begins =
            kept.into_iter().map(|slot| Begin::Kept(self.adopted(slot))).chain(none.then_some(Begin::Entry));
        for begin in begins {
            if let Err(error) = self.start(begin) {
                tracing::error!(queue = self.number, "cannot start a thread, a request is lost: {error}");
            }
        }
    }

    /// A slot whose deferred answers come to this queue.
    fn adopted(self: &Arc<Self>, mut slot: Slot) -> Slot {
        slot.port = self.port();
        slot
    }

    fn slot(self: &Arc<Self>) -> Slot {
        Slot::new(self.plan.payload_len, self.port())
    }

    fn port(self: &Arc<Self>) -> Arc<SlotPort> {
        let queue: Arc<dyn Resume> = Arc::clone(self) as Arc<dyn Resume>;
        Arc::new(SlotPort::new(Arc::downgrade(&queue)))
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
    fn nudge(&self) -> bool {
        let unique = NUDGE + 2 * self.nudges.fetch_add(1, Ordering::Relaxed);
        let taken = self.files.from(self.number).any(|file| {
            let asked = self.device.ask_back(unique, file);
            if let Err(error) = &asked {
                tracing::debug!(queue = self.number, file, "the kernel asks nothing back: {error}");
            }
            asked.is_ok()
        });
        if taken {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        taken
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
            self.files.note(self.number, header.nodeid);
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
                self.nudged.fetch_add(1, Ordering::Relaxed);
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
            if self.plan.pause.is_wanted() {
                break Turn::End;
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
    fn leave(self: Arc<Self>, slot: Slot) {
        self.state.lock().kept.push(slot);
    }

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

fn errno(error: &io::Error) -> Os {
    error.raw_os_error().map_or(Os::IO, Os::from_raw_os_error)
}
