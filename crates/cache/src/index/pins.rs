//! Chunks that do not leave for others. At most half of the slots.

use super::Index;
use crate::{header::Grains, key::ChunkKey, queue::Place};

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
        if self.dequeue(found.slot) {
            self.slots[found.slot as usize].mark = mark;
            self.enqueue(found.slot, Place::Pinned);
        }
        Pin::Stays
    }

    /// Lets those leave again that were not given this mark since others were. Says how many bytes that are.
    pub(crate) fn unpin_others(&mut self, mark: u8) -> u64 {
        let before = self.pinned_bytes;
        // Those with the mark were moved to the other end.
        while let Some(slot) = self.pinned.tail().filter(|slot| self.slots[*slot as usize].mark != mark) {
            if self.dequeue(slot) {
                self.enqueue(slot, Place::Main);
            }
        }
        before - self.pinned_bytes
    }
}
