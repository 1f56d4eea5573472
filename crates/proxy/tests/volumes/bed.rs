//! A volume with its owner and store, members with logs, and a writer.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_client::Transport;
use forebay_cluster::{Moment, ServerId, SessionId, Terms};
use forebay_engine::{Engine, MemoryEngine};
use forebay_env::SystemClock;
use forebay_format::{
    footer::{Footer, TAIL_LEN},
    key::Key,
    row::{ObjectRef, Row},
    set_row::SegmentSetRow,
};
use forebay_group::{
    Append, Budget, GroupId, GroupRow, Incarnation, Member as Mate, MemberId, MemberState, ViewEpoch,
};
use forebay_meta::Namespace;
use forebay_object::{Backend, FaultyStore, ObjectStore, StoreOptions, StoreUrl};
use forebay_owner::{SystemTicks, Ticks, VolumeOwner, take};
use forebay_protocol::{Refusal, Rights, SegmentPlace, VolumeInfo, group::Seal};
use forebay_proxy::{
    log::{Directory, Log, LogOptions},
    volumes::{Acting, Counted, Pace, Surroundings, Volumes},
};
use forebay_types::{Compression, Epoch, SegmentId, SubvolumeId, Timespec, VolumeId};
use parking_lot::Mutex;

use crate::{
    wire::{Office, Way, Wire},
    writer::Writer,
};

pub const GROUP: GroupId = GroupId([9; 16]);
pub const V: VolumeId = VolumeId([7; 16]);
pub const NEVER: Duration = Duration::from_secs(60);

pub fn info() -> VolumeInfo {
    VolumeInfo {
        name: "v".to_owned(),
        id: V,
        store: String::new(),
        endpoint: None,
        region: None,
        block_size: 4 << 20,
        compression: Compression::None,
        created: Timespec::default(),
        limit: None,
        generation: 1,
    }
}

/// As fast as a test can look; the rest as it is.
pub fn pace() -> Pace {
    let ms = Duration::from_millis;
    Pace {
        offer_every: ms(100),
        look_every: ms(10),
        put_after: ms(50),
        again_after: ms(20),
        again_max: ms(100),
        linger: ms(200),
        ..Pace::default()
    }
}

/// Waits until `holds`.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < NEVER, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The system's clock, and what a test lets pass besides.
#[derive(Default)]
pub struct Jumping(AtomicU64);

impl Ticks for Jumping {
    fn now(&self) -> Moment {
        Moment(SystemTicks.now().0 + self.0.load(SeqCst))
    }
}

