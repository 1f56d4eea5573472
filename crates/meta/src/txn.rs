//! One operation: what it reads, what it changes, and the record that this becomes.

use std::sync::Arc;

use forebay_format::{
    key::{self, Item, Key},
    record::{Changes, StreamRun},
    row::{
        BytesRow, Cut, CutsRow, DentryRow, DirectoryRow, Extent, InodeRow, Layout, Row, SegmentKind,
        SegmentRow, SegmentState, SubvolumeRow, TOMBSTONE,
    },
};
use forebay_types::{Generation, Ino, SegmentId, SubvolumeId, Timespec};
use rustc_hash::FxHashSet;

use crate::{
    blocks::{self, Placed},
    cuts,
    dentries::ChangedName,
    error::MetaError,
    inode::Inode,
    log::Place,
    namespace::{Namespace, Owner},
    segments::Candidate,
    tree::{Lineage, Version},
};

/// An inode that the operation reads or changes.
#[derive(Debug)]
pub(crate) struct InodeEdit {
    pub(crate) inode: Inode,
    /// The row before, and whether it is at the head; `None` for a new inode.
    before: Option<(InodeRow, bool)>,
    row_changed: bool,
    directory_changed: bool,
    cuts_changed: bool,
    removed: bool,
}

/// A block whose extents the operation changes.
#[derive(Debug)]
struct BlockEdit {
    ino: Ino,
    block: u32,
    /// As the rows have it; empty where the inode's own row has the extent.
    before: Arc<[Placed]>,
    now: Vec<Placed>,
    /// Whether the block is in a cut, so that rows of it may be there that `before` does not have.
    hidden: bool,
}

impl BlockEdit {
    /// The extents, with what is at the head once the rows are written.
    fn into_stored(self) -> Arc<[Placed]> {
        let mut before = Ascending(&self.before);
        let mut kept = |placed: &Placed| before.at(placed.offset).filter(|old| old.extent == placed.extent);
        self.now
            .iter()
            .map(|placed| Placed { at_head: kept(placed).is_none_or(|old| old.at_head), ..*placed })
            .collect()
    }
}

/// Looks up offsets, each greater than the last, in a list sorted by them.
struct Ascending<'a>(&'a [Placed]);

impl<'a> Ascending<'a> {
    fn at(&mut self, offset: u32) -> Option<&'a Placed> {
        while let Some((first, rest)) = self.0.split_first() {
            if first.offset >= offset {
                return (first.offset == offset).then_some(first);
            }
            self.0 = rest;
        }
        None
    }
}

/// An operation under way. Nothing of it is seen by anybody until [`Txn::finish`]'s result is committed.
pub(crate) struct Txn<'a> {
    ns: &'a Namespace,
    pub(crate) owner: &'a mut Owner,
    pub(crate) subvolume: SubvolumeId,
    pub(crate) generation: Generation,
    pub(crate) lineage: Lineage,
    /// Where the record's data will be.
    pub(crate) place: Place,
    /// The time of the operation.
    pub(crate) now: Timespec,
    inodes: Vec<InodeEdit>,
    blocks: Vec<BlockEdit>,
    names: Vec<ChangedName>,
    /// Directories that are new.
    directories: Vec<Ino>,
    changes: Changes,
    noted: Vec<(SegmentId, Candidate)>,
    segments: Vec<(SegmentId, Option<SegmentRow>)>,
    subvolumes: Vec<(SubvolumeId, SubvolumeRow)>,
    /// Blocks that the lists of the segments themselves will name.
    named: FxHashSet<(SegmentId, Ino, u32)>,
    stale: Vec<(Ino, u32)>,
    /// Blocks of which rows in a cut were removed.
    cleaned: Vec<(Ino, u32)>,
    listed: Vec<(Ino, bool)>,
    /// Inodes that it makes, less those that it removes.
    more: i64,
    /// What is settled already.
    settled_inodes: Vec<(Ino, Option<Arc<Inode>>)>,
    settled_blocks: Vec<ChangedBlock>,
}

