//! State of inodes, in parts by their numbers: threads that work on different inodes hardly ever meet at a lock.

use forebay_types::Ino;
use parking_lot::Mutex;

const SHARDS: usize = 64;

/// A part alone on its cache line, so that processors that work on neighbours do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard<T>(Mutex<T>);

/// The parts.
#[derive(Debug)]
pub(crate) struct Shards<T>(Vec<Shard<T>>);

impl<T: Default> Default for Shards<T> {
    fn default() -> Shards<T> {
        Shards((0..SHARDS).map(|_| Shard::default()).collect())
    }
}

impl<T> Shards<T> {
    pub(crate) const COUNT: usize = SHARDS;

    /// The part that an inode is in. Siblings, whose numbers follow each other, are in different ones.
    pub(crate) fn of(&self, ino: Ino) -> &Mutex<T> {
        &self.0[(ino.0 ^ ino.0 >> 12) as usize % SHARDS].0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mutex<T>> {
        self.0.iter().map(|shard| &shard.0)
    }
}
