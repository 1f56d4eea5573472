//! Why a command was not carried out.

use std::{io, path::PathBuf};

use forebay_fuse::{MountError, SessionError, UnmountError};
use forebay_volume::VolumeError;

/// Why a command was not carried out. Its text is the line that a person sees.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// It was asked wrongly.
    #[error("{0}")]
    Usage(String),
    /// The volume refused.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// It cannot be mounted there.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// It cannot be unmounted.
    #[error(transparent)]
    Unmount(#[from] UnmountError),
    /// The mount ended.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The benchmark failed.
    #[error(transparent)]
    Bench(#[from] forebay_bench::Error),
    /// The process behind a mount could not be asked, or refused.
    #[error(transparent)]
    Control(#[from] crate::control::ControlError),
    /// The process behind a mount said so, or something else that is a sentence already.
    #[error("{0}")]
    Told(String),
    /// The operating system refused.
    #[error("cannot {what} '{}': {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl CliError {
    /// 2 when it was asked wrongly, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            CliError::Usage(_) | CliError::Volume(VolumeError::Option(_)) => 2,
            _ => 1,
        }
    }

    /// The closure that says what was tried on `path`.
    pub(crate) fn io<'a>(
        what: &'static str,
        path: impl Into<PathBuf> + 'a,
    ) -> impl FnOnce(io::Error) -> CliError + 'a {
        move |source| CliError::Io { what, path: path.into(), source }
    }
}
