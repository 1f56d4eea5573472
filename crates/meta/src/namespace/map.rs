//! What ranges of files consist of.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use forebay_format::row::{Extent, Layout};
use forebay_types::{Ino, SubvolumeId};

use super::{
    Namespace,
    data::{Piece, PieceSource, Pieces},
};
use crate::{cuts, error::MetaError, inode::Inode, tree::Lineage};

impl Namespace {
    /// What `len` bytes from `from` on consist of, without gaps, up to the end of the file.
    ///
    /// # Errors
    /// [`MetaError::Stale`].
    pub fn map(&self, at: SubvolumeId, ino: Ino, from: u64, len: u64) -> Result<Pieces, MetaError> {
        self.map_up_to(at, ino, from, len, usize::MAX)
    }

    /// The same, which may end before where there are more than `most` pieces: what comes after these is not looked at.
    ///
    /// # Errors
    /// [`MetaError::Stale`].
    pub fn map_up_to(
        &self,
        at: SubvolumeId,
        ino: Ino,
        from: u64,
        len: u64,
        most: usize,
    ) -> Result<Pieces, MetaError> {
        let mut pieces = match self.map_cached(at, ino, (from, len), most) {
            Some(pieces) => pieces,
            None => {
                let owner = self.lock();
                let lineage = owner.lineage(at, None)?;
                let inode = self.inode_locked(&lineage, ino)?;
                self.map_inode(&lineage, &inode, (from, len), most, true)?
            }
        };
        pieces.truncate(most);
        Ok(pieces)
    }

    pub(crate) fn map_inode(
        &self,
        lineage: &Lineage,
        inode: &Inode,
        (from, len): (u64, u64),
        most: usize,
        cached: bool,
    ) -> Result<Pieces, MetaError> {
        let end = from.saturating_add(len).min(inode.row.size);
        if from >= end {
            return Ok(Pieces::new());
        }
        let mut pieces = Cursor { at: from, end, most, list: Pieces::new() };
        let block_size = u64::from(self.block_size);
        match inode.row.layout {
            Layout::Empty => {}
            Layout::Inline => pieces.inline(&self.inline_of(lineage, inode.ino)?),
            Layout::Single(block, offset, extent) => {
                pieces.extent(u64::from(block) * block_size + u64::from(offset), extent);
            }
            Layout::Extents => {
                let mut block = from / block_size;
                while block * block_size < end && !pieces.is_full() {
                    let number = block as u32;
                    let placed = match cached {
                        _ if cuts::around(&inode.cuts, number).is_some() => Arc::default(),
                        true => self.block_locked(lineage, inode.ino, number)?,
                        false => self.read_block(lineage, inode.ino, number)?.into(),
                    };
                    for placed in placed.iter() {
                        pieces.extent(block * block_size + u64::from(placed.offset), placed.extent);
                    }
                    block = self.next_block(lineage, inode, number, placed.is_empty(), end)?;
                }
            }
        }
        Ok(pieces.ended())
    }

    /// The same from the caches alone, without waiting for a turn; `None` where they do not have all of it, or a change is being taken in.
    ///
    /// Inode and blocks are of one moment: [`Namespace::changes`] is even and the same before and after they are looked at.
    fn map_cached(&self, at: SubvolumeId, ino: Ino, (from, len): (u64, u64), most: usize) -> Option<Pieces> {
        let before = self.changes.load(Ordering::Acquire);
        let inode = self.inodes.get(&(at, ino)).filter(|_| before.is_multiple_of(2))?;
        let end = from.saturating_add(len).min(inode.row.size);
        let mut pieces = Cursor { at: from, end: end.max(from), most, list: Pieces::new() };
        let block_size = u64::from(self.block_size);
        match inode.row.layout {
            Layout::Empty => {}
            Layout::Inline => return None,
            Layout::Single(block, offset, extent) => {
                pieces.extent(u64::from(block) * block_size + u64::from(offset), extent);
            }
            Layout::Extents => {
                for block in from / block_size..end.div_ceil(block_size) {
                    // Only a look at the rows skips a hole that is many blocks long.
                    if pieces.is_full() {
                        break;
                    }
                    let number = block as u32;
                    if cuts::around(&inode.cuts, number).is_some() {
                        return None;
                    }
                    let placed = self.blocks.get(&(at, ino, number)).filter(|placed| !placed.is_empty())?;
                    for placed in placed.iter() {
                        pieces.extent(block * block_size + u64::from(placed.offset), placed.extent);
                    }
                }
            }
        }
        fence(Ordering::Acquire);
        (self.changes.load(Ordering::Relaxed) == before).then(|| pieces.ended())
    }

    /// The block after `block`; after an empty one the next that has rows, so that a huge hole costs nothing.
    fn next_block(
        &self,
        lineage: &Lineage,
        inode: &Inode,
        block: u32,
        empty: bool,
        end: u64,
    ) -> Result<u64, MetaError> {
        let next = u64::from(block) + 1;
        let near = end.saturating_sub(next * u64::from(self.block_size)) < 4 * u64::from(self.block_size);
        if !empty || near {
            return Ok(next);
        }
        let Ok(first) = u32::try_from(next) else { return Ok(next) };
        let found = self.blocks_of(lineage, inode, (first, u32::MAX), 1)?.blocks;
        Ok(found.first().map_or(u64::MAX / u64::from(self.block_size), |block| u64::from(*block)))
    }
}

/// How far the pieces go that were found.
struct Cursor {
    at: u64,
    end: u64,
    /// How many are wanted at most.
    most: usize,
    list: Pieces,
}

impl Cursor {
    fn is_full(&self) -> bool {
        self.list.len() >= self.most
    }

    /// What was found, with what follows it where all was looked at.
    fn ended(mut self) -> Pieces {
        if !self.is_full() {
            self.hole(self.end);
        }
        self.list
    }

    fn hole(&mut self, to: u64) {
        let to = to.min(self.end);
        if to > self.at {
            self.list.push(Piece { offset: self.at, len: to - self.at, source: PieceSource::Hole });
            self.at = to;
        }
    }

    fn extent(&mut self, offset: u64, extent: Extent) {
        let (low, high) = (offset.max(self.at), (offset + u64::from(extent.len)).min(self.end));
        if low >= high {
            return;
        }
        self.hole(low);
        let part = extent.part((low - offset) as u32, (high - low) as u32);
        self.list.push(Piece { offset: low, len: high - low, source: PieceSource::Extent(part) });
        self.at = high;
    }

    fn inline(&mut self, bytes: &[u8]) {
        let (low, high) = (self.at.min(bytes.len() as u64), self.end.min(bytes.len() as u64));
        if low < high {
            let bytes = bytes[low as usize..high as usize].to_vec();
            self.list.push(Piece { offset: low, len: high - low, source: PieceSource::Inline(bytes) });
            self.at = high;
        }
    }
}
