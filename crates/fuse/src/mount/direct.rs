//! Mounting by system call.

use std::ffi::CString;
use std::path::Path;

use rustix::io::Errno as Os;
use rustix::mount::MountFlags;

use super::{MountError, MountOptions, open_device};
use crate::device::Device;

pub(super) fn mount(path: &Path, options: &MountOptions) -> Result<Device, MountError> {
    let device = open_device()?;
    let other = |error: Os| MountError::Mount { path: path.to_owned(), error: error.into() };
    // 40000 is the type "directory" in octal, as the kernel reads it.
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.raw(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    for (set, option) in
        [(options.default_permissions, ",default_permissions"), (options.allow_other, ",allow_other")]
    {
        if set {
            data.push_str(option);
        }
    }
    let mut flags = MountFlags::empty();
    for (set, flag) in [
        (options.read_only, MountFlags::RDONLY),
        (options.noatime, MountFlags::NOATIME),
        (options.nosuid, MountFlags::NOSUID),
        (options.nodev, MountFlags::NODEV),
        (options.noexec, MountFlags::NOEXEC),
    ] {
        flags.set(flag, set);
    }
    let data = CString::new(data).map_err(|_| other(Os::INVAL))?;
    let fstype = format!("fuse.{}", options.subtype);
    rustix::mount::mount(options.fsname.as_str(), path, fstype.as_str(), flags, Some(data.as_c_str()))
        .map_err(|error| match error {
            Os::BUSY => MountError::Busy(path.to_owned()),
            Os::PERM | Os::ACCESS => MountError::Forbidden(path.to_owned()),
            Os::NODEV => MountError::NoDevice,
            Os::NOTDIR => MountError::NotADirectory(path.to_owned()),
            Os::NOENT => MountError::NoMountPoint(path.to_owned()),
            error => other(error),
        })?;
    Ok(device)
}
