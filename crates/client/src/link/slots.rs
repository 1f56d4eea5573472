use forebay_cluster::{SLOTS, SlotNumber};

/// Slots that are left to requests that nobody waits for at the owner: what was kept back is told through them however many others wait.
pub(crate) const RESERVED: usize = 8;

/// The slots of a session that no request is in, with their next numbers.
#[derive(Debug)]
pub(crate) struct Slots(Vec<(SlotNumber, u64)>);

impl Slots {
    pub(crate) fn new() -> Slots {
        Slots((0..SLOTS).rev().map(|slot| (SlotNumber(slot), 1)).collect())
    }

    /// A slot and the number for a request in it.
    pub(crate) fn take(&mut self, urgent: bool) -> Option<(SlotNumber, u64)> {
        if urgent || self.0.len() > RESERVED { self.0.pop() } else { None }
    }

    /// The request was answered.
    pub(crate) fn answered(&mut self, (slot, number): (SlotNumber, u64)) {
        self.0.push((slot, number + 1));
    }

    /// The request never reached an owner, and its number was not used.
    pub(crate) fn unused(&mut self, slot: (SlotNumber, u64)) {
        self.0.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other_and_some_slots_are_kept_for_what_is_urgent() {
        let mut slots = Slots::new();
        let taken: Vec<_> = std::iter::from_fn(|| slots.take(false)).collect();
        assert_eq!(taken.len(), usize::from(SLOTS) - RESERVED);
        assert!(taken.iter().all(|(_, number)| *number == 1));
        let urgent = slots.take(true).unwrap();
        slots.answered(urgent);
        assert_eq!(slots.take(true), Some((urgent.0, 2)));
        slots.unused((urgent.0, 2));
        assert_eq!(slots.take(true), Some((urgent.0, 2)));
    }
}
