//! Operations that the owner carries out, as far as they concern what is known here.

use forebay_meta::RenameMode;
use forebay_protocol::{Answer, Operation, unconfined};
use forebay_types::{Coherence, FileKind, Ino};
use rustc_hash::FxHashSet;

use super::{Entry, Names, Table, directory::Found};

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
            Operation::OpenSegments(open) => vec![unconfined(open.directory)],
            Operation::Space
            | Operation::Classes(_)
            | Operation::GroupRules(_)
            | Operation::Reserve { .. }
            | Operation::ChangePolicy(_)
            | Operation::Numbers(..)
            | Operation::Runs(_)
            | Operation::Ahead(_)
            | Operation::Offer(_)
            | Operation::Fenced(_)
            | Operation::Store(_)
            | Operation::Reseat(_)
            | Operation::Settle(_) => Vec::new(),
        }
    }

    /// Whether an operation concerns inodes that cannot be told from what is known here: those of a name of which it is not known what it stands for, and
    /// those of a listing.
    pub(in crate::ahead) fn is_vague(&self, operation: &Operation) -> bool {
        match operation {
            Operation::Lookup(parent, name) => name == b".." || !self.tells(*parent, name),
            Operation::Unlink(parent, name, _) | Operation::Rmdir(parent, name, _) => {
                !self.tells(*parent, name)
            }
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
        others.extend(answer.inode().map(|inode| inode.ino));
        if let Some((moved, replaced)) = answer.renamed() {
            others.push(moved.ino);
            replaced.iter().for_each(|replaced| self.forget(replaced.ino));
        }
        match operation {
            // These change no row that is known here.
            Operation::Hold(_)
            | Operation::Lock(..)
            | Operation::Unlock(..)
            | Operation::UnlockHandle(..)
            | Operation::MakeNameless(..) => return,
            Operation::Make(parent, name, new) => {
                self.put_new(
                    *parent,
                    name,
                    answer.inode().map(|inode| Entry { ino: inode.ino, kind: new.kind }),
                );
            }
            Operation::Link(ino, parent, name) => {
                let kind = answer.inode().map(|inode| inode.row.kind);
                self.put_new(*parent, name, kind.map(|kind| Entry { ino: *ino, kind }));
            }
            Operation::Unlink(parent, name, _) => self.take_out(*parent, name),
            // What is made in it inherits another mode now.
            Operation::SetXattr(ino, name, ..) | Operation::RemoveXattr(ino, name)
                if name == Coherence::ATTRIBUTE.as_bytes() =>
            {
                self.forget(*ino);
            }
            Operation::Rmdir(parent, name, _) => {
                self.take_out(*parent, name);
                others.iter().filter(|ino| *ino != parent).for_each(|ino| self.no_longer_delegated(*ino));
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
            self.nodes.insert(inode.ino, self.told_of(inode));
        }
    }

    /// Whether it is for the owner to say if a name is there, in a directory that is delegated.
    pub(in crate::ahead) fn leaves_open(&self, parent: Ino, name: &[u8]) -> bool {
        self.find(parent, name) == Some(Found::Perhaps)
    }

    /// A name was made that was not there.
    fn put_new(&mut self, parent: Ino, name: &[u8], entry: Option<Entry>) {
        match (self.names.get_mut(&parent), entry) {
            (Some(names), Some(entry)) => names.insert(name.to_vec(), entry),
            // Nobody says what it is.
            (Some(_), None) => self.forget(parent),
            (None, _) => {}
        }
    }

    /// A name was taken away that was there.
    fn take_out(&mut self, parent: Ino, name: &[u8]) {
        if let Some(names) = self.names.get_mut(&parent) {
            names.remove(name, &self.hashing);
        }
    }

    /// A name that was there stands for something else.
    fn put_again(&mut self, parent: Ino, name: &[u8], entry: Entry) {
        if let Some(names) = self.names.get_mut(&parent) {
            names.replace(name, entry, &self.hashing);
        }
    }

    fn renamed(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode, answer: &Answer) {
        let Some((moved, replaced)) = answer.renamed() else { return };
        let taken = self.find(to.0, to.1);
        let entry = Entry { ino: moved.ino, kind: moved.row.kind };
        match (mode, taken) {
            // Two names of one file: neither is gone.
            (_, Some(Found::Entry(taken))) if taken.ino == moved.ino => {}
            (RenameMode::Exchange, Some(Found::Entry(taken))) => {
                self.put_again(from.0, from.1, taken);
                self.put_again(to.0, to.1, entry);
            }
            (RenameMode::Exchange, _) => self.exchanged_with_unknown(from, to, entry),
            // Both names may be of one file, and neither is gone then.
            (RenameMode::Replace, None | Some(Found::Perhaps))
                if replaced.is_none() && moved.row.nlink > 1 =>
            {
                self.forget_names(from.0);
                self.forget_names(to.0);
            }
            _ => {
                self.take_out(from.0, from.1);
                if replaced.is_some() {
                    self.put_again(to.0, to.1, entry);
                } else {
                    self.put_new(to.0, to.1, Some(entry));
                }
            }
        }
    }

    /// What had the new name has the old one now, and nobody says what that is.
    fn exchanged_with_unknown(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), moved: Entry) {
        self.forget_rows_that_may_be(to.0);
        self.put_again(to.0, to.1, moved);
        let hashing = &self.hashing;
        if self.names.get_mut(&from.0).is_some_and(|names| !names.hash_one(from.1, hashing)) {
            self.forget_names(from.0);
        }
    }

    /// Forgets the rows of all that may have a name in a directory that is not known here. What has no other name than one that is known is none of them.
    fn forget_rows_that_may_be(&mut self, directory: Ino) {
        let named: FxHashSet<Ino> =
            self.names.values().flat_map(Names::entries).map(|entry| entry.ino).collect();
        self.nodes.retain(|ino, node| match node.row.kind {
            FileKind::Directory => node.row.parent != directory || named.contains(ino),
            // The parent of a file says only where it once had a name.
            _ => node.row.nlink <= 1 && named.contains(ino),
        });
    }

    /// It is not known which names a directory has.
    pub(in crate::ahead) fn forget_names(&mut self, directory: Ino) {
        if self.is_delegated(directory) {
            self.forget(directory);
        }
    }

    /// It is not known what the row of an inode is. Names stay.
    pub(in crate::ahead) fn forget_row(&mut self, ino: Ino) {
        self.nodes.remove(&ino);
    }
}
