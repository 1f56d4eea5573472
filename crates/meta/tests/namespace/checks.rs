//! Compares the namespace with the model, and its counts with its rows.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    key::Item,
    row::{InodeRow, Layout, ObjectRef, Row, SegmentKind, SegmentRow, SegmentState},
};
use forebay_meta::{Candidate, DirEntry, Holding, Inode, MetaError, Piece, SegmentTotals, Snapshot};
use forebay_types::{FileKind, Generation, Ino, SegmentId, SubvolumeId};

use crate::{
    model::{Name, Node, Refusal, Tree},
    rows,
    world::{BLOCK, World, time},
};

/// The head of a subvolume, or a snapshot of it.
pub enum View {
    Head(SubvolumeId),
    Held(Snapshot),
}

impl World {
    pub fn check(&mut self) {
        self.check_counts();
        let heads: Vec<_> = self.trees.keys().copied().collect();
        for at in heads {
            let tree = self.trees[&at].clone();
            self.check_view(&View::Head(at), &tree);
            self.check_inodes(at, None, &tree);
        }
        for ((at, generation), tree) in self.snapshots.clone() {
            let view = View::Held(self.ns.snapshot(at, generation).unwrap());
            self.check_view(&view, &tree);
            self.check_inodes(at, Some(generation), &tree);
        }
        let orphans: BTreeSet<_> = self.ns.orphans().unwrap().into_iter().collect();
        assert!(orphans.is_superset(&self.orphans), "{:?} without {orphans:?}", self.orphans);
        for (at, ino) in orphans.difference(&self.orphans) {
            let row = self.ns.inode(*at, *ino).unwrap().row;
            assert!(
                row.has_cuts || (row.nlink == 0 && *at != SubvolumeId::FIRST),
                "{ino} of {at} is no orphan"
            );
        }
        let uncleaned = self.ns.uncleaned();
        let state = self.log.state.lock();
        for (at, item, generation, value) in rows::versions(&state.rows) {
            let head = rows::subvolume(&state.rows, at).generation;
            if let (Item::Cuts(ino), true, false) = (item, generation == head, value.is_empty()) {
                assert!(orphans.contains(&(at, ino)) && uncleaned.contains(&(at, ino)), "{ino} of {at}");
            }
        }
    }

    /// Live bytes are what the rows say, and every row with an extent is one that its segment can be asked for.
    pub fn check_counts(&self) {
        let state = self.log.state.lock();
        let expected = rows::live(&state.rows);
        let found: BTreeMap<SegmentId, u64> = self
            .ns
            .segments()
            .into_iter()
            .filter(|(_, row)| row.live > 0)
            .map(|(id, row)| (id, row.live))
            .collect();
        assert_eq!(found, expected, "live bytes");
        self.check_totals();
        let mut wanted: BTreeMap<SegmentId, BTreeSet<Candidate>> = BTreeMap::new();
        for (subvolume, item, _, value) in rows::versions(&state.rows) {
            if let Some((ino, block, extent)) = rows::extent(&item, value) {
                wanted.entry(extent.segment).or_default().insert(Candidate { subvolume, ino, block });
            }
        }
        drop(state);
        for (segment, wanted) in wanted {
            let known = self.candidates(segment);
            let lost: Vec<_> = wanted.difference(&known).collect();
            assert!(lost.is_empty(), "segment {segment} cannot be asked for {lost:?}");
        }
    }

    /// What is kept up with each change is what the rows of all segments give.
    fn check_totals(&self) {
        let mut all = self.ns.segments();
        all.sort_unstable_by_key(|(id, _)| *id);
        let mut objects: BTreeMap<ObjectRef, Holding> = BTreeMap::new();
        for (id, row) in &all {
            if let Some(object) = row.object {
                let held = objects.entry(object).or_default();
                held.segments.push(*id);
                held.live += row.live;
                held.raw += row.raw;
            }
        }
        let only = |wanted: &dyn Fn(&SegmentRow) -> bool| {
            all.iter().filter(|(_, row)| wanted(row)).copied().collect::<Vec<_>>()
        };
        let stored = |row: &SegmentRow| row.state == SegmentState::Stored;
        assert_eq!(self.ns.unstored_segments(), only(&|row| !stored(row)), "segments that are not stored");
        assert_eq!(self.ns.dead_segments(), only(&|row| row.live == 0), "segments without live bytes");
        let sum = |of: &dyn Fn(&SegmentRow) -> u64| all.iter().map(|(_, row)| of(row)).sum::<u64>();
        let found = self.ns.segment_totals();
        let expected = SegmentTotals {
            segments: all.len() as u64,
            objects: objects.len() as u64,
            live: sum(&|row| row.live),
            journal_live: sum(&|row| if row.kind == SegmentKind::Journal { row.live } else { 0 }),
            stored_live: sum(&|row| if stored(row) { row.live } else { 0 }),
            stored_raw: sum(&|row| if stored(row) { row.raw } else { 0 }),
            stored_len: sum(&|row| if stored(row) { row.len } else { 0 }),
            garbage: sum(&|row| if stored(row) { row.raw.saturating_sub(row.live) } else { 0 }),
            object_changes: found.object_changes,
        };
        assert_eq!(found, expected);
        let mut found: BTreeMap<_, _> = self.ns.objects().into_iter().collect();
        found.values_mut().for_each(|held| held.segments.sort_unstable());
        assert_eq!(found, objects, "what objects hold");
    }

