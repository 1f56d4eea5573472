//! The names of one delegated directory.

use std::{
    collections::{BTreeMap, hash_map::RandomState},
    hash::BuildHasher,
    ops::Bound::{Excluded, Unbounded},
};

use forebay_protocol::DirectoryEntry;
use rustc_hash::FxHashSet;

use super::Entry;

/// How names are hashed: by a key of this process, so that nobody can make names that have the same hash.
#[derive(Clone, Debug)]
pub(in crate::ahead) struct Hashing {
    keyed: RandomState,
    /// The bits that count: all of them, but in tests.
    bits: u64,
}

impl Default for Hashing {
    fn default() -> Hashing {
        Hashing { keyed: RandomState::new(), bits: u64::MAX }
    }
}

impl Hashing {
    /// One by which many names have the same hash.
    #[cfg(test)]
    pub(in crate::ahead) fn narrow(bits: u64) -> Hashing {
        Hashing { bits, ..Hashing::default() }
    }

    fn of(&self, name: &[u8]) -> u64 {
        self.keyed.hash_one(name) & self.bits
    }
}

/// What is known of a name in a delegated directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// It stands for this.
    Entry(Entry),
    /// It is not there.
    Nothing,
    /// It may be there: the owner knows.
    Perhaps,
}

/// The names of a directory: of each that is there either the name is known and what it stands for, or a hash.
///
/// Guarantees: each name that is there and not in `known` has a hash in `hashes` that no other such name has. So one that has neither is not there, their number is
/// that of the names, and a name that goes takes exactly its own hash along.
#[derive(Debug, Default)]
pub(in crate::ahead) struct Names {
    known: BTreeMap<Vec<u8>, Entry>,
    hashes: FxHashSet<u64>,
    /// When one of them was changed here last, as the table counts.
    pub(super) used: u64,
}

impl Names {
    /// None.
    pub(super) fn used_at(used: u64) -> Names {
        Names { used, ..Names::default() }
    }

    pub(super) fn find(&self, name: &[u8], hashing: &Hashing) -> Found {
        match self.known.get(name) {
            Some(entry) => Found::Entry(*entry),
            None if !self.hashes.is_empty() && self.hashes.contains(&hashing.of(name)) => Found::Perhaps,
            None => Found::Nothing,
        }
    }

    /// What a name stands for, where that is known.
    pub(super) fn entry(&self, name: &[u8]) -> Option<Entry> {
        self.known.get(name).copied()
    }

    /// How many are known by name.
    pub(in crate::ahead) fn known(&self) -> usize {
        self.known.len()
    }

    /// How many are known by hash.
    pub(super) fn hashed(&self) -> usize {
        self.hashes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.hashes.is_empty()
    }

    /// Whether all are known by name.
    pub(super) fn are_known(&self) -> bool {
        self.hashes.is_empty()
    }

    /// A name stands for this now. It was not there, or is known.
    pub(in crate::ahead) fn insert(&mut self, name: Vec<u8>, entry: Entry) {
        self.known.insert(name, entry);
    }

    /// A name that was there stands for something else now.
    pub(super) fn replace(&mut self, name: &[u8], entry: Entry, hashing: &Hashing) {
        self.remove(name, hashing);
        self.known.insert(name.to_vec(), entry);
    }

    /// A name that was there is there no more.
    pub(super) fn remove(&mut self, name: &[u8], hashing: &Hashing) {
        if self.known.remove(name).is_none() && !self.hashes.is_empty() {
            self.hashes.remove(&hashing.of(name));
        }
    }

    /// What a name that is there stands for is not known any more. False where it cannot be told from another one: then the names are not to be used again.
    pub(super) fn hash_one(&mut self, name: &[u8], hashing: &Hashing) -> bool {
        self.remove(name, hashing);
        self.hashes.insert(hashing.of(name))
    }

    /// What the names stand for that are known.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.known.values()
    }

    /// Keeps no more than hashes of names of which `stays` says no. One whose hash is that of another stays, too.
    pub(in crate::ahead) fn hash(&mut self, hashing: &Hashing, stays: impl Fn(&Entry) -> bool) {
        let hashes = &mut self.hashes;
        self.known.retain(|name, entry| stays(entry) || !hashes.insert(hashing.of(name)));
    }

    /// A page of the listing, if all are known.
    pub(super) fn page(&self, after: Option<&[u8]>, limit: usize) -> Vec<DirectoryEntry> {
        let from = after.map_or(Unbounded, Excluded);
        let page = self.known.range::<[u8], _>((from, Unbounded)).take(limit);
        page.map(|(name, entry)| DirectoryEntry {
            name: name.clone(),
            ino: entry.ino,
            kind: entry.kind,
            inode: None,
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::{FileKind, Ino};

    use super::*;

    #[test]
    fn names_that_are_hashed_are_told_from_those_that_are_not_there() {
        let hashing = Hashing::default();
        let mut names = Names::default();
        for number in 0..100_000_u64 {
            names.insert(format!("{number}").into(), Entry { ino: Ino(number), kind: FileKind::Regular });
        }
        names.hash(&hashing, |entry| entry.ino.0 % 1000 == 0);
        assert_eq!((names.known(), names.hashed()), (100, 99_900));
        assert!(matches!(names.find(b"5000", &hashing), Found::Entry(_)));
        assert_eq!(names.find(b"5001", &hashing), Found::Perhaps);
        assert_eq!(names.find(b"none", &hashing), Found::Nothing);
        for number in 0..100_000_u64 {
            names.remove(format!("{number}").as_bytes(), &hashing);
        }
        assert!(names.is_empty());
    }

    #[test]
    fn of_two_names_with_one_hash_one_stays_and_each_goes_by_itself() {
        let hashing = Hashing::narrow(0);
        let entry = |number| Entry { ino: Ino(number), kind: FileKind::Regular };
        let mut names = Names::default();
        names.insert(b"a".to_vec(), entry(1));
        names.insert(b"b".to_vec(), entry(2));
        names.hash(&hashing, |_| false);
        assert_eq!((names.known(), names.hashed()), (1, 1));
        assert_eq!((names.find(b"a", &hashing), names.entry(b"b")), (Found::Perhaps, Some(entry(2))));
        assert_eq!(names.find(b"c", &hashing), Found::Perhaps, "it may be the one that was hashed");
        names.remove(b"b", &hashing);
        assert_eq!(names.find(b"a", &hashing), Found::Perhaps);
        names.replace(b"a", entry(3), &hashing);
        assert_eq!(names.find(b"b", &hashing), Found::Nothing);
        assert_eq!(names.entry(b"a"), Some(entry(3)));
    }
}
