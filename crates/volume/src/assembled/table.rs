//! Which inodes are assembled, who leases them, and which are worth it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use forebay_types::Ino;
use rustc_hash::FxHashMap;

use super::plain::PlainFile;

/// Inodes of which it is remembered how they were used; when there are more, all are forgotten.
const SEEN_MAX: usize = 4096;
/// Opens that make a file worth being assembled.
const OPENS: u32 = 2;
/// Files at most: each holds a descriptor.
const FILES_MAX: usize = 256;

#[derive(Debug)]
struct Slot {
    plain: Arc<PlainFile>,
    leases: u32,
    /// What it counts for in the budget.
    bytes: u64,
    /// When it was last leased, by a clock that counts leases.
    used: u64,
    /// No new lease: it goes with its last one.
    doomed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    opens: u32,
    read: u64,
}

/// All of it under one lock, which is never held during I/O.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: FxHashMap<Ino, Slot>,
    /// Assemblies under way: set when they are in vain.
    building: FxHashMap<Ino, Arc<AtomicBool>>,
    seen: FxHashMap<Ino, Seen>,
    used: u64,
    clock: u64,
    /// What left: dropped where nobody waits, since giving back a large file's blocks takes time.
    gone: Vec<Arc<PlainFile>>,
}

impl Table {
    pub(super) fn files(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn leased(&self) -> usize {
        self.slots.values().filter(|slot| slot.leases > 0).count()
    }

    pub(super) fn busy(&self) -> usize {
        self.slots.len() + self.building.len()
    }

    pub(super) fn has(&self, ino: Ino) -> bool {
        self.slots.get(&ino).is_some_and(|slot| !slot.doomed)
    }

    pub(super) fn is_current(&self, ino: Ino, number: u64) -> bool {
        self.slots.get(&ino).is_some_and(|slot| !slot.doomed && slot.plain.number() == number)
    }

    /// Everything that nobody leases leaves.
    pub(super) fn clear(&mut self) {
        while self.evict() {}
    }

    pub(super) fn inodes(&self) -> Vec<Ino> {
        self.slots.iter().filter(|(_, slot)| !slot.doomed).map(|(ino, _)| *ino).collect()
    }

    pub(super) fn plain(&self, ino: Ino) -> Option<Arc<PlainFile>> {
        self.slots.get(&ino).map(|slot| Arc::clone(&slot.plain))
    }

    pub(super) fn lease(&mut self, ino: Ino) -> Option<Arc<PlainFile>> {
        self.clock += 1;
        let slot = self.slots.get_mut(&ino).filter(|slot| !slot.doomed)?;
        slot.leases += 1;
        slot.used = self.clock;
        Some(Arc::clone(&slot.plain))
    }

    pub(super) fn release(&mut self, ino: Ino, number: u64) {
        let Some(slot) = self.slots.get_mut(&ino).filter(|slot| slot.plain.number() == number) else {
            return;
        };
        slot.leases -= 1;
        if slot.leases == 0 && slot.doomed {
            self.remove(ino);
        }
    }

    /// A change is to come: who must get it. An assembly under way is in vain, and a file that nobody leases leaves (`true`).
    pub(super) fn before_change(&mut self, ino: Ino) -> (Option<Arc<PlainFile>>, bool) {
        if let Some(vain) = self.building.remove(&ino) {
            vain.store(true, Ordering::SeqCst);
        }
        match self.slots.get(&ino) {
            None => (None, false),
            Some(slot) if slot.leases > 0 => (Some(Arc::clone(&slot.plain)), false),
            Some(_) => {
                self.remove(ino);
                (None, true)
            }
        }
    }

    /// No further lease of what is there; it leaves now if there is none.
    pub(super) fn doom(&mut self, ino: Ino) {
        match self.slots.get_mut(&ino) {
            Some(slot) if slot.leases > 0 => slot.doomed = true,
            Some(_) => self.remove(ino),
            None => {}
        }
    }

    fn remove(&mut self, ino: Ino) {
        if let Some(slot) = self.slots.remove(&ino) {
            self.used -= slot.bytes;
            self.gone.push(slot.plain);
        }
    }

    /// What left since the last time, to be dropped outside of the lock.
    pub(super) fn take_gone(&mut self) -> Vec<Arc<PlainFile>> {
        std::mem::take(&mut self.gone)
    }

    /// Begins an assembly: what tells that it is in vain. `None` if there is one, or nothing to do.
    pub(super) fn begin(&mut self, ino: Ino) -> Option<Arc<AtomicBool>> {
        if self.slots.contains_key(&ino) || self.building.contains_key(&ino) {
            return None;
        }
        let vain = Arc::new(AtomicBool::new(false));
        self.building.insert(ino, Arc::clone(&vain));
        Some(vain)
    }

    pub(super) fn give_up(&mut self, ino: Ino) {
        self.building.remove(&ino);
    }

    /// Ends an assembly. False: it was in vain.
    pub(super) fn publish(&mut self, ino: Ino, plain: PlainFile, bytes: u64) -> bool {
        if self.building.remove(&ino).is_none() {
            return false;
        }
        self.clock += 1;
        let slot = Slot { plain: Arc::new(plain), leases: 0, bytes, used: self.clock, doomed: false };
        self.slots.insert(ino, slot);
        self.used += bytes;
        true
    }

    /// Takes the one that was leased longest ago, of those that nobody leases.
    pub(super) fn evict(&mut self) -> bool {
        let idle = self.slots.iter().filter(|(_, slot)| slot.leases == 0);
        let Some(ino) = idle.min_by_key(|(_, slot)| slot.used).map(|(ino, _)| *ino) else { return false };
        self.remove(ino);
        true
    }

    /// Whether `bytes` more can be there.
    pub(super) fn fits(&self, bytes: u64, capacity: u64) -> bool {
        self.slots.len() < FILES_MAX && self.used.saturating_add(bytes) <= capacity
    }

    /// Counts anew what a file takes. Others leave where it is too much by now: how many.
    pub(super) fn recount(&mut self, ino: Ino, bytes: u64, capacity: u64) -> u64 {
        if let Some(slot) = self.slots.get_mut(&ino) {
            self.used = self.used - slot.bytes + bytes;
            slot.bytes = bytes;
        }
        let mut evicted = 0;
        while self.used > capacity && self.evict() {
            evicted += 1;
        }
        evicted
    }

    /// Makes room for `bytes` more, and one more file. How many left for it, and whether there is room now.
    pub(super) fn make_room(&mut self, bytes: u64, capacity: u64) -> (u64, bool) {
        let mut evicted = 0;
        while !self.fits(bytes, capacity) {
            if !self.evict() {
                return (evicted, false);
            }
            evicted += 1;
        }
        (evicted, true)
    }

    pub(super) fn note_open(&mut self, ino: Ino) -> bool {
        let seen = self.seen(ino);
        seen.opens += 1;
        let worth = seen.opens >= OPENS;
        self.is_new(ino, worth)
    }

    pub(super) fn note_read(&mut self, ino: Ino, size: u64, len: u64) -> bool {
        let seen = self.seen(ino);
        seen.read += len;
        let worth = seen.read >= size / 2;
        self.is_new(ino, worth)
    }

    fn seen(&mut self, ino: Ino) -> &mut Seen {
        if self.seen.len() >= SEEN_MAX && !self.seen.contains_key(&ino) {
            self.seen.clear();
        }
        self.seen.entry(ino).or_default()
    }

    /// Whether an inode that is worth it is not assembled yet. What was seen of it counts once.
    fn is_new(&mut self, ino: Ino, worth: bool) -> bool {
        if worth {
            self.seen.remove(&ino);
        }
        worth && !self.slots.contains_key(&ino) && !self.building.contains_key(&ino)
    }

    /// The first assembled inode after `ino`, around the end.
    pub(super) fn after(&self, ino: Ino) -> Option<Ino> {
        let later = self.slots.keys().filter(|other| **other > ino).min();
        later.or_else(|| self.slots.keys().min()).copied()
    }
}
