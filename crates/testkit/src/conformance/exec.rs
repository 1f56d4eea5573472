//! Carries out steps: one system call each, its result put into words that do not depend on the file system.
//!
//! Inode numbers, device numbers, block counts and directory sizes are left out of results; everything else that a
//! call returns is in them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::op::{Node, Op, Outcome, Slot, When, digest, pattern, raw};

/// What a call gives before it is put into words.
pub(super) type Call<T> = Result<T, Errno>;

/// The state of one worker: open descriptors and the times last seen.
pub(super) struct Executor {
    slots: BTreeMap<Slot, OwnedFd>,
    seen: BTreeMap<String, [(i64, i64); 3]>,
}

impl Executor {
    pub(super) fn new() -> Self {
        Self { slots: BTreeMap::new(), seen: BTreeMap::new() }
    }

    pub(super) fn enter(&mut self, dir: &str) -> Outcome {
        self.slots.clear();
        self.seen.clear();
        rustix::process::umask(Mode::from_raw_mode(0o022));
        rustix::process::chdir(dir).map(|()| String::new()).map_err(errno_name)
    }

    pub(super) fn carry_out(&mut self, op: &Op) -> Outcome {
        self.file_op(op)
            .or_else(|| self.name_op(op))
            .or_else(|| self.attribute_op(op))
            .unwrap_or(Err(Errno::NOSYS))
            .map_err(errno_name)
    }

    pub(super) fn slot(&self, slot: Slot) -> Call<BorrowedFd<'_>> {
        self.slots.get(&slot).map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    pub(super) fn keep(&mut self, slot: Slot, fd: OwnedFd) -> String {
        self.slots.insert(slot, fd);
        String::new()
    }

    pub(super) fn forget(&mut self, slot: Slot) -> Call<String> {
        self.slots.remove(&slot).map(|_| String::new()).ok_or(Errno::BADF)
    }

    fn name_op(&mut self, op: &Op) -> Option<Call<String>> {
        let done = match op {
            Op::Mkdir { path, mode } => fs::mkdirat(CWD, raw(path), Mode::from_raw_mode(*mode)),
            Op::Rmdir { path } => fs::unlinkat(CWD, raw(path), AtFlags::REMOVEDIR),
            Op::Unlink { path } => fs::unlinkat(CWD, raw(path), AtFlags::empty()),
            Op::Rename { from, to, flags } => {
                fs::renameat_with(CWD, raw(from), CWD, raw(to), fs::RenameFlags::from_bits_retain(*flags))
            }
            Op::Link { from, to, follow } => {
                let flags = if *follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                fs::linkat(CWD, raw(from), CWD, raw(to), flags)
            }
            Op::LinkSlot { slot, path } => self.link_slot(*slot, path),
            Op::Symlink { target, path } => fs::symlinkat(raw(target), CWD, raw(path)),
            Op::Readlink { path } => {
                return Some(
                    fs::readlinkat(CWD, raw(path), Vec::new()).map(|to| super::op::printed(to.as_bytes())),
                );
            }
            Op::Mknod { path, node, mode } => mknod(path, *node, *mode),
            Op::Fill { path, prefix, count, remove } => super::exec_dir::fill(path, prefix, *count, *remove),
            Op::List { path } => return Some(super::exec_dir::list(path)),
            Op::Churn { path, lasting } => return Some(super::exec_dir::churn(path, *lasting)),
            Op::Cookies { path } => return Some(super::exec_dir::cookies(path)),
            Op::Execute { path, mode } => return Some(execute(path, *mode)),
            _ => return None,
        };
        Some(done.map(|()| String::new()))
    }

