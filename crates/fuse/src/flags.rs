//! Typed bit sets of the protocol.

macro_rules! bits {
    ($(#[$meta:meta])* $name:ident: $repr:ty { $($(#[$fmeta:meta])* $flag:ident = $value:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name($repr);

        impl $name {
            $($(#[$fmeta])* pub const $flag: $name = $name($value);)*
            /// No bit.
            pub const NONE: $name = $name(0);

            /// From raw bits; unknown ones are kept.
            pub const fn from_bits(bits: $repr) -> $name {
                $name(bits)
            }

            /// The raw bits.
            pub const fn bits(self) -> $repr {
                self.0
            }

            /// The bits of either.
            pub const fn union(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// The bits of both.
            pub const fn intersection(self, other: $name) -> $name {
                $name(self.0 & other.0)
            }

            /// Whether every bit of `other` is set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// These bits less those of `other`.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }

            /// With the bits of `other` set or cleared.
            pub const fn with(self, other: $name, on: bool) -> $name {
                if on { self.union(other) } else { self.without(other) }
            }

            /// Whether no bit is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                self.union(other)
            }
        }

        impl std::ops::BitAnd for $name {
            type Output = $name;
            fn bitand(self, other: $name) -> $name {
                self.intersection(other)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: $name) {
                self.0 |= other.0;
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut left = self.0;
                let mut first = true;
                $(
                    if left & Self::$flag.0 != 0 {
                        f.write_str(if first { "" } else { "|" })?;
                        f.write_str(stringify!($flag))?;
                        left &= !Self::$flag.0;
                        first = false;
                    }
                )*
                match (left, first) {
                    (0, true) => f.write_str("NONE"),
                    (0, false) => Ok(()),
                    (_, true) => write!(f, "{left:#x}"),
                    (_, false) => write!(f, "|{left:#x}"),
                }
            }
        }
    };
}

bits! {
    /// What kernel and server may agree on at INIT: the 32 bits of `flags` below the 32 of `flags2`.
    Capabilities: u64 {
        /// Several reads of one file may be in flight.
        ASYNC_READ = 1 << 0,
        /// POSIX record locks are the file system's.
        POSIX_LOCKS = 1 << 1,
        /// Open carries O_TRUNC, instead of a setattr before it.
        ATOMIC_O_TRUNC = 1 << 3,
        /// Lookups of `.` and `..` are answered, which NFS export needs.
        EXPORT_SUPPORT = 1 << 4,
        /// Writes of more than a page.
        BIG_WRITES = 1 << 5,
        /// The umask is the file system's to apply (needed for default ACLs).
        DONT_MASK = 1 << 6,
        /// The device may be written to by splice.
        SPLICE_WRITE = 1 << 7,
        /// Pages may be moved by splice.
        SPLICE_MOVE = 1 << 8,
        /// The device may be read by splice.
        SPLICE_READ = 1 << 9,
        /// flock locks are the file system's.
        FLOCK_LOCKS = 1 << 10,
        /// ioctl on directories.
        HAS_IOCTL_DIR = 1 << 11,
        /// Cached pages are dropped when mtime or size changed.
        AUTO_INVAL_DATA = 1 << 12,
        /// READDIRPLUS is understood.
        DO_READDIRPLUS = 1 << 13,
        /// The kernel chooses between READDIR and READDIRPLUS by use.
        READDIRPLUS_AUTO = 1 << 14,
        /// Direct I/O is submitted in parallel.
        ASYNC_DIO = 1 << 15,
        /// Buffered writes are cached by the kernel, which then owns size and mtime.
        WRITEBACK_CACHE = 1 << 16,
        /// ENOSYS to OPEN means: opens need no request.
        NO_OPEN_SUPPORT = 1 << 17,
        /// Lookups and readdirs of one directory run in parallel.
        PARALLEL_DIROPS = 1 << 18,
        /// The file system clears set-id bits on write, truncate and chown.
        HANDLE_KILLPRIV = 1 << 19,
        /// POSIX ACLs are kept by the file system and checked by the kernel.
        POSIX_ACL = 1 << 20,
        /// After an abort the device says ECONNABORTED.
        ABORT_ERROR = 1 << 21,
        /// The reply's `max_pages` counts.
        MAX_PAGES = 1 << 22,
        /// Symlink targets are cached.
        CACHE_SYMLINKS = 1 << 23,
        /// ENOSYS to OPENDIR means: directory opens need no request.
        NO_OPENDIR_SUPPORT = 1 << 24,
        /// Cached pages are dropped only when told to.
        EXPLICIT_INVAL_DATA = 1 << 25,
        /// DAX mapping alignment.
        MAP_ALIGNMENT = 1 << 26,
        /// Submounts are announced by attribute flags.
        SUBMOUNTS = 1 << 27,
        /// As HANDLE_KILLPRIV, with the caller's capabilities told in each request.
        HANDLE_KILLPRIV_V2 = 1 << 28,
        /// SETXATTR carries flags.
        SETXATTR_EXT = 1 << 29,
        /// INIT carries `flags2`; always set when the kernel offers it.
        INIT_EXT = 1 << 30,
        /// Creations carry a security context.
        SECURITY_CTX = 1 << 32,
        /// DAX by inode.
        HAS_INODE_DAX = 1 << 33,
        /// Creations carry the supplementary group that matches the parent.
        CREATE_SUPP_GROUP = 1 << 34,
        /// Entries may be expired instead of invalidated.
        HAS_EXPIRE_ONLY = 1 << 35,
        /// Shared mmap also of files opened with DIRECT_IO.
        DIRECT_IO_ALLOW_MMAP = 1 << 36,
        /// Reads and writes may go straight to a backing file.
        PASSTHROUGH = 1 << 37,
        /// No file handles may be made from inodes.
        NO_EXPORT_SUPPORT = 1 << 38,
        /// Requests can be sent again.
        HAS_RESEND = 1 << 39,
        /// Id-mapped mounts.
        ALLOW_IDMAP = 1 << 40,
        /// Requests may travel over io_uring.
        OVER_IO_URING = 1 << 41,
        /// The kernel times requests out.
        REQUEST_TIMEOUT = 1 << 42,
    }
}

bits! {
    /// How the kernel shall treat an open file; part of the answer to open, create and opendir.
    OpenFlags: u32 {
        /// Bypass the page cache.
        DIRECT_IO = 1 << 0,
        /// Keep what the page cache has of this inode.
        KEEP_CACHE = 1 << 1,
        /// Not seekable.
        NONSEEKABLE = 1 << 2,
        /// The kernel may cache this directory's entries.
        CACHE_DIR = 1 << 3,
        /// A stream without position.
        STREAM = 1 << 4,
        /// No FLUSH on close (ignored with the write-back cache).
        NOFLUSH = 1 << 5,
        /// Direct writes to one inode may run in parallel.
        PARALLEL_DIRECT_WRITES = 1 << 6,
        /// Reads and writes go to the backing file.
        PASSTHROUGH = 1 << 7,
    }
}

bits! {
    /// What is special about one write.
    WriteFlags: u32 {
        /// Delayed, out of the page cache: uid, gid and pid are not the writer's, and the handle is any open one.
        CACHE = 1 << 0,
        /// `lock_owner` is set.
        LOCKOWNER = 1 << 1,
        /// Clear set-user-id and, if group-executable, set-group-id.
        KILL_SUIDGID = 1 << 2,
    }
}
