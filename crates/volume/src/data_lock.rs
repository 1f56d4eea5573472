//! One writer a file: whoever changes a file's bytes in more than one step holds the file's lock.

use forebay_format::run::Trial;
use forebay_types::Ino;
use parking_lot::{Mutex, MutexGuard};

const SHARDS: usize = 256;

/// What is kept of a file from one large write to the next: whether its bytes compress.
type Writing = Trial;

/// The locks of all files; two files may share one.
#[derive(Debug)]
pub(crate) struct DataLocks(Vec<Mutex<Writing>>);

impl Default for DataLocks {
    fn default() -> Self {
        DataLocks((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl DataLocks {
    fn shard(ino: Ino) -> usize {
        (ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % SHARDS
    }

    pub(crate) fn lock(&self, ino: Ino) -> MutexGuard<'_, Writing> {
        self.0[Self::shard(ino)].lock()
    }

    /// The locks of two files, taken in an order that cannot deadlock.
    pub(crate) fn lock_two(
        &self,
        one: Ino,
        other: Ino,
    ) -> (MutexGuard<'_, Writing>, Option<MutexGuard<'_, Writing>>) {
        let (low, high) =
            (Self::shard(one).min(Self::shard(other)), Self::shard(one).max(Self::shard(other)));
        let first = self.0[low].lock();
        (first, (low != high).then(|| self.0[high].lock()))
    }
}