pub struct World {
    pub office: Arc<Office>,
    pub owner: Arc<VolumeOwner>,
    pub engine: Arc<MemoryEngine>,
    pub ticks: Arc<Jumping>,
    pub store: Arc<FaultyStore>,
    _dir: tempfile::TempDir,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

fn terms() -> Terms {
    let hours = |hours: u64| Duration::from_secs(3600 * hours);
    // Nobody ends because a test lets time pass.
    Terms { take_after: hours(40), serve_for: hours(30), session: hours(20), ..Terms::default() }
}

impl World {
    pub fn new() -> World {
        let engine = Arc::new(MemoryEngine::default());
        Namespace::format(engine.as_ref(), &SystemClock, 0, 0, 0o755).unwrap();
        let (office, ticks) = (Arc::new(Office::default()), Arc::new(Jumping::default()));
        let rows: Arc<dyn Engine> = Arc::clone(&engine) as _;
        let taken = take(&rows, (ServerId([1; 16]), "x"), terms(), &*ticks, std::thread::sleep, &|| false);
        let to = Arc::clone(&office);
        let push = Box::new(move |session, push| to.push(session, push));
        let clock = Arc::new(SystemClock);
        let (taken, at) = (taken.unwrap().unwrap(), SubvolumeId::FIRST);
        let owner =
            VolumeOwner::open(taken, rows, at, 4 << 20, terms(), clock, Arc::clone(&ticks) as _, push);
        let owner = Arc::new(owner.unwrap());
        *office.owner.lock() = Some(Arc::clone(&owner));
        *office.volume.lock() = Some(V);
        let dir = tempfile::tempdir().unwrap();
        let url: StoreUrl = format!("file://{}", dir.path().display()).parse().unwrap();
        let options = StoreOptions { create_directory: true, ..StoreOptions::default() };
        let inner = ObjectStore::open(&url, &options).unwrap();
        let store = Arc::new(FaultyStore::new(Arc::new(inner), 1));
        let ends = Arc::new(AtomicBool::new(false));
        let (committing, tidying, until) = (Arc::clone(&owner), Arc::clone(&owner), Arc::clone(&ends));
        let commits = std::thread::spawn(move || drop(committing.commit_until_stopped()));
        let tidies = std::thread::spawn(move || {
            while !until.load(SeqCst) {
                tidying.tidy().unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        World { office, owner, engine, ticks, store, _dir: dir, ends, threads: vec![commits, tidies] }
    }

    pub fn pass(&self, secs: u64) {
        self.ticks.0.fetch_add(secs * 1_000_000_000, SeqCst);
    }

    /// The row `0 g` of a segment.
    pub fn row(&self, segment: SegmentId) -> Option<SegmentSetRow> {
        let value = self.engine.get(&Key::Set(segment).encode()).unwrap();
        value.map(|value| SegmentSetRow::decode(&value).unwrap())
    }

    /// Names of all objects.
    pub fn objects(&self) -> Vec<String> {
        let page = self.store.list("data", None).unwrap();
        page.entries.into_iter().map(|meta| meta.key).collect()
    }

    pub fn footer(&self, key: &str) -> Footer {
        let (bytes, _) = self.store.get(key).unwrap();
        let at = bytes.len() - TAIL_LEN;
        let tail = bytes[at..].try_into().unwrap();
        let len = Footer::len_from_tail(&tail).unwrap();
        Footer::decode(&bytes[at - len..at], &tail).unwrap()
    }

    /// The group has these, each in a zone of its own.
    pub fn view(&self, epoch: u64, members: &[MemberId]) {
        let mut group = GroupRow::new(2);
        group.view.epoch = ViewEpoch(epoch);
        for id in members {
            let (node, zone) = (id.to_string(), id.to_string());
            let (incarnation, state) = (Incarnation::default(), MemberState::Active);
            let mate = Mate { incarnation, address: String::new(), node, zone, weight: 1, state };
            group.view.members.insert(*id, mate);
        }
        self.owner.group_is(GROUP, &group);
    }

    pub fn member(&self, number: u8) -> Member {
        Member::new(self, number)
    }

    pub fn writer(&self, session: u128) -> Writer {
        let (owner, session) = (Arc::clone(&self.owner), SessionId(session));
        let (to, from) = mpsc::channel();
        owner.begin_session(session, "writer", Rights::ALL, Box::new(move |said| drop(to.send(said))));
        from.recv_timeout(NEVER).unwrap().unwrap();
        Writer::new(owner, session)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        *self.office.owner.lock() = None;
        self.owner.stop();
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// The process around a member's sessions.
pub struct Around {
    office: Arc<Office>,
    pub way: Arc<Way>,
    store: ObjectStore,
    pub acting: Mutex<Option<Acting>>,
    /// Whether clients of this machine write.
    pub stream: AtomicBool,
    /// What was kept of what is clean.
    pub kept: Mutex<BTreeMap<SegmentId, (SegmentPlace, Bytes)>>,
    /// Objects that it has put, with their segments.
    pub stored: Mutex<Vec<(ObjectRef, Vec<SegmentId>, Bytes)>>,
    /// Logs of other members.
    pub others: Mutex<BTreeMap<MemberId, Arc<Log>>>,
    /// What servers list, and what they have on record, of the volume.
    pub listed: Mutex<Result<(), Refusal>>,
    pub deleted: Mutex<Result<bool, Refusal>>,
}

impl Surroundings for Around {
    fn acting(&self) -> Option<Acting> {
        *self.acting.lock()
    }

    fn volume(&self, volume: VolumeId) -> Result<VolumeInfo, Refusal> {
        assert_eq!(volume, V);
        self.listed.lock().clone().map(|()| info())
    }

    fn was_deleted(&self, volume: VolumeId) -> Result<bool, Refusal> {
        assert_eq!(volume, V);
        self.deleted.lock().clone()
    }

    fn transport(&self) -> io::Result<Arc<dyn Transport>> {
        Ok(Arc::new(Wire::new(&self.office, &self.way)))
    }

    fn store(&self, _: &VolumeInfo) -> Result<ObjectStore, String> {
        Ok(self.store.clone())
    }

    fn stored(&self, _: &VolumeInfo, object: ObjectRef, segments: &[SegmentId], bytes: &Bytes) {
        self.stored.lock().push((object, segments.to_vec(), bytes.clone()));
    }

    fn keep(&self, _: &VolumeInfo, segment: SegmentId, place: &SegmentPlace, bytes: &Bytes) {
        self.kept.lock().insert(segment, (*place, bytes.clone()));
    }

    fn writers_stream(&self) -> bool {
        self.stream.load(SeqCst)
    }

    fn copy_to(&self, member: MemberId, volume: VolumeId, seal: &Seal, bytes: Bytes) -> Result<(), String> {
        let log = self.others.lock().get(&member).cloned().ok_or("nobody is there")?;
        let Seal { segment, epoch, len, check } = *seal;
        assert!(bytes.len() as u64 == len && crc32c::crc32c(&bytes) == check);
        let append = Append { segment, epoch, offset: 0, bytes, check };
        log.append(volume, &append, &|_| Ok(())).map_err(|error| error.to_string())?;
        log.seal(volume, segment, epoch, (len, check)).map(drop).map_err(|error| error.to_string())
    }
}

pub struct Member {
    pub id: MemberId,
    pub log: Arc<Log>,
    pub around: Arc<Around>,
    pub volumes: Option<Volumes>,
    dir: tempfile::TempDir,
}

fn open_log(dir: &tempfile::TempDir, id: MemberId, incarnation: u8) -> Arc<Log> {
    let ids = (GROUP, id, Incarnation([incarnation; 16]));
    let disk = Arc::new(Directory::new(dir.path()));
    let options = LogOptions {
        file_len: 16 << 20,
        reserve: 64 << 10,
        ..LogOptions::new(disk, ids, Budget { limit: 1 << 30 })
    };
    Arc::new(Log::open(options).unwrap().0)
}

impl Member {
    fn new(world: &World, number: u8) -> Member {
        let (id, dir) = (MemberId([number; 16]), tempfile::tempdir().unwrap());
        let log = open_log(&dir, id, number);
        let acting = Acting { incarnation: Incarnation([1; 16]), view: ViewEpoch(1), draining: false };
        let around = Arc::new(Around {
            office: Arc::clone(&world.office),
            way: Arc::default(),
            store: ObjectStore::over(Arc::clone(&world.store) as _),
            acting: Mutex::new(Some(acting)),
            stream: AtomicBool::new(false),
            kept: Mutex::default(),
            stored: Mutex::default(),
            others: Mutex::default(),
            listed: Mutex::new(Ok(())),
            deleted: Mutex::new(Ok(false)),
        });
        Member { id, log, around, volumes: None, dir }
    }

    pub fn starts(&mut self) {
        self.starts_at(pace());
    }

    pub fn starts_at(&mut self, pace: Pace) {
        let around = Arc::clone(&self.around) as _;
        let volumes = Volumes::start((GROUP, self.id), Arc::clone(&self.log), around, pace);
        self.volumes = Some(volumes.unwrap());
    }

    /// It is gone as if its machine were; its disk stays.
    pub fn dies(&mut self) {
        self.around.way.cut.store(true, SeqCst);
        self.volumes = None;
        self.log.close();
    }

    /// Another process has its disk.
    pub fn comes_back(&mut self, incarnation: u8) {
        self.log = open_log(&self.dir, self.id, incarnation);
        self.around.way.cut.store(false, SeqCst);
        self.around.way.cut_at_store.store(false, SeqCst);
        let acting =
            Acting { incarnation: Incarnation([incarnation; 16]), view: ViewEpoch(2), draining: false };
        *self.around.acting.lock() = Some(acting);
        self.starts();
    }

    pub fn counted(&self) -> Counted {
        self.volumes.as_ref().unwrap().counted()
    }

    pub fn append(&self, segment: SegmentId, epoch: u64, bytes: &Bytes) {
        let offset = self.log.kept(V, segment).map_or(0, |kept| kept.end());
        let append = Append {
            segment,
            epoch: Epoch(epoch),
            offset,
            bytes: bytes.clone(),
            check: crc32c::crc32c(bytes),
        };
        let step = loop {
            match self.log.append(V, &append, &|_| Ok(())) {
                Ok(step) => break step,
                // The next file is being made.
                Err(forebay_proxy::log::PutError::Full) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        };
        self.synced(step.upto);
    }

    pub fn seal(&self, segment: SegmentId, bytes: &Bytes) {
        let seal = (bytes.len() as u64, crc32c::crc32c(bytes));
        let step = self.log.seal(V, segment, Epoch(1), seal).unwrap();
        self.synced(step.upto);
    }

    fn synced(&self, upto: u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.log.synced(upto)).unwrap();
    }

    pub fn has(&self, segment: SegmentId) -> bool {
        self.log.kept(V, segment).is_some()
    }

    pub fn is_empty(&self) -> bool {
        self.log.offers(V).is_empty()
    }
}
