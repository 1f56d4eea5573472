//! Bringing files of a mount near.

use std::ops::Range;

use forebay_reading::{NotWarm, Stored, Warmed, Warming};
use forebay_types::{Ino, SegmentId};

use super::{SharedVolume, core::Core};
use crate::data::WarmInto;

/// A volume whose files are brought somewhere.
#[derive(Debug)]
pub struct Nearby<'a> {
    volume: &'a SharedVolume,
    into: WarmInto,
}

impl SharedVolume {
    /// Where files of this volume can be near.
    #[must_use]
    pub fn can_warm(&self) -> WarmInto {
        self.core.bytes.can_warm()
    }

    /// The volume, for a [`forebay_reading::Warmer`] that brings its files there.
    #[must_use]
    pub fn nearby(&self, into: WarmInto) -> Nearby<'_> {
        Nearby { volume: self, into }
    }

    /// Chunks that have left the cache on this machine's disk since the start, for want of room.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.core.bytes.evictions()
    }
}

impl Nearby<'_> {
    fn core(&self) -> &Core {
        &self.volume.core
    }
}

impl Warming for Nearby<'_> {
    fn len(&self, ino: Ino) -> Result<u64, String> {
        let core = self.core();
        let inode = core.inode(core.root.across(ino)).map_err(|error| error.to_string())?;
        Ok(inode.row.size)
    }

    fn stored(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<Stored>, String> {
        let core = self.core();
        core.stored(core.root.across(ino), range).map_err(|error| error.to_string())
    }

    fn rule(&self, segment: SegmentId) -> u8 {
        self.core().bytes.warm_rule(segment)
    }

    fn bring(&self, stored: &Stored) -> Result<Warmed, NotWarm> {
        self.core().bytes.warm(stored, self.into)
    }
}
