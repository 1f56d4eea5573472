//! Inodes of which something is still to be removed, as their rows list them.

use std::collections::BTreeSet;

use forebay_types::{Ino, SubvolumeId};
use rustc_hash::FxHashSet;

type Whose = (SubvolumeId, Ino);

/// The orphans of a volume.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    listed: FxHashSet<Whose>,
    /// Those that have cuts, and those of which that is not known yet.
    cut: BTreeSet<Whose>,
}

impl Orphans {
    /// Takes in a row that was found or replayed: the inode may have cuts.
    pub(crate) fn load(&mut self, orphan: Whose, listed: bool) {
        self.list(orphan, listed);
        if listed {
            self.cut.insert(orphan);
        }
    }

    pub(crate) fn list(&mut self, orphan: Whose, listed: bool) {
        if listed {
            self.listed.insert(orphan);
        } else {
            self.listed.remove(&orphan);
            self.cut.remove(&orphan);
        }
    }

    pub(crate) fn listed(&self) -> impl Iterator<Item = Whose> + '_ {
        self.listed.iter().copied()
    }

    pub(crate) fn is_listed(&self, orphan: Whose) -> bool {
        self.listed.contains(&orphan)
    }

    /// Says whether an inode has cuts. One that is not listed is none of this subvolume's.
    pub(crate) fn set_cut(&mut self, orphan: Whose, cut: bool) {
        if cut && self.listed.contains(&orphan) {
            self.cut.insert(orphan);
        } else if !self.cut.is_empty() {
            self.cut.remove(&orphan);
        }
    }

    pub(crate) fn cut(&self) -> &BTreeSet<Whose> {
        &self.cut
    }
}
