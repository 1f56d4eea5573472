//! One file's layers, and what they rest on.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use forebay_meta::Inode;
use forebay_types::{Ino, PolicyId, Timespec, limits::INLINE_MAX};
use parking_lot::Mutex;

use super::{
    layer::{Layer, narrowed},
    line::Place,
};
use crate::ClientError;

/// Pieces of one layer that is committed: each may become an extent.
const PIECES_MAX: usize = 1 << 16;

/// A file of which something is kept back, or was since its row was last looked at.
#[derive(Debug)]
pub(super) struct File {
    pub(super) ino: Ino,
    /// The directory that has it, or had: files are packed in its order.
    pub(super) parent: Ino,
    /// Whether it waits for the store although the volume does not, as far as is known. Changes only while nothing of it is kept.
    pub(super) aside: AtomicBool,
    pub(super) state: Mutex<FileState>,
}

impl File {
    /// Where it is in the line.
    pub(super) fn place(&self) -> Place {
        (self.aside.load(Relaxed), self.parent, self.ino)
    }
}

/// What the owner has of a file's bytes once all layers on their way are committed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Base {
    /// It has to be asked.
    #[default]
    Unknown,
    /// None.
    Empty,
    /// These, in the inode's row.
    Inline(Vec<u8>),
    /// Extents.
    Extents,
}

/// What goes over an inode's row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) size: u64,
    pub(super) mtime: Timespec,
    /// When it was written last, whatever its times were set to since.
    pub(super) wrote: Timespec,
    /// Bits of the mode that stay.
    pub(super) mode: Option<u16>,
    /// Bytes that are allocated, or will be: an estimate.
    pub(super) allocated: u64,
}

#[derive(Debug, Default)]
pub(super) struct FileState {
    /// Takes writes.
    pub(super) open: Option<Layer>,
    /// On their way, the oldest first.
    pub(super) flying: VecDeque<Arc<Layer>>,
    /// The owner is just being told of a layer, which may have come back since: until it is known what became of that, nothing else of the file is told, as the two would have no order.
    pub(super) telling: bool,
    /// The number of the last layer that was opened.
    pub(super) opened: u64,
    /// The number of the last layer that was committed, or lost.
    pub(super) settled: u64,
    /// How often layers on their way came back.
    pub(super) failures: u64,
    /// Why they came back last.
    pub(super) failed: Option<ClientError>,
    /// What was lost, to be told once.
    pub(super) lost: Option<ClientError>,
    /// That was of what the file has now: it was not cut to nothing since.
    pub(super) torn: bool,
    pub(super) base: Base,
    pub(super) seen: Option<Seen>,
    /// The policy by which it went when it was written last.
    pub(super) policy: PolicyId,
    /// It is known no longer: who is about to write looks for it again.
    pub(super) removed: bool,
}

/// A layer on its way.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) file: Arc<File>,
    pub(super) layer: Arc<Layer>,
    /// All bytes of a file that stays in its row.
    pub(super) inline: Option<Vec<u8>>,
    /// The policy by which the file goes, as far as is known.
    pub(super) policy: PolicyId,
}

/// What a write did.
pub(super) struct Wrote {
    /// How much more the open layer costs than before, and in all.
    pub(super) added: u64,
    pub(super) cost: u64,
    /// How many pieces it has.
    pub(super) pieces: usize,
}

impl FileState {
    /// Whether anything is kept back.
    pub(super) fn keeps(&self) -> bool {
        self.open.is_some() || !self.flying.is_empty()
    }

