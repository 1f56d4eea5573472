//! Deltas on their way to the bucket: files of the local directory `outbox`, durable before the engine has their rows.

use std::{
    fs,
    path::{Path, PathBuf},
};

use forebay_env::durable::{self, Point};

use super::names::DeltaName;
use crate::error::{VolumeError, io_error};

/// The local directory of deltas that wait.
#[derive(Debug)]
pub(crate) struct Outbox {
    dir: PathBuf,
}

impl Outbox {
    /// The outbox in `dir`, which is made, durably, where it is missing: a delta that is lost with its directory cannot be made again.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub(crate) fn open(dir: &Path) -> Result<Outbox, VolumeError> {
        match fs::create_dir(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(io_error("make", dir)(error));
            }
            _ => {}
        }
        if let Some(volume) = dir.parent() {
            durable::sync_dir(volume, Point::VOLUME_NAME).map_err(io_error("sync", volume))?;
        }
        Ok(Outbox { dir: dir.to_owned() })
    }

    /// Adds a delta. Returns once it is on stable storage.
    pub(super) fn add(&self, name: &DeltaName, bytes: &[u8]) -> Result<(), VolumeError> {
        durable::replace_file(&self.dir, &name.file(), bytes, Point::VOLUME_DATA, Point::VOLUME_NAME)
            .map_err(io_error("write a delta to", &self.dir))
    }

    /// The deltas that wait, in the order of their records. One whose rows the engine did not get is among them: it is put like the others, and what
    /// follows it has its rows again.
    pub(super) fn waiting(&self) -> Result<Vec<DeltaName>, VolumeError> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(io_error("read", &self.dir))? {
            let entry = entry.map_err(io_error("read", &self.dir))?;
            names.extend(entry.file_name().to_str().and_then(DeltaName::parse_file));
        }
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn read(&self, name: &DeltaName) -> Result<Vec<u8>, VolumeError> {
        let path = self.dir.join(name.file());
        fs::read(&path).map_err(io_error("read", &path))
    }

    pub(super) fn remove(&self, name: &DeltaName) -> Result<(), VolumeError> {
        let path = self.dir.join(name.file());
        fs::remove_file(&path).map_err(io_error("remove", &path))
    }
}
