//! The emulated disk as a mounted file system: what a volume lives on while its power is going to be cut.
//!
//! Guarantees: a request is in the disk's log before it is answered. Writes reach the log when the system call returns,
//! because the kernel's write-back cache is not asked for; pages of a shared mapping reach it at the latest with the
//! `msync` or `fsync` that covers them. Relies on being the only one who changes the disk while it is mounted: the kernel may
//! cache names, attributes and pages for as long as it likes.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use forebay_fuse::flags::OpenFlags;
use forebay_fuse::types::{
    Attr, Create, Entry, Fallocate, FileAttr, FileKind, Mknod, Open, Opened, Read, Release, SetAttr, SetTime,
    StatFs, Timestamp, Write,
};
use forebay_fuse::{DirBuffer, Errno, Filesystem, MountOptions, ReadBuffer, Request, SessionOptions};

use super::disk::{Disk, Stat};
use super::log::{Change, Ino, Kind, Name};

const FOREVER: Duration = Duration::from_secs(1 << 20);

type Result<T> = std::result::Result<T, Errno>;
/// Makes a file or directory durable: called for each sync, which is answered when it has returned.
pub type Syncing = Arc<dyn Fn(&Disk, Ino) -> io::Result<()> + Send + Sync>;

type Listing = Arc<Vec<(Name, Ino, FileKind)>>;

/// A disk that is mounted. Dropped, it is unmounted.
#[derive(Debug)]
pub struct Layer {
    disk: Arc<Disk>,
    path: PathBuf,
    server: Option<JoinHandle<()>>,
}

impl Layer {
    /// Mounts `disk` on the directory `path` and serves it with threads of this process.
    ///
    /// # Errors
    /// When the mount is refused.
    pub fn mount(disk: Arc<Disk>, path: &Path) -> io::Result<Self> {
        Self::mount_with(disk, path, Arc::new(|disk, ino| Ok(disk.sync(ino)?)))
    }

    /// As [`Layer::mount`], but every sync is what `syncing` does, and fails as it fails.
    ///
    /// # Errors
    /// When the mount is refused.
    pub fn mount_with(disk: Arc<Disk>, path: &Path, syncing: Syncing) -> io::Result<Self> {
        let options = MountOptions {
            fsname: "forebay-crash-disk".to_owned(),
            subtype: "forebay-crash".to_owned(),
            ..MountOptions::default()
        };
        let session = forebay_fuse::mount(path, &options).map_err(io::Error::other)?;
        let path = session.mountpoint().to_owned();
        let served = Arc::new(Served::new(Arc::clone(&disk), syncing));
        let server = std::thread::Builder::new().name("crash-disk".to_owned()).spawn(move || {
            let options = SessionOptions { max_workers: 16, ..SessionOptions::default() };
            // It ends with the mount; what uses the disk then finds it gone and says so itself.
            drop(session.run(served, &options));
        })?;
        Ok(Self { disk, path, server: Some(server) })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The disk itself.
    #[must_use]
    pub fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    /// Unmounts; its users must have ended.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn unmount(mut self) -> io::Result<()> {
        self.detach()
    }

    /// Serves until somebody else unmounts it.
    ///
    /// # Errors
    /// When a thread that serves panicked.
    pub fn serve(mut self) -> io::Result<()> {
        let server = self.server.take();
        server.map_or(Ok(()), |server| {
            server.join().map_err(|_| io::Error::other("the emulated disk panicked"))
        })
    }

    fn detach(&mut self) -> io::Result<()> {
        let Some(server) = self.server.take() else { return Ok(()) };
        forebay_fuse::unmount(&self.path, true).map_err(io::Error::other)?;
        server.join().map_err(|_| io::Error::other("the emulated disk panicked"))
    }
}

impl Drop for Layer {
    fn drop(&mut self) {
        // There is nobody to tell; a mount that stays behind shows in the mount table.
        drop(self.detach());
    }
}

/// The requests of the kernel, answered from the disk.
struct Served {
    disk: Arc<Disk>,
    syncing: Syncing,
    listings: Mutex<HashMap<u64, Listing>>,
    next_handle: AtomicU64,
}

impl Served {
    fn new(disk: Arc<Disk>, syncing: Syncing) -> Self {
        Self { disk, syncing, listings: Mutex::default(), next_handle: AtomicU64::new(1) }
    }

    fn sync(&self, ino: Ino) -> Result<()> {
        Ok((self.syncing)(&self.disk, ino)?)
    }

