//! Where volumes are mounted, by the mount table.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use forebay_fuse::{mount_table, resolve};
use rustix::io::Errno;

use crate::{error::CliError, shared::SharedUrl};

const TYPE: &str = "fuse.forebay";

/// One mount of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// The volume's directory.
    pub volume: PathBuf,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Who mounted it.
    pub uid: u32,
}

impl Mounted {
    /// The mount, if it is one of a volume.
    fn of(mounted: forebay_fuse::Mounted) -> Option<Mounted> {
        let forebay_fuse::Mounted { path, fstype, source, uid, .. } = mounted;
        (fstype == TYPE).then_some(Mounted { volume: source, mountpoint: path, uid })
    }
}

/// All mounts of volumes, in the order in which they were made.
///
/// # Errors
/// `/proc` is not there.
pub fn all() -> io::Result<Vec<Mounted>> {
    Ok(mount_table()?.into_iter().filter_map(Mounted::of).collect())
}

/// The volume that is mounted exactly on `path`; `None` where nothing or something else is. The server need not be alive.
///
/// # Errors
/// The path cannot be looked at.
pub fn on(path: &Path) -> io::Result<Option<Mounted>> {
    Ok(anything_on(&resolve(path)?)?.and_then(Mounted::of))
}

/// All mounts of the file system with this device number, as `stat` gives it, if it is a volume: the mount itself, and those that show it or a part of it again.
///
/// # Errors
/// As for [`all`].
pub(crate) fn of_device(device: u64) -> io::Result<Vec<Mounted>> {
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let same = mount_table()?.into_iter().filter(|mounted| mounted.device == device);
    Ok(same.filter_map(Mounted::of).collect())
}

/// Where the volume is mounted.
///
/// # Errors
/// As for [`all`].
pub fn of_volume(volume: &Path) -> io::Result<Option<Mounted>> {
    let volume = fs::canonicalize(volume)?;
    Ok(all()?.into_iter().rfind(|mounted| mounted.volume == volume))
}

/// Whether a process serves the mount, as far as this user may know. Waits for that process: to be asked only where nothing else tells.
pub(crate) fn answers(mountpoint: &Path) -> bool {
    // The attributes of its root the kernel knows, whether anybody serves it or not.
    !matches!(rustix::fs::statfs(mountpoint), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Whatever is mounted exactly on `path`, which must be as [`resolve`] gives it.
pub(crate) fn anything_on(path: &Path) -> io::Result<Option<forebay_fuse::Mounted>> {
    Ok(mount_table()?.into_iter().rfind(|mounted| mounted.path == path))
}

/// The mount of a volume that a person means by `place`: where it is mounted, or the volume itself, or its URL as it was given to the mount.
pub(crate) fn meant(place: &Path) -> Result<Option<Mounted>, CliError> {
    let failed = |error| CliError::io("look at", place)(error);
    if SharedUrl::is_one(place) {
        let all = all().map_err(failed)?;
        return Ok(all.into_iter().rfind(|mounted| mounted.volume == place));
    }
    match on(place).map_err(failed)? {
        Some(mounted) => Ok(Some(mounted)),
        None => of_volume(place).map_err(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_mounts_are_not_ours() {
        assert_eq!(on(Path::new("/proc")).unwrap(), None);
        assert_eq!(anything_on(Path::new("/proc")).unwrap().unwrap().fstype, "proc");
        assert!(on(Path::new("/no/such/place")).is_err());
        let mounted = |fstype: &str| forebay_fuse::Mounted {
            device: (0, 98),
            path: "/mnt/a b".into(),
            fstype: fstype.to_owned(),
            source: "/srv/my volume".into(),
            uid: 1000,
        };
        let ours = Mounted { volume: "/srv/my volume".into(), mountpoint: "/mnt/a b".into(), uid: 1000 };
        assert_eq!(Mounted::of(mounted("fuse.forebay")), Some(ours));
        assert_eq!(Mounted::of(mounted("fuse.forebay-null")), None);
    }
}
