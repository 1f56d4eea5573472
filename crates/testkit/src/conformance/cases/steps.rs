//! Short forms of the steps that cases use most.

use crate::conformance::op::{Node, Op, Script, Slot, When, Whence};

impl Script {
    pub(super) fn open(&mut self, slot: Slot, path: &str, flags: i32) -> &mut Self {
        self.open_mode(slot, path, flags, 0o644)
    }

    pub(super) fn open_mode(&mut self, slot: Slot, path: &str, flags: i32, mode: u32) -> &mut Self {
        self.op(Op::Open { slot, path: path.into(), flags, mode })
    }

    pub(super) fn close(&mut self, slot: Slot) -> &mut Self {
        self.op(Op::Close { slot })
    }

    pub(super) fn read(&mut self, slot: Slot, len: usize) -> &mut Self {
        self.op(Op::Read { slot, len })
    }

    pub(super) fn write(&mut self, slot: Slot, len: usize, seed: u64) -> &mut Self {
        self.op(Op::Write { slot, len, seed })
    }

    pub(super) fn pread(&mut self, slot: Slot, at: u64, len: usize) -> &mut Self {
        self.op(Op::Pread { slot, at, len })
    }

    pub(super) fn pwrite(&mut self, slot: Slot, at: u64, len: usize, seed: u64) -> &mut Self {
        self.op(Op::Pwrite { slot, at, len, seed })
    }

    pub(super) fn seek(&mut self, slot: Slot, whence: Whence, to: i64) -> &mut Self {
        self.op(Op::Seek { slot, whence, to })
    }

    pub(super) fn ftruncate(&mut self, slot: Slot, size: u64) -> &mut Self {
        self.op(Op::Ftruncate { slot, size })
    }

    pub(super) fn fallocate(&mut self, slot: Slot, mode: i32, at: u64, len: u64) -> &mut Self {
        self.op(Op::Fallocate { slot, mode, at, len })
    }

    pub(super) fn copy(&mut self, from: (Slot, u64), to: (Slot, u64), len: usize) -> &mut Self {
        self.op(Op::CopyRange { from: from.0, at: from.1, to: to.0, to_at: to.1, len })
    }

    pub(super) fn fsync(&mut self, slot: Slot) -> &mut Self {
        self.op(Op::Fsync { slot, data_only: false })
    }

    pub(super) fn fstat(&mut self, slot: Slot) -> &mut Self {
        self.op(Op::Fstat { slot })
    }

    pub(super) fn holes(&mut self, slot: Slot) -> &mut Self {
        self.op(Op::Holes { slot })
    }

    pub(super) fn content(&mut self, path: &str) -> &mut Self {
        self.op(Op::Content { path: path.into() })
    }

    /// Makes a file of `len` pattern bytes by way of slot 9.
    pub(super) fn file(&mut self, path: &str, len: usize, seed: u64) -> &mut Self {
        self.open(9, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC).write(9, len, seed).close(9)
    }

    pub(super) fn mkdir(&mut self, path: &str) -> &mut Self {
        self.mkdir_mode(path, 0o755)
    }

    pub(super) fn mkdir_mode(&mut self, path: &str, mode: u32) -> &mut Self {
        self.op(Op::Mkdir { path: path.into(), mode })
    }

    pub(super) fn rmdir(&mut self, path: &str) -> &mut Self {
        self.op(Op::Rmdir { path: path.into() })
    }

    pub(super) fn unlink(&mut self, path: &str) -> &mut Self {
        self.op(Op::Unlink { path: path.into() })
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> &mut Self {
        self.rename_with(from, to, 0)
    }

    pub(super) fn rename_with(&mut self, from: &str, to: &str, flags: u32) -> &mut Self {
        self.op(Op::Rename { from: from.into(), to: to.into(), flags })
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> &mut Self {
        self.op(Op::Link { from: from.into(), to: to.into(), follow: false })
    }

    pub(super) fn symlink(&mut self, target: &str, path: &str) -> &mut Self {
        self.op(Op::Symlink { target: target.into(), path: path.into() })
    }

    pub(super) fn readlink(&mut self, path: &str) -> &mut Self {
        self.op(Op::Readlink { path: path.into() })
    }

    pub(super) fn mknod(&mut self, path: &str, node: Node, mode: u32) -> &mut Self {
        self.op(Op::Mknod { path: path.into(), node, mode })
    }

    pub(super) fn chmod(&mut self, path: &str, mode: u32) -> &mut Self {
        self.op(Op::Chmod { path: path.into(), mode })
    }

    pub(super) fn chown(&mut self, path: &str, uid: Option<u32>, gid: Option<u32>) -> &mut Self {
        self.op(Op::Chown { path: path.into(), uid, gid, follow: true })
    }

    pub(super) fn utimens(&mut self, path: &str, access: When, modify: When) -> &mut Self {
        self.op(Op::Utimens { path: path.into(), access, modify, follow: true })
    }

    pub(super) fn times(&mut self, path: &str) -> &mut Self {
        self.op(Op::Times { path: path.into() })
    }

    pub(super) fn changed(&mut self, path: &str) -> &mut Self {
        self.op(Op::Changed { path: path.into() })
    }

    pub(super) fn tick(&mut self) -> &mut Self {
        self.op(Op::Tick)
    }

    pub(super) fn access(&mut self, path: &str, mode: i32) -> &mut Self {
        self.op(Op::Access { path: path.into(), mode })
    }

    /// Attributes of the name itself: a symbolic link is not followed.
    pub(super) fn stat(&mut self, path: &str) -> &mut Self {
        self.op(Op::Stat { path: path.into(), follow: false })
    }

    pub(super) fn list(&mut self, path: &str) -> &mut Self {
        self.op(Op::List { path: path.into() })
    }

    pub(super) fn umask(&mut self, mask: u32) -> &mut Self {
        self.op(Op::Umask(mask))
    }

    pub(super) fn set_xattr(&mut self, path: &str, name: &str, len: usize, flags: i32) -> &mut Self {
        let seed = len as u64 + 1;
        self.op(Op::SetXattr { path: path.into(), name: name.into(), len, seed, flags: flags as u32 })
    }

    pub(super) fn get_xattr(&mut self, path: &str, name: &str) -> &mut Self {
        self.op(Op::GetXattr { path: path.into(), name: name.into() })
    }

    pub(super) fn remove_xattr(&mut self, path: &str, name: &str) -> &mut Self {
        self.op(Op::RemoveXattr { path: path.into(), name: name.into() })
    }

    pub(super) fn list_xattr(&mut self, path: &str) -> &mut Self {
        self.op(Op::ListXattr { path: path.into() })
    }

    pub(super) fn set_acl(&mut self, path: &str, default: bool, entries: &[(u16, u16, u32)]) -> &mut Self {
        self.op(Op::SetAcl { path: path.into(), default, entries: entries.to_vec() })
    }

    pub(super) fn get_acl(&mut self, path: &str, default: bool) -> &mut Self {
        self.op(Op::GetAcl { path: path.into(), default })
    }
}
