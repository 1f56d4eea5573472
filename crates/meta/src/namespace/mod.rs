mod attrs;
mod caches;
mod checkpoint;
mod coherence;
mod data;
mod lanes;
mod map;
mod names;
mod policies;
mod prefetch;
mod read;
mod relocate;
mod removal;
mod rename;
mod repair;
mod segments;
mod snapshots;
mod take_in;
mod xattrs;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use forebay_engine::{Batch, Engine, Outcome};
use forebay_env::Clock;
use forebay_format::{
    key::{self, Key},
    record::Changes,
    row::{AppliedRow, CountersRow, DirectoryRow, InodeRow, Layout, Row, SegmentRow, SubvolumeRow},
};
use forebay_types::{
    Coherence, Epoch, FileKind, Generation, Ino, PolicyId, SegmentId, Sequence, SubvolumeId,
};
use parking_lot::{Mutex, MutexGuard};
use quick_cache::{Weighter, sync::Cache};
use rustc_hash::{FxHashMap, FxHashSet};

pub use attrs::{SetAttr, SetTime, WriteAttr};
pub use checkpoint::Checkpoint;
pub use data::{ExtentSource, NewExtent, Piece, PieceSource, Pieces};
pub use lanes::StoredPlace;
pub use names::{DirEntry, Removed};
pub use policies::PolicyFiles;
pub use relocate::{Moved, PlannedRow, Relocation};
pub use rename::RenameMode;
pub use snapshots::Snapshot;
pub use take_in::{NewContents, NewSegment};
pub use xattrs::SetXattr;

use crate::{
    blocks::Placed,
    dentries::Dentries,
    error::MetaError,
    given_names::GivenNames,
    inode::Inode,
    log::{Log, Urgency},
    orphans::Orphans,
    rows::Rows,
    segments::{Candidate, Segments},
    tree::Lineage,
    txn::{Finished, Txn, decode_key, row_block, row_extent},
};

const INODES_CACHED: usize = 100_000;
const BLOCKS_CACHED: usize = 50_000;
/// Bytes that the extents of cached blocks may take.
const BLOCK_BYTES: u64 = 32 << 20;
const RUNS_CACHED: usize = 4096;
const RUN_LEN: u16 = 1 << Ino::RUN_BITS;

/// A block of a file of a subvolume.
type BlockKey = (SubvolumeId, Ino, u32);

/// Bytes that a cached block takes.
#[derive(Clone, Debug)]
struct BlockCost;

impl Weighter<BlockKey, Arc<[Placed]>> for BlockCost {
    fn weight(&self, _: &BlockKey, placed: &Arc<[Placed]>) -> u64 {
        (128 + size_of_val::<[Placed]>(placed)) as u64
    }
}

/// The owner of a volume's metadata: all changes go through it, one after the other.
pub struct Namespace {
    pub(crate) rows: Rows,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) block_size: u32,
    /// Rows of extents that one record may remove.
    pub(crate) removal_rows: usize,
    log: Arc<dyn Log>,
    segment_numbers: Arc<AtomicU64>,
    turn: Mutex<Owner>,
    /// Odd while the caches are brought up to date with a change: what is in two of them may then be of two moments.
    changes: AtomicU64,
    inodes: Cache<(SubvolumeId, Ino), Arc<Inode>>,
    blocks: Cache<BlockKey, Arc<[Placed]>, BlockCost>,
    dentries: Dentries,
    given: GivenNames,
    runs: Cache<(SubvolumeId, Ino), (u64, u16)>,
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namespace").field("rows", &self.rows).finish_non_exhaustive()
    }
}

/// What only the thread whose turn it is may see or change.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) epoch: Epoch,
    pub(crate) counters: CountersRow,
    pub(crate) counters_changed: bool,
    pub(crate) subvolumes: FxHashMap<SubvolumeId, SubvolumeRow>,
    pub(crate) segments: Segments,
    pub(crate) orphans: Orphans,
    /// The last record that was committed or replayed.
    pub(crate) last: Sequence,
    /// The last record that the engine has.
    pub(crate) applied: Sequence,
}

impl Owner {
    pub(crate) fn lineage(
        &self,
        subvolume: SubvolumeId,
        at: Option<Generation>,
    ) -> Result<Lineage, MetaError> {
        let mut levels = Vec::with_capacity(1);
        let mut next = Some((subvolume, at));
        while let Some((id, at)) = next {
            let row = self.subvolumes.get(&id).ok_or(MetaError::NoSubvolume(id))?;
            levels.push((id, at.unwrap_or(row.generation)));
            next = row.origin.map(|(id, generation)| (id, Some(generation)));
        }
        Ok(Lineage(levels))
    }
}

