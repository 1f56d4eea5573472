use forebay_engine::EngineError;
use forebay_format::FormatError;
use forebay_types::{Ino, SubvolumeId};

use crate::log::LogError;

/// Why an operation on the namespace did not take place. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum MetaError {
    /// No such name.
    #[error("there is no such name")]
    NotFound,
    /// No such inode: it was removed.
    #[error("inode {0} is gone")]
    Stale(Ino),
    /// The name is taken.
    #[error("the name is taken")]
    Exists,
    /// A directory is needed here.
    #[error("inode {0} is not a directory")]
    NotDirectory(Ino),
    /// A directory is not allowed here.
    #[error("inode {0} is a directory")]
    IsDirectory(Ino),
    /// Only an empty directory can be removed or replaced.
    #[error("directory {0} is not empty")]
    NotEmpty(Ino),
    /// A directory would be put inside itself.
    #[error("a directory cannot be moved into itself")]
    IntoItself,
    /// The name is longer than 255 bytes.
    #[error("a name has {0} bytes; 255 are allowed")]
    NameTooLong(usize),
    /// The inode has as many names as it can.
    #[error("inode {0} has as many links as it can")]
    TooManyLinks(Ino),
    /// The file would be larger than a volume of this block size allows.
    #[error("a file of {0} bytes is larger than this volume allows")]
    FileTooLarge(u64),
    /// No such extended attribute.
    #[error("there is no such attribute")]
    NoAttribute,
    /// The attribute is there already, and only a new one was wanted.
    #[error("the attribute exists")]
    AttributeExists,
    /// The names of all attributes together are longer than the kernel allows.
    #[error("the attributes of inode {0} have too many names")]
    TooManyAttributes(Ino),
    /// The contents of the file are final.
    #[error("inode {0} is sealed: it is in an immutable tree, and was closed after it was written")]
    Sealed(Ino),
    /// The operation does not fit the inode's kind, or its arguments contradict each other.
    #[error("{0}")]
    Invalid(&'static str),
    /// No such subvolume.
    #[error("there is no subvolume {0}")]
    NoSubvolume(SubvolumeId),
    /// The log could not take it.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A row is not what its layout says.
    #[error("metadata is damaged: {row}: {source}; `forebay fsck` tells more")]
    Damaged {
        /// Which row.
        row: String,
        /// What is wrong with it.
        source: FormatError,
    },
}

impl MetaError {
    pub(crate) fn damaged(row: impl Into<String>, source: FormatError) -> MetaError {
        MetaError::Damaged { row: row.into(), source }
    }
}
