//! Telling systemd which process serves, where it wants to know (`NOTIFY_SOCKET`, sd_notify(3)).

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
    path::Path,
};

/// Makes this process the main one of its unit. Nobody who wants to know is no error.
pub(super) fn become_main_process() {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = tell(Path::new(&socket), std::process::id()) {
        tracing::warn!("systemd does not learn which process serves now: {error}");
    }
}

fn tell(socket: &Path, process: u32) -> io::Result<()> {
    let address = match socket.as_os_str().as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(format!("MAINPID={process}\n").as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_process_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        tell(&path, 77).unwrap();
        let mut bytes = [0; 64];
        let len = socket.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..len], b"MAINPID=77\n");
        tell(&dir.path().join("nobody"), 77).unwrap_err();
    }
}
