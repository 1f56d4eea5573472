//! Removing what interrupted calls left behind.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use super::DirectoryStore;
use crate::{ObjectError, Operation, key::RESERVED};

/// What [`DirectoryStore::sweep`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Temporary files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Empty directories.
    pub directories: u64,
}

impl DirectoryStore {
    /// Finds the temporary files of puts that no longer run, in this process or any other, and directories that an interrupted
    /// deletion left empty; removes them where `remove` says so. Safe at any time.
    ///
    /// # Errors
    /// The system's, when the directory cannot be read.
    pub fn sweep(&self, remove: bool) -> Result<Swept, ObjectError> {
        let mut sweep = Sweep { store: self, remove, swept: Swept::default() };
        sweep
            .files()
            .and_then(|()| sweep.directories(&self.root).map(drop))
            .map_err(|error| self.error(Operation::Open, "", "sweeping", error))?;
        Ok(sweep.swept)
    }
}

struct Sweep<'a> {
    store: &'a DirectoryStore,
    remove: bool,
    swept: Swept,
}

impl Sweep<'_> {
    fn files(&mut self) -> io::Result<()> {
        for entry in fs::read_dir(self.store.own("put"))? {
            let path = entry?.path();
            let Ok(file) = File::open(&path) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let bytes = file.metadata().map_or(0, |meta| meta.len());
            if !self.remove || fs::remove_file(&path).is_ok() {
                self.swept.files += 1;
                self.swept.bytes += bytes;
            }
        }
        Ok(())
    }

    /// Whether nothing but empty directories is below `dir`.
    fn directories(&mut self, dir: &Path) -> io::Result<bool> {
        let mut empty = true;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let own = dir == self.store.root && entry.file_name() == RESERVED;
            if own || !entry.file_type()?.is_dir() {
                empty = false;
                continue;
            }
            match self.directories(&entry.path()) {
                Ok(nothing) => empty &= nothing,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        if empty && dir != self.store.root {
            self.swept.directories += if self.remove { self.store.remove_empty(dir) } else { 1 };
        }
        Ok(empty)
    }
}
