//! Segments over the logs of members: opened, named, sealed, stored, settled, collected, recovered, mended. Members are the logs of `forebay-group`, in memory.

mod copies;
mod judging;
mod keeping;
mod local;
mod losing;
mod parts;
mod policies;
mod random;
mod recovering;

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use forebay_cluster::SessionId;
use forebay_format::{key::Key, row::Row, set_row::SegmentSetRow};
use forebay_group::{
    Append, Candidate, GroupId, GroupRow, Incarnation, Member as Mate, MemberId, MemberLog, MemberState,
    NotTaken, PieceKey, Verdict, placement,
};
use forebay_protocol::{
    Answer, Failure, FencedCopies, FencedCopy, FileCommit, Judged, Numbers, OfferCopies, OpenSegments,
    OpenedSegment, Operation, Placing, Push, Reseat, SealedSegment, SetPlace, Settle, StoreSegments,
    StoredSegment,
};
use forebay_types::{Epoch, Ino, ObjectId, SegmentId};

use super::{
    contents::{commit, extent, file, numbers},
    world::{Client, Server, World, make, until},
};

const GROUP: GroupId = GroupId([9; 16]);
pub const A: MemberId = MemberId([1; 16]);
pub const B: MemberId = MemberId([2; 16]);
const C: MemberId = MemberId([3; 16]);

fn open_of(directory: Ino, count: u32, placing: Placing) -> OpenSegments {
    OpenSegments { directory, apart: false, count, group: GROUP, placing }
}

fn opened(client: &Client<'_>, open: OpenSegments) -> Vec<OpenedSegment> {
    match client.ask(Operation::OpenSegments(open)).answer() {
        Answer::Opened(opened) => opened,
        other => panic!("{other:?}"),
    }
}

/// A segment on A and B.
fn open(client: &Client<'_>) -> SegmentId {
    let set = Placing::Set(vec![A, B]);
    opened(client, open_of(Ino::ROOT, 1, set))[0].segment
}

/// A member with its log; what it writes is on stable storage at once.
struct Member {
    id: MemberId,
    log: MemberLog,
}

impl Member {
    fn new(id: MemberId) -> Member {
        Member { id, log: MemberLog::new() }
    }

    fn append(&mut self, segment: SegmentId, epoch: u64, bytes: &'static [u8]) -> Result<u64, String> {
        let offset = self.log.kept(segment).map_or(0, |kept| kept.end());
        let (bytes, check) = (Bytes::from_static(bytes), crc32c::crc32c(bytes));
        let append = Append { segment, epoch: Epoch(epoch), offset, bytes, check };
        self.log.append(&append).map(|step| step.end).map_err(|error| error.to_string())
    }

    fn seal(&mut self, segment: SegmentId, whole: &[u8]) {
        self.log.seal(segment, Epoch(1), whole.len() as u64, crc32c::crc32c(whole)).unwrap();
    }

    fn offer(&self) -> Operation {
        Operation::Offer(OfferCopies { member: self.id, group: GROUP, offers: self.log.offers() })
    }

    /// Offers what it has, and does as it is told.
    fn offers(&mut self, client: &Client<'_>) -> BTreeMap<SegmentId, Judged> {
        let Answer::Judged(judged) = client.ask(self.offer()).answer() else { panic!("no verdicts") };
        for one in &judged {
            self.log.judged(one.segment, one.verdict);
        }
        judged.into_iter().map(|one| (one.segment, one)).collect()
    }

    /// Fences what it was told to, and says what it has.
    fn fences(&mut self, server: &Server, client: &Client<'_>) -> Vec<(SegmentId, Epoch)> {
        let mut fenced = Vec::new();
        for push in server.told(client.session) {
            let Push::Fence { member, segment, epoch } = push else { continue };
            assert_eq!(member, self.id);
            // It is asked until it has answered.
            if !fenced.contains(&(segment, epoch)) {
                fenced.push((segment, epoch));
            }
        }
        let copies = fenced.iter().map(|(segment, epoch)| {
            let (_, fenced) = self.log.fence(*segment, *epoch).unwrap();
            FencedCopy { segment: *segment, epoch: *epoch, fenced }
        });
        let copies = FencedCopies { member: self.id, copies: copies.collect() };
        assert_eq!(client.ask(Operation::Fenced(copies)).answer(), Answer::Done);
        fenced
    }
}

