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

use forebay_cluster::{Lease, Moment, ServerId, SessionId, SlotNumber, Terms};
use forebay_env::ManualClock;
use forebay_meta::{MetaError, Namespace, NewInode};
use forebay_owner::{Answer, Operation, Push, Refusal, Request, Response, Ticks, VolumeOwner, take};
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
}

impl World {
    pub fn new() -> World {
        let engine = HeldEngine::new();
        Namespace::format(engine.as_ref(), &ManualClock::default(), 0, 0, 0o755).unwrap();
        World { engine, ticks: Arc::default(), servers: AtomicU64::new(1) }
    }

    /// A server that owns the volume, once it can: a pause of it lets time pass.
    pub fn owner(&self) -> Server {
        let mut id = [0; 16];
        id[0] = self.servers.fetch_add(1, Ordering::SeqCst) as u8;
        let pass = |pause| self.ticks.pass(pause);
        let terms = Terms::default();
        let engine: Arc<dyn forebay_engine::Engine> = Arc::clone(&self.engine) as _;
        let at = (ServerId(id), "test:1");
        let taken = take(&engine, at, terms, self.ticks.as_ref(), pass, &|| false).unwrap().unwrap();
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

    pub fn begin(&self, session: u128) -> Client<'_> {
        let (to, from) = mpsc::channel();
        let session = SessionId(session);
        self.owner.begin_session(session, "a test", Box::new(move |response| drop(to.send(response))));
        assert_eq!(Awaited(from).answer(), Answer::Done);
        Client { server: self, session, next: AtomicU64::new(1) }
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

    pub fn ask(&self, operation: Operation) -> Awaited {
        self.server.submit(self.request(operation, None))
    }

    pub fn ask_for(&self, operation: Operation, wish: Lease) -> Awaited {
        self.server.submit(self.request(operation, Some(wish)))
    }
}

pub fn make(name: &str) -> Operation {
    let new = NewInode {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 1,
        gid: 1,
        rdev: 0,
        target: Vec::new(),
        xattrs: Vec::new(),
    };
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
