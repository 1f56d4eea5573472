//! What is kept in memory of rows that the engine has.

use super::Namespace;

impl Namespace {
    /// Drops the names, inodes and blocks that are cached, as if all had been evicted: the next look at each asks the engine. Rows that the engine
    /// does not have yet stay, and so does which names directories made here never had.
    pub fn empty_caches(&self) {
        self.dentries.clear();
        self.inodes.clear();
        self.blocks.clear();
    }
}
