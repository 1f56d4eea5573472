//! The directory that the log is in, as the log sees it. Tests have one in memory that tears, fails and fills up.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_env::{
    direct,
    durable::{Point, sync_dir, sync_file},
};
use parking_lot::Mutex;
use rustix::io::Errno;

/// A directory of files. What is not synced may be lost in a crash, in any part.
pub trait Disk: Send + Sync {
    /// The names of all files.
    ///
    /// # Errors
    /// The system's.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Makes a file of so many zeros, with its space; one that is there already is made anew.
    ///
    /// # Errors
    /// The system's; there is no such file then.
    fn create(&self, name: &str, len: u64) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file that may be gone already.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Waits until all names are on stable storage.
    ///
    /// # Errors
    /// The system's.
    fn sync_names(&self) -> io::Result<()>;

    /// Where a file is, for people.
    fn path(&self, name: &str) -> PathBuf;
}

/// A file, used by many threads.
pub trait DiskFile: Send + Sync {
    /// How long it is, in bytes.
    ///
    /// # Errors
    /// The system's.
    fn length(&self) -> io::Result<u64>;

    /// Writes whole blocks, from memory that begins at a multiple of one, past the page cache where that can be.
    ///
    /// # Errors
    /// The system's; any part may have been written.
    fn write_blocks(&self, offset: u64, blocks: &[u8]) -> io::Result<()>;

    /// Reads up to as many bytes as `out` has; fewer at the end of the file only.
    ///
    /// # Errors
    /// The system's.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize>;

    /// Cuts the file off.
    ///
    /// # Errors
    /// The system's.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// Waits until its bytes are on stable storage (fdatasync(2)).
    ///
    /// # Errors
    /// The system's. The kernel may have dropped the bytes that it could not write, so a later success proves nothing.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the system.
#[derive(Clone, Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// The directory at this path, which is there.
    #[must_use]
    pub fn new(path: &Path) -> Directory {
        Directory(path.to_owned())
    }
}

struct OpenFile {
    file: File,
    direct: Mutex<Option<Arc<File>>>,
}

fn opened(path: &Path, options: &OpenOptions) -> io::Result<Arc<dyn DiskFile>> {
    let file = options.open(path)?;
    Ok(Arc::new(OpenFile { file, direct: Mutex::new(direct::open_direct(path).map(Arc::new)) }))
}

impl Disk for Directory {
    fn names(&self) -> io::Result<Vec<String>> {
        let names = self.0.read_dir()?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        opened(&self.0.join(name), OpenOptions::new().read(true).write(true))
    }

    fn create(&self, name: &str, len: u64) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.0.join(name);
        self.remove(name)?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        if let Err(error) = direct::preallocate(&file, len) {
            drop(file);
            self.remove(name)?;
            return Err(error);
        }
        opened(&path, OpenOptions::new().read(true).write(true))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.0.join(from), self.0.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_dir(&self.0, Point::MEMBER_NAME)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl DiskFile for OpenFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn write_blocks(&self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        let direct = self.direct.lock().clone();
        if let Some(file) = direct {
            match file.write_all_at(blocks, offset) {
                // A disk whose blocks are larger than any that were foreseen.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    *self.direct.lock() = None;
                }
                written => return written,
            }
        }
        self.file.write_all_at(blocks, offset)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < out.len() {
            match self.file.read_at(&mut out[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        sync_file(&self.file, Point::MEMBER_DATA)
    }
}

/// Whether an error says that the disk or the quota is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}
