//! Members of a group with logs on disk, reached over TCP. Tests have them fail and lie.

use std::{
    collections::BTreeMap,
    future::pending,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use forebay_client::{ContentsOptions, Listener, Reader, Transport, Trouble, VolumeGroup};
use forebay_cluster::SessionId;
use forebay_format::row::ObjectRef;
use forebay_group::{
    Budget, GroupId, Incarnation, Member, MemberId, MemberState, NotActing, View, ViewEpoch,
};
use forebay_protocol::{
    Hello, Kind, Message, Reclaim, Reclaimed, Refusal, Request, Response, Return, Rights, VolumeInfo,
    Welcome,
    group::{Fetch, Fetched, GroupView, Peek, Taken, ViewOf, ViewsOf, Vouch, Vouched, here_socket},
};
use forebay_proxy::{
    log::{Directory, Log, LogOptions},
    writeback::{Serving, Standing, Vouching, WriteBack},
};
use forebay_rpc::{
    Address, Handler, Handling, Peer, Security, Server, ServerConfig, connection,
    wire::{Code, Refusal as Refused},
};
use forebay_types::{SegmentId, VolumeId};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::{fleet::id, owner::HasCopies, world::World};

pub const GROUP: GroupId = GroupId([9; 16]);

/// Whether a member acts, as a test says.
#[derive(Default)]
pub struct Says {
    pub out: AtomicBool,
    pub draining: AtomicBool,
    pub view: AtomicU64,
}

impl Standing for Says {
    fn may(&self, opens: bool) -> Result<(), NotActing> {
        match (self.out.load(SeqCst), self.draining.load(SeqCst)) {
            (true, _) => Err(NotActing::Out),
            (_, true) if opens => Err(NotActing::Draining),
            _ => Ok(()),
        }
    }

    fn now(&self) -> (Incarnation, ViewEpoch, bool) {
        (Incarnation([3; 16]), ViewEpoch(self.view.load(SeqCst)), self.draining.load(SeqCst))
    }
}

/// A metadata server that knows one token, and the volume as read through this group.
struct Tokens(VolumeInfo, GroupId);

impl Vouching for Tokens {
    fn vouch(&self, vouch: &Vouch) -> Result<Vouched, Refusal> {
        if vouch.token.as_deref() != Some("write") {
            return Err(Refusal::Denied("unknown".to_owned()));
        }
        let (volume, rights, group) = (self.0.clone(), Rights::ALL, Some(self.1));
        Ok(Vouched { volume, rights, for_ms: 60_000, group, whole: true })
    }
}

/// What becomes of a message at a member.
#[derive(Clone, Copy)]
pub enum Fault {
    /// It is not heard.
    Deaf,
    /// It is taken, and not answered.
    Mute,
    /// Nothing is taken, and this is said.
    Lies(fn(&mut Taken)),
}

impl std::fmt::Debug for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fault::Deaf => "Deaf",
            Fault::Mute => "Mute",
            Fault::Lies(_) => "Lies",
        })
    }
}

/// How the store answers a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Store {
    /// Not at all.
    #[default]
    Hangs,
    /// After so long, with what the other members have.
    Gives(Duration),
    Fails,
    HasNot,
}

/// What a member gives to those who read.
#[derive(Debug, Default)]
pub struct Cached {
    pub objects: BTreeMap<ObjectRef, Bytes>,
    pub store: Store,
    /// So many fetches are not answered.
    pub late: u32,
    /// How often it was asked for what it has or the store, and for what it has.
    pub fetches: u64,
    pub peeks: u64,
}

impl Cached {
    /// What it has.
    fn peek(&mut self, peek: &Peek) -> Bytes {
        self.peeks += 1;
        let range = peek.offset as usize..(peek.offset + u64::from(peek.len)) as usize;
        self.objects.get(&peek.object).map_or_else(Bytes::new, |bytes| bytes.slice(range))
    }

