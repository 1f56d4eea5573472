//! Requests: bytes to [`Operation`].

use super::MAJOR;
use super::cursor::Cursor;
use super::header::{DecodeError, Dialect};
use super::opcode::Opcode;
use crate::flags::{Capabilities, WriteFlags};
use crate::types::*;

const GETATTR_FH: u32 = 1 << 0;
const READ_LOCKOWNER: u32 = 1 << 1;
const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
const FSYNC_DATASYNC: u32 = 1 << 0;
const LK_FLOCK: u32 = 1 << 0;
const OPEN_KILL_SUIDGID: u32 = 1 << 0;
const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// The inodes of a batch of forgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgets<'a> {
    list: &'a [u8],
}

impl Iterator for Forgets<'_> {
    type Item = Forget;

    fn next(&mut self) -> Option<Forget> {
        let mut c = Cursor::new(self.list);
        let forget = Forget { ino: c.u64()?, nlookup: c.u64()? };
        self.list = c.rest();
        Some(forget)
    }
}

/// The kernel's side of INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitIn {
    /// Its major version.
    pub major: u32,
    /// Its minor version.
    pub minor: u32,
    /// Its read-ahead in bytes.
    pub max_readahead: u32,
    /// What it can.
    pub capabilities: Capabilities,
}

/// One decoded request. Names are never empty and hold no NUL; other fields are as the kernel sent them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        nlookup: u64,
    },
    BatchForget {
        forgets: Forgets<'a>,
    },
    Getattr {
        fh: Option<u64>,
    },
    Setattr(SetAttr),
    Readlink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        args: Mknod,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        ino: u64,
        new_name: &'a [u8],
    },
    Open(Open),
    Opendir(Open),
    Create {
        name: &'a [u8],
        args: Create,
    },
    Tmpfile(Create),
    Read(Read),
    Readdir {
        fh: u64,
        offset: u64,
        size: u32,
    },
    Readdirplus {
        fh: u64,
        offset: u64,
        size: u32,
    },
    Write {
        args: Write,
        data: &'a [u8],
    },
    Statfs,
    Release(Release),
    Releasedir(Release),
    Fsync {
        fh: u64,
        datasync: bool,
    },
    Fsyncdir {
        fh: u64,
        datasync: bool,
    },
    Setxattr {
        name: &'a [u8],
        value: &'a [u8],
        args: SetXattr,
    },
    Getxattr {
        name: &'a [u8],
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a [u8],
    },
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    Init(InitIn),
    Destroy,
    Getlk(Lock),
    Setlk(Lock),
    Setlkw(Lock),
    Access {
        mask: u32,
    },
    Interrupt {
        unique: u64,
    },
    Bmap {
        block: u64,
        blocksize: u32,
    },
    Ioctl {
        args: Ioctl,
        data: &'a [u8],
    },
    Poll(Poll),
    Fallocate(Fallocate),
    Lseek {
        fh: u64,
        offset: i64,
        whence: u32,
    },
    CopyFileRange {
        args: CopyRange,
        wide: bool,
    },
    Syncfs,
    Statx(Statx),
    /// Known, but nothing that a server must understand.
    Unsupported,
}

/// Decodes one operation from its fixed arguments and its payload.
pub fn decode<'a>(
    op: Opcode,
    nodeid: u64,
    fixed: &'a [u8],
    payload: &'a [u8],
    dialect: Dialect,
) -> Result<Operation<'a>, DecodeError> {
    let mut c = Cursor::new(fixed);
    let mut p = Cursor::new(payload);
    decode_names(op, &mut c, &mut p)
        .or_else(|| decode_files(op, nodeid, &mut c, payload))
        .or_else(|| decode_rest(op, &mut c, &mut p, dialect))
        .ok_or(DecodeError::Malformed(op))
}

fn name<'a>(p: &mut Cursor<'a>) -> Option<&'a [u8]> {
    p.string().filter(|name| !name.is_empty())
}

fn decode_names<'a>(op: Opcode, c: &mut Cursor<'a>, p: &mut Cursor<'a>) -> Option<Operation<'a>> {
    Some(match op {
        Opcode::Lookup => Operation::Lookup { name: name(p)? },
        Opcode::Symlink => Operation::Symlink { name: name(p)?, target: p.string()? },
        Opcode::Mknod => {
            let (mode, rdev, umask) = (c.u32()?, c.u32()?, c.u32()?);
            Operation::Mknod { name: name(p)?, args: Mknod { mode, umask, rdev } }
        }
        Opcode::Mkdir => Operation::Mkdir { mode: c.u32()?, umask: c.u32()?, name: name(p)? },
        Opcode::Unlink => Operation::Unlink { name: name(p)? },
        Opcode::Rmdir => Operation::Rmdir { name: name(p)? },
        Opcode::Rename | Opcode::Rename2 => {
            let new_parent = c.u64()?;
            let flags = if op == Opcode::Rename2 { c.u32()? } else { 0 };
            Operation::Rename { name: name(p)?, new_parent, new_name: name(p)?, flags }
        }
        Opcode::Link => Operation::Link { ino: c.u64()?, new_name: name(p)? },
        Opcode::Create | Opcode::Tmpfile => {
            let (flags, mode, umask, open_flags) = (c.u32()?, c.u32()?, c.u32()?, c.u32()?);
            let args = Create { flags, mode, umask, kill_suidgid: open_flags & OPEN_KILL_SUIDGID != 0 };
            match op {
                Opcode::Create => Operation::Create { name: name(p)?, args },
                _ => Operation::Tmpfile(args),
            }
        }
        Opcode::Getxattr => Operation::Getxattr { size: c.u32()?, name: name(p)? },
        Opcode::Removexattr => Operation::Removexattr { name: name(p)? },
        _ => return None,
    })
}

