//! A namespace and the model of it, side by side.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::AtomicU64},
};

use forebay_env::{Clock, ManualClock};
use forebay_format::{
    record::Changes,
    row::{Extent, ObjectRef},
};
use forebay_meta::{Candidate, Engine, Moved, Namespace, Piece, PieceSource};
use forebay_types::{Epoch, Generation, Ino, SegmentId, SubvolumeId};

use crate::{
    faulty::FaultyEngine,
    log::TestLog,
    model::{Name, Tree},
};

/// Blocks so small that a few hundred bytes cross many.
pub const BLOCK: u32 = 64;

/// A random sequence that a seed determines.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize])
    }
}

/// A move that was planned and copied, not yet finished.
pub struct Move {
    pub candidate: Candidate,
    pub moved: Vec<Moved>,
    pub target: SegmentId,
}

pub struct World {
    pub random: Random,
    /// Rows of extents that one record removes: few, so that files of these tests are cut off.
    pub removal_rows: usize,
    pub clock: Arc<ManualClock>,
    pub engine: Arc<FaultyEngine>,
    pub log: Arc<TestLog>,
    pub ns: Arc<Namespace>,
    pub epoch: Epoch,
    /// The tokens of every run.
    pub runs: BTreeMap<(SegmentId, u64), Vec<u32>>,
    /// Blocks that a segment's own list names.
    pub named: BTreeMap<SegmentId, BTreeSet<Candidate>>,
    pub token: u32,
    pub stream: Option<(SegmentId, u64)>,
    pub moves: Vec<Move>,
    pub trees: BTreeMap<SubvolumeId, Tree>,
    pub origins: BTreeMap<SubvolumeId, (SubvolumeId, Generation)>,
    pub snapshots: BTreeMap<(SubvolumeId, Generation), Tree>,
    pub orphans: BTreeSet<(SubvolumeId, Ino)>,
    pub objects: BTreeMap<ObjectRef, BTreeSet<SegmentId>>,
    pub garbage: BTreeSet<ObjectRef>,
    pub collecting: Option<(SubvolumeId, Vec<u8>)>,
}

pub fn time(ns: i64) -> forebay_types::Timespec {
    forebay_types::Timespec { secs: ns / 1_000_000_000, nanos: (ns % 1_000_000_000) as u32 }
}

impl World {
    pub fn new(engine: Arc<dyn Engine>, seed: u64) -> World {
        let clock = Arc::new(ManualClock::default());
        Namespace::format(engine.as_ref(), clock.as_ref(), 0, 0, 0o755).unwrap();
        let engine = FaultyEngine::over(engine);
        let log = TestLog::over(engine.as_ref());
        let removal_rows = [256, 1, 3, 7][(seed % 4) as usize];
        let ns = Arc::new(open(&engine, &log, &clock, Epoch(1)).with_removal_rows(removal_rows));
        World {
            random: Random(seed),
            removal_rows,
            clock,
            engine,
            log,
            ns,
            epoch: Epoch(1),
            runs: BTreeMap::new(),
            named: BTreeMap::new(),
            token: 1000,
            stream: None,
            moves: Vec::new(),
            trees: BTreeMap::from([(SubvolumeId::FIRST, Tree::new())]),
            origins: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            orphans: BTreeSet::new(),
            objects: BTreeMap::new(),
            garbage: BTreeSet::new(),
            collecting: None,
        }
    }

    /// Moves the clock, and returns what the next operation's time is.
    pub fn tick(&mut self) -> i64 {
        self.clock.advance_ns(1_000_003);
        let now = self.clock.now();
        now.secs * 1_000_000_000 + i64::from(now.nanos)
    }

    /// As after a crash or an end: the engine has what the last checkpoint stored, the log all records.
    pub fn reopen(&mut self) {
        let sorted = |ns: &Namespace| {
            let mut all = ns.segments();
            all.sort_by_key(|(id, _)| *id);
            all
        };
        let (segments, last) = (sorted(&self.ns), self.ns.last());
        self.epoch = self.epoch.next();
        let numbers = Arc::new(AtomicU64::new(1));
        let log: Arc<TestLog> = Arc::clone(&self.log);
        let clock: Arc<dyn Clock> = self.clock.clone();
        let engine: Arc<dyn Engine> = self.engine.clone();
        let ns = Namespace::open(engine, log, clock, BLOCK, self.epoch, Arc::clone(&numbers)).unwrap();
        let applied = Namespace::applied(self.engine.as_ref()).unwrap().sequence;
        for record in &self.log.state.lock().records {
            let changes = Changes::decode(&record.bytes).unwrap();
            ns.replay(record.sequence, record.sequence > applied, changes).unwrap();
        }
        assert_eq!(sorted(&ns), segments, "segments after replay");
        assert_eq!(ns.last(), last);
        // Files of the journal and of streams are found by looking for them.
        let found = self.runs.keys().map(|(segment, _)| segment.0).max().unwrap_or(0);
        let file = self.log.state.lock().file.map_or(0, |file| file.0);
        ns.numbers_taken(found.max(file), 0);
        let fresh = ns.new_segment();
        assert!(segments.iter().all(|(id, _)| *id < fresh), "{fresh} was handed out before");
        *self.log.numbers.lock() = numbers;
        self.log.state.lock().file = None;
        self.ns = Arc::new(ns.with_removal_rows(self.removal_rows));
        self.moves.clear();
        self.stream = None;
        self.collecting = None;
    }

