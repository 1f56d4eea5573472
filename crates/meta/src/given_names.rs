//! The names that directories were ever given, of those that were made since the namespace was opened: a name that is not among them is not there,
//! whatever the engine would say. Who creates files in a directory of his own, as an archive that is unpacked or a build does, so needs no look at the engine
//! for any.
//!
//! Guarantees: a name that a directory was given is never denied. The opposite is no error: a name may be taken for given because it was once, or because its hash
//! is that of another; then the engine is asked. Relies on: changed in turn only, in the change that makes the directory or the name; a clone of a subvolume has
//! another number, and none of its directories is known here.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, Hasher},
};

use forebay_types::{Ino, SubvolumeId};
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::dentries::ChangedName;

/// Names that are remembered at most, of all directories, 8 bytes each and what the tables have beside them.
const NAMES: usize = 1 << 20;
/// Directories that are known at most.
const DIRECTORIES: usize = 1 << 16;

type Directory = (SubvolumeId, Ino);

#[derive(Debug, Default)]
struct Known {
    names: FxHashMap<Directory, FxHashSet<u64>>,
    /// In the order in which they were made; some are gone.
    order: VecDeque<Directory>,
    count: usize,
}

impl Known {
    fn remove(&mut self, directory: Directory) {
        self.count -= self.names.remove(&directory).map_or(0, |names| names.len());
    }

    /// Forgets the oldest directories while there is too much.
    fn make_room(&mut self) {
        while self.count > NAMES || self.order.len() > DIRECTORIES {
            let Some(oldest) = self.order.pop_front() else { return };
            self.remove(oldest);
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct GivenNames(Mutex<Known>);

impl GivenNames {
    /// A directory was made, and has no names yet.
    pub(crate) fn made(&self, at: SubvolumeId, directory: Ino) {
        let mut known = self.0.lock();
        known.names.insert((at, directory), FxHashSet::default());
        known.order.push_back((at, directory));
        known.make_room();
    }

    /// An inode is gone.
    pub(crate) fn removed(&self, at: SubvolumeId, ino: Ino) {
        self.0.lock().remove((at, ino));
    }

    /// A name has changed.
    pub(crate) fn given(&self, at: SubvolumeId, name: &ChangedName) {
        if name.now.is_none() {
            return;
        }
        let mut known = self.0.lock();
        let Some(names) = known.names.get_mut(&(at, name.parent)) else { return };
        if names.insert(hash(&name.bytes)) {
            known.count += 1;
            known.make_room();
        }
    }

    /// Whether the directory certainly never had the name. Out of turn it is what was so a moment ago.
    pub(crate) fn never_had(&self, at: SubvolumeId, parent: Ino, name: &[u8]) -> bool {
        let known = self.0.lock();
        known.names.get(&(at, parent)).is_some_and(|names| !names.contains(&hash(name)))
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Known::default();
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = FxBuildHasher.build_hasher();
    hasher.write(name);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use forebay_format::row::DentryRow;
    use forebay_types::FileKind;

    use super::*;

    const AT: SubvolumeId = SubvolumeId::FIRST;
    const ROW: DentryRow = DentryRow { ino: Ino(7), kind: FileKind::Regular };

    fn give(names: &GivenNames, directory: Ino, name: &str) {
        names.given(AT, &ChangedName::new(directory, name.as_bytes(), Some(ROW)));
    }

    #[test]
    fn only_of_directories_that_were_made_here_is_it_known_what_they_never_had() {
        let names = GivenNames::default();
        assert!(!names.never_had(AT, Ino(2), b"a"));
        give(&names, Ino(2), "a");
        assert!(!names.never_had(AT, Ino(2), b"b"), "it was there before, perhaps with names");
        names.made(AT, Ino(3));
        assert!(names.never_had(AT, Ino(3), b"a"));
        give(&names, Ino(3), "a");
        assert!(!names.never_had(AT, Ino(3), b"a"));
        assert!(names.never_had(AT, Ino(3), b"b"));
        assert!(!names.never_had(SubvolumeId(AT.0 + 1), Ino(3), b"b"), "another subvolume's");
        names.given(AT, &ChangedName::new(Ino(3), b"a", None));
        assert!(!names.never_had(AT, Ino(3), b"a"), "it was there once: an older version may have it");
        names.removed(AT, Ino(3));
        assert!(!names.never_had(AT, Ino(3), b"b"));
    }

    #[test]
    fn the_oldest_directories_are_forgotten_when_there_is_too_much() {
        let names = GivenNames::default();
        for number in 0..=DIRECTORIES as u64 {
            names.made(AT, Ino(number));
        }
        assert!(!names.never_had(AT, Ino(0), b"a"));
        assert!(names.never_had(AT, Ino(1), b"a"));
        for number in 0..NAMES {
            give(&names, Ino(1), &number.to_string());
        }
        assert!(names.never_had(AT, Ino(1), b"a"));
        give(&names, Ino(2), "one more");
        assert!(!names.never_had(AT, Ino(1), b"a"));
        assert!(!names.never_had(AT, Ino(2), b"one more"));
        assert!(names.never_had(AT, Ino(2), b"a"));
        assert_eq!(names.0.lock().count, 1);
    }
}
