//! What a workload runs on: a mounted directory, or a model with the same operations.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use super::history::Store;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags, copy_file_range, fallocate, fchmod,
    fremovexattr, fsetxattr, linkat, openat, renameat_with,
};

/// File operations by path and handle. Paths are relative to the root, with no slash in front.
///
/// Each method is one operation of the file system, or a row of them in order where a request must be split.
///
/// # Errors
/// Every method gives the error of the system call it stands for.
#[allow(clippy::missing_errors_doc)]
pub trait Target: Sync {
    /// An open file.
    type File: Send;
    /// Makes a file that must not exist.
    fn create(&self, path: &str) -> io::Result<Self::File>;
    /// Opens a file for reading and writing; with `sync`, under `O_SYNC`.
    fn open(&self, path: &str, sync: bool) -> io::Result<Self::File>;
    /// Its inode number.
    fn inode(&self, file: &Self::File) -> io::Result<u64>;
    /// Writes all of `data` at `offset`.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Opens `path` under `O_APPEND`, writes all of `data` and closes it.
    fn append(&self, path: &str, data: &[u8]) -> io::Result<()>;
    /// Sets the length.
    fn set_len(&self, file: &Self::File, len: u64) -> io::Result<()>;
    /// Makes a hole.
    fn punch(&self, file: &Self::File, offset: u64, len: u64) -> io::Result<()>;
    /// Copies up to `len` bytes between files and says how many.
    fn copy(&self, from: (&Self::File, u64), to: (&Self::File, u64), len: u64) -> io::Result<u64>;
    /// `fsync`, or `fdatasync` when `data_only`.
    fn sync(&self, file: &Self::File, data_only: bool) -> io::Result<()>;
    /// Closes a file.
    fn close(&self, file: Self::File);
    /// Makes a directory.
    fn mkdir(&self, path: &str) -> io::Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, path: &str) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&self, path: &str) -> io::Result<()>;
    /// Renames; with `exchange` the two change places.
    fn rename(&self, from: &str, to: &str, exchange: bool) -> io::Result<()>;
    /// Makes a hard link.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes a symbolic link.
    fn symlink(&self, target: &str, path: &str) -> io::Result<()>;
    /// `fsync` of a directory.
    fn sync_directory(&self, path: &str) -> io::Result<()>;
    /// Makes a file without a name (`O_TMPFILE`) in a directory. This and what follows is asked for by rich plans only.
    fn create_unnamed(&self, _directory: &str) -> io::Result<Self::File> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives an open file a name.
    fn link_open(&self, _file: &Self::File, _to: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Opens a file and truncates it to nothing (`O_TRUNC`).
    fn open_truncated(&self, _path: &str) -> io::Result<Self::File> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Makes a range zeros, the length as it was.
    fn zero(&self, _file: &Self::File, _offset: u64, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Reserves space up to `len`, which becomes the length if it is more.
    fn allocate(&self, _file: &Self::File, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Stores bytes in a shared mapping of the whole file, with `sync` calls `msync` (`MS_SYNC`), unmaps and closes it.
    fn store_mapped(&self, _path: &str, _stores: &[Store], _sync: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Sets permission bits.
    fn chmod(&self, _file: &Self::File, _mode: u32) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Sets an extended attribute, or removes it.
    fn set_xattr(&self, _file: &Self::File, _name: &str, _value: Option<&[u8]>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A directory, reached by system calls.
#[derive(Debug, Clone)]
pub struct Mounted {
    root: PathBuf,
}

impl Mounted {
    /// The tree below `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

impl Target for Mounted {
    type File = File;

    fn create(&self, path: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(self.at(path))
    }

    fn open(&self, path: &str, sync: bool) -> io::Result<File> {
        let flags = if sync { OFlags::SYNC } else { OFlags::empty() };
        let flags = i32::try_from(flags.bits()).unwrap_or(0);
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.at(path))
    }

    fn inode(&self, file: &File) -> io::Result<u64> {
        Ok(file.metadata()?.ino())
    }

    fn write(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        file.write_all_at(data, offset)
    }

    fn append(&self, path: &str, data: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(self.at(path))?.write_all(data)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn punch(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    fn copy(&self, from: (&File, u64), to: (&File, u64), len: u64) -> io::Result<u64> {
        let (mut from_offset, mut to_offset) = (from.1, to.1);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let done = copy_file_range(from.0, Some(&mut from_offset), to.0, Some(&mut to_offset), len)?;
        Ok(done as u64)
    }

    fn sync(&self, file: &File, data_only: bool) -> io::Result<()> {
        if data_only { file.sync_data() } else { file.sync_all() }
    }

    fn close(&self, file: File) {
        drop(file);
    }

    fn mkdir(&self, path: &str) -> io::Result<()> {
        fs::create_dir(self.at(path))
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        fs::remove_dir(self.at(path))
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.at(path))
    }

    fn rename(&self, from: &str, to: &str, exchange: bool) -> io::Result<()> {
        let flags = if exchange { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
        Ok(renameat_with(CWD, self.at(from), CWD, self.at(to), flags)?)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.at(from), self.at(to))
    }

    fn symlink(&self, target: &str, path: &str) -> io::Result<()> {
        symlink(target, self.at(path))
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        File::open(self.at(path))?.sync_all()
    }

    fn create_unnamed(&self, directory: &str) -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        Ok(openat(CWD, self.at(directory), flags, Mode::from(0o644))?.into())
    }

    fn link_open(&self, file: &File, to: &str) -> io::Result<()> {
        let from = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(linkat(CWD, from, CWD, self.at(to), AtFlags::SYMLINK_FOLLOW)?)
    }

    fn open_truncated(&self, path: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).truncate(true).open(self.at(path))
    }

    fn zero(&self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(file, FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    fn allocate(&self, file: &File, len: u64) -> io::Result<()> {
        Ok(fallocate(file, FallocateFlags::empty(), 0, len)?)
    }

    fn store_mapped(&self, path: &str, stores: &[Store], sync: bool) -> io::Result<()> {
        super::mapped::store(&self.at(path), stores, sync)
    }

    fn chmod(&self, file: &File, mode: u32) -> io::Result<()> {
        Ok(fchmod(file, Mode::from(mode))?)
    }

    fn set_xattr(&self, file: &File, name: &str, value: Option<&[u8]>) -> io::Result<()> {
        match value {
            Some(value) => Ok(fsetxattr(file, name, value, XattrFlags::empty())?),
            None => Ok(fremovexattr(file, name)?),
        }
    }
}
