//! Servers and clients of them in one process.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_cluster::{Lease, Moment, SessionId, SlotNumber, Terms};
use forebay_meta::NewInode;
use forebay_owner::Ticks;
use forebay_protocol::{
    Answer, Hello, Kind, Message, Operation, Push, Refusal, Request, Response, ServerStatus, TokenInfo,
    TokenRequest, VolumeInfo, VolumeRequest, Welcome,
};
use forebay_rpc::{
    Client, ClientConfig, Handler, Handling, Peer, Security,
    connection::{CallError, Outgoing, Reply, Request as WireRequest},
    wire::{Code, Refusal as WireRefusal},
};
use forebay_server::{MetaServer, ServerError, ServerOptions, Ticking};
use forebay_testkit::postgres::PostgresServer;
use forebay_types::{Compression, FileKind, Ino, Timespec, VolumeId};
use parking_lot::Mutex;
use tempfile::TempDir;

/// How long anything may take before it counts as hung.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// One server of PostgreSQL for all tests that leave it running.
pub static POSTGRES: LazyLock<PostgresServer> =
    LazyLock::new(|| PostgresServer::start_new(&["fsync=off", "max_connections=300"]).unwrap());

/// A new database in it.
pub fn database() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    POSTGRES.sql("postgres", &format!("CREATE DATABASE {name}")).unwrap();
    POSTGRES.url(POSTGRES.port(), &name)
}

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

/// A clock that stands still until it is put forward.
#[derive(Clone)]
pub struct Still(Arc<AtomicU64>);

impl Default for Still {
    fn default() -> Still {
        Still(Arc::new(AtomicU64::new(3_600_000_000_000)))
    }
}

impl Still {
    pub fn put_forward(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }

    /// The same clock, as an option of a server.
    pub fn ticking(&self) -> Ticking {
        Ticking(Arc::new(self.clone()))
    }
}

impl Ticks for Still {
    fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }
}

/// A place of engines, and a directory for stores.
pub struct Bed {
    pub engine: String,
    pub dir: TempDir,
}

impl Bed {
    pub fn directory() -> Bed {
        let dir = TempDir::new().unwrap();
        Bed { engine: format!("dir:{}/engine", dir.path().display()), dir }
    }

    pub fn slate() -> Bed {
        let dir = TempDir::new().unwrap();
        Bed { engine: format!("slate:file://{}/engine", dir.path().display()), dir }
    }

    pub fn postgres() -> Bed {
        Bed { engine: database(), dir: TempDir::new().unwrap() }
    }

    pub fn options(&self) -> ServerOptions {
        ServerOptions {
            engine: self.engine.parse().unwrap(),
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            advertise: None,
            security: Security::Insecure,
            insecure: true,
            admins: Vec::new(),
            terms: Terms::default(),
            group_terms: forebay_group::GroupTerms::default(),
            ticks: Ticking::default(),
        }
    }

    pub fn try_server(&self) -> Result<MetaServer, ServerError> {
        MetaServer::start(&self.options(), &|| false).map(|server| server.expect("nobody stops it"))
    }

    pub fn server(&self) -> MetaServer {
        self.try_server().unwrap()
    }

    /// One for which no time passes: whatever the machine has to do, it gives nobody up who is silent.
    pub fn still_server(&self) -> MetaServer {
        let options = ServerOptions { ticks: Still::default().ticking(), ..self.options() };
        MetaServer::start(&options, &|| false).unwrap().unwrap()
    }

    /// The store of a volume.
    pub fn store(&self, volume: &str) -> String {
        format!("file://{}/store/{volume}", self.dir.path().display())
    }

    pub fn wanted(&self, volume: &str) -> VolumeInfo {
        VolumeInfo {
            name: volume.to_owned(),
            id: VolumeId([0; 16]),
            store: self.store(volume),
            endpoint: None,
            region: None,
            block_size: 4 << 20,
            compression: Compression::Lz4,
            created: Timespec { secs: 0, nanos: 0 },
            limit: None,
            generation: 0,
        }
    }
}

