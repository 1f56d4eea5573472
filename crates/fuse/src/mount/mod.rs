//! Attaching the file system to a directory and taking it off again.
//!
//! Root mounts with `mount(2)`; others ask the setuid `fusermount3`, which opens the device for them and sends it over a
//! socket.

mod direct;
mod fusermount;
mod table;

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno as Os;
use rustix::mount::UnmountFlags;

use crate::device::{self, Device};

pub(crate) use table::find;
pub use table::{Mounted, mount_table};

/// How to mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountOptions {
    /// What is mounted, as `df` and `/proc/mounts` show it.
    pub fsname: String,
    /// The file system's type after `fuse.`.
    pub subtype: String,
    /// The kernel checks permissions by mode and owner (and ACL, if agreed).
    pub default_permissions: bool,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// Read-only.
    pub read_only: bool,
    /// Access times are not kept.
    pub noatime: bool,
    /// Set-id bits have no effect. Always so when not mounted by root.
    pub nosuid: bool,
    /// Device files have no effect. Always so when not mounted by root.
    pub nodev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            fsname: "forebay".to_owned(),
            subtype: "forebay".to_owned(),
            default_permissions: true,
            allow_other: false,
            read_only: false,
            noatime: false,
            nosuid: true,
            nodev: true,
            noexec: false,
        }
    }
}

/// Why a file system was not mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel has no FUSE, or the container hides it.
    #[error(
        "there is no /dev/fuse: load the kernel module (modprobe fuse), or give the container the device (--device /dev/fuse)"
    )]
    NoDevice,
    /// The device may not be opened. `fusermount3` opens it with the rights of the user who calls it.
    #[error(
        "no permission to open /dev/fuse: let everybody open it, as is usual (chmod 666 /dev/fuse), or run as root"
    )]
    DeviceForbidden,
    /// The device cannot be opened for another reason.
    #[error("cannot open /dev/fuse: {0}")]
    Device(#[source] io::Error),
    /// The mount point is not there.
    #[error("mount point {} does not exist: create the directory first", .0.display())]
    NoMountPoint(PathBuf),
    /// The mount point is no directory.
    #[error("mount point {} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// The mount point cannot be looked at.
    #[error("cannot look at mount point {}: {error}", path.display())]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A file system of this kind is mounted there already.
    #[error("{} is already a mount point of {fsname}: unmount it first, or choose another directory", path.display())]
    AlreadyMounted {
        /// The mount point.
        path: PathBuf,
        /// What is mounted there.
        fsname: String,
    },
    /// A FUSE file system is mounted there whose server is gone.
    #[error("{path} is a mount whose server has died: detach it first (umount -l {path})", path = .0.display())]
    Stale(PathBuf),
    /// The kernel says that it is in use.
    #[error("mount point {} is busy", .0.display())]
    Busy(PathBuf),
    /// The kernel refused.
    #[error("no permission to mount on {}: root (CAP_SYS_ADMIN) or fusermount3 is needed", .0.display())]
    Forbidden(PathBuf),
    /// The system call failed otherwise.
    #[error("cannot mount on {}: {error}", path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A user other than root may not write to the mount point.
    #[error(
        "no permission to mount on {}: users other than root mount on directories that they may write to; choose one of your own",
        .0.display()
    )]
    NotWritable(PathBuf),
    /// fusermount3 is not there.
    #[error(
        "fusermount3, which mounts for users other than root, is not installed: install Debian package fuse3, or run as root"
    )]
    NoHelper,
    /// fusermount3 cannot be run.
    #[error("cannot run fusermount3, which mounts for users other than root: {0}")]
    HelperFailed(#[source] io::Error),
    /// fusermount3 refused.
    #[error("fusermount3 refused to mount on {}: {message}", path.display())]
    Helper {
        /// The mount point.
        path: PathBuf,
        /// What it said.
        message: String,
    },
}

