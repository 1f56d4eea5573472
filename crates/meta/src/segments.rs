//! The table of segments: what each is, how much of it is in use, which blocks refer to the journal's.

use std::collections::{BTreeSet, hash_map::Entry};

use forebay_format::row::{SegmentKind, SegmentRow};
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
    in_journal: FxHashMap<SegmentId, BTreeSet<Candidate>>,
}

impl Segments {
    pub(crate) fn insert(&mut self, id: SegmentId, row: SegmentRow) {
        self.rows.insert(id, row);
    }

    pub(crate) fn remove(&mut self, id: SegmentId) {
        self.rows.remove(&id);
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