    fn attribute_op(&mut self, op: &Op) -> Option<Call<String>> {
        let done = match op {
            Op::Umask(mask) => {
                return Some(Ok(format!(
                    "{:o}",
                    rustix::process::umask(Mode::from_raw_mode(*mask)).as_raw_mode()
                )));
            }
            Op::Tick => {
                std::thread::sleep(Duration::from_millis(20));
                Ok(())
            }
            Op::Chmod { path, mode } => {
                fs::chmodat(CWD, raw(path), Mode::from_raw_mode(*mode), AtFlags::empty())
            }
            Op::Chown { path, uid, gid, follow } => fs::chownat(
                CWD,
                raw(path),
                uid.map(fs::Uid::from_raw),
                gid.map(fs::Gid::from_raw),
                follow_flag(*follow),
            ),
            Op::Utimens { path, access, modify, follow } => {
                let times =
                    fs::Timestamps { last_access: timespec(*access), last_modification: timespec(*modify) };
                fs::utimensat(CWD, raw(path), &times, follow_flag(*follow))
            }
            Op::Access { path, mode } => {
                fs::accessat(CWD, raw(path), fs::Access::from_bits_retain(*mode as u32), AtFlags::empty())
            }
            Op::Stat { path, follow } => {
                return Some(fs::statat(CWD, raw(path), follow_flag(*follow)).map(|s| words(&s)));
            }
            Op::Times { path } => return Some(times(path)),
            Op::Changed { path } => return Some(self.changed(path)),
            Op::SetXattr { path, name, len, seed, flags } => {
                let flags = fs::XattrFlags::from_bits_retain(*flags);
                fs::lsetxattr(raw(path), raw(name), &pattern(*seed, *len), flags)
            }
            Op::RemoveXattr { path, name } => fs::lremovexattr(raw(path), raw(name)),
            Op::GetXattr { path, name } => {
                return Some(get_xattr(path, &raw(name)).map(|value| summary(&value)));
            }
            Op::ListXattr { path } => return Some(list_xattr(path)),
            Op::SetAcl { path, default, entries } => {
                fs::setxattr(raw(path), acl_name(*default), &acl_bytes(entries), fs::XattrFlags::empty())
            }
            Op::GetAcl { path, default } => {
                return Some(get_xattr(path, acl_name(*default).as_bytes()).map(|acl| acl_words(&acl)));
            }
            Op::Statfs { path } => return Some(statfs(path)),
            _ => return None,
        };
        Some(done.map(|()| String::new()))
    }

    fn link_slot(&self, slot: Slot, path: &str) -> Call<()> {
        use std::os::fd::AsRawFd;
        let source = format!("/proc/self/fd/{}", self.slot(slot)?.as_raw_fd());
        fs::linkat(CWD, source, CWD, raw(path), AtFlags::SYMLINK_FOLLOW)
    }

    fn changed(&mut self, path: &str) -> Call<String> {
        let stat = fs::statat(CWD, raw(path), AtFlags::SYMLINK_NOFOLLOW)?;
        let now = [
            (stat.st_atime, stat.st_atime_nsec as i64),
            (stat.st_mtime, stat.st_mtime_nsec as i64),
            (stat.st_ctime, stat.st_ctime_nsec as i64),
        ];
        let Some(before) = self.seen.insert(path.to_owned(), now) else { return Ok("first seen".into()) };
        let moved: Vec<String> = ["atime", "mtime", "ctime"]
            .iter()
            .enumerate()
            .filter(|(which, _)| before[*which] != now[*which])
            .map(|(which, name)| format!("{name}{}", if now[which] > before[which] { '+' } else { '-' }))
            .collect();
        Ok(moved.join(" "))
    }
}

fn follow_flag(follow: bool) -> AtFlags {
    if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW }
}

fn timespec(when: When) -> fs::Timespec {
    match when {
        When::Now => fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        When::Omit => fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        When::At(tv_sec, tv_nsec) => fs::Timespec { tv_sec, tv_nsec },
    }
}

fn mknod(path: &str, node: Node, mode: u32) -> Call<()> {
    let (kind, device) = match node {
        Node::File => (fs::FileType::RegularFile, 0),
        Node::Fifo => (fs::FileType::Fifo, 0),
        Node::Socket => (fs::FileType::Socket, 0),
        Node::Char(major, minor) => (fs::FileType::CharacterDevice, fs::makedev(major, minor)),
        Node::Block(major, minor) => (fs::FileType::BlockDevice, fs::makedev(major, minor)),
    };
    fs::mknodat(CWD, raw(path), kind, Mode::from_raw_mode(mode), device)
}