    /// The rows show the inodes that the model has, and no others; nothing belongs to an inode that is gone.
    fn check_inodes(&self, at: SubvolumeId, generation: Option<Generation>, tree: &Tree) {
        let state = self.log.state.lock();
        let shown = rows::visible(&state.rows, at, generation);
        drop(state);
        let mut inodes = BTreeSet::new();
        let mut stored: BTreeMap<Ino, u64> = BTreeMap::new();
        for (item, value) in &shown {
            match (rows::extent(item, value), item) {
                (Some((ino, _, extent)), _) => *stored.entry(ino).or_default() += u64::from(extent.len),
                (None, Item::Inline(ino)) => *stored.entry(*ino).or_default() += value.len() as u64 - 1,
                _ => {}
            }
            let owner = match item {
                Item::Inode(ino) => {
                    inodes.insert(*ino);
                    continue;
                }
                Item::Inline(ino) | Item::Cuts(ino) | Item::Directory(ino) | Item::Dentry(ino, _) => ino,
                Item::Extent(ino, ..) | Item::Xattr(ino, _) => ino,
            };
            let row = shown.get(&Item::Inode(*owner)).map(|row| InodeRow::decode(row).unwrap());
            let row = row.unwrap_or_else(|| panic!("{item:?} belongs to nobody"));
            match item {
                Item::Inline(_) => assert_eq!(row.layout, Layout::Inline),
                Item::Extent(_, block, _) => {
                    let hidden =
                        rows::cuts(&shown, *owner).iter().any(|cut| (cut.first..=cut.last).contains(block));
                    assert!(hidden || row.layout == Layout::Extents, "{item:?} {value:?}");
                }
                Item::Cuts(_) => assert!(row.has_cuts),
                Item::Xattr(..) => assert!(row.has_xattrs),
                _ => assert_eq!(row.kind, FileKind::Directory),
            }
        }
        for (ino, row) in shown.iter().filter_map(|(item, value)| match item {
            Item::Inode(ino) => Some((*ino, InodeRow::decode(value).unwrap())),
            _ => None,
        }) {
            assert_eq!(row.has_cuts, shown.contains_key(&Item::Cuts(ino)), "cuts of {ino}");
            if row.kind == FileKind::Regular {
                assert_eq!(row.allocated, stored.get(&ino).copied().unwrap_or(0), "what {ino} has stored");
            }
        }
        assert_eq!(inodes, tree.0.keys().copied().collect(), "inodes of {at} at {generation:?}");
    }

    fn check_view(&mut self, view: &View, tree: &Tree) {
        for (ino, node) in &tree.0 {
            let inode = self.view_inode(view, *ino).unwrap_or_else(|error| panic!("inode {ino}: {error}"));
            self.check_attr(&inode, node, tree);
            let size = node.data.len() as u64;
            let from = self.random.below(size + 2);
            let len = self.random.below(size + 100);
            if node.kind == FileKind::Regular {
                let whole = self.view_map(view, *ino, 0, u64::MAX);
                assert_eq!(self.tokens(&whole, 0), node.data, "bytes of {ino}, {:?}", inode.row.layout);
                let part = self.view_map(view, *ino, from, len);
                let end = (from + len).min(size).max(from.min(size)) as usize;
                let expected = &node.data[(from as usize).min(end)..end];
                assert_eq!(self.tokens(&part, from), expected, "{len} bytes from {from} of {ino}");
            }
            if node.is_directory() {
                let limit = 1 + self.random.below(6) as usize;
                self.check_entries(view, *ino, limit, node, tree);
            }
            self.check_xattrs(view, *ino, node);
        }
    }

