//! Making what was done durable.

use crate::{Volume, error::VolumeError};

impl Volume {
    /// Returns once everything that was acknowledged before the call is as durable as the volume's class promises. Many callers share one
    /// wait for the disk.
    ///
    /// # Errors
    /// [`VolumeError::Data`] where the local disk failed: then what was not durable before may be lost, and every later call says so too.
    pub fn sync(&self) -> Result<(), VolumeError> {
        let target = self.ns.last();
        if self.journal.synced() >= target {
            return Ok(());
        }
        self.streams.sync()?;
        self.journal.sync(target)?;
        Ok(())
    }
}
