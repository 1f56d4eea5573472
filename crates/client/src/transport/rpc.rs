//! Over the network.
//!
//! The connection below comes back by itself, and the server on a new one knows nothing of the session. So each connection has a number, and only one that was greeted
//! counts: a message that may have gone out on another one is as good as lost.

use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_cluster::SessionId;
use forebay_protocol::{
    Hello, Kind, Message, OPEN_MAX, Operation, Push, Reclaim, Reclaimed, Refusal, Request, Response, Return,
    Step, Welcome,
    group::{GroupView, ViewOf, ViewsOf},
};
use forebay_rpc::{
    ASKED_EVERY, Address, Client, ClientConfig, Handler, Handling, Peer, Security,
    connection::{CallError, Outgoing, Reply},
    wire::{Code, Refusal as Refused},
};
use parking_lot::{Condvar, Mutex};

use super::{Listener, Transport, Trouble};

/// Bytes of answers that requests which may wait at the owner reserve together: the rest of the connection's credit is for what they wait for.
const RESERVED_MAX: u64 = 40 << 20;

/// Messages over `forebay-rpc`.
pub struct RpcTransport {
    shared: Arc<Shared>,
    config: ClientConfig,
    client: Mutex<Client>,
    reserved: Mutex<u64>,
    freed: Condvar,
}

struct Shared {
    listener: Mutex<Option<Weak<dyn Listener>>>,
    /// The client whose connections count.
    client: AtomicU64,
    /// The number of the connection: raised when one ends.
    connection: AtomicU64,
    /// The connection that was greeted.
    greeted: AtomicU64,
}

impl Shared {
    fn listener(&self) -> Option<Arc<dyn Listener>> {
        self.listener.lock().as_ref()?.upgrade()
    }
}

/// Takes what the server pushes.
struct Pushes {
    shared: Arc<Shared>,
    client: u64,
}

impl Handler for Pushes {
    fn handle(&self, _: &Arc<Peer>, request: forebay_rpc::connection::Request) -> Handling {
        let taken = match (Kind::of(request.kind), Push::decode(&request.body)) {
            (Some(Kind::Push | Kind::Recalls), Ok(push)) => {
                if let Some(listener) = self.shared.listener() {
                    listener.pushed(push);
                }
                Ok(Reply { body: Bytes::new(), bulk: Bytes::new() })
            }
            (Some(Kind::Push | Kind::Recalls), Err(error)) => {
                Err(Refused::new(Code::MALFORMED, error.to_string()))
            }
            _ => Err(Refused::new(Code::UNSUPPORTED, "a client takes pushes only")),
        };
        Box::pin(std::future::ready(taken))
    }

    fn closed(&self, _: &Arc<Peer>) {
        if self.shared.client.load(SeqCst) == self.client {
            self.shared.connection.fetch_add(1, SeqCst);
            if let Some(listener) = self.shared.listener() {
                listener.lost();
            }
        }
    }
}

