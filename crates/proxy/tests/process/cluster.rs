//! A metadata server with a group and a volume that is read through it, and proxies in it.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_cluster::Terms;
use forebay_group::{GroupId, GroupTerms, MemberId};
use forebay_object::StoreOptions;
use forebay_protocol::{
    Kind, Message, Refusal, TokenInfo, TokenRequest, VolumeInfo, VolumeRequest,
    group::{Greet, GroupInfo, GroupMember, GroupRequest, WriteClass},
};
use forebay_proxy::{Proxy, ProxyError, ProxyOptions};
use forebay_rpc::{Address, Security, connection::CallError, wire::Code};
use forebay_server::{MetaServer, ServerOptions, Ticking};
use forebay_types::{Compression, SegmentId, Timespec, VolumeId};
use tempfile::TempDir;

use crate::{session::Session, writers::Caller};

/// How long anything may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(90);

/// Waits until something is there.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn terms() -> GroupTerms {
    let (act_for, count_out_after) = (Duration::from_secs(4), Duration::from_secs(5));
    let settled_after = Duration::from_millis(500);
    GroupTerms { act_for, count_out_after, settled_after, ..GroupTerms::default() }
}

/// What is refused in words of the protocol.
pub fn refusal(error: &CallError) -> Option<Refusal> {
    let CallError::Refused(refusal) = error else { return None };
    (refusal.code == Code(Kind::REFUSED)).then(|| Refusal::decode(&refusal.detail).unwrap())
}

pub struct Cluster {
    pub server: Option<MetaServer>,
    pub meta: Address,
    pub group: GroupId,
    pub volume: VolumeId,
    pub dir: TempDir,
    asks: Caller,
    session: Option<Session>,
}

impl Cluster {
    pub fn new() -> Cluster {
        let dir = TempDir::new().unwrap();
        let options = ServerOptions {
            engine: format!("dir:{}/engine", dir.path().display()).parse().unwrap(),
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            advertise: None,
            security: Security::Insecure,
            insecure: true,
            admins: Vec::new(),
            terms: Terms::default(),
            group_terms: terms(),
            ticks: Ticking::default(),
        };
        let server = MetaServer::start(&options, &|| false).unwrap().unwrap();
        let meta: Address = server.advertised().parse().unwrap();
        let asks = Caller::connect(&meta);
        let wanted = VolumeInfo {
            name: "v".to_owned(),
            id: VolumeId([0; 16]),
            store: format!("file://{}/store", dir.path().display()),
            endpoint: None,
            region: None,
            block_size: 4 << 20,
            compression: Compression::Lz4,
            created: Timespec::default(),
            limit: None,
            generation: 0,
        };
        let mut cluster = Cluster {
            server: Some(server),
            meta,
            group: GroupId::default(),
            volume: VolumeId([0; 16]),
            dir,
            asks,
            session: None,
        };
        let made: Vec<VolumeInfo> = cluster.ask(Kind::Volumes, &VolumeRequest::Create(wanted));
        cluster.volume = made[0].id;
        cluster.group = cluster.groups(&GroupRequest::Create("g".to_owned(), 2)).unwrap()[0].id;
        cluster.groups(&GroupRequest::Assign("v".to_owned(), Some("g".to_owned()))).unwrap();
        cluster.groups(&GroupRequest::SetClass("v".to_owned(), WriteClass::Replica(None))).unwrap();
        cluster.session = Some(Session::begin(&cluster.meta, cluster.token(false)));
        cluster
    }

    fn ask<T: Message>(&self, kind: Kind, message: &impl Message) -> T {
        let reply = self.asks.ask(kind, message, Bytes::new(), 60_000).unwrap();
        T::decode(&reply.body).unwrap()
    }

    pub fn groups(&self, request: &GroupRequest) -> Result<Vec<GroupInfo>, Refusal> {
        match self.asks.ask(Kind::Groups, request, Bytes::new(), 60_000) {
            Ok(reply) => Ok(Vec::decode(&reply.body).unwrap()),
            Err(error) => Err(refusal(&error).unwrap()),
        }
    }

    pub fn members(&self) -> Vec<GroupMember> {
        self.groups(&GroupRequest::Show("g".to_owned())).unwrap().pop().unwrap().members
    }

    /// What the group shows of its one member, once that is so.
    pub fn member(&self, what: &str, so: impl Fn(&GroupMember) -> bool) -> GroupMember {
        until(what, || self.members().pop().filter(&so))
    }

    /// Opens segments for this member alone.
    pub fn open(&self, member: MemberId, count: u32) -> Vec<SegmentId> {
        self.session.as_ref().unwrap().open(self.group, member, count)
    }

    /// Opens segments for the group's one member.
    pub fn opened(&self, count: u32) -> Vec<SegmentId> {
        self.open(self.member("it has joined", |_| true).id, count)
    }

    pub fn token(&self, read_only: bool) -> String {
        let token = TokenInfo {
            id: String::new(),
            volume: "v".to_owned(),
            root: "/".to_owned(),
            read_only,
            no_exec: false,
            root_squash: false,
            created: Timespec::default(),
            expires: None,
        };
        let (_, secret): (Vec<TokenInfo>, String) = self.ask(Kind::Tokens, &TokenRequest::Create(token));
        secret
    }

    pub fn directory(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    pub fn try_proxy(&self, name: &str) -> Result<Proxy, ProxyError> {
        start(&self.meta, &self.directory(name))
    }

    /// A proxy that acts.
    pub fn proxy(&self, name: &str) -> Proxy {
        let proxy = self.try_proxy(name).unwrap();
        assert!(proxy.place().wait(PATIENCE), "{:?}", proxy.failure());
        proxy
    }

    /// Somebody who has greeted.
    pub fn caller(&self, address: &Address, token: &str) -> Caller {
        let caller = Caller::connect(address);
        self.greet(&caller, token).unwrap();
        caller
    }

    pub fn greet(&self, caller: &Caller, token: &str) -> Result<(), CallError> {
        let (token, client) = (Some(token.to_owned()), "a test".to_owned());
        let greet = Greet { group: self.group, volume: self.volume, token, client };
        caller.ask(Kind::Greet, &greet, Bytes::new(), 10_000).map(drop)
    }
}

pub fn start(meta: &Address, directory: &Path) -> Result<Proxy, ProxyError> {
    let options = ProxyOptions {
        meta: vec![meta.clone()],
        group: "g".to_owned(),
        directory: directory.to_owned(),
        cache: 64 << 20,
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        advertise: None,
        security: Security::Insecure,
        insecure: true,
        weight: None,
        node: "node".to_owned(),
        zone: directory.file_name().map(|name| name.to_string_lossy().into_owned()),
        store: StoreOptions::default(),
        terms: terms(),
    };
    Ok(Proxy::start(&options, &|| false)?.unwrap())
}
