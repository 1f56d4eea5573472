//! Bringing files into the cache of this machine's disk, ahead of those who read them.

use std::ops::Range;

use forebay_reading::{NotWarm, Stored, Warmed, Warming, stored_runs};
use forebay_types::Ino;

use crate::Volume;

impl Volume {
    /// Whether there is a cache on this machine's disk in front of the store.
    #[must_use]
    pub fn has_cache(&self) -> bool {
        self.source.objects().stats().is_some()
    }

    /// Chunks that have left that cache since the volume was opened, for want of room.
    #[must_use]
    pub fn cache_evictions(&self) -> u64 {
        self.source.objects().stats().map_or(0, |stats| stats.evictions)
    }
}

impl Warming for Volume {
    fn len(&self, ino: Ino) -> Result<u64, String> {
        let inode = self.ns.inode(self.subvolume, ino).map_err(|error| error.to_string())?;
        Ok(inode.row.size)
    }

    fn stored(&self, ino: Ino, range: &Range<u64>) -> Result<Vec<Stored>, String> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let pieces = self.ns.map(self.subvolume, ino, range.start, range.end - range.start);
        let pieces = pieces.map_err(|error| error.to_string())?;
        // What the store does not have is on this machine's disk.
        Ok(stored_runs(&pieces).into_iter().filter_map(|run| self.source.in_store(&run)).collect())
    }

    fn bring(&self, stored: &Stored) -> Result<Warmed, NotWarm> {
        let warmed = self.source.objects().warm(stored);
        if let Err(NotWarm::Moved(segment)) = &warmed {
            self.source.forget(*segment);
        }
        Ok(warmed?.unwrap_or_default())
    }
}
