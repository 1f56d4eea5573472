//! What is forgotten where too much is known.

use forebay_types::{FileKind, Ino};

use super::Table;

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

    /// Forgets what is too much, and a quarter more, beside what is `needed`: files that were not used for long and directories in which nothing was done for as long; then
    /// names, but for their hashes, so that who makes very many files in one directory goes on with it. `beside`: so much is needed that it counts for nothing.
    /// Returns directories that were forgotten because there were too many hashes: to have one again takes long.
    pub(in crate::ahead) fn shrink(
        &mut self,
        most: Most,
        beside: usize,
        needed: impl Fn(Ino) -> bool,
    ) -> Vec<Ino> {
        if self.len() > most.known + beside {
            let goal = most.known - most.known / 4 + beside;
            let since = self.used_by_the_last(most.known * 3 / 8);
            let names = &self.names;
            self.nodes.retain(|ino, node| node.used >= since || names.contains_key(ino) || needed(*ino));
            let old = |table: &Table| {
                let names = table.names.iter().filter(|(ino, names)| names.used < since && !needed(**ino));
                names.map(|(ino, names)| (names.used, *ino)).collect()
            };
            self.forget_directories(old(self), |table| table.len() <= goal);
            if self.len() > goal {
                self.hash_names(&needed);
            }
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

    /// Keeps of names no more than their hashes, but for those of inodes that are known or needed, and of directories that are delegated. With them goes nothing that could be
    /// answered: of an inode that is not known here the owner tells.
    fn hash_names(&mut self, needed: &impl Fn(Ino) -> bool) {
        let delegated: rustc_hash::FxHashSet<Ino> = self.names.keys().copied().collect();
        for names in self.names.values_mut() {
            let (nodes, hashing) = (&self.nodes, &self.hashing);
            names.hash(hashing, |entry| {
                let directory = entry.kind == FileKind::Directory && delegated.contains(&entry.ino);
                directory || nodes.contains_key(&entry.ino) || needed(entry.ino)
            });
        }
    }

    /// Whether of an entry more is to be known than a hash of its name.
    pub(in crate::ahead) fn knows(&self, ino: Ino) -> bool {
        self.nodes.contains_key(&ino) || self.is_delegated(ino)
    }
}
