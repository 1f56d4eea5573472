//! One live connection, shared by those who ask over it and the task that serves it.
//!
//! Whoever makes a request writes it to the socket at once. Whoever waits for an answer in a thread reads the socket by itself if nobody
//! does so already: that thread is the *reader*. Other threads sleep until the reader has their answer, or, when its own has come, until it hands its part on. With no
//! thread as the reader, the task reads. Frames are taken in under one lock, so in order, whoever reads.

use std::{
    collections::{BTreeMap, VecDeque},
    net::Shutdown,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use futures::task::AtomicWaker;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use crate::{
    connection::{CallError, Connection, Event, Outgoing, Reply},
    net::{Gate, Socket},
    tls::{Identity, Session},
    wire::Refusal,
};

use super::link::{Broken, Left, Link};

#[derive(Debug)]
pub(crate) struct Channel {
    pub(super) socket: Socket,
    gate: Gate,
    inner: Mutex<Inner>,
    /// Bytes that have come, for those who do not want to wait for `inner`.
    received: AtomicU64,
    /// Wakes the task.
    pub(super) task: AtomicWaker,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) link: Link,
    waiters: FxHashMap<u64, Waiter>,
    /// A thread reads, or was told to.
    reader: Option<u64>,
    /// Threads that sleep.
    sleepers: BTreeMap<u64, Arc<Condvar>>,
    /// What the task is to see.
    pub(super) inbox: VecDeque<Event>,
    /// Why it is over.
    pub(super) broken: Option<Arc<Broken>>,
    /// What the reactor hears of: reading, writing.
    gate: (bool, bool),
    /// When the task wakes by itself.
    pub(super) alarm: Option<Instant>,
}

#[derive(Debug)]
enum Waiter {
    Thread(Option<Result<Reply, CallError>>),
    Task(Option<Result<Reply, CallError>>, Option<Waker>),
}

/// How often a thread that may give up is asked whether it does.
pub const ASKED_EVERY: Duration = Duration::from_millis(250);

thread_local! {
    /// What this thread sleeps on.
    static BED: Arc<Condvar> = Arc::new(Condvar::new());
}

