//! Which inodes are assembled, who leases them, and which leave for others.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use forebay_types::Ino;
use rustc_hash::FxHashMap;

use super::{plain::PlainFile, uses::Uses};

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

/// All of it under one lock, which is never held during I/O.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: FxHashMap<Ino, Slot>,
    /// Assemblies under way: set when they are in vain.
    building: FxHashMap<Ino, Arc<AtomicBool>>,
    uses: Uses,
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
        self.idle().into_iter().for_each(|(ino, _)| self.remove(ino));
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

    /// Puts a file in place that another volume had, with a lease.
    pub(super) fn adopt(&mut self, ino: Ino, plain: Arc<PlainFile>, bytes: u64) {
        self.clock += 1;
        self.slots.insert(ino, Slot { plain, leases: 1, bytes, used: self.clock, doomed: false });
        self.used += bytes;
    }

    /// Those that nobody leases, in the order in which they leave: what was used least, and of such what was leased longest ago.
    fn idle(&self) -> Vec<(Ino, u64)> {
        let idle = self.slots.iter().filter(|(_, slot)| slot.leases == 0);
        let mut idle: Vec<_> =
            idle.map(|(ino, slot)| ((self.uses.count(*ino), slot.used), *ino, slot.bytes)).collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, ino, bytes)| (ino, bytes)).collect()
    }

    /// Those that leave so that there is room for `bytes` more of `ino`. `None`: there is none, or they are worth more.
    fn leaving(&self, ino: Ino, bytes: u64, capacity: u64) -> Option<Vec<(Ino, u64)>> {
        if self.fits(bytes, capacity) {
            return Some(Vec::new());
        }
        let (mut used, mut files, mut leaving) = (self.used, self.slots.len(), Vec::new());
        for (other, freed) in self.idle() {
            leaving.push((other, freed));
            (used, files) = (used - freed, files - 1);
            if files < FILES_MAX && used.saturating_add(bytes) <= capacity {
                return self.uses.saves_more(ino, bytes, leaving.iter().copied()).then_some(leaving);
            }
        }
        None
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
        if self.used > capacity {
            for (other, _) in self.idle() {
                if self.used > capacity {
                    self.remove(other);
                    evicted += 1;
                }
            }
        }
        evicted
    }

    /// Makes room for `bytes` of one more file: how many left for it. `None`: there is no room, or what would have to leave is worth about as much; then
    /// all stay.
    pub(super) fn make_room(&mut self, ino: Ino, bytes: u64, capacity: u64) -> Option<u64> {
        let leaving = self.leaving(ino, bytes, capacity)?;
        leaving.iter().for_each(|(other, _)| self.remove(*other));
        Some(leaving.len() as u64)
    }

    /// Takes note of an open for reading. True: the file is worth being assembled, and could be.
    pub(super) fn note_open(&mut self, ino: Ino, size: u64, capacity: u64) -> bool {
        let worth = self.uses.opened(ino);
        worth && self.could_enter(ino, size, capacity)
    }

    /// Takes note of a read. True as for [`Table::note_open`].
    pub(super) fn note_read(&mut self, ino: Ino, size: u64, len: u64, capacity: u64) -> bool {
        let worth = self.uses.read(ino, size, len);
        worth && self.could_enter(ino, size, capacity)
    }

    fn could_enter(&self, ino: Ino, size: u64, capacity: u64) -> bool {
        let new = !self.slots.contains_key(&ino) && !self.building.contains_key(&ino);
        // Of a file with holes less than its size; whoever assembles it looks.
        new && (size > capacity || self.leaving(ino, size, capacity).is_some())
    }

    /// The first assembled inode after `ino`, around the end.
    pub(super) fn after(&self, ino: Ino) -> Option<Ino> {
        let later = self.slots.keys().filter(|other| **other > ino).min();
        later.or_else(|| self.slots.keys().min()).copied()
    }
}
