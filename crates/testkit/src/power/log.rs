//! What happened under a volume, in order: every change and every sync is one numbered point.

use std::sync::Arc;

/// The number of a file or directory on the emulated disk.
pub type Ino = u64;

/// A name in a directory, as bytes.
pub type Name = Vec<u8>;

/// The number of the disk's root directory.
pub const ROOT: Ino = 1;

/// What an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A socket, FIFO or device: its `st_mode` type bits.
    Special(u32),
}

/// One name that an operation sets or removes.
#[derive(Debug, Clone)]
pub struct Slot {
    /// The directory.
    pub dir: Ino,
    /// The name in it.
    pub name: Name,
    /// What the name meant before.
    pub old: Option<Ino>,
    /// What it means afterwards; `None` when it is gone.
    pub new: Option<Ino>,
}

/// A change of one file's bytes or length.
#[derive(Debug, Clone)]
pub enum Change {
    /// Bytes written at an offset.
    Write {
        /// Offset in bytes.
        offset: u64,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// The length set, by truncation or allocation.
    SetLen(u64),
    /// A range made zero without a change of length.
    Zero {
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// One numbered point.
#[derive(Debug, Clone)]
pub enum Event {
    /// A namespace operation: all its slots change together or not at all.
    Names {
        /// The inode that the operation made, if it made one.
        born: Option<(Ino, Kind)>,
        /// The names it changes: one, or two for a rename.
        slots: Vec<Slot>,
        /// Whether a directory moves to another place by it.
        moves_directory: bool,
    },
    /// A change of a file's bytes.
    Data {
        /// The file.
        ino: Ino,
        /// What changed.
        change: Change,
    },
    /// `fsync` or `fdatasync` of a file, or the sync that ends an `O_SYNC` write.
    SyncFile(Ino),
    /// `fsync` of a directory.
    SyncDirectory(Ino),
}

impl Event {
    /// The inodes whose names the event changes.
    pub fn inodes(&self) -> impl Iterator<Item = Ino> {
        let slots = if let Self::Names { slots, .. } = self { slots.as_slice() } else { &[] };
        slots.iter().flat_map(|slot| [slot.old, slot.new]).flatten()
    }

    /// Whether the event changes a name in `dir`.
    #[must_use]
    pub fn touches(&self, dir: Ino) -> bool {
        matches!(self, Self::Names { slots, .. } if slots.iter().any(|slot| slot.dir == dir))
    }
}

impl Change {
    /// The length of a file of `len` bytes after the change.
    #[must_use]
    pub fn len_after(&self, len: u64) -> u64 {
        match self {
            Self::Write { offset, data } => len.max(offset.saturating_add(data.len() as u64)),
            Self::SetLen(len) => *len,
            Self::Zero { .. } => len,
        }
    }

    /// Does the change to `file` in full.
    pub fn apply(&self, file: &mut super::sparse::Sparse) {
        match self {
            Self::Write { offset, data } => file.write(*offset, data),
            Self::SetLen(len) => file.set_len(*len),
            Self::Zero { offset, len } => file.zero(*offset, *len),
        }
    }
}
