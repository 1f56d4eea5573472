//! Removing what nobody sees any more: files without a name, and what was cut off files.

use crate::{Volume, error::VolumeError};

impl Volume {
    /// Removes files that lost their last name and extents that were cut off, each a record at a time, and stops where `pause` says so, or when
    /// the volume is closed: then the next opening finds the rest. One that cannot be removed does not keep the others. Returns
    /// whether nothing is left.
    ///
    /// # Errors
    /// [`VolumeError`], the first; what it is about is tried again by the next round.
    pub(super) fn clean(&self, pause: &dyn Fn() -> bool) -> Result<bool, VolumeError> {
        let (mut trouble, mut failed) = (None, Vec::new());
        while let Some(ino) = self.upkeep.next_orphan() {
            match self.in_steps(pause, &|| Ok(self.ns.purge(self.subvolume, ino)?)) {
                Ok(true) => {}
                Ok(false) => {
                    self.upkeep.keep_orphan(ino);
                    failed.drain(..).for_each(|ino| self.upkeep.keep_orphan(ino));
                    return Ok(false);
                }
                Err(error) => {
                    failed.push(ino);
                    trouble.get_or_insert(error);
                }
            }
        }
        failed.drain(..).for_each(|ino| self.upkeep.keep_orphan(ino));
        for (subvolume, ino) in self.ns.uncleaned() {
            match self.in_steps(pause, &|| Ok(self.ns.clean(subvolume, ino)?)) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => {
                    trouble.get_or_insert(error);
                }
            }
        }
        trouble.map_or(Ok(true), Err)
    }

    /// Takes steps until one says that it was the last. Between two everybody else has a turn.
    fn in_steps(
        &self,
        pause: &dyn Fn() -> bool,
        step: &dyn Fn() -> Result<bool, VolumeError>,
    ) -> Result<bool, VolumeError> {
        while !step()? {
            if pause() || self.upkeep.stopping() {
                return Ok(false);
            }
            std::thread::yield_now();
        }
        Ok(true)
    }

    /// Cleans until a checkpoint is due. Returns whether nothing is left.
    pub(super) fn clean_until_due(&self) -> Result<bool, VolumeError> {
        self.clean(&|| self.checkpoint_is_due())
    }

    /// Cleans all there is, with checkpoints in between, so that the rows of it that wait stay few, and on a full disk the journal gets room again.
    ///
    /// # Errors
    /// [`VolumeError`].
    pub(crate) fn clean_all(&self) -> Result<(), VolumeError> {
        while !self.clean_until_due()? {
            if self.upkeep.stopping() {
                return Ok(());
            }
            self.checkpoint_now()?;
        }
        Ok(())
    }
}
