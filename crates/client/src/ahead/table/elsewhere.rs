//! Operations that the owner carries out, as far as they concern what is known here.

use forebay_meta::RenameMode;
use forebay_protocol::{Answer, Operation};
use forebay_types::{Coherence, Ino};

use super::{Entry, Table};

impl Table {
    /// The inodes that an operation concerns, as far as they are named or known.
    pub(in crate::ahead) fn concerned(&self, operation: &Operation) -> Vec<Ino> {
        let named = |parent: &Ino, name: &[u8]| self.entry(*parent, name).map(|entry| entry.ino);
        match operation {
            Operation::Lookup(parent, name)
            | Operation::Unlink(parent, name, _)
            | Operation::Rmdir(parent, name, _) => [*parent].into_iter().chain(named(parent, name)).collect(),
            Operation::Rename { from, name, to, new_name, .. } => {
                [*from, *to].into_iter().chain(named(from, name)).chain(named(to, new_name)).collect()
            }
            Operation::Link(ino, parent, _) => vec![*ino, *parent],
            Operation::Share { source, target, .. } => vec![*source, *target],
            Operation::Commit(commit) => commit.files.iter().map(|file| file.ino).collect(),
            Operation::Hold(inos) | Operation::Release(inos) | Operation::Seal(inos) => inos.clone(),
            Operation::Inode(ino)
            | Operation::Entries { directory: ino, .. }
            | Operation::ReadLink(ino)
            | Operation::Xattr(ino, _)
            | Operation::Xattrs(ino)
            | Operation::Map(ino, ..)
            | Operation::TestLock(ino, _)
            | Operation::Make(ino, ..)
            | Operation::MakeNameless(ino, _)
            | Operation::SetAttr(ino, _)
            | Operation::SetAtime(ino, _)
            | Operation::SetXattr(ino, ..)
            | Operation::RemoveXattr(ino, _)
            | Operation::Punch { ino, .. }
            | Operation::Lock(ino, ..)
            | Operation::Unlock(ino, ..)
            | Operation::UnlockHandle(ino, _) => vec![*ino],
            Operation::OpenSegments(open) => vec![open.directory],
            Operation::Space
            | Operation::Numbers(..)
            | Operation::Runs(_)
            | Operation::Ahead(_)
            | Operation::Offer(_)
            | Operation::Fenced(_)
            | Operation::BytesBack(_)
            | Operation::Store(_)
            | Operation::Reseat(_)
            | Operation::Settle(_) => Vec::new(),
        }
    }

    /// Whether an operation concerns inodes that cannot be told from what is known here: those that a name stands for in a directory that is not delegated, and
    /// those of a listing.
    pub(in crate::ahead) fn is_vague(&self, operation: &Operation) -> bool {
        match operation {
            Operation::Lookup(parent, name) => name == b".." || !self.is_delegated(*parent),
            Operation::Unlink(parent, ..) | Operation::Rmdir(parent, ..) => !self.is_delegated(*parent),
            Operation::Entries { inodes, .. } => *inodes,
            _ => false,
        }
    }

    /// Takes in what the owner has carried out: `None` where nobody knows whether.
    pub(in crate::ahead) fn passed(&mut self, operation: &Operation, answer: Option<&Answer>) {
        if !operation.changes() || matches!(answer, Some(Answer::Failed(_))) {
            return;
        }
        let concerned = self.concerned(operation);
        let Some(answer) = answer else {
            concerned.iter().for_each(|ino| self.forget(*ino));
            return;
        };
        let mut others = concerned;
        match answer {
            Answer::Inode(inode) => others.push(inode.ino),
            Answer::Renamed(moved, replaced) => {
                others.push(moved.ino);
                replaced.iter().for_each(|replaced| self.forget(replaced.ino));
            }
            _ => {}
        }
        match operation {
            // These change no row that is known here.
            Operation::Hold(_)
            | Operation::Lock(..)
            | Operation::Unlock(..)
            | Operation::UnlockHandle(..)
            | Operation::MakeNameless(..) => return,
            Operation::Make(parent, name, new) => {
                let ino = answer.inode().map(|inode| inode.ino);
                self.put(*parent, name, ino.map(|ino| Entry { ino, kind: new.kind }));
            }
            Operation::Link(ino, parent, name) => {
                let kind = answer.inode().map(|inode| inode.row.kind);
                self.put(*parent, name, kind.map(|kind| Entry { ino: *ino, kind }));
            }
            Operation::Unlink(parent, name, _) => self.put(*parent, name, None),
            // What is made in it inherits another mode now.
            Operation::SetXattr(ino, name, ..) | Operation::RemoveXattr(ino, name)
                if name == Coherence::ATTRIBUTE.as_bytes() =>
            {
                self.forget(*ino);
            }
            Operation::Rmdir(parent, name, _) => {
                self.put(*parent, name, None);
                others.iter().filter(|ino| *ino != parent).for_each(|ino| drop(self.names.remove(ino)));
            }
            Operation::Rename { from, name, to, new_name, mode, .. } => {
                self.renamed((*from, name), (*to, new_name), *mode, answer);
            }
            _ => {}
        }
        // The rows are others now. Names stay: no more of them has changed.
        others.iter().for_each(|ino| drop(self.nodes.remove(ino)));
        if let Some(inode) = answer.inode() {
            self.told_again(inode);
        }
    }

    /// A delegated directory of which only names were known was asked for, and nothing has changed it since.
    pub(in crate::ahead) fn told_again(&mut self, inode: &forebay_protocol::InodeAnswer) {
        if self.is_delegated(inode.ino) && !self.nodes.contains_key(&inode.ino) {
            let xattrs = (!inode.row.has_xattrs).then(Default::default);
            let (row, directory) = (inode.row, inode.directory);
            self.nodes.insert(inode.ino, super::Node { row, directory, target: Vec::new(), xattrs });
        }
    }

    fn put(&mut self, parent: Ino, name: &[u8], entry: Option<Entry>) {
        if let Some(names) = self.names.get_mut(&parent) {
            match entry {
                Some(entry) => drop(names.insert(name.to_vec(), entry)),
                None => drop(names.remove(name)),
            }
        }
    }

    fn renamed(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode, answer: &Answer) {
        let Answer::Renamed(moved, _) = answer else { return };
        let taken = self.entry(to.0, to.1);
        if taken.is_some_and(|taken| taken.ino == moved.ino) {
            // Two names of one file: neither is gone.
            return;
        }
        let moved = Entry { ino: moved.ino, kind: moved.row.kind };
        match mode {
            // Something that may be known here was moved, and nobody says what.
            RenameMode::Exchange if taken.is_none() => return self.clear(),
            RenameMode::Exchange => self.put(from.0, from.1, taken),
            // Where the other directory is not known, nor is whether both names are of one file.
            _ if !self.is_delegated(to.0) && self.is_delegated(from.0) => self.forget(from.0),
            _ => self.put(from.0, from.1, None),
        }
        self.put(to.0, to.1, Some(moved));
    }
}
