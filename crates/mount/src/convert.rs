//! Values of the vfs as the kernel's, and back.

use std::time::Duration;

use forebay_fuse::types::{
    self as fuse, Attr, Entry, FileAttr, LockRange as FuseRange, SetAttr as FuseSet, Timestamp,
};
use forebay_types::{Attr as VfsAttr, FileKind, Ino, Timespec};
use forebay_vfs::{Fallocate, LockKind, LockRange, LockRequest, LockSpace, SetAttr, SetTime, Through};

/// Ten years: on an unshared volume what the kernel knows stays true until it changes it itself.
pub(crate) const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Preferred I/O size in bytes: what libraries buffer before they write, which becomes one request.
const BLKSIZE: u32 = 64 << 10;

fn timestamp(time: Timespec) -> Timestamp {
    Timestamp { secs: time.secs, nanos: time.nanos }
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { secs: time.secs, nanos: time.nanos }
}

pub(crate) fn file_attr(attr: &VfsAttr) -> FileAttr {
    FileAttr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.allocated.div_ceil(512),
        atime: timestamp(attr.atime),
        mtime: timestamp(attr.mtime),
        ctime: timestamp(attr.ctime),
        mode: attr.kind.mode_bits() | u32::from(attr.mode),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLKSIZE,
    }
}

pub(crate) fn attr(attr: &VfsAttr) -> Attr {
    Attr { attr: file_attr(attr), ttl: FOREVER }
}

pub(crate) fn entry(attr: &VfsAttr) -> Entry {
    // Inode numbers are never used again, so all have one generation.
    Entry { attr: file_attr(attr), node: attr.ino.0, generation: 1, entry_ttl: FOREVER, attr_ttl: FOREVER }
}

pub(crate) fn statx(attr: &VfsAttr) -> fuse::StatxReply {
    let btime = Some(timestamp(attr.btime));
    fuse::StatxReply { attr: file_attr(attr), btime, attributes: 0, attributes_mask: 0, ttl: FOREVER }
}

pub(crate) fn kind(kind: FileKind) -> fuse::FileKind {
    match kind {
        FileKind::Regular => fuse::FileKind::File,
        FileKind::Directory => fuse::FileKind::Dir,
        FileKind::Symlink => fuse::FileKind::Symlink,
        FileKind::Fifo => fuse::FileKind::Fifo,
        FileKind::Socket => fuse::FileKind::Socket,
        FileKind::CharDevice => fuse::FileKind::CharDevice,
        FileKind::BlockDevice => fuse::FileKind::BlockDevice,
    }
}

/// The low twelve bits of a mode or umask.
pub(crate) fn mode_bits(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

pub(crate) fn set_attr(set: &FuseSet) -> SetAttr {
    let time = |time: fuse::SetTime| match time {
        fuse::SetTime::Now => SetTime::Now,
        fuse::SetTime::Set(time) => SetTime::To(timespec(time)),
    };
    SetAttr {
        mode: set.mode.map(mode_bits),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(time),
        mtime: set.mtime.map(time),
        kill: set.kill_suidgid.into(),
        through: set.fh.map(|fh| Through { fh, lock_owner: set.lock_owner }),
    }
}

pub(crate) fn lock_space(lock: &fuse::Lock) -> LockSpace {
    if lock.flock { LockSpace::Flock } else { LockSpace::Record }
}

/// The lock that is asked for; `None` where one is to be released.
pub(crate) fn lock_request(lock: &fuse::Lock) -> Option<LockRequest> {
    let kind = match lock.range.kind {
        fuse::LockKind::Read => LockKind::Shared,
        fuse::LockKind::Write => LockKind::Exclusive,
        fuse::LockKind::Unlock => return None,
    };
    let FuseRange { start, end, pid, .. } = lock.range;
    let range = LockRange { start, end, kind, pid };
    Some(LockRequest { space: lock_space(lock), owner: lock.owner, fh: lock.fh, range })
}

pub(crate) fn lock_range(range: LockRange) -> FuseRange {
    let kind = match range.kind {
        LockKind::Shared => fuse::LockKind::Read,
        LockKind::Exclusive => fuse::LockKind::Write,
    };
    FuseRange { start: range.start, end: range.end, kind, pid: range.pid }
}

/// What fallocate(2) is to do in a mode; `None` for one that is not offered.
pub(crate) fn fallocate(mode: u32) -> Option<Fallocate> {
    const KEEP: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
    const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | KEEP;
    const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
    const ZERO_KEEP: u32 = ZERO | KEEP;
    Some(match mode {
        0 => Fallocate::Allocate { keep_size: false },
        KEEP => Fallocate::Allocate { keep_size: true },
        PUNCH => Fallocate::Punch,
        ZERO => Fallocate::Zero { keep_size: false },
        ZERO_KEEP => Fallocate::Zero { keep_size: true },
        _ => return None,
    })
}

/// The inode that a number of the kernel's stands for.
pub(crate) fn ino(number: u64) -> Ino {
    crate::passthrough::own(number)
}
