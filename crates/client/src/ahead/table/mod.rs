//! What is known of delegated directories and of the inodes made in them, and operations on that.
//!
//! Guarantees: an operation for which [`Table::inside`] names inodes is answered as the owner would answer it, if this session has the lease to write on all of
//! them; any other changes nothing here. Knows no lease, clock, thread or network: who calls it does.

mod change;
mod directory;
mod elsewhere;
mod forget;
mod names;

use std::collections::BTreeMap;

use forebay_format::row::{DirectoryRow, InodeRow, Layout};
use forebay_protocol::{Answer, Contents, Failure, InodeAnswer, Operation};
use forebay_types::{Coherence, FileKind, Ino, PolicyId, Timespec, limits::NAME_MAX};
use rustc_hash::FxHashMap;

use directory::Found;
pub(super) use directory::{Hashing, Names};
pub(super) use forget::Most;

/// Entries that one answer has at most, as the owner has it.
const ENTRIES_MAX: usize = 4096;

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) ino: Ino,
    pub(super) kind: FileKind,
}

/// An inode of which everything is known but the data.
#[derive(Clone, Debug)]
struct Node {
    row: InodeRow,
    directory: Option<DirectoryRow>,
    target: Vec<u8>,
    /// All extended attributes, where they are known.
    xattrs: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// When it was changed here last, as the table counts.
    used: u64,
}

/// What is made in a directory has this of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Inherited {
    coherence: Coherence,
    policy: PolicyId,
}

impl Inherited {
    /// What is common.
    const PLAIN: Inherited = Inherited { coherence: Coherence::Coherent, policy: PolicyId::NONE };

    fn of(row: &InodeRow) -> Inherited {
        Inherited { coherence: row.coherence, policy: row.policy }
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    /// Directories of which all names are known, or a hash of them.
    names: FxHashMap<Ino, Names>,
    /// What is made in them inherits this, where it is not what is common. Stays while a directory's row is not known.
    inherits: FxHashMap<Ino, Inherited>,
    nodes: FxHashMap<Ino, Node>,
    hashing: Hashing,
    /// Operations that were carried out.
    used: u64,
    /// How many inodes and names were left when too many were known and no fewer could be, or how few were seen since; 0 where enough were forgotten.
    left: usize,
    block_size: u32,
}

/// An operation that was carried out.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) answer: Answer,
    /// What it concerns; nothing, where it changed nothing.
    pub(super) touched: Vec<Ino>,
}

impl Table {
    pub(super) fn new(block_size: u32) -> Table {
        Table {
            names: FxHashMap::default(),
            inherits: FxHashMap::default(),
            nodes: FxHashMap::default(),
            hashing: Hashing::default(),
            used: 0,
            left: 0,
            block_size,
        }
    }

    /// One in which many names have the same hash.
    #[cfg(test)]
    pub(super) fn hashing_by(block_size: u32, hashing: Hashing) -> Table {
        Table { hashing, ..Table::new(block_size) }
    }

    /// How the names of its directories are hashed.
    pub(super) fn hashing(&self) -> &Hashing {
        &self.hashing
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.inherits.clear();
        self.nodes.clear();
        self.left = 0;
    }

