//! The order of eviction: S3-FIFO ("FIFO queues are all you need for cache eviction", SOSP 2023). New chunks wait in a
//! small queue, a tenth of the slots; those used again before they reach its end move to the main queue, the others
//! leave, remembered as ghosts for a while; a ghost that comes back goes to the main queue at once. So a scan
//! passes through the small queue and leaves the main one alone.

use crate::index::Slot;

pub(crate) const NONE: u32 = u32::MAX;

/// Which queue a slot is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Place {
    /// In none: free, being written, or being erased.
    #[default]
    Nowhere,
    Small,
    Main,
}

/// A queue that is linked through the slots, so that a slot in the middle can leave.
pub(crate) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

impl Queue {
    pub(crate) const fn new() -> Queue {
        Queue { head: NONE, tail: NONE, len: 0 }
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The slot that came first.
    pub(crate) fn tail(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    pub(crate) fn push(&mut self, slots: &mut [Slot], slot: u32) {
        slots[slot as usize].newer = NONE;
        slots[slot as usize].older = self.head;
        match self.head {
            NONE => self.tail = slot,
            head => slots[head as usize].newer = slot,
        }
        self.head = slot;
        self.len += 1;
    }

    /// Takes `slot`, which must be in this queue, out of it.
    pub(crate) fn unlink(&mut self, slots: &mut [Slot], slot: u32) {
        let Slot { newer, older, .. } = slots[slot as usize];
        match newer {
            NONE => self.head = older,
            newer => slots[newer as usize].older = older,
        }
        match older {
            NONE => self.tail = newer,
            older => slots[older as usize].newer = newer,
        }
        self.len -= 1;
    }
}

/// Fingerprints of chunks that left the small queue unused, as many as there are slots, the latest `slots` departures.
pub(crate) struct Ghosts {
    /// Fingerprint and number of the departure; a later one with the same place overwrites.
    places: Vec<(u32, u32)>,
    departures: u32,
}

impl Ghosts {
    pub(crate) fn new(slots: u32) -> Ghosts {
        Ghosts { places: vec![(0, 0); slots as usize], departures: 0 }
    }

    fn place(&self, hash: u64) -> Option<usize> {
        (hash >> 32).checked_rem(self.places.len() as u64).map(|place| place as usize)
    }

    pub(crate) fn remember(&mut self, hash: u64) {
        if let Some(place) = self.place(hash) {
            self.departures = self.departures.wrapping_add(1);
            self.places[place] = (hash as u32 | 1, self.departures);
        }
    }

    /// Whether the chunk left lately; it is then forgotten.
    pub(crate) fn recall(&mut self, hash: u64) -> bool {
        let Some(place) = self.place(hash) else { return false };
        let (fingerprint, departure) = self.places[place];
        let recent = self.departures.wrapping_sub(departure) < self.places.len() as u32;
        let found = recent && fingerprint == hash as u32 | 1;
        if found {
            self.places[place] = (0, 0);
        }
        found
    }
}
