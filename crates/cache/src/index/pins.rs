//! Chunks that do not leave for others. At most half of the slots.

use super::Index;
use crate::{
    header::Grains,
    key::{ChunkKey, ObjectKey},
    queue::Place,
};

/// What becomes of a chunk that is to stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pin {
    /// It stays.
    Stays,
    /// It is not here, or not all of it.
    Missing,
    /// It is here, and may leave: what stays has all of its share already.
    NoRoom,
}

impl Index {
    /// Slots whose chunks may stay.
    pub(crate) fn pins_max(&self) -> u32 {
        self.limit / 2
    }

    /// Slots that are free for such chunks, or have others that can leave.
    pub(crate) fn pins_left(&self) -> u32 {
        self.pins_max().saturating_sub(self.pinned.len())
    }

    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// Has a chunk stay, `len` bytes with all of `whole`; one that stays already gets the new mark.
    pub(crate) fn pin(&mut self, key: ChunkKey, (len, whole): (u32, Grains), mark: u8) -> Pin {
        let found = self.find(key).filter(|found| found.len == len && whole & !found.present == 0);
        let Some(found) = found else { return Pin::Missing };
        if self.slots[found.slot as usize].place != Place::Pinned && self.pins_left() == 0 {
            return Pin::NoRoom;
        }
        self.mark(found.slot, mark);
        Pin::Stays
    }

    /// Has a chunk stay that stays already, whatever its length is. Says how many bytes that are.
    pub(crate) fn pin_again(&mut self, key: ChunkKey, mark: u8) -> u64 {
        let found = self.find(key).filter(|found| self.slots[found.slot as usize].place == Place::Pinned);
        found.map_or(0, |found| {
            self.mark(found.slot, mark);
            u64::from(found.len)
        })
    }

    fn mark(&mut self, slot: u32, mark: u8) {
        if self.dequeue(slot) {
            self.slots[slot as usize].mark = mark;
            self.enqueue(slot, Place::Pinned);
        }
    }

    /// Lets those leave again that were not given this mark since others were, but for objects that `stay`: their chunks get it now. Says how many bytes leave.
    pub(crate) fn unpin_others(&mut self, mark: u8, stay: impl Fn(&ObjectKey) -> bool) -> u64 {
        let before = self.pinned_bytes;
        // Those with the mark were moved to the other end.
        while let Some(slot) = self.pinned.tail().filter(|slot| self.slots[*slot as usize].mark != mark) {
            if stay(&self.slots[slot as usize].object) {
                self.mark(slot, mark);
            } else if self.dequeue(slot) {
                self.enqueue(slot, Place::Main);
            }
        }
        before - self.pinned_bytes
    }
}
