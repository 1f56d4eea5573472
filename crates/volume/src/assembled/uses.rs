//! How often files were used, lately: which of them are worth room in the budget.
//!
//! A use is an open for reading, or a read of a quarter of the file that was asked of us. All counts are halved from time to time, so what was used long
//! ago counts little. A file is worth being assembled after two uses since it was last looked at; where others have to leave for it, only if it saves
//! clearly more than they do. So of more files than have room, used alike, those that are there stay, and nothing is assembled in vain.

use forebay_types::Ino;
use rustc_hash::FxHashMap;

/// What one use counts.
const USE: u32 = 16;
/// Reads of so much of a file are one use: one part of four.
const PARTS: u64 = 4;
/// Uses that make a file worth being assembled.
const WORTH: u32 = 2 * USE;
/// After so many uses, of whatever files, all counts are halved.
const AGE: u32 = 4096;
/// Files of which it is remembered how they were used.
const FILES_MAX: usize = 4096;
/// What enters must save so many halves of what leaves saved.
const HALVES: u128 = 3;

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Uses, lately.
    count: u32,
    /// Of these, since it was last found worth being assembled.
    fresh: u32,
}

/// The uses of files.
#[derive(Debug, Default)]
pub(super) struct Uses {
    of: FxHashMap<Ino, Use>,
    /// Uses since counts were last halved.
    noted: u32,
}

/// What a file of `bytes` bytes saves that was used so often.
fn saved(count: u32, bytes: u64) -> u128 {
    u128::from(count) * u128::from(bytes)
}

impl Uses {
    /// A file was opened for reading. True: it is worth being assembled, which is said once for so many uses.
    pub(super) fn opened(&mut self, ino: Ino) -> bool {
        self.used(ino, USE)
    }

    /// `len` bytes of a file of `size` were read. True as for [`Uses::opened`].
    pub(super) fn read(&mut self, ino: Ino, size: u64, len: u64) -> bool {
        let parts = u128::from(len) * u128::from(PARTS) * u128::from(USE) / u128::from(size.max(1));
        self.used(ino, u32::try_from(parts).unwrap_or(u32::MAX).min(WORTH))
    }

    fn used(&mut self, ino: Ino, amount: u32) -> bool {
        self.noted += 1;
        if self.noted >= AGE || self.of.len() >= FILES_MAX && !self.of.contains_key(&ino) {
            self.age();
        }
        let uses = self.of.entry(ino).or_default();
        uses.count = uses.count.saturating_add(amount);
        uses.fresh = uses.fresh.saturating_add(amount);
        let worth = uses.fresh >= WORTH;
        if worth {
            uses.fresh = 0;
        }
        worth
    }

    /// Halves all counts, until there is room for another file.
    fn age(&mut self) {
        self.noted = 0;
        loop {
            self.of.retain(|_, uses| {
                (uses.count, uses.fresh) = (uses.count / 2, uses.fresh.min(uses.count / 2));
                uses.count > 0
            });
            if self.of.len() < FILES_MAX {
                return;
            }
        }
    }

    /// How often it was used, lately.
    pub(super) fn count(&self, ino: Ino) -> u32 {
        self.of.get(&ino).map_or(0, |uses| uses.count)
    }

    /// Whether a file of `bytes` saves clearly more than `leaving`, by their bytes.
    pub(super) fn saves_more(&self, ino: Ino, bytes: u64, leaving: impl Iterator<Item = (Ino, u64)>) -> bool {
        let lost: u128 = leaving.map(|(other, bytes)| saved(self.count(other), bytes)).sum();
        saved(self.count(ino), bytes) * 2 > lost * HALVES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_often(uses: &mut Uses, ino: u64, times: u32) {
        for _ in 0..times {
            uses.opened(Ino(ino));
        }
    }

    #[test]
    fn two_uses_are_worth_it_each_time_anew() {
        let mut uses = Uses::default();
        let said: Vec<bool> = (0..6).map(|_| uses.opened(Ino(5))).collect();
        assert_eq!(said, [false, true, false, true, false, true]);
        // A quarter, three times, and the rest.
        assert!(!uses.read(Ino(6), 4000, 1000) && uses.read(Ino(6), 4000, 1000));
        assert!(uses.read(Ino(7), 1, u64::MAX));
        assert_eq!((uses.count(Ino(5)), uses.count(Ino(8))), (6 * USE, 0));
    }

    #[test]
    fn what_enters_saves_clearly_more() {
        let mut uses = Uses::default();
        for (ino, times) in [(1, 4), (2, 4), (3, 7)] {
            open_often(&mut uses, ino, times);
        }
        let more = |ino, bytes, leaving: &[(u64, u64)]| {
            uses.saves_more(Ino(ino), bytes, leaving.iter().map(|(ino, bytes)| (Ino(*ino), *bytes)))
        };
        assert!(!more(2, 100, &[(1, 100)]) && more(3, 100, &[(1, 100)]));
        assert!(!more(3, 100, &[(1, 100), (2, 100)]) && more(3, 200, &[(1, 100), (2, 100)]));
        assert!(more(1, 100, &[(9, 100)]));
    }

    #[test]
    fn uses_are_forgotten() {
        let mut uses = Uses::default();
        open_often(&mut uses, 1, 64);
        open_often(&mut uses, 2, 20 * AGE);
        assert_eq!(uses.count(Ino(1)), 0);
        (0..2 * FILES_MAX as u64).for_each(|ino| open_often(&mut uses, ino, 1));
        assert!(uses.of.len() <= FILES_MAX);
        assert!(uses.count(Ino(2)) > 2 * USE, "the one that was used is known longer");
    }
}
