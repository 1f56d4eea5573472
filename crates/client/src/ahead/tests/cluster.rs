//! Owners of one volume, one after the other, and clients, in one process. Time passes where a test says so.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use forebay_cluster::{
    Grant, HeldLeases, Lease, Moment, Recalled, ServerId, SessionId, SlotNumber, Stamp, Terms,
};
use forebay_engine::MemoryEngine;
use forebay_env::{ManualClock, SystemClock};
use forebay_meta::{Namespace, NewInode};
use forebay_owner::{Ticks, VolumeOwner, take};
use forebay_protocol::{Answer, Failure, Operation, Push, Recall, Refusal, Request, Response, Rights};
use forebay_types::{Epoch, FileKind, Ino, SubvolumeId};
use parking_lot::{Condvar, Mutex, RwLock};

use super::gate::Gate;
use crate::{
    ahead::{Ahead, AheadOptions, Leases},
    asks::{Asks, Then},
    error::ClientError,
    link::Patience,
};

/// After which a test gives something up that never comes.
const NEVER: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct TestTicks(AtomicU64);

impl TestTicks {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Ticks for TestTicks {
    fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }
}

type Clients = Arc<Mutex<BTreeMap<SessionId, Weak<Client>>>>;

pub struct Cluster {
    engine: Arc<MemoryEngine>,
    ticks: Arc<TestTicks>,
    owner: Arc<RwLock<Arc<VolumeOwner>>>,
    clients: Clients,
    servers: AtomicU64,
}

impl Cluster {
    pub fn new() -> Cluster {
        let engine = Arc::new(MemoryEngine::default());
        Namespace::format(engine.as_ref(), &ManualClock::default(), 0, 0, 0o755).unwrap();
        let (ticks, clients) = (Arc::<TestTicks>::default(), Clients::default());
        let owner = owner(&engine, &ticks, &clients, 1);
        let servers = AtomicU64::new(2);
        Cluster { engine, ticks, owner: Arc::new(RwLock::new(owner)), clients, servers }
    }

    /// The owner is gone, and another takes over.
    pub fn take_over(&self) {
        self.owner.read().abandon();
        let number = self.servers.fetch_add(1, Ordering::SeqCst);
        let next = owner(&self.engine, &self.ticks, &self.clients, number as u8);
        *self.owner.write() = next;
    }

    pub fn end_session(&self, session: SessionId) {
        self.owner.read().end_session(session);
    }

    pub fn client(&self, number: u128) -> Arc<Client> {
        self.slow_client(number, Duration::ZERO)
    }

    /// A client whose requests are under way this long.
    pub fn slow_client(&self, number: u128, delay: Duration) -> Arc<Client> {
        let options = AheadOptions { operations: 500, ..AheadOptions::new(4 << 20) };
        self.client_with(number, delay, options)
    }

    /// A client that knows so many inodes and names at most, and so many hashes.
    pub fn forgetful_client(&self, number: u128, known: usize, hashed: usize) -> Arc<Client> {
        let options = AheadOptions { operations: 50, known, hashed, ..AheadOptions::new(4 << 20) };
        self.client_with(number, Duration::ZERO, options)
    }

    fn client_with(&self, number: u128, delay: Duration, options: AheadOptions) -> Arc<Client> {
        let session = SessionId(number);
        let owner = Arc::clone(&self.owner.read());
        let (to, from) = mpsc::channel();
        let reply = Box::new(move |response| drop(to.send(response)));
        owner.begin_session(session, "a test", Rights::ALL, reply);
        let begun: Result<Response, Refusal> = from.recv_timeout(NEVER).unwrap();
        assert_eq!(begun.unwrap().answer, Answer::Done);
        let now = self.ticks.now();
        let link = Arc::new_cyclic(|this| Link {
            owner: Arc::clone(&self.owner),
            ticks: Arc::clone(&self.ticks),
            session,
            number: AtomicU64::new(1),
            held: Mutex::new(HeldLeases::new(Terms::default(), owner.epoch().unwrap(), now)),
            slots: Mutex::new((0..16).map(|slot| (SlotNumber(slot), 1)).collect()),
            freed: Condvar::new(),
            delay,
            cut: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            there: AtomicU64::new(0),
            wrong: Mutex::default(),
            runs_from: AtomicU64::new(0),
            no_runs: AtomicBool::new(false),
            gate: Gate::default(),
            garbles: AtomicBool::new(false),
            late: Mutex::default(),
            pages: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            told_by: Mutex::default(),
            this: Weak::clone(this),
        });
        let (under, leases) = (Arc::clone(&link) as _, Arc::clone(&link) as _);
        let ahead = Ahead::start(under, leases, Arc::new(SystemClock), options).unwrap();
        let client = Arc::new(Client { link, ahead });
        self.clients.lock().insert(session, Arc::downgrade(&client));
        client
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.owner.read().abandon();
    }
}

