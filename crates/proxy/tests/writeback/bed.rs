//! A member that is served on a Unix socket, and somebody who asks it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use forebay_group::{Budget, GroupId, Incarnation, MemberId, NotActing, ViewEpoch};
use forebay_protocol::{
    Kind, Message, Refusal, Rights, VolumeInfo,
    group::{
        AppendPart, Appends, Copies, Fence, FenceAnswer, Greet, Greeted, ReadBack, ReadBackAnswer, Seal,
        SegmentAnswer, Taken, Vouch, Vouched,
    },
};
use forebay_proxy::{
    log::{Directory, Log, LogOptions},
    writeback::{Serving, Standing, Vouching, WriteBack},
};
use forebay_rpc::{
    ASKED_EVERY, Address, Client, ClientConfig, Security, Server, ServerConfig,
    connection::{CallError, Outgoing, Reply},
};
use forebay_types::{Compression, Epoch, SegmentId, Timespec, VolumeId};
use parking_lot::Mutex;

pub const GROUP: GroupId = GroupId([1; 16]);
pub const MEMBER: MemberId = MemberId([2; 16]);
pub const V: VolumeId = VolumeId([7; 16]);

/// Whether the member acts, as a test says.
#[derive(Default)]
pub struct Says {
    pub out: AtomicBool,
    pub draining: AtomicBool,
}

impl Standing for Says {
    fn may(&self, opens: bool) -> Result<(), NotActing> {
        match (self.out.load(Ordering::SeqCst), self.draining.load(Ordering::SeqCst)) {
            (true, _) => Err(NotActing::Out),
            (_, true) if opens => Err(NotActing::Draining),
            _ => Ok(()),
        }
    }

    fn now(&self) -> (Incarnation, ViewEpoch, bool) {
        (Incarnation([3; 16]), ViewEpoch(5), self.draining.load(Ordering::SeqCst))
    }
}

/// A metadata server that knows the tokens `write` and `read`, and members.
#[derive(Default)]
pub struct Tokens {
    pub asked: AtomicU64,
    pub for_ms: AtomicU64,
    pub now: Mutex<Option<Refusal>>,
}

impl Vouching for Tokens {
    fn vouch(&self, vouch: &Vouch) -> Result<Vouched, Refusal> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if let Some(refusal) = self.now.lock().clone() {
            return Err(refusal);
        }
        let read_only = match vouch.token.as_deref() {
            Some("write") => false,
            Some("read") => true,
            Some(member) if Vouch::as_member(member).is_some() => false,
            _ => return Err(Refusal::Denied("unknown".to_owned())),
        };
        let volume = VolumeInfo {
            name: "v".to_owned(),
            id: vouch.volume,
            store: "file:///x".to_owned(),
            endpoint: None,
            region: None,
            block_size: 1 << 22,
            compression: Compression::None,
            created: Timespec::default(),
            limit: None,
            generation: 1,
        };
        let for_ms = self.for_ms.load(Ordering::SeqCst);
        let rights = Rights { read_only, ..Rights::ALL };
        Ok(Vouched { volume, rights, for_ms, group: None, whole: true })
    }
}

pub struct Bed {
    pub log: Arc<Log>,
    pub says: Arc<Says>,
    pub tokens: Arc<Tokens>,
    pub served: Arc<WriteBack>,
    pub address: Address,
    _server: Server,
    _runtime: tokio::runtime::Runtime,
}

