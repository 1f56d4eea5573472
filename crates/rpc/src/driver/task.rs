//! The task of a connection: reads where no thread does, lets requests be handled, writes what was blocked, keeps the time.

use std::{
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, Aborted},
    stream::FuturesUnordered,
};
use rustc_hash::FxHashMap;
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Sleep, sleep_until},
};

use crate::{
    connection::{Event, Reply, Request},
    wire::{Code, Refusal},
};

use super::{
    channel::{Channel, Reading},
    link::{Broken, Left},
    peer::{Handler, Handling, Peer},
};

/// What the owner of a connection is told.
pub(super) trait Watch: Send {
    /// The prefaces are exchanged.
    fn ready(&mut self, _peer: &Arc<Peer>) {}
    /// The peer takes no more requests.
    fn going_away(&mut self, _refusal: Refusal) {}
    /// A request of the peer was refused.
    fn refused(&mut self, _channel: &Channel, _refusal: &Refusal) {}
}

/// The gate as something that the reactor knows.
struct Registered(Arc<Channel>);

impl std::os::fd::AsRawFd for Registered {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsFd::as_fd(self.0.gate()).as_raw_fd()
    }
}

pub(super) struct Task<W: Watch> {
    channel: Arc<Channel>,
    fd: AsyncFd<Registered>,
    handler: Arc<dyn Handler>,
    watch: W,
    peer: Option<Arc<Peer>>,
    running: FuturesUnordered<Running>,
    aborts: FxHashMap<u64, AbortHandle>,
    answers: Vec<(u64, Outcome)>,
    alarm: Pin<Box<Sleep>>,
}

type Outcome = Result<Reply, Refusal>;
type Running = Pin<Box<dyn Future<Output = (u64, Result<Outcome, Aborted>)> + Send>>;

/// Turns after which other tasks of the runtime have theirs.
const TURNS_MAX: usize = 16;

