//! What is known of delegated directories and of the inodes made in them, and operations on that.
//!
//! Guarantees: an operation for which [`Table::inside`] names inodes is answered as the owner would answer it, if this session has the lease to write on all of
//! them; any other changes nothing here. Knows no lease, clock, thread or network: who calls it does.

mod change;
mod elsewhere;
mod names;

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use forebay_format::row::{DirectoryRow, InodeRow, Layout};
use forebay_protocol::{Answer, Contents, DirectoryEntry, Failure, InodeAnswer, Operation};
use forebay_types::{Coherence, FileKind, Ino, Timespec, limits::NAME_MAX};
use rustc_hash::FxHashMap;

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
}

type Names = BTreeMap<Vec<u8>, Entry>;

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    /// Directories of which all names are known.
    names: FxHashMap<Ino, Names>,
    /// What is made in them inherits this, where it is not the common mode. Stays while a directory's row is not known.
    modes: FxHashMap<Ino, Coherence>,
    nodes: FxHashMap<Ino, Node>,
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
            modes: FxHashMap::default(),
            nodes: FxHashMap::default(),
            block_size,
        }
    }

    /// Inodes and names, about.
    pub(super) fn len(&self) -> usize {
        self.nodes.len() + self.names.values().map(BTreeMap::len).sum::<usize>()
    }

    pub(super) fn clear(&mut self) {
        self.names.clear();
        self.modes.clear();
        self.nodes.clear();
    }

    /// Nothing more is answered about this inode, nor about names in it.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.names.remove(&ino);
        self.modes.remove(&ino);
        self.nodes.remove(&ino);
    }

    /// Forgets every inode of which `kept` says no.
    pub(super) fn retain(&mut self, kept: impl Fn(Ino) -> bool) {
        self.names.retain(|ino, _| kept(*ino));
        self.modes.retain(|ino, _| kept(*ino));
        self.nodes.retain(|ino, _| kept(*ino));
    }

    pub(super) fn is_delegated(&self, directory: Ino) -> bool {
        self.names.contains_key(&directory)
    }

    /// A directory is delegated: these are all of its names.
    pub(super) fn delegate(&mut self, directory: &InodeAnswer, entries: Names) {
        let xattrs = (!directory.row.has_xattrs).then(BTreeMap::new);
        let InodeAnswer { ino, row, directory, .. } = directory;
        self.has_mode(*ino, row.coherence);
        self.nodes.insert(*ino, Node { row: *row, directory: *directory, target: Vec::new(), xattrs });
        self.names.insert(*ino, entries);
    }

    fn mode_of(&self, directory: Ino) -> Coherence {
        self.modes.get(&directory).copied().unwrap_or(Coherence::Coherent)
    }

    fn has_mode(&mut self, directory: Ino, coherence: Coherence) {
        if coherence == Coherence::Coherent {
            self.modes.remove(&directory);
        } else {
            self.modes.insert(directory, coherence);
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
            Operation::Make(parent, ..) | Operation::Entries { directory: parent, inodes: false, .. } => {
                self.is_delegated(*parent).then(|| vec![*parent])
            }
            Operation::Link(ino, parent, _) => {
                (node(ino).is_some() && self.is_delegated(*parent)).then(|| vec![*ino, *parent])
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
        let Some(entry) = self.names.get(&parent)?.get(name) else { return Some(None) };
        let whole = self.nodes.contains_key(&entry.ino)
            && (entry.kind != FileKind::Directory || self.is_delegated(entry.ino));
        whole.then_some(Some(entry.ino))
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
                let from = after.as_deref().map_or(Unbounded, Excluded);
                let page = names.range::<[u8], _>((from, Unbounded));
                let entries = page.take((*limit as usize).clamp(1, ENTRIES_MAX)).map(|(name, entry)| {
                    DirectoryEntry { name: name.clone(), ino: entry.ino, kind: entry.kind, inode: None }
                });
                Answer::Entries(entries.collect())
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
        self.names.get(&parent)?.get(name).copied()
    }

    fn node(&self, ino: Ino) -> Result<&Node, Failure> {
        self.nodes.get(&ino).ok_or(Failure::Stale)
    }

    fn node_mut(&mut self, ino: Ino) -> Result<&mut Node, Failure> {
        self.nodes.get_mut(&ino).ok_or(Failure::Stale)
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