/// What a client is told unasked.
#[derive(Default)]
pub struct Told {
    pushes: Mutex<Vec<Push>>,
    /// As a release that knows no message of many recalls.
    is_older: bool,
}

impl Handler for Told {
    fn handle(&self, _: &Arc<Peer>, request: WireRequest) -> Handling {
        let kind = Kind::of(request.kind).unwrap();
        if kind == Kind::Recalls && self.is_older {
            return Box::pin(async {
                Err(WireRefusal::new(Code::UNSUPPORTED, "a client takes pushes only"))
            });
        }
        let push = Push::decode(&request.body).unwrap();
        let is_of_many = matches!(push, Push::Recalls(_));
        assert_eq!(kind, if is_of_many { Kind::Recalls } else { Kind::Push });
        self.pushes.lock().push(push);
        Box::pin(async { Ok(Reply { body: Bytes::new(), bulk: Bytes::new() }) })
    }
}

/// A connection to a server.
pub struct Asks {
    client: Client,
    told: Arc<Told>,
    patience: Duration,
}

/// Why an answer did not come.
#[derive(Debug)]
pub enum Not {
    Refused(Refusal),
    Elsewhere(Option<String>),
    #[allow(dead_code, reason = "shown where a test fails")]
    Wire(CallError),
}

impl Asks {
    pub fn of(server: &MetaServer) -> Asks {
        Asks::at(server.advertised())
    }

    /// Where it listens, whatever it says.
    pub fn of_bound(server: &MetaServer) -> Asks {
        Asks::at(&server.addresses()[0].to_string())
    }

    pub fn at(address: &str) -> Asks {
        Asks::told_as(address, Told::default())
    }

    /// One of a release that knows no message of many recalls.
    pub fn of_an_older_release(server: &MetaServer) -> Asks {
        Asks::told_as(server.advertised(), Told { is_older: true, ..Told::default() })
    }

    fn told_as(address: &str, told: Told) -> Asks {
        let config = ClientConfig::new(vec![address.parse().unwrap()], Security::Insecure);
        let told = Arc::new(told);
        let client = Client::start(config, Some(Arc::clone(&told) as _)).unwrap();
        Asks { client, told, patience: PATIENCE }
    }

    /// Waits a second for each answer.
    pub fn impatient(self) -> Asks {
        Asks { patience: Duration::from_secs(1), ..self }
    }

    pub fn told(&self) -> Vec<Push> {
        self.told.pushes.lock().clone()
    }

    pub fn raw(&self, kind: u16, body: Vec<u8>) -> Result<Bytes, CallError> {
        let request = Outgoing {
            kind,
            body: body.into(),
            bulk: Bytes::new(),
            deadline_ms: self.patience.as_millis() as u32,
            reply_max: 1 << 20,
        };
        self.client.call_blocking(request).map(|reply| reply.body)
    }

    pub fn call<T: Message>(&self, kind: Kind, message: &impl Message) -> Result<T, Not> {
        match self.raw(kind as u16, message.encode()) {
            Ok(body) => Ok(T::decode(&body).unwrap()),
            Err(CallError::Refused(refusal)) if refusal.code == Code(Kind::REFUSED) => {
                Err(Not::Refused(Refusal::decode(&refusal.detail).unwrap()))
            }
            Err(CallError::Refused(refusal)) if refusal.code == Code::NOT_OWNER => {
                Err(Not::Elsewhere(Some(refusal.redirect).filter(|at| !at.is_empty())))
            }
            Err(error) => Err(Not::Wire(error)),
        }
    }

    pub fn volumes(&self, request: &VolumeRequest) -> Result<Vec<VolumeInfo>, Not> {
        self.call(Kind::Volumes, request)
    }

    pub fn create(&self, bed: &Bed, name: &str) -> VolumeInfo {
        let mut made = self.volumes(&VolumeRequest::Create(bed.wanted(name))).unwrap();
        made.pop().unwrap()
    }

