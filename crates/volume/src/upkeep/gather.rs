//! Reading the extents of a block that becomes one run: those that are left of an overwritten run are many and small, and each of its frames is read
//! and decoded once for all of them.

use forebay_data::{Access, ReadError, RunReader};
use forebay_format::row::Extent;
use forebay_types::{SegmentId, limits::FRAME_SIZE};

/// The frame of which a part was read last.
#[derive(Debug, Default)]
pub(super) struct Gather {
    frame: Vec<u8>,
    /// Whose it is: segment, offset and checksum of the run, and where in it the frame starts.
    of: Option<(SegmentId, u64, u32, u32)>,
}

impl Gather {
    /// Appends the bytes of an extent to `out`.
    ///
    /// # Errors
    /// [`ReadError`]; `out` may then have bytes that mean nothing behind those that it had.
    pub(super) fn add(
        &mut self,
        reader: &RunReader,
        extent: &Extent,
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let Some(end) = extent.skip.checked_add(extent.len).filter(|end| *end <= extent.run_len) else {
            return reader.read(extent, 0, extent.len, out);
        };
        let size = FRAME_SIZE as u32;
        let mut at = extent.skip;
        while at < end {
            let start = at / size * size;
            let frame_end = start.saturating_add(size).min(extent.run_len);
            if at == start && frame_end <= end {
                // Whole frames, as many as follow each other, are read to where they are wanted.
                let last = if end == extent.run_len { end } else { end / size * size };
                let from = out.len();
                out.resize(from + (last - at) as usize, 0);
                reader.read_into(extent, at - extent.skip, &mut out[from..], Access::Sequential)?;
                at = last;
            } else {
                let last = end.min(frame_end);
                let frame = self.frame(reader, extent, start, frame_end - start)?;
                out.extend_from_slice(&frame[(at - start) as usize..(last - start) as usize]);
                at = last;
            }
        }
        Ok(())
    }

    /// The frame of `extent`'s run that begins at `start` and has `len` bytes.
    fn frame(
        &mut self,
        reader: &RunReader,
        extent: &Extent,
        start: u32,
        len: u32,
    ) -> Result<&[u8], ReadError> {
        let of = (extent.segment, extent.run_offset, extent.check, start);
        if self.of != Some(of) {
            self.of = None;
            self.frame.resize(len as usize, 0);
            let whole = Extent { skip: start, len, ..*extent };
            reader.read_into(&whole, 0, &mut self.frame, Access::Sequential)?;
            self.of = Some(of);
        }
        Ok(&self.frame)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use bytes::Bytes;
    use forebay_data::{SegmentSource, SourceError};
    use forebay_format::{Keyring, run};
    use forebay_types::Compression;

    use super::*;

    struct Memory {
        stored: Vec<u8>,
        reads: AtomicUsize,
    }

    impl SegmentSource for Memory {
        fn read(&self, _: SegmentId, offset: u64, len: u32) -> Result<Bytes, SourceError> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let at = offset as usize;
            Ok(Bytes::copy_from_slice(&self.stored[at..at + len as usize]))
        }
    }

    /// A run of `len` raw bytes, and a reader of it that keeps no frames.
    fn a_run(len: usize, compression: Compression) -> (Vec<u8>, Extent, Arc<Memory>, RunReader) {
        let raw: Vec<u8> = (0..len as u32).map(|at| ((at / 9) ^ (at / 300)) as u8).collect();
        let mut stored = Vec::new();
        let about = run::encode(&raw, compression, None, &mut stored).unwrap();
        let extent = Extent {
            len: len as u32,
            segment: SegmentId(3),
            run_offset: 0,
            stored_len: about.stored_len,
            run_len: len as u32,
            skip: 0,
            form: about.form,
            check: about.check,
        };
        let memory = Arc::new(Memory { stored, reads: AtomicUsize::new(0) });
        let reader = RunReader::new(Arc::clone(&memory) as _, Arc::new(Keyring::new(Vec::new())), 4096);
        (raw, extent, memory, reader)
    }

    /// What overwriting every other page leaves of five frames.
    #[test]
    fn a_frame_is_read_once_for_all_its_pieces() {
        for compression in [Compression::None, Compression::Lz4] {
            let (raw, extent, memory, reader) = a_run(4 * FRAME_SIZE + 5000, compression);
            let (mut gather, mut out, mut expected) = (Gather::default(), Vec::new(), Vec::new());
            let mut skip = 4096;
            while skip < extent.run_len {
                let len = 4096.min(extent.run_len - skip);
                gather.add(&reader, &Extent { skip, len, ..extent }, &mut out).unwrap();
                expected.extend_from_slice(&raw[skip as usize..(skip + len) as usize]);
                skip += 8192;
            }
            assert_eq!(out, expected);
            let reads = memory.reads.load(Ordering::Relaxed);
            assert!(reads <= 6, "{reads} reads for a table and five frames");
        }
    }

    #[test]
    fn any_part_of_a_run_is_what_it_was() {
        let frame = FRAME_SIZE as u32;
        let (raw, extent, _, reader) = a_run(3 * FRAME_SIZE + 77, Compression::Lz4);
        let mut gather = Gather::default();
        let ends =
            [0, 1, 4096, frame - 1, frame, frame + 1, 2 * frame, 3 * frame, 3 * frame + 76, 3 * frame + 77];
        for (index, skip) in ends.iter().enumerate() {
            for end in &ends[index + 1..] {
                let mut out = vec![9];
                let part = Extent { skip: *skip, len: end - skip, ..extent };
                gather.add(&reader, &part, &mut out).unwrap();
                assert_eq!(out[1..], raw[*skip as usize..*end as usize], "{skip}..{end}");
            }
        }
        let beyond = Extent { skip: 10, ..extent };
        assert!(gather.add(&reader, &beyond, &mut Vec::new()).is_err());
    }
}
