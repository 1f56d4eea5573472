//! Which connection a session is on, and what it is told there.
//!
//! Guarantees: a push never waits for a client; what a session was told while it was on no connection, or on one that was lost, it is told again when it comes
//! back, as long as the owner still means it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use forebay_cluster::{SLOTS, SessionId};
use forebay_protocol::{Kind, Message, Push, Recall};
use forebay_rpc::{
    Peer,
    connection::{CallError, Outgoing},
    wire::Code,
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// How long a client may take to acknowledge a push, in milliseconds. It acknowledges it before it does what it says.
const PUSH_MS: u32 = 10_000;

/// Requests of one session that are taken in and not answered.
const REQUESTS_MAX: usize = 4 * SLOTS as usize;

/// A session, as its server knows it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// The connection that it is on.
    pub(crate) peer: Arc<Peer>,
    /// What the client calls itself.
    pub(crate) client: String,
}

/// The sessions of one volume that are on a connection.
#[derive(Debug)]
pub(crate) struct Links {
    runtime: Handle,
    all: Mutex<FxHashMap<SessionId, Link>>,
    pushes: Arc<AtomicU64>,
    /// What each session may still ask at once.
    rooms: Mutex<FxHashMap<SessionId, Arc<Semaphore>>>,
}

impl Links {
    pub(crate) fn new(runtime: Handle) -> Links {
        Links { runtime, all: Mutex::default(), pushes: Arc::default(), rooms: Mutex::default() }
    }

    /// A session is on this connection from now on.
    pub(crate) fn put(&self, session: SessionId, link: Link) {
        self.all.lock().insert(session, link);
    }

    /// A session is no longer on this connection; it may be on another one by now.
    pub(crate) fn drop_of(&self, session: SessionId, peer: &Arc<Peer>) {
        let mut all = self.all.lock();
        if all.get(&session).is_some_and(|link| Arc::ptr_eq(&link.peer, peer)) {
            all.remove(&session);
        }
    }

    /// Whether a session is on this connection.
    pub(crate) fn is_on(&self, session: SessionId, peer: &Arc<Peer>) -> bool {
        self.all.lock().get(&session).is_some_and(|link| Arc::ptr_eq(&link.peer, peer))
    }

    /// Room for a request of a session, until this is dropped; none where it has asked too much that is not answered. A caller's deadline ends no request: what waits here
    /// for a lease keeps its bytes.
    pub(crate) fn room(&self, session: SessionId) -> Option<OwnedSemaphorePermit> {
        let mut rooms = self.rooms.lock();
        let room = rooms.entry(session).or_insert_with(|| Arc::new(Semaphore::new(REQUESTS_MAX)));
        Arc::clone(room).try_acquire_owned().ok()
    }

    /// Forgets the room of sessions that do not live.
    pub(crate) fn keep_rooms(&self, lives: impl Fn(SessionId) -> bool) {
        let all: Vec<SessionId> = self.rooms.lock().keys().copied().collect();
        let over: Vec<SessionId> = all.into_iter().filter(|session| !lives(*session)).collect();
        let mut rooms = self.rooms.lock();
        over.iter().for_each(|session| drop(rooms.remove(session)));
    }

    /// The sessions, in order.
    pub(crate) fn all(&self) -> Vec<(SessionId, Link)> {
        let mut all: Vec<_> =
            self.all.lock().iter().map(|(session, link)| (*session, link.clone())).collect();
        all.sort_unstable_by_key(|(session, _)| *session);
        all
    }

    /// How many pushes went out.
    pub(crate) fn pushes(&self) -> u64 {
        self.pushes.load(Relaxed)
    }

    /// Tells a session something, if it is on a connection. Does not wait.
    pub(crate) fn push(&self, session: SessionId, push: Push) {
        let Some(peer) = self.all.lock().get(&session).map(|link| Arc::clone(&link.peer)) else { return };
        let Some(call) = peer.call(outgoing(&push)) else { return };
        self.pushes.fetch_add(1, Relaxed);
        let pushes = Arc::clone(&self.pushes);
        self.runtime.spawn(async move {
            let Err(error) = call.await else { return };
            match (&push, &error) {
                (Push::Recalls(leases), CallError::Refused(refusal)) if refusal.code == Code::UNSUPPORTED => {
                    one_by_one(&peer, leases, &pushes).await;
                }
                _ => not_taken(&peer, &push, &error),
            }
        });
    }
}

fn outgoing(push: &Push) -> Outgoing {
    let kind = if matches!(push, Push::Recalls(_)) { Kind::Recalls } else { Kind::Push };
    Outgoing {
        kind: kind as u16,
        body: push.encode().into(),
        bulk: Bytes::new(),
        deadline_ms: PUSH_MS,
        reply_max: 256,
    }
}

/// Tells a client that knows no message of many recalls of each: one after the other, so that they take no more of the connection than one does.
async fn one_by_one(peer: &Peer, leases: &[Recall], pushes: &AtomicU64) {
    for Recall { ino, keep, stamp } in leases.iter().copied() {
        let push = Push::Recall { ino, keep, stamp };
        let Some(call) = peer.call(outgoing(&push)) else { return };
        pushes.fetch_add(1, Relaxed);
        if let Err(error) = call.await {
            return not_taken(peer, &push, &error);
        }
    }
}

/// A client that does not acknowledge is stuck: on a new connection it is told again.
fn not_taken(peer: &Peer, push: &Push, error: &CallError) {
    tracing::debug!(%error, "{peer} did not take {push:?}");
    peer.disconnect();
}
