//! Reads: what clients and other members are answered.
//!
//! Guarantees: bytes that are sent were verified against the cache's checksums, or come straight from the store; whoever reads was let in by the metadata
//! servers with a token for the volume; a fetch that the store does not answer holds nobody but those who asked for it, and readers of what is here wait for no
//! store. Relies on objects being immutable.

mod before;
mod counts;
mod door;
mod heats;
mod numbers;
mod store;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use forebay_cache::ObjectKey;
use forebay_group::{PieceKey, ViewEpoch};
use forebay_object::{ErrorKind, ObjectError};
use forebay_protocol::{
    Kind, Message, Refusal,
    group::{Distrust, Fetch, Fetched, Peek, Walk, Warm, Warmed},
};
use forebay_rpc::{
    Handler, Handling, Peer,
    connection::{Reply, Request},
    wire::{Code, Refusal as WireRefusal},
};
use tokio::sync::Semaphore;

use crate::membership::{Place, now};

pub(crate) use counts::Counts;
pub(crate) use door::Door;
pub(crate) use numbers::VolumeNumber;
pub(crate) use store::Objects;
pub use store::ObjectsError;

use door::Guest;

/// Bytes of one fetch at most.
const FETCH_MAX: u32 = 8 << 20;
/// Fetches that wait for stores at a time; more are refused, and those who ask go to the store themselves.
pub(crate) const MISSES: usize = 256;
/// Of what is only to be here soon so many at a time, so that readers find turns; more wait.
const WARMING: usize = 32;
/// Reads from the disk at a time.
pub(crate) const HITS: usize = 128;
/// How long a fetch that does not wait is answered late for: the store may be near.
const NEAR: Duration = Duration::from_millis(2);

/// What a proxy answers.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) objects: Arc<Objects>,
    pub(crate) place: Arc<Place>,
    pub(crate) door: Door,
    pub(crate) counts: Arc<Counts>,
    heats: heats::Heats,
    before: before::Before,
    misses: Arc<Semaphore>,
    warming: Arc<Semaphore>,
}

type Answer = Result<(Vec<u8>, Bytes), WireRefusal>;

impl Reads {
    pub(crate) fn new(
        objects: Arc<Objects>,
        place: Arc<Place>,
        door: Door,
        counts: Arc<Counts>,
        before: before::Before,
    ) -> Reads {
        let (misses, warming) = (Arc::new(Semaphore::new(MISSES)), Arc::new(Semaphore::new(WARMING)));
        Reads { objects, place, door, counts, heats: heats::Heats::default(), before, misses, warming }
    }

    async fn answer(self: Arc<Self>, kind: Kind, peer: Arc<Peer>, body: Bytes) -> Answer {
        match kind {
            Kind::Fetch => {
                let guest = self.door.guest(&peer)?;
                self.fetch(&guest, decode(&body)?).await
            }
            Kind::Peek => {
                let guest = self.door.guest(&peer)?;
                self.peek(&guest, decode(&body)?).await
            }
            Kind::Warm => {
                let guest = self.door.guest(&peer)?;
                self.warm(&guest, decode(&body)?).await
            }
            Kind::Distrust => {
                let wrong: Distrust = decode(&body)?;
                let guest = self.door.guest(&peer)?;
                self.distrust(&guest, wrong);
                Ok((Vec::new(), Bytes::new()))
            }
            // Without a thread or a lock of the cache: it measures the way here.
            Kind::Near => self.door.guest(&peer).map(|_| (Vec::new(), Bytes::new())),
            _ => Err(WireRefusal::new(Code::UNSUPPORTED, "that is asked of metadata servers")),
        }
    }

    /// Lets somebody in who greets, or does not.
    pub(crate) async fn let_in(self: &Arc<Self>, peer: &Arc<Peer>, body: &[u8]) -> Result<(), WireRefusal> {
        let greet = decode(body)?;
        let (reads, peer) = (Arc::clone(self), Arc::clone(peer));
        let greeting = tokio::task::spawn_blocking(move || reads.door.greet(&peer, greet, &reads.objects));
        greeting.await.map_err(failed)?.map_err(|refusal| {
            let (text, detail) = (refusal.to_string(), refusal.encode());
            WireRefusal::new(Code(Kind::REFUSED), text).detailed(detail)
        })
    }

