//! Where proxies of a machine listen for clients of the same machine. Nothing is read or made here.

use std::{
    env,
    path::{Path, PathBuf},
};

use forebay_group::MemberId;

/// The variable that says where, for those who share a `/run` without being one machine, or have another one.
pub const HERE_VARIABLE: &str = "FOREBAY_PROXY_DIR";
/// Where, for proxies that may write there, and everybody.
const RUN: &str = "/run/forebay-proxy";

/// The directories in which proxies of user `uid` put their sockets, and clients of this user look for them: the first one that is there, or can be made, counts for
/// a proxy, all of them for a client.
#[must_use]
pub fn here_directories(uid: u32) -> Vec<PathBuf> {
    match env::var_os(HERE_VARIABLE) {
        Some(chosen) => vec![PathBuf::from(chosen)].into_iter().filter(|dir| dir.is_absolute()).collect(),
        None if uid == 0 => vec![PathBuf::from(RUN)],
        None => vec![PathBuf::from(RUN), PathBuf::from(format!("/run/user/{uid}/forebay-proxy"))],
    }
}

/// The socket of a member in such a directory. A socket is reached from the machine whose kernel has it, and from no other: whoever reaches it is there.
#[must_use]
pub fn here_socket(dir: &Path, member: MemberId) -> PathBuf {
    dir.join(format!("{member}.sock"))
}
