//! Segments over the logs of members under random steps: appends that miss a member, writers and owners that come and go, puts whose answer is lost, members that are
//! silent, and one that loses its disk. What was committed is to be had at each moment, from the store or from a member of the set that the owner names, and in the end all of it is in the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use forebay_cluster::SessionId;
use forebay_engine::Engine;
use forebay_format::{
    key,
    row::{Extent, ObjectRef},
};
use forebay_group::{GroupId, MemberId, MemberLog, NotTaken};
use forebay_meta::PieceSource;
use forebay_protocol::{
    Answer, FencedCopies, FencedCopy, Judged, OfferCopies, OpenSegments, Operation, Placing, Push,
    SealedSegment, Settle, StoreSegments, StoredSegment,
};
use forebay_types::{Epoch, Ino, SegmentId};

use super::parts::{LEN, Member, Open, Random, Session};
use crate::{
    contents::{commit, extent, file, numbers},
    world::{Client, Server, World, make},
};

const GROUP: GroupId = GroupId([9; 16]);
const FILES: usize = 5;

struct Play<'a> {
    world: &'a World,
    servers: Vec<Server>,
    random: Random,
    writer: Session,
    reader: Session,
    sessions: u128,
    members: Vec<Member>,
    open: Vec<Open>,
    unsettled: Vec<SegmentId>,
    files: Vec<Ino>,
    model: Vec<Option<Vec<u8>>>,
    store: BTreeMap<ObjectRef, Vec<(StoredSegment, Vec<u8>)>>,
    written: u64,
    lost: bool,
}

impl<'a> Play<'a> {
    fn new(world: &'a World, seed: u64) -> Play<'a> {
        let server = world.owner();
        let session = |id: u128| {
            server.begin(id);
            Session { id: SessionId(id), next: 1 }
        };
        let (writer, reader) = (session(1), session(2));
        let member = |at: u8| Member {
            id: MemberId([at; 16]),
            log: MemberLog::new(),
            bytes: BTreeMap::new(),
            session: session(10 + u128::from(at)),
            silent: false,
        };
        let members = (1..=3).map(member).collect();
        let mut play = Play {
            world,
            random: Random(seed),
            writer,
            reader,
            sessions: 100,
            members,
            open: Vec::new(),
            unsettled: Vec::new(),
            files: Vec::new(),
            model: vec![None; FILES],
            store: BTreeMap::new(),
            written: 0,
            lost: false,
            servers: vec![server],
        };
        for at in 0..FILES {
            let made = play.ask_as(0, make(&format!("f{at}")));
            play.files.push(made.inode().unwrap().ino);
        }
        play
    }

    fn server(&self) -> &Server {
        self.servers.last().unwrap()
    }

    /// 0: the writer, 1: the reader, then the members.
    fn session(&mut self, who: usize) -> &mut Session {
        match who {
            0 => &mut self.writer,
            1 => &mut self.reader,
            at => &mut self.members[at - 2].session,
        }
    }

    fn with<R>(&mut self, who: usize, ask: impl FnOnce(&Client<'_>) -> R) -> R {
        let Session { id, next } = *self.session(who);
        let client = self.server().client(id, next);
        let result = ask(&client);
        let next = client.next();
        self.session(who).next = next;
        result
    }

    fn ask_as(&mut self, who: usize, operation: Operation) -> Answer {
        self.with(who, |client| client.ask(operation).answer())
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..=14 => self.open(),
            15..=49 => self.write(),
            50..=59 => self.close(),
            60..=64 => self.settle(),
            65..=84 => self.offer(),
            85..=87 => self.end_writer(),
            88..=89 => self.take_over(),
            90 => self.lose_a_disk(),
            91..=92 => {
                let at = self.random.below(3) as usize;
                self.members[at].silent ^= true;
            }
            _ => self.tidy(),
        }
    }

    fn open(&mut self) {
        let first = self.random.below(3) as usize;
        let set = [first, (first + 1 + self.random.below(2) as usize) % 3];
        let placing = Placing::Set(set.map(|at| self.members[at].id).to_vec());
        let (directory, group) = (Ino::ROOT, GROUP);
        let open = OpenSegments { directory, apart: false, count: 1, group, placing };
        let Answer::Opened(opened) = self.ask_as(0, Operation::OpenSegments(open)) else { panic!() };
        self.open.push(Open { segment: opened[0].segment, set, whole: Vec::new() });
    }

    /// Writes a file: to all of a set, then to the owner; where one of the set has it not, the segment is given up.
    fn write(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.below(self.open.len() as u64) as usize;
        self.written += 1;
        let mut bytes = self.written.to_le_bytes().repeat(3);
        bytes.truncate(LEN);
        let open = self.open[at].clone();
        let offset = open.whole.len() as u64;
        let missed = self.random.chance(8).then(|| self.random.below(2) as usize);
        let mut all = true;
        for (number, member) in open.set.into_iter().enumerate() {
            all &= missed != Some(number) && self.members[member].append(open.segment, offset, &bytes);
        }
        if !all {
            self.open.remove(at);
            self.end(&open);
            return;
        }
        self.open[at].whole.extend_from_slice(&bytes);
        let which = self.random.below(FILES as u64) as usize;
        let part = Extent { stored_len: LEN as u32, ..extent(open.segment, offset, LEN as u32) };
        let committed = self.ask_as(0, commit(vec![], vec![file(self.files[which], vec![(0, part)])]));
        assert_eq!(committed, Answer::Committed(vec![]));
        self.model[which] = Some(bytes);
    }

    /// The segment ends at what all have. Some members hear of it, and the owner.
    fn end(&mut self, open: &Open) {
        let (len, check) = (open.whole.len() as u64, crc32c::crc32c(&open.whole));
        for member in open.set {
            let there = !self.members[member].silent && self.members[member].log.has(open.segment);
            if self.random.chance(70) && there {
                self.members[member].log.seal(open.segment, Epoch(1), len, check).unwrap();
            }
        }
        let sealed = vec![SealedSegment { segment: open.segment, epoch: Epoch(1), len, check }];
        let settle = Operation::Settle(Settle { sealed, settled: vec![] });
        assert_eq!(self.ask_as(0, settle), Answer::Done);
        self.unsettled.push(open.segment);
    }

    /// One member loses all that it has, once: fewer than there are copies. A new disk is a new member.
    fn lose_a_disk(&mut self) {
        if std::mem::replace(&mut self.lost, true) {
            return;
        }
        let at = self.random.below(3) as usize;
        let member = &mut self.members[at];
        (member.id, member.log) = (MemberId([9; 16]), MemberLog::new());
        member.bytes.clear();
        let gone: Vec<Open> = self.open.extract_if(.., |open| open.set.contains(&at)).collect();
        gone.iter().for_each(|open| self.end(open));
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            let at = self.random.below(self.open.len() as u64) as usize;
            let open = self.open.remove(at);
            self.end(&open);
        }
    }

