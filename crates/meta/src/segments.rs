//! The table of segments: what each is, how much of it is in use, which blocks refer to the journal's. What background work asks for in every
//! round (sums, the segments that are not stored, the dead ones, what each object holds) is kept up with each change: no round goes
//! through all rows.

use std::collections::{BTreeSet, hash_map::Entry};

use forebay_format::row::{ObjectRef, SegmentKind, SegmentRow, SegmentState};
use forebay_types::{Ino, SegmentId, SubvolumeId};
use rustc_hash::{FxHashMap, FxHashSet};

/// A block that may have extents in a segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Candidate {
    /// The subvolume.
    pub subvolume: SubvolumeId,
    /// The inode.
    pub ino: Ino,
    /// The block.
    pub block: u32,
}

/// Sums over the segments of a volume. All are bytes but the counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentTotals {
    /// Segments.
    pub segments: u64,
    /// Objects that have any.
    pub objects: u64,
    /// Raw bytes in use.
    pub live: u64,
    /// Of these, bytes in files of the journal.
    pub journal_live: u64,
    /// Raw bytes in use that the store has.
    pub stored_live: u64,
    /// Raw bytes that the store has, in use or not.
    pub stored_raw: u64,
    /// Bytes of segments that the store has, as stored.
    pub stored_len: u64,
    /// Raw bytes in the store that nothing refers to any more.
    pub garbage: u64,
    /// How often what objects hold has changed since the volume was opened.
    pub object_changes: u64,
}

impl SegmentTotals {
    /// Raw bytes in use that the store does not have yet.
    #[must_use]
    pub fn dirty(&self) -> u64 {
        self.live.saturating_sub(self.stored_live)
    }

    fn count(&mut self, row: &SegmentRow, add: bool) {
        let change = |sum: &mut u64, by: u64| {
            *sum = if add { sum.wrapping_add(by) } else { sum.wrapping_sub(by) };
        };
        change(&mut self.segments, 1);
        change(&mut self.live, row.live);
        if row.kind == SegmentKind::Journal {
            change(&mut self.journal_live, row.live);
        }
        if row.state == SegmentState::Stored {
            change(&mut self.stored_live, row.live);
            change(&mut self.stored_raw, row.raw);
            change(&mut self.stored_len, row.len);
            change(&mut self.garbage, row.raw.saturating_sub(row.live));
        }
        self.object_changes += u64::from(row.object.is_some());
    }
}

/// What an object in the store holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Holding {
    /// Its segments.
    pub segments: Vec<SegmentId>,
    /// Raw bytes in use.
    pub live: u64,
    /// Raw bytes, in use or not.
    pub raw: u64,
}

/// All segments of the volume, by number.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    rows: FxHashMap<SegmentId, SegmentRow>,
    changed: FxHashSet<SegmentId>,
    totals: SegmentTotals,
    /// Those that the store does not have.
    unstored: BTreeSet<SegmentId>,
    /// Those without live bytes.
    dead: BTreeSet<SegmentId>,
    objects: FxHashMap<ObjectRef, Holding>,
    in_journal: FxHashMap<SegmentId, BTreeSet<Candidate>>,
}

impl Segments {
    pub(crate) fn insert(&mut self, id: SegmentId, row: SegmentRow) {
        if let Some(old) = self.rows.insert(id, row) {
            self.uncount(id, &old);
        }
        self.count(id, &row);
    }

    fn count(&mut self, id: SegmentId, row: &SegmentRow) {
        self.totals.count(row, true);
        if row.state != SegmentState::Stored {
            self.unstored.insert(id);
        }
        if row.live == 0 {
            self.dead.insert(id);
        }
        if let Some(object) = row.object {
            let held = self.objects.entry(object).or_default();
            held.segments.push(id);
            held.live = held.live.wrapping_add(row.live);
            held.raw = held.raw.wrapping_add(row.raw);
        }
    }

