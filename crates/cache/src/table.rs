//! A hash table of slot numbers with open addressing. It stores four bytes a place and no keys: those are in the slots,
//! and the caller compares.

/// At most half full, so that probes stay short; its memory is zeroed lazily by the system, so unused parts cost none.
pub(crate) struct Table {
    /// A slot number plus one; 0 is a free place.
    places: Vec<u32>,
    mask: usize,
}

impl Table {
    /// A table for up to `limit` slots.
    pub(crate) fn new(limit: u32) -> Table {
        let len = (limit as usize * 2).next_power_of_two().max(2);
        Table { places: vec![0; len], mask: len - 1 }
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// The slot with `hash` that `is_it`.
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        while self.places[at] != 0 {
            let slot = self.places[at] - 1;
            if is_it(slot) {
                return Some(slot);
            }
            at = (at + 1) & self.mask;
        }
        None
    }

    /// Adds `slot`, which must not be there yet.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        let mut at = self.home(hash);
        while self.places[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.places[at] = slot + 1;
    }

    /// Takes `slot` out, and moves those behind it back, so that no gap hides them from `find`.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let mut gap = self.home(hash);
        while self.places[gap] != slot + 1 {
            if self.places[gap] == 0 {
                return;
            }
            gap = (gap + 1) & self.mask;
        }
        let mut at = (gap + 1) & self.mask;
        while self.places[at] != 0 {
            let home = self.home(hash_of(self.places[at] - 1));
            // It may move to the gap unless its home lies after the gap, on the way to where it is.
            if (at.wrapping_sub(home) & self.mask) >= (at.wrapping_sub(gap) & self.mask) {
                self.places[gap] = self.places[at];
                gap = at;
            }
            at = (at + 1) & self.mask;
        }
        self.places[gap] = 0;
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn what_collides_is_found_after_any_removal() {
        // Eight homes for up to 64 slots: long, wrapping runs of collisions.
        let hash = |slot: u32| u64::from(slot % 8) + 124;
        let mut rng = StdRng::seed_from_u64(1);
        let mut table = Table::new(64);
        let mut there = [false; 64];
        for _ in 0..20_000 {
            let slot = rng.random_range(0..64_u32);
            match &mut there[slot as usize] {
                present @ true => {
                    table.remove(hash(slot), slot, hash);
                    *present = false;
                }
                absent => {
                    table.insert(hash(slot), slot);
                    *absent = true;
                }
            }
            for (slot, present) in (0_u32..).zip(there) {
                assert_eq!(table.find(hash(slot), |found| found == slot).is_some(), present);
            }
        }
    }
}