    fn key(guest: &Guest, object: forebay_format::row::ObjectRef) -> Result<ObjectKey, WireRefusal> {
        let none = || WireRefusal::new(Code::MALFORMED, "no volume has such an object");
        guest.number.key(object).ok_or_else(none)
    }

    async fn fetch(self: Arc<Self>, guest: &Arc<Guest>, fetch: Fetch) -> Answer {
        let key = Reads::key(guest, fetch.object)?;
        if fetch.len > FETCH_MAX || fetch.offset.checked_add(u64::from(fetch.len)).is_none() {
            return Err(WireRefusal::new(Code::MALFORMED, format!("a fetch of {} bytes", fetch.len)));
        }
        if fetch.len > 0 {
            let (objects, walk) = (Arc::clone(&self.objects), fetch.walk);
            let (offset, len) = (fetch.offset, u64::from(fetch.len));
            let peeking = tokio::task::spawn_blocking(move || objects.peek(key, offset, len, walk));
            if let Some(bytes) = peeking.await.map_err(failed)? {
                self.counts.hit(bytes.len(), guest.here);
                return Ok(self.here(&fetch, bytes));
            }
        } else if let Some(len) = self.objects.known_length(key) {
            return Ok((Fetched::Length(len).encode(), Bytes::new()));
        }
        self.miss(guest, key, fetch).await
    }

    fn here(&self, fetch: &Fetch, bytes: Bytes) -> (Vec<u8>, Bytes) {
        let width = self.heats.read(PieceKey::of(fetch.segment, fetch.at), now());
        let epoch = self.epoch();
        (Fetched::Here { width, epoch }.encode(), bytes)
    }

    fn epoch(&self) -> ViewEpoch {
        self.place.look(|place| place.view().map_or(ViewEpoch(0), |view| view.epoch))
    }

