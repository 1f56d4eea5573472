//! Mounting by `fusermount3`, for users other than root.

use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use super::{MountError, MountOptions, UnmountError};
use crate::device::Device;

const HELPER: &str = "fusermount3";

pub(super) fn mount(path: &Path, options: &MountOptions) -> Result<Device, MountError> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| MountError::HelperFailed(error.into()))?;
    // The socket goes as standard input: no descriptor has to be made inheritable.
    let mut child = Command::new(HELPER)
        .arg("-o")
        .arg(option_list(options))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => MountError::NoHelper,
            _ => MountError::HelperFailed(error),
        })?;
    let received = receive(&ours);
    let mut message = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What cannot be read of an error message is left out of it.
        let _ = stderr.read_to_string(&mut message);
    }
    let status = child.wait().map_err(MountError::HelperFailed)?;
    match received {
        Ok(Some(fd)) if status.success() => Ok(Device::from_fd(fd)),
        Err(error) if status.success() => Err(MountError::HelperFailed(error)),
        _ => {
            let message = message.trim();
            let message = if message.is_empty() { format!("{status}") } else { message.to_owned() };
            Err(MountError::Helper { path: path.to_owned(), message })
        }
    }
}

fn option_list(options: &MountOptions) -> String {
    let escape = |value: &str| value.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("fsname={},subtype={}", escape(&options.fsname), escape(&options.subtype));
    for (set, option) in [
        (options.default_permissions, ",default_permissions"),
        (options.allow_other, ",allow_other"),
        (options.read_only, ",ro"),
        (options.noatime, ",noatime"),
        (options.nosuid, ",nosuid"),
        (options.nodev, ",nodev"),
        (options.noexec, ",noexec"),
    ] {
        if set {
            list.push_str(option);
        }
    }
    list
}

/// The descriptor that the helper sends; none if it ends without.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    loop {
        let parts = &mut [IoSliceMut::new(&mut byte)];
        match recvmsg(socket, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

pub(super) fn unmount(path: &Path, lazy: bool) -> Result<(), UnmountError> {
    let forbidden = |reason: String| UnmountError::Forbidden { path: path.to_owned(), reason };
    let output = Command::new(HELPER)
        .args(if lazy { &["-u", "-z"][..] } else { &["-u"][..] })
        .arg("--")
        .arg(path)
        .output()
        .map_err(|error| forbidden(format!("root or {HELPER} is needed ({error})")))?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    match message.contains("busy") {
        true => Err(UnmountError::Busy(path.to_owned())),
        false => Err(forbidden(message.trim().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::{find, unmount as unmount_path};

    #[test]
    fn names_with_commas_are_escaped() {
        let options = MountOptions { fsname: r"a,b\c".to_owned(), ..MountOptions::default() };
        let list = option_list(&options);
        assert_eq!(list, r"fsname=a\,b\\c,subtype=forebay,default_permissions,nosuid,nodev");
    }

    #[test]
    fn the_helper_sends_a_device_and_says_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        let device = mount(&path, &MountOptions::default()).unwrap();
        assert_eq!(find(&path).unwrap().unwrap().fstype, "fuse.forebay");
        // Nobody serves it: with the device closed, nothing can hang on it.
        drop(device);
        unmount_path(&path, true).unwrap();
        assert!(find(&path).unwrap().is_none());

        let error = mount(Path::new("/nonexistent/place"), &MountOptions::default()).unwrap_err();
        assert!(matches!(&error, MountError::Helper { message, .. } if !message.is_empty()), "{error}");
    }
}