pub fn serve(dir: &Path, budget: u64, incarnation: u8) -> Bed {
    let ids = (GROUP, MEMBER, Incarnation([incarnation; 16]));
    let disk = Arc::new(Directory::new(dir));
    let options = LogOptions {
        file_len: 16 << 20,
        reserve: 64 << 10,
        ..LogOptions::new(disk, ids, Budget { limit: budget })
    };
    let log = Arc::new(Log::open(options).unwrap().0);
    let (says, tokens) = (Arc::new(Says::default()), Arc::new(Tokens::default()));
    tokens.for_ms.store(60_000, Ordering::SeqCst);
    let served = WriteBack::new((GROUP, MEMBER), log.clone(), says.clone(), tokens.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let address = Address::Unix(dir.join("socket"));
    let server = runtime.block_on(async {
        Server::bind(
            std::slice::from_ref(&address),
            ServerConfig::new(Security::Insecure),
            Arc::new(Serving(served.clone())),
        )
    });
    Bed { log, says, tokens, served, address, _server: server.unwrap(), _runtime: runtime }
}

#[derive(Clone)]
pub struct Caller(pub Client);

impl Caller {
    pub fn connect(address: &Address) -> Caller {
        Caller(Client::start(ClientConfig::new(vec![address.clone()], Security::Insecure), None).unwrap())
    }

    pub fn greeted(address: &Address, token: &str) -> Caller {
        let caller = Caller::connect(address);
        caller.greet(token).unwrap();
        caller
    }

    pub fn ask(
        &self,
        kind: Kind,
        message: &impl Message,
        bulk: Bytes,
        within_ms: u32,
    ) -> Result<Reply, CallError> {
        self.0.call_blocking(request(kind, message, bulk, within_ms))
    }

    pub fn greet(&self, token: &str) -> Result<Greeted, CallError> {
        let (token, client) = (Some(token.to_owned()), "a test".to_owned());
        let greet = Greet { group: GROUP, volume: V, token, client };
        let reply = self.ask(Kind::Greet, &greet, Bytes::new(), 10_000)?;
        Ok(Greeted::decode(&reply.body).unwrap())
    }

    pub fn appends(&self, parts: &[(SegmentId, u64, Bytes)], within_ms: u32) -> Result<Taken, CallError> {
        let reply = self.0.call_blocking(append_request(parts, within_ms))?;
        Ok(Taken::decode(&reply.body).unwrap())
    }

    /// Waits for the answer no longer than `goes_on` says so.
    pub fn appends_while(
        &self,
        parts: &[(SegmentId, u64, Bytes)],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Taken, CallError> {
        let reply = self.0.call_blocking_while(append_request(parts, 60_000), ASKED_EVERY, Some(goes_on))?;
        Ok(Taken::decode(&reply.body).unwrap())
    }

    pub fn append(&self, segment: SegmentId, offset: u64, bytes: &Bytes) -> SegmentAnswer {
        self.appends(&[(segment, offset, bytes.clone())], 60_000).unwrap().parts[0]
    }

    pub fn seal(&self, segment: SegmentId, epoch: u64, bytes: &[u8]) -> SegmentAnswer {
        let (epoch, len, check) = (Epoch(epoch), bytes.len() as u64, crc32c::crc32c(bytes));
        let reply = self.ask(Kind::Seal, &Seal { segment, epoch, len, check }, Bytes::new(), 60_000);
        Taken::decode(&reply.unwrap().body).unwrap().parts[0]
    }

    pub fn fence(&self, segment: SegmentId, epoch: u64) -> Result<FenceAnswer, CallError> {
        let fence = Fence { segment, epoch: Epoch(epoch) };
        let reply = self.ask(Kind::Fence, &fence, Bytes::new(), 60_000)?;
        Ok(FenceAnswer::decode(&reply.body).unwrap())
    }

    pub fn read(&self, segment: SegmentId, from: u64, to: u64) -> (ReadBackAnswer, Bytes) {
        let reply = self.ask(Kind::ReadBack, &ReadBack { segment, from, to }, Bytes::new(), 60_000).unwrap();
        (ReadBackAnswer::decode(&reply.body).unwrap(), reply.bulk)
    }
}

fn request(kind: Kind, message: &impl Message, bulk: Bytes, within_ms: u32) -> Outgoing {
    let (kind, body) = (kind as u16, message.encode().into());
    Outgoing { kind, body, bulk, deadline_ms: within_ms, reply_max: 9 << 20 }
}

fn append_request(parts: &[(SegmentId, u64, Bytes)], within_ms: u32) -> Outgoing {
    let part = |(segment, offset, bytes): &(SegmentId, u64, Bytes)| AppendPart {
        segment: *segment,
        epoch: Epoch(1),
        copies: Copies::Several,
        offset: *offset,
        len: bytes.len() as u32,
        check: crc32c::crc32c(bytes),
    };
    let message = Appends { parts: parts.iter().map(part).collect() };
    let bulk: Vec<u8> = parts.iter().flat_map(|(_, _, bytes)| bytes.to_vec()).collect();
    request(Kind::Append, &message, bulk.into(), within_ms)
}

pub fn bytes(seed: u64, len: usize) -> Bytes {
    let seed = seed as u8 as usize;
    (0..len).map(|at| (seed * 31 + at * 7 + at / 251) as u8).collect::<Vec<_>>().into()
}

pub fn member() -> String {
    Vouch::member(GROUP, MemberId([9; 16]), Incarnation([9; 16]))
}