    /// In a task of its own: what was begun is cached, whoever gives up on it.
    async fn miss(self: Arc<Self>, guest: &Arc<Guest>, key: ObjectKey, fetch: Fetch) -> Answer {
        let Ok(turn) = Arc::clone(&self.misses).try_acquire_owned() else {
            let refusal = WireRefusal::new(Code::BUSY, "too many fetches wait for stores");
            return Err(WireRefusal { retry_after_ms: 100, ..refusal });
        };
        let (reads, guest) = (Arc::clone(&self), Arc::clone(guest));
        let mut fetching = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            reads.bring(&guest, key, &fetch)
        });
        let brought = match fetch.waits {
            true => fetching.await,
            false => match tokio::time::timeout(NEAR, &mut fetching).await {
                Ok(brought) => brought,
                Err(_late) => return Ok((Fetched::Coming.encode(), Bytes::new())),
            },
        };
        match brought.map_err(failed)? {
            Ok(Brought::Bytes(bytes)) => Ok(self.here(&fetch, bytes)),
            Ok(Brought::Length(len)) => Ok((Fetched::Length(len).encode(), Bytes::new())),
            Err(error) => Err(self.explain(key, &error)),
        }
    }

    /// What was asked for, from the member that had it before, or from the store.
    fn bring(&self, guest: &Guest, key: ObjectKey, fetch: &Fetch) -> Result<Brought, ObjectError> {
        let len = self.objects.length(key)?;
        if fetch.len == 0 {
            return Ok(Brought::Length(len));
        }
        self.before.bring(&self.objects, &self.place, guest, (key, len), fetch, &self.counts);
        let bytes = self.objects.read(key, fetch.offset, u64::from(fetch.len), fetch.walk)?;
        self.counts.missed(bytes.len(), guest.here);
        Ok(Brought::Bytes(bytes))
    }

    /// Has bytes here that somebody will want, from the member that had them before or from the store. Who gives up on it leaves it going on.
    async fn warm(self: Arc<Self>, guest: &Arc<Guest>, warm: Warm) -> Answer {
        let key = Reads::key(guest, warm.object)?;
        if warm.len == 0 || warm.len > FETCH_MAX || warm.offset.checked_add(u64::from(warm.len)).is_none() {
            return Err(WireRefusal::new(Code::MALFORMED, format!("{} bytes are to be here", warm.len)));
        }
        let closed = |error: tokio::sync::AcquireError| WireRefusal::new(Code::FAILED, error.to_string());
        let warming = Arc::clone(&self.warming).acquire_owned().await.map_err(closed)?;
        let turn = (warming, Arc::clone(&self.misses).acquire_owned().await.map_err(closed)?);
        let (reads, guest) = (Arc::clone(&self), Arc::clone(guest));
        let bringing = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            reads.bring_near(&guest, key, &warm)
        });
        match bringing.await.map_err(failed)? {
            Ok(warmed) => Ok((warmed.encode(), Bytes::new())),
            Err(error) => Err(self.explain(key, &error)),
        }
    }

    fn bring_near(&self, guest: &Guest, key: ObjectKey, warm: &Warm) -> Result<Warmed, ObjectError> {
        let Warm { object, offset, len, segment, at } = *warm;
        let object_len = self.objects.length(key)?;
        let end = offset.saturating_add(u64::from(len)).min(object_len);
        let missing = self.objects.missing(key, object_len, offset..end);
        if missing > 0 {
            let fetch = Fetch { object, offset, len, segment, at, walk: Walk::Sequential, waits: true };
            self.before.bring(&self.objects, &self.place, guest, (key, object_len), &fetch, &self.counts);
        }
        let forebay_cache::Warmed { cached, fetched, lost } =
            self.objects.warm(key, object_len, offset..end)?;
        Ok(Warmed { cached: (cached + fetched).saturating_sub(missing), fetched: missing, lost })
    }

    fn explain(&self, key: ObjectKey, error: &ObjectError) -> WireRefusal {
        let refusal = match error.kind() {
            ErrorKind::NotFound | ErrorKind::NoBucket => {
                self.objects.forget(key);
                Refusal::Invalid(error.to_string())
            }
            _ => Refusal::Unavailable(error.to_string()),
        };
        WireRefusal::new(Code(Kind::REFUSED), refusal.to_string()).detailed(refusal.encode())
    }

    async fn peek(self: Arc<Self>, guest: &Arc<Guest>, peek: Peek) -> Answer {
        let key = Reads::key(guest, peek.object)?;
        let len = u64::from(peek.len.min(FETCH_MAX));
        let objects = Arc::clone(&self.objects);
        let walk = Walk::Nearby;
        let peeking = tokio::task::spawn_blocking(move || objects.peek(key, peek.offset, len, walk));
        let bytes = peeking.await.map_err(failed)?.unwrap_or_default();
        self.counts.peeked(bytes.len());
        Ok((Vec::new(), bytes))
    }

    /// What is cached of these bytes is dropped, whether or not it is what the store has: who asks next has it fetched again.
    fn distrust(&self, guest: &Guest, wrong: Distrust) {
        if let Some(key) = guest.number.key(wrong.object) {
            tracing::warn!(object = %key, offset = wrong.offset, "a client found bytes wrong: they are fetched again");
            self.objects.distrust(key, wrong.offset, u64::from(wrong.len));
            self.counts.distrusted();
        }
    }

    /// How many pieces are asked for on more than one member.
    pub(crate) fn wide_pieces(&self) -> u64 {
        self.heats.wide(now())
    }
}

enum Brought {
    Bytes(Bytes),
    Length(u64),
}

fn failed(error: tokio::task::JoinError) -> WireRefusal {
    WireRefusal::new(Code::FAILED, error.to_string())
}

fn decode<T: Message>(body: &[u8]) -> Result<T, WireRefusal> {
    T::decode(body).map_err(|error| WireRefusal::new(Code::MALFORMED, error.to_string()))
}

/// Answers requests, as the network hands them on.
#[derive(Clone, Debug)]
pub(crate) struct Serving(pub(crate) Arc<Reads>);

impl Handler for Serving {
    fn handle(&self, peer: &Arc<Peer>, request: Request) -> Handling {
        let (reads, peer) = (Arc::clone(&self.0), Arc::clone(peer));
        Box::pin(async move {
            let Some(kind) = Kind::of(request.kind) else {
                let text = format!("this release knows no message of kind {}", request.kind);
                return Err(WireRefusal::new(Code::UNSUPPORTED, text));
            };
            let (body, bulk) = reads.answer(kind, peer, request.body).await?;
            Ok(Reply { body: body.into(), bulk })
        })
    }

    fn closed(&self, peer: &Arc<Peer>) {
        self.0.door.leave(peer);
    }
}

pub(crate) use before::Before;
