//! Rows `0 g`: which segments the store may not have, and who has them (`docs/design/proxy-group.md`).
//!
//! Guarantees: a row is in the batch that has the record it goes with; it is there as long as a set may have what nobody else has, or a request may still name the
//! segment. What may become of a row is [`SetRow`]'s to say.

use std::collections::{BTreeMap, BTreeSet};

use forebay_cluster::{Moment, SessionId};
use forebay_format::{
    key::Key,
    row::Row,
    set_row::{SegmentSetRow, SetRowState},
};
use forebay_group::{GroupId, MemberId, SetRow, SetState};
use forebay_types::{Ino, SegmentId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    batch::{BatchNumber, Core},
    losses::Losses,
    spread::Spread,
};

/// Directories whose next number is remembered.
const RUNS_MAX: usize = 4096;

/// A segment that the store may not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) row: SetRow,
    pub(crate) directory: Ino,
    pub(crate) group: GroupId,
}

impl Held {
    fn encode(&self) -> Vec<u8> {
        let Held { row, directory, group } = self;
        let state = match row.state {
            SetState::Open => SetRowState::Open,
            SetState::Sealed { len, check } => SetRowState::Sealed { len, check },
            SetState::Stored => SetRowState::Stored,
            SetState::Lost => SetRowState::Lost,
        };
        let row = SegmentSetRow {
            writer: row.writer.0,
            epoch: row.epoch,
            directory: *directory,
            group: group.0,
            set: row.set.iter().map(|member| member.0).collect(),
            joining: row.joining.map(|member| member.0),
            state,
            settled: row.settled,
            recovered: row.recovered,
        };
        row.encode()
    }
}

impl From<SegmentSetRow> for Held {
    fn from(row: SegmentSetRow) -> Held {
        let state = match row.state {
            SetRowState::Open => SetState::Open,
            SetRowState::Sealed { len, check } => SetState::Sealed { len, check },
            SetRowState::Stored => SetState::Stored,
            SetRowState::Lost => SetState::Lost,
        };
        let set_row = SetRow {
            writer: SessionId(row.writer),
            epoch: row.epoch,
            set: row.set.into_iter().map(MemberId).collect(),
            joining: row.joining.map(MemberId),
            state,
            settled: row.settled,
            recovered: row.recovered,
        };
        Held { row: set_row, directory: row.directory, group: GroupId(row.group) }
    }
}

/// All of them, and what is on its way with them.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    held: BTreeMap<SegmentId, Held>,
    of: FxHashMap<SessionId, BTreeSet<SegmentId>>,
    /// Rows that may be over: they are looked at in the background.
    pub(crate) doubtful: BTreeSet<SegmentId>,
    /// Since when this owner has known a segment to be sealed.
    pub(crate) sealed_since: FxHashMap<SegmentId, Moment>,
    /// Open ones whose writer has ended, and the batch that has their epoch.
    pub(crate) orphaned: BTreeMap<SegmentId, BatchNumber>,
    /// What may be lost, since members were given up.
    pub(crate) losses: Losses,
    /// The numbers that a directory's next segments get: from the first to below the second.
    numbers: FxHashMap<Ino, (u64, u64)>,
    /// Which ones these are to be.
    pub(crate) spread: Spread,
}

