//! The same contents at an owner that has sessions, over an engine in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use forebay_client::{Asks, ClientError, Contents, ContentsOptions, LostBytes, Members, Room, TellsLoss};
use forebay_cluster::{Lease, Moment, ServerId, SessionId, SlotNumber, Terms};
use forebay_engine::{Engine, MemoryEngine};
use forebay_env::SystemClock;
use forebay_group::{GroupId, GroupRow, ViewEpoch};
use forebay_meta::{Inode, MetaError, Namespace, NewInode, WriteAttr};
use forebay_owner::{Ticks, VolumeOwner, take};
use forebay_protocol::{
    Answer, FencedCopies, FencedCopy, InodeAnswer, Numbers, OfferCopies, Operation, Push, Request, Response,
    Rights, StoreSegments,
};
use forebay_types::{FileKind, Ino, SubvolumeId};
use parking_lot::Mutex;

use crate::{
    fleet::{Fleet, id},
    world::{BLOCK, World, bytes, until},
};

/// A clock that the test moves.
#[derive(Debug, Default)]
struct TestTicks(AtomicU64);

impl Ticks for TestTicks {
    fn now(&self) -> Moment {
        Moment(self.0.load(Ordering::SeqCst))
    }
}

struct Server {
    owner: Arc<VolumeOwner>,
    ticks: Arc<TestTicks>,
    pushes: Arc<Mutex<Vec<(SessionId, Push)>>>,
    committer: Option<JoinHandle<Result<(), MetaError>>>,
}

impl Server {
    fn start() -> Server {
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        Namespace::format(engine.as_ref(), &SystemClock, 0, 0, 0o755).unwrap();
        let (ticks, terms) = (Arc::new(TestTicks::default()), Terms::default());
        let pass = |pause: Duration| {
            ticks.0.fetch_add(pause.as_nanos() as u64, Ordering::SeqCst);
        };
        let at = (ServerId([1; 16]), "test:1");
        let taken = take(&engine, at, terms, ticks.as_ref(), pass, &|| false).unwrap().unwrap();
        let pushes: Arc<Mutex<Vec<(SessionId, Push)>>> = Arc::default();
        let to = Arc::clone(&pushes);
        let told = Box::new(move |session, push| to.lock().push((session, push)));
        let clock = Arc::new(SystemClock);
        let as_ticks = Arc::clone(&ticks) as _;
        let opened =
            VolumeOwner::open(taken, engine, SubvolumeId::FIRST, BLOCK, terms, clock, as_ticks, told);
        let owner = Arc::new(opened.unwrap());
        let committing = Arc::clone(&owner);
        let committer = Some(std::thread::spawn(move || committing.commit_until_stopped()));
        Server { owner, ticks, pushes, committer }
    }

    fn session(&self, number: u128) -> Arc<Session> {
        let (to, from) = mpsc::channel();
        let session = SessionId(number);
        self.owner.begin_session(
            session,
            "a test",
            Rights::ALL,
            Box::new(move |begun| to.send(begun).unwrap()),
        );
        from.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
        Arc::new(Session {
            owner: Arc::clone(&self.owner),
            session,
            next: Mutex::new(1),
            deaf: false.into(),
            maps: AtomicU64::new(0),
        })
    }

    /// Lets time pass, in steps in which the owner keeps its fence.
    fn pass(&self, time: Duration, session: &Session) {
        for _ in 0..time.as_secs() {
            self.ticks.0.fetch_add(1_000_000_000, Ordering::SeqCst);
            until("a beat", || self.owner.renew(session.session).is_ok());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.owner.stop();
        self.committer.take().unwrap().join().unwrap().unwrap();
    }
}

/// A session whose requests follow each other in one slot.
struct Session {
    owner: Arc<VolumeOwner>,
    session: SessionId,
    next: Mutex<u64>,
    /// Commits do not reach the owner any more.
    deaf: std::sync::atomic::AtomicBool,
    /// How often a map was asked for.
    maps: AtomicU64,
}

impl Session {
    fn told(&self, operation: Operation) -> InodeAnswer {
        match self.ask(operation, None).unwrap().answer {
            Answer::Inode(inode) => *inode,
            other => panic!("{other:?}"),
        }
    }

