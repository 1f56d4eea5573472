//! An owner, its engine, a store, and clients whose messages a test loses.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use forebay_client::{ContentsOptions, Listener, Settings, SharedVolume, SystemTicks, Transport, Trouble};
use forebay_cluster::{ServerId, SessionId, Terms};
use forebay_engine::{Engine, MemoryEngine};
use forebay_env::SystemClock;
use forebay_meta::{MetaError, Namespace, NewInode};
use forebay_object::{ObjectStore, StoreOptions, StoreUrl};
use forebay_owner::{VolumeOwner, take};
use forebay_protocol::{
    Hello, Operation, Push, Reclaim, Reclaimed, Refusal, Request, Response, Return, Rights, VolumeInfo,
    Welcome,
};
use forebay_types::{Compression, FileKind, Ino, SubvolumeId, Timespec, VolumeId};
use forebay_vfs::{By, Files, ReadPiece, Write, WriteAt};
use parking_lot::Mutex;

/// After which a test gives something up that never comes.
pub const NEVER: Duration = Duration::from_secs(90);

/// Long enough for a machine that has much to do, short enough to wait for.
pub fn terms() -> Terms {
    Terms {
        take_after: Duration::from_millis(1200),
        serve_for: Duration::from_millis(1000),
        beat_every: Duration::from_millis(200),
        session: Duration::from_secs(6),
        margin: Duration::from_millis(700),
    }
}

type Links = Arc<Mutex<Vec<(SessionId, Weak<dyn Listener>)>>>;

pub struct Server {
    pub owner: Arc<VolumeOwner>,
    committer: Option<JoinHandle<Result<(), MetaError>>>,
}

pub struct World {
    engine: Arc<MemoryEngine>,
    dir: tempfile::TempDir,
    links: Links,
    server: Mutex<Option<Server>>,
    servers: AtomicU64,
    /// Operations that changed something and were taken in by an owner.
    pub changes: AtomicU64,
    /// Messages that clients were told unasked.
    pub pushes: Arc<AtomicU64>,
}

impl World {
    pub fn new() -> Arc<World> {
        let engine = Arc::new(MemoryEngine::default());
        Namespace::format(engine.as_ref(), &SystemClock, 0, 0, 0o755).unwrap();
        let world = World {
            engine,
            dir: tempfile::tempdir().unwrap(),
            links: Arc::default(),
            server: Mutex::new(None),
            servers: AtomicU64::new(1),
            changes: AtomicU64::new(0),
            pushes: Arc::default(),
        };
        world.start();
        Arc::new(world)
    }

    /// Another server takes the volume, once it can.
    pub fn start(&self) {
        let mut id = [0; 16];
        id[0] = self.servers.fetch_add(1, SeqCst) as u8;
        let engine: Arc<dyn Engine> = Arc::clone(&self.engine) as _;
        let ticks = forebay_owner::SystemTicks;
        let pause = |time: Duration| std::thread::sleep(time.min(Duration::from_millis(20)));
        let taken = take(&engine, (ServerId(id), "beside"), terms(), &ticks, pause, &|| false).unwrap();
        let (links, pushes) = (Arc::clone(&self.links), Arc::clone(&self.pushes));
        let push = Box::new(move |session, push: Push| {
            pushes.fetch_add(1, SeqCst);
            let found = links.lock().iter().find(|(id, _)| *id == session).map(|(_, link)| link.clone());
            if let Some(link) = found.and_then(|link| link.upgrade()) {
                link.pushed(push);
            }
        });
        let at = SubvolumeId::FIRST;
        let clock = Arc::new(SystemClock);
        let owner =
            VolumeOwner::open(taken.unwrap(), engine, at, 4 << 20, terms(), clock, Arc::new(ticks), push);
        let owner = Arc::new(owner.unwrap());
        let committing = Arc::clone(&owner);
        let committer = Some(std::thread::spawn(move || committing.commit_until_stopped()));
        *self.server.lock() = Some(Server { owner, committer });
    }

    /// The server is gone as if its machine were.
    pub fn kill(&self) {
        let server = self.server.lock().take();
        if let Some(mut server) = server {
            server.owner.abandon();
            let _ = server.committer.take().unwrap().join().unwrap();
        }
    }

