//! Passthrough: files that the kernel reads by itself, under a number of their own.
//!
//! The kernel reads an inode either through its page cache or by itself, never both at a time. So a file that the volume has assembled
//! has two numbers here: its own, through which it is written and read as ever, and one *beside* it, whose opens are all for reading and
//! all answered with the assembled file. Both show the same `st_ino`. Names lead to the number beside while the file is *offered*, which it
//! is while nobody has it open for writing. An open that comes to the wrong one is answered with `ESTALE`, upon which the kernel asks
//! for the name again, and opens what it then leads to.
//!
//! **Guarantees.** Nothing of the contents is cached under the number beside, and on a writable mount no attributes of either: a change is seen at once.
//! A lease of the assembled file is held as long as the kernel has it open or mapped.
//!
//! **Order that must hold.** On a writable mount the file's own number gets no lifetimes, then the kernel is told to drop the attributes it has,
//! and only then the number beside is told to anybody.
//!
//! `docs/design/passthrough.md` has the reasons.

mod beside;
pub(crate) mod handover;
pub(crate) mod rounds;
mod table;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use forebay_fuse::{
    Agreed, BackingFiles, Notifier,
    flags::Capabilities,
    types::{Attr, Entry, StatxReply},
};
use forebay_types::{Attr as VfsAttr, FileKind, Ino};
use forebay_vfs::{LockKeeper, Vfs};
use forebay_volume::Volume;
use parking_lot::Mutex;

use crate::convert::{self, FOREVER};
use rounds::Rounds;
use table::Table;

/// Set in the number beside a file's own. Inode numbers are handed out from 1 on and never reach it.
const BESIDE: u64 = 1 << 62;

/// How files are handed to the kernel, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassthroughStatus {
    /// Whether they are.
    pub on: bool,
    /// Why not.
    pub why_not: Option<String>,
    /// Opens answered that way since the mount began.
    pub opens: u64,
    /// Those that are open now.
    pub open: u64,
    /// Files that the kernel knows by their second number.
    pub known: u64,
}

#[derive(Debug)]
struct Connection {
    files: BackingFiles,
    notifier: Notifier,
}

/// The files of a mount that the kernel reads by itself.
#[derive(Debug)]
pub(crate) struct Passthrough {
    volume: Arc<Volume>,
    connection: OnceLock<Connection>,
    rounds: Rounds,
    table: Mutex<Table>,
    /// Files in the table: while there are none, nothing has to be looked up.
    files: AtomicUsize,
}

/// Where an open belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// To the number that it came to, through the page cache.
    Cached,
    /// To the number that it came to, read by the kernel.
    Beside,
    /// To the other one.
    Elsewhere,
}

/// The number of the file, whichever the kernel knows it by.
pub(crate) fn own(number: u64) -> Ino {
    Ino(number & !BESIDE)
}

pub(crate) fn is_beside(number: u64) -> bool {
    number & BESIDE != 0
}

impl Passthrough {
    /// `None` where the volume assembles nothing, or the kernel is to keep the locks: it keeps them by number.
    pub(crate) fn new(vfs: &Vfs, volume: &Arc<Volume>) -> Option<Arc<Passthrough>> {
        let possible = volume.assembles() && vfs.lock_keeper() == LockKeeper::Vfs;
        possible.then(|| {
            Arc::new(Passthrough {
                volume: Arc::clone(volume),
                connection: OnceLock::new(),
                rounds: Rounds::default(),
                table: Mutex::default(),
                files: AtomicUsize::new(0),
            })
        })
    }

    /// The mount's connection; before the mount begins.
    pub(crate) fn connect(&self, files: BackingFiles, notifier: Notifier) {
        let _ = self.connection.set(Connection { files, notifier });
    }

    /// What is to be asked of the kernel.
    pub(crate) fn wish(&self) -> Capabilities {
        if self.connection.get().is_some() && forebay_fuse::may_pass_through() {
            Capabilities::PASSTHROUGH | Capabilities::DIRECT_IO_ALLOW_MMAP
        } else {
            Capabilities::NONE
        }
    }

    /// The mount has begun.
    pub(crate) fn started(self: &Arc<Self>, agreed: &Agreed) {
        let through = Arc::clone(self);
        let run = move || through.rounds.run(|| through.round());
        if let Err(why) = self.rounds.start(agreed, run) {
            self.off(why);
        }
    }

    /// The session is paused: nobody is told anything until it is gone on with.
    pub(crate) fn paused(&self) {
        self.rounds.end();
    }

    /// The mount has ended: nothing is held any more.
    pub(crate) fn ended(&self) {
        self.paused();
        *self.table.lock() = Table::default();
        self.files.store(0, Ordering::SeqCst);
    }

    /// No more of it. What is open stays as it is.
    fn off(&self, why: String) {
        self.rounds.off(why);
        self.volume.stop_assembling();
    }

    fn is_writable(&self) -> bool {
        !self.volume.read_only()
    }

    /// For how long the kernel may keep what it is told of a file that has two numbers.
    fn lifetime(&self) -> Duration {
        if self.is_writable() { Duration::ZERO } else { FOREVER }
    }

    fn has_none(&self) -> bool {
        self.files.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn status(&self) -> PassthroughStatus {
        let table = self.table.lock();
        self.rounds.status(table.open(), table.known())
    }

    /// The inode that a name leads to.
    pub(crate) fn entry(&self, attr: &VfsAttr) -> Entry {
        let entry = convert::entry(attr);
        if attr.kind != FileKind::Regular || self.has_none() {
            return entry;
        }
        let mut table = self.table.lock();
        let assembled = table.has(attr.ino) && self.rounds.is_on() && self.volume.is_assembled(attr.ino);
        match table.look_up(attr.ino, assembled) {
            None => entry,
            Some(false) => Entry { attr_ttl: self.lifetime(), ..entry },
            Some(true) => Entry {
                node: entry.node | BESIDE,
                entry_ttl: self.lifetime(),
                attr_ttl: self.lifetime(),
                ..entry
            },
        }
    }

    /// The inode by its own number: of a file that was made, which is open by it.
    pub(crate) fn own_entry(&self, attr: &VfsAttr) -> Entry {
        Entry { attr_ttl: self.attr_lifetime(attr), ..convert::entry(attr) }
    }

    /// The inode by the number that it was asked for by.
    pub(crate) fn same_entry(&self, number: u64, attr: &VfsAttr) -> Entry {
        if !is_beside(number) {
            return self.own_entry(attr);
        }
        let mut table = self.table.lock();
        table.looked_up_beside(attr.ino);
        self.files.store(table.len(), Ordering::SeqCst);
        let (entry_ttl, attr_ttl) = (self.lifetime(), self.lifetime());
        Entry { node: number, entry_ttl, attr_ttl, ..convert::entry(attr) }
    }

    fn attr_lifetime(&self, attr: &VfsAttr) -> Duration {
        match attr.kind == FileKind::Regular && !self.has_none() && self.table.lock().has(attr.ino) {
            true => self.lifetime(),
            false => FOREVER,
        }
    }

    pub(crate) fn attr(&self, attr: &VfsAttr) -> Attr {
        Attr { ttl: self.attr_lifetime(attr), ..convert::attr(attr) }
    }

    pub(crate) fn statx(&self, attr: &VfsAttr) -> StatxReply {
        StatxReply { ttl: self.attr_lifetime(attr), ..convert::statx(attr) }
    }
}
