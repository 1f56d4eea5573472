use std::io;

use bytes::Bytes;
use forebay_types::SegmentId;

use crate::Parts;

/// What a reader will do next, as far as it can be told: how much around what it wants is worth fetching.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// It jumps: nothing around is wanted.
    Random,
    /// It is at a small file, or nothing is known of it: what lies around is likely to be wanted soon.
    #[default]
    Nearby,
    /// It goes through the file: what follows is wanted next, and what it has read is not wanted again.
    Sequential,
}

/// Where the bytes of segments come from: the journal, streams, the disk cache, the store, or all of them behind one front.
pub trait SegmentSource: Send + Sync {
    /// Exactly `len` bytes of the segment's body from `offset`. They need not be verified; the caller does that.
    ///
    /// # Errors
    /// [`SourceError`].
    fn read(&self, segment: SegmentId, offset: u64, len: u32) -> Result<Bytes, SourceError>;

    /// The same into `out`, which says how many bytes are wanted; returns how many came, fewer only where the segment has no more.
    ///
    /// # Errors
    /// [`SourceError`]; `out` may then have bytes that mean nothing.
    fn read_into(
        &self,
        segment: SegmentId,
        offset: u64,
        out: &mut [u8],
        access: Access,
    ) -> Result<usize, SourceError> {
        let _ = access;
        let bytes = self.read(segment, offset, out.len() as u32)?;
        let len = bytes.len().min(out.len());
        out[..len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    /// The same, shared with whoever has them in memory. `None`: they would have to be copied for this; [`SegmentSource::read_into`] is for that.
    ///
    /// # Errors
    /// [`SourceError`].
    fn share(
        &self,
        segment: SegmentId,
        offset: u64,
        len: u32,
        access: Access,
    ) -> Result<Option<Parts>, SourceError> {
        let _ = (segment, offset, len, access);
        Ok(None)
    }

    /// Has bytes that will be wanted soon brought near, as far as that goes without waiting for them.
    fn prefetch(&self, segment: SegmentId, offset: u64, len: u32) {
        let _ = (segment, offset, len);
    }

    /// Says that these bytes, as [`SegmentSource::read`] gave them, do not fit their checksum. A source that has copies drops the one it
    /// gave, so that the next read goes to where the copy came from.
    fn distrust(&self, segment: SegmentId, offset: u64, len: u32) {
        let _ = (segment, offset, len);
    }
}

impl SourceError {
    /// The segment that it is about.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        match self {
            SourceError::NotFound { segment, .. }
            | SourceError::Corrupt { segment, .. }
            | SourceError::Unavailable { segment, .. }
            | SourceError::NotStored { segment, .. }
            | SourceError::Lost { segment }
            | SourceError::Io { segment, .. } => *segment,
        }
    }
}

/// Why a source has no bytes to give.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The segment, or its object, is not where the metadata says it is.
    #[error("segment {segment} is missing: {detail}")]
    NotFound {
        /// Which one.
        segment: SegmentId,
        /// Where it was looked for.
        detail: String,
    },
    /// The segment is there and its bytes are wrong.
    #[error("segment {segment} is damaged at {offset}: {detail}")]
    Corrupt {
        /// Which one.
        segment: SegmentId,
        /// Where.
        offset: u64,
        /// What is wrong.
        detail: String,
    },
    /// It cannot be reached now; later it may be.
    #[error("segment {segment} cannot be reached now: {detail}")]
    Unavailable {
        /// Which one.
        segment: SegmentId,
        /// Why, and what to look at.
        detail: String,
    },
    /// It has not reached the store, as far as was known, and who has it does not give it now. It may have reached it since: where it is, is to be asked again.
    #[error("segment {segment} cannot be reached now: {detail}")]
    NotStored {
        /// Which one.
        segment: SegmentId,
        /// Who has it, and why none gives it.
        detail: String,
    },
    /// Nobody has it any more, and nobody ever will: who had it was given up. Asking again is of no use.
    #[error("segment {segment} is lost for good: all members of the group that had it were given up")]
    Lost {
        /// Which one.
        segment: SegmentId,
    },
    /// The local disk refused.
    #[error("cannot read segment {segment}: {source}")]
    Io {
        /// Which one.
        segment: SegmentId,
        /// Why.
        source: io::Error,
    },
}
