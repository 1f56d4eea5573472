//! A connection to a member of a group.

use std::{
    cell::RefCell,
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_group::{GroupId, ViewEpoch};
use forebay_protocol::{
    Kind, Message, Refusal,
    group::{Distrust, Fetch, Fetched, Greet, Peek},
};
use forebay_rpc::{
    ASKED_EVERY, Address, Client, ClientConfig, Security,
    connection::{CallError, Outgoing, Reply},
    wire::{Code, Refusal as Refused},
};
use parking_lot::Mutex;

use super::{
    Reader,
    pace::{Awaited, Pace},
    writes::WriteLink,
};

/// How long it may take to fetch from the store what it does not have, and to send what it has, as long as bytes come.
const STORE_MS: u32 = 10_000;
const CARRY_MS: u32 = 10_000;
/// How long until some come where it is asked for a second time whether it has something.
const PEEK: Duration = Duration::from_secs(1);
/// How long it may take to let this client in.
const GREET_MS: u32 = 5_000;
/// What a first answer may be expected to take, in microseconds.
const MEAN_FIRST_US: u64 = 5_000;
/// How long one is not asked that did not answer in time, that does not let this client in, or that has too much to do.
const SUSPECT_FOR: Duration = Duration::from_secs(1);
const OUT_FOR: Duration = Duration::from_secs(5);
const BUSY_FOR: Duration = Duration::from_millis(50);
/// Bytes of a reply beside those of the object.
const REPLY_HEAD: u32 = 4096;
/// How long the first connection may take.
const CONNECT: Duration = Duration::from_millis(200);

/// What became of a fetch.
#[derive(Debug)]
pub(super) enum Answered {
    /// The bytes, on how many members the piece is, and the view that the member goes by.
    Bytes(Bytes, u32, ViewEpoch),
    /// The length of the object.
    Length(u64),
    /// The member does not have it, and asks the store: [`MemberLink::brought`] waits for that.
    Coming,
    /// The member asked the store, which does not answer or refuses.
    StoreFails,
    /// The member asked the store, which has no such object.
    NotThere,
    /// No answer in time; it may have it.
    Late,
    /// No answer: another one is to be asked.
    Nothing,
}

/// A member, as this client reaches it.
pub(super) struct MemberLink {
    pub(super) address: String,
    /// Whether it is on this machine.
    pub(super) on_node: bool,
    pub(super) at: Address,
    security: Security,
    /// The connection, once it is wanted, and since when.
    client: OnceLock<(Client, Instant)>,
    in_flight: AtomicU64,
    /// Bytes that it was asked for and has not sent.
    asked_bytes: AtomicU64,
    /// Mean time to answer, in microseconds.
    mean_us: AtomicU64,
    pace: Mutex<Pace>,
    /// Until when it is not asked.
    out_until: Mutex<Option<Instant>>,
    /// When it last let this client in; held while it is asked to.
    greeted: Mutex<Option<Instant>>,
    /// For what is written, which does not hold up reads.
    pub(super) writes: WriteLink,
}

impl fmt::Debug for MemberLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberLink({})", self.address)
    }
}

/// Counts a request, or its bytes, while it lives.
pub(super) struct Turn<'a>(&'a AtomicU64, u64);

impl<'a> Turn<'a> {
    pub(super) fn new(counter: &'a AtomicU64, by: u64) -> Turn<'a> {
        counter.fetch_add(by, Relaxed);
        Turn(counter, by)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Relaxed);
    }
}

enum Why {
    /// It wants to be greeted first.
    Stranger,
    StoreFails,
    NotThere,
    /// It did not answer in time.
    Late,
    Nothing,
}

impl From<Why> for Answered {
    fn from(why: Why) -> Answered {
        match why {
            Why::StoreFails => Answered::StoreFails,
            Why::NotThere => Answered::NotThere,
            Why::Late => Answered::Late,
            Why::Stranger | Why::Nothing => Answered::Nothing,
        }
    }
}

/// How long an answer is waited for.
#[derive(Clone, Copy)]
struct Wait<'a> {
    /// At most.
    deadline_ms: u32,
    /// And as long as this says so, asked from then on.
    first: Duration,
    goes_on: Option<&'a dyn Fn() -> bool>,
}

impl Wait<'_> {
    fn until(deadline_ms: u32) -> Wait<'static> {
        Wait { deadline_ms, first: ASKED_EVERY, goes_on: None }
    }
}

impl MemberLink {
    /// A member that is not connected yet.
    pub(super) fn new(at: Address, address: &str, on_node: bool, security: &Security) -> MemberLink {
        MemberLink {
            address: address.to_owned(),
            on_node,
            security: security.clone(),
            client: OnceLock::new(),
            in_flight: AtomicU64::new(0),
            asked_bytes: AtomicU64::new(0),
            mean_us: AtomicU64::new(MEAN_FIRST_US),
            pace: Mutex::new(Pace::new()),
            out_until: Mutex::default(),
            greeted: Mutex::default(),
            writes: WriteLink::new(&at, security),
            at,
        }
    }

