//! Moving data: the one mechanism behind sealing the journal, compaction, and joining the extents of a block.
//!
//! A plan lists the rows of one block, of every generation, that refer to given segments. The caller copies their data into a new segment
//! without holding anything. Then each row that is still what the plan saw gets its new place; one that has changed meanwhile keeps
//! what it has. So a move never hides a later write, and one that is interrupted leaves a segment that nothing refers to.

use forebay_format::{
    key::{self, Item, Key},
    row::{Extent, InodeRow, Layout, Row, SegmentKind},
};
use forebay_types::{Generation, SegmentId, SubvolumeId};

use rustc_hash::FxHashSet;

use super::{Namespace, Owner};
use crate::{
    blocks,
    error::MetaError,
    log::Urgency,
    segments::Candidate,
    tree::Lineage,
    txn::{Txn, decode_key},
};

/// A row whose extent is to be moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedRow {
    /// The key of the row.
    pub key: Vec<u8>,
    /// The generation of the row.
    pub generation: Generation,
    /// Whether the head shows it.
    pub at_head: bool,
    /// Where in the block it is.
    pub offset: u32,
    /// The extent.
    pub extent: Extent,
    /// Whether it is in a file of the journal, whose runs are neither compressed nor sealed. Asked of the segment's row later this might
    /// be answered wrongly: the row goes with the last live byte.
    pub in_journal: bool,
}

/// The rows of one block that refer to the segments asked for, in the order of their offsets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relocation {
    /// The block.
    pub candidate: Candidate,
    /// The rows.
    pub rows: Vec<PlannedRow>,
}

/// Where a planned row's data is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The row.
    pub row: PlannedRow,
    /// Its extent in the new segment, of the same length.
    pub extent: Extent,
}