fn decode_files<'a>(op: Opcode, nodeid: u64, c: &mut Cursor<'a>, payload: &'a [u8]) -> Option<Operation<'a>> {
    Some(match op {
        Opcode::Open | Opcode::Opendir => {
            let (flags, open_flags) = (c.u32()?, c.u32()?);
            let args = Open { flags, kill_suidgid: open_flags & OPEN_KILL_SUIDGID != 0 };
            if op == Opcode::Open { Operation::Open(args) } else { Operation::Opendir(args) }
        }
        Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => {
            let (fh, offset, size, read_flags) = (c.u64()?, c.u64()?, c.u32()?, c.u32()?);
            let (owner, flags) = (c.u64()?, c.u32()?);
            match op {
                Opcode::Readdir => Operation::Readdir { fh, offset, size },
                Opcode::Readdirplus => Operation::Readdirplus { fh, offset, size },
                _ => {
                    let lock_owner = (read_flags & READ_LOCKOWNER != 0).then_some(owner);
                    Operation::Read(Read { fh, offset, size, lock_owner, flags })
                }
            }
        }
        Opcode::Write => {
            let (fh, offset, size) = (c.u64()?, c.u64()?, c.u32()? as usize);
            let write_flags = WriteFlags::from_bits(c.u32()?);
            let (owner, flags) = (c.u64()?, c.u32()?);
            let lock_owner = write_flags.contains(WriteFlags::LOCKOWNER).then_some(owner);
            let args = Write { fh, offset, write_flags, lock_owner, flags };
            Operation::Write { args, data: payload.get(..size)? }
        }
        Opcode::Release | Opcode::Releasedir => {
            let (fh, flags, release_flags, lock_owner) = (c.u64()?, c.u32()?, c.u32()?, c.u64()?);
            let flock_release = release_flags & RELEASE_FLOCK_UNLOCK != 0;
            let args = Release { fh, flags, lock_owner, flock_release };
            if op == Opcode::Release { Operation::Release(args) } else { Operation::Releasedir(args) }
        }
        Opcode::Fsync | Opcode::Fsyncdir => {
            let (fh, datasync) = (c.u64()?, c.u32()? & FSYNC_DATASYNC != 0);
            match op {
                Opcode::Fsync => Operation::Fsync { fh, datasync },
                _ => Operation::Fsyncdir { fh, datasync },
            }
        }
        Opcode::Flush => {
            let fh = c.u64()?;
            c.u64()?;
            Operation::Flush { fh, lock_owner: c.u64()? }
        }
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => {
            let lock = decode_lock(c)?;
            match op {
                Opcode::Getlk => Operation::Getlk(lock),
                Opcode::Setlk => Operation::Setlk(lock),
                _ => Operation::Setlkw(lock),
            }
        }
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => decode_copy(op, nodeid, c)?,
        _ => return None,
    })
}

