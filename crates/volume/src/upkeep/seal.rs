//! Sealing: what the journal has becomes packed segments, and streams get their footers.

use std::{collections::BTreeMap, time::Instant};

use forebay_data::DataError;
use forebay_format::row::{SegmentKind, SegmentState};
use forebay_types::SegmentId;
use rustc_hash::FxHashSet;

use crate::{Volume, error::VolumeError};

/// Bytes in use in the journal at which it is sealed: two segments, each an object of its own.
pub(super) const JOURNAL_DATA_MAX: u64 = 112 << 20;
/// How long data for a store elsewhere stays in the journal.
const JOURNAL_AGE_S: u64 = 30;
/// Bytes at which a stream is sealed although it could take more.
const STREAM_MIN: u64 = 16 << 20;
/// Rounds without an append after which a stream is sealed: a minute.
const STREAM_IDLE_ROUNDS: u32 = 120;

impl Volume {
    pub(super) fn seal_round(&self) -> Result<(), VolumeError> {
        {
            let _turn = self.upkeep.seal_turn.lock();
            self.seal_streams(STREAM_MIN, STREAM_IDLE_ROUNDS)?;
            if self.journal_is_due() {
                self.seal_journal()?;
            }
        }
        self.compact_round()
    }

    /// Seals everything: afterwards the journal's data and all streams are segments that can be stored.
    ///
    /// # Errors
    /// [`VolumeError`]; what was not sealed stays where it is.
    pub fn seal_all(&self) -> Result<(), VolumeError> {
        let _hurry = self.upkeep.give_way.hurry();
        let _turn = self.upkeep.seal_turn.lock();
        self.seal_streams(0, 0)?;
        self.seal_journal()
    }

    /// Bytes in use in the journal, but for those that sealing cannot move.
    fn journal_bytes(&self) -> u64 {
        let stuck = self.upkeep.stuck.lock();
        let movable = |(id, live): &(SegmentId, u64)| stuck.get(id) != Some(&(*live, true));
        self.journal_live().into_iter().filter(movable).map(|(_, live)| live).sum()
    }

    /// The files of the journal, and their bytes in use.
    fn journal_live(&self) -> Vec<(SegmentId, u64)> {
        let files: Vec<_> = self.journal.files().iter().map(|file| file.segment).collect();
        self.ns.segments_of(&files).into_iter().map(|(id, row)| (id, row.live)).collect()
    }

    fn journal_is_due(&self) -> bool {
        let bytes = self.journal_bytes();
        self.upkeep.set_backlog(bytes);
        let mut since = self.upkeep.unsealed_since.lock();
        if bytes == 0 {
            *since = None;
            return false;
        }
        let age = since.get_or_insert_with(Instant::now).elapsed().as_secs();
        let elsewhere = self.config.store.is_some();
        bytes >= JOURNAL_DATA_MAX || (elsewhere && age >= JOURNAL_AGE_S)
    }

    fn seal_streams(&self, min_len: u64, idle_rounds: u32) -> Result<(), VolumeError> {
        for segment in self.streams.sealable(min_len, idle_rounds) {
            // Writers that have a run in it but no record yet come first, so that the row is there.
            drop(self.upkeep.nobody_appending());
            let sealed = self.streams.seal(segment)?;
            self.ns.segment_sealed(segment, SegmentKind::Stream, sealed.len, sealed.raw)?;
        }
        // Those that got their footer when there was no room for the record of it.
        for (id, row) in self.ns.unstored_segments() {
            if row.kind == SegmentKind::Stream
                && row.state == SegmentState::Open
                && self.streams.is_sealed(id)
            {
                let sealed = self.streams.seal(id)?;
                self.ns.segment_sealed(id, SegmentKind::Stream, sealed.len, sealed.raw)?;
            }
        }
        Ok(())
    }

    fn seal_journal(&self) -> Result<(), VolumeError> {
        *self.upkeep.unsealed_since.lock() = None;
        if self.journal_live().iter().all(|(_, live)| *live == 0) {
            self.upkeep.set_backlog(0);
            return Ok(());
        }
        match self.journal.rotate() {
            // The file that is being written stays for a time when there is room for another.
            Ok(()) | Err(DataError::NoSpace { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let current = self.current_journal_file();
        let files: FxHashSet<SegmentId> =
            self.journal.files().iter().map(|file| file.segment).filter(|id| Some(*id) != current).collect();
        let mut candidates: Vec<_> = files.iter().flat_map(|id| self.ns.journal_candidates(*id)).collect();
        candidates.sort_unstable();
        candidates.dedup();
        let bytes = self.ns.segments_of(&files.iter().copied().collect::<Vec<_>>());
        let bytes = bytes.iter().map(|(_, row)| row.live).sum();
        let packed = self.move_out(&candidates, &|segment| files.contains(&segment), bytes)?;
        tracing::debug!("sealed {} bytes of {} blocks", packed.bytes, candidates.len());
        self.seal_rest(&files)?;
        self.upkeep.set_backlog(self.journal_bytes());
        self.upkeep.wake();
        Ok(())
    }

    /// Moves what is left of files although all blocks that are known to refer to them were moved twice: the record that told of a block is
    /// damaged, or was in a later file that is gone. All rows are looked through for such blocks, once for what a file then has left.
    fn seal_rest(&self, files: &FxHashSet<SegmentId>) -> Result<(), VolumeError> {
        let live = |id: &SegmentId| self.ns.segment(*id).map_or(0, |row| row.live);
        let before = std::mem::take(&mut *self.upkeep.stuck.lock());
        let left = files.iter().map(|id| (*id, live(id))).filter(|(_, live)| *live > 0);
        let mut stuck: BTreeMap<SegmentId, (u64, bool)> =
            left.map(|(id, live)| (id, (live, before.get(&id) == Some(&(live, true))))).collect();
        let wanted: FxHashSet<SegmentId> = stuck
            .iter()
            .filter(|(id, (live, searched))| !searched && before.get(id) == Some(&(*live, false)))
            .map(|(id, _)| *id)
            .collect();
        if !wanted.is_empty() {
            let candidates = self.ns.blocks_in(&wanted)?;
            let bytes = wanted.iter().map(&live).sum();
            self.move_out(&candidates, &|segment| wanted.contains(&segment), bytes)?;
            for id in &wanted {
                stuck.insert(*id, (live(id), !self.upkeep.stopping()));
            }
        }
        *self.upkeep.stuck.lock() = stuck;
        Ok(())
    }
}