impl Namespace {
    /// Writes the rows of an empty volume: its root directory belongs to `uid` and `gid` and has `mode`.
    ///
    /// # Errors
    /// [`MetaError`]; also where the engine has a volume already.
    pub fn format(
        engine: &dyn Engine,
        clock: &dyn Clock,
        uid: u32,
        gid: u32,
        mode: u16,
    ) -> Result<(), MetaError> {
        Self::format_with(engine, clock, (uid, gid, mode), None)
    }

    /// The same, and inodes are counted. Only for volumes without a journal, which have a checkpoint of whatever has changed: the count is none of what a record has.
    ///
    /// # Errors
    /// As [`Namespace::format`].
    pub fn format_counted(
        engine: &dyn Engine,
        clock: &dyn Clock,
        uid: u32,
        gid: u32,
        mode: u16,
    ) -> Result<(), MetaError> {
        Self::format_with(engine, clock, (uid, gid, mode), Some(1))
    }

    fn format_with(
        engine: &dyn Engine,
        clock: &dyn Clock,
        (uid, gid, mode): (u32, u32, u16),
        inodes: Option<u64>,
    ) -> Result<(), MetaError> {
        let now = clock.now();
        let root = InodeRow {
            kind: FileKind::Directory,
            mode,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            size: 0,
            allocated: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            parent: Ino::ROOT,
            has_xattrs: false,
            has_cuts: false,
            coherence: Coherence::Coherent,
            policy: PolicyId::NONE,
            layout: Layout::Empty,
        };
        let directory = DirectoryRow { entries: 0, directories: 0, mtime: now, ctime: now };
        let subvolume = SubvolumeRow { generation: Generation::FIRST, origin: None, snapshots: Vec::new() };
        let counters = CountersRow { inodes, ..CountersRow::FIRST };
        let (first, one) = (SubvolumeId::FIRST, Generation::FIRST);
        let put = |key: Vec<u8>, value: Vec<u8>| (key, Some(value));
        let rows = [
            put(key::Item::Inode(Ino::ROOT).key(first, one), root.encode()),
            put(key::Item::Directory(Ino::ROOT).key(first, one), directory.encode()),
            put(Key::Subvolume(first).encode(), subvolume.encode()),
            put(Key::Counters.encode(), counters.encode()),
            put(Key::Applied.encode(), AppliedRow::default().encode()),
        ];
        let batch = Batch { expect: vec![(Key::Counters.encode(), None)], ..Batch::of(&rows) };
        match engine.commit(&batch)? {
            Outcome::Committed => Ok(()),
            Outcome::Fenced | Outcome::Unknown => Err(MetaError::Exists),
        }
    }

    /// How much of the journal an engine's rows contain.
    ///
    /// # Errors
    /// [`MetaError`], also where the engine has no volume.
    pub fn applied(engine: &dyn Engine) -> Result<AppliedRow, MetaError> {
        let value = engine.get(&Key::Applied.encode())?.ok_or(MetaError::NotFound)?;
        AppliedRow::decode(&value).map_err(|source| MetaError::damaged("the applied position", source))
    }