impl Channel {
    pub(super) fn new(
        socket: Socket,
        core: Connection,
        tls: Option<Box<Session>>,
        start: Instant,
    ) -> std::io::Result<Arc<Channel>> {
        let gate = Gate::new(&socket)?;
        let inner = Inner {
            link: Link::new(core, tls, start),
            waiters: FxHashMap::default(),
            reader: None,
            sleepers: BTreeMap::new(),
            inbox: VecDeque::new(),
            broken: None,
            gate: (false, false),
            alarm: None,
        };
        let (inner, received, task) = (Mutex::new(inner), AtomicU64::new(0), AtomicWaker::new());
        Ok(Arc::new(Channel { socket, gate, inner, received, task }))
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Bytes that the peer has sent, of whatever kind.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(crate) fn identity(&self) -> Identity {
        self.lock().link.identity(&self.socket)
    }

    /// Makes a request and waits for its end, in a thread; with `goes_on` no longer than that says so, which is asked after `first` and then every [`ASKED_EVERY`], with nothing locked.
    pub(crate) fn call_blocking(
        &self,
        request: Outgoing,
        first: Duration,
        goes_on: Option<&dyn Fn() -> bool>,
    ) -> Result<Reply, CallError> {
        let mut inner = self.lock();
        let mut ask_at = goes_on.map(|_| Instant::now() + first);
        let now = inner.link.now();
        let deadline = inner.link.instant(now.after(request.deadline_ms));
        let id = inner.link.core.call(request, now);
        inner.waiters.insert(id, Waiter::Thread(None));
        self.step(&mut inner, Reading::No);
        loop {
            if let Some(result) = inner.take(id) {
                self.hand_on(&mut inner, id);
                return result;
            }
            let now = Instant::now();
            if ask_at.is_some_and(|at| at <= now) {
                ask_at = Some(now + ASKED_EVERY);
                if goes_on.is_some_and(|goes_on| !MutexGuard::unlocked(&mut inner, goes_on)) {
                    return self.give_up(&mut inner, id);
                }
                continue;
            }
            if inner.reader.is_none() {
                inner.reader = Some(id);
                self.set_gate(&mut inner);
            }
            // A little later than the deadline, which is counted in whole milliseconds.
            let left = deadline.saturating_duration_since(now) + Duration::from_millis(1);
            let left = ask_at.map_or(left, |at| left.min(at.saturating_duration_since(now)));
            if inner.reader == Some(id) {
                let waited = MutexGuard::unlocked(&mut inner, || self.socket.wait_readable(left));
                if let Err(error) = waited {
                    self.end(&mut inner, error.into());
                }
                self.step(&mut inner, Reading::Yes);
            } else {
                let bed = BED.with(Arc::clone);
                inner.sleepers.insert(id, bed.clone());
                let late = bed.wait_for(&mut inner, left).timed_out();
                inner.sleepers.remove(&id);
                if late {
                    self.step(&mut inner, Reading::No);
                }
            }
        }
    }

    /// Nobody waits for a request any more. Its answer may have come in the last moment.
    fn give_up(&self, inner: &mut Inner, id: u64) -> Result<Reply, CallError> {
        let result = inner.take(id);
        if result.is_none() {
            inner.waiters.remove(&id);
            let now = inner.link.now();
            inner.link.core.cancel(id, now);
            self.step(inner, Reading::No);
        }
        self.hand_on(inner, id);
        result.unwrap_or(Err(CallError::GivenUp))
    }

    /// The reader is done: the next one, or the task, goes on.
    fn hand_on(&self, inner: &mut Inner, id: u64) {
        if inner.reader != Some(id) {
            return;
        }
        inner.reader = inner.sleepers.pop_first().map(|(next, bed)| {
            bed.notify_one();
            next
        });
        self.set_gate(inner);
    }

    /// Makes a request; the future waits for its end, and cancels it when it is dropped before.
    pub(crate) fn call(self: &Arc<Self>, request: Outgoing) -> Call {
        let mut inner = self.lock();
        let now = inner.link.now();
        let id = inner.link.core.call(request, now);
        inner.waiters.insert(id, Waiter::Task(None, None));
        self.step(&mut inner, Reading::No);
        drop(inner);
        Call { channel: self.clone(), id, done: false }
    }

    /// Takes no more requests.
    pub(crate) fn go_away(&self, refusal: &Refusal) {
        let mut inner = self.lock();
        let now = inner.link.now();
        inner.link.core.go_away(refusal, now);
        self.step(&mut inner, Reading::No);
        self.task.wake();
    }

    /// Ends the connection.
    pub(crate) fn drop_now(&self, why: &'static str) {
        self.end(&mut self.lock(), Broken::Dropped(why));
    }

    /// Reads if it is our turn, does what time asks for, hands answers on, writes. Says whether there may be more to read.
    pub(super) fn step(&self, inner: &mut Inner, reading: Reading) -> Left {
        let mut left = Left::Nothing;
        if inner.broken.is_none() {
            match self.try_step(inner, reading) {
                Ok(what) => left = what,
                Err(broken) => self.end(inner, broken),
            }
        }
        self.deliver(inner);
        self.set_gate(inner);
        let next = inner.link.instant(inner.link.core.next_time());
        if !inner.inbox.is_empty() || inner.alarm.is_some_and(|alarm| next < alarm) {
            self.task.wake();
        }
        left
    }

    fn try_step(&self, inner: &mut Inner, reading: Reading) -> Result<Left, Broken> {
        let left = match reading {
            Reading::Yes => inner.link.fill(&self.socket)?,
            Reading::No => Left::Nothing,
        };
        self.received.store(inner.link.core.received_bytes(), Ordering::Relaxed);
        let now = inner.link.now();
        if now >= inner.link.core.next_time() {
            inner.link.core.tick(now)?;
        }
        // What was blocked goes on when the reactor says so, or on the next occasion.
        inner.link.flush(&self.socket)?;
        if inner.link.core.finished() {
            return Err(Broken::Finished);
        }
        Ok(left)
    }

    /// Hands answers to those who wait, and the rest to the task.
    fn deliver(&self, inner: &mut Inner) {
        while let Some(event) = inner.link.core.next_event() {
            let Event::Answer { id, result } = event else {
                inner.inbox.push_back(event);
                continue;
            };
            match inner.waiters.get_mut(&id) {
                Some(Waiter::Thread(slot)) => {
                    *slot = Some(result);
                    if let Some(bed) = inner.sleepers.get(&id) {
                        bed.notify_one();
                    }
                }
                Some(Waiter::Task(slot, waker)) => {
                    *slot = Some(result);
                    if let Some(waker) = waker.take() {
                        waker.wake();
                    }
                }
                None => {}
            }
        }
    }

    pub(super) fn end(&self, inner: &mut Inner, why: Broken) {
        if inner.broken.is_some() {
            return;
        }
        inner.link.close(&self.socket);
        inner.link.core.lost(&why.to_string());
        inner.broken = Some(Arc::new(why));
        self.deliver(inner);
        // A thread that reads sees the end.
        self.socket.shutdown(Shutdown::Both);
        self.set_gate(inner);
        self.task.wake();
    }

    fn set_gate(&self, inner: &mut Inner) {
        let over = inner.broken.is_some();
        let read = !over && inner.reader.is_none() && inner.link.core.wants_read();
        let write = !over && inner.link.blocked;
        if inner.gate != (read, write) {
            inner.gate = (read, write);
            if let Err(error) = self.gate.set(&self.socket, read, write) {
                self.end(inner, error.into());
            }
        }
    }
}

/// Whether a step reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    Yes,
    No,
}

impl Inner {
    pub(super) fn has_reader(&self) -> bool {
        self.reader.is_some()
    }

    fn take(&mut self, id: u64) -> Option<Result<Reply, CallError>> {
        let (Some(Waiter::Thread(slot)) | Some(Waiter::Task(slot, _))) = self.waiters.get_mut(&id) else {
            return None;
        };
        let result = slot.take()?;
        self.waiters.remove(&id);
        Some(result)
    }
}

/// The end of a request. Dropped before, it cancels the request.
#[derive(Debug)]
#[must_use = "a request whose future is dropped is cancelled"]
pub struct Call {
    channel: Arc<Channel>,
    id: u64,
    done: bool,
}

impl Future for Call {
    type Output = Result<Reply, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut inner = this.channel.lock();
        if let Some(result) = inner.take(this.id) {
            this.done = true;
            return Poll::Ready(result);
        }
        if let Some(Waiter::Task(_, waker)) = inner.waiters.get_mut(&this.id) {
            match waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => *waker = Some(cx.waker().clone()),
            }
        }
        Poll::Pending
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut inner = self.channel.lock();
        inner.waiters.remove(&self.id);
        let now = inner.link.now();
        inner.link.core.cancel(self.id, now);
        self.channel.step(&mut inner, Reading::No);
    }
}
