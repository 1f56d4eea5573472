use std::{io, ops::Range};

use bytes::Bytes;

use crate::{
    CHUNK_BYTES,
    header::{ChunkHeader, Grains, grains},
    index::Found,
    key::{ChunkKey, Object},
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

/// A piece of what was asked for: where in the object it begins, and which part of which buffer it is.
pub(crate) struct Piece {
    pub at: u64,
    pub buffer: Bytes,
    pub part: Range<usize>,
}

impl Piece {
    /// All of a buffer.
    pub(crate) fn whole(at: u64, bytes: Bytes) -> Piece {
        Piece { at, part: 0..bytes.len(), buffer: bytes }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.buffer.slice(self.part.clone())
    }

    /// Adds what follows, if it does so in the same buffer.
    pub(crate) fn add(&mut self, next: &Piece) -> bool {
        let same = self.buffer.as_ptr() == next.buffer.as_ptr() && self.buffer.len() == next.buffer.len();
        let follows = same && self.part.end == next.part.start;
        if follows {
            self.part.end = next.part.end;
        }
        follows
    }
}

/// Pieces in the order in which they follow each other, those that do so in one buffer as one.
pub(crate) fn in_order(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_unstable_by_key(|piece| piece.at);
    pieces.dedup_by(|next, piece| piece.add(next));
    pieces
}

/// All of them as one, copied where they are several.
pub(crate) fn joined(pieces: &[Piece]) -> Bytes {
    if let [piece] = pieces {
        return piece.bytes();
    }
    let mut whole = Vec::with_capacity(pieces.iter().map(|piece| piece.part.len()).sum());
    pieces.iter().for_each(|piece| whole.extend_from_slice(&piece.buffer[piece.part.clone()]));
    Bytes::from(whole)
}

/// What goes to a slot: a part of a chunk of `len` bytes, from its byte `at` (a multiple of a grain) to the end of a grain or of the chunk.
#[derive(Clone, Copy)]
pub(crate) struct Put<'a> {
    pub key: ChunkKey,
    pub len: u32,
    pub at: u32,
    pub part: &'a [u8],
    /// The buffer that the part lies in, where that may be kept.
    pub within: Option<&'a Bytes>,
}

impl Put<'_> {
    /// The grains that it brings.
    pub(crate) fn present(&self) -> Grains {
        grains(&(self.at as usize..self.at as usize + self.part.len()))
    }
}

/// Where the payloads are.
pub(crate) enum Storage {
    Slabs(Slabs),
    Memory(Memory),
}

impl Storage {
    /// Writes to a reserved slot: payload first, header second. `older` says what the slot has of the same chunk already. Returns what it has then.
    pub(crate) fn write(&self, slot: u32, put: &Put<'_>, older: Grains) -> io::Result<Grains> {
        match self {
            Storage::Slabs(slabs) => {
                let header = ChunkHeader::of(put.key, put.len, put.at as usize, put.part);
                let same = |found: &ChunkHeader| found.key == header.key && found.len == header.len;
                let older = if older == 0 { None } else { slabs.header(slot)?.filter(same) };
                let joined = older.map_or(header, |older| header.joined(&older));
                slabs.write(slot, &joined, put.at, put.part)?;
                Ok(joined.present)
            }
            Storage::Memory(memory) => {
                memory.write(slot, put);
                Ok(put.present() | older)
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
                slabs.read(run, &range).map(|bytes| vec![Piece::whole(range.start, bytes)])
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
