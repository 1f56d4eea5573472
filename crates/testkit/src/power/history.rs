//! What a workload did: every operation with the moments at which it began and was answered.
//!
//! A moment has two clocks. The *sequence* orders the workload's own operations. The *point* counts the events that the
//! disk below had logged: an operation answered at point `p` was acknowledged before any cut at `p` or later, and one begun at
//! `p` can have left nothing in a cut at `p` or earlier.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::log::Change;
use super::pattern::FileId;

/// A moment on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Unique and rising over all threads.
    pub sequence: u64,
    /// Events logged below until then.
    pub point: u64,
}

/// Bytes stored at an offset of a mapping.
pub type Store = (u64, Arc<[u8]>);

/// One operation. Paths are relative to the root of the tree, with no slash in front.
#[derive(Debug, Clone)]
pub enum Op {
    /// A new file under a new name.
    Create {
        /// Its name.
        path: String,
        /// The file.
        file: FileId,
    },
    /// The close of a newly created file by its creator: from here on the name must not survive without the data.
    Close {
        /// The file.
        file: FileId,
    },
    /// A new directory. Names of directories are used once only.
    Mkdir {
        /// Its name.
        path: String,
    },
    /// A new symbolic link.
    Symlink {
        /// Its name.
        path: String,
        /// What it points to.
        target: String,
    },
    /// One more name for a file.
    Link {
        /// A name it has; empty for one that was made without a name.
        from: String,
        /// The name it gets.
        to: String,
        /// The file.
        file: FileId,
    },
    /// A rename, which replaces what had the name.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
        /// The file that moves; none for a directory.
        file: Option<FileId>,
    },
    /// Two files change places.
    Exchange {
        /// One name and the file that had it before.
        one: (String, FileId),
        /// The other.
        other: (String, FileId),
    },
    /// A name of a file or symbolic link removed.
    Unlink {
        /// The name.
        path: String,
    },
    /// An empty directory removed.
    Rmdir {
        /// The name.
        path: String,
    },
    /// A change of a file's bytes or length. The kernel may ask for a write in several requests: for a buffered one that
    /// begins inside a page it has not cached, it does. They end at page boundaries, and each is an operation of its own.
    Data {
        /// The file.
        file: FileId,
        /// What changed.
        change: Change,
    },
    /// Bytes stored in a shared mapping, and the mapping given up: `msync` or `close` has sent all pages when it ends. The kernel asks for the
    /// pages in any order, so until then, and until they are durable, any of them may be there without the others.
    Mapped {
        /// The file.
        file: FileId,
        /// Where bytes were stored, and which: each in one page, no two in the same, within the file's length.
        stores: Vec<Store>,
    },
    /// An attribute of a file set or removed: an extended one by its name, or the permission bits as [`MODE`](super::observe::MODE).
    Attribute {
        /// The file.
        file: FileId,
        /// Its name.
        name: String,
        /// Its value; none when it is removed.
        value: Option<Vec<u8>>,
    },
    /// A record appended to the file that all threads append to.
    Append {
        /// Its number among this thread's records, from 0.
        number: u32,
    },
    /// `fsync`, `fdatasync`, or the end of an `O_SYNC` write.
    SyncFile {
        /// The file.
        file: FileId,
    },
    /// `fsync` of the file that all threads append to.
    SyncAppended,
    /// A clean unmount, after which all that was answered before it began is durable.
    SyncAll,
    /// `fsync` of a directory.
    SyncDirectory {
        /// Its name.
        path: String,
    },
}

impl Op {
    /// Whether it changes names, or stands in their order.
    #[must_use]
    pub fn is_naming(&self) -> bool {
        !matches!(
            self,
            Self::Data { .. }
                | Self::Mapped { .. }
                | Self::Attribute { .. }
                | Self::Append { .. }
                | Self::SyncFile { .. }
                | Self::SyncAppended
                | Self::SyncAll
                | Self::SyncDirectory { .. }
        )
    }

    /// The names it changes.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Create { path, .. }
            | Self::Mkdir { path }
            | Self::Symlink { path, .. }
            | Self::Unlink { path }
            | Self::Rmdir { path } => vec![path],
            Self::Link { to, .. } => vec![to],
            Self::Rename { from, to, .. } => vec![from, to],
            Self::Exchange { one, other } => vec![&one.0, &other.0],
            _ => Vec::new(),
        }
    }

    /// The files that have a name by it.
    #[must_use]
    pub fn named_files(&self) -> Vec<FileId> {
        match self {
            Self::Create { file, .. } | Self::Link { file, .. } => vec![*file],
            Self::Rename { file, .. } => file.iter().copied().collect(),
            Self::Exchange { one, other } => vec![one.1, other.1],
            _ => Vec::new(),
        }
    }
}

