//! Values that cross the interface: attributes, entries, and the arguments of operations.

use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;

use crate::flags::{OpenFlags, WriteFlags};

/// The inode number of the root directory.
pub const ROOT_INO: u64 = 1;

/// A point in time: seconds since 1970 (negative before) and `0..1_000_000_000` nanoseconds on top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub secs: i64,
    /// Nanoseconds after them.
    pub nanos: u32,
}

impl Timestamp {
    /// From nanoseconds since 1970.
    pub const fn from_nanos(nanos: i64) -> Timestamp {
        Timestamp { secs: nanos.div_euclid(1_000_000_000), nanos: nanos.rem_euclid(1_000_000_000) as u32 }
    }

    /// Nanoseconds since 1970, held to what an `i64` can say (years 1677 to 2262).
    pub const fn as_nanos(self) -> i64 {
        self.secs.saturating_mul(1_000_000_000).saturating_add(self.nanos as i64)
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The file system's current time.
    Now,
    /// This time.
    Set(Timestamp),
}

/// What kind of thing an inode is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileKind {
    /// The `S_IFMT` bits.
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::File => libc::S_IFREG,
            FileKind::Dir => libc::S_IFDIR,
            FileKind::Symlink => libc::S_IFLNK,
            FileKind::Fifo => libc::S_IFIFO,
            FileKind::Socket => libc::S_IFSOCK,
            FileKind::CharDevice => libc::S_IFCHR,
            FileKind::BlockDevice => libc::S_IFBLK,
        }
    }

    /// The kind that `mode` names; no type bits mean a regular file, as mknod has it, unknown ones nothing.
    pub const fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & libc::S_IFMT {
            0 | libc::S_IFREG => FileKind::File,
            libc::S_IFDIR => FileKind::Dir,
            libc::S_IFLNK => FileKind::Symlink,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => return None,
        })
    }
}

/// An inode's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileAttr {
    /// Inode number.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Allocated, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for devices, in the kernel's 32-bit encoding as given to mknod.
    pub rdev: u32,
    /// Preferred I/O size in bytes.
    pub blksize: u32,
}

/// Attributes and how long the kernel may use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// The attributes.
    pub attr: FileAttr,
    /// Lifetime in the kernel's cache.
    pub ttl: Duration,
}

/// A name's inode and how long the kernel may use it.
///
/// Every entry answered (lookup, creations, link, readdirplus) counts as one lookup, which a later forget takes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The attributes; `attr.ino == 0` says that the name does not exist, for as long as `entry_ttl`.
    pub attr: FileAttr,
    /// The number by which the kernel asks for the inode from then on: `attr.ino`, or another one that the file system takes
    /// for the same file. To the kernel each number is an inode of its own, with its own caches, locks and watches.
    pub node: u64,
    /// Tells apart inodes that shared a number; unique with the number for the file system's life.
    pub generation: u64,
    /// Lifetime of the name.
    pub entry_ttl: Duration,
    /// Lifetime of the attributes.
    pub attr_ttl: Duration,
}

impl Entry {
    /// "No such name", valid for `ttl`. Answer `ENOENT` instead where it must not be cached.
    pub const fn negative(ttl: Duration) -> Entry {
        let zero = Timestamp { secs: 0, nanos: 0 };
        let attr = FileAttr {
            ino: 0,
            size: 0,
            blocks: 0,
            atime: zero,
            mtime: zero,
            ctime: zero,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 0,
        };
        Entry { attr, node: 0, generation: 0, entry_ttl: ttl, attr_ttl: Duration::ZERO }
    }
}

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// The file system's handle, given back in every operation on the open file.
    pub fh: u64,
    /// How the kernel shall treat it.
    pub flags: OpenFlags,
    /// The registered file that the kernel reads and maps in its place ([`crate::Backing::id`]). All opens of an inode that
    /// live at the same time must name the same one, and none of them may use the page cache; otherwise the open fails with
    /// `EIO`.
    pub passthrough: Option<NonZeroU32>,
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttr {
    /// Permission bits (with the type, which does not change).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time; only with the write-back cache.
    pub ctime: Option<Timestamp>,
    /// The open file it is asked through.
    pub fh: Option<u64>,
    /// The lock owner that truncates.
    pub lock_owner: Option<u64>,
    /// Clear set-user-id and, if group-executable, set-group-id.
    pub kill_suidgid: bool,
}

/// Arguments of mknod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mknod {
    /// Type and permission bits.
    pub mode: u32,
    /// The caller's umask; already applied unless DONT_MASK was agreed.
    pub umask: u32,
    /// Device number.
    pub rdev: u32,
}

/// Arguments of open and opendir.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Open {
    /// The `open(2)` flags, less O_CREAT, O_EXCL and O_NOCTTY (and O_TRUNC unless ATOMIC_O_TRUNC was agreed).
    pub flags: u32,
    /// Clear set-id bits (with O_TRUNC and HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

