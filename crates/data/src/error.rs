use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_format::FormatError;
use forebay_types::{SegmentId, Sequence};
use rustix::io::Errno;

use crate::Failure;

/// What can go wrong with bytes on the local disk. Each variant is one that a caller answers differently.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The disk is full. Nothing was changed; the same call may succeed once space is freed.
    #[error("no space is left on the disk of '{}' ({what}): delete files, or wait until data is uploaded", path.display())]
    NoSpace {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
    },
    /// An earlier write or sync of the journal failed, so nothing that was not synced before may be called durable any more.
    #[error(
        "the journal takes nothing more because it failed to {cause}; unmount, see to the disk, and mount again"
    )]
    JournalFailed {
        /// The first failure.
        cause: Arc<Failure>,
    },
    /// An earlier sync of the streams failed, so nothing that was not synced before may be called durable any more.
    #[error(
        "streams take nothing more because forebay failed to {cause}; unmount, see to the disk, and mount again"
    )]
    StreamsFailed {
        /// The first failure.
        cause: Arc<Failure>,
    },
    /// The system refused.
    #[error("cannot {what} '{}': {source}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("'{}' is damaged or foreign: {source}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },
    /// Records that were durable and that the metadata does not contain yet cannot be read.
    #[error("the journal has lost records that the metadata does not contain yet: {why} in '{}', and record {needed} is needed (next one found: {}). Put the file back from a copy; or recover the volume from its store, if that is elsewhere; or give up record {needed} and all after it with `forebay fsck --repair --cut-journal`", path.display(), Found(*found))]
    JournalGap {
        /// The journal's directory, or the damaged file in it.
        path: PathBuf,
        /// What is wrong there.
        why: String,
        /// The first record that is missing.
        needed: Sequence,
        /// The first one behind the gap.
        found: Option<Sequence>,
    },
    /// There is no such segment here.
    #[error("segment {segment} is not on this disk")]
    NoSegment {
        /// Which one.
        segment: SegmentId,
    },
    /// The bytes asked for are not all in the segment.
    #[error("segment {segment} has {have} bytes, not {len} from {offset}")]
    OutOfRange {
        /// Which one.
        segment: SegmentId,
        /// The first byte asked for.
        offset: u64,
        /// How many were.
        len: u64,
        /// How many there are.
        have: u64,
    },
}

struct Found(Option<Sequence>);

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(sequence) => sequence.fmt(f),
            None => f.write_str("none"),
        }
    }
}

/// Why [`crate::Journal::replay`] gave up.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError<E> {
    /// The journal cannot be read, or lacks records that are needed.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The visitor refused a record.
    #[error("cannot apply record {sequence}: {source}")]
    Visit {
        /// Which one.
        sequence: Sequence,
        /// What it said.
        source: E,
    },
}

/// Whether `error` says that the disk or the quota is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Turns the system's error into ours.
pub(crate) fn io_error<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> DataError + 'a {
    move |source| {
        if is_full(&source) {
            return DataError::NoSpace { what, path: path.to_owned() };
        }
        DataError::Io { what, path: path.to_owned(), source }
    }
}
