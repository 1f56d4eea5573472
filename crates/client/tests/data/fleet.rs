//! Members of a group, in memory: their logs are those of `forebay-group`, and tests have them fail.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_client::{Appended, MemberFailed, Members, Within, WriteGroup};
use forebay_format::{
    footer::{Footer, RunEntry, SegmentEntry},
    row::ObjectRef,
    stream,
};
use forebay_group::{Append, Candidate, Fenced, GroupId, MemberId, MemberLog, Offer, Verdict};
use forebay_meta::StoredPlace;
use forebay_object::Backend;
use forebay_protocol::{Bounds, SealedSegment, StoredSegment};
use forebay_types::{Epoch, SegmentId};
use parking_lot::Mutex;

use crate::{owner::HasCopies, world::World};

/// How long an append waits for another one.
const PATIENCE: Duration = Duration::from_secs(20);

/// What becomes of an append at a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It takes nothing and says so, or is not there.
    Refuses,
    /// It takes it, and its answer is lost.
    Mute,
}

#[derive(Debug, Default)]
struct Member {
    log: MemberLog,
    bytes: BTreeMap<SegmentId, Vec<u8>>,
    fault: Option<Fault>,
    pace: Duration,
    draining: bool,
}

#[derive(Debug)]
struct State {
    members: BTreeMap<MemberId, Member>,
    active: BTreeSet<MemberId>,
    /// Faults of appends to come: after so many, which member, how.
    planned: Vec<(u64, MemberId, Fault)>,
    appends: u64,
    /// How long an append takes; and which one takes until the next one begins.
    takes: Duration,
    accompanied: Option<u64>,
    /// Which one takes until it is let go on.
    held: Option<u64>,
    /// Appends under way, and the most that there were.
    under_way: usize,
    most_under_way: usize,
    /// How long it takes until a read fails that none can answer.
    fails_after: Duration,
    /// Reads that are about to fail so.
    failing: u64,
    /// How many copies the volume's class asks for, and who is on the writer's machine.
    copies: u8,
    near: Vec<MemberId>,
}

#[derive(Debug)]
pub struct Fleet(Mutex<State>);

pub fn id(number: u8) -> MemberId {
    MemberId([number; 16])
}

impl Fleet {
    /// Those with the numbers 1 to `count`, each in a zone of its own.
    pub fn of(count: u8) -> Arc<Fleet> {
        Fleet::numbered(1..=count)
    }

    /// Those with these numbers.
    pub fn numbered(numbers: RangeInclusive<u8>) -> Arc<Fleet> {
        let members = numbers.clone().map(|number| (id(number), Member::default())).collect();
        let active = numbers.map(id).collect();
        Arc::new(Fleet(Mutex::new(State {
            members,
            active,
            planned: Vec::new(),
            appends: 0,
            takes: Duration::ZERO,
            accompanied: None,
            held: None,
            under_way: 0,
            most_under_way: 0,
            fails_after: Duration::ZERO,
            failing: 0,
            copies: 2,
            near: Vec::new(),
        })))
    }

    fn with<R>(&self, number: u8, work: impl FnOnce(&mut Member) -> R) -> R {
        work(self.0.lock().members.get_mut(&id(number)).unwrap())
    }

    pub fn set_fault(&self, number: u8, fault: Option<Fault>) {
        self.with(number, |member| member.fault = fault);
    }

    /// Reads that nobody can answer fail after so long.
    pub fn set_fails_after(&self, after: Duration) {
        self.0.lock().fails_after = after;
    }

    /// How many reads nobody could answer.
    pub fn failing(&self) -> u64 {
        self.0.lock().failing
    }

    /// From the append with this number on, counted from 1.
    pub fn plan(&self, append: u64, number: u8, fault: Fault) {
        self.0.lock().planned.push((append, id(number), fault));
    }

    /// An append takes so long.
    pub fn set_takes(&self, takes: Duration) {
        self.0.lock().takes = takes;
    }

    /// The append with this number, counted from 1, takes until the next one has begun; or 20 s, where none does.
    pub fn accompany(&self, append: u64) {
        self.0.lock().accompanied = Some(append);
    }

    /// The append with this number, counted from 1, takes until [`Fleet::let_go_on`]; or 20 s.
    pub fn hold(&self, append: u64) {
        self.0.lock().held = Some(append);
    }

    pub fn let_go_on(&self) {
        self.0.lock().held = None;
    }

    /// Waits until something is sealed. Says whether it is, after 20 s at most.
    pub fn await_sealed(&self) -> bool {
        let until = Instant::now() + PATIENCE;
        while self.sealed().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        !self.sealed().is_empty()
    }

    /// The most appends that were under way at a time.
    pub fn most_under_way(&self) -> usize {
        self.0.lock().most_under_way
    }

