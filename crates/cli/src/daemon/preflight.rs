//! What can be refused before anything is changed.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use forebay_fuse::MountError;
use forebay_object::StoreUrl;
use forebay_volume::{ASSEMBLED_MIN, VolumeConfig, VolumePaths};
use rustix::{fs::Access, io::Errno, process::geteuid};

use crate::{
    args::MountArgs,
    control::{Client, ControlError},
    error::CliError,
    mount_options::MountFlags,
    mounts,
    passthrough::{Passthrough, Wish},
    size::ByteSize,
};

const DEVICE: &str = "/dev/fuse";
pub(super) const CACHE_SIZE_DEFAULT: ByteSize = ByteSize(10 << 30);
pub(super) const CACHE_SIZE_MIN: ByteSize = ByteSize(16 << 20);
/// The bit of CAP_SYS_ADMIN in a set of capabilities.
const CAP_SYS_ADMIN: u32 = 21;

/// A mount that nothing speaks against so far. All paths are absolute.
#[derive(Debug)]
pub(crate) struct Setup {
    /// The volume's directory, free of symlinks.
    pub(crate) volume: PathBuf,
    pub(crate) config: VolumeConfig,
    /// Free of symlinks.
    pub(crate) mountpoint: PathBuf,
    pub(crate) flags: MountFlags,
    /// The same as it was asked for.
    pub(crate) options: Vec<String>,
    pub(crate) cache_dir: Option<PathBuf>,
    pub(crate) cache_size: ByteSize,
    pub(crate) passthrough: Passthrough,
    pub(crate) metrics: Option<SocketAddr>,
    /// The log that was asked for.
    pub(crate) log: Option<PathBuf>,
}

/// Looks at everything that a mount needs. Changes nothing, but for making a cache directory that was asked for.
pub(crate) fn check(args: &MountArgs) -> Result<Setup, CliError> {
    let flags = MountFlags::parse(&args.options).map_err(CliError::Usage)?;
    let cache_size = args.cache_size.or(flags.cache_size).unwrap_or(CACHE_SIZE_DEFAULT);
    enough_cache(cache_size)?;
    let (Some(named), place) = args.named() else {
        let message = "one of <VOLUME> <MOUNTPOINT> is missing; `forebay mount --help` tells more";
        return Err(CliError::Usage(message.to_owned()));
    };
    let config = VolumeConfig::read(named)?;
    if flags.passthrough_dir.is_some() {
        let message =
            "passthrough_dir is for shared volumes; elsewhere such files are beside the cache: --cache-dir";
        return Err(CliError::Usage(message.to_owned()));
    }
    let passthrough = passthrough(args, &flags, &config, cache_size)?;
    let volume = fs::canonicalize(named).map_err(CliError::io("find", named))?;
    let mountpoint = mount_point(place)?;
    may_mount(&mountpoint)?;
    let absolute = |path: Option<PathBuf>| path.map(|path| absolute(&path)).transpose();
    let cache_dir = absolute(args.cache_dir.clone().or_else(|| flags.cache_dir.clone()))?;
    let log = absolute(args.log.clone().or_else(|| flags.log.clone()))?;
    let store = config.store_url(&VolumePaths::new(&volume))?;
    let mut needed = vec![("volume", volume.clone())];
    needed.extend(cache_dir.clone().map(|dir| ("cache directory", dir)));
    needed.extend(log.clone().map(|file| ("log", file)));
    if let StoreUrl::File(dir) = &store {
        needed.push(("store", dir.clone()));
    }
    apart(&mountpoint, &volume, &needed)?;
    if let Some(dir) = &cache_dir {
        usable_cache(dir)?;
    }
    let metrics = args.metrics.or(flags.metrics);
    let options = args.options.clone();
    Ok(Setup { volume, config, mountpoint, flags, options, cache_dir, cache_size, passthrough, metrics, log })
}

/// Looks at what a process needs that takes over a mount which was made with these arguments. All paths are absolute.
pub(crate) fn check_takeover(args: &MountArgs) -> Result<Setup, CliError> {
    let flags = MountFlags::parse(&args.options).map_err(CliError::Usage)?;
    let (volume, mountpoint) = args.named();
    let volume = volume.unwrap_or(Path::new("")).to_owned();
    let config = VolumeConfig::read(&volume)?;
    let cache_size = args.cache_size.unwrap_or(CACHE_SIZE_DEFAULT);
    let passthrough = passthrough(args, &flags, &config, cache_size)?;
    Ok(Setup {
        config,
        volume,
        mountpoint: mountpoint.to_owned(),
        flags,
        options: args.options.clone(),
        cache_dir: args.cache_dir.clone(),
        cache_size,
        passthrough,
        metrics: args.metrics,
        log: args.log.clone(),
    })
}

/// Refuses a cache that is too small to be of use.
pub(super) fn enough_cache(size: ByteSize) -> Result<(), CliError> {
    match size < CACHE_SIZE_MIN {
        true => Err(CliError::Usage(format!(
            "a cache of {} bytes is too small: give at least 16MiB (--cache-size)",
            size.0
        ))),
        false => Ok(()),
    }
}

