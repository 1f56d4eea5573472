//! Telling the kernel what is no longer so.

use std::io::IoSlice;

use rustix::io::Errno as Os;

use crate::errno::Errno;
use crate::protocol::{OUT_HEADER, put_u32, put_u64};
use crate::session::{Line, WeakLine};

const INVAL_INODE: u32 = 2;
const INVAL_ENTRY: u32 = 3;
const STORE: u32 = 4;
const DELETE: u32 = 6;
const INC_EPOCH: u32 = 8;
const EXPIRE_ONLY: u32 = 1;

/// Drops or fills what the kernel has cached of a mount. Cheap to clone; does not keep the mount's connection open.
///
/// **Never call it from a thread that serves requests, and never hold a lock that an operation takes**: the kernel may
/// have to wait, inside the call, for a page or a directory that is locked by a request, and the request then waits for
/// you. Nor may an answer wait for a notification. Use a thread that does nothing else.
///
/// What is not cached is no error: "not there" counts as done.
#[derive(Debug, Clone)]
pub struct Notifier {
    line: WeakLine,
}

impl Notifier {
    pub(crate) fn new(line: &Line) -> Notifier {
        Notifier { line: line.downgrade() }
    }

    /// Drops an inode's attributes, and its cached pages from byte `offset` on: `len` bytes, 0 for all to the end. A
    /// negative `offset` drops attributes only.
    pub fn inval_inode(&self, ino: u64, offset: i64, len: i64) -> Result<(), Errno> {
        self.send(INVAL_INODE, &inode_args(ino, offset, len), &[&[]])
    }

    /// As [`Notifier::inval_inode`]. False: the kernel knows no such inode. It may learn of it at any moment by an answer that is on its way.
    pub fn drop_inode(&self, ino: u64, offset: i64, len: i64) -> Result<bool, Errno> {
        match self.write(INVAL_INODE, &inode_args(ino, offset, len), &[&[]]) {
            Err(Errno::ENOENT) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Has the kernel ask again for every name of the mount, whatever lifetime it has, missing ones too. Takes no lock of a directory, so an operation
    /// that is under way does not matter; the answer to one that was asked for before counts as old. `EINVAL` where the kernel cannot (before
    /// Linux 6.16, minor version 44).
    pub fn inc_epoch(&self) -> Result<(), Errno> {
        self.write(INC_EPOCH, &[], &[])
    }

    /// Drops a name. Waits while the parent directory is busy.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.entry(parent, name, 0)
    }

    /// Makes a name's lifetime end now, without dropping what is under it (needs HAS_EXPIRE_ONLY).
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.entry(parent, name, EXPIRE_ONLY)
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> Result<(), Errno> {
        let mut args = Vec::with_capacity(16);
        put_u64(&mut args, parent);
        put_u32(&mut args, name.len() as u32);
        put_u32(&mut args, flags);
        self.send(INVAL_ENTRY, &args, &[name, &[0]])
    }

    /// Says that `name` in `parent`, which was inode `child`, has been deleted; watchers are told. If the name is
    /// another inode's by now, nothing happens.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<(), Errno> {
        let mut args = Vec::with_capacity(24);
        put_u64(&mut args, parent);
        put_u64(&mut args, child);
        put_u32(&mut args, name.len() as u32);
        put_u32(&mut args, 0);
        self.send(DELETE, &args, &[name, &[0]])
    }

    /// Puts `data` into the page cache at byte `offset` of an inode that the kernel knows (`ENOENT` if it does not),
    /// extending its size where it ends behind it.
    pub fn store(&self, ino: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut args = Vec::with_capacity(24);
        put_u64(&mut args, ino);
        put_u64(&mut args, offset);
        put_u32(&mut args, u32::try_from(data.len()).map_err(|_| Errno::E2BIG)?);
        put_u32(&mut args, 0);
        self.write(STORE, &args, &[data])
    }

    fn send(&self, code: u32, args: &[u8], tail: &[&[u8]]) -> Result<(), Errno> {
        match self.write(code, args, tail) {
            // Not cached, or in use in a way that keeps it (a mount point, a directory with open files below).
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EBUSY | Errno::ENOTEMPTY) => Ok(()),
            other => other,
        }
    }

    fn write(&self, code: u32, args: &[u8], tail: &[&[u8]]) -> Result<(), Errno> {
        let len = OUT_HEADER + args.len() + tail.iter().map(|part| part.len()).sum::<usize>();
        let mut header = Vec::with_capacity(OUT_HEADER);
        put_u32(&mut header, u32::try_from(len).map_err(|_| Errno::E2BIG)?);
        put_u32(&mut header, code);
        put_u64(&mut header, 0);
        let mut parts = vec![IoSlice::new(&header), IoSlice::new(args)];
        parts.extend(tail.iter().map(|part| IoSlice::new(part)));
        let device = self.line.device().ok_or(Errno::ENOTCONN)?;
        match device.write_parts(&parts) {
            // Before the mount has begun and after it has ended, nothing is cached.
            Err(Os::NODEV | Os::CONNABORTED | Os::NOTCONN | Os::PERM) => Err(Errno::ENOTCONN),
            other => other.map_err(Errno::from),
        }
    }
}

fn inode_args(ino: u64, offset: i64, len: i64) -> Vec<u8> {
    let mut args = Vec::with_capacity(24);
    put_u64(&mut args, ino);
    put_u64(&mut args, offset as u64);
    put_u64(&mut args, len as u64);
    args
}
