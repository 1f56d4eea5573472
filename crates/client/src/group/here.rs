//! Which members are on this machine: those whose socket is reached. Names of machines say nothing: containers share one, and two machines may have the same.

use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use forebay_group::MemberId;
use forebay_protocol::group::here_socket;
use forebay_rpc::Address;
use rustix::{
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    process::geteuid,
};

/// Where a member is reached without a network, if it is on this machine and serves this user.
pub(super) fn of(dirs: &[PathBuf], member: MemberId) -> Option<Address> {
    let uid = geteuid().as_raw();
    dirs.iter().find_map(|dir| {
        let socket = here_socket(dir, member);
        answers(dir, &socket, uid).then_some(Address::Unix(socket))
    })
}

/// Whether somebody listens there whom this user may trust with a token: the directory is of one user alone, whose socket it is; a proxy serves its own user
/// and root.
fn answers(dir: &Path, socket: &Path, uid: u32) -> bool {
    let (Ok(above), Ok(found)) = (fs::symlink_metadata(dir), fs::symlink_metadata(socket)) else {
        return false;
    };
    let alone = above.is_dir() && above.mode() & 0o022 == 0 && above.uid() == found.uid();
    let trusted = found.file_type().is_socket() && (uid == 0 || found.uid() == uid);
    alone && trusted && connects(socket).is_ok()
}

/// One that is stopped takes connections until its queue is full; then nobody waits for it here.
fn connects(socket: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let own = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&own, &SocketAddrUnix::new(socket)?)?;
    Ok(own)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

    use std::os::unix::{fs::PermissionsExt, net::UnixListener};

    use super::*;

    #[test]
    fn a_member_is_here_whose_socket_is_reached_and_nobody_else_can_have_made_it() {
        let place = tempfile::tempdir().unwrap();
        let dirs = [place.path().join("missing"), place.path().join("here")];
        let dir = &dirs[1];
        fs::create_dir(dir).unwrap();
        let (here, other) = (MemberId([7; 16]), MemberId([8; 16]));
        let socket = here_socket(dir, here);
        let listener = UnixListener::bind(&socket).unwrap();
        assert_eq!(of(&dirs, here), Some(Address::Unix(socket.clone())));
        assert_eq!(of(&dirs, other), None);
        let mode = |bits| fs::set_permissions(dir, fs::Permissions::from_mode(bits)).unwrap();
        mode(0o777);
        assert_eq!(of(&dirs, here), None, "anybody could have made it");
        mode(0o755);
        assert!(!answers(dir, &socket, geteuid().as_raw() + 1), "it serves its own user");
        std::os::unix::fs::symlink(&socket, here_socket(dir, other)).unwrap();
        assert_eq!(of(&dirs, other), None);
        // A process that is stopped takes no connection: where there is no room for more, it is not waited for.
        let (own, mut waiting) = (geteuid().as_raw(), Vec::new());
        while answers(dir, &socket, own) {
            waiting.push(connects(&socket));
            assert!(waiting.len() < 100_000, "its queue is never full");
        }
        drop((listener, waiting));
        assert_eq!(of(&dirs, here), None, "nobody listens");
    }
}
