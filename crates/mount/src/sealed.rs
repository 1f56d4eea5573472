//! Passthrough on a shared volume: sealed files that the kernel reads by itself.
//!
//! Others may change a file of a shared volume at any moment, and what the kernel reads by itself cannot be taken from it. So only files are handed over whose contents are
//! final: nothing has to be kept alike, and the file keeps its one number. What remains is the kernel's rule that an inode is either read through its page cache or by
//! itself: a file is handed over while nobody has it open otherwise, and then every open of it, until the last one has ended.
//!
//! **Guarantees.** An open is answered in either way while all others that live are of the same. A lease of the assembled file is held as long as the kernel has it open or mapped.
//!
//! **Relies on** the vfs: a sealed file is opened for reading alone, and a handle is counted before it is asked here and until after its end was told here.
//!
//! `docs/design/proxy-group.md` ("Whole files for the kernel") has the reasons.

use std::sync::{Arc, OnceLock};

use forebay_fuse::{Agreed, Backing, BackingFiles, flags::Capabilities, is_held_elsewhere};
use forebay_types::Ino;
use forebay_volume::{AssembledStatus, SealedFiles, SealedLease};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::passthrough::{PassthroughStatus, rounds::Rounds};

/// An assembled file in the kernel's hands.
#[derive(Debug)]
struct Held {
    // Given back before the lease ends.
    backing: Backing,
    lease: SealedLease,
    /// Handles that the kernel serves.
    through: FxHashSet<u64>,
    /// Nobody had it open during the last round.
    idle: bool,
}

/// Sealed files of a mount that the kernel reads by itself.
#[derive(Debug)]
pub(crate) struct SealedThrough {
    files: Arc<SealedFiles>,
    connection: OnceLock<BackingFiles>,
    rounds: Rounds,
    table: Mutex<FxHashMap<Ino, Held>>,
}

impl SealedThrough {
    pub(crate) fn new(files: Arc<SealedFiles>) -> Arc<SealedThrough> {
        Arc::new(SealedThrough {
            files,
            connection: OnceLock::new(),
            rounds: Rounds::default(),
            table: Mutex::default(),
        })
    }

    /// The mount's connection; before the mount begins.
    pub(crate) fn connect(&self, files: BackingFiles) {
        let _ = self.connection.set(files);
    }

    /// What is to be asked of the kernel.
    pub(crate) fn wish(&self) -> Capabilities {
        match self.connection.get().is_some() && forebay_fuse::may_pass_through() {
            true => Capabilities::PASSTHROUGH,
            false => Capabilities::NONE,
        }
    }

    /// The mount has begun.
    pub(crate) fn started(self: &Arc<Self>, agreed: &Agreed) {
        let through = Arc::clone(self);
        let run = move || through.rounds.run(|| through.round());
        if let Err(why) = self.rounds.start(agreed, run) {
            self.rounds.off(why);
        }
    }

    /// The mount has ended: nothing is held any more.
    pub(crate) fn ended(&self) {
        self.rounds.end();
        self.table.lock().clear();
        self.files.stop();
    }

    /// Gives back what nobody has open or mapped.
    fn round(&self) {
        self.table.lock().retain(|_, held| {
            let idle = std::mem::replace(&mut held.idle, held.through.is_empty());
            let free = || is_held_elsewhere(held.lease.plain()) == Ok(false);
            !(idle && held.through.is_empty() && free())
        });
    }

    pub(crate) fn status(&self) -> PassthroughStatus {
        let table = self.table.lock();
        let open = table.values().map(|held| held.through.len() as u64).sum();
        self.rounds.status(open, table.len() as u64)
    }

    pub(crate) fn assembled(&self) -> AssembledStatus {
        self.files.status()
    }

    /// A sealed file of `size` bytes was opened for reading, as handle `fh`, one of `handles` of it that there are by now. What the kernel reads in its place, if it can.
    pub(crate) fn open(
        &self,
        (ino, size): (Ino, u64),
        fh: u64,
        handles: impl FnOnce() -> u32,
    ) -> Option<std::num::NonZeroU32> {
        self.files.opened(ino, size);
        let mut table = self.table.lock();
        // Those that are answered after this one come after it in the table, too.
        let through = table.get(&ino).map_or(0, |held| held.through.len());
        let others = (handles() as usize).saturating_sub(through + 1);
        if through == 0 && (others > 0 || !self.hold(&mut table, ino)) {
            return None;
        }
        let held = table.get_mut(&ino)?;
        held.through.insert(fh);
        held.idle = false;
        self.rounds.count();
        Some(held.backing.id())
    }

    /// Has the kernel hold the assembled file, which it serves no open of. False: it cannot.
    fn hold(&self, table: &mut FxHashMap<Ino, Held>, ino: Ino) -> bool {
        if table.get(&ino).is_some_and(|held| held.lease.is_current()) {
            return true;
        }
        // It was found damaged since.
        table.remove(&ino);
        let Some(connection) = self.connection.get().filter(|_| self.rounds.is_on()) else { return false };
        let Some(lease) = self.files.lease(ino) else { return false };
        match connection.register(lease.plain()) {
            Ok(backing) => {
                table.insert(ino, Held { backing, lease, through: FxHashSet::default(), idle: false });
                true
            }
            Err(error) => {
                self.rounds.off(format!("it does not take files of the disk: {error}"));
                false
            }
        }
    }

    /// An open has ended. Before the vfs counts it no more.
    pub(crate) fn released(&self, ino: Ino, fh: u64) {
        if let Some(held) = self.table.lock().get_mut(&ino) {
            held.through.remove(&fh);
        }
    }
}
