//! Servers and clients of one volume in one process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver},
    },
    thread::JoinHandle,
    time::Duration,
};

use forebay_cluster::{Lease, Moment, Ownership, ServerId, SessionId, SlotNumber, Terms};
use forebay_engine::{EmbeddedEngine, MemoryEngine};
use forebay_env::ManualClock;
use forebay_meta::{MetaError, Namespace, NewInode};
use forebay_owner::{StandsBy, Taken, Ticks, VolumeOwner, stand_by, take};
use forebay_protocol::{Answer, InodeAnswer, Operation, Push, Refusal, Request, Response, Rights};
use forebay_types::{FileKind, Ino, SubvolumeId};
use parking_lot::Mutex;

use super::held::HeldEngine;

pub const AT: SubvolumeId = SubvolumeId::FIRST;
/// After which a test gives something up that never comes.
const NEVER: Duration = Duration::from_secs(60);

/// A clock that tests move.
#[derive(Debug, Default)]
pub struct TestTicks(AtomicU64);

impl TestTicks {
    pub fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Ticks for TestTicks {
    fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }
}

pub struct World {
    pub engine: Arc<HeldEngine>,
    pub ticks: Arc<TestTicks>,
    servers: AtomicU64,
    _dir: Option<tempfile::TempDir>,
}

impl World {
    pub fn new() -> World {
        World::over(Arc::new(MemoryEngine::default()), None)
    }

    /// One over an engine in memory, and one over the embedded one.
    pub fn both() -> [World; 2] {
        let dir = tempfile::tempdir().unwrap();
        let embedded = Arc::new(EmbeddedEngine::open(dir.path()).unwrap());
        [World::new(), World::over(embedded, Some(dir))]
    }

    fn over(rows: Arc<dyn forebay_engine::Engine>, dir: Option<tempfile::TempDir>) -> World {
        let engine = HeldEngine::over(rows);
        Namespace::format_counted(engine.as_ref(), &ManualClock::default(), 0, 0, 0o755).unwrap();
        World { engine, ticks: Arc::default(), servers: AtomicU64::new(1), _dir: dir }
    }

    /// Lets time pass, while the server keeps its fence and these clients say that they live.
    pub fn pass(&self, server: &Server, clients: &[&Client<'_>], time: Duration) {
        // Less than an owner may answer for after its last batch.
        let step = Duration::from_millis(1500);
        for at in 0..time.as_millis().div_ceil(step.as_millis()) {
            let (step, asked) = (step.min(time - step * at as u32), self.engine.asked());
            self.ticks.pass(step);
            if step >= Terms::default().beat_every {
                until("a beat", || self.engine.asked() > asked);
            }
            until("a beat", || clients.iter().all(|client| server.owner.renew(client.session).is_ok()));
        }
        until("a beat", || server.beats());
    }

    /// A server that owns the volume, once it can: a pause of it lets time pass.
    pub fn owner(&self) -> Server {
        self.owner_over(&self.engine)
    }

    /// One that reaches the rows through this engine.
    pub fn owner_over(&self, engine: &Arc<HeldEngine>) -> Server {
        let (id, terms) = (self.next_server(), Terms::default());
        let pass = |pause| self.ticks.pass(pause);
        let engine: Arc<dyn forebay_engine::Engine> = Arc::clone(engine) as _;
        let at = (id, "test:1");
        let taken = take(&engine, at, terms, self.ticks.as_ref(), pass, &|| false).unwrap().unwrap();
        self.serve(taken, engine)
    }

    /// A server that alone has the place since then, has said so just now, and owns the volume; `None` while it is not to be had.
    pub fn owner_alone(&self, alone_since: Moment) -> Option<Server> {
        self.owner_alone_by(alone_since, Some(self.ticks.now()))
    }

    /// One whose last beat began then.
    pub fn owner_alone_by(&self, alone_since: Moment, beat: Option<Moment>) -> Option<Server> {
        let ownership = Ownership::new(self.next_server(), "test:1".to_owned(), Terms::default());
        let engine: Arc<dyn forebay_engine::Engine> = Arc::clone(&self.engine) as _;
        let mut once = Once { over: false, beat };
        let taken = stand_by(&engine, ownership.alone(alone_since), self.ticks.as_ref(), &mut once).unwrap();
        taken.map(|taken| self.serve(taken, engine))
    }

    fn next_server(&self) -> ServerId {
        let mut id = [0; 16];
        id[0] = self.servers.fetch_add(1, Ordering::SeqCst) as u8;
        ServerId(id)
    }

    fn serve(&self, taken: Taken, engine: Arc<dyn forebay_engine::Engine>) -> Server {
        let terms = Terms::default();
        let pushes: Arc<Mutex<Vec<(SessionId, Push)>>> = Arc::default();
        let to = Arc::clone(&pushes);
        let push = Box::new(move |session, push| to.lock().push((session, push)));
        let ticks = Arc::clone(&self.ticks) as _;
        let clock = Arc::new(ManualClock::default());
        let owner = VolumeOwner::open(taken, engine, AT, 4 << 20, terms, clock, ticks, push).unwrap();
        let owner = Arc::new(owner);
        let committing = Arc::clone(&owner);
        let committer = Mutex::new(Some(std::thread::spawn(move || committing.commit_until_stopped())));
        Server { owner, pushes, committer }
    }
}

/// Looks once.
struct Once {
    over: bool,
    beat: Option<Moment>,
}

impl StandsBy for Once {
    fn pause(&mut self, _: Duration) {
        self.over = true;
    }

