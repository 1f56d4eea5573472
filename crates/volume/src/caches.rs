//! The caches of an open volume: in memory, and on the local disk where the store is elsewhere.

use serde::Serialize;

use crate::Volume;

/// How often a cache had what was asked for, since the volume was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CacheCounts {
    /// `memory` or `disk`.
    pub name: &'static str,
    /// Frames (in memory) or chunks (on disk) that reads found.
    pub hits: u64,
    /// Those that they did not find.
    pub misses: u64,
    /// Bytes kept.
    pub used_bytes: u64,
}

impl Volume {
    /// The caches of file contents: decoded frames in memory, and the cache on disk where there is one. Cheap.
    #[must_use]
    pub fn cache_counts(&self) -> Vec<CacheCounts> {
        let (hits, misses) = self.reader.cache_lookups();
        let mut counts =
            vec![CacheCounts { name: "memory", hits, misses, used_bytes: self.reader.cached_bytes() }];
        if let Some(disk) = self.source.objects().stats() {
            let (hits, misses, used_bytes) = (disk.hits, disk.misses, disk.used_bytes);
            counts.push(CacheCounts { name: "disk", hits, misses, used_bytes });
        }
        counts
    }

    /// Empties all caches: contents in memory and on disk, inodes and block maps in memory. What is not stored yet is no cache and stays, and so
    /// do the metadata engine's own pages of at most 32 MiB. Reads that run meanwhile may put something in again. Says in words what was
    /// emptied.
    pub fn empty_caches(&self) -> Vec<&'static str> {
        self.ns.empty_caches();
        self.listing.clear();
        self.reader.empty_cache();
        let mut emptied = vec!["contents in memory", "inodes and block maps in memory"];
        if self.source.objects().stats().is_some() {
            self.source.objects().empty_cache();
            emptied.push("contents on disk");
        }
        emptied
    }
}