    pub fn owner(&self) -> Option<Arc<VolumeOwner>> {
        self.server.lock().as_ref().map(|server| Arc::clone(&server.owner))
    }

    /// Ends the sessions that have this root.
    pub fn end_sessions_below(&self, root: Ino) {
        let owner = self.owner().unwrap();
        let sessions: Vec<_> = self.links.lock().iter().map(|(session, _)| *session).collect();
        let below = |session: &SessionId| owner.rights(*session).is_some_and(|rights| rights.root == root);
        sessions.into_iter().filter(below).for_each(|session| owner.end_session(session));
    }

    /// Waits until nothing is left of an inode. Who has seen it may go on to know it.
    pub fn is_purged(self: &Arc<Self>, ino: Ino) {
        until("the last handle", || !self.owner().unwrap().is_open(ino));
        until("its end", || {
            self.owner().unwrap().tidy().unwrap();
            let found = self.client("late").volume.inode(ino);
            matches!(found, Err(forebay_vfs::VfsError::Stale(_)))
        });
    }

    pub fn store(&self) -> ObjectStore {
        let url: StoreUrl = format!("file://{}", self.dir.path().display()).parse().unwrap();
        ObjectStore::open(&url, &StoreOptions { create_directory: true, ..StoreOptions::default() }).unwrap()
    }

    pub fn client(self: &Arc<Self>, name: &str) -> Client {
        self.client_with(Settings { names: 10_000, ..Settings::of("v", name) })
    }

    pub fn client_with(self: &Arc<Self>, settings: Settings) -> Client {
        self.client_of(settings, Rights::ALL)
    }

    /// One whose token shows this directory.
    pub fn client_below(self: &Arc<Self>, name: &str, root: Ino) -> Client {
        let rights = Rights { root, ..Rights::ALL };
        self.client_of(Settings { names: 10_000, ..Settings::of("v", name) }, rights)
    }

    pub fn client_of(self: &Arc<Self>, settings: Settings, rights: Rights) -> Client {
        let wire = Arc::new(Wire {
            world: Arc::clone(self),
            listener: Mutex::new(None),
            greeted: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            loses: AtomicU32::new(0),
            asked: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            returns: AtomicU64::new(0),
            delay_us: AtomicU64::new(0),
            slow: Mutex::new(None),
            slow_ones: AtomicU64::new(0),
            rights: Mutex::new(rights),
        });
        let store = self.store();
        let open = move |_: &VolumeInfo| {
            let options = ContentsOptions::of(&store);
            Ok((store, options))
        };
        let volume =
            SharedVolume::over(Arc::clone(&wire) as _, settings, Arc::new(SystemTicks), NEVER, open).unwrap();
        Client { volume, wire }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.lock().take() {
            server.owner.stop();
            let _ = server.committer.take().unwrap().join();
        }
    }
}

/// Which operations take longer, and by how much.
pub type Slow = (fn(&Operation) -> bool, Duration);

/// One client's way to whoever owns the volume.
pub struct Wire {
    world: Arc<World>,
    listener: Mutex<Option<Weak<dyn Listener>>>,
    greeted: AtomicBool,
    is_cut: AtomicBool,
    /// So many answers to changes get lost from now on.
    pub loses: AtomicU32,
    /// Requests that were sent, and those that told of contents.
    pub asked: AtomicU64,
    pub commits: AtomicU64,
    /// Messages that returned leases.
    pub returns: AtomicU64,
    /// How long each of them is under way, in microseconds.
    pub delay_us: AtomicU64,
    /// Which operations are under way for how much longer.
    pub slow: Mutex<Option<Slow>>,
    /// Such operations that are under way.
    pub slow_ones: AtomicU64,
    /// What its token gives a session that begins now.
    pub rights: Mutex<Rights>,
}

impl Wire {
    /// Nothing gets through any more, in either direction.
    pub fn cut(&self) {
        self.is_cut.store(true, SeqCst);
        self.greeted.store(false, SeqCst);
        let listener: Weak<dyn Listener> = Weak::<Nobody>::new();
        let mine = self.listener.lock().clone();
        for (_, link) in self.world.links.lock().iter_mut() {
            if mine.as_ref().is_some_and(|mine| mine.ptr_eq(link)) {
                *link = listener.clone();
            }
        }
    }

    pub fn mend(&self) {
        self.is_cut.store(false, SeqCst);
    }

