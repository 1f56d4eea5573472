//! File handles, by which a file is opened without its name.
#![allow(unsafe_code)]

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd},
};

const BYTES: usize = 128;

/// The kernel's `struct file_handle`, with room for what it holds.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handle {
    len: u32,
    kind: i32,
    bytes: [u8; BYTES],
}

impl Handle {
    /// Of an open file.
    pub(super) fn of(file: &File) -> Handle {
        let mut handle = Handle { len: BYTES as u32, kind: 0, bytes: [0; BYTES] };
        let mut mount = 0;
        // SAFETY: the name is a string that ends in NUL, and `handle` has the room that it says.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_raw_fd(),
                c"".as_ptr(),
                &raw mut handle,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        handle
    }

    /// Opens it for reading; `root` is of the same mount.
    pub(super) fn open(&self, root: &File) -> io::Result<File> {
        // SAFETY: the kernel only reads the handle; the result is a descriptor of ours, or an error.
        unsafe {
            let fd = libc::syscall(libc::SYS_open_by_handle_at, root.as_raw_fd(), self, libc::O_RDONLY);
            if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd as i32)) }
        }
    }
}
