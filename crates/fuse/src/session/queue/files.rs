//! Files by which the kernel can be asked something back.

use std::sync::atomic::{AtomicU64, Ordering};

/// For each queue the file that an operation was last asked for in it. Each is written to by the threads of one processor.
pub(super) struct LastFiles(Box<[Place]>);

/// One beside the other, the processors would disturb each other.
#[repr(align(64))]
#[derive(Default)]
struct Place(AtomicU64);

impl LastFiles {
    pub(super) fn new(queues: usize) -> LastFiles {
        LastFiles((0..queues).map(|_| Place::default()).collect())
    }

    pub(super) fn note(&self, queue: u16, file: u64) {
        if let Some(Place(place)) = self.0.get(usize::from(queue)) {
            place.store(file, Ordering::Relaxed);
        }
    }

    /// Those that are known, `queue`'s own first. The kernel may have forgotten any of them.
    pub(super) fn from(&self, queue: u16) -> impl Iterator<Item = u64> {
        let (before, from) = self.0.split_at(usize::from(queue).min(self.0.len()));
        from.iter().chain(before).map(|Place(place)| place.load(Ordering::Relaxed)).filter(|file| *file != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queues_own_file_comes_first_and_unknown_ones_not_at_all() {
        let files = LastFiles::new(3);
        assert_eq!(files.from(1).count(), 0);
        files.note(2, 20);
        files.note(1, 10);
        files.note(9, 90);
        assert_eq!(files.from(1).collect::<Vec<_>>(), [10, 20]);
        assert_eq!(files.from(2).collect::<Vec<_>>(), [20, 10]);
        assert_eq!(files.from(9).count(), 2);
    }
}