    fn sessions(&self) -> impl Iterator<Item = u64> + '_ {
        self.flying.iter().map(|layer| layer.session).chain(self.open.iter().map(|layer| layer.session))
    }

    /// Whether what is kept back was kept in another session than this one.
    pub(super) fn is_of_another(&self, session: u64) -> bool {
        self.sessions().any(|of| of != session)
    }

    /// Whether something was kept back since this session was over.
    pub(super) fn is_of_later(&self, session: u64) -> bool {
        self.sessions().any(|of| of > session)
    }

    /// Writes to the open layer. `known`: the inode is as it is now, apart from what is kept back here.
    pub(super) fn write(
        &mut self,
        inode: &Inode,
        offset: u64,
        data: &[u8],
        mode: Option<u16>,
        (session, now): (u64, Timespec),
        known: bool,
    ) -> Wrote {
        use forebay_format::row::Layout;
        if known && self.base == Base::Unknown && self.flying.is_empty() {
            match inode.row.layout {
                Layout::Empty => self.base = Base::Empty,
                Layout::Single(..) | Layout::Extents => self.base = Base::Extents,
                Layout::Inline => {}
            }
        }
        let row = &inode.row;
        self.policy = row.policy;
        let seen = self.seen.get_or_insert(Seen {
            size: row.size,
            mtime: row.mtime,
            wrote: row.ctime,
            mode: None,
            allocated: row.allocated,
        });
        seen.size = seen.size.max(offset + data.len() as u64);
        (seen.mtime, seen.wrote) = (now, now);
        seen.mode = narrowed(seen.mode, mode);
        let size = seen.size;
        let open = self.open.get_or_insert_with(|| {
            self.opened += 1;
            Layer::new(self.opened, session, size, now)
        });
        let added = open.write(offset, data);
        seen.allocated += added.min(data.len() as u64);
        (open.size, open.mtime, open.mode) = (size, now, narrowed(open.mode, mode));
        Wrote { added, cost: open.cost(), pieces: open.count() }
    }

    /// Takes the open layer, or as much of it as one commit can have, if what it rests on is known. Returns it, whether it stays in the row, and how much
    /// more it costs than before.
    pub(super) fn take(&mut self, file: &Arc<File>) -> Option<(Taken, u64)> {
        if self.base == Base::Unknown {
            return None;
        }
        let mut layer = self.open.take()?;
        // A commit says where each piece is, and has a bound.
        self.open = layer.split(PIECES_MAX);
        let mut added = 0;
        let small = layer.size <= INLINE_MAX as u64;
        let inline = match &self.base {
            Base::Empty if small => Some(Vec::new()),
            Base::Inline(bytes) if small => Some(bytes.clone()),
            Base::Inline(bytes) => {
                added = layer.write_under(0, bytes);
                None
            }
            Base::Unknown | Base::Empty | Base::Extents => None,
        };
        let inline = inline.map(|mut bytes| {
            layer.apply_to(&mut bytes);
            bytes
        });
        self.base = match &inline {
            Some(bytes) => Base::Inline(bytes.clone()),
            None if layer.count() == 0 => std::mem::take(&mut self.base),
            None => Base::Extents,
        };
        let layer = Arc::new(layer);
        self.flying.push_back(Arc::clone(&layer));
        Some((Taken { file: Arc::clone(file), layer, inline, policy: self.policy }, added))
    }

    /// Makes one open layer of all. Returns how much less they cost.
    pub(super) fn take_back(&mut self, error: &ClientError) -> u64 {
        let mut freed = 0;
        let mut all: Option<Layer> = None;
        let flying = self.flying.drain(..).map(Arc::unwrap_or_clone);
        for layer in flying.chain(self.open.take()) {
            match &mut all {
                Some(under) => freed += under.put_over(&layer),
                none => *none = Some(layer),
            }
        }
        self.open = all;
        self.base = Base::Unknown;
        self.failures += 1;
        self.failed = Some(error.clone());
        freed
    }

    /// The time of change was set, after what was written so far.
    pub(super) fn set_mtime(&mut self, mtime: Timespec) {
        if let Some(open) = &mut self.open {
            open.mtime = mtime;
        }
        if let Some(seen) = &mut self.seen {
            seen.mtime = mtime;
        }
    }

    /// Drops everything that is kept back. Returns what that cost.
    pub(super) fn drop_all(&mut self) -> u64 {
        let open = self.open.take().map_or(0, |layer| layer.cost());
        let flying: u64 = self.flying.drain(..).map(|layer| layer.cost()).sum();
        self.settled = self.opened;
        self.base = Base::Unknown;
        self.seen = None;
        open + flying
    }
}
