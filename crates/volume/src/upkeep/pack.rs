//! Moving data into new segments: what sealing the journal, compaction and the joining of a block's extents have in common.

use bytes::Bytes;
use forebay_data::{PackedWriter, ReadError, SegmentSource};
use forebay_format::{
    footer::RunEntry,
    row::{Extent, SegmentKind},
    run::{self, EncodedRun, RunEncoder, StoredRun, Trial},
};
use forebay_meta::{Candidate, Moved, PlannedRow};
use forebay_types::SegmentId;

use super::{gather::Gather, give_way::Steps};
use crate::{Volume, error::VolumeError};

/// Most bytes of a packed segment, so that each can be an object by itself: on a directory store it is then published by link.
const SEGMENT_MAX: u64 = 64 << 20;
/// Bytes that the heads of runs and a footer add to a segment at most, where files are small.
const ADDED_MAX: u64 = 2 << 20;
/// Blocks whose rows are changed by one record.
const BLOCKS_A_RECORD: usize = 64;
/// Extents of one block above which the whole block is rewritten when any of it is moved.
const EXTENTS_MAX: usize = 64;
/// Raw bytes of one run that is made of several extents.
const RUN_MAX: u32 = 1 << 20;

/// What a move did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packed {
    /// Raw bytes that were copied.
    pub(super) bytes: u64,
    /// Blocks that could not be read, and stay where they are.
    pub(super) unreadable: u64,
}

/// A new segment on its way, and the moves that it is for.
struct Packer<'a> {
    volume: &'a Volume,
    /// Segments that are still to be begun, and the bytes of one: equal parts of what is to be moved.
    parts: u64,
    part_len: u64,
    open: Option<(SegmentId, PackedWriter)>,
    moves: Vec<(Candidate, Vec<Moved>)>,
    packed: Packed,
    buffers: Buffers,
}

/// What one run after the other is read and encoded with.
#[derive(Default)]
struct Buffers {
    raw: Vec<u8>,
    gather: Gather,
    encoder: RunEncoder,
}

/// A run in its new place: segment and offset, raw length, and what an extent row says of it.
struct Placed {
    segment: SegmentId,
    run_offset: u64,
    run_len: u32,
    about: EncodedRun,
}

impl Volume {
    /// Moves what `candidates` have in segments for which `from` is true into new segments. It is about `bytes` raw bytes: they are divided
    /// equally among as few segments as have room for them. Ends after the block at which `over` says so.
    pub(super) fn move_out(
        &self,
        candidates: &[Candidate],
        from: &dyn Fn(SegmentId) -> bool,
        bytes: u64,
        over: &dyn Fn() -> bool,
    ) -> Result<Packed, VolumeError> {
        let parts = bytes.div_ceil(self.segment_room() - ADDED_MAX).max(1);
        let mut packer = Packer {
            volume: self,
            parts,
            part_len: bytes / parts,
            open: None,
            moves: Vec::new(),
            packed: Packed::default(),
            buffers: Buffers::default(),
        };
        let mut steps = Steps::begin(&self.upkeep.give_way);
        for candidate in candidates {
            if over() {
                break;
            }
            let result = packer.add(*candidate, from);
            if result.is_err() {
                packer.abandon();
            }
            result?;
            steps.rest(&self.upkeep.give_way, self.upkeep.backlog(), over);
        }
        let result = packer.flush();
        if result.is_err() {
            packer.abandon();
        }
        result?;
        Ok(packer.packed)
    }

    /// Bytes of a packed segment to which another block may be added.
    fn segment_room(&self) -> u64 {
        SEGMENT_MAX - u64::from(self.config.block_size)
    }
}

