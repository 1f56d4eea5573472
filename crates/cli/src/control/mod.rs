//! How commands reach the process behind a mount.
//!
//! A Unix socket in a directory that only its user can enter: `/run/forebay` for root, else `forebay` in the user's runtime directory,
//! else `/tmp/forebay-UID`. Where `XDG_RUNTIME_DIR` puts it elsewhere, a link to it is in one of these, because another shell of the user,
//! or root, may have another `XDG_RUNTIME_DIR` or none. Its name is the volume's id and a hash of its path, because a copied volume has the
//! same id; of a shared volume's mount a hash of its URL and mount point. The request is one line of words; the answer is lines of JSON, each an object: any number with `progress`, then one with `ok` or
//! `error`, the last.
//!
//! | request | answer |
//! | --- | --- |
//! | `status` | what `forebay status --json` prints |
//! | `stats` | counters since the mount |
//! | `settle` | merges the files of the metadata engine, for measuring |
//! | `chill` | empties the caches, and says in words which |
//! | `drain` | progress, then what is left |
//! | `fsck [quick]` | progress, then the report |
//! | `gc [dry-run]` | progress, then what there was, what is left, and what nothing named |
//! | `warm [group] [here]` | in both directions, until the asking side ends its own: see `daemon/warm.rs` |
//! | `stop [lazy] [no-drain]` | unmounts; progress of the drain, then what is left; the process then ends |
//! | `settings` | what the mount was started with |
//! | `takeover VERSION` | see `docs/design/takeover.md` |
//! | `hurry` | a drain that ends the process is given up; what is left stays on the local disk |

mod client;

use std::{
    fs::{self, DirBuilder},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, MetadataExt, symlink},
    },
    path::{Path, PathBuf},
};

use forebay_volume::{VolumeConfig, fsck};
use rustix::{
    fs::{Mode, OFlags},
    process::geteuid,
};
use serde::{Deserialize, Serialize};

pub use client::{Client, ControlError};

/// Calls `work` with a path of the socket that fits into an address, which has room for 107 bytes (unix(7)): `socket` itself, or
/// where that is longer, a way by its open directory.
pub(crate) fn reach<T>(socket: &Path, work: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    const ADDRESS_MAX: usize = 107;
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return work(socket.to_owned());
    };
    if socket.as_os_str().len() <= ADDRESS_MAX {
        return work(socket.to_owned());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::open(dir, flags, Mode::empty())?;
    work(Path::new("/proc/self/fd").join(open.as_raw_fd().to_string()).join(name))
}

/// How far a drain is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// Raw bytes in use that the store does not have yet.
    pub dirty_bytes: u64,
}

/// How far a check is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// What is counted.
    pub what: String,
    /// So many.
    pub done: u64,
    /// Of so many, where that is known.
    pub total: Option<u64>,
}

impl From<fsck::Progress> for Step {
    fn from(progress: fsck::Progress) -> Step {
        let (what, done, total) = match progress {
            fsck::Progress::Rows(done) => ("rows of metadata", done, None),
            fsck::Progress::Inodes(done) => ("inodes", done, None),
            fsck::Progress::Objects { done, total } => ("objects", done, Some(total)),
            fsck::Progress::Data { done, total } => ("bytes of data", done, Some(total)),
        };
        Step { what: what.to_owned(), done, total }
    }
}

/// What a drain or a stop left.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Left {
    /// Raw bytes in use that the store does not have. They are durable on the local disk.
    pub dirty_bytes: u64,
    /// Why they are not there; `None` where nobody waited for it, or nothing is left.
    pub error: Option<String>,
    /// The name is free, but files are still open: the process ends when they are closed.
    #[serde(default)]
    pub detached: bool,
    /// Closing failed: what was not synced before may be lost.
    #[serde(default)]
    pub close_error: Option<String>,
}

/// The name of a volume's socket.
#[must_use]
pub fn socket_name(volume: &Path, config: &VolumeConfig) -> String {
    let path = volume.as_os_str().as_encoded_bytes();
    let hash =
        path.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("{}-{hash:08x}.sock", config.id)
}

/// The name of the socket of a shared volume's mount: each mount has a process of its own.
#[must_use]
pub(crate) fn shared_socket_name(source: &Path, mountpoint: &Path) -> String {
    let bytes = [source.as_os_str().as_encoded_bytes(), b"\0", mountpoint.as_os_str().as_encoded_bytes()];
    let hash = bytes.concat().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("shared-{hash:016x}.sock")
}

/// The directories where the socket of a process of user `uid` is looked for, in this order.
#[must_use]
pub fn runtime_dirs(uid: u32) -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = own_choice(uid).into_iter().collect();
    dirs.extend(known_dirs(uid));
    dirs
}

/// `forebay` in `XDG_RUNTIME_DIR`, for processes of this user other than root.
fn own_choice(uid: u32) -> Option<PathBuf> {
    let chosen = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| uid != 0 && uid == geteuid().as_raw())?;
    Some(PathBuf::from(chosen)).filter(|dir| dir.is_absolute()).map(|dir| dir.join("forebay"))
}

/// The directories that everybody knows, whatever the environment.
fn known_dirs(uid: u32) -> Vec<PathBuf> {
    let shared = PathBuf::from(format!("/tmp/forebay-{uid}"));
    match uid {
        0 => vec![PathBuf::from("/run/forebay"), shared],
        _ => vec![PathBuf::from(format!("/run/user/{uid}/forebay")), shared],
    }
}

/// The directory for sockets of this user, made if it is missing. Only this user can enter it.
pub(crate) fn own_runtime_dir() -> io::Result<PathBuf> {
    let uid = geteuid().as_raw();
    first_private(&runtime_dirs(uid), uid)
}

/// Makes `socket` known where commands look that have another environment; gives the link, if one was needed.
pub(crate) fn announce(socket: &Path) -> io::Result<Option<PathBuf>> {
    let uid = geteuid().as_raw();
    let known = known_dirs(uid);
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else { return Ok(None) };
    if known.iter().any(|known| known == dir) {
        return Ok(None);
    }
    let link = first_private(&known, uid)?.join(name);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(socket, &link)?;
    Ok(Some(link))
}

fn first_private(dirs: &[PathBuf], uid: u32) -> io::Result<PathBuf> {
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for dir in dirs {
        match make_private(dir, uid) {
            Ok(()) => return Ok(dir.clone()),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn make_private(dir: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(dir)?;
    if !found.is_dir() || found.uid() != uid || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a directory of this user's own",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_may_be_deeper_than_an_address_is_long() {
        let dir = tempfile::tempdir().unwrap();
        for depth in ["short".to_owned(), "d".repeat(200)] {
            let socket = dir.path().join(depth).join("volume.sock");
            fs::create_dir(socket.parent().unwrap()).unwrap();
            let listener = reach(&socket, UnixListener::bind).unwrap();
            reach(&socket, UnixStream::connect).unwrap();
            listener.accept().unwrap();
            assert!(socket.exists());
        }
    }
}