    fn attributes(&self, ino: Ino) -> Result<FileAttr> {
        Ok(attributes(&self.disk.stat(ino)?))
    }

    fn entry(&self, ino: Ino) -> Result<Entry> {
        Ok(Entry {
            attr: self.attributes(ino)?,
            node: ino,
            generation: 0,
            entry_ttl: FOREVER,
            attr_ttl: FOREVER,
        })
    }

    fn make(&self, req: &Request, parent: Ino, name: &[u8], kind: Kind, mode: u32) -> Result<Entry> {
        let ino = self.disk.make(parent, name, kind, mode & 0o7777)?;
        self.disk.set_owner(ino, None, Some(req.uid), Some(req.gid))?;
        self.entry(ino)
    }

    fn listing(&self, ino: Ino) -> Result<Listing> {
        let mut all = vec![
            (b".".to_vec(), ino, FileKind::Dir),
            (b"..".to_vec(), self.disk.parent(ino)?, FileKind::Dir),
        ];
        for (name, ino) in self.disk.list(ino)? {
            all.push((name, ino, file_kind(&self.disk.stat(ino)?.kind)));
        }
        Ok(Arc::new(all))
    }
}

fn file_kind(kind: &Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::File,
        Kind::Directory => FileKind::Dir,
        Kind::Symlink(_) => FileKind::Symlink,
        Kind::Special(bits) => FileKind::from_mode(*bits).unwrap_or(FileKind::File),
    }
}

fn attributes(stat: &Stat) -> FileAttr {
    let since = stat.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = Timestamp { secs: i64::try_from(since.as_secs()).unwrap_or(0), nanos: since.subsec_nanos() };
    let kind = file_kind(&stat.kind);
    FileAttr {
        ino: stat.ino,
        size: stat.len,
        blocks: stat.len.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        mode: kind.mode_bits() | stat.permissions,
        nlink: stat.links + u32::from(kind == FileKind::Dir),
        uid: stat.uid,
        gid: stat.gid,
        rdev: 0,
        blksize: 4096,
    }
}

fn set_time(time: SetTime) -> SystemTime {
    match time {
        SetTime::Now => SystemTime::now(),
        SetTime::Set(at) => {
            UNIX_EPOCH + Duration::new(u64::try_from(at.secs).unwrap_or(0), at.nanos.min(999_999_999))
        }
    }
}

impl Filesystem for Served {
    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Result<Entry> {
        self.entry(self.disk.lookup(parent, name)?)
    }

    fn getattr(&self, _: &Request, ino: u64, _: Option<u64>) -> Result<Attr> {
        Ok(Attr { attr: self.attributes(ino)?, ttl: FOREVER })
    }

    fn setattr(&self, req: &Request, ino: u64, set: &SetAttr) -> Result<Attr> {
        if let Some(len) = set.size {
            self.disk.change(ino, Change::SetLen(len), false)?;
        }
        self.disk.set_owner(ino, set.mode.map(|mode| mode & 0o7777), set.uid, set.gid)?;
        if let Some(time) = set.mtime {
            self.disk.set_modified(ino, set_time(time))?;
        }
        self.getattr(req, ino, None)
    }

    fn readlink(&self, _: &Request, ino: u64) -> Result<Bytes> {
        match self.disk.stat(ino)?.kind {
            Kind::Symlink(target) => Ok(Bytes::from(target)),
            _ => Err(Errno::EINVAL),
        }
    }

    fn symlink(&self, req: &Request, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.make(req, parent, name, Kind::Symlink(target.to_vec()), 0o777)
    }

    fn mknod(&self, req: &Request, parent: u64, name: &[u8], args: &Mknod) -> Result<Entry> {
        let kind = match FileKind::from_mode(args.mode) {
            Some(FileKind::File) => Kind::File,
            Some(other) => Kind::Special(other.mode_bits()),
            None => return Err(Errno::EINVAL),
        };
        self.make(req, parent, name, kind, args.mode)
    }

    fn mkdir(&self, req: &Request, parent: u64, name: &[u8], mode: u32, _: u32) -> Result<Entry> {
        self.make(req, parent, name, Kind::Directory, mode)
    }

    fn unlink(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        Ok(self.disk.remove(parent, name, false)?)
    }

    fn rmdir(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        Ok(self.disk.remove(parent, name, true)?)
    }

