//! What can go wrong while measuring, with the path it happened on.

use std::io;
use std::path::{Path, PathBuf};

use crate::Workload;

/// Why a benchmark ended without a report. Whatever it had made is removed all the same.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A directory to measure cannot be used.
    #[error("cannot measure {}: {source}; give a directory that exists, on a mount that is up, and that you may write to", path.display())]
    Directory {
        /// The directory as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Target and reference are one directory, so a ratio would say nothing.
    #[error("{} is both target and reference; give two directories", path.display())]
    SameDirectory {
        /// The directory, resolved.
        path: PathBuf,
    },
    /// The file system has less room than the plan writes.
    #[error("{} has {free} bytes free and this plan writes up to {needed}; free some space or choose smaller sizes", path.display())]
    Space {
        /// The directory to measure.
        path: PathBuf,
        /// Bytes the plan holds at once, at most.
        needed: u64,
        /// Bytes an unprivileged process may still write.
        free: u64,
    },
    /// A setting is out of its range.
    #[error("{name} is {value}; it must be {range}")]
    Setting {
        /// The field of [`crate::Plan`] or [`crate::Sizes`].
        name: &'static str,
        /// What was given.
        value: u64,
        /// What is allowed.
        range: &'static str,
    },
    /// The file system refused an operation of a workload.
    #[error("cannot {operation} {}: {source}", path.display())]
    Operation {
        /// The verb, for a sentence: `create`, `read`, `stat`.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// A file gave back other bytes than were written, or fewer.
    #[error("{} holds wrong bytes at offset {offset}: this file system does not return what was written", path.display())]
    Content {
        /// The file that was read.
        path: PathBuf,
        /// First byte of the 4 KiB page that is wrong.
        offset: u64,
    },
    /// A directory listing had too few or too many entries.
    #[error("listing {} gave {found} entries and {expected} were made: this file system's readdir is wrong", path.display())]
    Listing {
        /// The directory that was listed.
        path: PathBuf,
        /// Entries that were made.
        expected: u64,
        /// Entries that were found.
        found: u64,
    },
    /// The process named in a [`crate::Probe`] cannot be looked at.
    #[error("cannot read the processor time and memory of process {pid}, which serves {}: {source}; check that it still runs", path.display())]
    Process {
        /// The process id.
        pid: u32,
        /// The directory it serves.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A callback of a [`crate::Probe`] failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Callback {
        /// `drain`, `empty the caches of`, `count requests of` or `observe`.
        what: &'static str,
        /// The directory measured.
        path: PathBuf,
        /// What the callback said.
        source: io::Error,
    },
    /// The caller's stop flag was raised.
    #[error("stopped during {workload}; everything the benchmark made is removed")]
    Stopped {
        /// What was running.
        workload: Workload,
    },
    /// What the benchmark made could not be removed.
    #[error("cannot remove {}: {source}; remove it by hand", path.display())]
    Remove {
        /// The benchmark's own directory.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

/// Gives the failure of `operation` its path.
pub(crate) fn at<E: Into<io::Error>>(operation: &'static str, path: &Path) -> impl FnOnce(E) -> Error {
    move |source| Error::Operation { operation, path: path.to_path_buf(), source: source.into() }
}
