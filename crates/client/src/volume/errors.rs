use forebay_meta::{LogError, MetaError};
use forebay_protocol::Failure;
use forebay_types::Ino;
use forebay_vfs::VfsError;

use crate::error::{ClientError, LostBytes};

impl From<ClientError> for VfsError {
    fn from(error: ClientError) -> VfsError {
        match error {
            ClientError::Failed(failure) => failed(failure, Ino(0)),
            ClientError::TimedOut(_) => VfsError::TimedOut(Box::new(error)),
            ClientError::Denied(_) => VfsError::Denied(Box::new(error)),
            ClientError::Interrupted => VfsError::Interrupted,
            ClientError::Lost(LostBytes { ino, from, to, bytes }) => VfsError::Lost { ino, from, to, bytes },
            ClientError::SessionEnded
            | ClientError::NoVolume(_)
            | ClientError::Unexpected(_)
            | ClientError::Store(_)
            | ClientError::Closed => VfsError::Failed(Box::new(error)),
        }
    }
}

/// What the owner's refusal of an operation on an inode is to the vfs.
pub(crate) fn failed(failure: Failure, ino: Ino) -> VfsError {
    match failure {
        Failure::NotFound => VfsError::NotFound,
        Failure::Stale => VfsError::Stale(ino),
        Failure::Exists => VfsError::Exists,
        Failure::NotDirectory => VfsError::NotDirectory(ino),
        Failure::IsDirectory => VfsError::IsDirectory(ino),
        Failure::NotEmpty => MetaError::NotEmpty(ino).into(),
        Failure::IntoItself => MetaError::IntoItself.into(),
        Failure::NameTooLong => MetaError::NameTooLong(0).into(),
        Failure::TooManyLinks => MetaError::TooManyLinks(ino).into(),
        Failure::FileTooLarge => VfsError::TooLarge(0),
        Failure::NoAttribute => VfsError::NoAttribute,
        Failure::AttributeExists => MetaError::AttributeExists.into(),
        Failure::TooManyAttributes => MetaError::TooManyAttributes(ino).into(),
        Failure::Invalid => VfsError::Invalid("the owner takes this for a contradiction"),
        Failure::NoSpace => MetaError::Log(LogError::NoSpace).into(),
        Failure::Sealed => MetaError::Sealed(ino).into(),
        Failure::NotPermitted => VfsError::Denied(Box::new(ClientError::Failed(failure))),
        Failure::ReadOnly => VfsError::ReadOnly,
        Failure::WouldBlock => VfsError::Locked,
        Failure::Deadlock => VfsError::Deadlock,
        Failure::TooManyLocks => VfsError::TooManyLocks(ino),
        Failure::NoSubvolume | Failure::Io | Failure::BelowClass => {
            VfsError::Failed(Box::new(ClientError::Failed(failure)))
        }
    }
}