    fn owner(&self) -> Result<Arc<VolumeOwner>, Trouble> {
        let lost = || Trouble::Lost("nobody is there".to_owned());
        if self.is_cut.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
            return Err(lost());
        }
        self.world.owner().ok_or_else(lost)
    }

    fn greeted(&self) -> Result<Arc<VolumeOwner>, Trouble> {
        if self.greeted.load(SeqCst) { self.owner() } else { Err(Trouble::Lost("no greeting".to_owned())) }
    }
}

/// Who hears nothing.
struct Nobody;

impl Listener for Nobody {
    fn pushed(&self, _: Push) {}

    fn lost(&self) {}
}

fn told<T>(result: Result<T, Refusal>) -> Result<T, Trouble> {
    result.map_err(Trouble::Refused)
}

impl Wire {
    /// Calls, and waits for the reply; it is lost with the owner or the connection.
    fn reply(
        &self,
        owner: &Arc<VolumeOwner>,
        call: impl FnOnce(forebay_owner::Reply),
        patience: Duration,
    ) -> Result<Result<Response, Refusal>, Trouble> {
        let (to, from) = mpsc::channel();
        call(Box::new(move |response| drop(to.send(response))));
        let until = Instant::now() + patience;
        loop {
            match from.recv_timeout(Duration::from_millis(20)) {
                Ok(response) => return Ok(response),
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < until => {
                    let now = self.owner()?;
                    if !Arc::ptr_eq(&now, owner) {
                        return Err(Trouble::Lost("the owner is gone".to_owned()));
                    }
                }
                Err(error) => return Err(Trouble::Lost(error.to_string())),
            }
        }
    }
}

impl Transport for Wire {
    fn listen(&self, listener: Weak<dyn Listener>) {
        *self.listener.lock() = Some(listener);
    }

    fn hello(&self, hello: &Hello, patience: Duration) -> Result<Welcome, Trouble> {
        let owner = self.owner()?;
        {
            let mut links = self.world.links.lock();
            links.retain(|(session, _)| *session != hello.session);
            links.push((hello.session, self.listener.lock().clone().unwrap()));
        }
        let Some(epoch) = owner.epoch() else { return told(Err(Refusal::NotOwner { address: None })) };
        if hello.resumes {
            match owner.renew(hello.session) {
                Ok(()) | Err(Refusal::MustReclaim { .. }) => {}
                Err(refusal) => return Err(Trouble::Refused(refusal)),
            }
        } else {
            let rights = *self.rights.lock();
            let begin = |reply| owner.begin_session(hello.session, &hello.client, rights, reply);
            told(self.reply(&owner, begin, patience)?)?;
        }
        self.greeted.store(true, SeqCst);
        owner.tell_again(hello.session);
        let term_ms = terms().session.as_millis() as u64;
        let volume = VolumeInfo {
            name: "v".to_owned(),
            id: VolumeId([7; 16]),
            store: String::new(),
            endpoint: None,
            region: None,
            block_size: 4 << 20,
            compression: Compression::Lz4,
            created: Timespec { secs: 0, nanos: 0 },
            limit: owner.limit(),
            generation: 1,
        };
        let rights = owner.rights(hello.session).unwrap_or(Rights::ALL);
        Ok(Welcome { epoch, term_ms, begun: !hello.resumes, volume, rights })
    }

    fn ask(
        &self,
        request: &Request,
        _: bool,
        patience: Duration,
        _: Option<&dyn Fn() -> bool>,
    ) -> Result<Response, Trouble> {
        let owner = self.greeted()?;
        self.asked.fetch_add(1, SeqCst);
        self.commits.fetch_add(u64::from(matches!(request.operation, Operation::Commit(_))), SeqCst);
        std::thread::sleep(Duration::from_micros(self.delay_us.load(SeqCst)));
        let slow = (*self.slow.lock()).filter(|(which, _)| which(&request.operation));
        if let Some((_, time)) = slow {
            self.slow_ones.fetch_add(1, SeqCst);
            std::thread::sleep(time);
        }
        let changes = request.operation.changes();
        if changes && !matches!(request.operation, Operation::Numbers(..) | Operation::Release(_)) {
            self.world.changes.fetch_add(1, SeqCst);
        }
        // As a server does: in a thread of its own, which commits where nobody does.
        let (brings, request_of) = (Arc::clone(&owner), request.clone());
        let submit = move |reply| {
            drop(std::thread::spawn(move || brings.submit_and_commit(request_of, reply)));
        };
        let response = self.reply(&owner, submit, patience);
        self.slow_ones.fetch_sub(u64::from(slow.is_some()), SeqCst);
        let response = response?;
        if changes && self.loses.load(SeqCst) > 0 {
            self.loses.fetch_sub(1, SeqCst);
            return Err(Trouble::Lost("the answer was lost".to_owned()));
        }
        if self.is_cut.load(SeqCst) {
            return Err(Trouble::Lost("it was cut".to_owned()));
        }
        told(response)
    }

