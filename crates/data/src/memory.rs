use forebay_format::footer::{Footer, RunEntry, SegmentEntry};
use forebay_types::{SegmentId, VolumeId};

use crate::sealed::raw_bytes;

/// A segment that is put together in memory and becomes an object by itself. The bytes are those that [`crate::PackedWriter`] would write.
#[derive(Debug)]
pub struct SegmentBuffer {
    volume: VolumeId,
    segment: SegmentId,
    body: Vec<u8>,
    runs: Vec<RunEntry>,
}

/// An object of one segment, in memory.
#[derive(Debug)]
pub struct MemoryObject {
    /// The segment.
    pub segment: SegmentId,
    /// All bytes of the object.
    pub bytes: Vec<u8>,
    /// Bytes of the segment's body, which begins with the object.
    pub len: u64,
    /// Raw bytes of all runs.
    pub raw: u64,
}

impl SegmentBuffer {
    /// An empty one.
    #[must_use]
    pub fn new(volume: VolumeId, segment: SegmentId) -> SegmentBuffer {
        SegmentBuffer { volume, segment, body: Vec::new(), runs: Vec::new() }
    }

    /// Bytes of the body so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.body.len() as u64
    }

    /// Whether nothing has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Appends a run as it is stored, in two parts that follow each other; `entry.run_offset` is ignored. Returns where in the segment it
    /// starts.
    pub fn add(&mut self, entry: &RunEntry, run: [&[u8]; 2]) -> u64 {
        let run_offset = self.len();
        run.iter().for_each(|part| self.body.extend_from_slice(part));
        let stored_len = (run[0].len() + run[1].len()) as u32;
        self.runs.push(RunEntry { run_offset, stored_len, ..*entry });
        run_offset
    }

    /// The whole object, with its footer.
    #[must_use]
    pub fn finish(self) -> MemoryObject {
        let (segment, len, raw) = (self.segment, self.len(), raw_bytes(&self.runs));
        let entry = SegmentEntry { id: segment, offset: 0, len, runs: self.runs };
        let mut bytes = self.body;
        Footer { volume: self.volume, segments: vec![entry] }.encode_to(&mut bytes);
        MemoryObject { segment, bytes, len, raw }
    }
}