    /// Opens the namespace over an engine that [`Namespace::format`] once wrote. Records that the engine does not have are then handed to
    /// [`Namespace::replay`] before anything else is done. `segment_numbers` is the next number of a segment, shared with whoever makes
    /// files of them: it is outside the turn, because the log takes one while it has it.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn open(
        engine: Arc<dyn Engine>,
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        block_size: u32,
        epoch: Epoch,
        segment_numbers: Arc<AtomicU64>,
    ) -> Result<Namespace, MetaError> {
        let applied = Self::applied(engine.as_ref())?;
        let rows = Rows::new(engine);
        let mut owner = Owner {
            epoch,
            counters: CountersRow::FIRST,
            counters_changed: false,
            subvolumes: FxHashMap::default(),
            segments: Segments::default(),
            orphans: Orphans::default(),
            last: applied.sequence,
            applied: applied.sequence,
        };
        for prefix in [Key::Counters.encode(), key::subvolumes(), key::segments(), key::orphans()] {
            for (key, value) in rows.with_prefix(&prefix)? {
                owner.load(&key, Some(&value))?;
            }
        }
        segment_numbers.fetch_max(owner.counters.segment, Ordering::SeqCst);
        Ok(Namespace {
            rows,
            clock,
            block_size,
            removal_rows: removal::ROWS_A_RECORD,
            log,
            segment_numbers,
            turn: Mutex::new(owner),
            changes: AtomicU64::new(0),
            inodes: Cache::new(INODES_CACHED),
            blocks: Cache::with_weighter(BLOCKS_CACHED, BLOCK_BYTES, BlockCost),
            dentries: Dentries::default(),
            given: GivenNames::default(),
            runs: Cache::new(RUNS_CACHED),
        })
    }

    /// Takes in a record of the journal: `fresh` ones change the rows, older ones only tell which blocks have extents in the
    /// journal's file `segment`.
    ///
    /// # Errors
    /// [`MetaError::Damaged`] where the record is none that this crate wrote.
    pub fn replay(&self, sequence: Sequence, fresh: bool, changes: Changes) -> Result<(), MetaError> {
        let mut owner = self.turn.lock();
        if fresh {
            for (key, value) in &changes.rows {
                owner.load(key, value.as_deref())?;
            }
            for (segment, bytes) in &changes.live {
                owner.segments.add_live(*segment, *bytes);
            }
            owner.last = sequence;
            self.segment_numbers.fetch_max(owner.counters.segment, Ordering::SeqCst);
        }
        for (key, value) in &changes.rows {
            let (Key::Versioned(subvolume, item, _), Some(value)) = (decode_key(key)?, value) else {
                continue;
            };
            if let (Some(extent), Some((ino, block))) = (row_extent(&item, value)?, row_block(&item, value)) {
                owner.segments.note(extent.segment, Candidate { subvolume, ino, block });
            }
        }
        if fresh {
            self.rows.apply(changes.rows);
        }
        Ok(())
    }

    /// Says that numbers of segments and objects up to these are taken: files or objects with them were found.
    pub fn numbers_taken(&self, segment: u64, object: u64) {
        let mut owner = self.turn.lock();
        self.segment_numbers.fetch_max(segment + 1, Ordering::SeqCst);
        owner.counters.object = owner.counters.object.max(object + 1);
        owner.counters_changed = true;
    }

    /// The last record that was committed.
    #[must_use]
    pub fn last(&self) -> Sequence {
        self.turn.lock().last
    }

    /// The last record that the engine has.
    #[must_use]
    pub fn applied_sequence(&self) -> Sequence {
        self.turn.lock().applied
    }

    /// Bytes of rows that no checkpoint has taken yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.rows.pending_bytes()
    }

    /// The engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.rows.engine()
    }

    /// The block size of the volume, in bytes.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The counters as they are to be stored.
    pub(crate) fn counters(&self, owner: &mut Owner) -> CountersRow {
        let next = self.segment_numbers.load(Ordering::SeqCst);
        owner.counters.segment = owner.counters.segment.max(next);
        owner.counters
    }

    pub(crate) fn next_segment_number(&self) -> u64 {
        self.take_segment_numbers(1)
    }

    pub(crate) fn take_segment_numbers(&self, many: u64) -> u64 {
        self.segment_numbers.fetch_add(many, Ordering::SeqCst)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Owner> {
        self.turn.lock()
    }

    /// Runs one operation: `work` says what it changes, which becomes one record.
    pub(crate) fn change<R>(
        &self,
        subvolume: SubvolumeId,
        urgency: Urgency,
        data: &[u8],
        work: impl FnOnce(&mut Txn<'_>) -> Result<R, MetaError>,
    ) -> Result<R, MetaError> {
        let mut owner = self.turn.lock();
        let append = self.log.begin(data, urgency)?;
        let mut txn = Txn::new(self, &mut owner, subvolume, append.place())?;
        let result = work(&mut txn)?;
        let finished = txn.finish()?;
        if !finished.changes.is_empty() {
            let sequence = append.commit(&finished.changes);
            self.apply(&mut owner, subvolume, sequence, finished);
        }
        drop(owner);
        self.log.write_out();
        Ok(result)
    }

    fn apply(&self, owner: &mut Owner, subvolume: SubvolumeId, sequence: Sequence, finished: Finished) {
        let Finished {
            changes,
            inodes,
            blocks,
            names,
            directories,
            noted,
            segments,
            subvolumes,
            stale,
            listed,
            more,
        } = finished;
        if changes.rows.iter().any(|(key, _)| *key == Key::Counters.encode()) {
            owner.counters_changed = false;
        }
        owner.counters.inodes = owner.counters.inodes.map(|inodes| inodes.saturating_add_signed(more));
        for (id, row) in segments {
            match row {
                Some(row) => owner.segments.insert(id, row),
                None => owner.segments.remove(id),
            }
        }
        for (id, bytes) in &changes.live {
            owner.segments.add_live(*id, *bytes);
        }
        for (id, candidate) in noted {
            owner.segments.note(id, candidate);
        }
        self.rows.apply(changes.rows);
        for (ino, listed) in listed {
            owner.orphans.list((subvolume, ino), listed);
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
        for (ino, inode) in inodes {
            let cut = inode.as_ref().is_some_and(|inode| !inode.cuts.is_empty());
            owner.orphans.set_cut((subvolume, ino), cut);
            match inode {
                Some(inode) => self.inodes.insert((subvolume, ino), inode),
                None => {
                    self.inodes.remove(&(subvolume, ino));
                    self.given.removed(subvolume, ino);
                }
            }
        }
        for (ino, block, placed) in blocks {
            match placed {
                Some(placed) => self.blocks.insert((subvolume, ino, block), placed),
                None => drop(self.blocks.remove(&(subvolume, ino, block))),
            }
        }
        directories.into_iter().for_each(|ino| self.given.made(subvolume, ino));
        for name in names {
            self.given.given(subvolume, &name);
            self.dentries.change(subvolume, name);
        }
        self.forget_stale(owner, subvolume, &stale);
        for (id, row) in subvolumes {
            let generation = row.generation;
            if owner.subvolumes.insert(id, row).is_some_and(|old| old.generation != generation) {
                // What was at the head's generation is an older version from now on.
                self.inodes.clear();
                self.blocks.clear();
            }
        }
        self.changes.fetch_add(1, Ordering::Release);
        owner.last = sequence;
    }

    /// Drops from the caches what versions that were changed in place may be shown by: the subvolume and its clones, which have higher numbers.
    fn forget_stale(&self, owner: &Owner, subvolume: SubvolumeId, stale: &[(Ino, u32)]) {
        for (ino, block) in stale {
            for id in owner.subvolumes.keys().filter(|id| **id >= subvolume) {
                self.inodes.remove(&(*id, *ino));
                self.blocks.remove(&(*id, *ino, *block));
            }
        }
    }

    /// A number for a new inode in `parent`, near those of its siblings.
    pub(crate) fn new_ino(&self, owner: &mut Owner, subvolume: SubvolumeId, parent: Ino) -> Ino {
        let (run, index) = match self.runs.get(&(subvolume, parent)) {
            Some((run, index)) if index < RUN_LEN => (run, index),
            _ => {
                owner.counters.run += 1;
                owner.counters_changed = true;
                (owner.counters.run - 1, 0)
            }
        };
        self.runs.insert((subvolume, parent), (run, index + 1));
        Ino::in_run(run, index)
    }

    /// Hands out so many runs of numbers for inodes, and returns the first: nobody else uses them. They are taken for good only once
    /// [`Namespace::record_numbers`] or any other operation was recorded.
    #[must_use]
    pub fn new_runs(&self, runs: u32) -> u64 {
        let mut owner = self.turn.lock();
        owner.counters.run += u64::from(runs);
        owner.counters_changed = true;
        owner.counters.run - u64::from(runs)
    }

    /// The first run of numbers for inodes that was never handed out.
    #[must_use]
    pub fn next_run(&self) -> u64 {
        self.turn.lock().counters.run
    }

    /// How many inodes there are, those without a name among them; `None` where they are not counted.
    #[must_use]
    pub fn inodes(&self) -> Option<u64> {
        self.turn.lock().counters.inodes
    }

    /// The numbers of segments that are known.
    #[must_use]
    pub fn known_segments(&self) -> FxHashSet<SegmentId> {
        self.turn.lock().segments.iter().map(|(id, _)| id).collect()
    }
}

impl Owner {
    /// Takes in a row of the volume, as the engine or a record has it.
    fn load(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), MetaError> {
        let wrong = |source| MetaError::damaged(format!("row {key:02x?}"), source);
        match (decode_key(key)?, value) {
            (Key::Segment(id), Some(value)) => {
                self.counters.segment = self.counters.segment.max(id.0 + 1);
                self.segments.insert(id, SegmentRow::decode(value).map_err(wrong)?)
            }
            (Key::Segment(id), None) => self.segments.remove(id),
            (Key::Subvolume(id), Some(value)) => {
                self.subvolumes.insert(id, SubvolumeRow::decode(value).map_err(wrong)?);
            }
            (Key::Subvolume(id), None) => {
                self.subvolumes.remove(&id);
            }
            (Key::Orphan(subvolume, ino), value) => self.orphans.load((subvolume, ino), value.is_some()),
            (Key::Counters, Some(value)) => {
                let found = CountersRow::decode(value).map_err(wrong)?;
                let segment = self.counters.segment.max(found.segment);
                self.counters = CountersRow { segment, ..found };
            }
            _ => {}
        }
        Ok(())
    }
}