    fn make(&self, name: &str) -> Inode {
        let kind = FileKind::Regular;
        let new = NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: vec![], xattrs: vec![] };
        let told = self.told(Operation::Make(Ino::ROOT, name.as_bytes().to_vec(), new));
        Inode::removed(told.ino, told.row, None)
    }
}

impl Asks for Session {
    fn ask(&self, operation: Operation, wish: Option<Lease>) -> Result<Response, ClientError> {
        if self.deaf.load(Ordering::SeqCst) && matches!(operation, Operation::Commit(_)) {
            return Err(ClientError::TimedOut(Duration::from_secs(1)));
        }
        if matches!(operation, Operation::Map(..)) {
            self.maps.fetch_add(1, Ordering::SeqCst);
        }
        let mut next = self.next.lock();
        let slot = operation.changes().then_some((SlotNumber(0), *next));
        *next += u64::from(slot.is_some());
        let (to, from) = mpsc::channel();
        let request = Request { session: self.session, slot, operation, wish };
        self.owner.submit(request, Box::new(move |response| drop(to.send(response))));
        let response = from.recv_timeout(Duration::from_secs(60)).expect("the owner answers");
        response.map_err(|refusal| ClientError::Denied(refusal.to_string()))
    }

    fn session(&self) -> u64 {
        1
    }

    fn ask_in(&self, _: u64, operation: Operation, wish: Option<Lease>) -> Result<Response, ClientError> {
        self.ask(operation, wish)
    }
}

fn contents(world: &World, session: &Arc<Session>) -> Arc<Contents> {
    let asks = Arc::clone(session) as Arc<dyn Asks>;
    Contents::start(asks, world.store(), &world.volume, world.options()).unwrap()
}

fn write(contents: &Contents, inode: &Inode, data: &[u8]) {
    let _ = contents.write(inode, 0, data, WriteAttr::default(), (Room::Wait, 1)).unwrap();
}

#[test]
fn an_owner_takes_in_what_is_committed_and_finds_what_is_not() {
    let (world, server) = (World::new(), Server::start());
    let (writer, reader) = (server.session(1), server.session(2));
    let (mine, theirs) = (contents(&world, &writer), contents(&world, &reader));
    let files: Vec<_> = (0..40).map(|number| writer.make(&format!("f{number}"))).collect();
    for (number, inode) in files.iter().enumerate() {
        write(&mine, inode, &bytes(number as u64, 200 + number * 5000));
    }
    mine.settle_all().unwrap();
    for (number, inode) in files.iter().enumerate() {
        let told = reader.told(Operation::Inode(inode.ino));
        theirs.learn(&told);
        let read = theirs.read(&Inode::removed(told.ino, told.row, None), 0, 1 << 20, &|| true).unwrap();
        let forebay_data::ReadPiece::Bytes(found) = &read[0] else { panic!("{read:?}") };
        assert!(*found == bytes(number as u64, 200 + number * 5000));
    }
    let committed = world.objects();
    // The client puts another object and dies.
    writer.deaf.store(true, Ordering::SeqCst);
    write(&mine, &files[0], &bytes(99, 50_000));
    assert!(mine.settle(&[files[0].ino]).is_err());
    drop(mine);
    let left: Vec<_> = world.objects().difference(&committed).copied().collect();
    assert_eq!(left.len(), 1);
    until("what nobody refers to is found, a while after the session's end", || {
        server.pass(Duration::from_secs(5), &reader);
        server.owner.tidy().unwrap();
        let garbage = server.owner.garbage().unwrap();
        assert!(garbage.iter().all(|object| !committed.contains(object)));
        garbage.contains(&left[0])
    });
    assert!(!server.owner.lives(writer.session));
}

fn read(contents: &Contents, session: &Session, ino: Ino) -> Vec<u8> {
    let told = session.told(Operation::Inode(ino));
    contents.learn(&told);
    let mut bytes = Vec::new();
    for piece in contents.read(&Inode::removed(told.ino, told.row, None), 0, u32::MAX, &|| true).unwrap() {
        let forebay_data::ReadPiece::Bytes(piece) = piece else { panic!("a hole") };
        bytes.extend_from_slice(&piece);
    }
    bytes
}