/// Why a file system was not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum UnmountError {
    /// Nothing, or no FUSE file system, is mounted there.
    #[error("no FUSE file system is mounted on {}", .0.display())]
    NotMounted(PathBuf),
    /// Open files, working directories or mounts are below it.
    #[error(
        "{path} is in use: close what is open below it (fuser -vm {path} tells), or detach it lazily",
        path = .0.display()
    )]
    Busy(PathBuf),
    /// Not allowed.
    #[error("no permission to unmount {}: {reason}", path.display())]
    Forbidden {
        /// The mount point.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The system call failed otherwise.
    #[error("cannot unmount {}: {error}", path.display())]
    Other {
        /// The mount point.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// Checks the mount point, mounts, and yields the connection, the resolved path and what the mount table says of it.
pub(crate) fn attach(path: &Path, options: &MountOptions) -> Result<(Device, PathBuf), MountError> {
    let path = check(path, options)?;
    let device = if rustix::process::geteuid().is_root() {
        direct::mount(&path, options)?
    } else {
        fusermount::mount(&path, options)?
    };
    Ok((device, path))
}

fn open_device() -> Result<Device, MountError> {
    Device::open().map_err(|error| match error {
        Os::NOENT | Os::NODEV | Os::NXIO => MountError::NoDevice,
        Os::ACCESS | Os::PERM => MountError::DeviceForbidden,
        error => MountError::Device(error.into()),
    })
}

fn check(path: &Path, options: &MountOptions) -> Result<PathBuf, MountError> {
    if !Path::new(device::PATH).exists() {
        return Err(MountError::NoDevice);
    }
    let failed = |error: io::Error| match error.raw_os_error().map(Os::from_raw_os_error) {
        Some(Os::NOENT) => MountError::NoMountPoint(path.to_owned()),
        Some(Os::NOTDIR) => MountError::NotADirectory(path.to_owned()),
        Some(Os::NOTCONN) => MountError::Stale(path.to_owned()),
        _ => MountError::MountPoint { path: path.to_owned(), error },
    };
    let resolved = resolve(path).map_err(failed)?;
    // Before anything that its server, which may hang, would have to answer.
    let ours = format!("fuse.{}", options.subtype);
    match find(&resolved).map_err(failed)? {
        Some(mounted) if mounted.fstype == ours => {
            return Err(MountError::AlreadyMounted {
                path: resolved,
                fsname: mounted.source.display().to_string(),
            });
        }
        _ => {}
    }
    if std::fs::metadata(&resolved).map_err(failed)?.is_dir() {
        Ok(resolved)
    } else {
        Err(MountError::NotADirectory(path.to_owned()))
    }
}

/// The path as the mount table has it: absolute and free of symlinks. Works also where the server of a mount on it is gone.
///
/// # Errors
/// The path, or its parent, cannot be looked at.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            let absolute = std::path::absolute(path)?;
            match (absolute.parent(), absolute.file_name()) {
                (Some(parent), Some(name)) => Ok(std::fs::canonicalize(parent)?.join(name)),
                _ => Err(error),
            }
        }
        other => other,
    }
}

/// Whether a FUSE file system is mounted exactly on `path`, alive or not. A path that does not exist is no mount.
pub fn is_mounted(path: &Path) -> io::Result<bool> {
    let resolved = match resolve(path) {
        Ok(resolved) => resolved,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(find(&resolved)?.is_some_and(|mounted| mounted.is_fuse()))
}

/// Unmounts the FUSE file system on `path`. Not lazily, it fails with [`UnmountError::Busy`] while anything is open; lazily,
/// the name is free at once and the session ends when the last user has closed.
///
/// Returns when the kernel has let go, which is before [`crate::Session::run`] has returned.
pub fn unmount(path: &Path, lazy: bool) -> Result<(), UnmountError> {
    let other = |error: io::Error| UnmountError::Other { path: path.to_owned(), error };
    let resolved = match resolve(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(UnmountError::NotMounted(path.to_owned()));
        }
        resolved => resolved.map_err(other)?,
    };
    if !find(&resolved).map_err(other)?.is_some_and(|mounted| mounted.is_fuse()) {
        return Err(UnmountError::NotMounted(resolved));
    }
    let flags = UnmountFlags::NOFOLLOW | if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(&resolved, flags) {
        Ok(()) => Ok(()),
        Err(Os::BUSY) => Err(UnmountError::Busy(resolved)),
        Err(Os::INVAL) => Err(UnmountError::NotMounted(resolved)),
        Err(Os::PERM) => fusermount::unmount(&resolved, lazy),
        Err(error) => Err(UnmountError::Other { path: resolved, error: error.into() }),
    }
}
