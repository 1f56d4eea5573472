//! Checkpoints, and what may go once one is stored.

use std::time::{Duration, Instant};

use forebay_format::row::{ObjectRef, SegmentKind, SegmentRow, SegmentState};
use forebay_types::SegmentId;
use rustc_hash::FxHashSet;

use crate::{Volume, error::VolumeError};

/// Bytes of pending rows that ask for a checkpoint at once.
const PENDING_MAX: usize = 24 << 20;
/// How long rows wait for a checkpoint at most.
const INTERVAL: Duration = Duration::from_secs(5);

/// What the next checkpoint will no longer refer to, listed before it is taken.
#[derive(Debug, Default)]
struct Doomed {
    /// Segments without live bytes, to which none can come.
    dead: Vec<SegmentId>,
    /// Segments that the store has and that are still here.
    stored: Vec<SegmentId>,
    garbage: Vec<ObjectRef>,
}

impl Volume {
    pub(super) fn checkpoint_round(&self) -> Result<(), VolumeError> {
        self.purge_orphans()?;
        let due = self.upkeep.last_checkpoint.lock().is_none_or(|last| last.elapsed() >= INTERVAL);
        if due || self.ns.pending_bytes() >= PENDING_MAX {
            self.checkpoint_now()?;
        }
        Ok(())
    }

    pub(crate) fn purge_orphans(&self) -> Result<(), VolumeError> {
        while let Some(ino) = self.upkeep.next_orphan() {
            while !self.ns.purge(self.subvolume, ino)? {
                if self.upkeep.stopping() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Hands all pending rows to the engine, durably, and removes what nothing refers to any more.
    ///
    /// # Errors
    /// [`VolumeError`]; the rows stay in the journal.
    pub fn checkpoint_now(&self) -> Result<(), VolumeError> {
        let _turn = self.upkeep.checkpoint_turn.lock();
        let doomed = self.doomed()?;
        if let Some(checkpoint) = self.ns.checkpoint()? {
            self.streams.sync()?;
            self.journal.sync(checkpoint.sequence())?;
            checkpoint.store()?;
        }
        *self.upkeep.last_checkpoint.lock() = Some(Instant::now());
        self.remove(&doomed)
    }

    fn doomed(&self) -> Result<Doomed, VolumeError> {
        let _quiet = self.upkeep.nobody_appending();
        let filling = self.upkeep.filling.lock().clone();
        let current = self.current_journal_file();
        let here: FxHashSet<_> = self.streams.segments().into_iter().collect();
        let mut doomed = Doomed { garbage: self.ns.garbage()?, ..Doomed::default() };
        for (id, row) in self.ns.segments() {
            if row.live == 0 && !filling.contains(&id) && is_finished(&row, Some(id) == current) {
                doomed.dead.push(id);
            } else if row.state == SegmentState::Stored && here.contains(&id) {
                doomed.stored.push(id);
            }
        }
        Ok(doomed)
    }

    pub(super) fn current_journal_file(&self) -> Option<SegmentId> {
        self.journal.files().iter().max_by_key(|file| file.first).map(|file| file.segment)
    }

    fn remove(&self, doomed: &Doomed) -> Result<(), VolumeError> {
        let dead = if doomed.dead.is_empty() { Vec::new() } else { self.ns.forget_dead(&doomed.dead)? };
        for (id, row) in &dead {
            self.source.forget(*id);
            if row.kind != SegmentKind::Journal && self.streams.segments().contains(id) {
                self.streams.remove(*id)?;
            }
        }
        for id in &doomed.stored {
            self.streams.remove(*id)?;
        }
        self.remove_journal_files()?;
        if !doomed.garbage.is_empty() {
            self.upkeep.deletable.lock().extend(doomed.garbage.iter().copied());
            self.upkeep.wake();
        }
        Ok(())
    }

    /// Removes files of the journal whose records the engine has, and whose data nothing refers to. A file without a row has no data.
    fn remove_journal_files(&self) -> Result<(), VolumeError> {
        let applied = self.ns.applied_sequence();
        let current = self.current_journal_file();
        for file in self.journal.files() {
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