impl RpcTransport {
    /// To one of these servers; connects in the background.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(addresses: Vec<Address>, security: Security) -> io::Result<RpcTransport> {
        let shared = Arc::new(Shared {
            listener: Mutex::default(),
            client: AtomicU64::new(0),
            connection: AtomicU64::new(1),
            greeted: AtomicU64::new(0),
        });
        let config = ClientConfig::new(addresses, security);
        let handler = Pushes { shared: Arc::clone(&shared), client: 0 };
        let client = Mutex::new(Client::start(config.clone(), Some(Arc::new(handler)))?);
        Ok(RpcTransport { shared, config, client, reserved: Mutex::new(0), freed: Condvar::new() })
    }

    /// Calls on the connection that was greeted.
    fn call(&self, kind: Kind, body: Vec<u8>, reply_max: u32, patience: Duration) -> Result<Bytes, Trouble> {
        self.call_while(kind, body, reply_max, patience, None)
    }

    fn call_while(
        &self,
        kind: Kind,
        body: Vec<u8>,
        reply_max: u32,
        patience: Duration,
        goes_on: Option<&dyn Fn() -> bool>,
    ) -> Result<Bytes, Trouble> {
        let connection = self.shared.connection.load(SeqCst);
        if self.shared.greeted.load(SeqCst) != connection {
            return Err(Trouble::Lost("not connected".to_owned()));
        }
        let client = self.client.lock().clone();
        call_while(&client, (kind, body, reply_max), patience, goes_on).map_err(|trouble| {
            // Another connection's server does not know who asks.
            let lost = self.shared.connection.load(SeqCst) != connection;
            if lost { Trouble::Lost(format!("the connection was lost: {trouble:?}")) } else { trouble }
        })
    }

    /// Waits until an answer of so many bytes may be asked for. Returns what is left of the patience; nothing where it is over.
    fn reserve(&self, bytes: u64, patience: Duration) -> Option<Duration> {
        let until = Instant::now() + patience;
        let mut reserved = self.reserved.lock();
        while *reserved + bytes > RESERVED_MAX {
            if self.freed.wait_until(&mut reserved, until).timed_out() {
                return None;
            }
        }
        *reserved += bytes;
        Some(until.saturating_duration_since(Instant::now()))
    }

    fn free(&self, bytes: u64) {
        *self.reserved.lock() -= bytes;
        self.freed.notify_all();
    }
}

fn call(
    client: &Client,
    kind: Kind,
    body: Vec<u8>,
    reply_max: u32,
    patience: Duration,
) -> Result<Bytes, Trouble> {
    call_while(client, (kind, body, reply_max), patience, None)
}

fn call_while(
    client: &Client,
    (kind, body, reply_max): (Kind, Vec<u8>, u32),
    patience: Duration,
    goes_on: Option<&dyn Fn() -> bool>,
) -> Result<Bytes, Trouble> {
    let deadline_ms = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX).max(1);
    let request =
        Outgoing { kind: kind as u16, body: body.into(), bulk: Bytes::new(), deadline_ms, reply_max };
    match client.call_blocking_while(request, ASKED_EVERY, goes_on) {
        Ok(reply) => Ok(reply.body),
        Err(CallError::Refused(refusal)) => Err(refused(&refusal)),
        Err(error @ CallError::TooLarge { .. }) => Err(Trouble::Never(error.to_string())),
        Err(error @ (CallError::Deadline { .. } | CallError::Lost { .. })) => {
            Err(Trouble::Lost(error.to_string()))
        }
        // Nothing is wrong with the connection.
        Err(error @ CallError::GivenUp) => Err(Trouble::Refused(Refusal::Unavailable(error.to_string()))),
    }
}

fn refused(refusal: &Refused) -> Trouble {
    match refusal.code {
        Code(Kind::REFUSED) => match Refusal::decode(&refusal.detail) {
            Ok(refusal) => Trouble::Refused(refusal),
            Err(error) => Trouble::Never(format!("a refusal that cannot be read: {error}")),
        },
        Code::NOT_OWNER => {
            let address = (!refusal.redirect.is_empty()).then(|| refusal.redirect.clone());
            Trouble::Refused(Refusal::NotOwner { address })
        }
        // The same request is under way, or there is too much to do: here, later.
        Code::BUSY => Trouble::Refused(Refusal::Unavailable(refusal.text.clone())),
        Code::DENIED => Trouble::Refused(Refusal::Denied(refusal.text.clone())),
        // Said of answers alone: a request that is too large is not sent.
        Code::TOO_LARGE => Trouble::Unreadable(refusal.to_string()),
        Code::UNSUPPORTED | Code::MALFORMED | Code::VERSION | Code::FEATURE => {
            Trouble::Never(refusal.to_string())
        }
        _ => Trouble::Lost(refusal.to_string()),
    }
}

fn decoded<T: Message>(body: &Bytes) -> Result<T, Trouble> {
    T::decode(body).map_err(|error| Trouble::Unreadable(format!("an answer that cannot be read: {error}")))
}