    /// Connects in the background, by a thread of its own. `None`: there can be none now.
    fn client(&self) -> Option<&(Client, Instant)> {
        if self.client.get().is_none() {
            match Client::start(ClientConfig::new(vec![self.at.clone()], self.security.clone()), None) {
                // Another thread may have been faster.
                Ok(client) => drop(self.client.set((client, Instant::now()))),
                Err(error) => tracing::warn!("no thread for a connection to {}: {error}", self.address),
            }
        }
        self.client.get()
    }

    /// It is likely to be asked.
    pub(super) fn begin(&self) {
        let _begun = self.client();
    }

    /// Why it cannot be asked now, as far as is known.
    pub(super) fn down(&self) -> Option<String> {
        self.client.get().map_or(Some("not connected".to_owned()), |(client, _)| client.down())
    }

    /// How long a request may be expected to take now, in microseconds.
    pub(super) fn cost(&self) -> u64 {
        (self.in_flight.load(Relaxed) + 1) * self.mean_us.load(Relaxed).max(1)
    }

    fn is_out(&self) -> bool {
        let mut until = self.out_until.lock();
        if until.is_some_and(|until| until <= Instant::now()) {
            *until = None;
        }
        until.is_some()
    }

    fn put_out(&self, time: Duration) {
        *self.out_until.lock() = Some(Instant::now() + time);
    }