/// One operation and when it happened.
#[derive(Debug, Clone)]
pub struct Record {
    /// What was done.
    pub op: Op,
    /// Just before the system call.
    pub start: Stamp,
    /// Just after its success; none when there was no answer, or not yet.
    pub end: Option<Stamp>,
}

/// All that was done in one life of a volume.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The operations of each thread in order. Number 0 is the set-up, which ends before the others begin.
    pub threads: Vec<Vec<Record>>,
    /// The inode numbers that files had, where they could be asked.
    pub inodes: HashMap<FileId, u64>,
    /// Operations that failed though nothing was wrong.
    pub failures: Vec<String>,
    /// The first thread of each group after the first one. A group is what one crew did: on another machine, or after a crash.
    pub groups: Vec<usize>,
}

impl History {
    /// Adds what another crew did, whose threads are numbered on from those here.
    pub fn extend(&mut self, other: Self) {
        self.groups.push(self.threads.len());
        let first = self.threads.len();
        self.groups.extend(other.groups.iter().map(|start| start + first));
        self.threads.extend(other.threads);
        self.inodes.extend(other.inodes);
        self.failures.extend(other.failures);
    }

    /// The group of a thread, from 0.
    #[must_use]
    pub fn group(&self, thread: usize) -> usize {
        self.groups.iter().filter(|start| **start <= thread).count()
    }

    /// The thread that sets up for a group.
    #[must_use]
    pub fn first_of_group(&self, group: usize) -> usize {
        group.checked_sub(1).and_then(|at| self.groups.get(at)).copied().unwrap_or(0)
    }

    /// How many operations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }

    /// Whether nothing was done.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The moment at which the power went, for one group of threads.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// How many events the disk still took; `u64::MAX` when everything below survived, as in a kill.
    pub point: u64,
    /// What must be there.
    pub promise: Promise,
}

/// What must be there after a crash, besides a prefix without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// What had been synced.
    Synced,
    /// What had been answered before this point, synced or not; nothing for 0. And what a clean unmount had settled.
    Before(u64),
}

impl Moment {
    /// The moment after everything, for a process that was killed above a disk that stayed.
    pub const END: Self = Self::cut(u64::MAX);

    /// A cut at `point` after which all that was synced must be there.
    #[must_use]
    pub const fn cut(point: u64) -> Self {
        Self { point, promise: Promise::Synced }
    }

    /// Whether the operation, a sync, had been answered, and what it covers must be there.
    #[must_use]
    pub fn binds(&self, record: &Record) -> bool {
        self.promise == Promise::Synced && self.acknowledged(record)
    }

    /// Whether the operation may have left something.
    #[must_use]
    pub fn started(&self, record: &Record) -> bool {
        record.start.point < self.point || self.acknowledged(record)
    }

    /// Whether the operation had been answered.
    #[must_use]
    pub fn acknowledged(&self, record: &Record) -> bool {
        record.end.is_some_and(|end| end.point <= self.point)
    }
}

/// Gives moments to all threads of a workload.
pub struct Clock<'a> {
    sequence: AtomicU64,
    points: Box<dyn Fn() -> u64 + Send + Sync + 'a>,
    killed: AtomicBool,
    excused: AtomicBool,
    full: AtomicBool,
}

impl<'a> Clock<'a> {
    /// A clock whose points are what `points` returns.
    pub fn new(points: impl Fn() -> u64 + Send + Sync + 'a) -> Self {
        Self {
            sequence: AtomicU64::new(0),
            points: Box::new(points),
            killed: AtomicBool::new(false),
            excused: AtomicBool::new(false),
            full: AtomicBool::new(false),
        }
    }

    /// This moment.
    pub fn now(&self) -> Stamp {
        // The point must not be older than the sequence says: it is read after the number is taken.
        let sequence = self.sequence.fetch_add(1, Ordering::SeqCst);
        Stamp { sequence, point: (self.points)() }
    }

    /// How many moments have been given.
    pub fn ticks(&self) -> u64 {
        self.sequence.load(Ordering::SeqCst)
    }

    /// Says that what the workload runs on is about to go: failures from here on are expected.
    pub fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
    }

    /// Says that operations may fail from here on, and that those which do not are to go on: another machine takes over.
    pub fn excuse(&self) {
        self.excused.store(true, Ordering::SeqCst);
    }

    /// Says that the disk may become full: what needs space may fail for that reason.
    pub fn may_be_full(&self) {
        self.full.store(true, Ordering::SeqCst);
    }

    /// Whether the disk may become full.
    pub fn room_may_end(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// Whether this error is one of a disk that may be full.
    pub fn is_full(&self, error: &std::io::Error) -> bool {
        self.room_may_end() && error.raw_os_error() == Some(rustix::io::Errno::NOSPC.raw_os_error())
    }

    /// Whether a failure is expected.
    pub fn excused(&self) -> bool {
        self.killed() || self.excused.load(Ordering::SeqCst)
    }

    /// Whether [`Clock::kill`] was called.
    pub fn killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }
}
