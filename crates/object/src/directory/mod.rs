//! A store in a directory: an object is a file whose path is its key.
//!
//! Guarantees: an object is there with all its bytes or not at all, after a crash at any instant; one that was acknowledged survives a
//! power cut; a key is never overwritten except by `put_if`.
//!
//! The order that makes this so: the bytes go to a temporary file and are made durable ([`Point::OBJECT_DATA`]); the names of the
//! directories above the object are made durable from the top down, and the file is linked under its key, which fails if
//! the key is taken; the directory is made durable ([`Point::OBJECT_NAME`]); only then is the put acknowledged and the temporary name
//! removed. What an interrupted put leaves is a file below `.forebay/put`, which [`DirectoryStore::sweep`] removes.
//!
//! Relies on: `flock(2)` between processes; one process at a time that deletes, because only within a process are a put and the
//! removal of a directory that became empty kept apart.

mod files;
mod publish;
mod sweep;
mod walk;

use std::{
    collections::HashSet,
    fs::{self, File, Metadata},
    io,
    ops::Range,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use forebay_env::durable::{Point, sync_dir};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{FlockOperation, flock};

pub use self::sweep::Swept;
use self::{files::OpenFiles, publish::Publication};
use crate::{
    Backend, ETag, ErrorKind, Expected, Meta, ObjectError, Operation, Page, PutOutcome, StoreUrl,
    key::RESERVED,
};

/// A directory as a store. See the [module](self).
#[derive(Debug)]
pub struct DirectoryStore {
    root: PathBuf,
    url: StoreUrl,
    files: OpenFiles,
    /// Held shared while a put or a deletion needs directories to stay, alone while empty ones are removed. The set holds those directories
    /// whose own names are known to be durable.
    durable_dirs: RwLock<Mutex<HashSet<PathBuf>>>,
}

impl DirectoryStore {
    /// Opens a directory that [`DirectoryStore::create`] made a store.
    ///
    /// # Errors
    /// `NoBucket` when it is not there or is no store, which is also how a file system that is not mounted looks.
    pub fn open(dir: &Path) -> Result<DirectoryStore, ObjectError> {
        let store = DirectoryStore::at(dir)?;
        if store.is_there() {
            return Ok(store);
        }
        let detail = if dir.is_dir() {
            "the directory is there, but has no .forebay in it, so it is no store"
        } else {
            "there is no such directory"
        };
        Err(ObjectError::new(ErrorKind::NoBucket, Operation::Open, &store.url, "", detail))
    }

    /// Opens a directory as a store and makes it one, and makes the directory, where that is still to be done.
    ///
    /// # Errors
    /// `Denied`, `NoSpace`, or what else the system says.
    pub fn create(dir: &Path) -> Result<DirectoryStore, ObjectError> {
        let store = DirectoryStore::at(dir)?;
        let make = || -> io::Result<()> {
            let put = store.own("put");
            let missing: Vec<&Path> = put.ancestors().take_while(|path| !path.exists()).collect();
            for path in missing.into_iter().rev() {
                match fs::create_dir(path) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                    _ => sync_dir(path.parent().unwrap_or(Path::new("/")), Point::OBJECT_NAME)?,
                }
            }
            Ok(())
        };
        make().map_err(|error| store.error(Operation::Open, "", "making the directory", error))?;
        Ok(store)
    }

    fn at(dir: &Path) -> Result<DirectoryStore, ObjectError> {
        let root = std::path::absolute(dir).map_err(|error| {
            let url = StoreUrl::File(dir.to_path_buf());
            ObjectError::caused(ErrorKind::Other, Operation::Open, &url, "", "finding its path", error)
        })?;
        let url = StoreUrl::File(root.clone());
        Ok(DirectoryStore { root, url, files: OpenFiles::default(), durable_dirs: RwLock::default() })
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn own(&self, name: &str) -> PathBuf {
        self.root.join(RESERVED).join(name)
    }

    fn is_there(&self) -> bool {
        self.own("put").is_dir()
    }

    fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    /// The lock that `put_if` and `delete` hold against each other, in this process and others, until the file is dropped.
    fn exclusive(&self) -> io::Result<File> {
        let file = File::options().create(true).truncate(false).write(true).open(self.own("lock"))?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map(|()| file).map_err(io::Error::from),
            }
        }
    }

    /// Turns a system error into ours. "Not found" is one only while the store itself is there.
    fn error(&self, operation: Operation, key: &str, doing: &str, error: io::Error) -> ObjectError {
        let missing = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        let kind = match error.kind() {
            _ if missing && self.is_there() => ErrorKind::NotFound,
            _ if missing => ErrorKind::NoBucket,
            io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ErrorKind::NoSpace
            }
            io::ErrorKind::TimedOut
            | io::ErrorKind::NotConnected
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::StaleNetworkFileHandle => ErrorKind::Unreachable,
            _ => ErrorKind::Other,
        };
        ObjectError::caused(kind, operation, &self.url, key, format!("{doing}: {error}"), error)
    }

    fn open_object(&self, operation: Operation, key: &str) -> Result<(File, Metadata), ObjectError> {
        let fail = |error| self.error(operation, key, "opening", error);
        let file = File::open(self.path(key)).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if meta.is_file() {
            return Ok((file, meta));
        }
        Err(ObjectError::new(ErrorKind::NotFound, operation, &self.url, key, "a directory has this name"))
    }

    fn put(
        &self,
        operation: Operation,
        key: &str,
        publication: &Publication,
    ) -> Result<PutOutcome, ObjectError> {
        publication.publish(self, key).map(|meta| PutOutcome { etag: etag(&meta), versioned: false }).map_err(
            |(doing, error)| match self.error(operation, key, doing, error) {
                error if error.kind() == ErrorKind::NotFound => {
                    ObjectError::caused(ErrorKind::Other, operation, &self.url, key, doing, error)
                }
                error => error,
            },
        )
    }

    fn replace(&self, key: &str, bytes: &[u8], wanted: &ETag) -> Result<PutOutcome, ObjectError> {
        let operation = Operation::PutIf;
        let _lock =
            self.exclusive().map_err(|error| self.error(operation, key, "locking the store", error))?;
        let refused = |detail: String| {
            ObjectError::new(ErrorKind::PreconditionFailed, operation, &self.url, key, detail)
        };
        let old = match self.open_object(operation, key) {
            Ok((_, meta)) => meta,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(refused("it is gone".into())),
            Err(error) => return Err(error),
        };
        if etag(&old) != *wanted {
            return Err(refused(format!("expected {wanted}, found {}", etag(&old))));
        }
        let result = self.put(operation, key, &Publication::Replacing { bytes, old: &old });
        self.files.forget(key);
        result
    }

    fn remove(&self, key: &str) -> Result<(), (&'static str, io::Error)> {
        let _lock = self.exclusive().map_err(|error| ("locking the store", error))?;
        self.files.forget(key);
        let path = self.path(key);
        let parent = path.parent().unwrap_or(&self.root);
        {
            let _stay = self.durable_dirs.read();
            match fs::remove_file(&path) {
                Err(error) if is_absence(&error) && self.is_there() => return Ok(()),
                other => other.map_err(|error| ("unlinking", error))?,
            }
            self.sync_nearest(parent).map_err(|error| ("making the deletion durable", error))?;
        }
        self.remove_empty(parent);
        Ok(())
    }

    /// Makes a deletion in `dir` durable. If another process removed the directory meanwhile, because it became empty, that removal
    /// is what must be durable.
    fn sync_nearest(&self, dir: &Path) -> io::Result<()> {
        for dir in dir.ancestors().take_while(|dir| dir.starts_with(&self.root)) {
            match sync_dir(dir, Point::OBJECT_NAME) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_there() => {}
                other => return other,
            }
        }
        Ok(())
    }

    /// Removes a directory and those above it as long as they are empty. What stays, stays for [`DirectoryStore::sweep`].
    fn remove_empty(&self, dir: &Path) -> u64 {
        let durable = self.durable_dirs.write();
        let mut removed = 0;
        for dir in dir.ancestors().take_while(|dir| *dir != self.root && dir.starts_with(&self.root)) {
            if fs::remove_dir(dir).is_err() {
                break;
            }
            durable.lock().remove(dir);
            removed += 1;
        }
        removed
    }
}