    fn settle(&mut self) {
        let settled = std::mem::take(&mut self.unsettled);
        assert_eq!(self.ask_as(0, Operation::Settle(Settle { sealed: vec![], settled })), Answer::Done);
    }

    /// A member offers what it has, does as it is told, and puts what it is its turn to put.
    fn offer(&mut self) {
        let at = self.random.below(3) as usize;
        if self.members[at].silent {
            return;
        }
        let (member, offers) = (self.members[at].id, self.members[at].log.offers());
        let offer = Operation::Offer(OfferCopies { member, group: GROUP, offers });
        let Answer::Judged(judged) = self.ask_as(at + 2, offer) else { panic!() };
        for one in &judged {
            let log = &mut self.members[at].log;
            log.judged(one.segment, one.verdict);
            if !log.has(one.segment) {
                self.members[at].bytes.remove(&one.segment);
            }
        }
        self.fence(at);
        let puts: Vec<&Judged> = judged.iter().filter(|one| one.puts).collect();
        if !puts.is_empty() {
            self.put(at, &puts);
        }
    }

    fn fence(&mut self, at: usize) {
        let (id, member) = (self.members[at].session.id, self.members[at].id);
        let mut copies = Vec::new();
        for push in self.server().told(id) {
            let Push::Fence { member: asked, segment, epoch } = push else { continue };
            if asked != member {
                continue;
            }
            if let Ok((_, fenced)) = self.members[at].log.fence(segment, epoch) {
                copies.push(FencedCopy { segment, epoch, fenced });
            }
        }
        if self.random.chance(80) {
            let fenced = Operation::Fenced(FencedCopies { member, copies });
            assert!(matches!(self.ask_as(at + 2, fenced), Answer::Done | Answer::Failed(_)));
        }
    }

    fn put(&mut self, at: usize, puts: &[&Judged]) {
        let given = self.with(at + 2, |client| numbers(client, 1));
        let object = given.first_object;
        let held = self.members[at].held(puts);
        self.store.insert(object, held.clone());
        if self.random.chance(15) {
            // It dies before it says so.
            return;
        }
        let segments = held.into_iter().map(|(stored, _)| stored).collect();
        let store = Operation::Store(StoreSegments { object, segments });
        let answer = self.with(at + 2, |client| {
            let request = client.request(store, None);
            let first = client.send(request.clone()).answer();
            assert_eq!(client.send(request).answer(), first, "the same again");
            first
        });
        let Answer::Stored(not_taken) = answer else { panic!("{answer:?}") };
        for (_, why) in not_taken {
            assert!(matches!(why, NotTaken::Over | NotTaken::Late(_) | NotTaken::OtherLength(_)), "{why:?}");
        }
    }

