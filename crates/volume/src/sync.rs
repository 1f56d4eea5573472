//! Making what was done durable.

use crate::{Volume, error::VolumeError};

impl Volume {
    /// Returns once everything that was acknowledged before the call is as durable as the volume's class promises. Many callers share one
    /// wait for the disk, and in class `object` for the bucket.
    ///
    /// # Errors
    /// In class `object` [`VolumeError::Object`] where the bucket could not be reached: nothing is lost, and the next call tries again.
    /// [`VolumeError::Fenced`] where another machine has taken the volume over.
    /// [`VolumeError::Data`] where the local disk failed: then what was not durable before may be lost, and every later call says so too.
    pub fn sync(&self) -> Result<(), VolumeError> {
        if let Some(remote) = &self.remote {
            remote.fence.intact()?;
        }
        let target = self.ns.last();
        if self.journal.synced() < target {
            self.streams.sync()?;
            self.journal.sync(target)?;
        }
        match &self.remote {
            Some(remote) if remote.is_class_object() => self.ship_and_acknowledge(remote, target),
            _ => Ok(()),
        }
    }
}
