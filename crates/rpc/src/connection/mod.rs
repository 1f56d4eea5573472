//! The protocol as a state machine: bytes in, events out; requests and answers in, bytes out. No socket, no clock, no thread.
//!
//! Guarantees: the invariants of `docs/design/wire.md`. Whoever drives it reads into [`Connection::space`] while [`Connection::wants_read`], takes every
//! [`Connection::next_event`], writes what [`Connection::slices`] gives, and calls [`Connection::tick`] when [`Connection::next_time`] comes. After an error
//! the connection says [`Connection::slices`] once more (the reason, for the peer) and is then to be closed; [`Connection::lost`] ends what was in flight.

mod calls;
mod error;
mod input;
mod queue;
mod receive;
mod taken;
mod terms;
mod ticks;

use std::{collections::VecDeque, io::IoSlice};

use bytes::Bytes;

use crate::{
    time::Time,
    wire::{Code, DEADLINE_MAX_MS, FrameType, Header, Preface, Refusal},
};

pub use calls::Outgoing;
pub use error::{CallError, ProtocolError};
pub use terms::{Carrier, Limits, Terms, Timeouts};

use calls::Calls;
use input::Input;
use queue::Queue;
use taken::Taken;

/// Which side this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It connected.
    Initiator,
    /// It was connected to.
    Acceptor,
}

/// What both sides agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The version spoken.
    pub version: u16,
    /// The features used.
    pub features: u64,
    /// The peer's release.
    pub release: String,
    /// What the peer takes.
    pub limits: Limits,
}

/// An answer's body and bulk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    /// The message.
    pub body: Bytes,
    /// Data that goes with it.
    pub bulk: Bytes,
}

/// A request of the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Its number.
    pub id: u64,
    /// The kind of message.
    pub kind: u16,
    /// The message.
    pub body: Bytes,
    /// Data that goes with it.
    pub bulk: Bytes,
    /// When its answer is of no use any more.
    pub expires: Time,
    /// The largest reply that is taken, body and bulk together, in bytes.
    pub reply_max: u32,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The prefaces are exchanged.
    Ready(Agreed),
    /// The peer asks.
    Request(Request),
    /// The answer to a request of the peer is not wanted, or its time is over: end its handler, and refuse with this code.
    Over {
        /// The request.
        id: u64,
        /// [`Code::CANCELLED`] or [`Code::DEADLINE`].
        code: Code,
    },
    /// A request of ours has come to its end. Each has this once, unless it was cancelled.
    Answer {
        /// The request.
        id: u64,
        /// How it ended.
        result: Result<Reply, CallError>,
    },
    /// The peer takes no more requests; this connection ends when all are answered.
    GoingAway(Refusal),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// Waits for the peer's preface.
    Preface,
    /// Prefaces are exchanged.
    Ready(Agreed),
    /// Over, for this reason.
    Dead(ProtocolError),
}

/// One connection, seen from one side.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    terms: Terms,
    state: State,
    input: Input,
    queue: Queue,
    events: VecDeque<Event>,
    calls: Calls,
    taken: Taken,
    started: Time,
    /// When bytes last came.
    heard: Time,
    /// Bytes that ever came.
    received: u64,
    /// When the ping went that is not answered.
    pinged: Option<Time>,
    /// Pongs since all was written.
    pongs: u32,
    pings: u64,
    /// The last request that is taken, after we said that we go away, and since when nothing is left to answer.
    leaving: Option<Leaving>,
    peer_leaves: Option<Refusal>,
}

#[derive(Debug)]
struct Leaving {
    last: u64,
    answered: Option<Time>,
}

/// Unanswered pings that a peer may have.
const PINGS_MAX: u32 = 64;
/// The acceptor stops reading while this much waits to be written, in bytes.
const UNWRITTEN_MAX: usize = 8 << 20;

impl Connection {
    /// A connection that has just been made.
    #[must_use]
    pub fn new(role: Role, terms: Terms, now: Time) -> Connection {
        let mut queue = Queue::default();
        if role == Role::Initiator {
            queue.copy(&terms.preface().encode(), now);
        }
        Connection {
            role,
            terms,
            state: State::Preface,
            input: Input::new(),
            queue,
            events: VecDeque::new(),
            calls: Calls::default(),
            taken: Taken::default(),
            started: now,
            heard: now,
            received: 0,
            pinged: None,
            pongs: 0,
            pings: 0,
            leaving: None,
            peer_leaves: None,
        }
    }

    /// What happened next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Makes a request, as soon as there is credit, and gives its number; its end is an [`Event::Answer`].
    pub fn call(&mut self, request: Outgoing, now: Time) -> u64 {
        let expires = now.after(request.deadline_ms.clamp(1, DEADLINE_MAX_MS));
        let id = self.calls.add(request, expires);
        let never = match (&self.state, &self.peer_leaves) {
            (State::Dead(error), _) => CallError::Lost { sent: false, why: error.to_string() },
            (_, Some(refusal)) => CallError::Refused(refusal.clone()),
            _ => {
                self.send_waiting(now);
                return id;
            }
        };
        self.calls.abandon(id, now);
        self.events.push_back(Event::Answer { id, result: Err(never) });
        id
    }

    /// The answer to a request of ours is no longer wanted: there will be no event.
    pub fn cancel(&mut self, id: u64, now: Time) {
        if self.calls.abandon(id, now.after(self.terms.timeouts.stall_ms)) {
            self.bare(Header::bare(FrameType::Cancel, id), now);
        }
        self.send_waiting(now);
    }

