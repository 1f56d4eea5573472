//! POSIX calls relative to an open directory, with the path in every failure.
//!
//! Calls are relative so that the depth of the measured directory costs nothing; they are the plain system calls, so
//! that the client's own share of a measurement is small and the same on both sides.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use crate::Error;
use crate::error::at;

/// An open directory and its path.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(at("open", path))?;
        Ok(Self { fd, path: path.to_path_buf() })
    }

    /// Makes `path`, and what is missing above, and opens it.
    pub(crate) fn create_all(path: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(path).map_err(at("make the directory", path))?;
        Self::open(path)
    }

    fn failed<E: Into<io::Error>>(&self, operation: &'static str, name: &str) -> impl FnOnce(E) -> Error {
        move |source| at(operation, &self.path.join(name))(source)
    }

    /// Creates a new file, open for writing.
    pub(crate) fn create(&self, name: &str) -> Result<Open<'_>, Error> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let fd = rustix::fs::openat(&self.fd, name, flags, mode).map_err(self.failed("create", name))?;
        Ok(Open { fd, directory: self, name: name.to_string() })
    }

    /// Opens a file for reading.
    pub(crate) fn read(&self, name: &str) -> Result<Open<'_>, Error> {
        self.open_with(name, OFlags::RDONLY)
    }

    /// Opens an existing file for writing.
    pub(crate) fn write(&self, name: &str) -> Result<Open<'_>, Error> {
        self.open_with(name, OFlags::WRONLY)
    }

    fn open_with(&self, name: &str, flags: OFlags) -> Result<Open<'_>, Error> {
        let opened = rustix::fs::openat(&self.fd, name, flags | OFlags::CLOEXEC, Mode::empty());
        let fd = opened.map_err(self.failed("open", name))?;
        Ok(Open { fd, directory: self, name: name.to_string() })
    }

    /// Makes a directory.
    pub(crate) fn make_directory(&self, name: &str) -> Result<(), Error> {
        let mode = Mode::from_raw_mode(0o755);
        rustix::fs::mkdirat(&self.fd, name, mode).map_err(self.failed("make the directory", name))
    }

    /// Takes the attributes of `name` itself.
    pub(crate) fn stat(&self, name: &str) -> Result<Stat, Error> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(self.failed("stat", name))
    }

    /// Renames within this directory.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), Error> {
        rustix::fs::renameat(&self.fd, from, &self.fd, to).map_err(self.failed("rename", from))
    }

    /// Unlinks a file.
    pub(crate) fn unlink(&self, name: &str) -> Result<(), Error> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()).map_err(self.failed("unlink", name))
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, name: &str) -> Result<(), Error> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR)
            .map_err(self.failed("remove the directory", name))
    }

    /// Opens a directory in this one.
    pub(crate) fn enter(&self, name: &str) -> Result<Self, Error> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::openat(&self.fd, name, flags, Mode::empty());
        let fd = opened.map_err(self.failed("open", name))?;
        Ok(Self { fd, path: self.path.join(name) })
    }

    /// Names and kinds of all entries but `.` and `..`, in the file system's order.
    pub(crate) fn entries(&self) -> Result<Vec<(String, FileType)>, Error> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(at("list", &self.path))? {
            let entry = entry.map_err(at("list", &self.path))?;
            let name = String::from_utf8_lossy(entry.file_name().to_bytes()).into_owned();
            if name != "." && name != ".." {
                entries.push((name, entry.file_type()));
            }
        }
        Ok(entries)
    }

    /// Lists the directory and takes each entry's attributes as it comes; the number of entries.
    pub(crate) fn list_with_attributes(&self) -> Result<u64, Error> {
        let mut found = 0;
        for entry in Dir::read_from(&self.fd).map_err(at("list", &self.path))? {
            let entry = entry.map_err(at("list", &self.path))?;
            let name = entry.file_name();
            if name.to_bytes() != b"." && name.to_bytes() != b".." {
                let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
                stat.map_err(|error| self.failed("stat", &name.to_string_lossy())(error))?;
                found += 1;
            }
        }
        Ok(found)
    }

    /// Lists the directory without attributes; the number of entries.
    pub(crate) fn list(&self) -> Result<u64, Error> {
        let mut found = 0;
        for entry in Dir::read_from(&self.fd).map_err(at("list", &self.path))? {
            let entry = entry.map_err(at("list", &self.path))?;
            found += u64::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
        }
        Ok(found)
    }

    /// The directory's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Open<'d> {
    fd: OwnedFd,
    directory: &'d Directory,
    name: String,
}

impl Open<'_> {
    /// The file's path.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path.join(&self.name)
    }

    fn failed<E: Into<io::Error>>(&self, operation: &'static str) -> impl FnOnce(E) -> Error {
        move |source| at(operation, &self.path())(source)
    }

    /// Makes it durable with its attributes.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        rustix::fs::fsync(&self.fd).map_err(self.failed("fsync"))
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> Result<(), Error> {
        while !bytes.is_empty() {
            match rustix::io::pwrite(&self.fd, bytes, offset) {
                Ok(0) => return Err(self.failed("write")(io::Error::from(io::ErrorKind::WriteZero))),
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.failed("write")(error)),
            }
        }
        Ok(())
    }

    /// Reads at `offset` until `buffer` is full or the file ends; how much came.
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::pread(&self.fd, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.failed("read")(error)),
            }
        }
        Ok(filled)
    }

    /// Sets mode and times, as an archiver does after writing.
    pub(crate) fn set_attributes(&self, seconds: i64) -> Result<(), Error> {
        rustix::fs::fchmod(&self.fd, Mode::from_raw_mode(0o640)).map_err(self.failed("set the mode of"))?;
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&self.fd, &times).map_err(self.failed("set the times of"))
    }

    /// Tells the kernel that reads will be at random.
    pub(crate) fn advise_random(&self) -> Result<(), Error> {
        let advised = rustix::fs::fadvise(&self.fd, 0, None, rustix::fs::Advice::Random);
        advised.map_err(self.failed("advise on"))
    }
}

/// Makes a file or directory durable by name.
pub(crate) fn sync(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).map_err(at("fsync", path))
}

/// Writes back everything dirty on the file system of `path`.
pub(crate) fn sync_file_system(path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(at("open", path))?;
    rustix::fs::syncfs(&file).map_err(at("syncfs", path))
}

/// Makes the kernel forget the clean contents of a file.
pub(crate) fn forget_contents(path: &Path) -> Result<(), Error> {
    let file = File::open(path).map_err(at("open", path))?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(at("advise on", path))
}

/// Calls `visit` with every regular file under `root`.
pub(crate) fn each_file(root: &Path, visit: &mut dyn FnMut(&Path) -> Result<(), Error>) -> Result<(), Error> {
    let directory = Directory::open(root)?;
    for (name, kind) in directory.entries()? {
        let path = root.join(std::ffi::OsStr::from_bytes(name.as_bytes()));
        if kind == FileType::Directory {
            each_file(&path, visit)?;
        } else {
            visit(&path)?;
        }
    }
    Ok(())
}
