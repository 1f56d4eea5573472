use std::{fmt, ops::Range};

use forebay_types::{Epoch, ObjectId};

use crate::header::{GRAIN_BYTES, Grains, grains};

/// The unit of caching: objects are cut at multiples of this many bytes; the last chunk of an object may be shorter.
pub const CHUNK_BYTES: u64 = 256 * 1024;

/// The longest object whose chunks can be numbered: 512 TiB.
const MAX_OBJECT_BYTES: u64 = CHUNK_BYTES << 31;

/// An object of the store: its number and the epoch of its writer, which together are never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectKey {
    /// The ownership term that it was written in.
    pub epoch: Epoch,
    /// Its number.
    pub id: ObjectId,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of epoch {}", self.id, self.epoch)
    }
}

/// A chunk of an object: bytes `index * CHUNK_BYTES` and on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ChunkKey {
    pub object: ObjectKey,
    pub index: u32,
}

impl ChunkKey {
    /// A hash whose every bit depends on every bit of the key.
    pub(crate) fn hash64(&self) -> u64 {
        let seed = mix(self.object.epoch.0 ^ 0x9e37_79b9_7f4a_7c15);
        mix(mix(seed ^ self.object.id.0).wrapping_add(u64::from(self.index)))
    }
}

/// The finaliser of splitmix64, a bijection.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// An object and its length in bytes, which together say how it is cut into chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Object {
    pub key: ObjectKey,
    pub len: u64,
}

impl Object {
    pub(crate) fn chunk(&self, index: u32) -> ChunkKey {
        ChunkKey { object: self.key, index }
    }

    /// Length of chunk `index` in bytes: `CHUNK_BYTES` but for the last.
    pub(crate) fn chunk_len(&self, index: u32) -> u32 {
        let start = u64::from(index) * CHUNK_BYTES;
        (self.len.saturating_sub(start)).min(CHUNK_BYTES) as u32
    }

    /// Whether `range` lies in the object, and the object in what can be numbered.
    pub(crate) fn holds(&self, range: &Range<u64>) -> bool {
        range.start <= range.end && range.end <= self.len && self.len <= MAX_OBJECT_BYTES
    }

    /// The chunks that `range`, which the object must hold, touches.
    pub(crate) fn chunks(&self, range: &Range<u64>) -> Range<u32> {
        if range.is_empty() {
            return 0..0;
        }
        (range.start / CHUNK_BYTES) as u32..range.end.div_ceil(CHUNK_BYTES) as u32
    }

    /// What of chunk `index` lies in `range`, as a range of the object.
    pub(crate) fn part(&self, index: u32, range: &Range<u64>) -> Range<u64> {
        let chunk = self.bytes(&(index..index + 1));
        range.start.max(chunk.start)..range.end.min(chunk.end)
    }

    /// The grains of chunk `index` that lie in `range`, even in part.
    pub(crate) fn grains(&self, index: u32, range: &Range<u64>) -> Grains {
        let (start, part) = (u64::from(index) * CHUNK_BYTES, self.part(index, range));
        grains(&((part.start - start) as usize..(part.end - start) as usize))
    }

    /// Those grains, as a range of the object.
    pub(crate) fn rounded(&self, index: u32, range: &Range<u64>) -> Range<u64> {
        let (grain, part) = (GRAIN_BYTES as u64, self.part(index, range));
        part.start / grain * grain..part.end.next_multiple_of(grain).min(self.len)
    }

    /// The bytes of the chunks `chunks`.
    pub(crate) fn bytes(&self, chunks: &Range<u32>) -> Range<u64> {
        u64::from(chunks.start) * CHUNK_BYTES..(u64::from(chunks.end) * CHUNK_BYTES).min(self.len)
    }
}
