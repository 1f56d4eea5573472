//! What is forgotten where too much is known.

use forebay_types::{FileKind, Ino};
use rustc_hash::FxHashSet;

use super::{Node, Table};

/// How much is known at most.
#[derive(Clone, Copy, Debug)]
pub(in crate::ahead) struct Most {
    /// Inodes, and names.
    pub(in crate::ahead) known: usize,
    /// Names of which only a hash is known.
    pub(in crate::ahead) hashed: usize,
}

impl Table {
    /// Inodes and names that are known whole, about.
    pub(in crate::ahead) fn len(&self) -> usize {
        self.nodes.len() + self.names.values().map(super::Names::known).sum::<usize>()
    }

    fn hashed(&self) -> usize {
        self.names.values().map(super::Names::hashed).sum()
    }

    /// Forgets what is too much, and a quarter more, beside what is `needed`: files that were not used for long, or of which so many names are known that these are too much, and directories in
    /// which nothing was done for as long; then names, but for their hashes, so that who makes very many files in one directory goes on with it. `beside`: so much is needed that it counts for
    /// nothing. Where not enough can be forgotten, that is tried again when a quarter more is known.
    /// Returns directories that were forgotten because there were too many hashes: to have one again takes long.
    pub(in crate::ahead) fn shrink(
        &mut self,
        most: Most,
        beside: usize,
        needed: impl Fn(Ino) -> bool,
    ) -> Vec<Ino> {
        let (quarter, len) = (most.known / 4, self.len());
        self.left = self.left.min(len);
        if len > most.known + beside && len > self.left + quarter {
            let goal = most.known - quarter + beside;
            let since = self.used_by_the_last(most.known * 3 / 8);
            self.forget_files(most.known - quarter, &needed);
            let old = |table: &Table| {
                let names = table.names.iter().filter(|(ino, names)| names.used < since && !needed(**ino));
                names.map(|(ino, names)| (names.used, *ino)).collect()
            };
            self.forget_directories(old(self), |table| table.len() <= goal);
            if self.len() > goal {
                self.hash_names(&needed);
            }
            self.left = Some(self.len()).filter(|len| *len > goal).unwrap_or(0);
        }
        if self.hashed() <= most.hashed {
            return Vec::new();
        }
        let hashed = self.names.iter().filter(|(_, names)| names.hashed() > 0);
        let hashed: Vec<_> = hashed.map(|(ino, names)| (names.used, *ino)).collect();
        let mut inos: Vec<Ino> = hashed.iter().map(|(_, ino)| *ino).collect();
        self.forget_directories(hashed, |table| table.hashed() <= most.hashed);
        inos.retain(|ino| !self.is_delegated(*ino));
        inos
    }

    /// Forgets files, but for those that were used last and have no more than so many names together, themselves included, and those that are needed. Not so one with several names, as they may be
    /// very many: what concerns it waits for all that was done here then, as of a name that is not known.
    fn forget_files(&mut self, many: usize, needed: &impl Fn(Ino) -> bool) {
        let with_names = |node: &Node| 1 + node.row.nlink as usize;
        let mut used: Vec<_> = self.nodes.values().map(|node| (node.used, with_names(node))).collect();
        used.sort_unstable_by(|one, other| other.cmp(one));
        let mut sum = 0;
        let is_too_much = |(_, names): &&(u64, usize)| {
            sum += names;
            sum > many
        };
        let before = used.iter().find(is_too_much).map(|(used, _)| *used);
        let delegated = &self.names;
        self.nodes.retain(|ino, node| {
            let goes = before.is_some_and(|before| node.used <= before) && !delegated.contains_key(ino);
            !goes || node.row.nlink <= 1 && needed(*ino)
        });
    }

    /// When the last ones of all inodes were used, so many.
    fn used_by_the_last(&self, many: usize) -> u64 {
        let mut used: Vec<u64> = self.nodes.values().map(|node| node.used).collect();
        match used.len().checked_sub(many.max(1)) {
            Some(before) if before > 0 => *used.select_nth_unstable(before).1,
            _ => 0,
        }
    }

    /// Forgets directories, those first in which nothing was done for longest, until it is enough.
    fn forget_directories(&mut self, mut directories: Vec<(u64, Ino)>, enough: impl Fn(&Table) -> bool) {
        directories.sort_unstable();
        // Looked at now and then: to count takes as long as there are directories.
        for some in directories.chunks(directories.len() / 16 + 1) {
            if enough(self) {
                return;
            }
            some.iter().for_each(|(_, ino)| self.forget(*ino));
        }
    }

    /// Keeps of names no more than their hashes, but for those of inodes that are known, and of directories that are delegated or needed. With them goes nothing that could be
    /// answered: of an inode that is not known here the owner tells. A file is not enough to be needed: it may have very many names, a directory has one.
    fn hash_names(&mut self, needed: &impl Fn(Ino) -> bool) {
        let delegated: FxHashSet<Ino> = self.names.keys().copied().collect();
        for names in self.names.values_mut() {
            let (nodes, hashing) = (&self.nodes, &self.hashing);
            names.hash(hashing, |entry| {
                let kept = |ino| delegated.contains(&ino) || needed(ino);
                nodes.contains_key(&entry.ino) || entry.kind == FileKind::Directory && kept(entry.ino)
            });
        }
    }

    /// Whether of an entry more is to be known than a hash of its name.
    pub(in crate::ahead) fn knows(&self, ino: Ino) -> bool {
        self.nodes.contains_key(&ino) || self.is_delegated(ino)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Entry, *};

    const MOST: Most = Most { known: 100, hashed: 1000 };
    const DIRECTORY: Ino = Ino(1);

    fn name(table: &mut Table, count: u64, kind: FileKind, ino: impl Fn(u64) -> Ino) {
        let names = table.names.entry(DIRECTORY).or_default();
        (0..count).for_each(|at| names.insert(at.to_string().into(), Entry { ino: ino(at), kind }));
    }

    /// One that knows more than it may, and has found nothing to forget.
    fn in_vain() -> Table {
        let mut table = Table::new(4 << 20);
        name(&mut table, 400, FileKind::Directory, |at| Ino(100 + at));
        table.shrink(MOST, 0, |_| true);
        assert_eq!(table.len(), 400);
        table
    }

    /// A little more than is known at most.
    fn is_bounded(mut table: Table) {
        name(&mut table, 120, FileKind::Regular, |at| Ino(1000 + at));
        table.shrink(MOST, 0, |_| false);
        assert!(table.len() <= MOST.known, "{}", table.len());
    }

    #[test]
    fn a_table_that_was_emptied_is_bounded_as_a_new_one() {
        let mut table = in_vain();
        table.clear();
        is_bounded(table);
    }

    #[test]
    fn a_try_in_vain_raises_the_bound_no_longer_than_so_much_is_known() {
        let mut table = in_vain();
        table.forget(DIRECTORY);
        table.shrink(MOST, 0, |_| true);
        is_bounded(table);
    }

    #[test]
    fn names_of_a_file_that_is_not_known_are_bounded_whatever_waits_for_it() {
        let mut table = Table::new(4 << 20);
        let (file, directory) = (Ino(7), Ino(8));
        name(&mut table, 400, FileKind::Regular, |_| file);
        let names = table.names.entry(DIRECTORY).or_default();
        names.insert(b"directory".to_vec(), Entry { ino: directory, kind: FileKind::Directory });
        table.shrink(MOST, 0, |ino| ino == file || ino == directory);
        assert_eq!(table.len(), 1, "a directory has one name");
        assert!(table.entry(DIRECTORY, b"directory").is_some());
    }
}
