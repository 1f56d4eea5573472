use std::error::Error;

use forebay_meta::MetaError;
use forebay_types::Ino;

/// What a volume failed with, in its own words.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Why an operation did not take place. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum VfsError {
    /// No such name, or what had it is gone.
    #[error("there is no such name")]
    NotFound,
    /// The inode was removed.
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
    /// A directory cannot have a second name.
    #[error("directory {0} cannot have another name")]
    LinkOfDirectory(Ino),
    /// The arguments contradict each other or the inode's kind.
    #[error("{0}")]
    Invalid(&'static str),
    /// The operation is not offered.
    #[error("{0} is not supported")]
    NotSupported(&'static str),
    /// The file would be larger than this volume allows.
    #[error("byte {0} is beyond what a file of this volume can have")]
    TooLarge(u64),
    /// There is no such open directory.
    #[error("handle {0} is not open")]
    BadHandle(u64),
    /// No such extended attribute.
    #[error("there is no such attribute")]
    NoAttribute,
    /// The name of an attribute is longer than 255 bytes.
    #[error("an attribute's name has {0} bytes; 255 are allowed")]
    AttributeNameTooLong(usize),
    /// The value of an attribute is longer than 64 KiB.
    #[error("an attribute's value has {0} bytes; 65536 are allowed")]
    AttributeTooLarge(usize),
    /// This kind of file cannot have this attribute.
    #[error("inode {0} cannot have this attribute")]
    AttributeForbidden(Ino),
    /// Its mode or ACL does not allow it to a root user who is nobody.
    #[error("inode {0} does not allow it to this user")]
    NoAccess(Ino),
    /// Only its owner may, and a root user who is nobody is not.
    #[error("inode {0} is not this user's")]
    NotOwner(Ino),
    /// Neither data nor a hole is to be found there.
    #[error("there is nothing at or after this offset")]
    NoData,
    /// Somebody else has the lock.
    #[error("the range is locked")]
    Locked,
    /// Waiting for the lock would never end.
    #[error("waiting for this lock would deadlock")]
    Deadlock,
    /// There are as many locks on the inode as it can have.
    #[error("inode {0} has too many locks")]
    TooManyLocks(Ino),
    /// The caller got a signal while waiting.
    #[error("interrupted")]
    Interrupted,
    /// The volume is mounted read-only.
    #[error("the volume is mounted read-only")]
    ReadOnly,
    /// The namespace refused for another reason, or failed.
    #[error(transparent)]
    Meta(MetaError),
    /// There is no room for it.
    #[error(transparent)]
    NoSpace(Failure),
    /// The volume failed.
    #[error(transparent)]
    Failed(Failure),
    /// Bytes of this file are lost for good: they were acknowledged, and who had them was given up.
    #[error(
        "{bytes} bytes between {from} and {to} are lost for good, as all proxies that had them were given up (`forebay group remove --lost`): \
         put the file back from a copy, write these bytes anew, or truncate or remove it"
    )]
    Lost {
        /// Which file.
        ino: Ino,
        /// The first of them.
        from: u64,
        /// Behind the last one.
        to: u64,
        /// How many: not all that lie between need be lost.
        bytes: u64,
    },
    /// Who keeps the volume did not answer in the time that a mount with a limit allows.
    #[error(transparent)]
    TimedOut(Failure),
    /// Who keeps the volume does not allow it to this mount.
    #[error(transparent)]
    Denied(Failure),
}

impl From<MetaError> for VfsError {
    fn from(error: MetaError) -> VfsError {
        match error {
            MetaError::NotFound => VfsError::NotFound,
            MetaError::Stale(ino) => VfsError::Stale(ino),
            MetaError::Exists => VfsError::Exists,
            MetaError::NotDirectory(ino) => VfsError::NotDirectory(ino),
            MetaError::IsDirectory(ino) => VfsError::IsDirectory(ino),
            MetaError::Invalid(what) => VfsError::Invalid(what),
            MetaError::NoAttribute => VfsError::NoAttribute,
            MetaError::FileTooLarge(size) => VfsError::TooLarge(size),
            other => VfsError::Meta(other),
        }
    }
}

impl VfsError {
    /// As an operation that named a directory entry says it: a directory that is gone has no names.
    pub(crate) fn by_name(error: VfsError) -> VfsError {
        match error {
            VfsError::Stale(_) => VfsError::NotFound,
            other => other,
        }
    }
}
