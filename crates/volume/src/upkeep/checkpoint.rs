//! Checkpoints, and what may go once one is stored.

use std::time::{Duration, Instant};

use forebay_format::row::{ObjectRef, SegmentKind, SegmentRow, SegmentState};
use forebay_types::SegmentId;
use rustc_hash::FxHashSet;

use crate::{Volume, error::VolumeError, remote::Held};

/// Bytes of pending rows that ask for a checkpoint at once.
const PENDING_MAX: usize = 24 << 20;
/// How long rows wait for a checkpoint at most.
const INTERVAL: Duration = Duration::from_secs(5);

/// What the next checkpoint will no longer refer to, listed before it is taken.
#[derive(Debug, Default)]
pub(crate) struct Doomed {
    /// Segments without live bytes, to which none can come.
    dead: Vec<SegmentId>,
    /// Segments that the store has and that are still here.
    stored: Vec<SegmentId>,
    garbage: Vec<ObjectRef>,
    /// Chunks in the bucket that no later checkpoint needs.
    chunks: Vec<String>,
}

impl Volume {
    pub(super) fn checkpoint_round(&self) -> Result<(), VolumeError> {
        let cleaned = self.clean_until_due();
        if self.checkpoint_is_due() {
            self.checkpoint_now()?;
        }
        if !cleaned? {
            self.upkeep.wake();
        }
        Ok(())
    }

    /// Whether rows have waited long enough for a checkpoint, or are many.
    pub(super) fn checkpoint_is_due(&self) -> bool {
        let due = self.upkeep.last_checkpoint.lock().is_none_or(|last| last.elapsed() >= INTERVAL);
        due || self.ns.pending_bytes() >= PENDING_MAX
    }

    /// Hands all pending rows to the engine, durably, and removes what nothing refers to any more.
    ///
    /// # Errors
    /// [`VolumeError`]; the rows stay in the journal.
    pub fn checkpoint_now(&self) -> Result<(), VolumeError> {
        let _turn = self.upkeep.checkpoint_turn.lock();
        let mut doomed = self.doomed()?;
        let applied = self.ns.applied_sequence();
        if let Some(checkpoint) = self.ns.checkpoint()? {
            self.streams.sync()?;
            self.journal.sync_behind(checkpoint.sequence())?;
            if let Some(remote) = &self.remote {
                remote.queue(applied, &checkpoint)?;
            }
            checkpoint.store()?;
        }
        *self.upkeep.last_checkpoint.lock() = Some(Instant::now());
        match &self.remote {
            None => self.remove(&doomed),
            Some(remote) => {
                let (sequence, chunks) = (self.ns.applied_sequence(), std::mem::take(&mut doomed.chunks));
                remote.hold(Held { sequence, doomed, chunks });
                Ok(())
            }
        }
    }

    fn doomed(&self) -> Result<Doomed, VolumeError> {
        let _quiet = self.upkeep.nobody_appending();
        let current = self.current_journal_file();
        let here: FxHashSet<_> = self.streams.segments().into_iter().collect();
        let mut doomed = Doomed { garbage: self.ns.garbage()?, ..Doomed::default() };
        let dead = self.ns.dead_segments();
        // After the rows: one that was still being filled when they were read is still among these, or its live bytes have come.
        let filling = self.upkeep.filling.lock().clone();
        for (id, row) in dead {
            if !filling.contains(&id) && is_finished(&row, Some(id) == current) {
                doomed.dead.push(id);
            }
        }
        let passed_on = |row: &SegmentRow| row.live > 0 && row.state == SegmentState::Stored;
        let kept = self.ns.segments_of(&here.iter().copied().collect::<Vec<_>>());
        doomed.stored.extend(kept.iter().filter(|(_, row)| passed_on(row)).map(|(id, _)| *id));
        if let Some(remote) = &self.remote {
            let files: FxHashSet<_> = self.journal.files().iter().map(|file| file.segment).collect();
            let dead: FxHashSet<_> = doomed.dead.iter().copied().collect();
            let mut in_order: Vec<_> = self.journal.files();
            in_order.sort_by_key(|file| file.first);
            let oldest =
                in_order.iter().find(|file| self.ns.segment(file.segment).is_some_and(|row| row.live > 0));
            let needed_from = oldest.map(|file| file.first);
            let needed = |segment: SegmentId| {
                let file = in_order.iter().find(|file| file.segment == segment);
                file.is_some_and(|file| needed_from.is_some_and(|from| file.first > from))
            };
            doomed.chunks = remote.settled_chunks(|segment| match self.ns.segment(segment) {
                _ if self.current_journal_file().is_none_or(|current| segment == current) => false,
                // A later file may be the only one that says which blocks refer to an earlier one that has data.
                _ if needed(segment) => false,
                Some(row) => row.state == SegmentState::Stored || dead.contains(&segment),
                None => files.contains(&segment) || !here.contains(&segment),
            });
        }
        Ok(doomed)
    }

    pub(super) fn current_journal_file(&self) -> Option<SegmentId> {
        self.journal.files().iter().max_by_key(|file| file.first).map(|file| file.segment)
    }

    pub(crate) fn remove(&self, doomed: &Doomed) -> Result<(), VolumeError> {
        let dead = if doomed.dead.is_empty() { Vec::new() } else { self.ns.forget_dead(&doomed.dead)? };
        for (id, row) in &dead {
            self.source.forget(*id);
            if row.kind != SegmentKind::Journal && self.streams.segments().contains(id) {
                self.streams.remove(*id)?;
            }
        }
        let here: FxHashSet<_> = self.streams.segments().into_iter().collect();
        for id in doomed.stored.iter().filter(|id| here.contains(id)) {
            self.streams.remove(*id)?;
        }
        self.remove_journal_files()?;
        if !doomed.garbage.is_empty() {
            self.upkeep.deletable.lock().extend(doomed.garbage.iter().copied());
            self.upkeep.wake();
        }
        Ok(())
    }

    /// Removes files of the journal whose records the engine has (and, with a store elsewhere, the bucket's rows too), and whose data nothing refers to. A file without a row has no data. One
    /// that cannot be emptied holds up no other: should a later file have been the only one to say which blocks refer to it, sealing finds these in the rows.
    fn remove_journal_files(&self) -> Result<(), VolumeError> {
        let applied = match &self.remote {
            Some(remote) => self.ns.applied_sequence().min(remote.covered()),
            None => self.ns.applied_sequence(),
        };
        let current = self.current_journal_file();
        let mut files = self.journal.files();
        files.sort_by_key(|file| file.first);
        for file in files {
            let passed = file.last <= applied && Some(file.segment) != current;
            if passed && self.ns.segment(file.segment).is_none() {
                self.journal.remove(file.segment)?;
            }
        }
        Ok(())
    }
}

/// Whether no live bytes can come to a segment any more.
fn is_finished(row: &SegmentRow, current: bool) -> bool {
    match row.kind {
        SegmentKind::Journal => !current,
        SegmentKind::Stream | SegmentKind::Packed => row.state != SegmentState::Open,
    }
}