/// The largest answer to an operation, in bytes.
fn reply_max(operation: &Operation) -> u32 {
    match operation {
        Operation::Entries { .. } => 1 << 20,
        Operation::Map(..) => 512 << 10,
        Operation::Xattr(..) | Operation::Xattrs(..) => 192 << 10,
        Operation::Commit(commit) => (16 << 10) + 16 * u32::try_from(commit.files.len()).unwrap_or(1 << 15),
        // A grant for each inode that it makes, and files of commits that are gone.
        Operation::Ahead(steps) => {
            let files = |step: &Step| match &step.operation {
                Operation::Commit(commit) => commit.files.len(),
                _ => 0,
            };
            let many = steps.len() + steps.iter().map(files).sum::<usize>();
            (16 << 10) + 40 * u32::try_from(many).unwrap_or(1 << 15)
        }
        // Number, epoch and set of each.
        Operation::OpenSegments(open) => (16 << 10) + 320 * open.count.min(OPEN_MAX),
        Operation::Classes(policies) => (16 << 10) + 16 * u32::try_from(policies.len()).unwrap_or(1 << 12),
        // The ids of eight groups.
        Operation::GroupRules(policies) => {
            (16 << 10) + 144 * u32::try_from(policies.len()).unwrap_or(1 << 12)
        }
        Operation::Offer(offer) => (16 << 10) + 160 * u32::try_from(offer.offers.len()).unwrap_or(1 << 12),
        Operation::Store(store) => (16 << 10) + 32 * u32::try_from(store.segments.len()).unwrap_or(1 << 12),
        _ => 16 << 10,
    }
}

impl Transport for RpcTransport {
    fn listen(&self, listener: Weak<dyn Listener>) {
        *self.shared.listener.lock() = Some(listener);
    }

    fn hello(&self, hello: &Hello, patience: Duration) -> Result<Welcome, Trouble> {
        let connection = self.shared.connection.load(SeqCst);
        let client = self.client.lock().clone();
        let welcome = decoded(&call(&client, Kind::Hello, hello.encode(), 64 << 10, patience)?)?;
        self.shared.greeted.store(connection, SeqCst);
        if self.shared.connection.load(SeqCst) != connection {
            return Err(Trouble::Lost("the connection was lost".to_owned()));
        }
        Ok(welcome)
    }

    fn ask(
        &self,
        request: &Request,
        urgent: bool,
        patience: Duration,
        goes_on: Option<&dyn Fn() -> bool>,
    ) -> Result<Response, Trouble> {
        let max = reply_max(&request.operation);
        if urgent {
            return decoded(&self.call_while(Kind::Ask, request.encode(), max, patience, goes_on)?);
        }
        let Some(left) = self.reserve(u64::from(max), patience) else {
            return Err(Trouble::Refused(Refusal::Unavailable("too many answers are waited for".to_owned())));
        };
        let answered = self.call_while(Kind::Ask, request.encode(), max, left, goes_on);
        self.free(u64::from(max));
        decoded(&answered?)
    }

    fn renew(&self, session: SessionId, patience: Duration) -> Result<(), Trouble> {
        self.call(Kind::Renew, session.encode(), 1 << 10, patience).map(drop)
    }

    fn reclaim(&self, reclaim: &Reclaim, patience: Duration) -> Result<Reclaimed, Trouble> {
        decoded(&self.call(Kind::Reclaim, reclaim.encode(), 8 << 20, patience)?)
    }

    fn give_back(&self, returned: &[Return], patience: Duration) -> Result<(), Trouble> {
        let (kind, body) = match returned {
            [one] => (Kind::Return, one.encode()),
            several => (Kind::Returns, several.to_vec().encode()),
        };
        self.call(kind, body, 1 << 10, patience).map(drop)
    }

    fn end(&self, session: SessionId, patience: Duration) -> Result<(), Trouble> {
        self.call(Kind::End, session.encode(), 1 << 10, patience).map(drop)
    }

