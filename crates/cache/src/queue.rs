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

/// Places that a fingerprint may be in.
const WAYS: usize = 4;

/// A fingerprint, never 0 but in an empty place, and the number of its departure.
type Ghost = (u32, u32);

/// Fingerprints of chunks that left the small queue unused: those of the latest departures, about as many as there are slots.
pub(crate) struct Ghosts {
    sets: Vec<[Ghost; WAYS]>,
    departures: u32,
}

impl Ghosts {
    pub(crate) fn new(slots: u32) -> Ghosts {
        Ghosts { sets: vec![[(0, 0); WAYS]; (slots as usize).div_ceil(WAYS)], departures: 0 }
    }

    fn set(&mut self, hash: u64) -> Option<&mut [Ghost; WAYS]> {
        let set = (hash >> 32).checked_rem(self.sets.len() as u64)?;
        self.sets.get_mut(set as usize)
    }

    /// Remembers a chunk in the place of the one of its set that left first.
    pub(crate) fn remember(&mut self, hash: u64) {
        self.departures = self.departures.wrapping_add(1);
        let departures = self.departures;
        let oldest =
            |ghost: &&mut Ghost| if ghost.0 == 0 { u32::MAX } else { departures.wrapping_sub(ghost.1) };
        if let Some(place) = self.set(hash).and_then(|set| set.iter_mut().max_by_key(oldest)) {
            *place = (hash as u32 | 1, departures);
        }
    }

    /// Whether the chunk left lately; it is then no longer remembered.
    pub(crate) fn recall(&mut self, hash: u64) -> bool {
        let (departures, remembered) = (self.departures, (self.sets.len() * WAYS) as u32);
        let it = |ghost: &&mut Ghost| ghost.0 == hash as u32 | 1;
        let Some(place) = self.set(hash).and_then(|set| set.iter_mut().find(it)) else { return false };
        let recent = departures.wrapping_sub(place.1) < remembered;
        *place = (0, 0);
        recent
    }
}
