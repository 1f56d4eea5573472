//! What was in the slots when the cache was closed.

use super::{FREE, Index, Taken};
use crate::{header::Grains, key::ChunkKey, queue::Place};

impl Index {
    /// Takes up what slot `slot` held when the cache was closed. For an index on which nothing else was done yet.
    /// What was cached longer than this run lasts has shown its worth: it goes to the main queue.
    pub(crate) fn recover(&mut self, slot: u32, key: ChunkKey, len: u32, present: Grains) {
        if slot >= self.limit || self.find(key).is_some() {
            return;
        }
        if slot as usize >= self.slots.len() {
            self.slots.resize(slot as usize + 1, FREE);
        }
        let taken = Taken { slot, place: Place::Main, stamp: 0, used: false, ahead: false };
        self.publish_in(taken, key, (len, present));
    }

    /// To be called once after the last `recover`: lists the free slots.
    pub(crate) fn recovered(&mut self) {
        let unused = |slot: &u32| self.slots[*slot as usize].place == Place::Nowhere;
        self.free = (0..self.slots.len() as u32).rev().filter(unused).collect();
    }
}
