//! How the use of a volume ends: for good, or because another process goes on with it.

use std::sync::{Arc, atomic::Ordering};

use crate::{Volume, error::VolumeError};

impl Volume {
    /// Prepares [`Volume::hand_over`], which then has little to do, and the next opening, which then has little to replay: empties the journal
    /// into packed segments, takes a checkpoint, and stops the background work, waiting for what is under way in the store. The volume may
    /// be used meanwhile and afterwards.
    ///
    /// # Errors
    /// [`VolumeError`]; [`Volume::resume`] is to be called if the volume is to be used on.
    pub fn quiesce(&self) -> Result<(), VolumeError> {
        // While background work goes on, and twice: what comes meanwhile is less. On a full disk the journal has all of it.
        for _ in 0..2 {
            let emptied = self.seal_all().and_then(|()| self.checkpoint_now());
            emptied.or_else(|error| if error.is_no_space() { Ok(()) } else { Err(error) })?;
        }
        self.stop_upkeep();
        self.sync_here()
    }

    /// Goes on with the background work after [`Volume::quiesce`], or begins with it after an opening without.
    ///
    /// # Errors
    /// [`VolumeError::Io`] where no thread can be started.
    pub fn resume(self: &Arc<Self>) -> Result<(), VolumeError> {
        self.upkeep.signal.stop.store(false, Ordering::Release);
        self.start_upkeep()
    }

    /// Makes everything durable on this machine, for another process that opens the volume next. Nothing is brought into the store. The
    /// volume is then only to be dropped, which lets the other one have it.
    ///
    /// # Errors
    /// [`VolumeError`]: what was not durable before may be lost.
    pub fn hand_over(&self) -> Result<(), VolumeError> {
        self.stop_upkeep();
        self.sync_here()
    }

    pub(super) fn sync_here(&self) -> Result<(), VolumeError> {
        let target = self.ns.last();
        self.streams.sync()?;
        Ok(self.journal.sync_behind(target)?)
    }

    fn stop_upkeep(&self) {
        self.upkeep.signal.stop.store(true, Ordering::Release);
        self.upkeep.wake();
        self.upkeep.give_way.interrupt();
        self.upkeep.behind.stop();
        self.listing.stop();
        if let Some(assembled) = &self.assembled {
            assembled.stop();
        }
        let threads = std::mem::take(&mut *self.upkeep.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the background work panicked");
            }
        }
    }

    /// Stops the background work and makes everything durable on this machine; a store elsewhere gets what can be had there at once. The volume is then
    /// only to be dropped.
    ///
    /// # Errors
    /// [`VolumeError`]: what was not durable before may be lost.
    pub fn close(&self) -> Result<(), VolumeError> {
        self.stop_upkeep();
        self.sync()?;
        if let Err(error) = self.clean_all().and_then(|()| self.checkpoint_now()) {
            // The journal has all of it, and the next opening goes on from there.
            if !error.is_no_space() {
                return Err(error);
            }
            tracing::warn!("the last checkpoint is left to the next mount: {error}");
        }
        self.sync()?;
        if let Err(error) = self.ship() {
            tracing::error!("the last seconds of the journal are on this machine only: {error}");
        }
        Ok(())
    }
}