impl Packer<'_> {
    fn add(&mut self, candidate: Candidate, from: &dyn Fn(SegmentId) -> bool) -> Result<(), VolumeError> {
        let mut plan = self.volume.ns.plan_move(candidate, &|_| true)?;
        let many = plan.rows.iter().filter(|row| row.at_head).count() > EXTENTS_MAX;
        if !plan.rows.iter().any(|row| from(row.extent.segment)) {
            return Ok(());
        }
        if !many {
            plan.rows.retain(|row| from(row.extent.segment));
        }
        let mut moved = Vec::with_capacity(plan.rows.len());
        for group in groups(&plan.rows) {
            match self.copy(candidate, group, &mut moved) {
                Ok(()) => {}
                Err(VolumeError::Read(_)) if group.iter().any(|row| row.in_journal) => {
                    self.quarantine(candidate, group, &mut moved)?
                }
                Err(VolumeError::Read(error)) => self.leave(candidate, &error),
                Err(error) => return Err(error),
            }
        }
        if !moved.is_empty() {
            self.moves.push((candidate, moved));
        }
        let len = self.open.as_ref().map_or(0, |(_, writer)| writer.len());
        // The last part takes what is left.
        let is_whole = self.parts > 1 && len >= self.part_len;
        if is_whole || len >= self.volume.segment_room() {
            self.parts = self.parts.saturating_sub(1);
            self.flush()?;
        }
        Ok(())
    }

    fn leave(&mut self, candidate: Candidate, error: &ReadError) {
        self.packed.unreadable += 1;
        let Candidate { ino, block, .. } = candidate;
        tracing::error!("inode {ino} block {block}: cannot move its data: {error}");
    }

    /// Copies extents of the journal one by one; those that do not fit their checksums as they are, with the whole run. So they stay as unreadable as
    /// they were, and the file of the journal can go.
    fn quarantine(
        &mut self,
        candidate: Candidate,
        group: &[PlannedRow],
        moved: &mut Vec<Moved>,
    ) -> Result<(), VolumeError> {
        for row in group {
            let error = match self.copy(candidate, std::slice::from_ref(row), moved) {
                Ok(()) => continue,
                Err(VolumeError::Read(error)) => error,
                Err(error) => return Err(error),
            };
            let extent = &row.extent;
            let damaged = matches!(error, ReadError::Corrupt { .. }) && row.in_journal;
            let stored = match damaged {
                true => self.volume.source.read(extent.segment, extent.run_offset, extent.stored_len),
                false => {
                    self.leave(candidate, &error);
                    continue;
                }
            };
            match stored {
                Ok(stored) => {
                    self.keep_as_is(candidate, row, &stored, moved)?;
                    let Candidate { ino, block, .. } = candidate;
                    tracing::error!(
                        "inode {ino} block {block}: its data is moved as it is, damaged: {error}"
                    );
                }
                Err(error) => self.leave(candidate, &ReadError::from(error)),
            }
        }
        Ok(())
    }

    fn keep_as_is(
        &mut self,
        candidate: Candidate,
        row: &PlannedRow,
        stored: &[u8],
        moved: &mut Vec<Moved>,
    ) -> Result<(), VolumeError> {
        let extent = row.extent;
        let entry = RunEntry {
            subvolume: candidate.subvolume,
            generation: row.generation,
            ino: candidate.ino,
            block: candidate.block,
            offset: row.offset.saturating_sub(extent.skip),
            run_len: extent.run_len,
            run_offset: 0,
            stored_len: extent.stored_len,
            form: extent.form,
            check: extent.check,
        };
        let (segment, run_offset) = self.write(&entry, [stored, &[]])?;
        self.packed.bytes += u64::from(extent.run_len);
        let extent = Extent { segment, run_offset, ..extent };
        moved.push(Moved { row: row.clone(), extent });
        Ok(())
    }

    /// Copies extents that follow each other as one run.
    fn copy(
        &mut self,
        candidate: Candidate,
        group: &[PlannedRow],
        moved: &mut Vec<Moved>,
    ) -> Result<(), VolumeError> {
        let mut buffers = std::mem::take(&mut self.buffers);
        let placed = self.copy_with(&mut buffers, candidate, group);
        self.buffers = buffers;
        let Some(Placed { segment, run_offset, run_len, about }) = placed? else { return Ok(()) };
        let EncodedRun { stored_len, form, check } = about;
        let mut skip = 0;
        for row in group {
            let len = row.extent.len;
            let extent = Extent { len, segment, run_offset, stored_len, run_len, skip, form, check };
            skip += len;
            moved.push(Moved { row: row.clone(), extent });
        }
        self.packed.bytes += u64::from(run_len);
        Ok(())
    }

    fn copy_with(
        &mut self,
        buffers: &mut Buffers,
        candidate: Candidate,
        group: &[PlannedRow],
    ) -> Result<Option<Placed>, VolumeError> {
        let [first, ..] = group else { return Ok(None) };
        let volume = self.volume;
        let whole = group.len() == 1 && first.extent.skip == 0 && first.extent.len == first.extent.run_len;
        let copied;
        let (run_len, run) = if whole && !first.in_journal {
            copied = stored_run(volume, &first.extent)?;
            let Extent { run_len, stored_len, form, check, .. } = first.extent;
            (run_len, StoredRun { about: EncodedRun { stored_len, form, check }, parts: [&copied, &[]] })
        } else {
            let Buffers { raw, gather, encoder } = buffers;
            raw.clear();
            for row in group {
                gather.add(&volume.reader, &row.extent, raw)?;
            }
            let sealer = volume.sealer.as_deref();
            let run = encoder.encode(raw, volume.config.compression, sealer, &mut Trial::default())?;
            (raw.len() as u32, run)
        };
        let entry = RunEntry {
            subvolume: candidate.subvolume,
            generation: first.generation,
            ino: candidate.ino,
            block: candidate.block,
            offset: first.offset,
            run_len,
            run_offset: 0,
            stored_len: run.about.stored_len,
            form: run.about.form,
            check: run.about.check,
        };
        let (segment, run_offset) = self.write(&entry, run.parts)?;
        Ok(Some(Placed { segment, run_offset, run_len, about: run.about }))
    }

    fn write(&mut self, entry: &RunEntry, run: [&[u8]; 2]) -> Result<(SegmentId, u64), VolumeError> {
        let (segment, writer) = match &mut self.open {
            Some((segment, writer)) => (*segment, writer),
            none => {
                let segment = self.volume.ns.new_segment();
                let staging = self.volume.paths.staging();
                let writer = PackedWriter::create(&staging, self.volume.config.id, segment)?;
                self.volume.upkeep.filling.lock().insert(segment);
                let (_, writer) = none.insert((segment, writer));
                (segment, writer)
            }
        };
        Ok((segment, writer.add(entry, run)?))
    }

    /// Finishes the segment, and only then lets rows refer to it.
    fn flush(&mut self) -> Result<(), VolumeError> {
        let Some((segment, writer)) = self.open.take() else { return Ok(()) };
        let result = self.publish(segment, writer);
        self.volume.upkeep.filling.lock().remove(&segment);
        result
    }

    fn publish(&mut self, segment: SegmentId, writer: PackedWriter) -> Result<(), VolumeError> {
        let volume = self.volume;
        let moves = std::mem::take(&mut self.moves);
        let sealed = writer.finish()?;
        volume.streams.adopt(&sealed)?;
        if let Err(error) = volume.ns.segment_sealed(segment, SegmentKind::Packed, sealed.len, sealed.raw) {
            volume.streams.remove(segment)?;
            return Err(error.into());
        }
        for same in moves.chunk_by(|a, b| a.0.subvolume == b.0.subvolume) {
            let subvolume = same.first().map_or(volume.subvolume, |(candidate, _)| candidate.subvolume);
            for part in same.chunks(BLOCKS_A_RECORD) {
                let part: Vec<_> =
                    part.iter().map(|(candidate, moved)| (*candidate, moved.as_slice())).collect();
                volume.ns.finish_moves(subvolume, &part, segment)?;
            }
        }
        Ok(())
    }

    fn abandon(&mut self) {
        if let Some((segment, _)) = self.open.take() {
            self.volume.upkeep.filling.lock().remove(&segment);
        }
        self.moves.clear();
    }
}

/// A run as it is stored, checked.
fn stored_run(volume: &Volume, extent: &Extent) -> Result<Bytes, VolumeError> {
    let Extent { segment, run_offset: offset, stored_len, form, run_len, check, .. } = *extent;
    let bytes = volume.source.read(segment, offset, stored_len).map_err(ReadError::from)?;
    run::verify(&bytes, form, run_len, check).map_err(|source| ReadError::Corrupt {
        segment,
        offset,
        source,
    })?;
    Ok(bytes)
}

/// Cuts rows into groups that become one run each: those of one generation that follow each other without a gap.
fn groups(rows: &[PlannedRow]) -> Vec<&[PlannedRow]> {
    let mut groups = Vec::new();
    let mut start = 0;
    let mut len = 0;
    for (index, row) in rows.iter().enumerate() {
        let joins = index > start
            && rows[index - 1].generation == row.generation
            && rows[index - 1].offset + rows[index - 1].extent.len == row.offset
            && len + row.extent.len <= RUN_MAX;
        if joins {
            len += row.extent.len;
        } else {
            if index > start {
                groups.push(&rows[start..index]);
            }
            start = index;
            len = row.extent.len;
        }
    }
    if start < rows.len() {
        groups.push(&rows[start..]);
    }
    groups
}