    /// Whether it is connected; one that is new is given a moment.
    pub(super) fn is_up(&self) -> bool {
        let Some((client, began)) = self.client() else { return false };
        while client.down().is_some() {
            if began.elapsed() > CONNECT {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// Asks, whether or not it is connected.
    pub(super) fn request(&self, request: Outgoing) -> Result<Reply, CallError> {
        self.request_while(request, Wait::until(STORE_MS))
    }

    fn request_while(&self, request: Outgoing, wait: Wait<'_>) -> Result<Reply, CallError> {
        let Some((client, _)) = self.client() else {
            return Err(CallError::Lost {
                sent: false,
                why: "there is no thread for a connection".to_owned(),
            });
        };
        client.call_blocking_while(request, wait.first, wait.goes_on)
    }

    /// Fetches bytes, or a length. A member that does not have them says so at once.
    pub(super) fn fetch(&self, fetch: &Fetch, reader: &Reader, group: GroupId) -> Answered {
        if self.is_out() || !self.is_up() {
            return Answered::Nothing;
        }
        let _turn = Turn::new(&self.in_flight, 1);
        let asked = match self.ask(fetch) {
            Err(Why::Stranger) if self.greet(reader, group) => self.ask(fetch),
            asked => asked,
        };
        asked.unwrap_or_else(Answered::from)
    }

    /// Bytes that the member has, all of them; it asks nobody for them. Also one that is left alone is asked.
    pub(super) fn peek(&self, fetch: &Fetch, reader: &Reader, group: GroupId) -> Option<Answered> {
        let Fetch { object, offset, len, .. } = *fetch;
        let peek = Peek { object, offset, len }.encode();
        let reply_max = len.saturating_add(REPLY_HEAD);
        let ask = || self.while_it_sends(PEEK, |wait| self.call(Kind::Peek, peek.clone(), reply_max, wait));
        if self.down().is_some() {
            return None;
        }
        let _turn = Turn::new(&self.in_flight, 1);
        let _asked = Turn::new(&self.asked_bytes, u64::from(len));
        let asked = match ask() {
            Err(Why::Stranger) if self.greet(reader, group) => ask(),
            asked => asked,
        };
        let bytes = asked.ok()?.bulk;
        // Of its width and its view it says nothing.
        (bytes.len() == len as usize).then_some(Answered::Bytes(bytes, 1, ViewEpoch(0)))
    }

    fn ask(&self, fetch: &Fetch) -> Result<Answered, Why> {
        let mean = self.mean_us.load(Relaxed);
        let _asked = Turn::new(&self.asked_bytes, u64::from(fetch.len));
        let kib = self.asked_bytes.load(Relaxed).div_ceil(1024);
        let patience = self.pace.lock().patience(kib);
        let began = Instant::now();
        let first = self.while_it_sends(patience, |wait| self.call_fetch(fetch, wait));
        if matches!(first, Err(Why::Late)) && self.pace.lock().late() {
            self.put_out(SUSPECT_FOR);
        }
        let first = first?;
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        // One that has to fetch has sent no bytes.
        self.pace.lock().answered(took, if first.is_some() { kib } else { 0 });
        if let Some(answered) = first {
            // Times of those that wait for the store say nothing of the member.
            self.mean_us.store((mean * 7 + took.min(1_000_000)) / 8, Relaxed);
            return Ok(answered);
        }
        Ok(Answered::Coming)
    }

    /// Has a request made that is waited for as long as the member sends what may be before the answer, if some of that comes within `first`; ten seconds at most.
    fn while_it_sends<T>(&self, first: Duration, call: impl FnOnce(Wait<'_>) -> T) -> T {
        let received = || self.client.get().map_or(0, |(client, _)| client.received_bytes());
        let awaited = RefCell::new(Awaited::new(received(), self.asked_bytes.load(Relaxed)));
        let goes_on = || awaited.borrow_mut().may_come(received(), Instant::now());
        call(Wait { deadline_ms: CARRY_MS, first, goes_on: Some(&goes_on) })
    }

    /// Waits for what the member has said to be coming, at most for ten seconds and while `goes_on` says so, which is asked four times a second ([`Answered::Late`]).
    pub(super) fn brought(&self, fetch: &Fetch, goes_on: Option<&dyn Fn() -> bool>) -> Answered {
        let _turn = Turn::new(&self.in_flight, 1);
        let _asked = Turn::new(&self.asked_bytes, u64::from(fetch.len));
        let waits = Fetch { waits: true, ..*fetch };
        match self.call_fetch(&waits, Wait { goes_on, ..Wait::until(STORE_MS) }) {
            Ok(Some(brought)) => brought,
            Ok(None) => Answered::Nothing,
            Err(why) => why.into(),
        }
    }

    /// `None`: what is wanted is being fetched.
    fn call_fetch(&self, fetch: &Fetch, wait: Wait<'_>) -> Result<Option<Answered>, Why> {
        let reply_max = fetch.len.saturating_add(REPLY_HEAD);
        let Reply { body, bulk } = self.call(Kind::Fetch, fetch.encode(), reply_max, wait)?;
        match Fetched::decode(&body) {
            Ok(Fetched::Here { width, epoch }) => Ok(Some(Answered::Bytes(bulk, width, epoch))),
            Ok(Fetched::Length(len)) => Ok(Some(Answered::Length(len))),
            Ok(Fetched::Coming) => Ok(None),
            Err(error) => {
                tracing::warn!("the proxy at {} answers what cannot be read: {error}", self.address);
                self.put_out(OUT_FOR);
                Err(Why::Nothing)
            }
        }
    }

    fn call(&self, kind: Kind, body: Vec<u8>, reply_max: u32, wait: Wait<'_>) -> Result<Reply, Why> {
        let (kind, body, bulk) = (kind as u16, body.into(), Bytes::new());
        let deadline_ms = wait.deadline_ms;
        match self.request_while(Outgoing { kind, body, bulk, deadline_ms, reply_max }, wait) {
            Ok(reply) => Ok(reply),
            Err(CallError::Refused(refusal)) => Err(self.refused(&refusal)),
            Err(CallError::Deadline { .. } | CallError::GivenUp) => Err(Why::Late),
            Err(CallError::Lost { .. } | CallError::TooLarge { .. }) => Err(Why::Nothing),
        }
    }

    fn refused(&self, refusal: &Refused) -> Why {
        if refusal.code == Code(Kind::REFUSED) {
            return match Refusal::decode(&refusal.detail) {
                Ok(Refusal::Unavailable(_)) => Why::StoreFails,
                Ok(Refusal::Invalid(_)) => Why::NotThere,
                _ => {
                    self.put_out(OUT_FOR);
                    Why::Nothing
                }
            };
        }
        match refusal.code {
            Code::DENIED => Why::Stranger,
            Code::BUSY => {
                self.put_out(BUSY_FOR);
                Why::Nothing
            }
            Code::GOING_AWAY => Why::Nothing,
            _ => {
                self.put_out(OUT_FOR);
                Why::Nothing
            }
        }
    }

    /// Says who reads, once for all who wait for that. Says whether the member lets this client in.
    pub(super) fn greet(&self, reader: &Reader, group: GroupId) -> bool {
        let asked = Instant::now();
        let mut greeted = self.greeted.lock();
        if greeted.is_some_and(|at| at >= asked) {
            return true;
        }
        let Reader { id, token, client, .. } = reader.clone();
        let greet = Greet { group, volume: id, token, client };
        let (kind, body) = (Kind::Greet as u16, greet.encode().into());
        let request =
            Outgoing { kind, body, bulk: Bytes::new(), deadline_ms: GREET_MS, reply_max: REPLY_HEAD };
        match self.request(request) {
            Ok(_) => {
                *greeted = Some(Instant::now());
                true
            }
            Err(error) => {
                tracing::debug!("the proxy at {} does not let this client in: {error}", self.address);
                self.put_out(if matches!(error, CallError::Lost { .. }) { BUSY_FOR } else { OUT_FOR });
                false
            }
        }
    }

    /// Tells the member that bytes were wrong. If it does not hear it, it hears it from the next one.
    pub(super) fn distrust(&self, wrong: &Distrust, reader: &Reader, group: GroupId) {
        let tell = || self.call(Kind::Distrust, wrong.encode(), REPLY_HEAD, Wait::until(GREET_MS));
        if !self.is_out() && self.down().is_none() && matches!(tell(), Err(Why::Stranger)) {
            let _heard = self.greet(reader, group) && tell().is_ok();
        }
    }
}