fn owner(
    engine: &Arc<MemoryEngine>,
    ticks: &Arc<TestTicks>,
    clients: &Clients,
    number: u8,
) -> Arc<VolumeOwner> {
    let engine: Arc<dyn forebay_engine::Engine> = Arc::clone(engine) as _;
    let (at, terms) = ((ServerId([number; 16]), "test:1"), Terms::default());
    let pass = |pause| ticks.pass(pause);
    let taken = take(&engine, at, terms, ticks.as_ref(), pass, &|| false).unwrap().unwrap();
    let clients = Arc::clone(clients);
    let push = Box::new(move |session, push| {
        let leases = match push {
            Push::Recall { ino, keep, stamp } => vec![Recall { ino, keep, stamp }],
            Push::Recalls(leases) => leases,
            _ => return,
        };
        for Recall { ino, keep, stamp } in leases {
            let client = clients.lock().get(&session).and_then(Weak::upgrade);
            // Nobody waits for it in this thread.
            client.map(|client| std::thread::spawn(move || client.recalled(ino, keep, stamp)));
        }
    });
    let (ticks, clock) = (Arc::clone(ticks) as _, Arc::new(SystemClock));
    let owner = VolumeOwner::open(taken, engine, SubvolumeId::FIRST, 4 << 20, terms, clock, ticks, push);
    let owner = Arc::new(owner.unwrap());
    let committing = Arc::clone(&owner);
    std::thread::spawn(move || committing.commit_until_stopped());
    owner
}

/// What a client has of its session, without any cache.
pub struct Link {
    owner: Arc<RwLock<Arc<VolumeOwner>>>,
    ticks: Arc<TestTicks>,
    pub session: SessionId,
    number: AtomicU64,
    held: Mutex<HeldLeases>,
    slots: Mutex<Vec<(SlotNumber, u64)>>,
    freed: Condvar,
    delay: Duration,
    /// Nothing arrives any more.
    pub cut: AtomicBool,
    pub asked: AtomicU64,
    /// Files that were to be made at the owner.
    pub there: AtomicU64,
    pub wrong: Mutex<Vec<Ino>>,
    /// Where not 0: the numbers that it says it was given, in place of those that it was.
    pub runs_from: AtomicU64,
    /// It is given no numbers.
    pub no_runs: AtomicBool,
    pub gate: Gate,
    /// The next answer to what was done ahead cannot be read.
    pub garbles: AtomicBool,
    /// With what no page of a directory comes.
    pub late: Mutex<Option<ClientError>>,
    /// Pages of directories that were asked for.
    pub pages: AtomicU64,
    /// Patience with what tells the owner of it may end.
    pub ends: AtomicBool,
    /// Which thread has told last what was done ahead.
    pub told_by: Mutex<Option<ThreadId>>,
    /// Itself, for what goes on in a thread of its own.
    this: Weak<Link>,
}

impl Asks for Link {
    fn ask(&self, operation: Operation, wish: Option<Lease>) -> Result<Response, ClientError> {
        self.ask_in(self.session(), operation, wish)
    }

