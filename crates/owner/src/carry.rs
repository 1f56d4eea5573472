//! What operations need, and carrying them out before a namespace.

use std::sync::Arc;

use forebay_cluster::{Access, Lease, Need};
use forebay_format::row::{Extent, InodeRow, Layout, SegmentState};
use forebay_meta::{Inode, MetaError, Namespace, PieceSource};
use forebay_protocol::{
    Answer, Contents, DirectoryEntry, Failure, InodeAnswer, MAP_PIECES_MAX, Mapped, Operation, PolicyChange,
    SegmentPlace, Step, unconfined,
};
use forebay_types::{Coherence, FileKind, Ino, SegmentId, SubvolumeId};
use rustc_hash::FxHashSet;

use crate::ahead;

/// Entries of a directory that one request returns at most.
const ENTRIES_MAX: usize = 4096;

/// The inodes that an operation looks at and changes, as the namespace is now. While it runs with all of these, none can join them: names in a directory change only
/// under a need to write it.
///
/// # Errors
/// [`MetaError`] where it is not to be had what a name stands for: it may be there.
pub(crate) fn needs(operation: &Operation, ns: &Namespace, at: SubvolumeId) -> Result<Vec<Need>, MetaError> {
    if let Operation::Ahead(steps) = operation {
        return ahead::needs(steps, ns, at);
    }
    let named = |parent: Ino, name: &[u8]| found(find(ns, at, parent, name, Ino::ROOT));
    needs_of(operation, &named)
}