    fn uncount(&mut self, id: SegmentId, row: &SegmentRow) {
        self.totals.count(row, false);
        self.unstored.remove(&id);
        self.dead.remove(&id);
        let Some(Entry::Occupied(mut entry)) = row.object.map(|object| self.objects.entry(object)) else {
            return;
        };
        let held = entry.get_mut();
        held.segments.retain(|known| *known != id);
        held.live = held.live.wrapping_sub(row.live);
        held.raw = held.raw.wrapping_sub(row.raw);
        if held.segments.is_empty() {
            entry.remove();
        }
    }

    /// How many segments an object has.
    pub(crate) fn of_object(&self, object: ObjectRef) -> u32 {
        self.objects.get(&object).map_or(0, |held| held.segments.len() as u32)
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = (ObjectRef, &Holding)> {
        self.objects.iter().map(|(object, held)| (*object, held))
    }

    pub(crate) fn totals(&self) -> SegmentTotals {
        SegmentTotals { objects: self.objects.len() as u64, ..self.totals }
    }

    pub(crate) fn unstored(&self) -> impl Iterator<Item = (SegmentId, &SegmentRow)> {
        self.unstored.iter().filter_map(|id| self.rows.get(id).map(|row| (*id, row)))
    }

    pub(crate) fn dead(&self) -> impl Iterator<Item = (SegmentId, &SegmentRow)> {
        self.dead.iter().filter_map(|id| self.rows.get(id).map(|row| (*id, row)))
    }

    pub(crate) fn remove(&mut self, id: SegmentId) {
        if let Some(old) = self.rows.remove(&id) {
            self.uncount(id, &old);
        }
        self.changed.remove(&id);
        self.in_journal.remove(&id);
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&SegmentRow> {
        self.rows.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &SegmentRow)> {
        self.rows.iter().map(|(id, row)| (*id, row))
    }

    pub(crate) fn is_journal(&self, id: SegmentId) -> bool {
        self.rows.get(&id).is_some_and(|row| row.kind == SegmentKind::Journal)
    }

    /// Adds live bytes (negative: takes). A segment that is not known gets no row: its first row comes with the record that makes it.
    pub(crate) fn add_live(&mut self, id: SegmentId, bytes: i64) {
        let Some(row) = self.rows.get_mut(&id) else { return };
        let before = row.live;
        row.live = before.saturating_add_signed(bytes);
        let (row, now) = (*row, row.live);
        let shift = |sum: &mut u64| *sum = sum.wrapping_sub(before).wrapping_add(now);
        shift(&mut self.totals.live);
        if row.kind == SegmentKind::Journal {
            shift(&mut self.totals.journal_live);
        }
        if row.state == SegmentState::Stored {
            shift(&mut self.totals.stored_live);
            let garbage = |live| row.raw.saturating_sub(live);
            self.totals.garbage =
                self.totals.garbage.wrapping_sub(garbage(before)).wrapping_add(garbage(now));
        }
        if let Some(held) = row.object.and_then(|object| self.objects.get_mut(&object)) {
            shift(&mut held.live);
            self.totals.object_changes += 1;
        }
        match (before, now) {
            (0, 1..) => {
                self.dead.remove(&id);
            }
            (1.., 0) => {
                self.dead.insert(id);
            }
            _ => {}
        }
        self.changed.insert(id);
    }

    /// Notes that a block has an extent in a file of the journal.
    pub(crate) fn note(&mut self, id: SegmentId, candidate: Candidate) {
        if self.is_journal(id) {
            self.in_journal.entry(id).or_default().insert(candidate);
        }
    }

    pub(crate) fn candidates(&self, id: SegmentId) -> Vec<Candidate> {
        self.in_journal.get(&id).map(|set| set.iter().copied().collect()).unwrap_or_default()
    }

    /// The rows whose live bytes changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<(SegmentId, SegmentRow)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().filter_map(|id| self.rows.get(&id).map(|row| (id, *row))).collect()
    }
}