/// Whether a path names no file: nothing, a directory, or something below a file.
fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory
    )
}

/// A version of a file: size, time of the last change of its bytes in nanoseconds, inode number.
fn etag(meta: &Metadata) -> ETag {
    let nanos = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
    ETag(format!("{:x}-{nanos:x}-{:x}", meta.size(), meta.ino()))
}

impl Backend for DirectoryStore {
    fn url(&self) -> &StoreUrl {
        &self.url
    }

    fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectError> {
        self.put(Operation::PutNew, key, &Publication::Bytes(&bytes))
    }

    fn put_new_file(&self, key: &str, file: &Path) -> Result<PutOutcome, ObjectError> {
        self.put(Operation::PutNewFile, key, &Publication::File(file))
    }

    fn put_if(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<PutOutcome, ObjectError> {
        match expected {
            Expected::Absent => self.put(Operation::PutIf, key, &Publication::Bytes(&bytes)),
            Expected::Etag(wanted) => self.replace(key, &bytes, wanted),
        }
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let operation = Operation::GetRange;
        let Some(length) = range.end.checked_sub(range.start).and_then(|len| usize::try_from(len).ok())
        else {
            return Err(ObjectError::new(
                ErrorKind::Other,
                operation,
                &self.url,
                key,
                "the range ends before it starts",
            ));
        };
        let file = self.files.get(key, || self.open_object(operation, key).map(|(file, _)| file))?;
        let mut bytes = vec![0; length];
        match file.read_exact_at(&mut bytes, range.start) {
            Ok(()) => Ok(bytes.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let detail = format!("it ends before byte {}", range.end);
                Err(ObjectError::new(ErrorKind::Corrupt, operation, &self.url, key, detail))
            }
            Err(error) => {
                self.files.forget(key);
                Err(self.error(operation, key, "reading", error))
            }
        }
    }

    fn get(&self, key: &str) -> Result<(Bytes, ETag), ObjectError> {
        let (file, meta) = self.open_object(Operation::Get, key)?;
        let size = usize::try_from(meta.size()).unwrap_or(usize::MAX);
        let mut bytes = vec![0; size];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok((bytes.into(), etag(&meta))),
            Err(error) => Err(self.error(Operation::Get, key, "reading", error)),
        }
    }

