//! What is known of the files that have a number beside their own.

use std::collections::hash_map::Entry;

use forebay_fuse::Backing;
use forebay_types::Ino;
use forebay_volume::AssembledLease;
use rustc_hash::{FxHashMap, FxHashSet};

/// For so many rounds an open that was sent to the other number is not sent back, whoever comes or goes: the kernel follows once, and gives a second
/// `ESTALE` to the application.
const PAUSE_ROUNDS: u32 = 5;

/// An assembled file in the kernel's hands.
#[derive(Debug)]
pub(super) struct Held {
    // Given back before the lease ends.
    pub backing: Backing,
    pub lease: AssembledLease,
}

/// A file with two numbers.
#[derive(Debug, Default)]
pub(super) struct File {
    /// Lookups of the number beside that the kernel has not taken back.
    pub lookups: u64,
    /// The kernel no longer has attributes that it would not ask for anew.
    pub ready: bool,
    /// Names lead to the own number for so many rounds yet: an open was sent there.
    pub withheld: u32,
    /// For so many rounds yet opens at the own number are served there: one was sent here.
    pub sent: u32,
    /// Opens of the number beside that the kernel serves.
    pub through: u32,
    /// Those that it could not serve.
    pub direct: FxHashSet<u64>,
    pub held: Option<Held>,
    /// Nobody had it open during the last round.
    pub idle: bool,
}

impl File {
    /// Names lead to the own number from now on.
    pub(super) fn withhold(&mut self) {
        self.withheld = PAUSE_ROUNDS;
    }

    /// Whether an open may just have been sent, from either number to the other.
    pub(super) fn is_moving(&self) -> bool {
        self.withheld > 0 || self.sent > 0
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    pub files: FxHashMap<Ino, File>,
    /// Opens for writing, of whatever file.
    pub writers: FxHashMap<Ino, u32>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn open(&self) -> u64 {
        self.files.values().map(|file| u64::from(file.through)).sum()
    }

    /// How many the kernel knows by the number beside.
    pub(super) fn known(&self) -> u64 {
        self.files.values().filter(|file| file.lookups > 0).count() as u64
    }

    pub(super) fn has(&self, ino: Ino) -> bool {
        self.files.contains_key(&ino)
    }

    pub(super) fn file(&mut self, ino: Ino) -> Option<&mut File> {
        self.files.get_mut(&ino)
    }

    fn is_offered(&self, ino: Ino) -> bool {
        let offered = |file: &File| file.ready && file.withheld == 0 && file.direct.is_empty();
        self.files.get(&ino).is_some_and(offered) && !self.writers.contains_key(&ino)
    }

    /// A name leads to the inode: whether to the number beside, which counts as a lookup of that; `None` if it has none.
    pub(super) fn look_up(&mut self, ino: Ino, assembled: bool) -> Option<bool> {
        let offered = assembled && self.is_offered(ino);
        let file = self.files.get_mut(&ino)?;
        file.lookups += u64::from(offered);
        Some(offered)
    }

    /// Somebody asked for the number beside by itself, of which the kernel may have known nothing.
    pub(super) fn looked_up_beside(&mut self, ino: Ino) {
        self.files.entry(ino).or_default().lookups += 1;
    }

    /// The kernel takes lookups of the number beside back. True: it knows it no more.
    pub(super) fn forget(&mut self, ino: Ino, count: u64) -> bool {
        let Some(file) = self.files.get_mut(&ino) else { return true };
        file.lookups = file.lookups.saturating_sub(count);
        file.lookups == 0
    }

    /// Whether the kernel knows the number beside.
    pub(super) fn is_known(&self, ino: Ino) -> bool {
        self.files.get(&ino).is_some_and(|file| file.lookups > 0)
    }

    /// An open for reading came to the file's own number: whether it is to go to the one beside. At most one each few rounds, so that one that
    /// has no name to look up is served where it comes the second time.
    pub(super) fn send(&mut self, ino: Ino) -> Option<&mut File> {
        let offered = self.is_offered(ino);
        let file = self.files.get_mut(&ino).filter(|file| offered && file.sent == 0)?;
        file.sent = PAUSE_ROUNDS;
        Some(file)
    }

    /// Names lead to the file's own number from now on.
    pub(super) fn withhold(&mut self, ino: Ino) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.withhold();
        }
    }

    pub(super) fn writer_came(&mut self, ino: Ino) {
        *self.writers.entry(ino).or_default() += 1;
    }

    pub(super) fn writer_left(&mut self, ino: Ino) {
        let Entry::Occupied(mut writers) = self.writers.entry(ino) else { return };
        *writers.get_mut() -= 1;
        if *writers.get() > 0 {
            return;
        }
        writers.remove();
    }

    /// Gives those of `inodes` a number beside that have none. Which ones were given one in an earlier round, and are not ready: answers that
    /// were on their way then have arrived.
    pub(super) fn admit(&mut self, inodes: &[Ino]) -> Vec<Ino> {
        let waiting = self.files.iter().filter(|(_, file)| !file.ready).map(|(ino, _)| *ino).collect();
        for ino in inodes {
            self.files.entry(*ino).or_default();
        }
        waiting
    }

    /// One round is over. `is_free` tells whether nobody has a file that no open is left of; `assembled` which ones are.
    pub(super) fn age(&mut self, assembled: &[Ino], is_free: impl Fn(&Held) -> bool) {
        self.files.retain(|ino, file| {
            file.withheld = file.withheld.saturating_sub(1);
            file.sent = file.sent.saturating_sub(1);
            let idle = std::mem::replace(&mut file.idle, file.through == 0);
            if idle && file.through == 0 && file.held.as_ref().is_some_and(&is_free) {
                file.held = None;
            }
            let in_use =
                file.lookups > 0 || file.through > 0 || file.held.is_some() || !file.direct.is_empty();
            in_use || assembled.contains(ino)
        });
    }
}
