//! Names that were looked up or changed, and what they stand for; also those that stand for nothing.
//!
//! Asking allocates nothing. As every cache of the namespace it is filled in turn only, so a name that is found is what the rows say.

use std::hash::{Hash, Hasher};

use forebay_format::row::DentryRow;
use forebay_types::{Ino, SubvolumeId};
use quick_cache::{Equivalent, Weighter, sync::Cache};
use smallvec::SmallVec;

/// Names that fit into the cache's budget if all are short.
const NAMES: usize = 100_000;
/// Bytes that all names may take.
const BYTES: u64 = NAMES as u64 * ENTRY;
/// What a short name takes, with what the cache has beside it.
const ENTRY: u64 = 128;
/// Names up to so many bytes are in place.
const IN_PLACE: usize = 24;

/// A name in a directory of a subvolume.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Name {
    at: SubvolumeId,
    parent: Ino,
    bytes: SmallVec<[u8; IN_PLACE]>,
}

/// The same, of somebody else's bytes.
struct NameOf<'a>(SubvolumeId, Ino, &'a [u8]);

fn hash<H: Hasher>(to: &mut H, at: SubvolumeId, parent: Ino, bytes: &[u8]) {
    at.hash(to);
    parent.hash(to);
    bytes.hash(to);
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, to: &mut H) {
        hash(to, self.at, self.parent, &self.bytes);
    }
}

impl Hash for NameOf<'_> {
    fn hash<H: Hasher>(&self, to: &mut H) {
        hash(to, self.0, self.1, self.2);
    }
}

impl Equivalent<Name> for NameOf<'_> {
    fn equivalent(&self, key: &Name) -> bool {
        self.0 == key.at && self.1 == key.parent && self.2 == key.bytes.as_slice()
    }
}

#[derive(Clone, Debug)]
struct NameCost;

impl Weighter<Name, Option<DentryRow>> for NameCost {
    fn weight(&self, name: &Name, _: &Option<DentryRow>) -> u64 {
        let beside = if name.bytes.spilled() { name.bytes.len() as u64 } else { 0 };
        ENTRY + beside
    }
}

/// What an operation made of a name; `None`: nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ChangedName {
    pub(crate) parent: Ino,
    pub(crate) bytes: SmallVec<[u8; IN_PLACE]>,
    pub(crate) now: Option<DentryRow>,
    /// Whether it is remembered.
    kept: bool,
}

impl ChangedName {
    pub(crate) fn new(parent: Ino, name: &[u8], now: Option<DentryRow>) -> ChangedName {
        ChangedName { parent, bytes: SmallVec::from_slice(name), now, kept: true }
    }

    /// The name of something that has another one now. It makes room for that: remembered as well, each move would push out a name that is there, and hardly anybody asks for it again.
    pub(crate) fn moved(parent: Ino, name: &[u8]) -> ChangedName {
        ChangedName { parent, bytes: SmallVec::from_slice(name), now: None, kept: false }
    }
}

/// The cache.
#[derive(Debug)]
pub(crate) struct Dentries(Cache<Name, Option<DentryRow>, NameCost>);

impl Default for Dentries {
    fn default() -> Dentries {
        Dentries(Cache::with_weighter(NAMES, BYTES, NameCost))
    }
}

impl Dentries {
    /// What the name stands for: `None` if that is not known, `Some(None)` if it is known to be nothing.
    pub(crate) fn get(&self, at: SubvolumeId, parent: Ino, name: &[u8]) -> Option<Option<DentryRow>> {
        self.0.get(&NameOf(at, parent, name))
    }

    /// Remembers what a name stands for. In turn only.
    pub(crate) fn put(&self, at: SubvolumeId, parent: Ino, name: &[u8], now: Option<DentryRow>) {
        self.0.insert(Name { at, parent, bytes: SmallVec::from_slice(name) }, now);
    }

    /// Takes in what an operation changed. In turn only.
    pub(crate) fn change(&self, at: SubvolumeId, changed: ChangedName) {
        let ChangedName { parent, bytes, now, kept } = changed;
        if kept {
            self.0.insert(Name { at, parent, bytes }, now);
        } else {
            self.0.remove(&NameOf(at, parent, &bytes));
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.0.clear();
    }
}
