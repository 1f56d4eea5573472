use std::collections::VecDeque;

use forebay_types::Ino;
use rustc_hash::FxHashMap;

/// Numbers for inodes: each directory has a run of its own, as at the owner, so that its inodes are neighbours there.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    runs: VecDeque<u64>,
    of: FxHashMap<Ino, (u64, u16)>,
    /// The session is given no more.
    refused: bool,
}

const RUN_LEN: u16 = 1 << Ino::RUN_BITS;

impl Numbers {
    /// A number for an inode in this directory, never returned before; `None` where there are none.
    pub(super) fn take(&mut self, directory: Ino) -> Option<Ino> {
        let (run, index) = match self.of.get(&directory) {
            Some((run, index)) if *index < RUN_LEN => (*run, *index),
            _ => (self.runs.pop_front()?, 0),
        };
        self.of.insert(directory, (run, index + 1));
        Some(Ino::in_run(run, index))
    }

    pub(super) fn add(&mut self, first: u64, runs: u32) {
        self.runs.extend(first..first + u64::from(runs));
    }

    /// No more is made in this directory: what is left of its run is for another.
    pub(super) fn left(&mut self, directory: Ino) {
        self.of.remove(&directory);
    }

    pub(super) fn refuse(&mut self) {
        self.refused = true;
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    pub(super) fn clear(&mut self) {
        self.refused = false;
        self.runs.clear();
        self.of.clear();
    }
}
