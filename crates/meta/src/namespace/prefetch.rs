//! Inodes that are about to be asked for, many at once.

use std::sync::Arc;

use forebay_format::{
    key::{self, Item},
    row::{DentryRow, Row},
};
use forebay_types::{Ino, SubvolumeId};

use super::Namespace;
use crate::{error::MetaError, tree::Lineage};

/// Inode numbers, from the first one wanted on, that one scan covers; the turn is given up in between.
const SPAN: u64 = 128;
/// Fewer than so many in a span are read one by one: a scan reads the others too.
const DENSE: usize = 8;

impl Namespace {
    /// Reads rows that operations on these inodes and names will need, each time many in one call of the engine and outside the turn: in it nothing is
    /// waited for then. Names are read before what they stand for. A failure does no harm: the operation itself meets it.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn read_ahead(
        &self,
        at: SubvolumeId,
        inodes: &[Ino],
        names: &[(Ino, &[u8])],
    ) -> Result<(), MetaError> {
        let of_inode = |ino: Ino| [Item::Inode(ino), Item::Directory(ino), Item::Inline(ino)];
        let missing = |ino: &Ino| !self.inodes.contains_key(&(at, *ino));
        // The directory of a thousand names is asked for with each of them.
        let once = |mut inos: Vec<Ino>| {
            inos.sort_unstable();
            inos.dedup();
            inos.into_iter().filter(missing)
        };
        let mut items: Vec<Item> = once(inodes.to_vec()).flat_map(of_inode).collect();
        let mut next: Vec<Ino> = Vec::new();
        let first_name = items.len();
        for (parent, name) in names {
            match self.dentries.get(at, *parent, name) {
                Some(known) => next.extend(known.map(|dentry| dentry.ino)),
                None if self.given.never_had(at, *parent, name) => {}
                None => items.push(Item::Dentry(*parent, name.to_vec())),
            }
        }
        let found = self.read_items_ahead(at, &items)?;
        let dentries = found.iter().skip(first_name).flatten();
        next.extend(dentries.filter_map(|value| Some(DentryRow::decode(value).ok()?.ino)));
        let items: Vec<Item> = once(next).flat_map(of_inode).collect();
        self.read_items_ahead(at, &items)?;
        Ok(())
    }

    fn read_items_ahead(&self, at: SubvolumeId, items: &[Item]) -> Result<Vec<Option<Vec<u8>>>, MetaError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (subvolume, generation) = self.lock().lineage(at, None)?.head();
        let keys: Vec<Vec<u8>> = items.iter().map(|item| item.key(subvolume, generation)).collect();
        Ok(self.rows.read_ahead(&keys)?)
    }

    /// Brings inodes into the cache that will be asked for next. Those whose numbers are near each other, as siblings' are, are read together,
    /// which costs a third of reading them singly. One that is gone is left out.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn prefetch_inodes(
        &self,
        at: SubvolumeId,
        inodes: impl Iterator<Item = Ino>,
    ) -> Result<(), MetaError> {
        let mut missing: Vec<Ino> = inodes.filter(|ino| !self.inodes.contains_key(&(at, *ino))).collect();
        missing.sort_unstable();
        missing.dedup();
        let mut rest = missing.as_slice();
        while let Some(first) = rest.first() {
            let span = rest.partition_point(|ino| ino.0 - first.0 < SPAN);
            let (together, after) = rest.split_at(span);
            // The others are read when they are asked for.
            if together.len() >= DENSE {
                let owner = self.lock();
                self.read_together(&owner.lineage(at, None)?, together)?;
            }
            rest = after;
        }
        Ok(())
    }

    /// Reads these inodes, which are in order, by one scan. In turn.
    fn read_together(&self, lineage: &Lineage, wanted: &[Ino]) -> Result<(), MetaError> {
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(()) };
        let at = lineage.head().0;
        let mut from = first.0.to_be_bytes().to_vec();
        // A page ends before its last row, whose older versions may follow it.
        let limit = (last.0 - first.0 + 2) as usize;
        loop {
            let page = lineage.scan(&self.rows, &key::inodes, &from, limit)?;
            for (suffix, version) in &page.items {
                let Ok(ino) = <[u8; 8]>::try_from(suffix.as_slice()) else { continue };
                let ino = Ino(u64::from_be_bytes(ino));
                if wanted.binary_search(&ino).is_ok() && !self.inodes.contains_key(&(at, ino)) {
                    let inode = self.inode_of(lineage, ino, version)?;
                    self.inodes.insert((at, ino), Arc::new(inode));
                }
                if ino >= *last {
                    return Ok(());
                }
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}