    fn check_attr(&self, inode: &Inode, node: &Node, tree: &Tree) {
        let attr = inode.attr();
        let ino = inode.ino;
        assert_eq!((attr.kind, attr.mode, attr.uid), (node.kind, node.mode, node.uid), "{ino}");
        let times = (time(node.atime), time(node.mtime), time(node.ctime));
        assert_eq!((attr.atime, attr.mtime, attr.ctime), times, "times of {ino}");
        if node.is_directory() {
            let (directories, parent) = (tree.directories(ino), inode.row.parent);
            let links = if node.names == 0 { 0 } else { 2 + directories as u32 };
            assert_eq!((attr.nlink, parent), (links, node.parent), "{ino}");
            let counts = inode.directory.unwrap();
            assert_eq!(
                (counts.entries, counts.directories as usize),
                (node.entries.len() as u64, directories)
            );
            return;
        }
        let allocated = if node.kind == FileKind::Symlink { 0 } else { node.allocated() };
        // What was cut off counts until it is removed, as far as the file has bytes.
        let cut = inode.row.has_cuts && attr.allocated > allocated && attr.allocated <= attr.size;
        let found = (attr.nlink, attr.size, if cut { allocated } else { attr.allocated });
        assert_eq!(found, (node.names, node.data.len() as u64, allocated), "{ino} {:?}", inode.row.layout);
        if let Layout::Single(block, offset, extent) = inode.row.layout {
            assert_eq!(u64::from(extent.len), allocated);
            assert!(offset + extent.len <= BLOCK && block < 64);
        }
    }

    fn check_entries(&self, view: &View, ino: Ino, limit: usize, node: &Node, tree: &Tree) {
        let (mut found, mut after): (Vec<DirEntry>, Option<Name>) = (Vec::new(), None);
        loop {
            let page = match view {
                View::Head(at) => self.ns.entries(*at, ino, after.as_deref(), limit),
                View::Held(snapshot) => snapshot.entries(ino, after.as_deref(), limit),
            };
            let page = page.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            found.extend(page);
            assert!(found.len() <= node.entries.len(), "more entries in {ino} than there are: {found:?}");
        }
        let expected: Vec<_> = node
            .entries
            .iter()
            .map(|(name, ino)| DirEntry { name: name.clone(), ino: *ino, kind: tree.0[ino].kind })
            .collect();
        assert_eq!(found, expected, "entries of {ino}");
        for name in [b"a".as_slice(), b"a\x01", b"zz"] {
            let found = match view {
                View::Head(at) => self.ns.lookup(*at, ino, name).map(|inode| inode.ino),
                View::Held(snapshot) => snapshot.lookup(ino, name).map(|inode| inode.ino),
            };
            let expected = node.entries.get(name).copied().ok_or(Refusal::NotFound);
            assert_eq!(found.map_err(Refusal::from), expected, "{name:?} in {ino}");
        }
    }

    fn check_xattrs(&self, view: &View, ino: Ino, node: &Node) {
        let names = match view {
            View::Head(at) => self.ns.xattrs(*at, ino),
            View::Held(snapshot) => snapshot.xattrs(ino),
        };
        assert_eq!(names.unwrap(), node.xattrs.keys().cloned().collect::<Vec<_>>(), "attributes of {ino}");
        for (name, value) in &node.xattrs {
            let found = match view {
                View::Head(at) => Some(self.ns.xattr(*at, ino, name).unwrap()),
                View::Held(snapshot) => snapshot.xattr(ino, name).unwrap(),
            };
            assert_eq!(found.as_ref(), Some(value));
        }
        if let (FileKind::Symlink, View::Head(at)) = (node.kind, view) {
            let target = self.ns.read_link(*at, ino).unwrap();
            assert_eq!(target.iter().map(|byte| u32::from(*byte)).collect::<Vec<_>>(), node.data);
        }
    }

    fn view_inode(&self, view: &View, ino: Ino) -> Result<Inode, MetaError> {
        match view {
            View::Head(at) => self.ns.inode(*at, ino).map(|inode| Inode::clone(&inode)),
            View::Held(snapshot) => snapshot.inode(ino),
        }
    }

    fn view_map(&self, view: &View, ino: Ino, from: u64, len: u64) -> Vec<Piece> {
        match view {
            View::Head(at) => self.ns.map(*at, ino, from, len).unwrap().into_vec(),
            View::Held(snapshot) => snapshot.map(ino, from, len).unwrap().into_vec(),
        }
    }
}
