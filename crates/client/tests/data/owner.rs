//! What an owner is, over a namespace in memory: one request after the other, and answers that get lost.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use forebay_client::{Asks, ClientError};
use forebay_cluster::Lease;
use forebay_engine::MemoryEngine;
use forebay_env::SystemClock;
use forebay_format::{
    record::Changes,
    row::{Layout, ObjectRef, SegmentState},
};
use forebay_group::{GroupId, MemberId, PieceKey, placement};
use forebay_meta::{
    Append, Log, LogError, MetaError, Namespace, NewContents, NewSegment, PieceSource, Place, Urgency,
};
use forebay_protocol::{
    Answer, Bounds, Commit, Contents, Disks, Failure, GroupRule, InodeAnswer, MAP_PIECES_MAX, Mapped,
    Numbers, ObjectCommit, OpenSegments, OpenedSegment, Operation, Placing, PolicyRule, Response,
    SealedSegment, SegmentPlace, SetPlace, Settle, is_confined,
};
use forebay_types::{Epoch, Ino, PolicyId, SegmentId, Sequence, SubvolumeId, SyncClass};
use parking_lot::{Condvar, Mutex};

pub const V: SubvolumeId = SubvolumeId::FIRST;

struct NullLog(AtomicU64);

struct NullAppend<'a>(&'a NullLog);