/// What the kernel may read by itself.
fn passthrough(
    args: &MountArgs,
    flags: &MountFlags,
    config: &VolumeConfig,
    cache_size: ByteSize,
) -> Result<Passthrough, CliError> {
    let wish = Wish {
        size: args.passthrough_size.or(flags.passthrough_size),
        min: flags.passthrough_min.unwrap_or(ByteSize(ASSEMBLED_MIN)),
        plaintext: args.passthrough_plaintext || flags.passthrough_plaintext,
        read_only: flags.read_only,
        cache_size,
    };
    Passthrough::new(&wish, config, forebay_fuse::may_pass_through())
}

pub(super) fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(CliError::io("find", path))
}

/// The mount point: there, a directory, and not in use by another file system of this kind.
pub(super) fn mount_point(path: &Path) -> Result<PathBuf, CliError> {
    let failed = |error: io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => MountError::NoMountPoint(path.to_owned()),
        Some(Errno::NOTDIR) => MountError::NotADirectory(path.to_owned()),
        Some(Errno::NOTCONN) => MountError::Stale(path.to_owned()),
        _ => MountError::MountPoint { path: path.to_owned(), error },
    };
    let resolved = forebay_fuse::resolve(path).map_err(failed)?;
    // Before anything that the server of a mount, which may hang, would have to answer.
    let taken = mounts::anything_on(&resolved).map_err(failed)?.filter(forebay_fuse::Mounted::is_fuse);
    match (taken, fs::metadata(&resolved)) {
        (Some(_), _) if has_died(&resolved).map_err(failed)? => Err(MountError::Stale(resolved).into()),
        (Some(taken), _) => {
            let message = format!(
                "mount point '{}' is busy: '{}' is mounted there; unmount it first, or choose another directory",
                resolved.display(),
                taken.source.display()
            );
            Err(CliError::Told(message))
        }
        (None, Err(error)) => Err(failed(error).into()),
        (None, Ok(found)) if found.is_dir() => Ok(resolved),
        (None, Ok(_)) => Err(MountError::NotADirectory(path.to_owned()).into()),
    }
}

/// Whether the process behind the FUSE mount there is gone. Of a volume's it is asked by its socket first: one that hangs is not waited for.
fn has_died(mountpoint: &Path) -> io::Result<bool> {
    let Some(mounted) = mounts::on(mountpoint)? else { return Ok(!mounts::answers(mountpoint)) };
    let gone = matches!(Client::of_mount(&mounted), Err(ControlError::Gone(_)));
    Ok(gone && !mounts::answers(mountpoint))
}

/// The kernel's device is there, and this process may mount.
pub(super) fn may_mount(mountpoint: &Path) -> Result<(), CliError> {
    if !Path::new(DEVICE).exists() {
        return Err(MountError::NoDevice.into());
    }
    if !geteuid().is_root() {
        return may_ask_for_mount(mountpoint);
    }
    if let Err(error) = File::options().read(true).write(true).open(DEVICE) {
        return Err(match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => MountError::NoDevice,
            Some(Errno::ACCESS | Errno::PERM) => MountError::DeviceForbidden,
            _ => MountError::Device(error),
        }
        .into());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    match effective {
        Some(set) if set >> CAP_SYS_ADMIN & 1 == 0 => {
            Err(MountError::Forbidden(mountpoint.to_owned()).into())
        }
        _ => Ok(()),
    }
}

/// What `fusermount3` needs to mount for a user other than root: itself, the device, and a directory of the user's.
fn may_ask_for_mount(mountpoint: &Path) -> Result<(), CliError> {
    if !on_path("fusermount3") {
        return Err(MountError::NoHelper.into());
    }
    if rustix::fs::access(DEVICE, Access::READ_OK | Access::WRITE_OK).is_err() {
        return Err(MountError::DeviceForbidden.into());
    }
    rustix::fs::access(mountpoint, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|_| MountError::NotWritable(mountpoint.to_owned()).into())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsStr::new("/usr/bin:/bin").to_owned());
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// Nothing that the mount needs may be hidden below it, and it may not lie in the volume's own files.
fn apart(mountpoint: &Path, volume: &Path, needed: &[(&str, PathBuf)]) -> Result<(), CliError> {
    if mountpoint.starts_with(volume) {
        let message = format!(
            "mount point '{}' is inside the volume's own directory '{}'; choose another",
            mountpoint.display(),
            volume.display()
        );
        return Err(CliError::Told(message));
    }
    match needed.iter().find(|(_, path)| path.starts_with(mountpoint)) {
        None => Ok(()),
        Some((what, path)) => {
            let message = format!(
                "mount point '{}' would hide the {what} '{}', which is needed; choose another",
                mountpoint.display(),
                path.display()
            );
            Err(CliError::Told(message))
        }
    }
}

pub(super) fn usable_cache(dir: &Path) -> Result<(), CliError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(CliError::io("make the cache directory", dir))?;
    rustix::fs::access(dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| CliError::io("use the cache directory", dir)(error.into()))
}
