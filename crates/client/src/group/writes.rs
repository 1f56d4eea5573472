//! What is asked of one member about segments: over a connection of its own.
//!
//! Guarantees: an append counts only where the member that it was meant for says that its log has it on stable storage, exactly up to where it ends. What is
//! asked may be asked again: the same append, seal and read have the same answer.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_group::{Append, GroupId, MemberId, ViewEpoch};
use forebay_protocol::{
    Kind, Message, Refusal, SealedSegment,
    group::{
        AppendPart, Appends, Copies, Greet, Greeted, ReadBack, ReadBackAnswer, Seal, SegmentAnswer, Taken,
    },
};
use forebay_rpc::{
    Address, Client, ClientConfig, Security,
    connection::{CallError, Outgoing, Reply},
    wire::{Code, Refusal as Refused},
};
use forebay_types::SegmentId;
use parking_lot::Mutex;

use super::{Reader, link::Turn, pace::Pace};
use crate::data::Appended;

/// How long a connection may be away that was lost, or is new.
const BACK_WITHIN: Duration = Duration::from_millis(500);
/// The longest pause between two attempts to connect.
const CONNECT_MAX_MS: u32 = 200;
/// How often one call may say who it is: a connection may be lost just after that.
const GREETS_MAX: u32 = 3;
/// Bytes of a reply beside those of a segment.
const REPLY_HEAD: u32 = 4096;
/// What a first answer may be expected to take, in microseconds.
const MEAN_FIRST_US: u64 = 5_000;

/// Who asks, and whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking<'a> {
    pub(super) reader: &'a Reader,
    pub(super) group: GroupId,
    /// The view of the group by which it is asked.
    pub(super) view: ViewEpoch,
    pub(super) member: MemberId,
    /// Until when there has to be an answer.
    pub(super) until: Instant,
}

impl Asking<'_> {
    fn left_ms(&self) -> u32 {
        let left = self.until.saturating_duration_since(Instant::now()).as_millis();
        u32::try_from(left).unwrap_or(u32::MAX).max(1)
    }
}

/// The connection to a member for what is written, once there is something.
#[derive(Debug)]
pub(super) struct WriteLink {
    address: Address,
    security: Security,
    client: Mutex<Option<Client>>,
    /// When it last let this client in; held while it is asked to.
    greeted: Mutex<Option<Instant>>,
    /// Mean time to answer a read, in microseconds.
    mean_us: AtomicU64,
    /// Bytes of appends that it has not answered, and how long they take.
    unanswered: AtomicU64,
    pace: Mutex<Pace>,
}

fn is_stranger(refusal: &Refused) -> bool {
    let denied = |detail: &[u8]| matches!(Refusal::decode(detail), Ok(Refusal::Denied(_)));
    refusal.code == Code::DENIED || (refusal.code == Code(Kind::REFUSED) && denied(&refusal.detail))
}

impl WriteLink {
    pub(super) fn new(address: &Address, security: &Security) -> WriteLink {
        WriteLink {
            address: address.clone(),
            security: security.clone(),
            client: Mutex::default(),
            greeted: Mutex::default(),
            mean_us: AtomicU64::new(MEAN_FIRST_US),
            unanswered: AtomicU64::new(0),
            pace: Mutex::new(Pace::new()),
        }
    }

    /// Bytes that have come over the connection that there is now.
    pub(super) fn received_bytes(&self) -> u64 {
        self.client.lock().as_ref().map_or(0, Client::received_bytes)
    }

    /// How long the bytes that are on their way to it may take.
    pub(super) fn carries(&self) -> Duration {
        let kib = self.unanswered.load(Relaxed).div_ceil(1024);
        self.pace.lock().carries(kib)
    }

    /// What a read may be expected to take, in microseconds; those that are not connected come last.
    pub(super) fn cost(&self) -> (bool, u64) {
        let down = self.client.lock().as_ref().is_none_or(|client| client.down().is_some());
        (down, self.mean_us.load(Relaxed))
    }

