use std::{io, path::PathBuf};

use forebay_types::VolumeId;

use crate::ObjectKey;

/// Why a cache cannot be opened. Nothing was changed in the directory but, at most, a lock file made.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The directory holds files, and the mark of a cache is not among them.
    #[error(
        "'{}' is not a Forebay cache and not empty (it holds '{entry}'); give an empty or a new directory as the cache",
        dir.display()
    )]
    NotACache {
        /// The directory.
        dir: PathBuf,
        /// One of the files in it.
        entry: String,
    },
    /// The directory is the cache of another volume.
    #[error(
        "'{}' is the cache of volume {found}, not of {wanted}; give each volume a cache directory of its own, or remove this one",
        dir.display()
    )]
    OtherVolume {
        /// The directory.
        dir: PathBuf,
        /// The volume it belongs to.
        found: VolumeId,
        /// The volume it was opened for.
        wanted: VolumeId,
    },
    /// Another process, or another cache of this one, has the directory open.
    #[error("the cache directory '{}' is in use by another mount; unmount that or give another directory", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory was written by a newer version.
    #[error(
        "the cache '{}' has format {found}, this version knows {known}; use the newer version, or remove the directory",
        dir.display()
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The file that marks the directory as a cache does not check.
    #[error("'{}', which marks a cache directory, is damaged; remove the directory: a cache holds no data of its own", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
    },
    /// A system call failed.
    #[error("cannot {action} '{}': {source}", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A thread for read-ahead could not be started.
    #[error("cannot start a thread for read-ahead: {source}; look at the limits on processes and memory")]
    Thread {
        /// Why it failed.
        source: io::Error,
    },
}

/// Why a read could not be served. It is the same for all who waited for the fetch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError<E> {
    /// The store failed.
    #[error(transparent)]
    Fetch(E),
    /// The store answered with another number of bytes than was asked for.
    #[error(
        "object {object} is cut short or wrong in the store: {wanted} bytes asked for at {offset}, {got} came"
    )]
    WrongLength {
        /// The object.
        object: ObjectKey,
        /// Where the request began, in bytes.
        offset: u64,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The range does not lie in the object.
    #[error("object {object} has {object_len} bytes, asked for were {len} at {offset}")]
    OutOfRange {
        /// The object.
        object: ObjectKey,
        /// Its length as the caller gave it.
        object_len: u64,
        /// Start of the range.
        offset: u64,
        /// Length of the range.
        len: u64,
    },
    /// The thread that made the fetch panicked.
    #[error("the fetch of object {object} was given up by the thread that made it; read again")]
    Abandoned {
        /// The object.
        object: ObjectKey,
    },
}