/// Type, mode, owner, links, size (not of directories) and device, in words.
pub(super) fn words(stat: &Stat) -> String {
    let kind = fs::FileType::from_raw_mode(stat.st_mode);
    let size = if kind == fs::FileType::Directory { 0 } else { stat.st_size };
    let device = if matches!(kind, fs::FileType::CharacterDevice | fs::FileType::BlockDevice) {
        format!(" dev={}:{}", fs::major(stat.st_rdev), fs::minor(stat.st_rdev))
    } else {
        String::new()
    };
    format!(
        "{kind:?} mode={:o} uid={} gid={} links={} size={size}{device}",
        stat.st_mode & 0o7777,
        stat.st_uid,
        stat.st_gid,
        stat.st_nlink
    )
}

/// Length and digest of some bytes.
pub(super) fn summary(bytes: &[u8]) -> String {
    format!("{} bytes {:016x}", bytes.len(), digest(bytes))
}

fn times(path: &str) -> Call<String> {
    let stat = fs::statat(CWD, raw(path), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(format!(
        "atime={}.{:09} mtime={}.{:09}",
        stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec
    ))
}

fn get_xattr(path: &str, name: &[u8]) -> Call<Vec<u8>> {
    let mut value = vec![0; 65_536];
    let len = fs::lgetxattr(raw(path), name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

fn list_xattr(path: &str) -> Call<String> {
    let mut list = vec![0; 65_536];
    let len = fs::llistxattr(raw(path), &mut list[..])?;
    let mut names: Vec<String> = list[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(super::op::printed)
        .collect();
    names.sort();
    Ok(names.join(" "))
}

fn acl_name(default: bool) -> &'static str {
    if default { "system.posix_acl_default" } else { "system.posix_acl_access" }
}

fn acl_bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn acl_words(acl: &[u8]) -> String {
    acl.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn statfs(path: &str) -> Call<String> {
    let stat = rustix::fs::statvfs(raw(path))?;
    let sane = stat.f_frsize > 0
        && stat.f_bsize > 0
        && stat.f_blocks >= stat.f_bfree
        && stat.f_bfree >= stat.f_bavail
        && stat.f_files >= stat.f_ffree
        && stat.f_bavail > 0;
    Ok(format!("name_max={} sane={sane}", stat.f_namemax))
}

fn execute(path: &str, mode: u32) -> Call<String> {
    let failed = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    let program = std::fs::read("/bin/true").map_err(failed)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = fs::openat(CWD, raw(path), flags, Mode::from_raw_mode(mode))?;
    super::exec_data::write_all(fd.as_fd(), 0, &program)?;
    drop(fd);
    let name = String::from_utf8(raw(path)).map_err(|_| Errno::INVAL)?;
    let status = std::process::Command::new(format!("./{name}")).status().map_err(failed)?;
    Ok(format!("exit {:?}", status.code()))
}

/// The errno's name, or its number where the table has none.
pub(super) fn errno_name(errno: Errno) -> String {
    const NAMES: &[(Errno, &str)] = &[
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::IO, "EIO"),
        (Errno::NXIO, "ENXIO"),
        (Errno::BADF, "EBADF"),
        (Errno::AGAIN, "EAGAIN"),
        (Errno::ACCESS, "EACCES"),
        (Errno::BUSY, "EBUSY"),
        (Errno::EXIST, "EEXIST"),
        (Errno::XDEV, "EXDEV"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::TXTBSY, "ETXTBSY"),
        (Errno::FBIG, "EFBIG"),
        (Errno::NOSPC, "ENOSPC"),
        (Errno::SPIPE, "ESPIPE"),
        (Errno::ROFS, "EROFS"),
        (Errno::MLINK, "EMLINK"),
        (Errno::RANGE, "ERANGE"),
        (Errno::NAMETOOLONG, "ENAMETOOLONG"),
        (Errno::NOSYS, "ENOSYS"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
        (Errno::LOOP, "ELOOP"),
        (Errno::NODATA, "ENODATA"),
        (Errno::OVERFLOW, "EOVERFLOW"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::STALE, "ESTALE"),
        (Errno::TOOBIG, "E2BIG"),
    ];
    NAMES
        .iter()
        .find(|(known, _)| *known == errno)
        .map_or_else(|| format!("errno {}", errno.raw_os_error()), |(_, name)| (*name).to_owned())
}