    /// An append begins, and takes its time.
    fn begin(&self) {
        let (number, takes) = {
            let mut state = self.0.lock();
            state.appends += 1;
            state.under_way += 1;
            state.most_under_way = state.most_under_way.max(state.under_way);
            (state.appends, state.takes)
        };
        std::thread::sleep(takes);
        let until = Instant::now() + PATIENCE;
        let waits = || {
            let state = self.0.lock();
            let alone = state.accompanied == Some(number) && state.appends == number;
            alone || state.held == Some(number)
        };
        while waits() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn set_pace(&self, number: u8, pace: Duration) {
        self.with(number, |member| member.pace = pace);
    }

    pub fn set_draining(&self, number: u8) {
        self.with(number, |member| member.draining = true);
    }

    pub fn set_active(&self, number: u8, active: bool) {
        let mut state = self.0.lock();
        if active {
            state.active.insert(id(number))
        } else {
            state.active.remove(&id(number))
        };
    }

    /// The volume's class is so many copies, and these members are on the writer's machine.
    pub fn set_class(&self, copies: u8, near: &[u8]) {
        let mut state = self.0.lock();
        (state.copies, state.near) = (copies, near.iter().map(|number| id(*number)).collect());
    }

    pub fn appends(&self) -> u64 {
        self.0.lock().appends
    }

    /// The sealed segments that a member has, whole: bytes, the last epoch, CRC32C.
    fn sealed(&self) -> BTreeMap<SegmentId, (Bytes, Epoch, u32)> {
        let state = self.0.lock();
        let mut found: BTreeMap<SegmentId, (Bytes, Epoch, u32)> = BTreeMap::new();
        for member in state.members.values() {
            for offer in member.log.offers() {
                let Some((len, check)) = offer.sealed.filter(|(len, _)| *len > 0) else { continue };
                let bytes = Bytes::copy_from_slice(&member.bytes[&offer.segment][..len as usize]);
                assert_eq!(crc32c::crc32c(&bytes), check);
                let known = found.entry(offer.segment).or_insert((bytes.clone(), offer.epoch, check));
                assert!(known.0 == bytes, "two copies differ");
                known.1 = known.1.max(offer.epoch);
            }
        }
        found
    }

    /// Puts all that is sealed as one object, as members do: footers are made of the heads of runs. Returns what the owner is to be told.
    pub fn put_as(&self, world: &World, object: ObjectRef) -> Vec<StoredSegment> {
        let (mut body, mut segments, mut stored) = (Vec::new(), Vec::new(), Vec::new());
        for (segment, (bytes, epoch, check)) in self.sealed() {
            let runs = runs(segment, &bytes);
            let raw = runs.iter().map(|run| u64::from(run.run_len)).sum();
            let (offset, len) = (body.len() as u64, bytes.len() as u64);
            stored.push(StoredSegment { segment, epoch, len, check, offset, raw });
            segments.push(SegmentEntry { id: segment, offset, len, runs });
            body.extend_from_slice(&bytes);
        }
        Footer { volume: world.volume.id, segments }.encode_to(&mut body);
        world.store().put_new(&object.key(), body.into()).unwrap();
        stored
    }

    /// The same at a namespace in the place of an owner. Then the members have nothing of it any more.
    pub fn put(&self, world: &World) -> usize {
        let object = world.owner.ns.new_object();
        let stored = self.put_as(world, object);
        let place = |one: &StoredSegment| {
            let StoredSegment { segment: id, offset, len, raw, .. } = *one;
            StoredPlace { id, offset, len, raw }
        };
        let places: Vec<_> = stored.iter().map(place).collect();
        let taken = world.owner.ns.object_stored(object, &places).unwrap();
        let members: Vec<u8> = self.0.lock().members.keys().map(|id| id.0[0]).collect();
        for number in members {
            stored.iter().for_each(|one| self.judged(number, one.segment, Verdict::Clean));
        }
        taken.len()
    }

    pub fn offers(&self, number: u8) -> Vec<Offer> {
        self.with(number, |member| member.log.offers())
    }

    pub fn fence(&self, number: u8, segment: SegmentId, epoch: Epoch) -> Fenced {
        self.with(number, |member| member.log.fence(segment, epoch).unwrap().1)
    }

    pub fn judged(&self, number: u8, segment: SegmentId, verdict: Verdict) {
        self.with(number, |member| {
            member.log.judged(segment, verdict);
            if !member.log.has(segment) {
                member.bytes.remove(&segment);
            }
        });
    }

    /// How many segments a member has, and how many of them are open.
    pub fn segments(&self, number: u8) -> usize {
        self.with(number, |member| member.log.offers().len())
    }

    pub fn open_segments(&self, number: u8) -> usize {
        self.with(number, |member| member.log.offers().iter().filter(|one| one.sealed.is_none()).count())
    }
}

/// The runs of a segment, by walking from head to head.
fn runs(segment: SegmentId, bytes: &Bytes) -> Vec<RunEntry> {
    let (mut at, mut runs) = (0, Vec::new());
    while at < bytes.len() {
        let head = &bytes[at..at + stream::STREAM_HEAD_LEN];
        let run = stream::decode(head, segment, at as u64).unwrap();
        at += stream::STREAM_HEAD_LEN + run.stored_len as usize;
        runs.push(run);
    }
    assert_eq!(at, bytes.len());
    runs
}

impl HasCopies for Fleet {
    fn assert_has(&self, set: &[MemberId], segment: SegmentId, end: u64) {
        let state = self.0.lock();
        assert!(set.len() >= usize::from(state.copies), "fewer copies than were promised");
        assert!(set.len() > 1 || state.near.contains(&set[0]), "a single copy on another machine");
        for member in set {
            let has = state.members[member].log.kept(segment).map_or(0, |kept| kept.end());
            assert!(has >= end, "{member:?} has {has} of {segment}, and {end} are named");
        }
    }
}

/// Its id.
pub const FLEET: GroupId = GroupId([9; 16]);

impl Members for Fleet {
    fn groups(&self) -> Arc<[GroupId]> {
        Arc::new([FLEET])
    }

