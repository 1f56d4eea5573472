//! Error numbers as the kernel understands them.

use std::fmt;

/// An error number, always in `1..=999`, as the kernel accepts it in a reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident $doc:literal,)*) => {
        impl Errno {
            $(#[doc = $doc] pub const $name: Errno = Errno(libc::$name);)*

            /// The symbolic name, or `"errno"` for one that has no constant here.
            pub fn name(self) -> &'static str {
                match self.0 {
                    $(libc::$name => stringify!($name),)*
                    _ => "errno",
                }
            }
        }
    };
}

errnos! {
    E2BIG "Too large for what was asked.",
    EACCES "Permission denied by mode or ACL.",
    EAGAIN "Would block.",
    EBADF "No such open file.",
    EBUSY "In use.",
    ECONNABORTED "The connection was aborted.",
    ECONNREFUSED "The other side refused.",
    ECONNRESET "The other side went away.",
    EDEADLK "Waiting for this lock would deadlock.",
    EDOM "Out of the function's domain.",
    EDQUOT "Quota exceeded.",
    EEXIST "The name exists.",
    EFBIG "The file would grow too large.",
    EHOSTUNREACH "The host cannot be reached.",
    EILSEQ "The bytes are no valid sequence.",
    EINTR "Interrupted by a signal.",
    EINVAL "Invalid argument.",
    EIO "Input or output failed.",
    EISDIR "Is a directory.",
    ELOOP "Too many symbolic links.",
    EMFILE "Too many open files in the process.",
    EMLINK "Too many links.",
    ENAMETOOLONG "The name is too long.",
    ENFILE "Too many open files in the system.",
    ENODATA "No such extended attribute.",
    ENODEV "No such device.",
    ENOENT "No such name.",
    ENOLCK "No lock available.",
    ENOMEM "Out of memory.",
    ENOSPC "No space left.",
    ENOSYS "Not implemented; the kernel asks no more and uses its default.",
    ENOTCONN "Not connected.",
    ENOTDIR "Not a directory.",
    ENOTEMPTY "The directory is not empty.",
    ENOTSUP "Not supported.",
    ENOTTY "No such ioctl here.",
    ENXIO "Beyond the end, or no such device.",
    EOVERFLOW "The value does not fit.",
    EPERM "Not permitted.",
    EPIPE "The pipe is broken.",
    EPROTO "The protocol was violated.",
    ERANGE "The result does not fit the buffer.",
    EROFS "Read-only.",
    ESHUTDOWN "Shut down.",
    ESPIPE "Not seekable.",
    ESRCH "No such process.",
    ESTALE "The handle is stale.",
    ETIMEDOUT "Timed out.",
    ETXTBSY "The program is running.",
    EUCLEAN "The stored structure is damaged.",
    EXDEV "Crosses file systems.",
}

impl Errno {
    /// From a raw number; one outside `1..=999`, which the kernel would not accept, becomes `EIO`.
    pub const fn from_raw(raw: i32) -> Errno {
        if raw >= 1 && raw <= 999 { Errno(raw) } else { Errno::EIO }
    }

    /// The positive number.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), rustix::io::Errno::from_raw_os_error(self.0))
    }
}

impl std::error::Error for Errno {}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno::from_raw(error.raw_os_error())
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Errno {
        error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
    }
}
