//! Which chunk is in which slot, and which one leaves next. No I/O, no locks; the owner of the index has the lock.
//!
//! A slot is *free*, *reserved* (being written or erased, named by nobody) or *published* (in the table and in one queue).
//! `version` changes whenever a slot stops being published, so a reader that finds the version unchanged after its
//! read knows that the slot was not used for anything else in between.
//!
//! What leaves: new chunks wait in a small queue, a tenth of the slots, and leave at its end unless they were used meanwhile; then they move to the main
//! queue, which is in the order of last uses. Those that left are remembered as ghosts with the time of their last use. A ghost that comes back goes
//! to the main queue only if it comes sooner after that than the main queue's oldest chunk has waited for its next use: this is the rule of LIRS
//! (SIGMETRICS 2002). So of a cycle that is longer than the cache a part stays and is found each time, where an order of last uses alone would throw
//! each chunk out just before it is wanted, and a scan passes through the small queue. While the main queue has room, new chunks go there at once; and
//! so does one in sixteen when its oldest chunk was not used for as long as it takes to fill the cache sixteen times over, as otherwise what nobody
//! reads any more would never make way for what is read at intervals that no ghost lasts for.
//!
//! What is pinned is in a third queue, of which nothing leaves: the other two share the slots that it does not have.
//!
//! Time is the number of uses and new chunks; one that was fetched ahead of its reader counts once. Uses of a chunk within a short time are one use: small files that lie in one chunk are read one after
//! the other.

mod pins;
mod recovery;

use forebay_types::{Epoch, ObjectId};

use crate::{
    ObjectKey,
    header::Grains,
    key::ChunkKey,
    queue::{Ghosts, NONE, Place, Queue},
    table::Table,
};

pub(crate) use pins::Pin;

/// A chunk of the main queue that was not used while the cache could have been filled so many times makes way for a new one.
const STALE_FILLS: u32 = 16;
/// One in so many new ones.
const CHOSEN: u32 = 16;
/// Uses of a chunk are one as long as less time passes between them than the small queue is long, divided by this.
const BURST: u32 = 8;

/// 48 bytes; with 8 of the table, 8 of the ghosts and 4 of the free list, a chunk costs at most 68 bytes of memory.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    object: ObjectKey,
    index: u32,
    len: u32,
    version: u32,
    pub(crate) newer: u32,
    pub(crate) older: u32,
    /// Time of the last use.
    stamp: u32,
    present: Grains,
    place: Place,
    /// Used since it came to the small queue.
    used: bool,
    /// Fetched ahead of any reader: the first use is the one it was fetched for.
    ahead: bool,
    /// Of a pinned one: by whom it was wanted last.
    mark: u8,
}

impl Slot {
    fn key(&self) -> ChunkKey {
        ChunkKey { object: self.object, index: self.index }
    }
}

const FREE: Slot = Slot {
    object: ObjectKey { epoch: Epoch(0), id: ObjectId(0) },
    index: 0,
    len: 0,
    version: 0,
    newer: NONE,
    older: NONE,
    stamp: 0,
    present: 0,
    place: Place::Nowhere,
    used: false,
    ahead: false,
    mark: 0,
};

/// Where a chunk was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub slot: u32,
    pub version: u32,
    pub len: u32,
    /// What of it is there.
    pub present: Grains,
}

/// A chunk that was taken out of its slot to be put back with more of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub slot: u32,
    place: Place,
    stamp: u32,
    used: bool,
    ahead: bool,
}

pub(crate) struct Index {
    /// Those used so far, at most `limit`.
    slots: Vec<Slot>,
    limit: u32,
    free: Vec<u32>,
    table: Table,
    small: Queue,
    main: Queue,
    /// Those marked last first.
    pinned: Queue,
    ghosts: Ghosts,
    /// Time: uses and new chunks so far. It may wrap around.
    clock: u32,
    /// No published chunk has a higher index.
    highest: u32,
    used_bytes: u64,
    pinned_bytes: u64,
    evictions: u64,
}