    fn renew(&self, session: SessionId, _: Duration) -> Result<(), Trouble> {
        told(self.greeted()?.renew(session))
    }

    fn reclaim(&self, reclaim: &Reclaim, _: Duration) -> Result<Reclaimed, Trouble> {
        let (epoch, grants) = told(self.greeted()?.reclaim(reclaim.session, &reclaim.leases))?;
        Ok(Reclaimed { epoch, grants })
    }

    fn give_back(&self, returned: &[Return], _: Duration) -> Result<(), Trouble> {
        self.returns.fetch_add(1, SeqCst);
        self.greeted()?.all_returned(returned);
        Ok(())
    }

    fn end(&self, session: SessionId, _: Duration) -> Result<(), Trouble> {
        self.greeted()?.end_session(session);
        Ok(())
    }

    fn elsewhere(&self, _: Option<&str>) {}

    fn close(&self) {
        self.greeted.store(false, SeqCst);
    }
}

pub struct Client {
    pub volume: SharedVolume,
    pub wire: Arc<Wire>,
}

pub fn file() -> NewInode {
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

pub fn directory() -> NewInode {
    NewInode { kind: FileKind::Directory, mode: 0o755, ..file() }
}

impl Client {
    pub fn make(&self, name: &str) -> Ino {
        self.volume.make(Ino::ROOT, name.as_bytes(), &file()).unwrap().ino
    }

    pub fn find(&self, name: &str) -> Option<Ino> {
        match self.volume.lookup(Ino::ROOT, name.as_bytes()) {
            Ok(inode) => Some(inode.ino),
            Err(forebay_vfs::VfsError::NotFound) => None,
            Err(error) => panic!("{name}: {error}"),
        }
    }

    pub fn size(&self, ino: Ino) -> u64 {
        self.volume.inode(ino).unwrap().row.size
    }

    pub fn put(&self, ino: Ino, at: WriteAt, data: &[u8]) -> u64 {
        self.volume.write(ino, &Write { at, data, by: By::default() }).unwrap()
    }

    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) {
        self.put(ino, WriteAt::Offset(offset), data);
    }

    pub fn append(&self, ino: Ino, data: &[u8]) -> u64 {
        self.put(ino, WriteAt::End(0), data)
    }

    pub fn read(&self, ino: Ino) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in self.volume.read(ino, 0, 16 << 20).unwrap() {
            match piece {
                ReadPiece::Bytes(piece) => bytes.extend_from_slice(&piece),
                ReadPiece::Zeros(len) => bytes.resize(bytes.len() + len, 0),
            }
        }
        bytes
    }

    pub fn unlink(&self, name: &str, open: &[Ino]) {
        let in_use = |ino| open.contains(&ino);
        self.volume.unlink(Ino::ROOT, name.as_bytes(), &in_use).unwrap();
    }

    pub fn rename(&self, from: &str, to: &str) {
        let (from, to) = ((Ino::ROOT, from.as_bytes()), (Ino::ROOT, to.as_bytes()));
        self.volume.rename(from, to, forebay_meta::RenameMode::Replace, &|_| false).unwrap();
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let after = names.last().map(|name| name.as_bytes().to_vec());
            let page = self.volume.entries(Ino::ROOT, after.as_deref(), 100, false).unwrap();
            if page.is_empty() {
                return names;
            }
            names.extend(page.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()));
        }
    }

    pub fn asked(&self) -> u64 {
        self.wire.asked.load(SeqCst)
    }
}

/// Waits until `holds`.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + NEVER;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} never came");
        std::thread::sleep(Duration::from_millis(2));
    }
}
