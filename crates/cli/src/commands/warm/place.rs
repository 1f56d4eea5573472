//! On which mount a path is.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::{
    error::CliError,
    mounts::{self, Mounted},
};

/// A file system that is a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The number that the kernel has for it.
    pub(super) device: u64,
    /// Where it is mounted: the mount itself, and others that show it again (mount --bind).
    pub(super) mounts: Vec<Mounted>,
}

impl Place {
    /// The volume on which a path is, and the path without symlinks.
    pub(super) fn of(path: &Path) -> Result<(Place, PathBuf), CliError> {
        let real = fs::canonicalize(path).map_err(CliError::io("look at", path))?;
        let device = fs::symlink_metadata(&real).map_err(CliError::io("look at", path))?.dev();
        let mounts = mounts::of_device(device).map_err(CliError::io("read", "/proc/self/mountinfo"))?;
        if mounts.is_empty() {
            return Err(CliError::Told(format!(
                "'{}' is not on a mounted Forebay volume: there is nothing to bring near",
                path.display()
            )));
        }
        Ok((Place { device, mounts }, real))
    }
}
