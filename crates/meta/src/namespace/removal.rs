//! Removing extents: few at once, many by a cut that hides them, and then in steps.
//!
//! A record removes at most about [`ROWS_A_RECORD`] rows of extents, besides those of the two blocks that a range begins and ends in. Where a
//! range has more, its blocks become a *cut* of the file: one row, from which on nobody sees their extents. Order within a generation needs
//! no stamps: a block that is written again leaves the cut in the same record, which also removes the rows that the cut hid in it. So
//! what is in a cut is older than the cut, whatever else happens.
//!
//! [`Namespace::clean`] then removes the rows, from the first on, and narrows the cut as it goes: each step is a record, and a stop between two
//! leaves a cut that is narrower. Until its rows are gone an extent is in use, as its segment's live bytes and the file's `allocated` count it.

use std::sync::Arc;

use forebay_format::row::{Cut, Layout};
use forebay_types::{Ino, SubvolumeId};

use super::{Namespace, read::extent_place};
use crate::{blocks, cuts, error::MetaError, log::Urgency, tree::Lineage, txn::Txn};

/// Rows of extents that one record removes.
pub(super) const ROWS_A_RECORD: usize = 256;
/// A file with so many cuts is cleaned by who changes it, until it has fewer.
const CUTS_MAX: usize = 64;

impl Namespace {
    /// The same namespace, of which one record removes at most `rows` extents (at least 1). For tests.
    #[must_use]
    pub fn with_removal_rows(self, rows: usize) -> Namespace {
        Namespace { removal_rows: rows.max(1), ..self }
    }

    /// The files that [`Namespace::clean`] is to be called for. Some of them may have nothing to be cleaned.
    #[must_use]
    pub fn uncleaned(&self) -> Vec<(SubvolumeId, Ino)> {
        self.lock().orphans.cut().iter().copied().collect()
    }

    /// The inodes of which something is still to be removed, from memory: [`Namespace::orphans`] without a look at the rows.
    #[must_use]
    pub fn listed_orphans(&self) -> Vec<(SubvolumeId, Ino)> {
        self.lock().orphans.listed().collect()
    }

    /// How many files have extents that were cut off and are still to be removed.
    #[must_use]
    pub fn uncleaned_count(&self) -> usize {
        self.lock().orphans.cut().len()
    }

    /// Removes some of what was cut off a file, in one record. Returns whether nothing is left.
    ///
    /// # Errors
    /// [`MetaError`]. A file that is gone or has no cuts is a success.
    pub fn clean(&self, at: SubvolumeId, ino: Ino) -> Result<bool, MetaError> {
        self.change(at, Urgency::Reclaim, &[], |txn| {
            let (cut, named) = match txn.inode(ino) {
                Ok(inode) => (!inode.cuts.is_empty(), inode.row.nlink > 0),
                Err(MetaError::Stale(_)) => (false, true),
                Err(error) => return Err(error),
            };
            if cut {
                return self.clean_step(txn, ino);
            }
            txn.owner.orphans.set_cut((at, ino), false);
            if named && txn.owner.orphans.is_listed((at, ino)) {
                txn.forget_orphan(ino);
            }
            Ok(true)
        })
    }

    /// Whether a block of a file is in a cut. Asks the caches, and puts nothing in.
    pub(crate) fn is_cut(&self, lineage: &Lineage, ino: Ino, block: u32) -> Result<bool, MetaError> {
        let cached = self.inodes.get(&(lineage.head().0, ino));
        let inode = match cached.map_or_else(|| self.read_inode(lineage, ino).map(Arc::new), Ok) {
            Err(MetaError::Stale(_)) => return Ok(false),
            inode => inode?,
        };
        Ok(cuts::around(&inode.cuts, block).is_some())
    }

    /// Keeps the list of a file's cuts short: a file that is written at random while it is cleaned is cleaned by its writers too.
    pub(crate) fn limit_cuts(&self, at: SubvolumeId, ino: Ino) -> Result<(), MetaError> {
        while self.inode(at, ino).is_ok_and(|inode| inode.cuts.len() >= CUTS_MAX) {
            self.clean(at, ino)?;
        }
        Ok(())
    }