    fn head(&self, key: &str) -> Result<Meta, ObjectError> {
        let meta = fs::metadata(self.path(key))
            .map_err(|error| self.error(Operation::Head, key, "looking", error))?;
        if meta.is_file() {
            return Ok(describe(key.to_owned(), &meta));
        }
        Err(ObjectError::new(
            ErrorKind::NotFound,
            Operation::Head,
            &self.url,
            key,
            "a directory has this name",
        ))
    }

    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.remove(key).map_err(|(doing, error)| self.error(Operation::Delete, key, doing, error))
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        let walked = walk::page(&self.root, prefix, after.unwrap_or(""));
        match walked {
            Ok(page) if page.entries.is_empty() && !self.is_there() => {
                let detail = "the directory is gone";
                Err(ObjectError::new(ErrorKind::NoBucket, Operation::List, &self.url, prefix, detail))
            }
            Ok(page) => Ok(page),
            Err(error) => Err(self.error(Operation::List, prefix, "listing", error)),
        }
    }

    fn sweep(&self, remove: bool) -> Result<Swept, ObjectError> {
        DirectoryStore::sweep(self, remove)
    }
}

fn describe(key: String, meta: &Metadata) -> Meta {
    Meta {
        key,
        size: meta.size(),
        etag: etag(meta),
        modified: meta.modified().unwrap_or(std::time::UNIX_EPOCH),
    }
}