    fn stopped(&self) -> bool {
        self.over
    }

    fn beat(&self) -> Option<Moment> {
        self.beat
    }
}

pub struct Server {
    pub owner: Arc<VolumeOwner>,
    pub pushes: Arc<Mutex<Vec<(SessionId, Push)>>>,
    committer: Mutex<Option<JoinHandle<Result<(), MetaError>>>>,
}

/// A response that is waited for.
pub struct Awaited(Receiver<Result<Response, Refusal>>);

impl Awaited {
    pub fn get(self) -> Result<Response, Refusal> {
        self.0.recv_timeout(NEVER).expect("a response comes")
    }

    pub fn answer(self) -> Answer {
        self.get().unwrap().answer
    }

    /// Whether it never comes.
    pub fn never_comes(self) -> bool {
        matches!(self.0.recv_timeout(NEVER), Err(mpsc::RecvTimeoutError::Disconnected))
    }

    pub fn is_there(&self) -> bool {
        match self.0.try_recv() {
            Ok(found) => panic!("it was answered: {found:?}"),
            Err(mpsc::TryRecvError::Empty) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

impl Server {
    pub fn submit(&self, request: Request) -> Awaited {
        let (to, from) = mpsc::channel();
        self.owner.submit(request, Box::new(move |response| drop(to.send(response))));
        Awaited(from)
    }

    /// In a thread that commits it, where nobody else does.
    pub fn submit_beside(&self, request: Request) -> Awaited {
        let (owner, (to, from)) = (Arc::clone(&self.owner), mpsc::channel());
        let reply = Box::new(move |response| drop(to.send(response)));
        std::thread::spawn(move || owner.submit_and_commit(request, reply));
        Awaited(from)
    }

    pub fn begin(&self, session: u128) -> Client<'_> {
        self.begin_with(session, Rights::ALL)
    }

    pub fn begin_with(&self, session: u128, rights: Rights) -> Client<'_> {
        let (to, from) = mpsc::channel();
        let session = SessionId(session);
        let reply = Box::new(move |response| drop(to.send(response)));
        self.owner.begin_session(session, "a test", rights, reply);
        assert_eq!(Awaited(from).answer(), Answer::Done);
        Client { server: self, session, next: AtomicU64::new(1) }
    }

    /// Whether it answers.
    fn beats(&self) -> bool {
        !matches!(self.owner.renew(SessionId(u128::MAX)), Err(Refusal::NotOwner { .. }))
    }

    /// What a session was told and nobody has asked for yet.
    pub fn told(&self, session: SessionId) -> Vec<Push> {
        self.pushes.lock().extract_if(.., |push| push.0 == session).map(|push| push.1).collect()
    }

    /// The same client, at this server.
    pub fn client(&self, session: SessionId, next: u64) -> Client<'_> {
        Client { server: self, session, next: AtomicU64::new(next) }
    }

    pub fn stop(&self) -> Result<(), MetaError> {
        self.owner.stop();
        self.ended()
    }

    /// Waits until the server has stopped or been deposed.
    pub fn ended(&self) -> Result<(), MetaError> {
        let committer = self.committer.lock().take();
        committer.unwrap().join().unwrap()
    }
}

pub struct Client<'a> {
    server: &'a Server,
    pub session: SessionId,
    next: AtomicU64,
}

impl Client<'_> {
    pub fn request(&self, operation: Operation, wish: Option<Lease>) -> Request {
        let slot = operation.changes().then(|| (SlotNumber(0), self.next.fetch_add(1, Ordering::SeqCst)));
        Request { session: self.session, slot, operation, wish }
    }

    /// The number of its next request.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// The inode that it is told.
    pub fn inode(&self, operation: Operation) -> InodeAnswer {
        self.ask(operation).answer().inode().expect("an inode").clone()
    }

    pub fn ask(&self, operation: Operation) -> Awaited {
        self.server.submit(self.request(operation, None))
    }

    /// Asks in the calling thread, which commits it where nobody else does.
    pub fn ask_here(&self, operation: Operation) -> Awaited {
        let (to, from) = mpsc::channel();
        let reply = Box::new(move |response| drop(to.send(response)));
        self.server.owner.submit_and_commit(self.request(operation, None), reply);
        Awaited(from)
    }

    /// Asks by [`Server::submit`], or by [`Server::submit_beside`].
    pub fn ask_by(&self, beside: bool, operation: Operation) -> Awaited {
        let request = self.request(operation, None);
        if beside { self.server.submit_beside(request) } else { self.server.submit(request) }
    }

    /// Sends a request as it is, again too.
    pub fn send(&self, request: Request) -> Awaited {
        self.server.submit(request)
    }

    pub fn ask_for(&self, operation: Operation, wish: Lease) -> Awaited {
        self.server.submit(self.request(operation, Some(wish)))
    }
}

pub fn new_file() -> NewInode {
    NewInode {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 1,
        gid: 1,
        rdev: 0,
        target: Vec::new(),
        xattrs: Vec::new(),
    }
}

pub fn make(name: &str) -> Operation {
    Operation::Make(Ino::ROOT, name.as_bytes().to_vec(), new_file())
}

pub fn make_directory(name: &str) -> Operation {
    let new = NewInode { kind: FileKind::Directory, mode: 0o755, ..new_file() };
    Operation::Make(Ino::ROOT, name.as_bytes().to_vec(), new)
}

pub fn lookup(name: &str) -> Operation {
    Operation::Lookup(Ino::ROOT, name.as_bytes().to_vec())
}

/// Waits until `holds`.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{what} never came");
}