    /// `None`: there is no answer.
    fn fetch(&mut self, fetch: &Fetch) -> Option<(Duration, Result<connection::Reply, Refused>)> {
        self.fetches += 1;
        if self.late > 0 {
            self.late -= 1;
            return None;
        }
        let reply = |fetched: Fetched, bulk| Ok(connection::Reply { body: fetched.encode().into(), bulk });
        let has = |store: Duration| {
            let bytes = self.objects.get(&fetch.object)?;
            let range = fetch.offset as usize..(fetch.offset + u64::from(fetch.len)) as usize;
            let here = Fetched::Here { width: 1, epoch: ViewEpoch(1) };
            Some((
                store,
                match fetch.len {
                    0 => reply(Fetched::Length(bytes.len() as u64), Bytes::new()),
                    _ => reply(here, bytes.slice(range)),
                },
            ))
        };
        match self.store {
            Store::Fails | Store::HasNot if !self.objects.contains_key(&fetch.object) => {
                let refusal = match self.store {
                    Store::HasNot => Refusal::Invalid("there is no such object".to_owned()),
                    _ => Refusal::Unavailable("the store is away".to_owned()),
                };
                let refused = Refused::new(Code(Kind::REFUSED), refusal.to_string());
                Some((Duration::ZERO, Err(refused.detailed(refusal.encode()))))
            }
            Store::Hangs if fetch.waits => None,
            Store::Gives(after) if fetch.waits => has(after),
            Store::Gives(_) => Some((Duration::ZERO, reply(Fetched::Coming, Bytes::new()))),
            Store::Hangs | Store::Fails | Store::HasNot => {
                has(Duration::ZERO).or_else(|| Some((Duration::ZERO, reply(Fetched::Coming, Bytes::new()))))
            }
        }
    }
}

/// Members' faults: of which, from its append with this number on, counted from 1.
type Plan = Arc<Mutex<Option<(u64, Fault)>>>;

/// A member that fails as it is told.
struct Failing {
    inner: Serving,
    plan: Plan,
    appends: Arc<AtomicU64>,
    /// How long it takes to say how near it is, in milliseconds.
    away: Arc<AtomicU64>,
    /// It is of a release that knows no kinds from [`LATER`] on.
    older: Arc<AtomicBool>,
    cached: Arc<Mutex<Cached>>,
}

/// The first kind that members of the first release do not know: `Warm`.
const LATER: u16 = 41;

impl Handler for Failing {
    fn handle(&self, peer: &Arc<Peer>, request: connection::Request) -> Handling {
        if self.older.load(SeqCst) && request.kind >= LATER {
            let text = format!("this release knows no message of kind {}", request.kind);
            return Box::pin(std::future::ready(Err(Refused::new(Code::UNSUPPORTED, text))));
        }
        if Kind::of(request.kind) == Some(Kind::Near) {
            let away = Duration::from_millis(self.away.load(SeqCst));
            return Box::pin(async move {
                tokio::time::sleep(away).await;
                Ok(connection::Reply { body: Bytes::new(), bulk: Bytes::new() })
            });
        }
        if Kind::of(request.kind) == Some(Kind::Peek) {
            let bulk = self.cached.lock().peek(&Peek::decode(&request.body).unwrap());
            return Box::pin(std::future::ready(Ok(connection::Reply { body: Bytes::new(), bulk })));
        }
        if Kind::of(request.kind) == Some(Kind::Fetch) {
            let answer = self.cached.lock().fetch(&Fetch::decode(&request.body).unwrap());
            return Box::pin(async move {
                let Some((after, answer)) = answer else { return pending().await };
                tokio::time::sleep(after).await;
                answer
            });
        }
        let appends = match Kind::of(request.kind) {
            Some(Kind::Append) => self.appends.fetch_add(1, SeqCst) + 1,
            _ => 0,
        };
        let fault = self.plan.lock().filter(|(from, _)| appends >= *from).map(|(_, fault)| fault);
        match fault {
            None => self.inner.handle(peer, request),
            Some(Fault::Deaf) => Box::pin(pending()),
            Some(Fault::Mute) => {
                let taking = self.inner.handle(peer, request);
                Box::pin(async move {
                    let _ = taking.await;
                    pending().await
                })
            }
            Some(Fault::Lies(lie)) => {
                let parts = forebay_protocol::group::Appends::decode(&request.body).unwrap().parts;
                let end = |part: &forebay_protocol::group::AppendPart| {
                    let end = part.offset + u64::from(part.len);
                    forebay_protocol::group::SegmentAnswer::Synced { end }
                };
                let parts = parts.iter().map(end).collect();
                let member = self.inner.0.member();
                let mut taken = Taken { member, parts, pace_us: 0, view: ViewEpoch(1), draining: false };
                lie(&mut taken);
                let reply = connection::Reply { body: taken.encode().into(), bulk: Bytes::new() };
                Box::pin(std::future::ready(Ok(reply)))
            }
        }
    }