    /// Nothing more is answered about this inode, nor about names in it.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.no_longer_delegated(ino);
        self.nodes.remove(&ino);
    }

    /// Nothing more is answered about names in this directory, nor made in it.
    fn no_longer_delegated(&mut self, directory: Ino) {
        self.names.remove(&directory);
        self.inherits.remove(&directory);
    }

    pub(super) fn is_delegated(&self, directory: Ino) -> bool {
        self.names.contains_key(&directory)
    }

    /// A directory is delegated: these are all of its names.
    pub(super) fn delegate(&mut self, directory: &InodeAnswer, mut names: Names) {
        let ino = directory.ino;
        names.used = self.used;
        self.inherits_from(ino, Inherited::of(&directory.row));
        self.nodes.insert(ino, self.told_of(directory));
        self.names.insert(ino, names);
    }

    /// A directory as the owner tells of it.
    fn told_of(&self, directory: &InodeAnswer) -> Node {
        let xattrs = (!directory.row.has_xattrs).then(BTreeMap::new);
        let InodeAnswer { row, directory, .. } = directory;
        Node { row: *row, directory: *directory, target: Vec::new(), xattrs, used: self.used }
    }

    fn inherited(&self, directory: Ino) -> Inherited {
        self.inherits.get(&directory).copied().unwrap_or(Inherited::PLAIN)
    }

    fn inherits_from(&mut self, directory: Ino, inherited: Inherited) {
        if inherited == Inherited::PLAIN {
            self.inherits.remove(&directory);
        } else {
            self.inherits.insert(directory, inherited);
        }
    }

    /// The inodes on which an operation needs the lease to write to be carried out here; `None` where it cannot be.
    pub(super) fn inside(&self, operation: &Operation) -> Option<Vec<Ino>> {
        let node = |ino: &Ino| self.nodes.get(ino);
        match operation {
            Operation::Lookup(_, name) if matches!(&name[..], b"." | b"..") => None,
            Operation::Lookup(parent, name)
            | Operation::Unlink(parent, name, _)
            | Operation::Rmdir(parent, name, _) => {
                let mut needed = vec![*parent];
                needed.extend(self.named(*parent, name)?);
                Some(needed)
            }
            Operation::Make(parent, name, _) => self.tells(*parent, name).then(|| vec![*parent]),
            Operation::Entries { directory, inodes: false, .. } => {
                self.names.get(directory).filter(|names| names.are_known()).map(|_| vec![*directory])
            }
            Operation::Link(ino, parent, name) => {
                (node(ino).is_some() && self.tells(*parent, name)).then(|| vec![*ino, *parent])
            }
            Operation::Rename { from, name, to, new_name, .. } => {
                let (moved, taken) = (self.named(*from, name)?, self.named(*to, new_name)?);
                let directories = moved.iter().chain(&taken).any(|ino| self.is_delegated(*ino));
                if directories && from != to && !self.are_related(*from, *to) {
                    return None;
                }
                Some([*from, *to].into_iter().chain(moved).chain(taken).collect())
            }
            Operation::Inode(ino) | Operation::SetAtime(ino, _) => node(ino).map(|_| vec![*ino]),
            Operation::SetAttr(ino, set) => {
                let node = node(ino)?;
                // What was written is the contents' business.
                let sized = set.size.is_none() || node.row.layout == Layout::Empty && !node.row.has_cuts;
                (sized && (set.xattrs.is_empty() || node.xattrs.is_some())).then(|| vec![*ino])
            }
            Operation::ReadLink(ino) => {
                node(ino).filter(|node| node.row.kind == FileKind::Symlink).map(|_| vec![*ino])
            }
            // A mode is no attribute but a directory's row.
            Operation::Xattr(_, name)
            | Operation::SetXattr(_, name, ..)
            | Operation::RemoveXattr(_, name)
                if name == Coherence::ATTRIBUTE.as_bytes() =>
            {
                None
            }
            Operation::Xattr(ino, _)
            | Operation::Xattrs(ino)
            | Operation::SetXattr(ino, ..)
            | Operation::RemoveXattr(ino, _) => {
                node(ino).filter(|node| node.xattrs.is_some()).map(|_| vec![*ino])
            }
            _ => None,
        }
    }

    /// What a name of a delegated directory stands for, if anything; `None` where that is not known whole.
    fn named(&self, parent: Ino, name: &[u8]) -> Option<Option<Ino>> {
        let entry = match self.find(parent, name)? {
            Found::Entry(entry) => entry,
            Found::Nothing => return Some(None),
            Found::Perhaps => return None,
        };
        let whole = self.nodes.contains_key(&entry.ino)
            && (entry.kind != FileKind::Directory || self.is_delegated(entry.ino));
        whole.then_some(Some(entry.ino))
    }

    /// What is known of a name, if its directory is delegated.
    fn find(&self, parent: Ino, name: &[u8]) -> Option<Found> {
        self.names.get(&parent).map(|names| names.find(name, &self.hashing))
    }

    /// What a name of a delegated directory stands for, if anything, where that is known here.
    #[cfg(test)]
    pub(super) fn told_name(&self, parent: Ino, name: &[u8]) -> Option<Option<Ino>> {
        match self.find(parent, name)? {
            Found::Entry(entry) => Some(Some(entry.ino)),
            Found::Nothing => Some(None),
            Found::Perhaps => None,
        }
    }

    /// Directories of which it is known what is inherited from them, and no name in them.
    #[cfg(test)]
    pub(super) fn inherited_in_vain(&self) -> usize {
        self.inherits.keys().filter(|ino| !self.is_delegated(**ino)).count()
    }

    #[cfg(test)]
    pub(super) fn has_hashes(&self, directory: Ino) -> bool {
        self.names.get(&directory).is_some_and(|names| names.hashed() > 0)
    }

    /// Whether it is known here what a name stands for, if anything.
    fn tells(&self, parent: Ino, name: &[u8]) -> bool {
        matches!(self.find(parent, name), Some(Found::Entry(_) | Found::Nothing))
    }

    /// Whether it is known which of the directories above two others are the same: what is in one of them is above the other only where it is seen to be.
    fn are_related(&self, one: Ino, other: Ino) -> bool {
        let (one, other) = (self.above(one), self.above(other));
        one.iter().any(|ino| other.contains(ino))
    }

    /// A directory and those above it, as far as they are known.
    fn above(&self, directory: Ino) -> Vec<Ino> {
        let mut found = vec![directory];
        let mut next = directory;
        // The root, of the volume or of the session, is its own parent.
        while let Some(node) = self.nodes.get(&next).filter(|node| node.row.parent != next) {
            next = node.row.parent;
            found.push(next);
        }
        found
    }

    /// Carries out an operation that is inside, at `now`. `made`: the number of what it makes.
    pub(super) fn carry_out(&mut self, operation: &Operation, now: Timespec, made: Ino) -> Done {
        self.used += 1;
        let done = match operation {
            Operation::Lookup(..)
            | Operation::Inode(_)
            | Operation::Entries { .. }
            | Operation::ReadLink(_)
            | Operation::Xattr(..)
            | Operation::Xattrs(_) => self.look(operation).map(|answer| Done { answer, touched: Vec::new() }),
            _ => self.change(operation, now, made),
        };
        done.unwrap_or_else(|failure| Done { answer: Answer::Failed(failure), touched: Vec::new() })
    }

    fn look(&self, operation: &Operation) -> Result<Answer, Failure> {
        Ok(match operation {
            Operation::Lookup(_, name) if name.len() > NAME_MAX => return Err(Failure::NameTooLong),
            Operation::Lookup(parent, name) => {
                let entry = self.entry(*parent, name).ok_or(Failure::NotFound)?;
                Answer::Inode(Box::new(self.told(entry.ino)?))
            }
            Operation::Inode(ino) => Answer::Inode(Box::new(self.told(*ino)?)),
            Operation::Entries { directory, after, limit, .. } => {
                let names = self.names.get(directory).ok_or(Failure::NotDirectory)?;
                Answer::Entries(names.page(after.as_deref(), (*limit as usize).clamp(1, ENTRIES_MAX)))
            }
            Operation::ReadLink(ino) => Answer::Bytes(self.node(*ino)?.target.clone()),
            Operation::Xattr(ino, name) => {
                let value = self.node(*ino)?.xattrs.as_ref().and_then(|xattrs| xattrs.get(name));
                Answer::Bytes(value.ok_or(Failure::NoAttribute)?.clone())
            }
            Operation::Xattrs(ino) => {
                let xattrs = self.node(*ino)?.xattrs.as_ref();
                Answer::Names(xattrs.map(|xattrs| xattrs.keys().cloned().collect()).unwrap_or_default())
            }
            _ => return Err(Failure::Invalid),
        })
    }

    fn entry(&self, parent: Ino, name: &[u8]) -> Option<Entry> {
        self.names.get(&parent)?.entry(name)
    }

    fn node(&self, ino: Ino) -> Result<&Node, Failure> {
        self.nodes.get(&ino).ok_or(Failure::Stale)
    }

    fn node_mut(&mut self, ino: Ino) -> Result<&mut Node, Failure> {
        let node = self.nodes.get_mut(&ino).ok_or(Failure::Stale)?;
        node.used = self.used;
        Ok(node)
    }

    /// An inode as an operation that changes it answers.
    fn answer(&self, ino: Ino) -> Result<InodeAnswer, Failure> {
        let node = self.node(ino)?;
        Ok(InodeAnswer { ino, row: node.row, directory: node.directory, contents: None })
    }

    /// An inode as a look at it answers: with contents that are tiny.
    fn told(&self, ino: Ino) -> Result<InodeAnswer, Failure> {
        let node = self.node(ino)?;
        let inline = node.row.layout == Layout::Inline;
        let contents = inline.then(|| Contents::Inline(node.target.clone()));
        Ok(InodeAnswer { contents, ..self.answer(ino)? })
    }
}
