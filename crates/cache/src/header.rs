use std::ops::Range;

use forebay_types::{Epoch, ObjectId};

use crate::{CHUNK_BYTES, ObjectKey, key::ChunkKey};

/// Bytes of a header in a slab's table.
pub(crate) const HEADER_BYTES: usize = 128;
/// Payload bytes that share a checksum: a small read verifies this much, not a chunk.
pub(crate) const GRAIN_BYTES: usize = 16 * 1024;
const GRAINS: usize = CHUNK_BYTES as usize / GRAIN_BYTES;
const MAGIC: [u8; 8] = *b"FBCHUNK\0";
/// Of a header whose payload is all there, and of one that says which grains are.
const WHOLE: u16 = 1;
const PARTIAL: u16 = 2;
const CRC_AT: usize = HEADER_BYTES - 4;
const GRAINS_AT: usize = 40;

/// A set of grains of a chunk: bit 0 for the first.
pub(crate) type Grains = u16;

/// The grains that bytes `range` of a chunk touch.
pub(crate) fn grains(range: &Range<usize>) -> Grains {
    let (first, end) = (range.start / GRAIN_BYTES, range.end.div_ceil(GRAIN_BYTES).min(GRAINS));
    (first..end).fold(0, |set, grain| set | 1 << grain)
}

/// What a slot holds: which chunk, how long it is, which of its grains are there, and the CRC32C of each of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ChunkHeader {
    pub key: ChunkKey,
    /// Payload bytes, from 1 to `CHUNK_BYTES`.
    pub len: u32,
    /// What of the payload is there.
    pub present: Grains,
    grains: [u32; GRAINS],
}

impl ChunkHeader {
    /// The header for `part` of a chunk of `len` bytes, from its byte `at` (a multiple of a grain) to the end of a grain or of the chunk.
    pub(crate) fn of(key: ChunkKey, len: u32, at: usize, part: &[u8]) -> ChunkHeader {
        let mut crcs = [0; GRAINS];
        for (crc, grain) in crcs.iter_mut().skip(at / GRAIN_BYTES).zip(part.chunks(GRAIN_BYTES)) {
            *crc = crc32c::crc32c(grain);
        }
        ChunkHeader { key, len, present: grains(&(at..at + part.len())), grains: crcs }
    }

    /// The same with those grains that only `older`, a header of the same chunk, has.
    pub(crate) fn joined(mut self, older: &ChunkHeader) -> ChunkHeader {
        for grain in (0..GRAINS).filter(|grain| older.present & !self.present & 1 << grain != 0) {
            self.grains[grain] = older.grains[grain];
        }
        self.present |= older.present;
        self
    }

    /// Bytes of the chunk up to the end of the last grain that is there.
    pub(crate) fn end(&self) -> u32 {
        let grains = Grains::BITS - self.present.leading_zeros();
        (grains * GRAIN_BYTES as u32).min(self.len)
    }