/// A member offers what it has, does as it is told, and fences what it is asked to.
fn member_lives(server: &Server, fleet: &Fleet, number: u8, session: &Session) {
    let member = id(number);
    let offers = OfferCopies { member, group: GroupId([9; 16]), offers: fleet.offers(number) };
    let Answer::Judged(judged) = session.ask(Operation::Offer(offers), None).unwrap().answer else {
        panic!("no verdicts")
    };
    judged.iter().for_each(|one| fleet.judged(number, one.segment, one.verdict));
    let asked: Vec<Push> = {
        let mut pushes = server.pushes.lock();
        pushes.extract_if(.., |(of, _)| *of == session.session).map(|(_, push)| push).collect()
    };
    for push in asked {
        let Push::Fence { member: of, segment, epoch } = push else { continue };
        assert_eq!(of, member);
        let fenced = fleet.fence(number, segment, epoch);
        let copies = vec![FencedCopy { segment, epoch, fenced }];
        let answer = session.ask(Operation::Fenced(FencedCopies { member, copies }), None).unwrap().answer;
        assert_eq!(answer, Answer::Done);
    }
}

#[test]
fn what_a_client_that_died_had_on_members_is_sealed_put_and_read() {
    let (world, server) = (World::new(), Server::start());
    let fleet = Fleet::of(3);
    let over = |session: &Arc<Session>| {
        let members = Some(Arc::clone(&fleet) as Arc<dyn Members>);
        let options = ContentsOptions { members, ..world.options() };
        Contents::start(Arc::clone(session) as Arc<dyn Asks>, world.store(), &world.volume, options).unwrap()
    };
    let (writer, reader) = (server.session(1), server.session(2));
    let proxies: Vec<_> = (11..14).map(|number| server.session(number)).collect();
    let (mine, theirs) = (over(&writer), over(&reader));
    let files: Vec<_> = (0..30).map(|number| writer.make(&format!("f{number}"))).collect();
    let data = |number: usize| bytes(number as u64, 2000 + number * 20_000);
    for (number, inode) in files.iter().enumerate() {
        write(&mine, inode, &data(number));
        if number % 7 == 0 {
            mine.settle_all().unwrap();
        }
    }
    mine.settle_all().unwrap();
    assert!(world.objects().is_empty(), "nothing was put");
    let all_read = |what: &str| {
        for (number, inode) in files.iter().enumerate() {
            theirs.forget(inode.ino);
            assert!(read(&theirs, &reader, inode.ino) == data(number), "{number} {what}");
        }
    };
    all_read("from members");
    // Its session ends before anything was sealed by itself; one member is gone for good.
    server.owner.end_session(writer.session);
    drop(mine);
    fleet.set_fault(3, Some(crate::fleet::Fault::Refuses));
    let live = || {
        server.pass(Duration::from_secs(1), &reader);
        proxies.iter().take(2).zip(1..).for_each(|(session, number)| {
            assert!(server.owner.renew(session.session).is_ok());
            member_lives(&server, &fleet, number, session);
        });
        server.owner.tidy().unwrap();
    };
    until("all is sealed", || {
        live();
        let states = server.owner.missing_segments().len();
        states == 0 && fleet.open_segments(1) + fleet.open_segments(2) == 0
    });
    all_read("after the recovery");
    let Answer::Numbers(Numbers { first_object: object, .. }) =
        proxies[0].ask(Operation::Numbers(0, 1), None).unwrap().answer
    else {
        panic!("no numbers")
    };
    let segments = fleet.put_as(&world, object);
    let many = segments.len();
    let stored = proxies[0].ask(Operation::Store(StoreSegments { object, segments }), None).unwrap().answer;
    assert_eq!((stored, many > 0), (Answer::Stored(vec![]), true));
    until("copies are given up", || {
        live();
        fleet.segments(1) + fleet.segments(2) == 0
    });
    all_read("from the store");
    assert_eq!(server.owner.garbage().unwrap(), []);
}

