//! The queues of the index, and the ghosts of what left them.

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
    /// Of which nothing leaves for room.
    Pinned,
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

/// A fingerprint, never 0 but in an empty place, and the time of the last use.
type Ghost = (u32, u32);

/// Fingerprints of chunks that left the small queue unused: those used latest, about as many as there are slots.
pub(crate) struct Ghosts {
    sets: Vec<[Ghost; WAYS]>,
}

impl Ghosts {
    pub(crate) fn new(slots: u32) -> Ghosts {
        Ghosts { sets: vec![[(0, 0); WAYS]; (slots as usize).div_ceil(WAYS)] }
    }

    fn set(&mut self, hash: u64) -> Option<&mut [Ghost; WAYS]> {
        let set = (hash >> 32).checked_rem(self.sets.len() as u64)?;
        self.sets.get_mut(set as usize)
    }

    /// Remembers a chunk and the time of its last use, in the place of the one of its set that was used longest ago.
    pub(crate) fn remember(&mut self, hash: u64, stamp: u32, now: u32) {
        let oldest = |ghost: &&mut Ghost| if ghost.0 == 0 { u32::MAX } else { now.wrapping_sub(ghost.1) };
        if let Some(place) = self.set(hash).and_then(|set| set.iter_mut().max_by_key(oldest)) {
            *place = (hash as u32 | 1, stamp);
        }
    }

    /// When a chunk that left was last used, if that is remembered; then it is no longer.
    pub(crate) fn recall(&mut self, hash: u64) -> Option<u32> {
        let it = |ghost: &&mut Ghost| ghost.0 == hash as u32 | 1;
        let place = self.set(hash)?.iter_mut().find(it)?;
        let (_, stamp) = std::mem::take(place);
        Some(stamp)
    }
}