    /// Removes the extents of bytes `from..to` of a file.
    pub(crate) fn remove_range(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        from: u64,
        to: u64,
    ) -> Result<(), MetaError> {
        let inode = txn.inode(ino)?.clone();
        let to = to.min(inode.row.size);
        if from >= to {
            return Ok(());
        }
        let block_size = u64::from(self.block_size);
        let (first, last) = ((from / block_size) as u32, ((to - 1) / block_size) as u32);
        let mut affected = match inode.row.layout {
            Layout::Single(block, ..) => vec![block],
            Layout::Extents => {
                let found = self.blocks_of(&txn.lineage, &inode, (first, last), self.removal_rows)?;
                if found.more { self.cut_range(txn, ino, (from, to))? } else { found.blocks }
            }
            Layout::Empty | Layout::Inline => return Ok(()),
        };
        affected.retain(|block| (first..=last).contains(block));
        if from == 0 || affected.contains(&0) {
            txn.block_mut(ino, 0)?;
        }
        for block in affected {
            let start = u64::from(block) * block_size;
            let low = from.saturating_sub(start).min(block_size) as u32;
            let high = (to - start).min(block_size) as u32;
            blocks::carve(txn.block_mut(ino, block)?, low, high);
        }
        Ok(())
    }

    /// Cuts the blocks that are wholly inside bytes `from..to`, which ends with the file at the latest. Returns the others, at its ends.
    fn cut_range(&self, txn: &mut Txn<'_>, ino: Ino, (from, to): (u64, u64)) -> Result<Vec<u32>, MetaError> {
        let block_size = u64::from(self.block_size);
        let size = txn.inode(ino)?.row.size;
        let end = if to == size { to.next_multiple_of(block_size) } else { to };
        let (whole_from, whole_to) = (from.div_ceil(block_size), end / block_size);
        let mut edges = Vec::new();
        if from % block_size != 0 {
            edges.push((from / block_size) as u32);
        }
        if end % block_size != 0 && !edges.contains(&(whole_to as u32)) {
            edges.push(whole_to as u32);
        }
        if whole_from < whole_to {
            txn.cut(ino, Cut { first: whole_from as u32, last: (whole_to - 1) as u32 })?;
        }
        if from == 0 && to == size {
            txn.row_mut(ino)?.layout = Layout::Empty;
        }
        Ok(edges)
    }

    /// Removes the extents of a file that goes. Returns false where there are many: then they are cut off, or some of them are removed, and it
    /// is to be called again.
    pub(crate) fn purge_extents(&self, txn: &mut Txn<'_>, ino: Ino) -> Result<bool, MetaError> {
        let inode = txn.inode(ino)?.clone();
        if inode.row.layout != Layout::Extents {
            return if inode.cuts.is_empty() { Ok(true) } else { self.clean_step(txn, ino) };
        }
        let found = self.blocks_of(&txn.lineage, &inode, (0, u32::MAX), self.removal_rows)?;
        if !found.more && inode.cuts.is_empty() {
            for block in found.blocks {
                txn.block_mut(ino, block)?.clear();
            }
            return Ok(true);
        }
        txn.cut(ino, Cut { first: 0, last: u32::MAX })?;
        txn.row_mut(ino)?.layout = Layout::Empty;
        Ok(false)
    }

    /// Removes rows that are in cuts, as many as a record may. Returns whether no cuts are left.
    fn clean_step(&self, txn: &mut Txn<'_>, ino: Ino) -> Result<bool, MetaError> {
        let mut room = self.removal_rows;
        while let Some(cut) = txn.inode(ino)?.cuts.first().copied() {
            if room == 0 {
                return Ok(false);
            }
            let next = self.clean_cut(txn, ino, cut, &mut room)?;
            let cuts = txn.cuts_mut(ino)?;
            match next {
                Some(first) => cuts[0].first = first,
                None => drop(cuts.remove(0)),
            }
        }
        let row = txn.row_mut(ino)?;
        if row.layout == Layout::Extents && row.allocated == 0 {
            row.layout = Layout::Empty;
        }
        Ok(true)
    }

    /// Removes at most `room` rows of a cut, and takes them off it. Returns the block from which on rows are left.
    fn clean_cut(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        cut: Cut,
        room: &mut usize,
    ) -> Result<Option<u32>, MetaError> {
        let lineage = txn.lineage.clone();
        let mut from = cut.first.to_be_bytes().to_vec();
        loop {
            let page = lineage.scan(&self.rows, &|id| forebay_format::key::extents(id, ino), &from, *room)?;
            for (suffix, version) in &page.items {
                let Some(place) = extent_place(suffix) else { continue };
                if place.0 > cut.last {
                    return Ok(None);
                }
                if *room == 0 {
                    return Ok(Some(place.0));
                }
                *room -= 1;
                let bytes = txn.clean_extent(ino, place, version)?;
                let row = txn.row_mut(ino)?;
                row.allocated = row.allocated.saturating_sub(bytes);
            }
            let Some(next) = page.next else { return Ok(None) };
            match extent_place(&next) {
                Some((block, _)) if block > cut.last => return Ok(None),
                Some((block, _)) if *room == 0 => return Ok(Some(block)),
                _ => from = next,
            }
        }
    }
}
