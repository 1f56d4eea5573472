//! Descriptors that a process has from the one that started it.
#![allow(unsafe_code)]

use rustix::io::Errno as Os;

/// Closes all descriptors but standard input, output and error. To be called before this process has opened any: one that a shell happened to leave
/// open may be of a file of the mount that the process is to serve, which would be in use as long as it is served, and whose closing would be
/// a request to itself. Where the kernel cannot do it (before Linux 5.9) they stay.
pub fn close_inherited() {
    // SAFETY: no memory is involved, and nobody in this process owns a descriptor yet that could be closed under it.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if result == -1 {
        let error = Os::from_io_error(&std::io::Error::last_os_error());
        tracing::debug!("inherited descriptors stay open: {error:?}");
    }
}