impl Sets {
    pub(crate) fn get(&self, segment: SegmentId) -> Option<&Held> {
        self.held.get(&segment)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (SegmentId, &Held)> {
        self.held.iter().map(|(segment, held)| (*segment, held))
    }

    /// Those from this one on.
    pub(crate) fn from(&self, segment: SegmentId) -> impl Iterator<Item = (SegmentId, &Held)> {
        self.held.range(segment..).map(|(segment, held)| (*segment, held))
    }

    pub(crate) fn row(&self, segment: SegmentId) -> Option<&SetRow> {
        self.held.get(&segment).map(|held| &held.row)
    }

    pub(crate) fn len_of(&self, session: SessionId) -> usize {
        self.of.get(&session).map_or(0, BTreeSet::len)
    }

    /// Whether a session writes a segment, and a request of it may name that.
    pub(crate) fn may_name(&self, session: SessionId, segment: SegmentId) -> bool {
        let row = self.row(segment);
        let may = |row: &SetRow| row.writer == session && !row.settled && row.state != SetState::Lost;
        row.is_some_and(may)
    }

    /// Whether nobody has a segment any more.
    pub(crate) fn is_lost(&self, segment: SegmentId) -> bool {
        self.losses.has(segment)
    }

    /// Takes in a row that a former owner left.
    pub(crate) fn restore(&mut self, segment: SegmentId, row: SegmentSetRow) {
        self.insert(segment, Held::from(row));
    }

    pub(crate) fn insert(&mut self, segment: SegmentId, held: Held) {
        self.of.entry(held.row.writer).or_default().insert(segment);
        self.losses.look_at(segment, &held.row);
        self.held.insert(segment, held);
    }

    pub(crate) fn remove(&mut self, segment: SegmentId) {
        let Some(held) = self.held.remove(&segment) else { return };
        if let Some(of) = self.of.get_mut(&held.row.writer) {
            of.remove(&segment);
            if of.is_empty() {
                self.of.remove(&held.row.writer);
            }
        }
        self.sealed_since.remove(&segment);
        self.orphaned.remove(&segment);
        self.losses.forget(segment);
        self.doubtful.remove(&segment);
    }

    /// The numbers of so many segments of a directory, as far as they are left of its run; the rest is for the caller to take.
    pub(crate) fn next_numbers(&mut self, directory: Ino, count: u64) -> Vec<SegmentId> {
        let Some((next, end)) = self.numbers.get_mut(&directory) else { return Vec::new() };
        let upto = (*next + count).min(*end);
        let numbers = (*next..upto).map(SegmentId).collect();
        *next = upto;
        numbers
    }

    /// A directory's next numbers are those from `next` to below `end`.
    pub(crate) fn has_numbers(&mut self, directory: Ino, next: u64, end: u64) {
        if self.numbers.len() >= RUNS_MAX {
            // What is left of these is never used.
            self.numbers.clear();
        }
        self.numbers.insert(directory, (next, end));
    }
}

impl Core {
    /// Puts the row of a segment, as it is now, into the batch that collects.
    pub(crate) fn put_set(&mut self, segment: SegmentId) {
        let value = self.sets.get(segment).map(Held::encode);
        self.sets_in = self.put(&Key::Set(segment), value);
    }

    /// Changes the row of a segment, where `change` says how. Returns whether it did.
    pub(crate) fn change_set(
        &mut self,
        segment: SegmentId,
        change: impl FnOnce(&SetRow) -> Option<SetRow>,
    ) -> bool {
        let Some(held) = self.sets.held.get_mut(&segment) else { return false };
        let Some(row) = change(&held.row) else { return false };
        let sealed = |row: &SetRow| matches!(row.state, SetState::Sealed { .. });
        if !sealed(&row) || !sealed(&held.row) {
            self.sets.sealed_since.remove(&segment);
        }
        if row.state != SetState::Open {
            self.sets.orphaned.remove(&segment);
        }
        held.row = row;
        self.sets.doubtful.insert(segment);
        self.sets.losses.look_at(segment, &held.row);
        self.put_set(segment);
        true
    }

    /// Takes the row of a segment away.
    pub(crate) fn forget_set(&mut self, segment: SegmentId) {
        self.sets.remove(segment);
        self.put_set(segment);
    }

    /// A session ends, in the batch that collects: no request of it is to come that could name its segments. What is open is taken from it; how far it goes is
    /// asked of the members once that is committed.
    pub(crate) fn end_sets(&mut self, session: SessionId) {
        let segments: Vec<SegmentId> = self.sets.of.get(&session).into_iter().flatten().copied().collect();
        for segment in segments {
            self.change_set(segment, |row| {
                let row = row.fenced().unwrap_or_else(|| row.clone());
                Some(SetRow { settled: true, ..row })
            });
            if self.sets.row(segment).is_some_and(|row| row.state == SetState::Open) {
                self.sets.orphaned.insert(segment, self.open);
            }
        }
    }

    /// Sessions that have ended, requests of which are still being carried out: these may name segments that are settled by now.
    pub(crate) fn ending_writers(&self) -> FxHashSet<SessionId> {
        let asking = self.requests.values().map(|pending| pending.request.session);
        asking.filter(|session| !self.sessions.lives(*session)).collect()
    }

    /// The segments of sessions that ended with a former owner, or before it was done with them.
    pub(crate) fn take_up_sets(&mut self) {
        let writers: Vec<SessionId> = self.sets.of.keys().copied().collect();
        for writer in writers {
            if !self.sessions.lives(writer) {
                self.end_sets(writer);
            }
        }
        self.sets.doubtful = self.sets.held.keys().copied().collect();
    }
}