    fn session(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    fn ask_in(
        &self,
        number: u64,
        operation: Operation,
        wish: Option<Lease>,
    ) -> Result<Response, ClientError> {
        if matches!(&operation, Operation::Make(_, _, new) if new.kind == FileKind::Regular) {
            self.there.fetch_add(1, Ordering::SeqCst);
        }
        if matches!(operation, Operation::Ahead(_)) {
            *self.told_by.lock() = Some(thread::current().id());
        }
        if matches!(operation, Operation::Entries { .. }) {
            self.pages.fetch_add(1, Ordering::SeqCst);
            if let Some(error) = self.late.lock().clone() {
                return Err(error);
            }
        }
        let (operation, refused) = self.gate.pass(operation)?;
        let garbled = matches!(operation, Operation::Ahead(_)) && self.garbles.swap(false, Ordering::SeqCst);
        let changes = operation.changes();
        let slot = changes.then(|| self.take_slot());
        let request = Request { session: self.session, slot, operation, wish };
        let answered = self.until_answered(number, &request);
        if let Some((slot, next)) = slot {
            self.slots.lock().push((slot, next + 1));
            self.freed.notify_one();
        }
        let mut response = answered?;
        if garbled {
            return Err(ClientError::Unexpected("an answer of no known kind".to_owned()));
        }
        refused.put_into(&mut response.answer);
        let from = self.runs_from.load(Ordering::SeqCst);
        if let (Answer::Runs(first, _), 1..) = (&mut response.answer, from) {
            *first = from;
        }
        if matches!(response.answer, Answer::Runs(..)) && self.no_runs.load(Ordering::SeqCst) {
            response.answer = Answer::Failed(Failure::NoSpace);
        }
        let mut held = self.held.lock();
        for grant in &response.grants {
            held.granted(*grant);
        }
        drop(held);
        Ok(response)
    }

    fn ask_to_end(
        &self,
        number: u64,
        operation: Operation,
        wish: Option<Lease>,
        patience: &Patience<'_>,
        then: Then,
    ) -> Result<(), ClientError> {
        if !self.ends.load(Ordering::SeqCst) {
            then(self.ask_in(number, operation, wish));
            return Ok(());
        }
        let this = self.this.upgrade().expect("it lives while it is asked");
        let done = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&done);
        thread::spawn(move || {
            then(this.ask_in(number, operation, wish));
            *told.0.lock() = true;
            told.1.notify_all();
        });
        let mut is_done = done.0.lock();
        while !*is_done {
            patience.wait(&done.1, &mut is_done)?;
        }
        Ok(())
    }
}

impl Link {
    fn take_slot(&self) -> (SlotNumber, u64) {
        let mut slots = self.slots.lock();
        loop {
            match slots.pop() {
                Some(slot) => return slot,
                None => self.freed.wait(&mut slots),
            }
        }
    }

    fn until_answered(&self, number: u64, request: &Request) -> Result<Response, ClientError> {
        loop {
            if self.cut.load(Ordering::SeqCst) || number != self.session() {
                return Err(ClientError::SessionEnded);
            }
            self.asked.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(self.delay / 2);
            let (to, from) = mpsc::channel();
            let (sent, owner) = (self.ticks.now(), Arc::clone(&self.owner.read()));
            owner.submit_and_commit(request.clone(), Box::new(move |response| drop(to.send(response))));
            let answered: Result<Response, Refusal> = from.recv_timeout(NEVER).expect("an answer");
            std::thread::sleep(self.delay / 2);
            match answered {
                Ok(response) => {
                    self.held.lock().heard(sent);
                    return Ok(response);
                }
                Err(Refusal::MustReclaim { epoch }) => self.reclaim(&owner, epoch),
                Err(Refusal::SessionEnded) => {
                    self.number.store(number + 1, Ordering::SeqCst);
                    return Err(ClientError::SessionEnded);
                }
                Err(Refusal::NotOwner { .. }) => std::thread::sleep(Duration::from_millis(1)),
                Err(refusal) => return Err(ClientError::Unexpected(refusal.to_string())),
            }
        }
    }