    fn rename(
        &self,
        _: &Request,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        let (no_replace, exchange) =
            (flags & libc::RENAME_NOREPLACE != 0, flags & libc::RENAME_EXCHANGE != 0);
        if flags & !(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE) != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(self.disk.rename((parent, name), (new_parent, new_name), no_replace, exchange)?)
    }

    fn link(&self, _: &Request, ino: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        self.disk.link(ino, new_parent, new_name)?;
        self.entry(ino)
    }

    fn open(&self, _: &Request, ino: u64, _: &Open) -> Result<Opened> {
        self.disk.opened(ino);
        Ok(Opened { fh: 0, flags: OpenFlags::KEEP_CACHE, ..Opened::default() })
    }

    fn create(&self, req: &Request, parent: u64, name: &[u8], args: &Create) -> Result<(Entry, Opened)> {
        let entry = self.make(req, parent, name, Kind::File, args.mode)?;
        self.disk.opened(entry.attr.ino);
        Ok((entry, Opened { fh: 0, flags: OpenFlags::KEEP_CACHE, ..Opened::default() }))
    }

    fn read(&self, _: &Request, ino: u64, args: &Read, out: &mut ReadBuffer) -> Result<()> {
        out.push(Bytes::from(self.disk.read(ino, args.offset, u64::from(args.size))?));
        Ok(())
    }

    fn write(&self, _: &Request, ino: u64, args: &Write, data: &[u8]) -> Result<u32> {
        let sync = args.flags & libc::O_DSYNC.cast_unsigned() != 0;
        self.disk.change(ino, Change::Write { offset: args.offset, data: Arc::from(data) }, false)?;
        if sync {
            self.sync(ino)?;
        }
        u32::try_from(data.len()).map_err(|_| Errno::EINVAL)
    }

    fn flush(&self, _: &Request, _: u64, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn release(&self, _: &Request, ino: u64, _: &Release) -> Result<()> {
        self.disk.closed(ino);
        Ok(())
    }

    fn fsync(&self, _: &Request, ino: u64, _: u64, _: bool) -> Result<()> {
        self.sync(ino)
    }

    fn opendir(&self, _: &Request, _: u64, _: &Open) -> Result<Opened> {
        Ok(Opened { fh: self.next_handle.fetch_add(1, Ordering::Relaxed), ..Opened::default() })
    }

    fn readdir(&self, _: &Request, ino: u64, fh: u64, offset: u64, out: &mut DirBuffer<'_>) -> Result<()> {
        let known = self.listings.lock().unwrap_or_else(PoisonError::into_inner).get(&fh).cloned();
        let listing = match known {
            Some(listing) if offset > 0 => listing,
            _ => {
                let listing = self.listing(ino)?;
                let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
                listings.insert(fh, Arc::clone(&listing));
                listing
            }
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        for (next, (name, ino, kind)) in (offset + 1..).zip(listing.iter().skip(start)) {
            if !out.add(*ino, next, *kind, name) {
                break;
            }
        }
        Ok(())
    }

    fn releasedir(&self, _: &Request, _: u64, args: &Release) -> Result<()> {
        self.listings.lock().unwrap_or_else(PoisonError::into_inner).remove(&args.fh);
        Ok(())
    }

    fn fsyncdir(&self, _: &Request, ino: u64, _: u64, _: bool) -> Result<()> {
        self.sync(ino)
    }

    fn statfs(&self, _: &Request, _: u64) -> Result<StatFs> {
        let blocks = 1 << 28;
        let free = (self.disk.free() / 4096).min(blocks);
        Ok(StatFs {
            blocks,
            bfree: free,
            bavail: free,
            files: blocks,
            ffree: blocks,
            bsize: 4096,
            frsize: 4096,
            namelen: 255,
        })
    }

    fn fallocate(&self, _: &Request, ino: u64, args: &Fallocate) -> Result<()> {
        let mode = args.mode.cast_signed();
        let len = self.disk.stat(ino)?.len;
        let zeroes = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
        let known = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if mode & !known != 0 {
            return Err(Errno::ENOTSUP);
        }
        if zeroes {
            self.disk.change(ino, Change::Zero { offset: args.offset, len: args.length }, false)?;
        }
        let end = args.offset.saturating_add(args.length);
        if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && end > len {
            self.disk.change(ino, Change::SetLen(end), false)?;
        } else if !zeroes {
            self.disk.reserve(ino, end)?;
        }
        Ok(())
    }
}