impl Namespace {
    /// Plans the move of what block `candidate` has in segments for which `from` is true.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn plan_move(
        &self,
        candidate: Candidate,
        from: &dyn Fn(SegmentId) -> bool,
    ) -> Result<Relocation, MetaError> {
        let Candidate { subvolume, ino, block } = candidate;
        let owner = self.lock();
        let lineage = owner.lineage(subvolume, None)?;
        let head = lineage.head().1;
        if let Some(row) = self.only_row(&owner, &lineage, candidate)? {
            let rows = if from(row.extent.segment) { vec![row] } else { Vec::new() };
            return Ok(Relocation { candidate, rows });
        }
        let hidden = self.is_cut(&lineage, ino, block)?;
        let mut found = self.rows.with_prefix(&key::block(subvolume, ino, block))?;
        found.extend(self.rows.with_prefix(&Item::Inode(ino).prefix(subvolume))?);
        let mut rows = Vec::new();
        for (key, value) in found {
            let Key::Versioned(_, item, generation) = decode_key(&key)? else { continue };
            let Some((at, offset, extent)) = extent_of(&item, &value)? else { continue };
            // Nobody reads what the head has in a cut: it is removed soon, not moved.
            if hidden && generation == head && matches!(item, Item::Extent(..)) {
                continue;
            }
            if at == block && from(extent.segment) {
                let in_journal = owner.segments.is_journal(extent.segment);
                let at_head = generation == head;
                rows.push(PlannedRow { key, generation, at_head, offset, extent, in_journal });
            }
        }
        rows.sort_by_key(|row| (row.generation, row.offset));
        Ok(Relocation { candidate, rows })
    }

    /// The row that has all of a block, where it is the inode's own and there is no other version of it: nothing is searched then.
    fn only_row(
        &self,
        owner: &Owner,
        lineage: &Lineage,
        candidate: Candidate,
    ) -> Result<Option<PlannedRow>, MetaError> {
        let Candidate { subvolume, ino, block } = candidate;
        if lineage.has_history() {
            return Ok(None);
        }
        let generation = lineage.head().1;
        let key = Item::Inode(ino).key(subvolume, generation);
        // Moves go through many inodes once, so they take from the cache but put nothing in.
        let layout = match self.inodes.get(&(subvolume, ino)) {
            Some(inode) => inode.row.layout,
            None => match self.rows.get(&key)? {
                Some(value) => decoded(&value)?.layout,
                None => return Ok(None),
            },
        };
        Ok(match layout {
            Layout::Single(at, offset, extent) if at == block => {
                let in_journal = owner.segments.is_journal(extent.segment);
                Some(PlannedRow { key, generation, at_head: true, offset, extent, in_journal })
            }
            _ => None,
        })
    }

    /// Gives the planned rows of one block their new places, in one record. Those that have changed since keep what they have. `target` is
    /// the new segment.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn finish_move(
        &self,
        candidate: Candidate,
        moved: &[Moved],
        target: SegmentId,
    ) -> Result<(), MetaError> {
        self.finish_moves(candidate.subvolume, &[(candidate, moved)], target)
    }

    /// Like [`Namespace::finish_move`], for many blocks of one subvolume, each once, in one record.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn finish_moves(
        &self,
        subvolume: SubvolumeId,
        moves: &[(Candidate, &[Moved])],
        target: SegmentId,
    ) -> Result<(), MetaError> {
        self.change(subvolume, Urgency::Reclaim, &[], |txn| {
            txn.know_segment(target, SegmentKind::Packed);
            let mut seen = FxHashSet::default();
            for (candidate, moved) in moves {
                if candidate.subvolume != subvolume || !seen.insert(*candidate) {
                    return Err(MetaError::Invalid("each block of one subvolume moves once in a record"));
                }
                txn.is_named_by(target, candidate.ino, candidate.block);
                for one in *moved {
                    if one.row.at_head && one.row.generation == txn.generation {
                        move_at_head(txn, *candidate, one)?;
                    } else {
                        self.move_version(txn, *candidate, one)?;
                    }
                }
            }
            Ok(())
        })
    }

    fn move_version(&self, txn: &mut Txn<'_>, candidate: Candidate, moved: &Moved) -> Result<(), MetaError> {
        let Some(value) = self.rows.get(&moved.row.key)? else { return Ok(()) };
        let Key::Versioned(owner, item, _) = decode_key(&moved.row.key)? else { return Ok(()) };
        if owner != candidate.subvolume {
            return Ok(());
        }
        match extent_of(&item, &value)? {
            Some((_, offset, extent)) if offset == moved.row.offset && extent == moved.row.extent => {}
            _ => return Ok(()),
        }
        let replaced = match item {
            Item::Inode(_) => {
                let mut row = decoded(&value)?;
                if let Layout::Single(_, _, extent) = &mut row.layout {
                    *extent = moved.extent;
                }
                row.encode()
            }
            _ => moved.extent.encode(),
        };
        txn.count_live(moved.row.extent.segment, -i64::from(moved.row.extent.len));
        txn.count_live(moved.extent.segment, i64::from(moved.extent.len));
        txn.put_raw(moved.row.key.clone(), Some(replaced));
        txn.make_stale(candidate.ino, candidate.block);
        Ok(())
    }
}

fn decoded(value: &[u8]) -> Result<InodeRow, MetaError> {
    InodeRow::decode(value).map_err(|source| MetaError::damaged("a version of an inode", source))
}

fn extent_of(item: &Item, value: &[u8]) -> Result<Option<(u32, u32, Extent)>, MetaError> {
    if value.is_empty() {
        return Ok(None);
    }
    let wrong = |source| MetaError::damaged(format!("{item:?}"), source);
    match item {
        Item::Extent(_, block, offset) => Ok(Some((*block, *offset, Extent::decode(value).map_err(wrong)?))),
        Item::Inode(_) => match InodeRow::decode(value).map_err(wrong)?.layout {
            Layout::Single(block, offset, extent) => Ok(Some((block, offset, extent))),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// Replaces an extent that the head has in a row of its own generation.
fn move_at_head(txn: &mut Txn<'_>, candidate: Candidate, moved: &Moved) -> Result<(), MetaError> {
    match txn.inode(candidate.ino) {
        Ok(_) => {}
        Err(MetaError::Stale(_)) => return Ok(()),
        Err(error) => return Err(error),
    }
    let list = txn.block_mut(candidate.ino, candidate.block)?;
    let found =
        list.iter().position(|placed| placed.offset == moved.row.offset && placed.extent == moved.row.extent);
    if let Some(at) = found {
        list[at].extent = moved.extent;
        blocks::join(list, at);
    }
    Ok(())
}