    /// Whether `bytes`, which begin at `offset` (a multiple of a grain) of the payload and end on a grain or at its end, are there and check.
    pub(crate) fn verifies(&self, offset: usize, bytes: &[u8]) -> bool {
        let expected = &self.grains[(offset / GRAIN_BYTES).min(GRAINS)..];
        let wanted = grains(&(offset..offset + bytes.len()));
        bytes.len().div_ceil(GRAIN_BYTES) <= expected.len()
            && self.present & wanted == wanted
            && bytes.chunks(GRAIN_BYTES).zip(expected).all(|(grain, crc)| crc32c::crc32c(grain) == *crc)
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        let whole = self.present == grains(&(0..self.len as usize));
        let (version, present) = if whole { (WHOLE, 0) } else { (PARTIAL, self.present) };
        out[8..10].copy_from_slice(&version.to_le_bytes());
        out[10..12].copy_from_slice(&present.to_le_bytes());
        out[12..16].copy_from_slice(&self.len.to_le_bytes());
        out[16..24].copy_from_slice(&self.key.object.epoch.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.key.object.id.0.to_le_bytes());
        out[32..36].copy_from_slice(&self.key.index.to_le_bytes());
        for (place, crc) in out[GRAINS_AT..].chunks_exact_mut(4).zip(self.grains) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out[..CRC_AT]);
        out[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header in `bytes`; `None` where they are not one, of this version, whole.
    pub(crate) fn decode(bytes: &[u8]) -> Option<ChunkHeader> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[..8] != MAGIC || u32_at(CRC_AT) != crc32c::crc32c(&bytes[..CRC_AT]) {
            return None;
        }
        let len = u32_at(12);
        if len == 0 || u64::from(len) > CHUNK_BYTES {
            return None;
        }
        let all = grains(&(0..len as usize));
        let present = match u16::from_le_bytes([bytes[8], bytes[9]]) {
            WHOLE => all,
            PARTIAL => {
                Some(u16::from_le_bytes([bytes[10], bytes[11]])).filter(|set| *set != 0 && set & !all == 0)?
            }
            _ => return None,
        };
        let mut crcs = [0; GRAINS];
        crcs.iter_mut().enumerate().for_each(|(i, crc)| *crc = u32_at(GRAINS_AT + 4 * i));
        let object = ObjectKey { epoch: Epoch(u64_at(16)), id: ObjectId(u64_at(24)) };
        Some(ChunkHeader { key: ChunkKey { object, index: u32_at(32) }, len, present, grains: crcs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ChunkKey {
        ChunkKey { object: ObjectKey { epoch: Epoch(3), id: ObjectId(0x1122_3344_5566_7788) }, index: 9 }
    }

    #[test]
    fn a_header_comes_back_and_any_flipped_bit_is_noticed() {
        let payload = vec![7; 40_000];
        let header = ChunkHeader::of(key(), payload.len() as u32, 0, &payload);
        let bytes = header.encode();
        assert_eq!(ChunkHeader::decode(&bytes), Some(header));
        for bit in 0..HEADER_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ChunkHeader::decode(&flipped), None, "bit {bit}");
        }
        assert_eq!(ChunkHeader::decode(&bytes[..127]), None);
        assert_eq!(ChunkHeader::decode(&[0; HEADER_BYTES]), None);
    }

    #[test]
    fn grains_are_verified_one_by_one() {
        let mut payload: Vec<u8> = (0..40_000_u32).map(|i| (i % 251) as u8).collect();
        let header = ChunkHeader::of(key(), payload.len() as u32, 0, &payload);
        assert!(header.verifies(0, &payload));
        payload[20_000] ^= 1;
        assert!(header.verifies(0, &payload[..GRAIN_BYTES]));
        assert!(!header.verifies(GRAIN_BYTES, &payload[GRAIN_BYTES..2 * GRAIN_BYTES]));
        assert!(header.verifies(2 * GRAIN_BYTES, &payload[2 * GRAIN_BYTES..]));
        assert!(!header.verifies(0, &vec![0; CHUNK_BYTES as usize + 1]));
    }

    #[test]
    fn parts_of_a_chunk_are_joined() {
        let payload: Vec<u8> = (0..100_000_u32).map(|i| (i % 249) as u8).collect();
        let of = |at: usize, end: usize| ChunkHeader::of(key(), 100_000, at, &payload[at..end]);
        let (one, two) = (of(GRAIN_BYTES, 3 * GRAIN_BYTES), of(6 * GRAIN_BYTES, 100_000));
        assert_eq!((one.present, two.present, one.end(), two.end()), (0b110, 0b100_0000, 49_152, 100_000));
        let both = two.joined(&one);
        assert_eq!(ChunkHeader::decode(&both.encode()), Some(both));
        assert!(both.verifies(GRAIN_BYTES, &payload[GRAIN_BYTES..3 * GRAIN_BYTES]));
        assert!(both.verifies(6 * GRAIN_BYTES, &payload[6 * GRAIN_BYTES..]));
        assert!(!both.verifies(0, &payload[..2 * GRAIN_BYTES]), "the first grain is not there");
        let all = of(0, 100_000);
        assert_eq!(all.joined(&both), all);
        assert_eq!(all.encode()[8..12], [1, 0, 0, 0], "a whole one is as it always was");
    }
}