/// All members of a set are given up while the writer goes on with the segment.
#[test]
fn what_was_given_up_is_an_error_and_its_writer_goes_on() {
    let (world, server) = (World::new(), Server::start());
    let fleet = Fleet::of(2);
    let (writer, reader) = (server.session(1), server.session(2));
    let members = Some(Arc::clone(&fleet) as Arc<dyn Members>);
    let options = ContentsOptions { members, ..world.options() };
    let asks = Arc::clone(&writer) as Arc<dyn Asks>;
    let mine = Contents::start(asks, world.store(), &world.volume, options).unwrap();
    let theirs = contents(&world, &reader);
    let (lost, part, next) = (writer.make("lost"), writer.make("part"), writer.make("next"));
    write(&mine, &lost, &bytes(1, 50_000));
    write(&mine, &part, &bytes(3, 50_000));
    mine.settle_all().unwrap();
    for by in [TellsLoss::Sync, TellsLoss::Close] {
        mine.tell_loss(lost.ino, by).unwrap();
    }
    let mut group = GroupRow::new(2);
    group.view.epoch = ViewEpoch(5);
    group.given_up.extend([id(1), id(2)]);
    server.owner.group_is(GroupId([9; 16]), &group);
    server.owner.tidy().unwrap();
    // Their disks go a moment later than the word: both take what is written next, into the same segment.
    write(&mine, &next, &bytes(2, 50_000));
    assert!(mine.settle(&[next.ino]).is_err(), "it was taken for safe");
    for number in 1..=2 {
        fleet.set_fault(number, Some(crate::fleet::Fault::Refuses));
    }
    until("it is written elsewhere", || mine.settle(&[next.ino]).is_ok());
    assert!(!world.objects().is_empty(), "into the store");
    assert!(read(&theirs, &reader, next.ino) == bytes(2, 50_000));
    // A part of a file that is written elsewhere is there, beside what is lost of it.
    let rest = WriteAttr::default();
    let _took = mine.write(&part, 50_000, &bytes(4, 50_000), rest, (Room::Wait, 1)).unwrap();
    mine.settle(&[part.ino]).unwrap();
    let is_lost = |ino| ClientError::Lost(LostBytes { ino, from: 0, to: 50_000, bytes: 50_000 });
    let read_at = |ino, offset, len| {
        let told = reader.told(Operation::Inode(ino));
        theirs.learn(&told);
        theirs.read(&Inode::removed(told.ino, told.row, None), offset, len, &|| true)
    };
    let mut asked = Vec::new();
    for at in [0, 49_999, 20_000, 0] {
        assert_eq!(read_at(lost.ino, at, 1000).unwrap_err(), is_lost(lost.ino), "nothing is shown for it");
        assert_eq!(read_at(part.ino, at, 1000).unwrap_err(), is_lost(part.ino));
        asked.push(reader.maps.load(Ordering::SeqCst));
    }
    assert!(asked[0] <= 6 && asked[3] == asked[0], "the owner was asked for what nobody has: {asked:?}");
    let found = read_at(part.ino, 50_000, 50_000).unwrap();
    let forebay_data::ReadPiece::Bytes(found) = &found[0] else { panic!("{found:?}") };
    assert!(*found == bytes(4, 50_000));
    // Who has written it is told once by each call: it was promised to last.
    assert!(server.pushes.lock().contains(&(writer.session, Push::Lost)));
    mine.something_lost();
    for ino in [lost.ino, part.ino] {
        assert_eq!(mine.tell_loss(ino, TellsLoss::Close).unwrap_err(), is_lost(ino));
        mine.tell_loss(ino, TellsLoss::Close).unwrap();
        assert_eq!(mine.tell_loss(ino, TellsLoss::Sync).unwrap_err(), is_lost(ino));
        mine.tell_loss(ino, TellsLoss::Sync).unwrap();
    }
    mine.tell_loss(next.ino, TellsLoss::Sync).unwrap();
    // Written anew it is whole, whatever is heard of losses then; the other one is not.
    write(&mine, &lost, &bytes(5, 50_000));
    mine.settle(&[lost.ino]).unwrap();
    theirs.forget(lost.ino);
    assert!(read(&theirs, &reader, lost.ino) == bytes(5, 50_000));
    mine.something_lost();
    mine.tell_loss(lost.ino, TellsLoss::Sync).unwrap();
    assert_eq!(mine.tell_loss(part.ino, TellsLoss::Sync).unwrap_err(), is_lost(part.ino));
    assert_eq!(read_at(part.ino, 0, 1000).unwrap_err(), is_lost(part.ino));
}
