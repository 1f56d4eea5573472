//! Space that the embedded engine keeps for the day on which the disk is full: what frees space in the end is a checkpoint, and that needs some.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, fallocate, statvfs},
    process::geteuid,
};

/// Bytes that are kept.
const LEN: u64 = 16 << 20;
/// Nothing is kept where less than this is free: somebody else needs it more.
const FREE_MIN: u64 = 2 * LEN;

/// A file in the engine's directory that is only space.
#[derive(Debug)]
pub(crate) struct Reserve {
    dir: PathBuf,
    path: PathBuf,
    /// What [`Reserve::free`] says in tests, instead of what is so.
    #[cfg(test)]
    pub(crate) pretended: parking_lot::Mutex<Option<u64>>,
}

impl Reserve {
    pub(crate) const NAME: &str = "reserve";

    pub(crate) fn new(dir: &Path) -> Reserve {
        Reserve {
            dir: dir.to_owned(),
            path: dir.join(Self::NAME),
            #[cfg(test)]
            pretended: parking_lot::Mutex::default(),
        }
    }

    /// Bytes that this process may still write; as many as can be where that cannot be told.
    pub(crate) fn free(&self) -> u64 {
        #[cfg(test)]
        if let Some(free) = *self.pretended.lock() {
            return free;
        }
        let disk = statvfs(&self.dir).ok().filter(|disk| disk.f_blocks > 0);
        let Some(disk) = disk else { return u64::MAX };
        let blocks = if geteuid().is_root() { disk.f_bfree } else { disk.f_bavail };
        blocks.saturating_mul(disk.f_frsize)
    }

    /// Gives the space back, and says whether there was any.
    pub(crate) fn release(&self) -> bool {
        match fs::remove_file(&self.path) {
            Ok(()) => {
                tracing::warn!("'{}': the disk is full, its reserve is used", self.dir.display());
                true
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                tracing::warn!("cannot remove '{}': {error}", self.path.display());
                false
            }
        }
    }

    /// Sets the space aside, unless that is done or there is too little of it.
    pub(crate) fn fill(&self) {
        if self.path.exists() || self.free() < FREE_MIN {
            return;
        }
        let made = File::create_new(&self.path)
            .and_then(|file| fallocate(&file, FallocateFlags::empty(), 0, LEN).map_err(io::Error::from));
        if let Err(error) = made {
            tracing::debug!("no space is set aside in '{}': {error}", self.dir.display());
            let _ = fs::remove_file(&self.path);
        }
    }
}