    fn closed(&self, peer: &Arc<Peer>) {
        self.inner.closed(peer);
    }
}

struct Served {
    log: Arc<Log>,
    says: Arc<Says>,
    plan: Plan,
    appends: Arc<AtomicU64>,
    away: Arc<AtomicU64>,
    older: Arc<AtomicBool>,
    cached: Arc<Mutex<Cached>>,
    address: String,
    /// Until it is killed.
    running: Option<(Server, tokio::runtime::Runtime)>,
}

/// Where the member of a machine listens for those of the same one.
fn node_dir(dir: &Path, number: u8) -> PathBuf {
    dir.join(format!("node{number}"))
}

fn serve(dir: &Path, (group, number): (GroupId, u8), volume: &VolumeInfo) -> Served {
    let (member, incarnation) = (id(number), Incarnation([number; 16]));
    std::fs::create_dir_all(dir).unwrap();
    let disk = Arc::new(Directory::new(dir));
    let budget = Budget { limit: 256 << 20 };
    let options = LogOptions {
        file_len: 16 << 20,
        reserve: 64 << 10,
        ..LogOptions::new(disk, (group, member, incarnation), budget)
    };
    let log = Arc::new(Log::open(options).unwrap().0);
    let (says, plan) = (Arc::new(Says::default()), Plan::default());
    says.view.store(1, SeqCst);
    let tokens = Arc::new(Tokens(volume.clone(), group));
    let inner = Serving(WriteBack::new((group, member), log.clone(), says.clone(), tokens));
    let appends = Arc::new(AtomicU64::new(0));
    let (away, older) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let cached = Arc::new(Mutex::new(Cached::default()));
    let handler = Failing {
        inner,
        plan: plan.clone(),
        appends: appends.clone(),
        away: away.clone(),
        older: older.clone(),
        cached: cached.clone(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = ServerConfig::new(Security::Insecure);
    let (at, here) =
        ("127.0.0.1:0".parse().unwrap(), here_socket(&node_dir(dir.parent().unwrap(), number), member));
    std::fs::create_dir_all(here.parent().unwrap()).unwrap();
    let listen = [at, Address::Unix(here)];
    let server = runtime.block_on(async { Server::bind(&listen, config, Arc::new(handler)) }).unwrap();
    let address = server.addresses()[0].to_string();
    Served { log, says, plan, appends, away, older, cached, address, running: Some((server, runtime)) }
}

/// A group, and metadata servers that tell of it.
pub struct Group {
    id: GroupId,
    name: &'static str,
    volume: VolumeId,
    members: Mutex<BTreeMap<u8, Served>>,
    view: Mutex<View>,
    pub writes: Mutex<Option<u8>>,
    /// How often the view was asked for.
    pub asked: AtomicU64,
    /// So many questions for the view are not answered.
    pub silent: AtomicU64,
    /// Servers are of a release that tells of one group alone.
    pub older: AtomicBool,
    dir: TempDir,
}

impl Group {
    /// `count` members, over whose logs a volume is written `copies` times.
    pub fn of(world: &World, count: u8, copies: Option<u8>) -> Arc<Group> {
        Group::named(world, ("g", GROUP), 1..=count, copies)
    }

    /// The same with a name, an id, and members with these numbers.
    pub fn named(
        world: &World,
        (name, id_of_group): (&'static str, GroupId),
        numbers: RangeInclusive<u8>,
        copies: Option<u8>,
    ) -> Arc<Group> {
        let dir = tempfile::tempdir().unwrap();
        let (mut members, mut view) = (BTreeMap::new(), View::new(2));
        for number in numbers {
            let served = serve(&dir.path().join(number.to_string()), (id_of_group, number), &world.volume);
            let member = Member {
                incarnation: Incarnation([number; 16]),
                address: served.address.clone(),
                node: format!("node{number}"),
                zone: format!("zone{number}"),
                weight: 1,
                state: MemberState::Active,
            };
            view.members.insert(id(number), member);
            members.insert(number, served);
        }
        Arc::new(Group {
            id: id_of_group,
            name,
            volume: world.volume.id,
            members: Mutex::new(members),
            view: Mutex::new(view),
            writes: Mutex::new(copies),
            asked: AtomicU64::new(0),
            silent: AtomicU64::new(0),
            older: AtomicBool::new(false),
            dir,
        })
    }

    /// How contents are kept over it by a client of its own. The owner of `world` asks its members what they have.
    pub fn options(self: &Arc<Group>, world: &World, node: &str) -> ContentsOptions {
        *world.owner.fleet.lock() = Some(Arc::clone(self) as Arc<dyn HasCopies>);
        let servers = Servers(Mutex::new(vec![Arc::clone(self)]));
        options(world, Arc::new(servers), self.node(node))
    }

    /// The directory of a machine on which a member of it may be.
    pub fn node(&self, node: &str) -> PathBuf {
        self.dir.path().join(node)
    }

    /// How long each member takes to say how near it is, in milliseconds.
    pub fn is_away(&self, ms: u64) {
        self.members.lock().values().for_each(|served| served.away.store(ms, SeqCst));
    }

    /// All members are of an older release.
    pub fn is_older(&self) {
        self.members.lock().values().for_each(|served| served.older.store(true, SeqCst));
    }

    /// All members end.
    pub fn kill_all(&self) {
        let numbers: Vec<u8> = self.members.lock().keys().copied().collect();
        numbers.into_iter().for_each(|number| self.kill(number));
    }

    /// Appends at all members.
    pub fn all_appends(&self) -> u64 {
        self.members.lock().values().map(|served| served.appends.load(SeqCst)).sum()
    }

    fn told(&self, known: ViewEpoch) -> GroupView {
        let view = self.view.lock().clone();
        let view = (view.epoch > known).then_some(view);
        GroupView { name: self.name.to_owned(), id: self.id, view, writes: *self.writes.lock() }
    }

    fn with<R>(&self, number: u8, work: impl FnOnce(&mut Served) -> R) -> R {
        work(self.members.lock().get_mut(&number).unwrap())
    }

    /// As `kill -9` ends it: connections are lost, and there are no new ones.
    pub fn kill(&self, number: u8) {
        if let Some((server, runtime)) = self.with(number, |served| served.running.take()) {
            drop(server);
            runtime.shutdown_background();
        }
    }

    /// The next append at this member, and each one after it, goes wrong after so many more.
    pub fn plan(&self, number: u8, after: u64, fault: Fault) {
        self.with(number, |served| {
            *served.plan.lock() = Some((served.appends.load(SeqCst) + after + 1, fault));
        });
    }

    pub fn says<R>(&self, number: u8, work: impl FnOnce(&Says) -> R) -> R {
        self.with(number, |served| work(&served.says))
    }

    /// What a member gives to those who read.
    pub fn cached<R>(&self, number: u8, work: impl FnOnce(&mut Cached) -> R) -> R {
        self.with(number, |served| work(&mut served.cached.lock()))
    }

    /// What a member has, by its log on disk: ends of segments, and whether they are sealed.
    pub fn kept(&self, number: u8) -> BTreeMap<SegmentId, (u64, bool)> {
        let volume = self.volume;
        self.with(number, |served| {
            let offers = served.log.offers(volume).into_iter();
            offers.map(|offer| (offer.segment, (offer.end, offer.sealed.is_some()))).collect()
        })
    }

    pub fn appends(&self, number: u8) -> u64 {
        self.with(number, |served| served.appends.load(SeqCst))
    }

    /// From the next view on the first member's name stands at the second one's address.
    pub fn confuse(&self, named: u8, at: u8) {
        let mut view = self.view.lock();
        let address = view.members[&id(at)].address.clone();
        view.members.get_mut(&id(named)).unwrap().address = address;
        view.epoch = view.epoch.next();
    }
}

impl HasCopies for Group {
    fn assert_has(&self, set: &[MemberId], segment: SegmentId, end: u64) {
        assert!(set.len() >= 2 || *self.writes.lock() == Some(1), "a single copy");
        let volume = self.volume;
        for member in set {
            // What is not on stable storage is not read.
            let read = self.with(member.0[0], |served| served.log.read(volume, segment, 0, end).map(drop));
            assert!(read.is_ok(), "{member:?} has not {end} bytes of {segment}, which are named: {read:?}");
        }
    }
}

/// How contents are kept over the groups of which these tell.
pub fn options(world: &World, servers: Arc<Servers>, here: PathBuf) -> ContentsOptions {
    world.options().through(&follow(world, servers, here))
}

/// The groups of which these tell, as a client knows them.
pub fn follow(world: &World, servers: Arc<Servers>, here: PathBuf) -> Arc<VolumeGroup> {
    let reader = Reader {
        volume: world.volume.name.clone(),
        id: world.volume.id,
        token: Some("write".to_owned()),
        client: "a test".to_owned(),
        here: vec![here],
        security: Security::Insecure,
    };
    VolumeGroup::start(servers, reader).unwrap()
}

/// Metadata servers that tell of the groups of a volume.
pub struct Servers(pub Mutex<Vec<Arc<Group>>>);

impl HasCopies for Servers {
    fn assert_has(&self, set: &[MemberId], segment: SegmentId, end: u64) {
        let groups = self.0.lock().clone();
        let has_all = |group: &Arc<Group>| {
            let members = group.members.lock();
            set.iter().all(|member| members.contains_key(&member.0[0]))
        };
        let group = groups.iter().find(|group| has_all(group));
        group.expect("a set of members of one group").assert_has(set, segment, end);
    }
}

fn nobody<T>() -> Result<T, Trouble> {
    Err(Trouble::Never("only groups are told of".to_owned()))
}

impl Transport for Servers {
    fn listen(&self, _: Weak<dyn Listener>) {}

    fn hello(&self, _: &Hello, _: Duration) -> Result<Welcome, Trouble> {
        nobody()
    }

    fn ask(
        &self,
        _: &Request,
        _: bool,
        _: Duration,
        _: Option<&dyn Fn() -> bool>,
    ) -> Result<Response, Trouble> {
        nobody()
    }

    fn renew(&self, _: SessionId, _: Duration) -> Result<(), Trouble> {
        nobody()
    }

    fn reclaim(&self, _: &Reclaim, _: Duration) -> Result<Reclaimed, Trouble> {
        nobody()
    }

    fn give_back(&self, _: &[Return], _: Duration) -> Result<(), Trouble> {
        nobody()
    }

    fn end(&self, _: SessionId, _: Duration) -> Result<(), Trouble> {
        nobody()
    }

    fn view_of(&self, asked: &ViewOf, _: Duration) -> Result<Option<GroupView>, Trouble> {
        let Some(first) = self.0.lock().first().cloned() else { return Ok(None) };
        first.asked.fetch_add(1, SeqCst);
        if first.silent.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(Trouble::Lost("no answer".to_owned()));
        }
        Ok(Some(first.told(asked.known)))
    }

    fn views_of(&self, asked: &ViewsOf, patience: Duration) -> Result<Vec<GroupView>, Trouble> {
        let groups = self.0.lock().clone();
        if groups.iter().any(|group| group.older.load(SeqCst)) {
            return Err(Trouble::Never("this release knows no message of kind 31".to_owned()));
        }
        let knows = |id: GroupId| {
            let known = asked.known.iter().find(|(group, _)| *group == id);
            known.map_or(ViewEpoch(0), |(_, view)| *view)
        };
        let Some(first) = groups.first() else { return Ok(Vec::new()) };
        let ViewsOf { volume, token, .. } = asked.clone();
        let told = self.view_of(&ViewOf { volume, token, known: knows(first.id) }, patience)?;
        Ok(told.into_iter().chain(groups[1..].iter().map(|group| group.told(knows(group.id)))).collect())
    }

    fn elsewhere(&self, _: Option<&str>) {}

    fn close(&self) {}
}