fn decode_rest<'a>(
    op: Opcode,
    c: &mut Cursor<'a>,
    p: &mut Cursor<'a>,
    dialect: Dialect,
) -> Option<Operation<'a>> {
    Some(match op {
        Opcode::Forget => Operation::Forget { nlookup: c.u64()? },
        Opcode::BatchForget => {
            let len = (c.u32()? as usize).checked_mul(16)?;
            Operation::BatchForget { forgets: Forgets { list: p.take(len)? } }
        }
        Opcode::Getattr => {
            let flags = c.u32()?;
            c.u32()?;
            let fh = c.u64()?;
            Operation::Getattr { fh: (flags & GETATTR_FH != 0).then_some(fh) }
        }
        Opcode::Setattr => Operation::Setattr(decode_setattr(c)?),
        Opcode::Readlink => Operation::Readlink,
        Opcode::Statfs => Operation::Statfs,
        Opcode::Setxattr => {
            let (size, flags) = (c.u32()? as usize, c.u32()?);
            let ext = if dialect.setxattr_ext { c.u32()? } else { 0 };
            let args = SetXattr { flags, acl_kill_sgid: ext & SETXATTR_ACL_KILL_SGID != 0 };
            Operation::Setxattr { name: name(p)?, value: p.take(size)?, args }
        }
        Opcode::Listxattr => Operation::Listxattr { size: c.u32()? },
        Opcode::Init => Operation::Init(decode_init(c)?),
        Opcode::Destroy => Operation::Destroy,
        Opcode::Access => Operation::Access { mask: c.u32()? },
        Opcode::Interrupt => Operation::Interrupt { unique: c.u64()? },
        Opcode::Bmap => Operation::Bmap { block: c.u64()?, blocksize: c.u32()? },
        Opcode::Ioctl => {
            let (fh, flags, cmd, arg) = (c.u64()?, c.u32()?, c.u32()?, c.u64()?);
            let (in_size, out_size) = (c.u32()? as usize, c.u32()?);
            Operation::Ioctl { args: Ioctl { fh, flags, cmd, arg, out_size }, data: p.take(in_size)? }
        }
        Opcode::Poll => {
            Operation::Poll(Poll { fh: c.u64()?, kh: c.u64()?, flags: c.u32()?, events: c.u32()? })
        }
        Opcode::Fallocate => {
            let (fh, offset, length, mode) = (c.u64()?, c.u64()?, c.u64()?, c.u32()?);
            Operation::Fallocate(Fallocate { fh, offset, length, mode })
        }
        Opcode::Lseek => Operation::Lseek { fh: c.u64()?, offset: c.i64()?, whence: c.u32()? },
        Opcode::Syncfs => Operation::Syncfs,
        Opcode::Statx => {
            let getattr_flags = c.u32()?;
            c.u32()?;
            let (fh, flags, mask) = (c.u64()?, c.u32()?, c.u32()?);
            Operation::Statx(Statx { fh: (getattr_flags & GETATTR_FH != 0).then_some(fh), flags, mask })
        }
        Opcode::NotifyReply | Opcode::Setupmapping | Opcode::Removemapping => Operation::Unsupported,
        _ => return None,
    })
}

fn decode_lock(c: &mut Cursor<'_>) -> Option<Lock> {
    let (fh, owner, start, end) = (c.u64()?, c.u64()?, c.u64()?, c.u64()?);
    let kind = match i32::try_from(c.u32()?).ok()? {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return None,
    };
    let (pid, lk_flags) = (c.u32()?, c.u32()?);
    (start <= end).then_some(Lock {
        fh,
        owner,
        range: LockRange { start, end, kind, pid },
        flock: lk_flags & LK_FLOCK != 0,
    })
}

fn decode_copy<'a>(op: Opcode, ino_in: u64, c: &mut Cursor<'_>) -> Option<Operation<'a>> {
    let (fh_in, offset_in) = (c.u64()?, c.u64()?);
    let (ino_out, fh_out, offset_out) = (c.u64()?, c.u64()?, c.u64()?);
    let (len, flags) = (c.u64()?, c.u64()?);
    let wide = op == Opcode::CopyFileRange64;
    // The narrow reply counts in 32 bits; the kernel's own limit of one call is this, too.
    let len = if wide { len } else { len.min(0x7fff_f000) };
    let args = CopyRange { ino_in, fh_in, offset_in, ino_out, fh_out, offset_out, len, flags };
    Some(Operation::CopyFileRange { args, wide })
}

fn decode_setattr(c: &mut Cursor<'_>) -> Option<SetAttr> {
    let valid = c.u32()?;
    c.u32()?;
    let (fh, size, lock_owner) = (c.u64()?, c.u64()?, c.u64()?);
    let (atime, mtime, ctime) = (c.i64()?, c.i64()?, c.i64()?);
    let (atime_nanos, mtime_nanos, ctime_nanos) = (c.u32()?, c.u32()?, c.u32()?);
    let mode = c.u32()?;
    c.u32()?;
    let (uid, gid) = (c.u32()?, c.u32()?);
    let set = |bit: u32| valid & (1 << bit) != 0;
    let time = |bit, now_bit, secs, nanos: u32| {
        set(bit).then(|| match set(now_bit) {
            true => SetTime::Now,
            false => SetTime::Set(Timestamp { secs, nanos: nanos.min(999_999_999) }),
        })
    };
    Some(SetAttr {
        mode: set(0).then_some(mode),
        uid: set(1).then_some(uid),
        gid: set(2).then_some(gid),
        size: set(3).then_some(size),
        atime: time(4, 7, atime, atime_nanos),
        mtime: time(5, 8, mtime, mtime_nanos),
        ctime: set(10).then_some(Timestamp { secs: ctime, nanos: ctime_nanos.min(999_999_999) }),
        fh: set(6).then_some(fh),
        lock_owner: set(9).then_some(lock_owner),
        kill_suidgid: set(11),
    })
}

fn decode_init(c: &mut Cursor<'_>) -> Option<InitIn> {
    let (major, minor) = (c.u32()?, c.u32()?);
    if major != MAJOR {
        return Some(InitIn { major, minor, max_readahead: 0, capabilities: Capabilities::NONE });
    }
    let (max_readahead, low) = (c.u32()?, u64::from(c.u32()?));
    let extended = low & Capabilities::INIT_EXT.bits() != 0;
    let high = if extended { u64::from(c.u32().unwrap_or(0)) } else { 0 };
    Some(InitIn { major, minor, max_readahead, capabilities: Capabilities::from_bits(low | high << 32) })
}
