//! What is written: bytes that do not compress, with each 4 KiB page naming its place, so that a read can be checked.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::plan::PAGE;

/// After this many bytes the random part repeats: beyond what a fast compressor looks back.
const PERIOD: u64 = 8 << 20;

/// Bytes of the stamp at the begin of each page: the file's number, then the page's offset, little-endian.
const STAMP: usize = 16;

/// Makes and checks the contents of files.
pub(crate) struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    /// Random bytes for runs of up to `longest` bytes each, out of `extent` bytes in all.
    pub(crate) fn new(seed: u64, job: usize, longest: u64, extent: u64) -> Self {
        let period = extent.clamp(PAGE, PERIOD).next_multiple_of(PAGE);
        let mut bytes = vec![0; usize::try_from(period + longest.next_multiple_of(PAGE)).unwrap_or(0)];
        SmallRng::seed_from_u64(seed ^ (job as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
            .fill_bytes(&mut bytes);
        Self { bytes }
    }

    /// The `length` bytes of file `file` from `offset` on. `offset` is a multiple of 4 KiB.
    pub(crate) fn at(&mut self, file: u64, offset: u64, length: usize) -> &[u8] {
        let period = (self.bytes.len() - length.next_multiple_of(PAGE as usize)).max(PAGE as usize) as u64;
        let start = (offset % period - (offset % period) % PAGE) as usize;
        let end = (start + length).min(self.bytes.len());
        let run = &mut self.bytes[start..end];
        for (page, chunk) in run.chunks_mut(PAGE as usize).enumerate() {
            if chunk.len() >= STAMP {
                chunk[..STAMP].copy_from_slice(&stamp(file, offset + page as u64 * PAGE));
            }
        }
        run
    }
}

/// Checks the stamps of what was read from `offset` on: the offset of the first page that is wrong, or too short.
pub(crate) fn check(read: &[u8], file: u64, offset: u64, length: usize) -> Result<(), u64> {
    let pages = read.chunks(PAGE as usize).enumerate();
    for (chunk, at) in pages.map(|(page, chunk)| (chunk, offset + page as u64 * PAGE)) {
        if chunk.len() >= STAMP && chunk[..STAMP] != stamp(file, at) {
            return Err(at);
        }
    }
    if read.len() == length { Ok(()) } else { Err(offset + read.len() as u64 / PAGE * PAGE) }
}

fn stamp(file: u64, offset: u64) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&file.to_le_bytes());
    stamp[8..].copy_from_slice(&offset.to_le_bytes());
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_passes_and_what_is_moved_does_not() {
        let mut pattern = Pattern::new(7, 0, 64 << 10, 256 << 10);
        for (offset, length) in
            [(0, 64 << 10), (192 << 10, 64 << 10), (4096, 4096), (1 << 30, 10_000), (0, 3)]
        {
            let run = pattern.at(5, offset, length).to_vec();
            assert_eq!(run.len(), length);
            assert_eq!(check(&run, 5, offset, length), Ok(()));
        }
        let mut run = pattern.at(5, 0, 12_288).to_vec();
        assert_eq!(check(&run, 6, 0, 12_288), Err(0));
        assert_eq!(check(&run[..8192], 5, 0, 12_288), Err(8192));
        run[4100] ^= 1;
        assert_eq!(check(&run, 5, 0, 12_288), Err(4096));
    }

    #[test]
    fn pages_differ_beyond_their_stamps() {
        let mut pattern = Pattern::new(7, 0, PAGE, 1 << 20);
        let one = pattern.at(0, 0, 4096)[STAMP..].to_vec();
        assert_ne!(one, pattern.at(0, 4096, 4096)[STAMP..]);
    }
}