    /// Answers a request of the peer. Says whether it was the answer: not if there was one before. One that is larger than the caller takes is
    /// turned into a refusal.
    pub fn reply(&mut self, id: u64, reply: Reply, now: Time) -> bool {
        let Some(max) = self.taken.answer(id) else { return false };
        let len = (reply.body.len() + reply.bulk.len()) as u64;
        if len > u64::from(max) {
            let text = format!("the reply has {len} bytes, the caller takes {max}");
            self.send_refusal(FrameType::Error, id, &Refusal::new(Code::TOO_LARGE, text), now);
        } else {
            self.frame(Header::bare(FrameType::Reply, id), reply.body, reply.bulk, now);
        }
        self.note_answered(now);
        true
    }

    /// Refuses a request of the peer. Says whether it was the answer: not if there was one before.
    pub fn refuse(&mut self, id: u64, refusal: &Refusal, now: Time) -> bool {
        let taken = self.taken.answer(id).is_some();
        if taken {
            self.send_refusal(FrameType::Error, id, refusal, now);
            self.note_answered(now);
        }
        taken
    }

    /// Takes no more requests: the peer is told which were taken, and why there are no more.
    pub fn go_away(&mut self, refusal: &Refusal, now: Time) {
        if self.leaving.is_some() || !matches!(self.state, State::Ready(_)) {
            return;
        }
        let last = self.taken.last();
        self.leaving = Some(Leaving { last, answered: None });
        self.send_refusal(FrameType::GoAway, last, refusal, now);
        self.note_answered(now);
    }

    /// Fills `slices` with what is to be written, and says with how many of them.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.queue.slices(slices)
    }

    /// The first `len` bytes of what [`Connection::slices`] gave are written.
    pub fn written(&mut self, len: usize) {
        self.queue.advance(len);
        if self.queue.len() == 0 {
            self.pongs = 0;
        }
    }

    /// Bytes that the peer has sent, of whatever kind.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received
    }

    /// Bytes that are to be written.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.queue.len()
    }

    /// Whether bytes are to be read now: a peer that does not read its answers cannot ask more.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        self.role == Role::Initiator || self.queue.len() < UNWRITTEN_MAX
    }

    /// Whether the prefaces are exchanged, and on what.
    #[must_use]
    pub fn agreed(&self) -> Option<&Agreed> {
        match &self.state {
            State::Ready(agreed) => Some(agreed),
            _ => None,
        }
    }

    /// Whether everything is said: the peer is leaving, all is answered and written. The connection is to be closed.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.peer_leaves.is_some()
            && self.calls.none_in_flight()
            && self.taken.len() == 0
            && self.queue.len() == 0
    }

    /// Requests of the peer that are not answered.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.taken.len()
    }

    /// The connection is gone: every request of ours that somebody waits for ends, as an event.
    pub fn lost(&mut self, why: &str) {
        for (id, sent) in self.calls.take_all(self.queue.gone()) {
            let result = Err(CallError::Lost { sent, why: why.to_owned() });
            self.events.push_back(Event::Answer { id, result });
        }
        if !matches!(self.state, State::Dead(_)) {
            self.state = State::Dead(ProtocolError::Ended(Refusal::new(Code::FAILED, why)));
        }
    }

    /// Sends what waits for credit.
    fn send_waiting(&mut self, now: Time) {
        let State::Ready(agreed) = &self.state else { return };
        if self.peer_leaves.is_some() {
            return;
        }
        let limits = agreed.limits;
        while let Some((id, expires, request)) = self.calls.next(&limits) {
            match request {
                Err(error) => self.events.push_back(Event::Answer { id, result: Err(error) }),
                Ok(request) => {
                    self.calls.sent(id, &request, expires, self.queue.end());
                    let header = Header {
                        kind: request.kind,
                        deadline_ms: now.until(expires).max(1),
                        reply_max: request.reply_max,
                        ..Header::bare(FrameType::Request, id)
                    };
                    self.frame(header, request.body, request.bulk, now);
                }
            }
        }
    }

    fn frame(&mut self, header: Header, body: Bytes, bulk: Bytes, now: Time) {
        let checksum = self.terms.checksums.then(|| crc32c::crc32c_append(crc32c::crc32c(&body), &bulk));
        let header = Header { body: body.len() as u32, bulk: bulk.len() as u32, checksum, ..header };
        self.queue.frame(&header.encode(), body, bulk, now);
    }

    fn bare(&mut self, header: Header, now: Time) {
        self.frame(header, Bytes::new(), Bytes::new(), now);
    }

    fn send_refusal(&mut self, frame: FrameType, id: u64, refusal: &Refusal, now: Time) {
        let mut body = Vec::new();
        refusal.encode(&mut body);
        let header = Header { kind: refusal.code.0, ..Header::bare(frame, id) };
        self.frame(header, Bytes::from(body), Bytes::new(), now);
    }

    /// Notes when nothing was left to answer, after we said that we go away.
    fn note_answered(&mut self, now: Time) {
        if let Some(leaving) = &mut self.leaving
            && leaving.answered.is_none()
            && self.taken.len() == 0
        {
            leaving.answered = Some(now);
        }
    }

    /// The connection is over. The peer is told why, where it can be.
    fn die(&mut self, error: ProtocolError, now: Time) -> ProtocolError {
        let told = match &error {
            ProtocolError::Refused(refusal) => refusal.clone(),
            _ => Refusal::new(error.code(), error.to_string()),
        };
        match (&self.state, &error) {
            (_, ProtocolError::NotForebay | ProtocolError::Ended(_)) => {}
            (State::Ready(_), _) => {
                self.send_refusal(FrameType::GoAway, self.taken.last(), &told, now);
            }
            (State::Preface, _) if self.role == Role::Acceptor => {
                let refused = Preface { refused: Some(told.code), text: told.text, ..self.terms.preface() };
                self.queue.copy(&refused.encode(), now);
            }
            _ => {}
        }
        self.state = State::Dead(error.clone());
        error
    }
}
