use std::{io, path::PathBuf};

use forebay_data::{DataError, ReadError};
use forebay_format::FormatError;
use forebay_meta::{EngineError, LogError, MetaError};
use forebay_object::ObjectError;

/// Why a volume did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The namespace refused, or failed.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// Data could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The local disk failed.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The store failed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Some data cannot be brought into the store.
    #[error(
        "{dirty_bytes} bytes cannot be brought into the store and stay on this machine's disk; the log says which files they belong to"
    )]
    Stuck {
        /// How much.
        dirty_bytes: u64,
    },
    /// Background work was to stop, and did, between two objects.
    #[error("stopped between two objects, to be gone on with")]
    Stopped,
    /// Data could not be encoded.
    #[error("cannot encode data: {0}")]
    Encode(#[from] FormatError),
    /// The volume was opened for reading only.
    #[error("the volume is mounted read-only")]
    ReadOnly,
    /// There is no volume.
    #[error("'{}' is not a volume: it has no readable {file}; make one with `forebay create`", path.display())]
    NotAVolume {
        /// Where it was looked for.
        path: PathBuf,
        /// What was missing there.
        file: &'static str,
    },
    /// There is one already, or something else.
    #[error("'{}' {what}; nothing was changed", path.display())]
    Occupied {
        /// Where.
        path: PathBuf,
        /// By what.
        what: String,
    },
    /// Another process has it.
    #[error("the volume '{}' is in use{by}; unmount it there first", path.display())]
    InUse {
        /// Which one.
        path: PathBuf,
        /// By whom, as far as known: empty, or " by …".
        by: String,
    },
    /// Another machine has taken the volume over.
    #[error("another machine has taken this volume over (epoch {theirs}, ours is {ours}); unmount it here")]
    Fenced {
        /// The epoch of the other machine.
        theirs: u64,
        /// Our own.
        ours: u64,
    },
    /// A file of the volume is damaged.
    #[error("'{}' is damaged: {detail}; `forebay fsck` tells more", path.display())]
    Damaged {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Written by a newer release.
    #[error("the volume '{}' has format {found}; this release knows formats up to {supported}: use a newer one", path.display())]
    Newer {
        /// Which volume.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest that is known.
        supported: u32,
    },
    /// An option has a value that it cannot have.
    #[error("{0}")]
    Option(String),
    /// The operating system refused.
    #[error("cannot {what} '{}': {source}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl From<EngineError> for VolumeError {
    fn from(error: EngineError) -> Self {
        VolumeError::Meta(MetaError::Engine(error))
    }
}

impl VolumeError {
    /// Whether the local disk is full.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        match self {
            VolumeError::Meta(MetaError::Log(LogError::NoSpace))
            | VolumeError::Meta(MetaError::Engine(EngineError::NoSpace { .. }))
            | VolumeError::Data(DataError::NoSpace { .. }) => true,
            VolumeError::Io { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}

pub(crate) fn io_error<'a>(
    what: &'static str,
    path: &'a std::path::Path,
) -> impl FnOnce(io::Error) -> VolumeError + 'a {
    move |source| VolumeError::Io { what, path: path.to_owned(), source }
}