    fn view_of(&self, asked: &ViewOf, patience: Duration) -> Result<Option<GroupView>, Trouble> {
        let client = self.client.lock().clone();
        decoded(&call(&client, Kind::ViewOf, asked.encode(), 1 << 20, patience)?)
    }

    fn views_of(&self, asked: &ViewsOf, patience: Duration) -> Result<Vec<GroupView>, Trouble> {
        let client = self.client.lock().clone();
        decoded(&call(&client, Kind::ViewsOf, asked.encode(), 1 << 20, patience)?)
    }

    fn elsewhere(&self, address: Option<&str>) {
        let mut config = self.config.clone();
        let client = self.shared.client.fetch_add(1, SeqCst) + 1;
        let at = usize::try_from(client).unwrap_or(0) % config.addresses.len().max(1);
        config.addresses.rotate_left(at);
        match address.map(str::parse::<Address>) {
            Some(Ok(address)) => config.addresses.insert(0, address),
            Some(Err(error)) => tracing::warn!(%error, "a server names the owner's address"),
            None => {}
        }
        self.shared.connection.fetch_add(1, SeqCst);
        let handler = Pushes { shared: Arc::clone(&self.shared), client };
        let next = Client::start(config, Some(Arc::new(handler)));
        let mut current = self.client.lock();
        current.close();
        match next {
            Ok(next) => *current = next,
            Err(error) => tracing::error!(%error, "no thread for a connection"),
        }
    }

    fn close(&self) {
        self.client.lock().close();
    }
}

#[cfg(test)]
mod tests {
    use forebay_cluster::Grant;
    use forebay_format::row::ObjectRef;
    use forebay_group::{GroupId, MemberId, NotTaken, Offer, Verdict};
    use forebay_protocol::{
        Answer, Judged, OfferCopies, OpenSegments, OpenedSegment, Placing, SegmentPlace, StoreSegments,
        StoredSegment,
    };
    use forebay_types::{Epoch, Ino, ObjectId, SegmentId};

    use super::*;

    /// The largest answers that there can be fit into what is reserved for them.
    #[test]
    fn answers_on_segments_fit() {
        let (segment, epoch, member) = (SegmentId(u64::MAX), Epoch(u64::MAX), MemberId([0xff; 16]));
        let fits = |operation: Operation, answer: Answer| {
            let bytes = Response { answer, grants: Vec::<Grant>::new() }.encode().len();
            assert!(bytes <= reply_max(&operation) as usize, "{bytes} to {operation:?}");
        };
        let (directory, group) = (Ino(u64::MAX), GroupId([0xff; 16]));
        let placing = Placing::Set((0..16).map(|at| MemberId([at; 16])).collect());
        let open = OpenSegments { directory, apart: true, count: 256, group, placing };
        let opened = OpenedSegment { segment, epoch, set: vec![member; 16] };
        fits(Operation::OpenSegments(open), Answer::Opened(vec![opened; 256]));
        let object = ObjectRef { epoch, id: ObjectId(u64::MAX) };
        let place = Some(SegmentPlace { object, offset: u64::MAX, len: u64::MAX });
        let verdict = Verdict::SealedAt { epoch, len: u64::MAX, check: u32::MAX };
        let copy_to = Some((member, epoch));
        let judged = Judged { segment, verdict, directory, place, puts: true, copy_to };
        let offer = Offer { segment, epoch, end: 0, check: 0, sealed: None, damaged: false };
        let offers = OfferCopies { member, group, offers: vec![offer; 4096] };
        fits(Operation::Offer(offers), Answer::Judged(vec![judged; 4096]));
        let stored = StoredSegment { segment, epoch, len: 0, check: 0, offset: 0, raw: 0 };
        let store = StoreSegments { object, segments: vec![stored; 4096] };
        fits(Operation::Store(store), Answer::Stored(vec![(segment, NotTaken::Late(epoch)); 4096]));
    }
}
