//! What was recalled while an answer was being made.
//!
//! A recall is known by its inode's number, and by no more than the last digits of that: so an answer may be taken for an old one because another inode was
//! recalled, of [`SLOTS`] one, and never the other way round. A client that gives up much recalls tens of thousands of inodes a second.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_types::Ino;

/// Recalls of so many inodes are told apart.
const SLOTS: usize = 1 << 16;

/// A time between recalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Moment(u64);

#[derive(Debug)]
pub(crate) struct Moments {
    /// Recalls that were begun.
    begun: AtomicU64,
    /// The last of them, for inodes with the same last digits.
    last: Box<[AtomicU64]>,
}

impl Default for Moments {
    fn default() -> Moments {
        Moments { begun: AtomicU64::new(0), last: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Moments {
    pub(crate) fn now(&self) -> Moment {
        Moment(self.begun.load(Ordering::SeqCst))
    }

    /// Recalls of these inodes begin: their leases are marked, and nothing is dropped yet.
    pub(crate) fn recall(&self, inodes: &[Ino]) {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        inodes.iter().for_each(|ino| {
            self.slot(*ino).fetch_max(number, Ordering::SeqCst);
        });
    }

    /// Whether an inode may have been recalled since then.
    pub(crate) fn recalled_since(&self, since: Moment, ino: Ino) -> bool {
        self.slot(ino).load(Ordering::SeqCst) > since.0
    }

    fn slot(&self, ino: Ino) -> &AtomicU64 {
        &self.last[ino.0 as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recall_makes_answers_old_that_are_about_the_same_inode() {
        let moments = Moments::default();
        let before = moments.now();
        moments.recall(&[Ino(5), Ino(6)]);
        let between = moments.now();
        moments.recall(&[Ino(6)]);
        let is_old = |since| [5, 6, 7].map(|ino| moments.recalled_since(since, Ino(ino)));
        assert_eq!(is_old(before), [true, true, false]);
        assert_eq!(is_old(between), [false, true, false]);
        assert_eq!(is_old(moments.now()), [false; 3]);
    }
}
