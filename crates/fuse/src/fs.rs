//! What a file system is asked.

use bytes::Bytes;

use crate::errno::Errno;
use crate::init::{Agreed, InitConfig, KernelOffer};
use crate::lock_reply::LockReply;
use crate::protocol::Forgets;
use crate::reply::{DirBuffer, DirPlusBuffer, ReadBuffer};
use crate::request::Request;
use crate::types::*;

type Result<T> = std::result::Result<T, Errno>;

/// A file system: one method for each operation.
///
/// Methods are called from many threads at once and answer by returning; blocking in one delays only its caller. Names
/// are bytes, never empty, without NUL. A method that a file system leaves out answers `ENOSYS`, upon which the kernel stops
/// asking and does what it does without (for some operations: fails), unless the method says otherwise.
///
/// A method must not cause requests to its own mount (it may deadlock), and must not call [`crate::Notifier`].
#[allow(unused_variables)]
pub trait Filesystem: Send + Sync + 'static {
    /// The mount begins: the kernel's offer, answered by what is wanted of it. Called once, before all else.
    fn init(&self, offer: &KernelOffer) -> Result<InitConfig> {
        Ok(InitConfig::default())
    }

    /// What kernel and server agreed on. Called once, before the first operation.
    fn started(&self, agreed: &Agreed) {}

    /// The mount has ended. Called once, after the last operation has returned.
    fn destroy(&self) {}

    /// The session was paused, in place of its end: another file system that knows what this one does, or this one, goes on with it. Locks that are
    /// waited for are asked for again.
    fn paused(&self) {
        self.destroy();
    }

    /// Called before each operation, by the thread that serves it.
    fn called(&self, req: &Request) {}

    /// Finds `name` in `parent`. Counts as one lookup of the inode.
    fn lookup(&self, req: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Takes back `nlookup` lookups of `ino`. At zero the kernel holds the inode no more.
    fn forget(&self, ino: u64, nlookup: u64) {}

    /// Takes back lookups of many inodes.
    fn forget_batch(&self, forgets: Forgets<'_>) {
        for forget in forgets {
            self.forget(forget.ino, forget.nlookup);
        }
    }

    /// Attributes.
    fn getattr(&self, req: &Request, ino: u64, fh: Option<u64>) -> Result<Attr> {
        Err(Errno::ENOSYS)
    }

    /// Changes attributes and answers the new ones.
    fn setattr(&self, req: &Request, ino: u64, set: &SetAttr) -> Result<Attr> {
        Err(Errno::ENOSYS)
    }

    /// A symlink's target.
    fn readlink(&self, req: &Request, ino: u64) -> Result<Bytes> {
        Err(Errno::ENOSYS)
    }

    /// Makes a symlink.
    fn symlink(&self, req: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file, FIFO, socket or device.
    fn mknod(&self, req: &Request, parent: u64, name: &[u8], args: &Mknod) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory.
    fn mkdir(&self, req: &Request, parent: u64, name: &[u8], mode: u32, umask: u32) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name that is not a directory's.
    fn unlink(&self, req: &Request, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, req: &Request, parent: u64, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Renames; `flags` are `RENAME_NOREPLACE` and `RENAME_EXCHANGE`. Others: `EINVAL`.
    fn rename(
        &self,
        req: &Request,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a hard link.
    fn link(&self, req: &Request, ino: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file. By default with handle 0.
    fn open(&self, req: &Request, ino: u64, args: &Open) -> Result<Opened> {
        Ok(Opened::default())
    }

    /// Makes and opens a file. On `ENOSYS` the kernel uses mknod and open from then on.
    fn create(&self, req: &Request, parent: u64, name: &[u8], args: &Create) -> Result<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Makes and opens a file without a name (O_TMPFILE).
    fn tmpfile(&self, req: &Request, parent: u64, args: &Create) -> Result<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Reads into `out`, which takes at most `args.size` bytes; fewer mean end of file.
    fn read(&self, req: &Request, ino: u64, args: &Read, out: &mut ReadBuffer) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Writes; answers how many of `data`'s bytes it took.
    fn write(&self, req: &Request, ino: u64, args: &Write, data: &[u8]) -> Result<u32> {
        Err(Errno::ENOSYS)
    }

    /// One descriptor of the open file is closed; POSIX locks of `lock_owner` go. Its error is what close returns.
    fn flush(&self, req: &Request, ino: u64, fh: u64, lock_owner: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The open file ends. Nobody waits for the answer.
    fn release(&self, req: &Request, ino: u64, args: &Release) -> Result<()> {
        Ok(())
    }

    /// Makes the file durable; only what reading the data back needs, if `datasync`.
    fn fsync(&self, req: &Request, ino: u64, fh: u64, datasync: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Opens a directory. By default with handle 0.
    fn opendir(&self, req: &Request, ino: u64, args: &Open) -> Result<Opened> {
        Ok(Opened::default())
    }

    /// Lists entries after `offset`: 0, or the `next_offset` that came with the last entry taken. None added: the end.
    fn readdir(&self, req: &Request, ino: u64, fh: u64, offset: u64, out: &mut DirBuffer<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Lists entries with their attributes. Each taken, other than `.` and `..`, counts as one lookup.
    fn readdirplus(
        &self,
        req: &Request,
        ino: u64,
        fh: u64,
        offset: u64,
        out: &mut DirPlusBuffer<'_>,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The open directory ends.
    fn releasedir(&self, req: &Request, ino: u64, args: &Release) -> Result<()> {
        Ok(())
    }

    /// Makes the directory's entries durable.
    fn fsyncdir(&self, req: &Request, ino: u64, fh: u64, datasync: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Space and inodes. By default none.
    fn statfs(&self, req: &Request, ino: u64) -> Result<StatFs> {
        Ok(StatFs::default())
    }

    /// Sets an extended attribute.
    fn setxattr(&self, req: &Request, ino: u64, name: &[u8], value: &[u8], args: &SetXattr) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// An extended attribute's value (`ENODATA` if there is none). Sizes are answered by the transport.
    fn getxattr(&self, req: &Request, ino: u64, name: &[u8]) -> Result<Bytes> {
        Err(Errno::ENOSYS)
    }

    /// The names of all extended attributes, each followed by a NUL.
    fn listxattr(&self, req: &Request, ino: u64) -> Result<Bytes> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, req: &Request, ino: u64, name: &[u8]) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Checks permission; never asked with `default_permissions`.
    fn access(&self, req: &Request, ino: u64, mask: u32) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The first lock that conflicts with `lock`, or a range of kind `Unlock`.
    fn getlk(&self, req: &Request, ino: u64, lock: &Lock) -> Result<LockRange> {
        Err(Errno::ENOSYS)
    }

    /// Sets or releases a lock without waiting (`EAGAIN` on conflict). May be answered later, from any thread.
    fn setlk(&self, req: &Request, ino: u64, lock: &Lock, reply: LockReply) {
        reply.answer(Err(Errno::ENOSYS));
    }

    /// Sets a lock, waiting as long as it takes. Must return at once and keep `reply` until the lock is there, the
    /// caller is interrupted (see [`LockReply::is_interrupted`]) or waiting would deadlock.
    fn setlkw(&self, req: &Request, ino: u64, lock: &Lock, reply: LockReply) {
        reply.answer(Err(Errno::ENOSYS));
    }

    /// The caller of request `unique` got a signal. A waiting lock should be answered with `EINTR`; any other operation
    /// may finish or be cut short. The request may be unknown (not begun, or done): then nothing is to be done.
    fn interrupt(&self, unique: u64) {}

    /// Allocates, punches, zeroes: `mode` is `FALLOC_FL_*`.
    fn fallocate(&self, req: &Request, ino: u64, args: &Fallocate) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Finds data or a hole: `whence` is `SEEK_DATA` or `SEEK_HOLE`.
    fn lseek(&self, req: &Request, ino: u64, fh: u64, offset: i64, whence: u32) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// Copies within the file system; answers how many bytes.
    fn copy_file_range(&self, req: &Request, args: &CopyRange) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// Which of the asked events are there. By default the kernel takes the file to be always ready.
    fn poll(&self, req: &Request, ino: u64, args: &Poll) -> Result<u32> {
        Err(Errno::ENOSYS)
    }

    /// Device-specific control.
    fn ioctl(&self, req: &Request, ino: u64, args: &Ioctl, data: &[u8]) -> Result<IoctlReply> {
        Err(Errno::ENOTTY)
    }

    /// Makes everything durable. The kernel sends it only for mounts of types fuseblk and virtiofs: `sync(2)` and
    /// `syncfs(2)` on this transport do not reach the file system.
    fn syncfs(&self, req: &Request, ino: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Attributes with birth time. On `ENOSYS` the kernel uses getattr.
    fn statx(&self, req: &Request, ino: u64, args: &Statx) -> Result<StatxReply> {
        Err(Errno::ENOSYS)
    }

    /// Maps a block of the file to one of a device.
    fn bmap(&self, req: &Request, ino: u64, blocksize: u32, block: u64) -> Result<u64> {
        Err(Errno::ENOSYS)
    }
}