impl<W: Watch + Unpin> Task<W> {
    pub(super) fn new(channel: Arc<Channel>, handler: Arc<dyn Handler>, watch: W) -> std::io::Result<Self> {
        #[expect(
            deprecated,
            reason = "its safe form: the descriptor is one, and open, as long as the channel that is owned here"
        )]
        let fd = AsyncFd::with_interest(Registered(channel.clone()), Interest::READABLE)?;
        let alarm = Box::pin(sleep_until(tokio::time::Instant::now()));
        Ok(Task {
            channel,
            fd,
            handler,
            watch,
            peer: None,
            running: FuturesUnordered::new(),
            aborts: FxHashMap::default(),
            answers: Vec::new(),
            alarm,
        })
    }

    /// Serves the connection until it ends, and says why it did.
    pub(super) async fn run(mut self) -> Arc<Broken> {
        std::future::poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Arc<Broken>> {
        self.channel.task.register(cx.waker());
        for _ in 0..TURNS_MAX {
            match self.turn(cx) {
                Turn::Over(why) => return Poll::Ready(why),
                Turn::Idle => return Poll::Pending,
                Turn::Busy => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads what there is, lets it be handled, writes what that made.
    fn turn(&mut self, cx: &mut Context<'_>) -> Turn {
        let channel = self.channel.clone();
        let gate = self.fd.poll_read_ready(cx);
        let mut busy = gate.is_ready();
        let mut inner = channel.lock();
        let reading = if busy && !inner.has_reader() { Reading::Yes } else { Reading::No };
        let left = channel.step(&mut inner, reading);
        let more = left == Left::Perhaps && inner.link.core.wants_read();
        let events = std::mem::take(&mut inner.inbox);
        let over = inner.broken.clone();
        drop(inner);
        match gate {
            Poll::Ready(Ok(mut ready)) if !more => ready.clear_ready(),
            Poll::Ready(Err(error)) => channel.end(&mut channel.lock(), error.into()),
            _ => {}
        }
        busy |= !events.is_empty();
        for event in events {
            self.take(event, cx);
        }
        if let Some(why) = over {
            return Turn::Over(why);
        }
        busy |= self.poll_running(cx);
        busy |= self.poll_alarm(cx);
        if busy { Turn::Busy } else { Turn::Idle }
    }

    fn take(&mut self, event: Event, cx: &mut Context<'_>) {
        match event {
            Event::Ready(agreed) => {
                let peer = Peer {
                    identity: self.channel.identity(),
                    address: self.channel.socket.peer(),
                    agreed,
                    channel: Arc::downgrade(&self.channel),
                };
                let peer = Arc::new(peer);
                self.handler.opened(&peer);
                self.watch.ready(&peer);
                self.peer = Some(peer);
            }
            Event::Request(request) => self.handle(request, cx),
            Event::Over { id, code } => {
                if let Some(abort) = self.aborts.remove(&id) {
                    abort.abort();
                }
                self.answers.push((id, Err(Refusal::new(code, ""))));
            }
            Event::GoingAway(refusal) => self.watch.going_away(refusal),
            Event::Answer { .. } => {}
        }
    }

    /// Begins with a request; most are answered at once.
    fn handle(&mut self, request: Request, cx: &mut Context<'_>) {
        let Some(peer) = &self.peer else { return };
        let (id, kind) = (request.id, request.kind);
        let begun = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut handling = self.handler.handle(peer, request);
            match handling.as_mut().poll(cx) {
                Poll::Ready(outcome) => Begun::Done(outcome),
                Poll::Pending => Begun::Running(handling),
            }
        }));
        match begun {
            Ok(Begun::Done(outcome)) => self.answers.push((id, outcome)),
            Ok(Begun::Running(handling)) => {
                let (abort, registration) = AbortHandle::new_pair();
                self.aborts.insert(id, abort);
                let guarded = AssertUnwindSafe(handling).catch_unwind();
                let guarded = guarded.map(move |result| result.unwrap_or_else(|_| Err(failed(kind))));
                let running = Abortable::new(guarded, registration).map(move |outcome| (id, outcome));
                self.running.push(Box::pin(running));
            }
            Err(_) => self.answers.push((id, Err(failed(kind)))),
        }
    }

    /// Goes on with what runs, and sends the answers. Says whether there were any.
    fn poll_running(&mut self, cx: &mut Context<'_>) -> bool {
        while let Poll::Ready(Some((id, outcome))) = self.running.poll_next_unpin(cx) {
            if let Ok(outcome) = outcome {
                self.aborts.remove(&id);
                self.answers.push((id, outcome));
            }
        }
        if self.answers.is_empty() {
            return false;
        }
        let channel = self.channel.clone();
        let mut inner = channel.lock();
        let now = inner.link.now();
        for (id, outcome) in self.answers.drain(..) {
            match outcome {
                Ok(reply) => inner.link.core.reply(id, reply, now),
                Err(refusal) => {
                    self.watch.refused(&self.channel, &refusal);
                    inner.link.core.refuse(id, &refusal, now)
                }
            };
        }
        channel.step(&mut inner, Reading::No);
        true
    }

    /// Sets the alarm for the next thing that time asks for. Says whether it is time now.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> bool {
        let mut inner = self.channel.lock();
        let next = inner.link.instant(inner.link.core.next_time());
        // One that is too early does no harm: it is set anew when it goes off.
        if inner.alarm.is_none_or(|alarm| next < alarm) {
            inner.alarm = Some(next);
            self.alarm.as_mut().reset(next.into());
        }
        let now = self.alarm.as_mut().poll(cx).is_ready();
        if now {
            inner.alarm = None;
        }
        now
    }
}

impl<W: Watch> Drop for Task<W> {
    /// Without its task a connection is not served: those who wait are told, also when the runtime ends.
    fn drop(&mut self) {
        self.channel.drop_now("its task ended");
        if let Some(peer) = &self.peer {
            self.handler.closed(peer);
        }
    }
}

enum Turn {
    Over(Arc<Broken>),
    Busy,
    Idle,
}

enum Begun {
    Done(Outcome),
    Running(Handling),
}

fn failed(kind: u16) -> Refusal {
    tracing::error!(kind, "the handler of a request panicked");
    Refusal::new(Code::FAILED, "the handler failed")
}
