//! The table of segments: what each is, how much of it is in use, which blocks refer to the journal's.

use std::collections::{BTreeSet, hash_map::Entry};

use forebay_format::row::{ObjectRef, SegmentKind, SegmentRow};
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

/// All segments of the volume, by number.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    rows: FxHashMap<SegmentId, SegmentRow>,
    changed: FxHashSet<SegmentId>,
    /// How many segments each object has.
    in_object: FxHashMap<ObjectRef, u32>,
    in_journal: FxHashMap<SegmentId, BTreeSet<Candidate>>,
}

impl Segments {
    pub(crate) fn insert(&mut self, id: SegmentId, row: SegmentRow) {
        if let Some(object) = row.object {
            *self.in_object.entry(object).or_default() += 1;
        }
        if let Some(old) = self.rows.insert(id, row) {
            self.leave_object(&old);
        }
    }

    fn leave_object(&mut self, row: &SegmentRow) {
        let Some(Entry::Occupied(mut entry)) = row.object.map(|object| self.in_object.entry(object)) else {
            return;
        };
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
    }

    /// How many segments an object has.
    pub(crate) fn of_object(&self, object: ObjectRef) -> u32 {
        self.in_object.get(&object).copied().unwrap_or(0)
    }

    pub(crate) fn remove(&mut self, id: SegmentId) {
        if let Some(old) = self.rows.remove(&id) {
            self.leave_object(&old);
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
        if let Entry::Occupied(mut entry) = self.rows.entry(id) {
            let live = &mut entry.get_mut().live;
            *live = live.saturating_add_signed(bytes);
            self.changed.insert(id);
        }
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