/// What a look-up has found. What is not there needs no inode, and what is wrong with the name shows when the operation is carried out; only where it cannot be told
/// whether it is there, that is an error.
pub(crate) fn found(looked: Result<Arc<Inode>, MetaError>) -> Result<Option<Ino>, MetaError> {
    match looked {
        Ok(inode) => Ok(Some(inode.ino)),
        Err(error @ (MetaError::Engine(_) | MetaError::Log(_) | MetaError::Damaged { .. })) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Says what a name in a directory stands for, if it is there.
pub(crate) type Named<'a> = dyn Fn(Ino, &[u8]) -> Result<Option<Ino>, MetaError> + 'a;

/// The same, where `named` says what names stand for.
///
/// # Errors
/// Those of `named`.
pub(crate) fn needs_of(operation: &Operation, named: &Named<'_>) -> Result<Vec<Need>, MetaError> {
    let (read, write) = (|ino| Need { ino, access: Access::Read }, |ino| Need { ino, access: Access::Write });
    Ok(match operation {
        Operation::Lookup(parent, name) => {
            [read(*parent)].into_iter().chain(named(*parent, name)?.map(read)).collect()
        }
        Operation::Inode(ino)
        | Operation::Entries { directory: ino, .. }
        | Operation::ReadLink(ino)
        | Operation::Xattr(ino, _)
        | Operation::Xattrs(ino)
        | Operation::Map(ino, ..) => vec![read(*ino)],
        Operation::Make(parent, ..) => vec![write(*parent)],
        Operation::Link(ino, parent, _) => vec![write(*ino), write(*parent)],
        Operation::Unlink(parent, name, _) | Operation::Rmdir(parent, name, _) => {
            [write(*parent)].into_iter().chain(named(*parent, name)?.map(write)).collect()
        }
        Operation::Rename { from, name, to, new_name, .. } => {
            let inodes = named(*from, name)?.into_iter().chain(named(*to, new_name)?);
            [*from, *to].into_iter().chain(inodes).map(write).collect()
        }
        Operation::SetAttr(ino, _)
        | Operation::SetAtime(ino, _)
        | Operation::SetXattr(ino, ..)
        | Operation::RemoveXattr(ino, _)
        | Operation::Punch { ino, .. } => vec![write(*ino)],
        Operation::Share { source, target, .. } => vec![read(*source), write(*target)],
        Operation::Commit(commit) => commit.files.iter().map(|file| write(file.ino)).collect(),
        // Nobody takes the last name away meanwhile.
        Operation::Hold(inos) => inos.iter().copied().map(read).collect(),
        Operation::Seal(inos) => inos.iter().copied().map(write).collect(),
        Operation::ChangePolicy(change) => match change {
            PolicyChange::Set(ino, _) => vec![write(*ino)],
            PolicyChange::Give(_, inos) => inos.iter().copied().map(write).collect(),
            PolicyChange::Spread(_) => Vec::new(),
        },
        // What is without a name has nobody else; space, numbers and locks are not leased.
        Operation::MakeNameless(..)
        | Operation::Space
        | Operation::Numbers(..)
        | Operation::Runs(_)
        | Operation::Ahead(_)
        | Operation::Release(_)
        | Operation::TestLock(..)
        | Operation::Lock(..)
        | Operation::Unlock(..)
        | Operation::UnlockHandle(..) => Vec::new(),
        // Who has bytes of a segment is between its writer and the members.
        Operation::Offer(_)
        | Operation::Classes(_)
        | Operation::GroupRules(_)
        | Operation::Reserve { .. }
        | Operation::Fenced(_)
        | Operation::OpenSegments(_)
        | Operation::Store(_)
        | Operation::Reseat(_)
        | Operation::Settle(_) => Vec::new(),
    })
}

/// Reads the rows that an operation will need, before it has its turn.
pub(crate) fn read_ahead(operation: &Operation, ns: &Namespace, at: SubvolumeId) {
    let (mut inodes, mut names) = (Vec::new(), Vec::new());
    wants(operation, &mut inodes, &mut names);
    names.retain(|(_, name)| *name != b"..");
    if let Err(error) = ns.read_ahead(at, &inodes, &names) {
        tracing::debug!(%error, "rows cannot be read ahead");
    }
}

/// The inodes and names that an operation looks at.
fn wants<'a>(operation: &'a Operation, inodes: &mut Vec<Ino>, names: &mut Vec<(Ino, &'a [u8])>) {
    match operation {
        Operation::Lookup(parent, name)
        | Operation::Make(parent, name, _)
        | Operation::Unlink(parent, name, _)
        | Operation::Rmdir(parent, name, _) => {
            inodes.push(*parent);
            names.push((*parent, name));
        }
        Operation::Link(ino, parent, name) => {
            inodes.extend([*ino, *parent]);
            names.push((*parent, name));
        }
        Operation::Rename { from, name, to, new_name, .. } => {
            inodes.extend([*from, *to]);
            names.extend([(*from, name.as_slice()), (*to, new_name.as_slice())]);
        }
        Operation::Commit(commit) => inodes.extend(commit.files.iter().map(|file| file.ino)),
        Operation::Hold(inos) | Operation::Seal(inos) => inodes.extend(inos),
        Operation::Share { source, target, .. } => inodes.extend([*source, *target]),
        Operation::Inode(ino)
        | Operation::Entries { directory: ino, .. }
        | Operation::ReadLink(ino)
        | Operation::Xattr(ino, _)
        | Operation::Xattrs(ino)
        | Operation::Map(ino, ..)
        | Operation::MakeNameless(ino, _)
        | Operation::SetAttr(ino, _)
        | Operation::SetAtime(ino, _)
        | Operation::SetXattr(ino, ..)
        | Operation::RemoveXattr(ino, _)
        | Operation::Punch { ino, .. }
        | Operation::Lock(ino, ..) => inodes.push(*ino),
        Operation::Ahead(steps) => {
            for step in steps.iter().filter(|step| Step::may_be(&step.operation)) {
                inodes.extend(step.made);
                wants(&step.operation, inodes, names);
            }
        }
        Operation::OpenSegments(open) => inodes.push(unconfined(open.directory)),
        Operation::ChangePolicy(PolicyChange::Set(ino, _)) => inodes.push(*ino),
        Operation::ChangePolicy(PolicyChange::Give(_, inos)) => inodes.extend(inos),
        Operation::ChangePolicy(PolicyChange::Spread(_))
        | Operation::Classes(_)
        | Operation::GroupRules(_)
        | Operation::Reserve { .. }
        | Operation::Space
        | Operation::Runs(_)
        | Operation::Numbers(..)
        | Operation::Release(_)
        | Operation::TestLock(..)
        | Operation::Unlock(..)
        | Operation::UnlockHandle(..)
        | Operation::Offer(_)
        | Operation::Fenced(_)
        | Operation::Store(_)
        | Operation::Reseat(_)
        | Operation::Settle(_) => {}
    }
}

/// The leases that the client gets along with the answer where it would like to have `lease`, as far as nobody is in the way: on what it was told, also of
/// what is not there. What a listing names is read only. What is sealed needs none.
pub(crate) fn leases(
    operation: &Operation,
    answer: &Answer,
    lease: Lease,
    sealed: &FxHashSet<Ino>,
) -> Vec<(Ino, Lease)> {
    if let Answer::Failed(Failure::Stale | Failure::NotPermitted | Failure::ReadOnly) = answer {
        return Vec::new();
    }
    let mut leases: Vec<(Ino, Lease)> =
        leased(operation, answer).into_iter().map(|ino| (ino, lease)).collect();
    if let (Operation::Entries { inodes: true, .. }, Answer::Entries(entries)) = (operation, answer) {
        leases.extend(entries.iter().map(|entry| (entry.ino, Lease::Read)));
    }
    leases.retain(|(ino, _)| !sealed.contains(ino));
    leases
}

/// Those that an answer tells of, or a listing is to tell of, whose contents are final: what is told of them needs no lease.
pub(crate) fn sealed(
    operation: &Operation,
    answer: &Answer,
    ns: &Namespace,
    at: SubvolumeId,
) -> FxHashSet<Ino> {
    let is_sealed = |row: &InodeRow| row.coherence == Coherence::Sealed;
    match (operation, answer) {
        (Operation::Entries { inodes: true, .. }, Answer::Entries(entries)) => {
            let files =
                || entries.iter().filter(|entry| entry.kind == FileKind::Regular).map(|entry| entry.ino);
            if let Err(error) = ns.prefetch_inodes(at, files()) {
                tracing::warn!(%error, "inodes of a listing cannot be read");
                return FxHashSet::default();
            }
            files().filter(|ino| ns.inode(at, *ino).is_ok_and(|inode| is_sealed(&inode.row))).collect()
        }
        _ => {
            answer.inode().filter(|inode| is_sealed(&inode.row)).map(|inode| inode.ino).into_iter().collect()
        }
    }
}

fn leased(operation: &Operation, answer: &Answer) -> Vec<Ino> {
    let named = answer.inode().map(|inode| inode.ino);
    match operation {
        Operation::Lookup(parent, _) | Operation::Make(parent, ..) | Operation::Link(_, parent, _) => {
            [*parent].into_iter().chain(named).collect()
        }
        Operation::Unlink(parent, ..) | Operation::Rmdir(parent, ..) => vec![*parent],
        Operation::Rename { from, to, .. } => vec![*from, *to],
        Operation::Inode(ino)
        | Operation::Entries { directory: ino, .. }
        | Operation::ReadLink(ino)
        | Operation::Xattr(ino, _)
        | Operation::Xattrs(ino)
        | Operation::Map(ino, ..)
        | Operation::SetAttr(ino, _)
        | Operation::SetAtime(ino, _)
        | Operation::SetXattr(ino, ..)
        | Operation::RemoveXattr(ino, _)
        | Operation::Punch { ino, .. }
        | Operation::Share { target: ino, .. } => vec![*ino],
        Operation::Commit(commit) => match answer {
            Answer::Committed(gone) => {
                let gone: FxHashSet<Ino> = gone.iter().copied().collect();
                commit.files.iter().map(|file| file.ino).filter(|ino| !gone.contains(ino)).collect()
            }
            _ => Vec::new(),
        },
        Operation::MakeNameless(..) => named.into_iter().collect(),
        // What it has made is another matter: `VolumeOwner::made_ahead`.
        Operation::Ahead(_) | Operation::Runs(_) => Vec::new(),
        // Nobody needs a lease on what does not change.
        Operation::Seal(_) => Vec::new(),
        Operation::Space
        | Operation::Classes(_)
        | Operation::GroupRules(_)
        | Operation::Reserve { .. }
        | Operation::ChangePolicy(_)
        | Operation::Numbers(..)
        | Operation::Hold(_)
        | Operation::Release(_)
        | Operation::TestLock(..)
        | Operation::Lock(..)
        | Operation::Unlock(..)
        | Operation::UnlockHandle(..)
        | Operation::Offer(_)
        | Operation::Fenced(_)
        | Operation::OpenSegments(_)
        | Operation::Store(_)
        | Operation::Reseat(_)
        | Operation::Settle(_) => Vec::new(),
    }
}

/// Carries an operation out that is about the namespace alone. `root` is what the session sees as the root.
///
/// # Errors
/// [`MetaError`]; nothing was changed.
pub(crate) fn carry_out(
    operation: &Operation,
    ns: &Namespace,
    at: SubvolumeId,
    root: Ino,
) -> Result<Answer, MetaError> {
    let inode = |inode: &Inode| Answer::Inode(Box::new(InodeAnswer::of(inode)));
    let whole = |inode: &Inode| Ok::<_, MetaError>(Answer::Inode(Box::new(told(ns, at, inode)?)));
    Ok(match operation {
        Operation::Lookup(parent, name) => whole(&*find(ns, at, *parent, name, root)?)?,
        Operation::Inode(ino) => whole(&*ns.inode(at, *ino)?)?,
        Operation::Entries { directory, after, limit, .. } => {
            if !ns.inode(at, *directory)?.is_directory() {
                return Err(MetaError::NotDirectory(*directory));
            }
            let limit = (*limit as usize).clamp(1, ENTRIES_MAX);
            let found = ns.entries(at, *directory, after.as_deref(), limit)?;
            // Inodes follow once there are leases on them.
            Answer::Entries(found.into_iter().map(DirectoryEntry::of).collect())
        }
        Operation::ReadLink(ino) => Answer::Bytes(ns.read_link(at, *ino)?),
        Operation::Xattr(ino, name) => Answer::Bytes(ns.xattr(at, *ino, name)?),
        Operation::Xattrs(ino) => Answer::Names(ns.xattrs(at, *ino)?),
        Operation::Make(parent, name, new) => inode(&ns.make(at, *parent, name, new)?),
        Operation::Link(ino, parent, name) => inode(&ns.link(at, *ino, *parent, name)?),
        Operation::SetAttr(ino, set) => inode(&ns.set_attr(at, *ino, set)?),
        Operation::SetAtime(ino, time) => {
            if ns.inode(at, *ino)?.row.atime < *time {
                ns.set_atime(at, *ino, *time)?;
            }
            Answer::Done
        }
        Operation::SetXattr(ino, name, value, how) => {
            ns.set_xattr(at, *ino, name, value, *how)?;
            Answer::Done
        }
        Operation::RemoveXattr(ino, name) => {
            ns.remove_xattr(at, *ino, name)?;
            Answer::Done
        }
        Operation::Punch { ino, from, to, size, attr } => {
            inode(&ns.punch(at, *ino, *from, *to, *size, *attr)?)
        }
        Operation::Share { source, from, target, to, len, attr } => {
            inode(&ns.share(at, (*source, *from), (*target, *to), *len, *attr)?)
        }
        // The owner carries these out with what it keeps of the session.
        Operation::MakeNameless(..)
        | Operation::Unlink(..)
        | Operation::Rmdir(..)
        | Operation::Rename { .. }
        | Operation::Classes(_)
        | Operation::GroupRules(_)
        | Operation::Reserve { .. }
        | Operation::ChangePolicy(_)
        | Operation::Space
        | Operation::Numbers(..)
        | Operation::Runs(_)
        | Operation::Ahead(_)
        | Operation::Commit(_)
        | Operation::Hold(_)
        | Operation::Seal(_)
        | Operation::Release(_)
        | Operation::TestLock(..)
        | Operation::Lock(..)
        | Operation::Unlock(..)
        | Operation::UnlockHandle(..)
        | Operation::Map(..)
        | Operation::Offer(_)
        | Operation::Fenced(_)
        | Operation::OpenSegments(_)
        | Operation::Store(_)
        | Operation::Reseat(_)
        | Operation::Settle(_) => Answer::Failed(Failure::Invalid),
    })
}

/// What a name stands for; `..` is the parent of a directory, of the root itself.
fn find(
    ns: &Namespace,
    at: SubvolumeId,
    parent: Ino,
    name: &[u8],
    root: Ino,
) -> Result<Arc<Inode>, MetaError> {
    if name != b".." {
        return ns.lookup(at, parent, name);
    }
    let directory = ns.inode(at, parent)?;
    match directory.is_directory() {
        true if parent == root => Ok(directory),
        true => ns.inode(at, directory.row.parent),
        false => Err(MetaError::NotDirectory(parent)),
    }
}

/// An inode with its contents, where they are small enough to come along.
pub(crate) fn told(ns: &Namespace, at: SubvolumeId, inode: &Inode) -> Result<InodeAnswer, MetaError> {
    let mut told = InodeAnswer::of(inode);
    told.contents = match inode.row.layout {
        Layout::Inline => Some(Contents::Inline(ns.inline(at, inode.ino)?)),
        Layout::Single(_, _, Extent { segment, .. }) => {
            place(ns, segment).map(|place| Contents::Place(segment, place))
        }
        Layout::Empty | Layout::Extents => None,
    };
    Ok(told)
}

pub(crate) fn place(ns: &Namespace, segment: SegmentId) -> Option<SegmentPlace> {
    let row = ns.segment(segment)?;
    let object = row.object.filter(|_| row.state == SegmentState::Stored)?;
    Some(SegmentPlace { object, offset: row.object_offset, len: row.len })
}

/// What a range of a file consists of, at most [`MAP_PIECES_MAX`] pieces of it.
pub(crate) fn map(
    ns: &Namespace,
    at: SubvolumeId,
    ino: Ino,
    from: u64,
    len: u64,
) -> Result<Mapped, MetaError> {
    let pieces = ns.map_up_to(at, ino, from, len, MAP_PIECES_MAX)?;
    let to = pieces.last().map_or(from, |last| last.offset + last.len);
    let mut places: Vec<(SegmentId, SegmentPlace)> = Vec::new();
    for piece in &pieces {
        let PieceSource::Extent(Extent { segment, .. }) = piece.source else { continue };
        if !places.iter().rev().any(|(known, _)| *known == segment)
            && let Some(place) = place(ns, segment)
        {
            places.push((segment, place));
        }
    }
    Ok(Mapped { pieces: pieces.into_vec(), places, to })
}
