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
                self.seal_journal(&|| self.upkeep.stopping())?;
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
        self.seal_journal(&|| self.upkeep.stopping())
    }

    /// The same of what is there now, as far as it goes until `deadline`: whoever has the turn, and the store that it may wait for, are not waited
    /// for any longer.
    ///
    /// # Errors
    /// [`VolumeError`]; what was not sealed stays where it is.
    pub(super) fn seal_until(&self, deadline: Instant) -> Result<(), VolumeError> {
        let _hurry = self.upkeep.give_way.hurry();
        let Some(_turn) = self.upkeep.seal_turn.try_lock_until(deadline) else { return Ok(()) };
        self.seal_streams(0, 0)?;
        self.seal_journal(&|| Instant::now() >= deadline || self.upkeep.stopping())
    }

    /// Bytes in use in the journal, but for those that sealing cannot move.
    fn journal_bytes(&self) -> u64 {
        let stuck = self.upkeep.stuck.lock();
        let movable = |(id, live): &(SegmentId, u64)| stuck.get(id) != Some(&(*live, true));
        self.journal_live().into_iter().filter(movable).map(|(_, live)| live).sum()
    }

    /// The files of the journal, and their bytes in use.
    pub(super) fn journal_live(&self) -> Vec<(SegmentId, u64)> {
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

    /// Moves what the journal has into segments, up to the block at which `over` says that it is enough.
    fn seal_journal(&self, over: &dyn Fn() -> bool) -> Result<(), VolumeError> {
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
        let packed = self.move_out(&candidates, &|segment| files.contains(&segment), bytes, over)?;
        tracing::debug!("sealed {} bytes of {} blocks", packed.bytes, candidates.len());
        // What is left because it was over is not stuck.
        if !over() {
            self.seal_rest(&files, over)?;
        }
        self.upkeep.set_backlog(self.journal_bytes());
        self.upkeep.wake();
        Ok(())
    }

    /// Moves what is left of files although all blocks that are known to refer to them were moved twice: the record that told of a block is
    /// damaged, or was in a later file that is gone. All rows are looked through for such blocks, once for what a file then has left.
    fn seal_rest(&self, files: &FxHashSet<SegmentId>, over: &dyn Fn() -> bool) -> Result<(), VolumeError> {
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
            self.move_out(&candidates, &|segment| wanted.contains(&segment), bytes, over)?;
            for id in &wanted {
                stuck.insert(*id, (live(id), !over()));
            }
        }
        *self.upkeep.stuck.lock() = stuck;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use forebay_meta::{NewInode, WriteAttr};
    use forebay_types::{FileKind, Ino};

    use super::*;
    use crate::{CreateOptions, OpenOptions, create};

    fn live(volume: &Volume) -> u64 {
        volume.journal_live().into_iter().map(|(_, live)| live).sum()
    }

    /// What is cut short has moved what it says, leaves the rest where it is, and calls none of it stuck.
    #[test]
    fn sealing_ends_where_it_is_told_to_and_goes_on_the_next_time() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volume");
        create(&root, &CreateOptions::default()).unwrap();
        let options = OpenOptions { background: false, ..OpenOptions::default() };
        let volume = Volume::open(&root, &options).unwrap();
        let (target, xattrs) = (Vec::new(), Vec::new());
        let new = NewInode { kind: FileKind::Regular, mode: 0o644, uid: 0, gid: 0, rdev: 0, target, xattrs };
        for name in 0..10u8 {
            let ino = volume.ns.make(volume.subvolume, Ino::ROOT, &[b'a' + name], &new).unwrap().ino;
            volume.write(ino, 0, &[name; 1 << 14], WriteAttr::default()).unwrap();
        }
        assert_eq!(live(&volume), 10 << 14);
        let asked = Cell::new(0);
        let after_four = || asked.replace(asked.get() + 1) >= 4;
        volume.seal_journal(&after_four).unwrap();
        assert_eq!(live(&volume), 6 << 14);
        for _ in 0..2 {
            volume.seal_journal(&|| true).unwrap();
            assert_eq!((live(&volume), volume.upkeep.stuck.lock().len()), (6 << 14, 0));
        }
        volume.seal_all().unwrap();
        assert_eq!(live(&volume), 0);
    }
}