    fn within(&self, bounds: &Bounds) -> Within {
        match bounds.groups.contains(&FLEET) {
            true if bounds.here => Within::Any,
            true => Within::Group(FLEET),
            false => Within::Nowhere,
        }
    }

    fn writes_over(&self, within: Within) -> Option<WriteGroup> {
        if within == Within::Nowhere {
            return None;
        }
        let state = self.0.lock();
        let members = state.active.iter().map(|id| Candidate { id: *id, weight: 1, zone: id.to_string() });
        let members = members.collect();
        let near = state.near.iter().copied().filter(|id| state.active.contains(id)).collect();
        Some(WriteGroup { group: FLEET, copies: state.copies, members, near })
    }

    fn append(&self, set: &[MemberId], append: &Append) -> Vec<Result<Appended, MemberFailed>> {
        self.begin();
        let mut state = self.0.lock();
        state.under_way -= 1;
        let State { members, planned, appends, .. } = &mut *state;
        for (at, member, fault) in planned.iter() {
            if *appends >= *at {
                members.get_mut(member).unwrap().fault = Some(*fault);
            }
        }
        planned.retain(|(at, ..)| *appends < *at);
        let failed = |member: MemberId, why: &str| Err(MemberFailed { member, why: why.to_owned() });
        let take = |id: &MemberId| {
            let member = members.get_mut(id).unwrap();
            if member.fault == Some(Fault::Refuses) {
                return failed(*id, "it refuses");
            }
            match member.log.append(append) {
                Ok(step) if member.fault.is_none() => {
                    member.bytes.entry(append.segment).or_default().extend_from_slice(&append.bytes);
                    let (pace, draining) = (member.pace, member.draining);
                    Ok(Appended { end: step.end, pace, draining })
                }
                Ok(_) => {
                    member.bytes.entry(append.segment).or_default().extend_from_slice(&append.bytes);
                    failed(*id, "no answer")
                }
                Err(error) => failed(*id, &error.to_string()),
            }
        };
        set.iter().map(take).collect()
    }

    fn seal(&self, set: &[MemberId], sealed: &SealedSegment) {
        let mut state = self.0.lock();
        for id in set {
            let member = state.members.get_mut(id).unwrap();
            if member.fault.is_none() {
                let SealedSegment { segment, epoch, len, check } = *sealed;
                member.log.seal(segment, epoch, len, check).unwrap();
            }
        }
    }

    fn read(
        &self,
        set: &[MemberId],
        segment: SegmentId,
        offset: u64,
        len: u32,
    ) -> Result<Bytes, MemberFailed> {
        let mut state = self.0.lock();
        let (from, to) = (offset as usize, offset as usize + len as usize);
        let has = |id: &&MemberId| {
            let member = &state.members[*id];
            member.fault.is_none() && member.bytes.get(&segment).is_some_and(|bytes| bytes.len() >= to)
        };
        match set.iter().find(has) {
            Some(id) => Ok(Bytes::copy_from_slice(&state.members[id].bytes[&segment][from..to])),
            None => {
                state.failing += 1;
                let after = state.fails_after;
                drop(state);
                std::thread::sleep(after);
                Err(MemberFailed { member: set[0], why: "it has them not".to_owned() })
            }
        }
    }
}