/// A block of a file, and what its rows now have; `None` where they no longer tell.
pub(crate) type ChangedBlock = (Ino, u32, Option<Arc<[Placed]>>);

/// What a finished operation leaves to be done once its record is committed.
pub(crate) struct Finished {
    pub(crate) changes: Changes,
    pub(crate) inodes: Vec<(Ino, Option<Arc<Inode>>)>,
    pub(crate) blocks: Vec<ChangedBlock>,
    pub(crate) names: Vec<ChangedName>,
    /// Directories that were made: none of their names was ever there before.
    pub(crate) directories: Vec<Ino>,
    pub(crate) noted: Vec<(SegmentId, Candidate)>,
    pub(crate) segments: Vec<(SegmentId, Option<SegmentRow>)>,
    pub(crate) subvolumes: Vec<(SubvolumeId, SubvolumeRow)>,
    /// Blocks of which older versions were changed: what the caches have of them, also for clones, is not true any more.
    pub(crate) stale: Vec<(Ino, u32)>,
    /// Inodes that are orphans from now on, or no longer.
    pub(crate) listed: Vec<(Ino, bool)>,
    /// Inodes that were made, less those that were removed.
    pub(crate) more: i64,
}

impl<'a> Txn<'a> {
    pub(crate) fn new(
        ns: &'a Namespace,
        owner: &'a mut Owner,
        subvolume: SubvolumeId,
        place: Place,
    ) -> Result<Txn<'a>, MetaError> {
        let lineage = owner.lineage(subvolume, None)?;
        let generation = lineage.head().1;
        Ok(Txn {
            ns,
            owner,
            subvolume,
            generation,
            lineage,
            place,
            now: ns.clock.now(),
            inodes: Vec::new(),
            blocks: Vec::new(),
            names: Vec::new(),
            directories: Vec::new(),
            changes: Changes::default(),
            noted: Vec::new(),
            segments: Vec::new(),
            subvolumes: Vec::new(),
            named: FxHashSet::default(),
            stale: Vec::new(),
            cleaned: Vec::new(),
            listed: Vec::new(),
            more: 0,
            settled_inodes: Vec::new(),
            settled_blocks: Vec::new(),
        })
    }

    /// The inode as this operation sees it.
    pub(crate) fn inode(&mut self, ino: Ino) -> Result<&Inode, MetaError> {
        Ok(&self.edit(ino)?.inode)
    }

    fn edit(&mut self, ino: Ino) -> Result<&mut InodeEdit, MetaError> {
        if let Some(at) = self.inodes.iter().position(|edit| edit.inode.ino == ino) {
            return Ok(&mut self.inodes[at]);
        }
        let inode = self.ns.inode_locked(&self.lineage, ino)?;
        let inode = Inode::clone(&inode);
        let before = Some((inode.row, inode.row_at_head));
        self.inodes.push(InodeEdit {
            inode,
            before,
            row_changed: false,
            directory_changed: false,
            cuts_changed: false,
            removed: false,
        });
        let last = self.inodes.len() - 1;
        Ok(&mut self.inodes[last])
    }

    /// The inode's row, to be changed.
    pub(crate) fn row_mut(&mut self, ino: Ino) -> Result<&mut InodeRow, MetaError> {
        let edit = self.edit(ino)?;
        edit.row_changed = true;
        Ok(&mut edit.inode.row)
    }

    /// The times and counts of a directory, to be changed; its times become the operation's.
    pub(crate) fn directory_mut(&mut self, ino: Ino) -> Result<&mut DirectoryRow, MetaError> {
        let now = self.now;
        let edit = self.edit(ino)?;
        edit.directory_changed = true;
        let directory = edit.inode.directory.as_mut().ok_or(MetaError::NotDirectory(ino))?;
        directory.mtime = now;
        directory.ctime = now;
        Ok(directory)
    }

    /// The cuts of a file, to be changed.
    pub(crate) fn cuts_mut(&mut self, ino: Ino) -> Result<&mut Vec<Cut>, MetaError> {
        let edit = self.edit(ino)?;
        edit.row_changed = true;
        edit.cuts_changed = true;
        Ok(&mut edit.inode.cuts)
    }

    /// Takes all extents of these blocks away, in one row. What their rows refer to stays in use until [`Txn::clean_extent`].
    pub(crate) fn cut(&mut self, ino: Ino, cut: Cut) -> Result<(), MetaError> {
        for edit in &mut self.blocks {
            if edit.ino == ino && (cut.first..=cut.last).contains(&edit.block) {
                edit.now.clear();
            }
        }
        cuts::add(self.cuts_mut(ino)?, cut);
        Ok(())
    }

    /// Removes the row of an extent that is in a cut. Returns the bytes that it had.
    pub(crate) fn clean_extent(
        &mut self,
        ino: Ino,
        (block, offset): (u32, u32),
        version: &Version,
    ) -> Result<u64, MetaError> {
        let item = Item::Extent(ino, block, offset);
        let extent = Extent::decode(&version.value)
            .map_err(|source| MetaError::damaged(format!("{item:?}"), source))?;
        self.delete(&item)?;
        if version.at_head {
            self.count_live(extent.segment, -i64::from(extent.len));
        }
        if self.cleaned.last() != Some(&(ino, block)) {
            self.cleaned.push((ino, block));
        }
        Ok(u64::from(extent.len))
    }

    /// Adds an inode that is new.
    pub(crate) fn add_inode(&mut self, inode: Inode) {
        let directory_changed = inode.directory.is_some();
        self.directories.extend(directory_changed.then_some(inode.ino));
        self.inodes.push(InodeEdit {
            inode,
            before: None,
            row_changed: true,
            directory_changed,
            cuts_changed: false,
            removed: false,
        });
    }

    /// Removes an inode's rows, all but its extents' and attributes'.
    pub(crate) fn remove_inode(&mut self, ino: Ino) -> Result<(), MetaError> {
        self.edit(ino)?.removed = true;
        Ok(())
    }

    /// The entry of a directory.
    pub(crate) fn dentry(&self, parent: Ino, name: &[u8]) -> Result<Option<DentryRow>, MetaError> {
        self.ns.dentry_locked(&self.lineage, parent, name)
    }

    /// Has a name stand for something, whatever it stood for.
    pub(crate) fn put_dentry(&mut self, parent: Ino, name: &[u8], now: DentryRow) {
        self.put(&Item::Dentry(parent, name.to_vec()), now.encode());
        self.names.push(ChangedName::new(parent, name, Some(now)));
    }

    /// Removes a name.
    pub(crate) fn delete_dentry(&mut self, parent: Ino, name: &[u8]) -> Result<(), MetaError> {
        self.delete(&Item::Dentry(parent, name.to_vec()))?;
        self.names.push(ChangedName::new(parent, name, None));
        Ok(())
    }

    /// Has a name stand for what another one stood for.
    pub(crate) fn move_dentry(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        now: DentryRow,
    ) -> Result<(), MetaError> {
        self.delete(&Item::Dentry(from.0, from.1.to_vec()))?;
        self.names.push(ChangedName::moved(from.0, from.1));
        self.put_dentry(to.0, to.1, now);
        Ok(())
    }

    /// Puts a row in the head's version. Names have [`Txn::put_dentry`].
    pub(crate) fn put(&mut self, item: &Item, value: Vec<u8>) {
        self.changes.rows.push((item.key(self.subvolume, self.generation), Some(value)));
    }

    /// Removes an item from the head: its row there, and by a tombstone what older versions show.
    pub(crate) fn delete(&mut self, item: &Item) -> Result<(), MetaError> {
        let key = item.key(self.subvolume, self.generation);
        let shown = self.lineage.has_history() && self.lineage.older(&self.ns.rows, item)?.is_some();
        self.changes.rows.push((key, shown.then(|| TOMBSTONE.to_vec())));
        Ok(())
    }

    /// Puts or removes a row that has no versions.
    pub(crate) fn put_plain(&mut self, key: &Key, value: Option<Vec<u8>>) {
        self.changes.rows.push((key.encode(), value));
    }

    /// Puts or removes a row as it stands, and counts the live bytes that this adds (negative: takes).
    pub(crate) fn put_raw(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.changes.rows.push((key, value));
    }

    pub(crate) fn count_live(&mut self, segment: SegmentId, bytes: i64) {
        if bytes == 0 {
            return;
        }
        match self.changes.live.iter_mut().find(|(id, _)| *id == segment) {
            Some((_, sum)) => *sum += bytes,
            None => self.changes.live.push((segment, bytes)),
        }
    }

    /// Says that the record counts only with this stream run on disk.
    pub(crate) fn needs_stream(&mut self, run: StreamRun) {
        self.changes.streams.push(run);
    }

    /// Puts (or removes) a segment's row.
    pub(crate) fn put_segment(&mut self, id: SegmentId, row: Option<SegmentRow>) {
        self.segments.retain(|(known, _)| *known != id);
        self.segments.push((id, row));
    }

    /// Puts the row of a segment that nobody knows yet.
    pub(crate) fn add_segment(&mut self, id: SegmentId, row: SegmentRow) {
        self.segments.push((id, Some(row)));
    }

    pub(crate) fn segment(&self, id: SegmentId) -> Option<SegmentRow> {
        match self.segments.iter().find(|(known, _)| *known == id) {
            Some((_, row)) => *row,
            None => self.owner.segments.get(id).copied(),
        }
    }

    /// Makes sure that a segment that this machine writes has a row.
    pub(crate) fn know_segment(&mut self, id: SegmentId, kind: SegmentKind) {
        if self.segment(id).is_none() {
            let epoch = self.owner.epoch;
            let row = SegmentRow {
                kind,
                state: SegmentState::Open,
                object: None,
                object_offset: 0,
                len: 0,
                raw: 0,
                live: 0,
                epoch,
            };
            self.put_segment(id, Some(row));
        }
    }

    /// Puts a subvolume's row.
    pub(crate) fn put_subvolume(&mut self, id: SubvolumeId, row: SubvolumeRow) {
        self.put_plain(&Key::Subvolume(id), Some(row.encode()));
        self.subvolumes.push((id, row));
    }

    /// Says that a segment's own list will name this block of this subvolume.
    pub(crate) fn is_named_by(&mut self, segment: SegmentId, ino: Ino, block: u32) {
        self.named.insert((segment, ino, block));
    }

    /// Says that an older version of something in a block was changed in place.
    pub(crate) fn make_stale(&mut self, ino: Ino, block: u32) {
        self.stale.push((ino, block));
    }

    /// Notes a block that refers to a segment although the segment's footer does not name it.
    pub(crate) fn note_share(&mut self, segment: SegmentId, ino: Ino, block: u32) {
        if self.segment(segment).is_some_and(|row| row.kind != SegmentKind::Journal) {
            self.put_plain(&Key::Share(segment, self.subvolume, ino, block), Some(Vec::new()));
        }
    }

    /// The extents of a block, to be changed. Where the inode's own row has its single extent, that one counts.
    pub(crate) fn block_mut(&mut self, ino: Ino, block: u32) -> Result<&mut Vec<Placed>, MetaError> {
        let at = match self.blocks.iter().position(|edit| edit.ino == ino && edit.block == block) {
            Some(at) => at,
            None => self.load_block(ino, block)?,
        };
        Ok(&mut self.blocks[at].now)
    }

    fn load_block(&mut self, ino: Ino, block: u32) -> Result<usize, MetaError> {
        let inode = self.inode(ino)?;
        let (layout, hidden) = (inode.row.layout, cuts::around(&inode.cuts, block).is_some());
        let (before, now): (Arc<[Placed]>, Vec<Placed>) = match layout {
            Layout::Single(at, offset, extent) if at == block => {
                (Arc::default(), vec![Placed { offset, extent, at_head: false }])
            }
            Layout::Extents if !hidden => {
                let rows = self.ns.block_locked(&self.lineage, ino, block)?;
                (Arc::clone(&rows), rows.to_vec())
            }
            _ => (Arc::default(), Vec::new()),
        };
        self.blocks.push(BlockEdit { ino, block, before, now, hidden });
        Ok(self.blocks.len() - 1)
    }

    /// Turns the edits so far into rows. The operation does not come back to their inodes and blocks: one of many files that have nothing to do with each
    /// other settles each by itself, or it would look for every file among all.
    pub(crate) fn settle(&mut self) -> Result<(), MetaError> {
        self.settle_layouts()?;
        let blocks = std::mem::take(&mut self.blocks);
        for edit in &blocks {
            self.write_block(edit)?;
        }
        let first = self.settled_inodes.len();
        for edit in std::mem::take(&mut self.inodes) {
            let written = self.write_inode(edit)?;
            self.settled_inodes.push(written);
        }
        let inodes = &self.settled_inodes[first..];
        self.settled_blocks.extend(blocks.into_iter().map(|edit| {
            let in_rows = inodes.iter().any(|(ino, inode)| {
                *ino == edit.ino && inode.as_ref().is_some_and(|inode| inode.row.layout == Layout::Extents)
            });
            (edit.ino, edit.block, in_rows.then(|| edit.into_stored()))
        }));
        Ok(())
    }

    /// Turns the edits into rows.
    pub(crate) fn finish(mut self) -> Result<Finished, MetaError> {
        self.settle()?;
        let noted = &self.noted;
        if noted.iter().any(|(segment, _)| *segment == self.place.segment) {
            self.know_segment(self.place.segment, SegmentKind::Journal);
        }
        for (id, row) in self.segments.clone() {
            self.put_plain(&Key::Segment(id), row.map(|row| row.encode()));
        }
        if self.owner.counters_changed && !self.changes.is_empty() {
            let counters = self.ns.counters(self.owner);
            self.put_plain(&Key::Counters, Some(counters.encode()));
        }
        let cleaned = std::mem::take(&mut self.cleaned).into_iter().map(|(ino, block)| (ino, block, None));
        let blocks = cleaned.chain(self.settled_blocks).collect();
        Ok(Finished {
            changes: self.changes,
            inodes: self.settled_inodes,
            blocks,
            names: self.names,
            directories: self.directories,
            noted: self.noted,
            segments: self.segments,
            subvolumes: self.subvolumes,
            stale: self.stale,
            listed: self.listed,
            more: self.more,
        })
    }

    /// Decides where each changed file's extents are kept, and adjusts the bytes that it has allocated.
    fn settle_layouts(&mut self) -> Result<(), MetaError> {
        let mut files: Vec<Ino> = self.blocks.iter().map(|edit| edit.ino).collect();
        files.sort_unstable();
        files.dedup();
        for ino in files {
            let layout = self.inode(ino)?.row.layout;
            if let Layout::Single(block, ..) = layout {
                self.block_mut(ino, block)?;
            }
            let block_size = u64::from(self.ns.block_size);
            let size = self.inode(ino)?.row.size;
            let edits = || self.blocks.iter().filter(|edit| edit.ino == ino);
            let whole =
                layout != Layout::Extents || (size <= block_size && edits().any(|edit| edit.block == 0));
            let mut all = edits().flat_map(|edit| edit.now.iter().map(|placed| (edit.block, *placed)));
            let settled = match (whole, all.next(), all.next()) {
                (false, ..) => Layout::Extents,
                (true, None, _) => Layout::Empty,
                (true, Some((block, only)), None) => Layout::Single(block, only.offset, only.extent),
                (true, Some(_), Some(_)) => Layout::Extents,
            };
            if settled == Layout::Extents {
                self.uncover(ino)?;
            }
            let single = match layout {
                Layout::Single(_, _, extent) => u64::from(extent.len),
                _ => 0,
            };
            let edits = || self.blocks.iter().filter(|edit| edit.ino == ino);
            let before = single + edits().map(|edit| blocks::bytes(&edit.before)).sum::<u64>();
            let now: u64 = edits().map(|edit| blocks::bytes(&edit.now)).sum();
            let row = self.inode(ino)?.row;
            let allocated = (row.allocated + now).saturating_sub(before);
            let settled = match (layout, settled) {
                (Layout::Inline, Layout::Empty) => Layout::Inline,
                _ if allocated == 0 => Layout::Empty,
                (_, settled) => settled,
            };
            if (row.allocated, row.layout) != (allocated, settled) {
                let row = self.row_mut(ino)?;
                (row.allocated, row.layout) = (allocated, settled);
            }
        }
        Ok(())
    }

    /// Takes blocks that get rows out of the cuts: the rows that a cut has hidden are removed along with it.
    fn uncover(&mut self, ino: Ino) -> Result<(), MetaError> {
        if self.inode(ino)?.cuts.is_empty() {
            return Ok(());
        }
        for at in 0..self.blocks.len() {
            let BlockEdit { ino: of, block, ref now, hidden, .. } = self.blocks[at];
            if of != ino || now.is_empty() || cuts::around(&self.inode(ino)?.cuts, block).is_none() {
                continue;
            }
            if hidden {
                self.blocks[at].before = self.ns.read_block(&self.lineage, ino, block)?.into();
                self.blocks[at].hidden = false;
            }
            cuts::remove(self.cuts_mut(ino)?, block);
        }
        Ok(())
    }

    fn write_block(&mut self, edit: &BlockEdit) -> Result<(), MetaError> {
        let in_rows = self.inode(edit.ino)?.row.layout == Layout::Extents;
        let now: &[Placed] = if in_rows { &edit.now } else { &[] };
        let mut found = Ascending(now);
        for old in edit.before.iter() {
            if found.at(old.offset).is_some() {
                continue;
            }
            self.delete(&Item::Extent(edit.ino, edit.block, old.offset))?;
            if old.at_head {
                self.count_live(old.extent.segment, -i64::from(old.extent.len));
            }
        }
        let mut found = Ascending(&edit.before);
        for placed in now {
            let old = found.at(placed.offset);
            if old.is_some_and(|old| old.extent == placed.extent) {
                continue;
            }
            if let Some(old) = old.filter(|old| old.at_head) {
                self.count_live(old.extent.segment, -i64::from(old.extent.len));
            }
            self.put(&Item::Extent(edit.ino, edit.block, placed.offset), placed.extent.encode());
            self.take_into_use(edit.ino, edit.block, &placed.extent);
        }
        Ok(())
    }

    fn take_into_use(&mut self, ino: Ino, block: u32, extent: &Extent) {
        self.count_live(extent.segment, i64::from(extent.len));
        if self.lineage.is_clone() && !self.named.contains(&(extent.segment, ino, block)) {
            self.note_share(extent.segment, ino, block);
        }
        self.noted.push((extent.segment, Candidate { subvolume: self.subvolume, ino, block }));
    }

    fn write_inode(&mut self, edit: InodeEdit) -> Result<(Ino, Option<Arc<Inode>>), MetaError> {
        let InodeEdit { mut inode, before, row_changed, directory_changed, cuts_changed, removed } = edit;
        let ino = inode.ino;
        self.more += i64::from(before.is_none()) - i64::from(removed);
        if removed || row_changed {
            self.list(&inode, before.map(|(row, _)| row), removed);
        }
        if let Some((InodeRow { layout: Layout::Single(_, _, old), .. }, true)) = before
            && (removed || row_changed)
        {
            self.count_live(old.segment, -i64::from(old.len));
        }
        if removed {
            if before.is_some() {
                self.delete(&Item::Inode(ino))?;
                if inode.directory.is_some() {
                    self.delete(&Item::Directory(ino))?;
                }
                if before.is_some_and(|(row, _)| row.has_cuts) {
                    self.delete(&Item::Cuts(ino))?;
                }
            }
            return Ok((ino, None));
        }
        if cuts_changed {
            inode.row.has_cuts = !inode.cuts.is_empty();
            match inode.row.has_cuts {
                true => self.put(&Item::Cuts(ino), CutsRow(inode.cuts.clone()).encode()),
                false => self.delete(&Item::Cuts(ino))?,
            }
        }
        if row_changed {
            let was = before.map(|(row, _)| row.layout);
            if was == Some(Layout::Inline) && inode.row.layout != Layout::Inline {
                self.delete(&Item::Inline(ino))?;
            }
            if let Layout::Single(block, _, extent) = inode.row.layout {
                self.take_into_use(ino, block, &extent);
            }
            self.put(&Item::Inode(ino), inode.row.encode());
            inode.row_at_head = true;
        }
        if let Some(directory) = inode.directory.filter(|_| directory_changed) {
            self.put(&Item::Directory(ino), directory.encode());
        }
        Ok((ino, Some(Arc::new(inode))))
    }

    /// Lists an inode that has become an orphan, or takes it off the list: an orphan has no name, or cuts. One that only shows what the
    /// subvolume was cloned from is none before it gets a row here.
    fn list(&mut self, inode: &Inode, before: Option<InodeRow>, removed: bool) {
        let (ino, at) = (inode.ino, self.subvolume);
        let listed = self.owner.orphans.is_listed((at, ino));
        let orphan = !removed && (inode.row.nlink == 0 || !inode.cuts.is_empty());
        let was_nameless = before.is_some_and(|row| row.nlink == 0);
        let joins = orphan && (!inode.cuts.is_empty() || !was_nameless);
        if (joins && !listed) || (listed && !orphan) {
            self.put_plain(&Key::Orphan(at, ino), joins.then(Vec::new));
            self.listed.push((ino, joins));
        }
    }

    /// Takes an inode that is gone off the list of orphans.
    pub(crate) fn forget_orphan(&mut self, ino: Ino) {
        self.put_plain(&Key::Orphan(self.subvolume, ino), None);
        self.listed.push((ino, false));
    }

    /// Puts inline data, or a link's target.
    pub(crate) fn put_inline(&mut self, ino: Ino, bytes: &[u8]) {
        self.put(&Item::Inline(ino), BytesRow(bytes.to_vec()).encode());
    }

    /// Counts the extents of a row that is about to be removed or replaced as no longer in use.
    pub(crate) fn drop_row_extent(&mut self, item: &Item, value: &[u8]) -> Result<(), MetaError> {
        if let Some(extent) = row_extent(item, value)? {
            self.count_live(extent.segment, -i64::from(extent.len));
        }
        Ok(())
    }
}

/// The extent that a row refers to.
pub(crate) fn row_extent(item: &Item, value: &[u8]) -> Result<Option<Extent>, MetaError> {
    if value == TOMBSTONE {
        return Ok(None);
    }
    let wrong = |source| MetaError::damaged(format!("{item:?}"), source);
    match item {
        Item::Extent(..) => Extent::decode(value).map(Some).map_err(wrong),
        Item::Inode(_) => match InodeRow::decode(value).map_err(wrong)?.layout {
            Layout::Single(_, _, extent) => Ok(Some(extent)),
            _ => Ok(None),
        },
        _ => Ok(None),
    }
}

/// The block that a row's extent belongs to.
pub(crate) fn row_block(item: &Item, value: &[u8]) -> Option<(Ino, u32)> {
    match item {
        Item::Extent(ino, block, _) => Some((*ino, *block)),
        Item::Inode(ino) => match InodeRow::decode(value).ok()?.layout {
            Layout::Single(block, ..) => Some((*ino, block)),
            _ => None,
        },
        _ => None,
    }
}

pub(crate) fn decode_key(bytes: &[u8]) -> Result<Key, MetaError> {
    key::Key::decode(bytes).map_err(|source| MetaError::damaged(format!("key {bytes:02x?}"), source))
}
