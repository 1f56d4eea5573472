//! What a vfs knows that the volume does not store, for the process that takes a mount over.
//!
//! Guarantees: a vfs made from it answers every handle, inode number and place in a directory that was given out as the one before would
//! have. Relies on nobody using the vfs meanwhile, and on access times having been written.
//!
//! The bytes carry no version of their own: whoever sends them says which layout they have (`docs/design/takeover.md`).

use std::sync::Arc;

use forebay_format::{
    Decoder, Encoder, FormatError,
    row::{DirectoryRow, InodeRow, Row},
};
use forebay_meta::Inode;
use forebay_types::Ino;

use crate::{
    cursor::Place,
    files::Files,
    locks::{LockKind, LockRange, LockRequest, LockSpace},
    options::VfsOptions,
    vfs::Vfs,
};

const WHAT: &str = "the state of the mount";

/// An inode with open handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeldOpen {
    pub(crate) ino: Ino,
    pub(crate) handles: u32,
    /// It may get a name although it has none.
    pub(crate) linkable: bool,
}

/// An open directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HeldDir {
    pub(crate) fh: u64,
    pub(crate) ino: Ino,
    pub(crate) counted: bool,
    pub(crate) place: Place,
}

/// A vfs apart from its volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Handover {
    pub(crate) next_fh: u64,
    pub(crate) open: Vec<HeldOpen>,
    pub(crate) retired: Vec<Ino>,
    pub(crate) dirs: Vec<HeldDir>,
    pub(crate) ghosts: Vec<Inode>,
    pub(crate) locks: Vec<(Ino, LockRequest)>,
}

impl Vfs {
    /// What another process needs to know besides the volume. Nobody may use this vfs any more, not even for a request that is under way.
    #[must_use]
    pub fn hand_over(&self) -> Handover {
        Handover {
            next_fh: self.next_handle(),
            open: self.open.held(),
            retired: self.open.retired(),
            dirs: self.held_dirs(),
            ghosts: self.ghosts.all(),
            locks: self.locks.held(),
        }
    }

    /// Goes on where the vfs ended that `state` is from. The volume must have been opened with [`Handover::in_use`], so that nothing that is open was
    /// removed.
    #[must_use]
    pub fn take_over(files: Arc<dyn Files>, options: VfsOptions, state: Handover) -> Vfs {
        let Handover { next_fh, open, retired, dirs, ghosts, locks } = state;
        let vfs = Vfs::numbered_from(files, options, next_fh);
        open.iter().for_each(|open| vfs.files.opened(open.ino));
        vfs.open.restore(open, retired);
        vfs.restore_dirs(dirs);
        ghosts.into_iter().for_each(|ghost| vfs.ghosts.keep(Arc::new(ghost)));
        vfs.locks.restore(locks);
        vfs
    }
}

impl Handover {
    /// The inodes that are open: those among them that have no name must not be removed.
    #[must_use]
    pub fn in_use(&self) -> Vec<Ino> {
        self.open.iter().map(|open| open.ino).collect()
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let to = &mut Encoder(&mut bytes);
        to.varint(self.next_fh);
        list(to, &self.open, |to, open| {
            to.varint(open.ino.0);
            to.varint(u64::from(open.handles));
            to.u8(u8::from(open.linkable));
        });
        list(to, &self.retired, |to, ino| to.varint(ino.0));
        list(to, &self.dirs, |to, dir| {
            to.varint(dir.fh);
            to.varint(dir.ino.0);
            to.u8(u8::from(dir.counted));
            dir.place.encode(to);
        });
        list(to, &self.ghosts, |to, ghost| {
            to.varint(ghost.ino.0);
            to.bytes(&ghost.row.encode());
            to.bytes(&ghost.directory.as_ref().map_or_else(Vec::new, Row::encode));
        });
        list(to, &self.locks, |to, (ino, lock)| {
            to.varint(ino.0);
            encode_lock(to, lock);
        });
        bytes
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// [`FormatError`] where they are none that [`Handover::encode`] made.
    pub fn decode(bytes: &[u8]) -> Result<Handover, FormatError> {
        let from = &mut Decoder::new(bytes, WHAT);
        let state = Handover {
            next_fh: from.varint()?,
            open: items(from, |from| {
                Ok(HeldOpen { ino: ino(from)?, handles: from.varint32()?, linkable: truth(from)? })
            })?,
            retired: items(from, ino)?,
            dirs: items(from, |from| {
                let (fh, ino, counted) = (from.varint()?, ino(from)?, truth(from)?);
                Ok(HeldDir { fh, ino, counted, place: Place::decode(from)? })
            })?,
            ghosts: items(from, |from| {
                let (ino, row, directory) = (ino(from)?, InodeRow::decode(from.bytes()?)?, from.bytes()?);
                let directory = Some(directory).filter(|row| !row.is_empty());
                Ok(Inode::removed(ino, row, directory.map(DirectoryRow::decode).transpose()?))
            })?,
            locks: items(from, |from| Ok((ino(from)?, decode_lock(from)?)))?,
        };
        from.end()?;
        Ok(state)
    }
}

pub(crate) fn list<T>(to: &mut Encoder<'_>, items: &[T], each: impl Fn(&mut Encoder<'_>, &T)) {
    to.varint(items.len() as u64);
    items.iter().for_each(|item| each(to, item));
}

pub(crate) fn items<T>(
    from: &mut Decoder<'_>,
    each: impl Fn(&mut Decoder<'_>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    let count = from.varint()?;
    // No more room at first than the bytes could fill: the count is checked by nothing else.
    let mut items =
        Vec::with_capacity(usize::try_from(count).map_or(0, |count| count.min(from.rest().len())));
    for _ in 0..count {
        items.push(each(from)?);
    }
    Ok(items)
}

fn ino(from: &mut Decoder<'_>) -> Result<Ino, FormatError> {
    Ok(Ino(from.varint()?))
}

fn truth(from: &mut Decoder<'_>) -> Result<bool, FormatError> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(FormatError::Invalid { what: WHAT, detail: format!("{other} is neither yes nor no") }),
    }
}

fn encode_lock(to: &mut Encoder<'_>, lock: &LockRequest) {
    let LockRange { start, end, kind, pid } = lock.range;
    to.u8(u8::from(lock.space == LockSpace::Flock));
    to.u8(u8::from(kind == LockKind::Exclusive));
    to.u64(lock.owner);
    to.varint(lock.fh);
    to.varint(start);
    to.varint(end);
    to.varint(u64::from(pid));
}

fn decode_lock(from: &mut Decoder<'_>) -> Result<LockRequest, FormatError> {
    let space = if truth(from)? { LockSpace::Flock } else { LockSpace::Record };
    let kind = if truth(from)? { LockKind::Exclusive } else { LockKind::Shared };
    let (owner, fh) = (from.u64()?, from.varint()?);
    let range = LockRange { start: from.varint()?, end: from.varint()?, kind, pid: from.varint32()? };
    Ok(LockRequest { space, owner, fh, range })
}

#[cfg(test)]
mod tests;
