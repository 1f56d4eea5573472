//! Removing what interrupted calls left behind.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use rustix::fs::{FlockOperation, flock};

use super::DirectoryStore;
use crate::{ObjectError, Operation, key::RESERVED};

/// What [`DirectoryStore::sweep`] removed.
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
    /// Removes the temporary files of puts that no longer run, in this process or any other, and directories that an interrupted
    /// deletion left empty. Safe at any time.
    ///
    /// # Errors
    /// The system's, when the directory cannot be read.
    pub fn sweep(&self) -> Result<Swept, ObjectError> {
        let mut swept = Swept::default();
        self.sweep_files(&mut swept)
            .and_then(|()| self.sweep_directories(&self.root, &mut swept))
            .map_err(|error| self.error(Operation::Open, "", "sweeping", error))?;
        Ok(swept)
    }

    fn sweep_files(&self, swept: &mut Swept) -> io::Result<()> {
        for entry in fs::read_dir(self.own("put"))? {
            let path = entry?.path();
            let Ok(file) = File::open(&path) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let bytes = file.metadata().map_or(0, |meta| meta.len());
            if fs::remove_file(&path).is_ok() {
                swept.files += 1;
                swept.bytes += bytes;
            }
        }
        Ok(())
    }

    fn sweep_directories(&self, dir: &Path, swept: &mut Swept) -> io::Result<()> {
        let mut empty = true;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            empty = false;
            let own = dir == self.root && entry.file_name() == RESERVED;
            if !own && entry.file_type()?.is_dir() {
                match self.sweep_directories(&entry.path(), swept) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        if empty {
            swept.directories += self.remove_empty(dir);
        }
        Ok(())
    }
}