    fn end_writer(&mut self) {
        self.server().owner.end_session(self.writer.id);
        self.sessions += 1;
        self.server().begin(self.sessions);
        self.writer = Session { id: SessionId(self.sessions), next: 1 };
        self.open.clear();
        self.unsettled.clear();
    }

    fn take_over(&mut self) {
        let later = self.world.owner();
        let all = [self.writer.id, self.reader.id];
        for id in all.into_iter().chain(self.members.iter().map(|member| member.session.id)) {
            later.owner.reclaim(id, &[]).unwrap();
        }
        self.servers.push(later);
    }

    /// Time passes, and the owner does what it does beside requests; objects that are garbage are deleted.
    fn tidy(&mut self) {
        let time = Duration::from_millis(500 + self.random.below(9_000));
        let sessions: Vec<SessionId> = [self.writer.id, self.reader.id]
            .into_iter()
            .chain(self.members.iter().map(|member| member.session.id))
            .collect();
        let server = self.server();
        let clients: Vec<Client<'_>> = sessions.iter().map(|id| server.client(*id, 1)).collect();
        self.world.pass(server, &clients.iter().collect::<Vec<_>>(), time);
        server.owner.tidy().unwrap();
        let garbage = server.owner.garbage().unwrap();
        server.owner.garbage_deleted(&garbage).unwrap();
        garbage.iter().for_each(|object| drop(self.store.remove(object)));
    }

    /// What was committed is to be had. Returns whether all of it is in the store.
    fn check(&mut self) -> bool {
        let mut in_store = true;
        for (at, expected) in self.model.clone().into_iter().enumerate() {
            let Some(expected) = expected else { continue };
            let answer = self.ask_as(1, Operation::Map(self.files[at], 0, LEN as u64));
            let (mapped, sets) = match answer {
                Answer::Mapped(mapped) => (mapped, Vec::new()),
                Answer::MappedSets(mapped, sets) => (mapped, sets),
                other => panic!("{other:?}"),
            };
            let PieceSource::Extent(part) = mapped.pieces[0].source else { panic!("{mapped:?}") };
            let (segment, from) = (part.segment, part.run_offset);
            if let Some((_, place)) = mapped.places.iter().find(|(id, _)| *id == segment) {
                let held = self.store.get(&place.object).expect("the object is there");
                let (_, bytes) = held
                    .iter()
                    .find(|(one, _)| one.offset == place.offset && one.segment == segment)
                    .unwrap();
                assert_eq!(bytes[from as usize..from as usize + LEN], expected);
                continue;
            }
            in_store = false;
            let set: BTreeSet<MemberId> =
                sets.iter().find(|set| set.segment == segment).expect("a set").set.iter().copied().collect();
            let of_set = self.members.iter().filter(|member| set.contains(&member.id));
            let found: Vec<&[u8]> = of_set.filter_map(|member| member.has(segment, from)).collect();
            assert!(!found.is_empty(), "nobody has {segment} from {from} on");
            assert!(found.iter().all(|bytes| *bytes == expected), "somebody has other bytes of {segment}");
        }
        in_store
    }

    /// How many segments the store may not have, as the engine has it.
    fn rows(&self) -> usize {
        let (from, to) = (key::sets(), key::after_prefix(&key::sets()));
        self.world.engine.scan(&from, to.as_deref(), 1000).unwrap().rows.len()
    }

    /// Everybody is back: in the end the store has it all, and nobody else has anything.
    fn settles_down(&mut self) {
        self.members.iter_mut().for_each(|member| member.silent = false);
        self.end_writer();
        for _ in 0..400 {
            (0..6).for_each(|_| self.offer());
            self.tidy();
            let in_store = self.check();
            let left: usize = self.members.iter().map(|member| member.log.offers().len()).sum();
            if in_store && left == 0 && self.rows() == 0 {
                assert_eq!(self.server().owner.missing_segments(), []);
                return;
            }
        }
        let left: Vec<_> = self.members.iter().map(|member| member.log.offers()).collect();
        panic!("it does not come to an end: {left:?}");
    }
}

fn play(seed: u64) {
    let world = World::new();
    let mut play = Play::new(&world, seed);
    for step in 0..250 {
        play.step();
        if step % 5 == 0 {
            play.check();
        }
    }
    play.settles_down();
    for server in &play.servers[..play.servers.len() - 1] {
        server.owner.abandon();
    }
    play.server().stop().unwrap();
}

#[test]
fn what_was_committed_is_to_be_had_whatever_happens() {
    let seeds = std::env::var("FOREBAY_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4_u64);
    let first = std::env::var("FOREBAY_FIRST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        println!("seed {seed}");
        play(seed);
    }
}
