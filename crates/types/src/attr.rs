use crate::Ino;

/// A point in time: seconds since 1970 (negative before) and nanoseconds in `0..1_000_000_000`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timespec {
    /// Whole seconds since the epoch of POSIX.
    pub secs: i64,
    /// Nanoseconds after that second.
    pub nanos: u32,
}

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileKind {
    /// The file type bits of `st_mode` (`S_IFMT`, see inode(7)).
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::Fifo => 0o010_000,
            FileKind::CharDevice => 0o020_000,
            FileKind::Directory => 0o040_000,
            FileKind::BlockDevice => 0o060_000,
            FileKind::Regular => 0o100_000,
            FileKind::Symlink => 0o120_000,
            FileKind::Socket => 0o140_000,
        }
    }

    /// The kind that the file type bits of `mode` name; `None` where they name none.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & 0o170_000 {
            0o010_000 => FileKind::Fifo,
            0o020_000 => FileKind::CharDevice,
            0o040_000 => FileKind::Directory,
            0o060_000 => FileKind::BlockDevice,
            0o100_000 => FileKind::Regular,
            0o120_000 => FileKind::Symlink,
            0o140_000 => FileKind::Socket,
            _ => return None,
        })
    }
}

/// The attributes of an inode, as `stat` gives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// The inode.
    pub ino: Ino,
    /// What it is.
    pub kind: FileKind,
    /// Permission, set-id and sticky bits: the low 12 bits of `st_mode`.
    pub mode: u16,
    /// Names that it has (for a directory: two and one for each directory in it).
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device, as the kernel encodes it; else 0.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of the file that are stored (holes are not), before compression.
    pub allocated: u64,
    /// Last access.
    pub atime: Timespec,
    /// Last change of the contents.
    pub mtime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// When it was made.
    pub btime: Timespec,
}