    fn reclaim(&self, owner: &VolumeOwner, epoch: Epoch) {
        let mut held = self.held.lock();
        if held.epoch() < epoch {
            let leases = held.to_reclaim(epoch);
            let (now, asked) = (self.ticks.now(), owner.reclaim(self.session, &leases));
            if let Ok((epoch, given)) = asked {
                held.reclaimed(epoch, &given);
                held.heard(now);
            }
        }
    }
}

impl Leases for Link {
    fn to_write(&self, session: u64, ino: Ino) -> Option<Grant> {
        if session != self.session() {
            return None;
        }
        let now = self.ticks.now();
        self.held.lock().to_write(ino, now).filter(|_| !self.cut.load(Ordering::SeqCst))
    }

    fn made(&self, _: u64, ino: Ino) -> Option<Grant> {
        Some(self.held.lock().made(ino))
    }

    fn wrong(&self, inos: &[Ino]) {
        self.wrong.lock().extend(inos);
    }
}

pub struct Client {
    pub link: Arc<Link>,
    pub ahead: Ahead,
}

impl Client {
    fn recalled(&self, ino: Ino, keep: Option<Lease>, stamp: Stamp) {
        if self.link.cut.load(Ordering::SeqCst) {
            return;
        }
        let recalled = self.link.held.lock().recall(ino, keep, stamp);
        let told = match recalled {
            Recalled::NotHeld => Some((stamp, None)),
            Recalled::UnderWay => None,
            Recalled::GiveBack => {
                self.ahead.recalled(ino);
                self.link.held.lock().returned(ino)
            }
        };
        if let Some((stamp, kept)) = told {
            let owner = Arc::clone(&self.link.owner.read());
            owner.returned(self.link.session, ino, stamp, kept, false);
        }
    }

    pub fn ask(&self, operation: Operation) -> Answer {
        self.ahead.ask(operation, None).unwrap().answer
    }

    pub fn make(&self, parent: Ino, name: &str, kind: FileKind) -> Ino {
        match self.ask(make(parent, name, kind)) {
            Answer::Inode(inode) => inode.ino,
            other => panic!("{name}: {other:?}"),
        }
    }

    pub fn directory(&self, parent: Ino, name: &str) -> Ino {
        self.make(parent, name, FileKind::Directory)
    }

    pub fn file(&self, parent: Ino, name: &str) -> Ino {
        self.make(parent, name, FileKind::Regular)
    }

    /// All names of a directory.
    pub fn names(&self, directory: Ino) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let after = names.last().map(|name| name.clone().into_bytes());
            match self.ask(Operation::Entries { directory, after, limit: 4096, inodes: false }) {
                Answer::Entries(entries) if entries.is_empty() => return names,
                Answer::Entries(entries) => {
                    names.extend(entries.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn asked(&self) -> u64 {
        self.link.asked.load(Ordering::SeqCst)
    }

    /// Waits until an operation has begun that changes an inode at the owner: what it waits for from then on is all that was done here before.
    pub fn wait_until_busy(&self, ino: Ino) {
        let began = Instant::now();
        while !self.ahead.shared.state.lock().is_busy(&[ino]) {
            assert!(began.elapsed() < NEVER, "nothing changes {ino} at the owner");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

pub fn make(parent: Ino, name: &str, kind: FileKind) -> Operation {
    let new = NewInode { kind, mode: 0o644, uid: 1, gid: 1, rdev: 0, target: Vec::new(), xattrs: Vec::new() };
    Operation::Make(parent, name.as_bytes().to_vec(), new)
}

pub fn rename(from: (Ino, &str), to: (Ino, &str)) -> Operation {
    Operation::Rename {
        from: from.0,
        name: from.1.as_bytes().to_vec(),
        to: to.0,
        new_name: to.1.as_bytes().to_vec(),
        mode: forebay_meta::RenameMode::Replace,
        open: Vec::new(),
    }
}

/// However long it takes.
impl Ahead {
    pub(super) fn settle(&self, inos: &[Ino]) -> Result<(), ClientError> {
        self.settle_within(inos, &Patience::FOREVER)
    }

    pub(super) fn settle_all(&self) -> Result<(), ClientError> {
        self.settle_all_within(&Patience::FOREVER)
    }
}
