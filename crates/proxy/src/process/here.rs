//! A socket for clients of this machine, whom no network is between. Without one they reach the proxy like everybody else.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt},
    os::unix::net::UnixStream,
    path::Path,
};

use forebay_group::MemberId;
use forebay_protocol::group::{here_directories, here_socket};
use forebay_rpc::Address;
use rustix::process::geteuid;

/// Bytes of a socket's name at most (unix(7)).
const ADDRESS_MAX: usize = 107;

/// All addresses to listen at: those that were asked for, and the socket, as far as there can be one.
pub(super) fn with_socket(asked: &[Address], member: MemberId) -> Vec<Address> {
    let mut addresses = asked.to_vec();
    let uid = geteuid().as_raw();
    for dir in here_directories(uid) {
        let socket = here_socket(&dir, member);
        match usable(&dir, &socket, uid) {
            Ok(()) => {
                addresses.push(Address::Unix(socket));
                return addresses;
            }
            Err(error) => tracing::info!(
                "clients of this machine do not reach the proxy by '{}': {error}",
                socket.display()
            ),
        }
    }
    addresses
}

/// Makes the directory, if it is missing, and looks whether the name is free or a dead process's.
fn usable(dir: &Path, socket: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if socket.as_os_str().len() > ADDRESS_MAX {
        return Err(io::Error::other("the name is too long for a socket"));
    }
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o022 != 0 {
        return Err(io::Error::other("its directory is not this user's alone"));
    }
    match fs::symlink_metadata(socket) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if !found.file_type().is_socket() => Err(io::Error::other("something else has that name")),
        // The lock on the directory keeps out all who are this member, but for those with a copy of it.
        Ok(_) => match UnixStream::connect(socket) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::other("another process with this member's identity listens there")),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::PermissionsExt, net::UnixListener};

    use super::*;

    #[test]
    fn a_name_is_taken_that_is_free_or_of_the_dead_in_a_directory_of_ones_own() {
        let place = tempfile::tempdir().unwrap();
        let (dir, uid) = (place.path().join("here"), geteuid().as_raw());
        let socket = here_socket(&dir, MemberId([7; 16]));
        usable(&dir, &socket, uid).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(usable(&dir, &socket, uid).unwrap_err().to_string().contains("another process"));
        drop(listener);
        usable(&dir, &socket, uid).unwrap();
        fs::remove_file(&socket).unwrap();
        fs::write(&socket, "x").unwrap();
        assert!(usable(&dir, &socket, uid).unwrap_err().to_string().contains("something else"));
        fs::remove_file(&socket).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(usable(&dir, &socket, uid).unwrap_err().to_string().contains("alone"));
        assert!(usable(&dir, &socket, uid + 1).is_err());
    }
}
