//! What a member answers to writers, to whoever recovers or reads what they wrote, and to other members.
//!
//! Guarantees: nothing is said to be taken before it is on stable storage; what is taken in is decided under the log's lock, by a clock that is looked at there. A
//! connection waits for nobody else's: the log's thread serves all, and what has no room waits by itself, unanswered, until its caller gives up.
//!
//! Relies on: [`Standing`] says whether this member acts; [`Vouching`] who may use which volume.

mod answer;
mod greet;
mod here;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use forebay_group::{GroupId, Incarnation, MemberId, NotActing, ViewEpoch};
use forebay_protocol::{
    Kind, Message, Refusal,
    group::{Vouch, Vouched},
};
use forebay_rpc::{
    Handler, Handling, Peer,
    connection::{Reply, Request},
    wire::{Code, Refusal as WireRefusal},
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::log::Log;
use greet::Bound;
pub use here::WrittenHere;

/// Whether this member acts. Asked under the log's lock: it does not wait, and asks the log for nothing.
pub trait Standing: Send + Sync {
    /// Whether what belongs to a segment that is here may be taken in now, or a new one where `opens`.
    ///
    /// # Errors
    /// [`NotActing`].
    fn may(&self, opens: bool) -> Result<(), NotActing>;

    /// As what, by which view (0 without one), and whether it is being drained.
    fn now(&self) -> (Incarnation, ViewEpoch, bool);
}

/// Who asks a metadata server whether the bearer of a token may use a volume.
pub trait Vouching: Send + Sync {
    /// Asks. Blocks.
    ///
    /// # Errors
    /// The server's refusal; [`Refusal::Unavailable`] where none answers.
    fn vouch(&self, vouch: &Vouch) -> Result<Vouched, Refusal>;
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts {
    refused: AtomicU64,
    waited: AtomicU64,
    fenced: AtomicU64,
    read_back_bytes: AtomicU64,
}

/// What was counted since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Parts of appends, seals and copies that were refused.
    pub refused: u64,
    /// Appends that waited for room.
    pub waited: u64,
    /// Segments that were fenced.
    pub fenced: u64,
    /// Bytes that were read back.
    pub read_back_bytes: u64,
}

/// Answers what is asked about segments that are being written. Shared by all connections.
pub struct WriteBack {
    group: GroupId,
    member: MemberId,
    log: Arc<Log>,
    standing: Arc<dyn Standing>,
    vouching: Arc<dyn Vouching>,
    /// By the address of the peer in memory, which it keeps for its lifetime.
    bound: Mutex<FxHashMap<usize, Arc<Bound>>>,
    written_here: Arc<WrittenHere>,
    counts: Counts,
}

impl fmt::Debug for WriteBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteBack({:?}, {} connections)", self.member, self.bound.lock().len())
    }
}

/// Why a request is not answered as its caller wished.
pub(crate) struct Refused(WireRefusal);

impl From<WireRefusal> for Refused {
    fn from(refusal: WireRefusal) -> Refused {
        Refused(refusal)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused(WireRefusal::new(Code(Kind::REFUSED), refusal.to_string()).detailed(refusal.encode()))
    }
}

fn decode<T: Message>(body: &[u8]) -> Result<T, Refused> {
    T::decode(body).map_err(|error| malformed(error.to_string()))
}

fn malformed(why: impl Into<String>) -> Refused {
    WireRefusal::new(Code::MALFORMED, why.into()).into()
}

fn reply(message: &impl Message, bulk: Bytes) -> Reply {
    Reply { body: message.encode().into(), bulk }
}

impl WriteBack {
    /// Serves what is in a log.
    #[must_use]
    pub fn new(
        (group, member): (GroupId, MemberId),
        log: Arc<Log>,
        standing: Arc<dyn Standing>,
        vouching: Arc<dyn Vouching>,
    ) -> Arc<WriteBack> {
        let (bound, written_here, counts) = (Mutex::default(), Arc::default(), Counts::default());
        Arc::new(WriteBack { group, member, log, standing, vouching, bound, written_here, counts })
    }

    /// Whether requests of this kind are answered here.
    #[must_use]
    pub fn answers(kind: Kind) -> bool {
        use Kind::{Append, Copy, Fence, Greet, ReadBack, Seal};
        matches!(kind, Greet | Append | Seal | Fence | ReadBack | Copy)
    }

    /// For whom it answers.
    #[must_use]
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// What clients of this machine have written.
    #[must_use]
    pub fn written_here(&self) -> &Arc<WrittenHere> {
        &self.written_here
    }

    /// What was counted.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let counts = &self.counts;
        Counted {
            refused: counts.refused.load(Relaxed),
            waited: counts.waited.load(Relaxed),
            fenced: counts.fenced.load(Relaxed),
            read_back_bytes: counts.read_back_bytes.load(Relaxed),
        }
    }

    async fn answer(self: Arc<Self>, peer: Arc<Peer>, request: Request) -> Result<Reply, Refused> {
        let Some(kind) = Kind::of(request.kind).filter(|kind| WriteBack::answers(*kind)) else {
            let text = format!("a member answers no message of kind {}", request.kind);
            return Err(WireRefusal::new(Code::UNSUPPORTED, text).into());
        };
        if kind == Kind::Greet {
            return self.greet(peer, &request.body).await;
        }
        let bound = self.entered(&peer).await?;
        match kind {
            Kind::Append => self.append(&bound, &request).await,
            Kind::Seal => self.seal(&bound, &request).await,
            Kind::Fence => self.fence(&bound, &request).await,
            Kind::ReadBack => self.read_back(&bound, &request).await,
            _ => self.copy(&bound, &request).await,
        }
    }
}

/// [`WriteBack`] as a handler of connections.
#[derive(Clone, Debug)]
pub struct Serving(pub Arc<WriteBack>);

impl Handler for Serving {
    fn handle(&self, peer: &Arc<Peer>, request: Request) -> Handling {
        let (writeback, peer) = (Arc::clone(&self.0), Arc::clone(peer));
        Box::pin(async move { writeback.answer(peer, request).await.map_err(|Refused(refusal)| refusal) })
    }

    fn closed(&self, peer: &Arc<Peer>) {
        self.0.forget(peer);
    }
}