/// Arguments of create and tmpfile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Create {
    /// The `open(2)` flags.
    pub flags: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// The caller's umask; already applied unless DONT_MASK was agreed.
    pub umask: u32,
    /// Clear set-id bits of an existing file that is truncated.
    pub kill_suidgid: bool,
}

/// Arguments of read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The open file.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes wanted; fewer mean end of file.
    pub size: u32,
    /// Who reads, if mandatory locking matters.
    pub lock_owner: Option<u64>,
    /// The open file's current flags.
    pub flags: u32,
}

/// Arguments of write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The open file.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// What is special about it.
    pub write_flags: WriteFlags,
    /// Who writes, if mandatory locking matters.
    pub lock_owner: Option<u64>,
    /// The open file's current flags.
    pub flags: u32,
}

/// Arguments of release and releasedir.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The open file.
    pub fh: u64,
    /// The flags it was opened with.
    pub flags: u32,
    /// Who held locks.
    pub lock_owner: u64,
    /// Drop the flock locks of `lock_owner`.
    pub flock_release: bool,
}

/// Arguments of setxattr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetXattr {
    /// `XATTR_CREATE`, `XATTR_REPLACE` or none.
    pub flags: u32,
    /// Setting this ACL also clears set-group-id (only told with SETXATTR_EXT).
    pub acl_kill_sgid: bool,
}

/// What kind of lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: releases.
    Unlock,
}

/// A byte range and how it is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` is the end of any file.
    pub end: u64,
    /// How.
    pub kind: LockKind,
    /// The process (0 if unknown).
    pub pid: u32,
}

/// Arguments of getlk, setlk and setlkw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// The open file.
    pub fh: u64,
    /// Who locks: locks of one owner do not conflict.
    pub owner: u64,
    /// What.
    pub range: LockRange,
    /// A flock lock, not a POSIX one: whole file, and a world of its own.
    pub flock: bool,
}

/// Arguments of fallocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fallocate {
    /// The open file.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// `FALLOC_FL_*`.
    pub mode: u32,
}

/// Arguments of copy_file_range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// Source inode.
    pub ino_in: u64,
    /// Source's open file.
    pub fh_in: u64,
    /// Source's first byte.
    pub offset_in: u64,
    /// Target inode.
    pub ino_out: u64,
    /// Target's open file.
    pub fh_out: u64,
    /// Target's first byte.
    pub offset_out: u64,
    /// Bytes, already held to what the reply can say.
    pub len: u64,
    /// Flags (none defined).
    pub flags: u64,
}

/// Arguments of ioctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ioctl {
    /// The open file.
    pub fh: u64,
    /// `FUSE_IOCTL_*`.
    pub flags: u32,
    /// The command.
    pub cmd: u32,
    /// The raw argument.
    pub arg: u64,
    /// Most bytes that the answer may have.
    pub out_size: u32,
}

/// Answer to ioctl.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IoctlReply {
    /// What the system call returns.
    pub result: i32,
    /// Bytes for the caller.
    pub data: Bytes,
}

/// Arguments of poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poll {
    /// The open file.
    pub fh: u64,
    /// Names the waiter.
    pub kh: u64,
    /// `FUSE_POLL_*`.
    pub flags: u32,
    /// `POLL*` asked for.
    pub events: u32,
}

/// Arguments of statx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statx {
    /// The open file it is asked through.
    pub fh: Option<u64>,
    /// `AT_STATX_*`.
    pub flags: u32,
    /// `STATX_*` wanted.
    pub mask: u32,
}

/// Answer to statx.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatxReply {
    /// The classic attributes.
    pub attr: FileAttr,
    /// Birth time, if kept.
    pub btime: Option<Timestamp>,
    /// `STATX_ATTR_*` set.
    pub attributes: u64,
    /// `STATX_ATTR_*` supported.
    pub attributes_mask: u64,
    /// Lifetime of the attributes in the kernel's cache.
    pub ttl: Duration,
}

/// Answer to statfs; counts are in units of `frsize` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// All.
    pub blocks: u64,
    /// Free.
    pub bfree: u64,
    /// Free for users.
    pub bavail: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Preferred I/O size in bytes.
    pub bsize: u32,
    /// Unit in bytes.
    pub frsize: u32,
    /// Longest name in bytes.
    pub namelen: u32,
}

impl Default for StatFs {
    fn default() -> StatFs {
        StatFs { blocks: 0, bfree: 0, bavail: 0, files: 0, ffree: 0, bsize: 512, frsize: 512, namelen: 255 }
    }
}

/// One inode to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forget {
    /// The inode.
    pub ino: u64,
    /// Lookups to take back.
    pub nlookup: u64,
}
