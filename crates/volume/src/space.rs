//! How much room there is.

use forebay_types::limits::NAME_MAX;
use forebay_vfs::Space;
use rustix::fs::statvfs;

use crate::{
    Volume,
    error::{VolumeError, io_error},
};

/// What a store elsewhere is said to have room for, in bytes: buckets do not tell.
const BUCKET_BYTES: u64 = 1 << 60;
const BLOCK: u64 = 4096;
/// Inodes that a volume is said to have room for: their numbers do not run out.
const FILES: u64 = 1 << 40;

impl Volume {
    /// How much room there is: on the local disk where the data rests there, else as much as a bucket may take.
    ///
    /// # Errors
    /// [`VolumeError::Io`].
    pub fn space(&self) -> Result<Space, VolumeError> {
        let root = &self.paths.root;
        let disk = statvfs(root).map_err(|error| io_error("ask for the space of", root)(error.into()))?;
        let unit = disk.f_frsize;
        let in_blocks = |count: u64| count.saturating_mul(unit) / BLOCK;
        let (blocks, free, available) = if self.config.store.is_none() {
            (in_blocks(disk.f_blocks), in_blocks(disk.f_bfree), in_blocks(disk.f_bavail))
        } else {
            let left = BUCKET_BYTES.saturating_sub(self.ns.segment_totals().live) / BLOCK;
            (BUCKET_BYTES / BLOCK, left, left)
        };
        Ok(Space {
            block_size: BLOCK as u32,
            blocks,
            free,
            available,
            files: FILES,
            files_free: FILES,
            name_max: NAME_MAX as u32,
        })
    }
}