fn stored(segment: SegmentId, epoch: u64, whole: &[u8]) -> StoredSegment {
    let (len, check) = (whole.len() as u64, crc32c::crc32c(whole));
    StoredSegment { segment, epoch: Epoch(epoch), len, check, offset: 64, raw: len }
}

/// Stores in the object whose number is so many after the first.
fn store(given: &Numbers, at: u64, segments: Vec<StoredSegment>) -> Operation {
    let first = given.first_object;
    let object = forebay_format::row::ObjectRef { id: ObjectId(first.id.0 + at), ..first };
    Operation::Store(StoreSegments { object, segments })
}

fn sealed(segment: SegmentId, whole: &[u8]) -> SealedSegment {
    SealedSegment { segment, epoch: Epoch(1), len: whole.len() as u64, check: crc32c::crc32c(whole) }
}

fn settle(sealed: Vec<SealedSegment>, settled: Vec<SegmentId>) -> Operation {
    Operation::Settle(Settle { sealed, settled })
}

/// The row of a segment, as the engine has it.
fn row(world: &World, segment: SegmentId) -> Option<SegmentSetRow> {
    use forebay_engine::Engine;
    let value = world.engine.get(&Key::Set(segment).encode()).unwrap();
    value.map(|value| SegmentSetRow::decode(&value).unwrap())
}

