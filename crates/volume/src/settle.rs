//! What makes sizes comparable.

use crate::{Volume, VolumeError};

impl Volume {
    /// Merges the files of the metadata engine, so that it takes as little space as its rows need. The engine does so by itself as it grows; this is
    /// for measuring. Rows that wait for a checkpoint stay outside: drain first.
    ///
    /// # Errors
    /// [`VolumeError::ReadOnly`]; those of the engine.
    pub fn settle_metadata(&self) -> Result<(), VolumeError> {
        self.may_write()?;
        Ok(self.engine.settle()?)
    }
}
