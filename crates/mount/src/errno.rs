use forebay_fuse::Errno;
use forebay_vfs::{EngineError, LogError, MetaError, VfsError};

/// The error number of an error: the one place where it is chosen.
///
/// `EIO` stands for everything that is wrong with the volume rather than with the request: bytes that are not what was written, a store that
/// cannot be reached or refuses, a journal that failed, a volume that another machine took over. What it was is in the log.
#[must_use]
pub fn errno(error: &VfsError) -> Errno {
    match error {
        VfsError::NotFound => Errno::ENOENT,
        VfsError::Stale(_) => Errno::ESTALE,
        VfsError::Exists => Errno::EEXIST,
        VfsError::NotDirectory(_) => Errno::ENOTDIR,
        VfsError::IsDirectory(_) => Errno::EISDIR,
        VfsError::LinkOfDirectory(_) | VfsError::NotOwner(_) => Errno::EPERM,
        VfsError::Invalid(_) => Errno::EINVAL,
        VfsError::NotSupported(_) => Errno::ENOTSUP,
        VfsError::TooLarge(_) => Errno::EFBIG,
        VfsError::BadHandle(_) => Errno::EBADF,
        VfsError::NoAttribute => Errno::ENODATA,
        VfsError::AttributeNameTooLong(_) => Errno::ERANGE,
        VfsError::AttributeTooLarge(_) => Errno::E2BIG,
        VfsError::AttributeForbidden(_) | VfsError::NoAccess(_) => Errno::EACCES,
        VfsError::NoData => Errno::ENXIO,
        VfsError::Locked => Errno::EAGAIN,
        VfsError::Deadlock => Errno::EDEADLK,
        VfsError::TooManyLocks(_) => Errno::ENOLCK,
        VfsError::Interrupted => Errno::EINTR,
        VfsError::ReadOnly => Errno::EROFS,
        VfsError::Meta(error) => meta(error),
        VfsError::NoSpace(_) => Errno::ENOSPC,
        VfsError::Failed(_) | VfsError::Lost { .. } => Errno::EIO,
        VfsError::TimedOut(_) => Errno::ETIMEDOUT,
        VfsError::Denied(_) => Errno::EACCES,
    }
}

fn meta(error: &MetaError) -> Errno {
    match error {
        MetaError::NotFound => Errno::ENOENT,
        MetaError::Stale(_) => Errno::ESTALE,
        MetaError::Exists | MetaError::AttributeExists => Errno::EEXIST,
        MetaError::NotDirectory(_) => Errno::ENOTDIR,
        MetaError::IsDirectory(_) => Errno::EISDIR,
        MetaError::NotEmpty(_) => Errno::ENOTEMPTY,
        MetaError::IntoItself | MetaError::Invalid(_) => Errno::EINVAL,
        MetaError::Sealed(_) => Errno::EPERM,
        MetaError::NameTooLong(_) => Errno::ENAMETOOLONG,
        MetaError::TooManyLinks(_) => Errno::EMLINK,
        MetaError::FileTooLarge(_) => Errno::EFBIG,
        MetaError::NoAttribute => Errno::ENODATA,
        MetaError::TooManyAttributes(_) => Errno::ENOSPC,
        MetaError::Log(LogError::NoSpace) | MetaError::Engine(EngineError::NoSpace { .. }) => Errno::ENOSPC,
        MetaError::NoSubvolume(_)
        | MetaError::Log(LogError::Failed(_))
        | MetaError::Engine(
            EngineError::Locked { .. }
            | EngineError::Damaged { .. }
            | EngineError::Unreachable { .. }
            | EngineError::Refused { .. }
            | EngineError::Newer { .. }
            | EngineError::Missing { .. }
            | EngineError::Exists { .. }
            | EngineError::Failed { .. },
        )
        | MetaError::Damaged { .. } => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::Ino;
    use forebay_volume::VolumeError;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_request_has_its_own_number() {
        let not_empty = VfsError::Meta(MetaError::NotEmpty(Ino(5)));
        assert_eq!(errno(&not_empty), Errno::ENOTEMPTY);
        assert_eq!(errno(&VfsError::NotFound), Errno::ENOENT);
        assert_eq!(errno(&VfsError::Stale(Ino(5))), Errno::ESTALE);
        assert_eq!(errno(&MetaError::Stale(Ino(5)).into()), Errno::ESTALE);
        assert_eq!(errno(&MetaError::IntoItself.into()), Errno::EINVAL);
    }

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        assert_eq!(errno(&MetaError::Log(LogError::NoSpace).into()), Errno::ENOSPC);
        let full = EngineError::NoSpace { place: "/v".into() };
        assert_eq!(errno(&VfsError::from(VolumeError::from(full))), Errno::ENOSPC);
        assert_eq!(errno(&MetaError::Log(LogError::Failed("EIO".into())).into()), Errno::EIO);
        let io = |kind: std::io::ErrorKind| VolumeError::Io {
            what: "write",
            path: "/v".into(),
            source: std::io::Error::from(kind),
        };
        assert_eq!(errno(&VfsError::from(io(std::io::ErrorKind::StorageFull))), Errno::ENOSPC);
        assert_eq!(errno(&VfsError::from(io(std::io::ErrorKind::Other))), Errno::EIO);
        assert_eq!(errno(&VfsError::from(VolumeError::Fenced { theirs: 3, ours: 2 })), Errno::EIO);
        assert_eq!(errno(&VfsError::from(VolumeError::ReadOnly)), Errno::EROFS);
    }
}