fn sets(client: &Client<'_>, ino: Ino) -> Vec<SetPlace> {
    match client.ask(Operation::Map(ino, 0, 1 << 20)).answer() {
        Answer::MappedSets(_, sets) => sets,
        Answer::Mapped(_) => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// Tidies, and waits until what that has changed is committed.
fn tidied(server: &Server, client: &Client<'_>) {
    server.owner.tidy().unwrap();
    assert_eq!(client.ask(Operation::Release(Vec::new())).answer(), Answer::Done);
}

fn committed(client: &Client<'_>, ino: Ino, segment: SegmentId, from: u64, len: u32) -> Answer {
    let part = forebay_format::row::Extent { stored_len: len, ..extent(segment, from, len) };
    client.ask(commit(Vec::new(), vec![file(ino, vec![(from, part)])])).answer()
}

#[test]
fn members_get_segments_in_turn_whoever_opens_them() {
    let world = World::both().into_iter().next().unwrap();
    let server = world.owner();
    let (one, two) = (server.begin(1), server.begin(2));
    let members: Vec<Candidate> =
        [A, B, C].map(|id| Candidate { id, weight: 1, zone: id.to_string() }).to_vec();
    let best = Placing::Best { members: members.clone(), copies: 2, near: None };
    let stream = |count| OpenSegments { apart: true, ..open_of(Ino::ROOT, count, best.clone()) };
    for round in 0..10 {
        let (mut asked, mut has) = (BTreeMap::new(), BTreeMap::new());
        let some: Vec<_> = (1..=4)
            .flat_map(|count| [opened(&one, stream(count)), opened(&two, stream(2))])
            .flatten()
            .collect();
        for OpenedSegment { segment, set, .. } in &some {
            let first = placement::first(PieceKey::of(*segment, 0), &members).unwrap();
            *asked.entry(first).or_insert(0) += 1;
            set.iter().for_each(|member| *has.entry(*member).or_insert(0) += 1);
        }
        assert!([A, B, C].iter().all(|id| (4..=8).contains(&asked[id])), "round {round}: of 18: {asked:?}");
        assert!([A, B, C].iter().all(|id| (10..=14).contains(&has[id])), "round {round}: of 36: {has:?}");
    }
    server.stop().unwrap();
}

/// A view of a group that has all of these, each in a zone of its own.
fn group_of(members: &[MemberId], epoch: u64) -> GroupRow {
    let mut group = GroupRow::new(2);
    group.view.epoch = forebay_group::ViewEpoch(epoch);
    for id in members {
        let mate = Mate {
            incarnation: Incarnation::default(),
            address: String::new(),
            node: id.to_string(),
            zone: id.to_string(),
            weight: 1,
            state: MemberState::Active,
        };
        group.view.members.insert(*id, mate);
    }
    group
}

#[test]
fn what_lies_together_gets_neighbouring_numbers_and_streams_get_distant_ones() {
    for world in World::both() {
        let server = world.owner();
        let (one, two) = (server.begin(1), server.begin(2));
        let members: Vec<Candidate> = [A, B, C]
            .map(|id| Candidate { id, weight: 1 + u32::from(id.0[0]), zone: id.to_string() })
            .to_vec();
        let best = Placing::Best { members: members.clone(), copies: 2, near: Some(C) };
        let directory = Ino::ROOT;
        let first = opened(&one, open_of(directory, 3, best.clone()));
        let more = opened(&two, open_of(directory, 255, best.clone()));
        let start = first[0].segment.0;
        assert_eq!(start % 256, 0);
        let all: Vec<u64> = first.iter().chain(&more).map(|one| one.segment.0).collect();
        assert_eq!(all[..256], (start..start + 256).collect::<Vec<_>>(), "from whichever client they come");
        assert!(all[256].is_multiple_of(256) && all[256] > all[255]);
        let stream = OpenSegments { apart: true, ..open_of(directory, 3, best.clone()) };
        let stream = opened(&one, stream);
        let distant = |pair: &[OpenedSegment]| {
            let (one, next) = (pair[0].segment.0, pair[1].segment.0);
            one < next && one.is_multiple_of(256) && next.is_multiple_of(256)
        };
        assert!(stream.windows(2).all(distant), "{stream:?}");
        for opened in first.iter().chain(&stream) {
            let key = PieceKey::of(opened.segment, 0);
            assert_eq!(opened.set, placement::choose(key, &members, 2, Some(C)));
            let row = row(&world, opened.segment).unwrap();
            assert_eq!((row.epoch, row.writer, row.directory), (opened.epoch, 1, directory));
        }
        let elsewhere = opened(&one, open_of(one.inode(super::world::make_directory("d")).ino, 1, best));
        assert_ne!(elsewhere[0].segment.0 >> 8, all[257] >> 8);
        // A later owner gives none of these again.
        let later = world.owner();
        later.owner.reclaim(one.session, &[]).unwrap();
        later.owner.reclaim(two.session, &[]).unwrap();
        let again = later.client(one.session, one.next());
        let next = opened(&again, open_of(directory, 1, Placing::Set(vec![A])));
        assert!(next[0].segment > elsewhere[0].segment);
        later.stop().unwrap();
    }
}

#[test]
fn a_writer_names_what_it_appends_to_and_others_are_told_who_has_it() {
    for world in World::both() {
        let server = world.owner();
        let (writer, other) = (server.begin(1), server.begin(2));
        let ino = writer.inode(make("a")).ino;
        let segment = open(&writer);
        let (taken, refused) = (Answer::Committed(vec![]), Answer::Failed(Failure::Invalid));
        assert_eq!(committed(&writer, ino, segment, 0, 100), taken);
        let named = SetPlace { segment, group: GROUP, set: vec![A, B] };
        assert_eq!(sets(&other, ino), [named]);
        assert_eq!(server.owner.status().used, 100);
        assert_eq!(committed(&other, ino, segment, 0, 100), refused, "another one's");
        let end = 4 << 20;
        assert_eq!(committed(&writer, ino, segment, end - 5, 6), refused, "no segment is so long");
        let whole = vec![1; 500];
        assert_eq!(writer.ask(settle(vec![sealed(segment, &whole)], vec![])).answer(), Answer::Done);
        assert_eq!(committed(&writer, ino, segment, 400, 100), taken);
        assert_eq!(committed(&writer, ino, segment, 401, 100), refused, "it ends before");
        assert_eq!(writer.ask(settle(vec![], vec![segment])).answer(), Answer::Done);
        assert_eq!(committed(&writer, ino, segment, 0, 100), refused, "it said that none would come");
        server.stop().unwrap();
    }
}

#[test]
fn what_goes_to_the_store_alone_is_not_taken_from_members() {
    for world in World::both() {
        let server = world.owner();
        let writer = server.begin(1);
        let ino = writer.inode(make("a")).ino;
        let segment = open(&writer);
        let (taken, below) = (Answer::Committed(vec![]), Answer::Failed(Failure::BelowClass));
        assert_eq!(committed(&writer, ino, segment, 0, 100), taken);
        server.owner.set_to_store(true);
        let more = open_of(Ino::ROOT, 1, Placing::Set(vec![A, B]));
        assert_eq!(writer.ask(Operation::OpenSegments(more)).answer(), below);
        assert_eq!(committed(&writer, ino, segment, 100, 100), below);
        // What was taken before goes its way.
        let whole = vec![1; 100];
        assert_eq!(writer.ask(settle(vec![sealed(segment, &whole)], vec![segment])).answer(), Answer::Done);
        let proxy = server.begin(2);
        let given = numbers(&proxy, 1);
        let put = store(&given, 0, vec![stored(segment, 1, &whole)]);
        assert_eq!(proxy.ask(put).answer(), Answer::Stored(vec![]));
        server.owner.set_to_store(false);
        let again = open(&writer);
        assert_eq!(committed(&writer, ino, again, 0, 100), taken);
        server.stop().unwrap();
    }
}

#[test]
fn the_volume_limit_counts_what_members_have() {
    let world = World::new();
    let server = world.owner();
    let writer = server.begin(1);
    let ino = writer.inode(make("a")).ino;
    let segment = open(&writer);
    server.owner.set_limit(Some(150));
    assert_eq!(committed(&writer, ino, segment, 0, 100), Answer::Committed(vec![]));
    assert_eq!(committed(&writer, ino, segment, 100, 100), Answer::Failed(Failure::NoSpace));
    server.stop().unwrap();
}

#[test]
fn a_segment_is_stored_once_at_what_was_sealed() {
    for world in World::both() {
        let server = world.owner();
        let (writer, proxy) = (server.begin(1), server.begin(2));
        let ino = writer.inode(make("a")).ino;
        let (one, two) = (open(&writer), open(&writer));
        let given = numbers(&proxy, 9);
        assert_eq!(committed(&writer, ino, one, 0, 3), Answer::Committed(vec![]));
        assert_eq!(writer.ask(settle(vec![sealed(two, b"defg")], vec![])).answer(), Answer::Done);
        let not_taken = |operation: Operation| match proxy.ask(operation).answer() {
            Answer::Stored(not_taken) => not_taken,
            other => panic!("{other:?}"),
        };
        let wrong = [
            (stored(two, 1, b"def"), NotTaken::OtherLength(4)),
            (stored(two, 1, b"defh"), NotTaken::OtherBytes),
            (stored(two, 2, b"defg"), NotTaken::Late(Epoch(1))),
            (stored(SegmentId(1 << 50), 1, b"x"), NotTaken::Over),
        ];
        for (at, (segment, why)) in (0..).zip(wrong) {
            assert_eq!(not_taken(store(&given, at, vec![segment])), [(segment.segment, why)]);
        }
        // The writer has sealed the first one and not said so.
        let both = vec![stored(one, 1, b"abc"), stored(two, 1, b"defg")];
        assert_eq!(not_taken(store(&given, 4, both.clone())), []);
        assert!(sets(&writer, ino).is_empty(), "it is in the store");
        assert_eq!(not_taken(store(&given, 5, both)), [(one, NotTaken::Over), (two, NotTaken::Over)]);
        let refused = Answer::Failed(Failure::Invalid);
        assert_eq!(proxy.ask(store(&given, 4, vec![stored(one, 1, b"abc")])).answer(), refused, "used");
        assert_eq!(writer.ask(store(&given, 6, vec![stored(one, 1, b"abc")])).answer(), refused, "another's");
        // Objects that count for nothing are garbage, and those only.
        tidied(&server, &writer);
        server.owner.garbage().unwrap();
        world.pass(&server, &[&writer, &proxy], Duration::from_secs(61));
        let garbage: Vec<u64> = server.owner.garbage().unwrap().iter().map(|object| object.id.0).collect();
        assert_eq!(garbage, [0, 1, 2, 3, 5].map(|at| given.first_object.id.0 + at));
        server.stop().unwrap();
    }
}

#[test]
fn an_answer_that_was_lost_is_the_same_again() {
    let world = World::new();
    let server = world.owner();
    let (writer, proxy) = (server.begin(1), server.begin(2));
    let given = numbers(&proxy, 2);
    let request =
        writer.request(Operation::OpenSegments(open_of(Ino::ROOT, 2, Placing::Set(vec![A, B]))), None);
    let first = server.submit(request.clone()).answer();
    assert_eq!(server.submit(request).answer(), first);
    let Answer::Opened(opened) = first else { panic!("{first:?}") };
    let request = proxy.request(store(&given, 0, vec![stored(opened[0].segment, 1, b"abc")]), None);
    assert_eq!(server.submit(request.clone()).answer(), Answer::Stored(vec![]));
    // Also by a later owner.
    let later = world.owner();
    later.owner.reclaim(writer.session, &[]).unwrap();
    later.owner.reclaim(proxy.session, &[]).unwrap();
    assert_eq!(later.submit(request).answer(), Answer::Stored(vec![]));
    later.stop().unwrap();
}

#[test]
fn nothing_is_collected_that_a_request_may_still_name() {
    for world in World::both() {
        let server = world.owner();
        let (writer, proxy) = (server.begin(1), server.begin(2));
        let ino = writer.inode(make("a")).ino;
        let (unnamed, dead, alive, stays) = (open(&writer), open(&writer), open(&writer), open(&writer));
        let given = numbers(&proxy, 4);
        assert_eq!(committed(&writer, ino, dead, 0, 3), Answer::Committed(vec![]));
        // Nothing is left in use of it.
        let tiny = FileCommit { inline: Some(b"tiny".to_vec()), ..file(ino, Vec::new()) };
        assert_eq!(writer.ask(commit(vec![], vec![tiny])).answer(), Answer::Committed(vec![]));
        let other = writer.inode(make("b")).ino;
        assert_eq!(committed(&writer, other, alive, 0, 3), Answer::Committed(vec![]));
        for (at, segment) in (0..).zip([dead, alive]) {
            let whole = vec![stored(segment, 1, b"abc")];
            assert_eq!(proxy.ask(store(&given, at, whole)).answer(), Answer::Stored(vec![]));
        }
        tidied(&server, &writer);
        for segment in [unnamed, dead, alive, stays] {
            assert!(row(&world, segment).is_some(), "{segment}");
        }
        // A request that was on its way all the while.
        assert_eq!(committed(&writer, other, dead, 0, 3), Answer::Committed(vec![]));
        assert_eq!(committed(&writer, other, alive, 0, 3), Answer::Committed(vec![]));
        // One that is open is passed over, and keeps nobody.
        assert_eq!(writer.ask(settle(vec![], vec![unnamed, dead])).answer(), Answer::Done);
        tidied(&server, &writer);
        assert!(row(&world, unnamed).is_some() && row(&world, dead).is_none());
        let ends = vec![sealed(unnamed, b"abc")];
        assert_eq!(writer.ask(settle(ends, vec![unnamed, alive])).answer(), Answer::Done);
        tidied(&server, &writer);
        tidied(&server, &writer);
        assert!([unnamed, dead, alive].iter().all(|segment| row(&world, *segment).is_none()));
        assert!(row(&world, stays).is_some());
        // The one that was never put is gone, the one whose bytes were replaced is garbage, the other is there.
        let late = proxy.ask(store(&given, 2, vec![stored(unnamed, 1, b"abc")])).answer();
        assert_eq!(late, Answer::Stored(vec![(unnamed, NotTaken::Over)]));
        tidied(&server, &writer);
        server.owner.garbage().unwrap();
        world.pass(&server, &[&writer, &proxy], Duration::from_secs(61));
        let garbage: Vec<u64> = server.owner.garbage().unwrap().iter().map(|object| object.id.0).collect();
        assert_eq!(garbage, [0, 2].map(|at| given.first_object.id.0 + at));
        server.stop().unwrap();
    }
}
