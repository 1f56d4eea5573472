//! Moving data into new segments: what sealing the journal, compaction and the joining of a block's extents have in common.

use forebay_data::{PackedWriter, SegmentSource};
use forebay_format::{footer::RunEntry, row::SegmentKind, run};
use forebay_meta::{Candidate, Moved, PlannedRow};
use forebay_types::SegmentId;

use crate::{Volume, error::VolumeError};

/// Bytes of a packed segment at which the next is begun.
const SEGMENT_LEN: u64 = 32 << 20;
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
    journal: bool,
    open: Option<(SegmentId, PackedWriter)>,
    moves: Vec<(Candidate, Vec<Moved>)>,
    packed: Packed,
}

impl Volume {
    /// Moves what `candidates` have in segments for which `from` is true into new segments. `journal` says that these are files of the journal,
    /// whose runs are not compressed and not sealed.
    pub(super) fn move_out(
        &self,
        candidates: &[Candidate],
        from: &dyn Fn(SegmentId) -> bool,
        journal: bool,
    ) -> Result<Packed, VolumeError> {
        let mut packer =
            Packer { volume: self, journal, open: None, moves: Vec::new(), packed: Packed::default() };
        for candidate in candidates {
            if self.upkeep.stopping() {
                break;
            }
            let result = packer.add(*candidate, from);
            if result.is_err() {
                packer.abandon();
            }
            result?;
        }
        let result = packer.flush();
        if result.is_err() {
            packer.abandon();
        }
        result?;
        Ok(packer.packed)
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
                Err(VolumeError::Read(error)) => {
                    self.packed.unreadable += 1;
                    tracing::error!(
                        "inode {} block {}: cannot move its data: {error}",
                        candidate.ino,
                        candidate.block
                    );
                }
                Err(error) => return Err(error),
            }
        }
        if !moved.is_empty() {
            self.moves.push((candidate, moved));
        }
        if self.open.as_ref().is_some_and(|(_, writer)| writer.len() >= SEGMENT_LEN) {
            self.flush()?;
        }
        Ok(())
    }

    /// Copies extents that follow each other as one run.
    fn copy(
        &mut self,
        candidate: Candidate,
        group: &[PlannedRow],
        moved: &mut Vec<Moved>,
    ) -> Result<(), VolumeError> {
        let [first, ..] = group else { return Ok(()) };
        let volume = self.volume;
        let whole = group.len() == 1 && first.extent.skip == 0 && first.extent.len == first.extent.run_len;
        let mut stored = Vec::new();
        let (form, check, run_len);
        if whole && !volume.ns.is_journal(first.extent.segment) {
            let extent = &first.extent;
            let bytes = volume
                .source
                .read(extent.segment, extent.run_offset, extent.stored_len)
                .map_err(forebay_data::ReadError::from)?;
            run::verify(&bytes, extent.form, extent.run_len, extent.check).map_err(|source| {
                let (segment, offset) = (extent.segment, extent.run_offset);
                VolumeError::Read(forebay_data::ReadError::Corrupt { segment, offset, source })
            })?;
            stored.extend_from_slice(&bytes);
            (form, check, run_len) = (extent.form, extent.check, extent.run_len);
        } else {
            let mut raw = Vec::new();
            for row in group {
                raw.extend_from_slice(&volume.extent_bytes(&row.extent)?);
            }
            let sealer = volume.sealer.as_deref();
            let encoded = run::encode(&raw, volume.config.compression, sealer, &mut stored)?;
            (form, check, run_len) = (encoded.form, encoded.check, raw.len() as u32);
        }
        let entry = RunEntry {
            subvolume: candidate.subvolume,
            generation: first.generation,
            ino: candidate.ino,
            block: candidate.block,
            offset: first.offset,
            run_len,
            run_offset: 0,
            stored_len: stored.len() as u32,
            form,
            check,
        };
        let (segment, run_offset) = self.write(&entry, &stored)?;
        let mut skip = 0;
        for row in group {
            let extent = forebay_format::row::Extent {
                len: row.extent.len,
                segment,
                run_offset,
                stored_len: stored.len() as u32,
                run_len,
                skip,
                form,
                check,
            };
            skip += row.extent.len;
            moved.push(Moved { row: row.clone(), extent });
        }
        self.packed.bytes += u64::from(run_len);
        Ok(())
    }

    fn write(&mut self, entry: &RunEntry, stored: &[u8]) -> Result<(SegmentId, u64), VolumeError> {
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
        Ok((segment, writer.add(entry, stored)?))
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
        if self.journal {
            tracing::debug!("sealing was interrupted; the journal keeps what it has");
        }
    }
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
