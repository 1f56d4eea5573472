//! What a volume holds, and what is still to be done.

use std::sync::atomic::Ordering;

use serde::Serialize;

use crate::{Volume, upkeep::Task};

/// What a volume is and holds at a moment.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Status {
    /// Its identity.
    pub id: String,
    /// Its directory.
    pub path: String,
    /// Where its data rests.
    pub store: String,
    /// Bytes of a block.
    pub block_size: u32,
    /// How frames are compressed.
    pub compression: String,
    /// Whether frames are encrypted.
    pub encryption: String,
    /// Where `fsync` puts data.
    pub durability: String,
    /// The term of this opening.
    pub epoch: u64,
    /// Raw bytes in use, wherever they are.
    pub live_bytes: u64,
    /// Raw bytes in use that the store does not have yet.
    pub dirty_bytes: u64,
    /// Of these, bytes in the journal.
    pub journal_bytes: u64,
    /// Segments, and those of them that the store does not have yet.
    pub segments: u64,
    /// Segments that the store does not have yet.
    pub dirty_segments: u64,
    /// Objects in the store.
    pub objects: u64,
    /// Bytes of these objects' segments, as stored.
    pub stored_bytes: u64,
    /// Raw bytes in these objects that nothing refers to any more.
    pub garbage_bytes: u64,
    /// Bytes that the metadata engine takes on disk.
    pub metadata_bytes: u64,
    /// The last record of the journal, and the last one that the engine contains.
    pub journal_last: u64,
    /// How often the journal was synced since the volume was opened.
    pub journal_syncs: u64,
    /// Files of which something that nobody sees any more is still to be removed: a large one that was deleted or truncated.
    pub uncleaned_files: u64,
    /// What the background work has done since the volume was opened.
    pub upkeep: UpkeepStatus,
    /// Bytes of rows that wait for the next checkpoint.
    pub pending_metadata_bytes: u64,
    /// Background work that is going wrong, in words; empty when all is well.
    pub troubles: Vec<Activity>,
    /// Where the store is elsewhere: how far the bucket has come.
    pub bucket: Option<BucketStatus>,
    /// Where the store is elsewhere: the cache on the local disk.
    pub cache: Option<CacheStatus>,
    /// The last trouble with the store.
    pub store_error: Option<String>,
}

/// What the background work has done since the volume was opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct UpkeepStatus {
    /// Bytes moved out of objects that were mostly garbage, or small.
    pub compacted_bytes: u64,
    /// Objects that were emptied so.
    pub compacted_objects: u64,
    /// Objects deleted in the store.
    pub deleted_objects: u64,
}

/// How much of a volume could be brought back from its bucket alone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BucketStatus {
    /// The last record of the journal that the bucket has.
    pub journal_last: u64,
    /// The last record that the checkpoints in the bucket contain.
    pub checkpoint: u64,
    /// The epoch of the machine that has taken the volume over from this one.
    pub taken_over_by: Option<u64>,
}

/// What the cache of a store elsewhere holds and has done since the volume was opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CacheStatus {
    /// Bytes kept.
    pub used_bytes: u64,
    /// Bytes that it may keep.
    pub capacity_bytes: u64,
    /// Chunks that reads found in it.
    pub hits: u64,
    /// Chunks that reads had to fetch.
    pub misses: u64,
    /// Bytes that came from the store, read-ahead included.
    pub fetched_bytes: u64,
    /// Chunks dropped to make room.
    pub evictions: u64,
    /// Chunks dropped because they were found wrong, by their own checksum or by the reader's.
    pub damaged: u64,
    /// Chunks that the cache's disk had no room for, or failed on.
    pub not_kept: u64,
}

/// Background work and what last went wrong with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Activity {
    /// Which work.
    pub task: String,
    /// What went wrong.
    pub error: String,
}

impl Volume {
    /// What the volume holds now.
    #[must_use]
    pub fn status(&self) -> Status {
        let totals = self.ns.segment_totals();
        let dirty_segments = self.ns.unstored_segments().iter().filter(|(_, row)| row.live > 0).count();
        Status {
            id: self.config.id.to_string(),
            path: self.paths.root.display().to_string(),
            store: self.config.store.clone().unwrap_or_else(|| self.paths.objects().display().to_string()),
            block_size: self.config.block_size,
            compression: self.config.compression.to_string(),
            encryption: self.config.encryption.to_string(),
            durability: self.config.durability.to_string(),
            epoch: self.epoch.0,
            live_bytes: totals.live,
            dirty_bytes: totals.dirty(),
            journal_bytes: totals.journal_live,
            segments: totals.segments,
            dirty_segments: dirty_segments as u64,
            objects: totals.objects,
            stored_bytes: totals.stored_len,
            garbage_bytes: totals.garbage,
            metadata_bytes: forebay_meta::Engine::size_on_disk(self.engine.as_ref()),
            journal_last: self.ns.last().0,
            journal_syncs: self.journal.syncs(),
            uncleaned_files: self.ns.uncleaned_count() as u64,
            upkeep: UpkeepStatus {
                compacted_bytes: self.upkeep.done.compacted_bytes.load(Ordering::Relaxed),
                compacted_objects: self.upkeep.done.compacted_objects.load(Ordering::Relaxed),
                deleted_objects: self.upkeep.done.deleted_objects.load(Ordering::Relaxed),
            },
            pending_metadata_bytes: self.ns.pending_bytes() as u64,
            troubles: self.upkeep.troubles(),
            bucket: self.remote.as_ref().map(|remote| BucketStatus {
                journal_last: remote.shipped().0,
                checkpoint: remote.covered().0,
                taken_over_by: remote.fence.taken_over_by().map(|epoch| epoch.0),
            }),
            cache: self.source.objects().stats().map(|stats| CacheStatus {
                used_bytes: stats.used_bytes,
                capacity_bytes: stats.capacity_bytes,
                hits: stats.hits,
                misses: stats.misses,
                fetched_bytes: stats.fetched_bytes,
                evictions: stats.evictions,
                damaged: stats.corrupt + stats.distrusted,
                not_kept: stats.skipped_full + stats.disk_errors,
            }),
            store_error: forebay_object::ObjectStore::last_error(&self.store)
                .map(|error| format!("{error:?}")),
        }
    }

    /// Raw bytes in use that the store does not have yet.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.ns.segment_totals().dirty()
    }

    pub(crate) fn succeeded(&self, task: Task) {
        self.upkeep.clear_trouble(task);
    }
}
