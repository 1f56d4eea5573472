use std::{io, path::PathBuf, sync::Arc};

use forebay_format::FormatError;
use forebay_group::{LogError, NotActing};

/// The first thing that went wrong with the log: it takes nothing more, since a kernel that failed to write pages may have dropped them.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the log takes nothing more because it failed to {what} '{}' ({source}): see to the disk, and start the proxy again", path.display())]
pub struct Failure {
    /// What was being done.
    pub what: &'static str,
    /// To what.
    pub path: PathBuf,
    /// Why not.
    #[source]
    pub source: Arc<io::Error>,
}

impl Failure {
    pub(super) fn new(what: &'static str, path: PathBuf, source: io::Error) -> Failure {
        Failure { what, path, source: Arc::new(source) }
    }
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refuses.
    #[error("cannot {what} '{}': {source}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A file is another member's or group's, has another file's name, or was written by a later release. Nothing was touched.
    #[error("'{}' is no file of this member's log: {why}", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// A file is of a later release.
    #[error("'{}': {source}", path.display())]
    Newer {
        /// Which file.
        path: PathBuf,
        /// What it says.
        #[source]
        source: FormatError,
    },
    /// The disk has not even room for what frees space.
    #[error("there is no room for a file of the log in '{}': make some", path.display())]
    NoSpace {
        /// Where.
        path: PathBuf,
    },
}

/// Why something is not written to the log.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PutError {
    /// The segment does not take it.
    #[error(transparent)]
    Refused(#[from] LogError),
    /// The member does not act, or takes no new segments.
    #[error(transparent)]
    NotActing(#[from] NotActing),
    /// The disk or the budget is full: others have room.
    #[error("the log has no room")]
    Full,
    /// More than the budget is dirty: there is room once something was dropped.
    #[error("the log has no room for the while")]
    OverBudget,
    /// So much waits for the disk that this has to wait, too.
    #[error("the disk is behind")]
    Behind,
    /// The log takes nothing more.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Why bytes cannot be read back.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// Not all of them are here.
    #[error("the segment ends at {end} here")]
    EndsAt {
        /// Where it ends, in bytes.
        end: u64,
    },
    /// They are not on stable storage yet: they are once the log is synced up to here.
    #[error("the bytes are not on stable storage yet")]
    NotSynced {
        /// A position.
        upto: u64,
    },
    /// What is on the disk is not what was written, or cannot be read.
    #[error("the copy is damaged")]
    Damaged,
}
