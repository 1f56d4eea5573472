//! How an object comes to be in a directory store. The order is with the [module above](super).

use std::{
    fs::{self, File, FileTimes, Metadata},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use forebay_env::durable::{Point, sync_dir, sync_file};
use rustix::fs::{AtFlags, CWD, FlockOperation, RenameFlags, flock, linkat, renameat_with};

use super::DirectoryStore;
use crate::random;

/// What failed, and how.
type Failure = (&'static str, io::Error);

/// How often a put begins again because a directory or its temporary file was removed under it.
const ROUNDS: usize = 16;

/// What is to be published.
pub(super) enum Publication<'a> {
    /// Bytes under a new key.
    Bytes(&'a [u8]),
    /// A file under a new key, linked if it is on the same file system.
    File(&'a Path),
    /// Bytes under a key that is taken; the caller holds the store's lock.
    Replacing {
        /// The bytes.
        bytes: &'a [u8],
        /// What is there now.
        old: &'a Metadata,
    },
}

impl Publication<'_> {
    /// Makes the object durable under its key and describes it.
    pub(super) fn publish(&self, store: &DirectoryStore, key: &str) -> Result<Metadata, Failure> {
        let target = store.path(key);
        match self {
            Publication::Bytes(bytes) => {
                if target.symlink_metadata().is_ok() {
                    return Err(("naming the object", io::ErrorKind::AlreadyExists.into()));
                }
                let temporary = Temporary::written(store, |file| file.write_all(bytes), None)?;
                temporary.name_as(store, &target, false)
            }
            Publication::File(source) => link_or_copy(store, source, &target),
            Publication::Replacing { bytes, old } => {
                let temporary = Temporary::written(store, |file| file.write_all(bytes), Some(old))?;
                temporary.name_as(store, &target, true)
            }
        }
    }
}

fn link_or_copy(store: &DirectoryStore, source: &Path, target: &Path) -> Result<Metadata, Failure> {
    let mut file = File::open(source).map_err(|error| ("opening the file to put", error))?;
    sync_file(&file, Point::OBJECT_DATA).map_err(|error| ("making the file to put durable", error))?;
    let linked =
        in_directory(store, target, || Ok(linkat(CWD, source, CWD, target, AtFlags::SYMLINK_FOLLOW)?));
    match linked {
        Ok(()) => file.metadata().map_err(|error| ("reading back", error)),
        Err((_, error)) if error.kind() == io::ErrorKind::CrossesDevices || cannot_link(&error) => {
            let copy = |to: &mut File| io::copy(&mut file, to).map(drop);
            Temporary::written(store, copy, None)?.name_as(store, target, false)
        }
        Err(failure) => Err(failure),
    }
}

fn cannot_link(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK].into_iter().any(|one| errno == Some(one))
}

/// Names the object by `name`, having made the directories above it, and makes the name durable.
fn in_directory(
    store: &DirectoryStore,
    target: &Path,
    mut name: impl FnMut() -> io::Result<()>,
) -> Result<(), Failure> {
    let parent = target.parent().unwrap_or(&store.root);
    let mut round = 0;
    loop {
        let stay = store.durable_dirs.read();
        let made = make_durable(store, parent, &mut stay.lock());
        let named = made.and_then(|()| name().map_err(|error| ("naming the object", error)));
        match named {
            // Another process removed a directory that was empty, so what this one knew of it is worth nothing.
            Err((_, error))
                if error.kind() == io::ErrorKind::NotFound && store.is_there() && round < ROUNDS =>
            {
                stay.lock().clear();
                round += 1;
            }
            Err(failure) => return Err(failure),
            Ok(()) => {
                return sync_dir(parent, Point::OBJECT_NAME)
                    .map_err(|error| ("making the name durable", error));
            }
        }
    }
}

/// Makes `dir` and what is missing above it, and makes each one's name durable, unless this process did so before.
fn make_durable(
    store: &DirectoryStore,
    dir: &Path,
    durable: &mut std::collections::HashSet<PathBuf>,
) -> Result<(), Failure> {
    let doing = "making its directory";
    let above: Vec<&Path> = dir.ancestors().take_while(|dir| *dir != store.root).collect();
    for dir in above.into_iter().rev().filter(|dir| !durable.contains(*dir)).collect::<Vec<_>>() {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err((doing, error)),
            _ => {}
        }
        let parent = dir.parent().unwrap_or(&store.root);
        sync_dir(parent, Point::OBJECT_NAME).map_err(|error| (doing, error))?;
        durable.insert(dir.to_path_buf());
    }
    Ok(())
}

/// A file with the object's bytes, durable, but without its name. It is locked as long as its writer lives, which keeps
/// [`DirectoryStore::sweep`] away, and removed when dropped.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    fn written(
        store: &DirectoryStore,
        write: impl FnOnce(&mut File) -> io::Result<()>,
        old: Option<&Metadata>,
    ) -> Result<Temporary, Failure> {
        let mut temporary = Temporary::create(store).map_err(|error| ("making a temporary file", error))?;
        let file = &mut temporary.file;
        write(file).map_err(|error| ("writing", error))?;
        let newer = FileTimes::new().set_modified(newer_than(old));
        file.set_times(newer).map_err(|error| ("setting its time", error))?;
        sync_file(file, Point::OBJECT_DATA).map_err(|error| ("making its bytes durable", error))?;
        Ok(temporary)
    }

    fn create(store: &DirectoryStore) -> io::Result<Temporary> {
        for _ in 0..ROUNDS {
            let path = store.own("put").join(random::name()?);
            let file = File::options().write(true).create_new(true).open(&path)?;
            let temporary = Temporary { path, file };
            let locked = flock(&temporary.file, FlockOperation::NonBlockingLockExclusive).is_ok();
            // A sweep may have taken the file for a leftover before the lock was there.
            if locked && temporary.file.metadata()?.nlink() > 0 {
                return Ok(temporary);
            }
        }
        Err(io::Error::other("temporary files disappear as soon as they are made"))
    }

    fn name_as(self, store: &DirectoryStore, target: &Path, replace: bool) -> Result<Metadata, Failure> {
        in_directory(store, target, || {
            if replace {
                return fs::rename(&self.path, target);
            }
            match fs::hard_link(&self.path, target) {
                Err(error) if cannot_link(&error) => {
                    Ok(renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE)?)
                }
                other => other,
            }
        })?;
        self.file.metadata().map_err(|error| ("reading back", error))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.path);
    }
}

/// The clock's time, but later than the file that is replaced: the tag of a version never comes back, however coarse the kernel's
/// clock is and even if an inode number does.
fn newer_than(old: Option<&Metadata>) -> SystemTime {
    let now = SystemTime::now();
    let floor = old.and_then(|old| old.modified().ok()).map(|time| time + Duration::from_micros(1));
    floor.map_or(now, |floor| now.max(floor))
}
