use bytes::Bytes;
use forebay_types::{Epoch, SegmentId};

/// Bytes of a record's head on the disk, and what records are aligned to.
const HEAD: u64 = 64;

/// Bytes for a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Append {
    /// Which segment.
    pub segment: SegmentId,
    /// Its epoch as the writer knows it.
    pub epoch: Epoch,
    /// Where in the segment.
    pub offset: u64,
    /// What.
    pub bytes: Bytes,
    /// CRC32C of the bytes.
    pub check: u32,
}

impl Append {
    /// Where the segment ends after it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// What a member writes to its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// Bytes.
    Append(Append),
    /// Nothing of a lower epoch is taken from here on.
    Fence {
        /// Which segment.
        segment: SegmentId,
        /// The epoch.
        epoch: Epoch,
    },
    /// The segment ends here, whatever the log has beyond.
    Seal {
        /// Which segment.
        segment: SegmentId,
        /// By whom.
        epoch: Epoch,
        /// Bytes.
        len: u64,
        /// CRC32C of all of them.
        check: u32,
    },
    /// Nothing of the segment is needed any more.
    Drop {
        /// Which segment.
        segment: SegmentId,
    },
}

impl Record {
    /// The segment that it is about.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        match self {
            Record::Append(append) => append.segment,
            Record::Fence { segment, .. } | Record::Seal { segment, .. } | Record::Drop { segment } => {
                *segment
            }
        }
    }

    /// Bytes that it takes in the log.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Record::Append(append) => HEAD + (append.bytes.len() as u64).next_multiple_of(HEAD),
            _ => HEAD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_aligned() {
        let append = |len: usize| {
            let bytes = Bytes::from(vec![0; len]);
            Record::Append(Append { segment: SegmentId(1), epoch: Epoch(1), offset: 0, bytes, check: 0 })
        };
        assert_eq!(
            (append(0).size(), append(1).size(), append(64).size(), append(65).size()),
            (64, 128, 128, 192)
        );
        assert_eq!(Record::Drop { segment: SegmentId(3) }.segment(), SegmentId(3));
    }
}