impl Index {
    pub(crate) fn new(limit: u32) -> Index {
        Index {
            slots: Vec::new(),
            limit,
            free: Vec::new(),
            table: Table::new(limit),
            small: Queue::new(),
            main: Queue::new(),
            pinned: Queue::new(),
            ghosts: Ghosts::new(limit),
            clock: 0,
            highest: 0,
            used_bytes: 0,
            pinned_bytes: 0,
            evictions: 0,
        }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(crate) fn chunks(&self) -> u64 {
        u64::from(self.small.len() + self.main.len() + self.pinned.len())
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Slots of which chunks leave for others.
    fn shared(&self) -> u32 {
        self.limit.saturating_sub(self.pinned.len())
    }

    /// Slots that the small queue aims at.
    pub(crate) fn small_target(&self) -> u32 {
        (self.shared() / 10).max(1)
    }

    /// Slots that the main queue has for certain; the small one takes one more than it aims at.
    fn main_target(&self) -> u32 {
        self.shared().saturating_sub(self.small_target() + 1)
    }

    fn tick(&mut self) -> u32 {
        self.clock = self.clock.wrapping_add(1);
        self.clock
    }

    fn age(&self, stamp: u32) -> u32 {
        self.clock.wrapping_sub(stamp)
    }

    pub(crate) fn find(&self, key: ChunkKey) -> Option<Found> {
        let slot = self.table.find(key.hash64(), |slot| self.slots[slot as usize].key() == key)?;
        let Slot { version, len, present, .. } = self.slots[slot as usize];
        Some(Found { slot, version, len, present })
    }

    /// Whether the slot still holds what was found there.
    pub(crate) fn unchanged(&self, found: Found) -> bool {
        self.slots[found.slot as usize].version == found.version
    }

    /// Counts a use of what was found, if it is still there.
    pub(crate) fn used(&mut self, found: Found) {
        if !self.unchanged(found) {
            return;
        }
        let Slot { stamp, ahead, .. } = self.slots[found.slot as usize];
        if !ahead && self.age(stamp) < self.small_target() / BURST {
            return;
        }
        let now = if ahead { self.clock } else { self.tick() };
        let slot = &mut self.slots[found.slot as usize];
        slot.used |= !ahead;
        (slot.ahead, slot.stamp) = (false, now);
        if slot.place == Place::Main {
            self.main.unlink(&mut self.slots, found.slot);
            self.main.push(&mut self.slots, found.slot);
        }
    }

    /// A slot to write to: a free one, or the one whose chunk leaves for it. `None` if all are reserved.
    pub(crate) fn reserve(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if (self.slots.len() as u32) < self.limit {
            self.slots.push(FREE);
            return Some(self.slots.len() as u32 - 1);
        }
        let victim = self.victim()?;
        self.withdraw(victim);
        self.evictions += 1;
        Some(victim)
    }

    /// The next chunk to leave. Terminates because each slot that stays leaves the small queue.
    fn victim(&mut self) -> Option<u32> {
        loop {
            let tail = self.small.tail().filter(|_| self.main.len() <= self.main_target());
            let Some(slot) = tail else { return self.main.tail().or(self.small.tail()) };
            let Slot { used, stamp, .. } = self.slots[slot as usize];
            if !used {
                let hash = self.slots[slot as usize].key().hash64();
                self.ghosts.remember(hash, stamp, self.clock);
                return Some(slot);
            }
            self.small.unlink(&mut self.slots, slot);
            self.enqueue(slot, Place::Main);
        }
    }

    /// True once in [`CHOSEN`] times, at no regular times: a cycle would bring the same chunks at these again and again.
    fn chooses(&self) -> bool {
        self.clock.wrapping_mul(0x9e37_79b1) < u32::MAX / CHOSEN
    }

    /// Where a new chunk goes, which left with its last use at the time `ghost` if it is remembered.
    fn place_for(&self, ghost: Option<u32>) -> Place {
        let Some(oldest) = self.main.tail().filter(|_| self.main.len() >= self.main_target()) else {
            return if self.main_target() > 0 { Place::Main } else { Place::Small };
        };
        let waits = self.age(self.slots[oldest as usize].stamp);
        let stale = waits / STALE_FILLS > self.shared() && self.chooses();
        if stale || ghost.is_some_and(|stamp| self.age(stamp) < waits) { Place::Main } else { Place::Small }
    }

    fn enqueue(&mut self, slot: u32, place: Place) {
        self.slots[slot as usize].place = place;
        match place {
            Place::Small => self.small.push(&mut self.slots, slot),
            Place::Main => self.main.push(&mut self.slots, slot),
            Place::Pinned => {
                self.pinned.push(&mut self.slots, slot);
                self.pinned_bytes += u64::from(self.slots[slot as usize].len);
            }
            Place::Nowhere => {}
        }
    }

    /// Takes a slot out of the queue that it is in; false where it is in none.
    fn dequeue(&mut self, slot: u32) -> bool {
        let Slot { place, len, .. } = self.slots[slot as usize];
        match place {
            Place::Small => self.small.unlink(&mut self.slots, slot),
            Place::Main => self.main.unlink(&mut self.slots, slot),
            Place::Pinned => {
                self.pinned.unlink(&mut self.slots, slot);
                self.pinned_bytes -= u64::from(len);
            }
            Place::Nowhere => return false,
        }
        self.slots[slot as usize].place = Place::Nowhere;
        true
    }

    /// From published to reserved.
    fn withdraw(&mut self, slot: u32) {
        if !self.dequeue(slot) {
            return;
        }
        let hash = self.slots[slot as usize].key().hash64();
        self.table.remove(hash, slot, |other| self.slots[other as usize].key().hash64());
        let entry = &mut self.slots[slot as usize];
        entry.version = entry.version.wrapping_add(1);
        self.used_bytes -= u64::from(entry.len);
    }

    /// From reserved to free.
    pub(crate) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// From reserved to published; false, and still reserved, if another slot has the chunk.
    pub(crate) fn publish(
        &mut self,
        slot: u32,
        key: ChunkKey,
        len: u32,
        present: Grains,
        ahead: bool,
    ) -> bool {
        if self.find(key).is_some() {
            return false;
        }
        let ghost = self.ghosts.recall(key.hash64());
        let place = self.place_for(ghost);
        let taken = Taken { slot, place, stamp: self.tick(), used: false, ahead };
        self.publish_in(taken, key, (len, present));
        true
    }

    /// Takes a chunk out, to be put back by [`Index::put_back`]; its slot is then reserved.
    pub(crate) fn take(&mut self, key: ChunkKey) -> Option<Taken> {
        let slot = self.find(key)?.slot;
        let Slot { place, stamp, used, ahead, .. } = self.slots[slot as usize];
        self.withdraw(slot);
        Some(Taken { slot, place, stamp, used, ahead })
    }

    /// Publishes a chunk in the slot and the queue that it was taken from; false, and still reserved, if another slot has it now.
    pub(crate) fn put_back(&mut self, taken: Taken, key: ChunkKey, len: u32, present: Grains) -> bool {
        if self.find(key).is_some() {
            return false;
        }
        self.publish_in(taken, key, (len, present));
        true
    }

    fn publish_in(&mut self, taken: Taken, key: ChunkKey, (len, present): (u32, Grains)) {
        let Taken { slot, place, stamp, used, ahead } = taken;
        let entry = &mut self.slots[slot as usize];
        let ChunkKey { object, index } = key;
        *entry = Slot { object, index, len, stamp, present, used, ahead, ..*entry };
        self.highest = self.highest.max(key.index);
        self.used_bytes += u64::from(len);
        self.table.insert(key.hash64(), slot);
        self.enqueue(slot, place);
    }

    /// Takes a chunk out; its slot is then reserved, and to be released.
    pub(crate) fn remove(&mut self, key: ChunkKey) -> Option<u32> {
        let slot = self.find(key)?.slot;
        self.withdraw(slot);
        Some(slot)
    }

    /// Takes all chunks of an object out; their slots are then reserved, and to be released.
    ///
    /// Looks for each index that any chunk has, or through all slots if that is less: objects are short, caches long.
    pub(crate) fn remove_object(&mut self, object: ObjectKey) -> Vec<u32> {
        if (self.highest as usize) < self.slots.len() {
            return (0..=self.highest).filter_map(|index| self.remove(ChunkKey { object, index })).collect();
        }
        self.remove_where(|slot| slot.object == object)
    }

    /// Takes all chunks out; their slots are then reserved, and to be released.
    pub(crate) fn remove_all(&mut self) -> Vec<u32> {
        self.remove_where(|_| true)
    }

    /// Takes all chunks of these objects out; their slots are then reserved, and to be released.
    pub(crate) fn remove_objects(&mut self, wanted: impl Fn(&ObjectKey) -> bool) -> Vec<u32> {
        self.remove_where(|slot| wanted(&slot.object))
    }

    fn remove_where(&mut self, wanted: impl Fn(&Slot) -> bool) -> Vec<u32> {
        let published = |slot: &u32| {
            let slot = &self.slots[*slot as usize];
            slot.place != Place::Nowhere && wanted(slot)
        };
        let slots: Vec<u32> = (0..self.slots.len() as u32).filter(published).collect();
        slots.iter().for_each(|&slot| self.withdraw(slot));
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_stays_small() {
        assert_eq!(size_of::<Slot>(), 48);
    }
}