    /// The tokens that pieces stand for; they must follow each other from `from` on.
    pub fn tokens(&self, pieces: &[Piece], from: u64) -> Vec<u32> {
        let mut tokens = Vec::new();
        for piece in pieces {
            assert_eq!(piece.offset, from + tokens.len() as u64, "pieces follow each other: {pieces:?}");
            assert!(piece.len > 0);
            match &piece.source {
                PieceSource::Hole => tokens.resize(tokens.len() + piece.len as usize, 0),
                PieceSource::Inline(bytes) => {
                    assert_eq!(bytes.len() as u64, piece.len);
                    tokens.extend(bytes.iter().map(|byte| u32::from(*byte)));
                }
                PieceSource::Extent(extent) => {
                    assert_eq!(u64::from(extent.len), piece.len);
                    tokens.extend(self.resolve(extent));
                }
            }
        }
        tokens
    }

    pub fn resolve(&self, extent: &Extent) -> &[u32] {
        let run = self.runs.get(&(extent.segment, extent.run_offset));
        let run = run.unwrap_or_else(|| panic!("{extent:?} is in a segment that is gone"));
        assert_eq!(run.len(), extent.run_len as usize);
        &run[extent.skip as usize..(extent.skip + extent.len) as usize]
    }

    /// Picks a subvolume.
    pub fn subvolume(&mut self) -> SubvolumeId {
        let all: Vec<_> = self.trees.keys().copied().collect();
        match self.random.one_in(2) {
            true => SubvolumeId::FIRST,
            false => self.random.pick(&all).unwrap(),
        }
    }

    /// Picks an inode for which `suits` holds; now and then any, also one that is gone.
    pub fn inode(&mut self, at: SubvolumeId, suits: impl Fn(&crate::model::Node) -> bool) -> Ino {
        if self.random.one_in(40) {
            return Ino(4096 + self.random.below(3 * 4096));
        }
        let any = self.random.one_in(15);
        let tree = &self.trees[&at];
        let all: Vec<_> = tree.0.iter().filter(|(_, node)| any || suits(node)).map(|(ino, _)| *ino).collect();
        self.random.pick(&all).unwrap_or(Ino::ROOT)
    }

    pub fn directory(&mut self, at: SubvolumeId) -> Ino {
        if self.random.one_in(3) {
            return Ino::ROOT;
        }
        self.inode(at, |node| node.is_directory())
    }

    pub fn any_file(&mut self, at: SubvolumeId) -> Ino {
        self.inode(at, |node| node.kind == forebay_types::FileKind::Regular)
    }

    /// A name out of few, some of which begin like others.
    pub fn name(&mut self) -> Name {
        const NAMES: [&[u8]; 12] =
            [b"a", b"a\x01", b"aa", b"a\xff", b"ab", b"b", b"\xff\xff", b"c", b"d", b"e", b"f", b"\x01"];
        self.random.pick(&NAMES).unwrap().to_vec()
    }

    /// A name that `parent` has, more often than not.
    pub fn taken_name(&mut self, at: SubvolumeId, parent: Ino) -> Name {
        let names: Vec<_> = match self.trees[&at].0.get(&parent) {
            Some(node) => node.entries.keys().map(Vec::as_slice).collect(),
            None => Vec::new(),
        };
        let picked = self.random.pick(&names).map(<[u8]>::to_vec);
        match picked {
            Some(name) if !self.random.one_in(8) => name,
            _ => self.name(),
        }
    }
}

fn open(engine: &Arc<FaultyEngine>, log: &Arc<TestLog>, clock: &Arc<ManualClock>, epoch: Epoch) -> Namespace {
    let (engine, clock): (Arc<dyn Engine>, Arc<dyn Clock>) = (engine.clone(), clock.clone());
    let numbers = Arc::clone(&log.numbers.lock());
    let log: Arc<TestLog> = Arc::clone(log);
    Namespace::open(engine, log, clock, BLOCK, epoch, numbers).unwrap()
}