    pub fn token(&self, token: &TokenInfo) -> (TokenInfo, String) {
        let (mut made, secret): (Vec<TokenInfo>, String) =
            self.call(Kind::Tokens, &TokenRequest::Create(token.clone())).unwrap();
        (made.pop().unwrap(), secret)
    }

    pub fn status(&self) -> ServerStatus {
        match self.raw(Kind::Status as u16, Vec::new()) {
            Ok(body) => ServerStatus::decode(&body).unwrap(),
            Err(error) => panic!("{error}"),
        }
    }

    pub fn hello(&self, volume: &str, session: u128, token: Option<&str>) -> Result<Welcome, Not> {
        self.say(&Hello {
            volume: volume.to_owned(),
            token: token.map(str::to_owned),
            session: SessionId(session),
            client: format!("client {session}"),
            resumes: false,
        })
    }

    pub fn resume(&self, volume: &str, session: u128) -> Result<Welcome, Not> {
        self.say(&Hello {
            volume: volume.to_owned(),
            token: None,
            session: SessionId(session),
            client: format!("client {session}"),
            resumes: true,
        })
    }

    fn say(&self, hello: &Hello) -> Result<Welcome, Not> {
        self.call(Kind::Hello, hello)
    }

    /// Begins a session once somebody owns the volume here, or goes on with it.
    pub fn join(&self, volume: &str, session: u128) -> Session<'_> {
        self.join_by(volume, session, None)
    }

    pub fn join_with(&self, volume: &str, session: u128, token: &str) -> Session<'_> {
        self.join_by(volume, session, Some(token))
    }

    fn join_by(&self, volume: &str, session: u128, token: Option<&str>) -> Session<'_> {
        until("a session", || self.hello(volume, session, token).ok());
        Session { asks: self, id: SessionId(session), next: AtomicU64::new(1) }
    }
}

/// A session of a client.
pub struct Session<'a> {
    pub asks: &'a Asks,
    pub id: SessionId,
    next: AtomicU64,
}

impl<'a> Session<'a> {
    /// The same session on another connection, with the number of its next change.
    pub fn on<'b>(&self, asks: &'b Asks) -> Session<'b> {
        Session { asks, id: self.id, next: AtomicU64::new(self.next.load(Ordering::SeqCst)) }
    }

    pub fn request(&self, operation: Operation, wish: Option<Lease>) -> Request {
        let slot = operation.changes().then(|| (SlotNumber(0), self.next.fetch_add(1, Ordering::SeqCst)));
        Request { session: self.id, slot, operation, wish }
    }

    pub fn send(&self, request: &Request) -> Result<Response, Not> {
        self.asks.call(Kind::Ask, request)
    }

    pub fn ask(&self, operation: Operation, wish: Option<Lease>) -> Result<Response, Not> {
        self.send(&self.request(operation, wish))
    }

    pub fn answer(&self, operation: Operation) -> Answer {
        self.ask(operation, None).unwrap().answer
    }

    pub fn make(&self, name: &str) -> Answer {
        self.answer(make(name))
    }

    pub fn sees(&self, name: &str) -> bool {
        match self.answer(Operation::Lookup(Ino::ROOT, name.into())) {
            Answer::Failed(forebay_protocol::Failure::NotFound) => false,
            Answer::Failed(failure) => panic!("{failure:?}"),
            _ => true,
        }
    }
}

pub fn make(name: &str) -> Operation {
    make_of(name, FileKind::Regular)
}

pub fn make_of(name: &str, kind: FileKind) -> Operation {
    let new = NewInode { kind, mode: 0o755, uid: 0, gid: 0, rdev: 0, target: Vec::new(), xattrs: Vec::new() };
    Operation::Make(Ino::ROOT, name.into(), new)
}

/// A token for all of a volume.
pub fn whole(volume: &str) -> TokenInfo {
    TokenInfo {
        id: String::new(),
        volume: volume.to_owned(),
        root: "/".to_owned(),
        read_only: false,
        no_exec: false,
        root_squash: false,
        created: Timespec { secs: 0, nanos: 0 },
        expires: None,
    }
}