    /// Appends, and says up to where the member has its copy on stable storage, and by which view it goes.
    pub(super) fn append(
        &self,
        (append, copies): (&Append, Copies),
        asking: &Asking<'_>,
    ) -> Result<(Appended, ViewEpoch), String> {
        let Append { segment, epoch, offset, check, .. } = *append;
        let len = u32::try_from(append.bytes.len()).map_err(|_| "too many bytes at once".to_owned())?;
        let part = AppendPart { segment, epoch, copies, offset, len, check };
        let body = Appends { parts: vec![part] }.encode();
        let _unanswered = Turn::new(&self.unanswered, len.into());
        let kib = self.unanswered.load(Relaxed).div_ceil(1024);
        let began = Instant::now();
        let reply = self.ask((Kind::Append, body, append.bytes.clone()), REPLY_HEAD, asking)?;
        self.pace.lock().answered(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX), kib);
        let (taken, end) = taken(&reply, asking)?;
        if end != append.end() {
            return Err(format!("its copy is said to end at {end}, and was sent up to {}", append.end()));
        }
        let (pace, draining) = (Duration::from_micros(taken.pace_us), taken.draining);
        Ok((Appended { end, pace, draining }, taken.view))
    }

    /// Says that a segment ends.
    pub(super) fn seal(&self, sealed: &SealedSegment, asking: &Asking<'_>) -> Result<(), String> {
        let SealedSegment { segment, epoch, len, check } = *sealed;
        let body = Seal { segment, epoch, len, check }.encode();
        let reply = self.ask((Kind::Seal, body, Bytes::new()), REPLY_HEAD, asking)?;
        taken(&reply, asking).map(drop)
    }

    /// Bytes of a segment.
    pub(super) fn read(
        &self,
        segment: SegmentId,
        (from, len): (u64, u32),
        asking: &Asking<'_>,
    ) -> Result<Bytes, String> {
        let began = Instant::now();
        let to = from.checked_add(u64::from(len)).ok_or_else(|| "a range without an end".to_owned())?;
        let body = ReadBack { segment, from, to }.encode();
        let reply_max = len.saturating_add(REPLY_HEAD);
        let Reply { body, bulk } = self.ask((Kind::ReadBack, body, Bytes::new()), reply_max, asking)?;
        match ReadBackAnswer::decode(&body).map_err(|error| format!("an answer that is none: {error}"))? {
            ReadBackAnswer::Refused(why) => Err(why.to_string()),
            ReadBackAnswer::Read { .. } if bulk.len() != len as usize => {
                Err(format!("{} bytes in the place of {len}", bulk.len()))
            }
            // The caller verifies frames.
            ReadBackAnswer::Read { .. } => {
                let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX).min(1_000_000);
                self.mean_us.store((self.mean_us.load(Relaxed) * 7 + took) / 8, Relaxed);
                Ok(bulk)
            }
        }
    }

    fn client(&self) -> Result<Client, String> {
        let mut client = self.client.lock();
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let config = ClientConfig {
            backoff_max_ms: CONNECT_MAX_MS,
            ..ClientConfig::new(vec![self.address.clone()], self.security.clone())
        };
        let begun = Client::start(config, None).map_err(|error| format!("no thread: {error}"))?;
        Ok(client.insert(begun).clone())
    }

    /// Asks, again and again where the connection is lost and comes back soon.
    fn ask(
        &self,
        (kind, body, bulk): (Kind, Vec<u8>, Bytes),
        reply_max: u32,
        asking: &Asking<'_>,
    ) -> Result<Reply, String> {
        let client = self.client()?;
        let (kind, body) = (kind as u16, Bytes::from(body));
        let mut greets = 0;
        loop {
            wait_up(&client, asking)?;
            let deadline_ms = asking.left_ms();
            let (body, bulk) = (body.clone(), bulk.clone());
            match client.call_blocking(Outgoing { kind, body, bulk, deadline_ms, reply_max }) {
                Ok(reply) => return Ok(reply),
                Err(CallError::Refused(refusal)) if is_stranger(&refusal) && greets < GREETS_MAX => {
                    greets += 1;
                    self.greet(&client, asking)?;
                }
                Err(CallError::Lost { .. }) if Instant::now() < asking.until => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Says who asks, once for all who wait for that. Whoever answers has to be the member that is meant: another one may have its address by now.
    fn greet(&self, client: &Client, asking: &Asking<'_>) -> Result<(), String> {
        let asked = Instant::now();
        let mut greeted = self.greeted.lock();
        if greeted.is_some_and(|at| at >= asked) {
            return Ok(());
        }
        let Reader { id, token, client: name, .. } = asking.reader.clone();
        let greet = Greet { group: asking.group, volume: id, token, client: name };
        let (kind, body) = (Kind::Greet as u16, greet.encode().into());
        let (deadline_ms, reply_max) = (asking.left_ms(), REPLY_HEAD);
        let request = Outgoing { kind, body, bulk: Bytes::new(), deadline_ms, reply_max };
        let reply = client.call_blocking(request).map_err(|error| format!("no welcome: {error}"))?;
        let said = Greeted::decode(&reply.body).map_err(|error| format!("no welcome: {error}"))?;
        is_meant(said.member, asking)?;
        *greeted = Some(Instant::now());
        Ok(())
    }
}

fn is_meant(member: MemberId, asking: &Asking<'_>) -> Result<(), String> {
    if member == asking.member {
        return Ok(());
    }
    Err(format!("another member has its address by now: {member}"))
}

/// The answer of the member that was meant on one segment, and where its copy ends.
fn taken(reply: &Reply, asking: &Asking<'_>) -> Result<(Taken, u64), String> {
    let taken = Taken::decode(&reply.body).map_err(|error| format!("an answer that is none: {error}"))?;
    is_meant(taken.member, asking)?;
    match taken.parts.as_slice() {
        [SegmentAnswer::Synced { end }] => {
            let end = *end;
            Ok((taken, end))
        }
        [SegmentAnswer::Refused(why)] => Err(why.to_string()),
        several => Err(format!("{} answers to one question", several.len())),
    }
}

/// Waits for a connection as long as one may be away.
fn wait_up(client: &Client, asking: &Asking<'_>) -> Result<(), String> {
    let until = asking.until.min(Instant::now() + BACK_WITHIN);
    while let Some(why) = client.down() {
        if Instant::now() >= until {
            return Err(format!("not connected: {why}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
