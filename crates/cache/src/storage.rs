use std::{io, ops::Range};

use bytes::Bytes;

use crate::{
    CHUNK_BYTES,
    header::{ChunkHeader, Grains},
    index::Found,
    key::Object,
    memory::Memory,
    slabs::{SLAB_SLOTS, Slabs},
};

/// Chunks of one object that follow each other there and lie in slots that follow each other too, in one slab.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub object: Object,
    /// Index of the first chunk.
    pub first: u32,
    pub found: Vec<Found>,
}

impl Run {
    pub(crate) fn chunks(&self) -> Range<u32> {
        self.first..self.first + self.found.len() as u32
    }

    /// Slot of the first chunk.
    pub(crate) fn slot(&self) -> u32 {
        self.found.first().map_or(0, |found| found.slot)
    }
}

/// Some chunks of a run that could not be read back.
#[derive(Debug)]
pub(crate) struct Fault {
    pub chunks: Vec<u32>,
    /// `None` if the bytes came, but do not check.
    pub source: Option<io::Error>,
}

/// A piece of what was asked for, and where in the object it begins.
pub(crate) struct Piece {
    pub at: u64,
    pub bytes: Bytes,
}

/// Where the payloads are.
pub(crate) enum Storage {
    Slabs(Slabs),
    Memory(Memory),
}

impl Storage {
    /// Writes `part` of a chunk, from its byte `at` on, to a reserved slot: payload first, header second. `older` says what the slot has of the
    /// same chunk already. Returns what it has then.
    pub(crate) fn write(
        &self,
        slot: u32,
        header: &ChunkHeader,
        (at, part): (u32, &[u8]),
        older: Grains,
    ) -> io::Result<Grains> {
        match self {
            Storage::Slabs(slabs) => {
                let same = |found: &ChunkHeader| found.key == header.key && found.len == header.len;
                let older = if older == 0 { None } else { slabs.header(slot)?.filter(same) };
                let joined = older.map_or(*header, |older| header.joined(&older));
                slabs.write(slot, &joined, at, part)?;
                Ok(joined.present)
            }
            Storage::Memory(memory) => {
                memory.write(slot, header.len, at, part);
                Ok(header.present | older)
            }
        }
    }

    /// Makes a reserved slot empty, also for the next opening.
    pub(crate) fn erase(&self, slot: u32) -> io::Result<()> {
        match self {
            Storage::Slabs(slabs) => slabs.erase(slot),
            Storage::Memory(memory) => {
                memory.erase(slot);
                Ok(())
            }
        }
    }

    /// The bytes `range` (of the object) of a run, verified. The slots may be used anew at the same time: what comes is
    /// worth something only if the index says afterwards that the run is unchanged.
    pub(crate) fn read(&self, run: &Run, range: &Range<u64>) -> Result<Vec<Piece>, Fault> {
        let bytes = run.object.bytes(&run.chunks());
        let range = range.start.max(bytes.start)..range.end.min(bytes.end);
        match self {
            Storage::Slabs(slabs) => {
                slabs.read(run, &range).map(|bytes| vec![Piece { at: range.start, bytes }])
            }
            Storage::Memory(memory) => memory.read(run, &range),
        }
    }

    /// Whether a read of one run can go on from `slot` to the next slot.
    pub(crate) fn adjoin(slot: u32, next: u32) -> bool {
        slot.checked_add(1) == Some(next) && !next.is_multiple_of(SLAB_SLOTS)
    }
}

/// Where in chunk `index` the part of `range` that lies in it begins and ends.
pub(crate) fn part(index: u32, range: &Range<u64>) -> Range<usize> {
    let start = u64::from(index) * CHUNK_BYTES;
    let clip = |at: u64| at.saturating_sub(start).min(CHUNK_BYTES) as usize;
    clip(range.start)..clip(range.end)
}