impl Append for NullAppend<'_> {
    fn place(&self) -> Place {
        Place { segment: SegmentId(1), offset: 0 }
    }

    fn commit(self: Box<Self>, _: &Changes) -> Sequence {
        Sequence(self.0.0.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

impl Log for NullLog {
    fn begin<'a>(&'a self, _: &'a [u8], _: Urgency) -> Result<Box<dyn Append + 'a>, LogError> {
        Ok(Box::new(NullAppend(self)))
    }

    fn write_out(&self) {}
}

/// How a commit goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// Nothing happens, and the caller hears of nobody.
    Unheard,
    /// It is carried out, and the caller hears of nobody.
    Unanswered,
    /// It is on its way until [`Owner::release`].
    Held,
}

pub struct Owner {
    pub ns: Namespace,
    session: AtomicU64,
    /// Numbers of objects that were given and not committed.
    pub given: Mutex<BTreeSet<ObjectRef>>,
    /// Of those, what was given back: garbage.
    pub abandoned: Mutex<BTreeSet<ObjectRef>>,
    /// What becomes of the next commits, the last first.
    pub mishaps: Mutex<Vec<Mishap>>,
    counts: Mutex<HashMap<&'static str, u64>>,
    /// Segments over the logs of members.
    pub lanes: Mutex<HashMap<SegmentId, LaneRow>>,
    /// What policies say.
    pub classes: Mutex<HashMap<PolicyId, SyncClass>>,
    /// In which groups bytes may be, for who tells them apart.
    pub bounds: Mutex<HashMap<PolicyId, Bounds>>,
    /// On which disks bytes may be.
    pub disks: Mutex<HashMap<PolicyId, Disks>>,
    /// Commits that are on their way, and whether they arrive.
    held: Mutex<(usize, bool)>,
    /// The next answer to a request for segments is on its way until [`Owner::release`].
    pub holds_opened: AtomicBool,
    /// The next word of segments that have ended is refused.
    pub refuses_settle: AtomicBool,
    arrives: Condvar,
    /// The members, to be asked what they have.
    pub fleet: Mutex<Option<Arc<dyn HasCopies>>>,
}

/// Members that can be asked what they have.
pub trait HasCopies: Send + Sync {
    /// Asserts that each of a set has a segment on stable storage, up to `end` at least.
    fn assert_has(&self, set: &[MemberId], segment: SegmentId, end: u64);
}

/// What the owner knows of a segment over the logs of members.
#[derive(Clone, Debug, Default)]
pub struct LaneRow {
    pub set: Vec<MemberId>,
    pub sealed: Option<SealedSegment>,
    pub settled: bool,
    /// Over whose members it is.
    pub group: GroupId,
    /// Its bytes may not be on all disks.
    pub confined: bool,
    /// It was to lie apart from others.
    pub apart: bool,
}

impl Owner {
    pub fn new(block_size: u32) -> Owner {
        let engine = Arc::new(MemoryEngine::default());
        Namespace::format(engine.as_ref(), &SystemClock, 0, 0, 0o755).unwrap();
        let log = Arc::new(NullLog(AtomicU64::new(0)));
        let numbers = Arc::new(AtomicU64::new(2));
        let clock = Arc::new(SystemClock);
        let ns = Namespace::open(engine, log, clock, block_size, Epoch(1), numbers).unwrap();
        Owner {
            ns,
            session: AtomicU64::new(1),
            given: Mutex::default(),
            abandoned: Mutex::default(),
            mishaps: Mutex::default(),
            counts: Mutex::default(),
            lanes: Mutex::default(),
            classes: Mutex::default(),
            bounds: Mutex::default(),
            disks: Mutex::default(),
            held: Mutex::default(),
            holds_opened: AtomicBool::new(false),
            refuses_settle: AtomicBool::new(false),
            arrives: Condvar::new(),
            fleet: Mutex::default(),
        }
    }

    /// How many requests are held.
    pub fn held(&self) -> usize {
        self.held.lock().0
    }

    /// Those that are held arrive.
    pub fn release(&self) {
        self.held.lock().1 = true;
        self.arrives.notify_all();
    }

    fn hold(&self) {
        let mut held = self.held.lock();
        held.0 += 1;
        self.arrives.wait_while(&mut held, |held| !held.1);
        held.0 -= 1;
    }

    /// How often something was asked.
    pub fn counted(&self, what: &'static str) -> u64 {
        self.counts.lock().get(what).copied().unwrap_or(0)
    }

    /// Begins another session.
    pub fn end_session(&self) {
        self.session.fetch_add(1, Ordering::SeqCst);
    }

    pub fn told(&self, ino: Ino) -> Result<InodeAnswer, MetaError> {
        let inode = self.ns.inode(V, ino)?;
        let mut told = InodeAnswer::of(&inode);
        told.contents = match inode.row.layout {
            Layout::Inline => Some(Contents::Inline(self.ns.inline(V, ino)?)),
            Layout::Single(.., extent) => {
                self.place(extent.segment).map(|place| Contents::Place(extent.segment, place))
            }
            Layout::Empty | Layout::Extents => None,
        };
        Ok(told)
    }

    fn place(&self, segment: SegmentId) -> Option<SegmentPlace> {
        let row = self.ns.segment(segment).filter(|row| row.state == SegmentState::Stored)?;
        Some(SegmentPlace { object: row.object?, offset: row.object_offset, len: row.len })
    }

    fn map(&self, ino: Ino, from: u64, len: u64) -> Result<Answer, MetaError> {
        let mut pieces = self.ns.map(V, ino, from, len)?;
        pieces.truncate(MAP_PIECES_MAX);
        let to = pieces.last().map_or(from, |last| last.offset + last.len);
        let segments = pieces.iter().filter_map(|piece| match &piece.source {
            PieceSource::Extent(extent) => Some(extent.segment),
            _ => None,
        });
        let (mut places, mut sets) = (Vec::new(), Vec::new());
        for segment in segments {
            match self.place(segment) {
                Some(place) => places.push((segment, place)),
                None => sets.extend(self.lanes.lock().get(&segment).map(|row| SetPlace {
                    segment,
                    group: GroupId::default(),
                    set: row.set.clone(),
                })),
            }
        }
        let mapped = Mapped { pieces: pieces.into_vec(), places, to };
        Ok(if sets.is_empty() { Answer::Mapped(mapped) } else { Answer::MappedSets(mapped, sets) })
    }

    fn numbers(&self, segments: u32, objects: u32) -> Answer {
        // Nobody else takes any meanwhile: they follow each other.
        let mut given = self.given.lock();
        let all: Vec<_> = (0..segments).map(|_| self.ns.new_segment()).collect();
        let names: Vec<_> = (0..objects).map(|_| self.ns.new_object()).collect();
        given.extend(names.iter().copied());
        Answer::Numbers(Numbers { first_segment: all[0], segments, first_object: names[0], objects })
    }

    fn commit(&self, commit: &Commit) -> Result<Answer, MetaError> {
        let mut objects = Vec::new();
        let is_empty = |object: &ObjectCommit| object.segments.iter().all(|segment| segment.len == 0);
        if !commit.objects.is_empty() && commit.objects.iter().all(is_empty) {
            // Numbers that are given back.
            let names: Vec<_> = commit.objects.iter().map(|object| object.object).collect();
            let mut given = self.given.lock();
            assert!(names.iter().all(|name| given.remove(name)), "{names:?} are none of its numbers");
            self.abandoned.lock().extend(names.iter().copied());
            self.ns.abandon_objects(&names)?;
            return Ok(Answer::Committed(Vec::new()));
        }
        if self.is_below_class(commit) {
            return Ok(Answer::Failed(Failure::BelowClass));
        }
        for object in &commit.objects {
            let ours = self.given.lock().remove(&object.object);
            assert!(ours, "{:?} is none of its numbers", object.object);
            let segments = object.segments.iter().map(|new| {
                let (id, offset, len, raw) = (new.id, new.offset, new.len, new.raw);
                NewSegment { id, offset, len, raw }
            });
            objects.push((object.object, segments.collect()));
        }
        let files: Vec<_> = commit
            .files
            .iter()
            .map(|file| NewContents {
                ino: file.ino,
                inline: file.inline.as_deref(),
                extents: &file.extents,
                size: file.size,
                attr: file.attr,
                mtime: file.mtime,
            })
            .collect();
        let lanes = self.named_lanes(commit);
        Ok(Answer::Committed(self.ns.take_in_with(V, &objects, &lanes, &files)?))
    }

    /// Whether a commit has bytes of a file where its policy says that they must not be alone.
    fn is_below_class(&self, commit: &Commit) -> bool {
        for file in &commit.files {
            // What is gone is said to be.
            let Ok(inode) = self.ns.inode(V, file.ino) else { continue };
            let policy = inode.row.policy;
            let Some(class) = self.classes.lock().get(&policy).copied() else { continue };
            let segments = file.extents.iter().map(|(_, extent)| extent.segment);
            if segments
                .clone()
                .any(|segment| self.copies_alone(segment).is_some_and(|has| !class.is_met_by(has)))
            {
                return true;
            }
            let bounds = self.bounds.lock().get(&policy).cloned();
            let barred = |group| bounds.as_ref().is_some_and(|bounds| !bounds.groups.contains(&group));
            if segments.clone().any(|segment| self.alone_over(segment).is_some_and(barred)) {
                return true;
            }
        }
        false
    }

    /// Over which group a segment is that the store has not.
    pub fn alone_over(&self, segment: SegmentId) -> Option<GroupId> {
        let group = self.lanes.lock().get(&segment).map(|row| row.group);
        group.filter(|_| self.place(segment).is_none())
    }

    /// On how many members a segment is that the store has not.
    pub fn copies_alone(&self, segment: SegmentId) -> Option<usize> {
        let copies = self.lanes.lock().get(&segment).map(|row| row.set.len());
        copies.filter(|_| self.place(segment).is_none())
    }

    /// Has a file go by a policy, which says this.
    pub fn set_policy(&self, ino: Ino, policy: PolicyId, class: SyncClass) {
        self.classes.lock().insert(policy, class);
        let now = self.ns.inode(V, ino).unwrap().row.policy;
        assert_eq!(self.ns.give_policy(V, &[ino], (policy, now)).unwrap(), []);
    }

    /// The segments over the logs of members that a commit names. Each member of the set has what is named, or the store has it by then.
    fn named_lanes(&self, commit: &Commit) -> Vec<SegmentId> {
        let (lanes, fleet) = (self.lanes.lock(), self.fleet.lock());
        let mut named = BTreeSet::new();
        for (_, extent) in commit.files.iter().flat_map(|file| &file.extents) {
            let Some(row) = lanes.get(&extent.segment) else { continue };
            assert!(!row.settled, "{} is named after it was settled", extent.segment);
            let end = extent.run_offset + u64::from(extent.stored_len);
            assert!(row.sealed.is_none_or(|sealed| sealed.len >= end), "it was sealed below {end}");
            let is_stored = |row: forebay_format::row::SegmentRow| row.state == SegmentState::Stored;
            if !self.ns.segment(extent.segment).is_some_and(is_stored) {
                fleet.as_ref().unwrap().assert_has(&row.set, extent.segment, end);
            }
            named.insert(extent.segment);
        }
        named.into_iter().collect()
    }

    fn open_segments(&self, open: &OpenSegments) -> Result<Answer, MetaError> {
        let Placing::Best { members, copies, near } = &open.placing else { panic!("{open:?}") };
        let mut opened = Vec::new();
        for _ in 0..open.count {
            let segment = self.ns.new_segment_runs(1);
            let set = placement::choose(PieceKey::of(segment, 0), members, usize::from(*copies), *near);
            self.ns.open_segments(&[segment])?;
            self.lanes.lock().insert(
                segment,
                LaneRow {
                    set: set.clone(),
                    group: open.group,
                    confined: is_confined(open.directory),
                    apart: open.apart,
                    ..LaneRow::default()
                },
            );
            opened.push(OpenedSegment { segment, epoch: Epoch(1), set });
        }
        Ok(Answer::Opened(opened))
    }

    fn settle(&self, settle: &Settle) -> Result<Answer, MetaError> {
        let mut lanes = self.lanes.lock();
        for sealed in &settle.sealed {
            lanes.get_mut(&sealed.segment).unwrap().sealed = Some(*sealed);
            self.ns.seal_segments(&[(sealed.segment, sealed.len)])?;
        }
        for segment in &settle.settled {
            let row = lanes.get_mut(segment).unwrap();
            assert!(row.sealed.is_some(), "{segment} is open");
            row.settled = true;
        }
        Ok(Answer::Done)
    }

    fn carry_out(&self, operation: &Operation) -> Result<Answer, MetaError> {
        let inode = |ino| Ok(Answer::Inode(Box::new(self.told(ino)?)));
        match operation {
            Operation::Inode(ino) => inode(*ino),
            Operation::Map(ino, from, len) => self.map(*ino, *from, *len),
            Operation::Numbers(segments, objects) => Ok(self.numbers(*segments, *objects)),
            Operation::Commit(commit) => self.commit(commit),
            Operation::OpenSegments(open) => self.open_segments(open),
            Operation::Settle(settle) => self.settle(settle),
            Operation::Classes(asked) => {
                let (classes, disks) = (self.classes.lock(), self.disks.lock());
                if asked.iter().any(|id| disks.contains_key(id)) {
                    let rule = |id: &PolicyId| PolicyRule {
                        policy: *id,
                        class: classes.get(id).copied(),
                        disks: disks.get(id).copied().unwrap_or_default(),
                    };
                    return Ok(Answer::Rules(asked.iter().map(rule).collect()));
                }
                let told = asked.iter().filter_map(|id| classes.get(id).map(|class| (*id, *class)));
                Ok(Answer::Classes(told.collect()))
            }
            Operation::GroupRules(asked) => {
                let (classes, bounds) = (self.classes.lock(), self.bounds.lock());
                let rule = |id: &PolicyId| GroupRule {
                    policy: *id,
                    class: classes.get(id).copied(),
                    bounds: bounds.get(id).cloned(),
                };
                Ok(Answer::GroupRules(asked.iter().map(rule).collect()))
            }
            Operation::SetAttr(ino, set) => {
                self.ns.set_attr(V, *ino, set)?;
                inode(*ino)
            }
            Operation::Punch { ino, from, to, size, attr } => {
                self.ns.punch(V, *ino, *from, *to, *size, *attr)?;
                inode(*ino)
            }
            Operation::Share { source, from, target, to, len, attr } => {
                self.ns.share(V, (*source, *from), (*target, *to), *len, *attr)?;
                inode(*target)
            }
            other => panic!("contents ask {other:?}"),
        }
    }
}

impl Asks for Owner {
    fn ask(&self, operation: Operation, _: Option<Lease>) -> Result<Response, ClientError> {
        let what = match &operation {
            Operation::Map(..) => "map",
            Operation::Commit(_) => "commit",
            Operation::Numbers(..) => "numbers",
            Operation::Inode(_) => "inode",
            Operation::OpenSegments(_) => "open",
            Operation::Settle(_) => "settle",
            Operation::Classes(_) => "classes",
            Operation::GroupRules(_) => "rules",
            _ => "other",
        };
        *self.counts.lock().entry(what).or_default() += 1;
        let mishap = if what == "commit" { self.mishaps.lock().pop() } else { None };
        let unheard = Err(ClientError::TimedOut(Duration::from_secs(1)));
        if mishap == Some(Mishap::Unheard) {
            return unheard;
        }
        if mishap == Some(Mishap::Held) {
            self.hold();
        }
        if what == "settle" && self.refuses_settle.swap(false, Ordering::SeqCst) {
            return Ok(Response { answer: Answer::Failed(Failure::Invalid), grants: Vec::new() });
        }
        let answer = self.carry_out(&operation);
        if what == "open" && self.holds_opened.swap(false, Ordering::SeqCst) {
            self.hold();
        }
        if mishap == Some(Mishap::Unanswered) {
            return unheard;
        }
        let answer = answer.unwrap_or_else(|error| Answer::Failed(Failure::from(&error)));
        Ok(Response { answer, grants: Vec::new() })
    }

    fn session(&self) -> u64 {
        self.session.load(Ordering::SeqCst)
    }

    fn ask_in(
        &self,
        session: u64,
        operation: Operation,
        wish: Option<Lease>,
    ) -> Result<Response, ClientError> {
        if session != self.session() {
            return Err(ClientError::SessionEnded);
        }
        self.ask(operation, wish)
    }
}
