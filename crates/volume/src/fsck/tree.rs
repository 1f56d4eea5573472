//! What one view shows: names, what they stand for, and whether everything is reached from the root.

use forebay_env::{Clock, SystemClock};
use forebay_format::{
    key::{self, Item, Key},
    row::{CountersRow, DentryRow, DirectoryRow, InodeRow, Layout, Row},
};
use forebay_types::{FileKind, Ino, limits::NAME_MAX};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    files::{Entity, Files, Settled},
    found::{About, Found},
    image::{Image, View},
    report::Severity,
    tables::Tables,
};
use crate::error::VolumeError;

const LOST_AND_FOUND: &[u8] = b"lost+found";

/// An inode, as its row has it and as the names say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub(super) kind: FileKind,
    pub(super) nlink: u32,
    cut: bool,
    pub(super) parent: Ino,
    /// Whether the row is the view's own subvolume's.
    own: bool,
    names: u32,
    /// The directory that has the first of its names; `Ino(0)`: none.
    named_by: Ino,
    pub(super) entries: u64,
    pub(super) directories: u32,
}

/// An inode without a row, which something refers to.
#[derive(Clone, Debug, Default)]
struct Ghost {
    /// Entries that name it: directory, name, kind.
    named: Vec<(Ino, Vec<u8>, FileKind)>,
    /// Whether it has entries.
    has_entries: bool,
    entity: Option<Entity>,
}

/// The walk over one view.
pub(super) struct Tree<'a> {
    pub(super) image: &'a Image,
    pub(super) view: &'a View,
    pub(super) block_size: u32,
    nodes: FxHashMap<Ino, Node>,
    ghosts: FxHashMap<Ino, Ghost>,
    /// The inode of `lost+found`, once it is needed.
    haven: Option<Ino>,
}

impl<'a> Tree<'a> {
    pub(super) fn check(
        image: &'a Image,
        view: &'a View,
        block_size: u32,
        tables: &mut Tables,
        found: &mut Found,
    ) -> Result<(), VolumeError> {
        let (nodes, ghosts) = (FxHashMap::default(), FxHashMap::default());
        let mut tree = Tree { image, view, block_size, nodes, ghosts, haven: None };
        tree.load_inodes(found)?;
        tree.check_root(found);
        tree.check_entries(found)?;
        tree.check_files(found)?;
        tree.check_names(tables, found)?;
        tree.check_reach(tables, found)?;
        tree.check_ghosts(found);
        Ok(())
    }

    pub(super) fn about(&self, ino: Ino) -> About {
        About::inode(self.view, ino)
    }

    fn load_inodes(&mut self, found: &mut Found) -> Result<(), VolumeError> {
        let mut inodes = self.view.items(self.image, &Item::Inode(Ino(0)));
        while let Some(shown) = inodes.next_item()? {
            let (Some(ino), Ok(row)) = (shown.ino(), InodeRow::decode(&shown.value)) else { continue };
            found.counts.inodes += 1;
            let node = Node {
                kind: row.kind,
                nlink: row.nlink,
                cut: row.has_cuts,
                parent: row.parent,
                own: shown.own,
                names: 0,
                named_by: Ino(0),
                entries: 0,
                directories: 0,
            };
            self.nodes.insert(ino, node);
        }
        Ok(())
    }

    fn check_root(&mut self, found: &mut Found) {
        match self.nodes.get(&Ino::ROOT) {
            Some(root) if root.kind == FileKind::Directory => return,
            _ => {}
        }
        let message = "the root directory is not there".to_owned();
        let about = self.about(Ino::ROOT);
        found.add(Severity::Damage, "root-missing", about, message, Some("makes it anew"));
        self.make_directory(Ino::ROOT, Ino::ROOT, found);
    }

    /// Puts the rows of a directory; the counts are those of none, and put right by the next walk.
    fn make_directory(&mut self, ino: Ino, parent: Ino, found: &mut Found) {
        let row = new_inode(FileKind::Directory, 0o700, parent);
        let directory = DirectoryRow { entries: 0, directories: 0, mtime: row.mtime, ctime: row.ctime };
        found.put(self.view, &Item::Inode(ino), row.encode());
        found.put(self.view, &Item::Directory(ino), directory.encode());
    }

    fn check_entries(&mut self, found: &mut Found) -> Result<(), VolumeError> {
        let mut entries = self.view.items(self.image, &Item::Dentry(Ino(0), Vec::new()));
        while let Some(shown) = entries.next_item()? {
            let (Some(parent), Some(name)) = (shown.ino(), shown.name()) else { continue };
            let Ok(row) = DentryRow::decode(&shown.value) else { continue };
            found.counts.entries += 1;
            self.check_entry(parent, name, row, found)?;
        }
        Ok(())
    }

    fn check_entry(
        &mut self,
        parent: Ino,
        name: &[u8],
        row: DentryRow,
        found: &mut Found,
    ) -> Result<(), VolumeError> {
        let item = Item::Dentry(parent, name.to_vec());
        let shown = name.escape_ascii();
        let target = self.nodes.get(&row.ino).copied();
        let kind = target.map_or(row.kind, |target| target.kind);
        match self.nodes.get_mut(&parent) {
            Some(node) if node.kind == FileKind::Directory => {
                node.entries += 1;
                node.directories += u32::from(kind == FileKind::Directory);
            }
            Some(_) => {
                let message =
                    format!("it is no directory, and has the entry '{shown}' for inode {}", row.ino);
                found.add(
                    Severity::Damage,
                    "entry-misplaced",
                    self.about(parent),
                    message,
                    Some("removes the entry"),
                );
                found.remove(self.view, &item);
                return Ok(());
            }
            None => self.ghosts.entry(parent).or_default().has_entries = true,
        }
        self.check_name(parent, name, found);
        let Some(target) = target else {
            self.ghosts.entry(row.ino).or_default().named.push((parent, name.to_vec(), row.kind));
            return Ok(());
        };
        if target.kind != row.kind {
            let message = format!("its entry '{shown}' in directory {parent} has another type than it");
            found.add(
                Severity::Damage,
                "entry-kind",
                self.about(row.ino),
                message,
                Some("corrects the entry"),
            );
            found.put(self.view, &item, DentryRow { kind: target.kind, ..row }.encode());
        }
        let doubled = target.kind == FileKind::Directory && (target.names > 0 || row.ino == Ino::ROOT);
        if doubled {
            self.check_second_name(parent, name, row.ino, target, found)?;
        }
        if let Some(node) = self.nodes.get_mut(&row.ino) {
            node.names += 1;
            if node.named_by == Ino(0) || node.parent == parent {
                node.named_by = parent;
            }
        }
        Ok(())
    }

    fn check_name(&self, parent: Ino, name: &[u8], found: &mut Found) {
        let bad_name = name.is_empty() || name == b"." || name == b".." || name.contains(&b'/');
        if bad_name || name.len() > NAME_MAX {
            let message = format!("it has the entry '{}', which is no name", name.escape_ascii());
            let what = "removes the entry and puts what it names into lost+found";
            found.add(Severity::Damage, "name-invalid", self.about(parent), message, Some(what));
            found.remove(self.view, &Item::Dentry(parent, name.to_vec()));
        }
    }

    /// A directory has one name: the one in the directory that it takes for its parent stays.
    fn check_second_name(
        &self,
        parent: Ino,
        name: &[u8],
        ino: Ino,
        node: Node,
        found: &mut Found,
    ) -> Result<(), VolumeError> {
        let first_goes = ino != Ino::ROOT && node.parent == parent && node.named_by != parent;
        let goes = match first_goes {
            true => self.name_in(node.named_by, ino)?.map(|name| (node.named_by, name)),
            false => Some((parent, name.to_vec())),
        };
        let Some((parent, name)) = goes else { return Ok(()) };
        let message = format!("the entry '{}' in directory {parent} is one too many", name.escape_ascii());
        found.add(Severity::Damage, "directory-names", self.about(ino), message, Some("removes that entry"));
        found.remove(self.view, &Item::Dentry(parent, name));
        Ok(())
    }

    /// The first name of an inode in a directory.
    fn name_in(&self, parent: Ino, ino: Ino) -> Result<Option<Vec<u8>>, VolumeError> {
        let mut entries = self.view.below(self.image, &|id| key::dentries(id, parent));
        while let Some(shown) = entries.next_item()? {
            if DentryRow::decode(&shown.value).is_ok_and(|row| row.ino == ino) {
                return Ok(shown.name().map(<[u8]>::to_vec));
            }
        }
        Ok(None)
    }

    fn check_files(&mut self, found: &mut Found) -> Result<(), VolumeError> {
        let mut files = Files::new(self.image, self.view);
        while let Some(entity) = files.next_entity()? {
            match (self.nodes.get(&entity.ino), entity.row) {
                (Some(node), Some(row)) => {
                    let settled = Settled::of(self, &entity, row, node);
                    settled.report(self, &entity, found);
                }
                _ => {
                    let ino = entity.ino;
                    self.ghosts.entry(ino).or_default().entity = Some(entity);
                }
            }
        }
        Ok(())
    }

    fn check_names(&mut self, tables: &mut Tables, found: &mut Found) -> Result<(), VolumeError> {
        let mut inodes: Vec<Ino> = self.nodes.keys().copied().collect();
        inodes.sort_unstable();
        let subvolume = self.view.head().0;
        for ino in inodes {
            let Some(node) = self.nodes.get(&ino).copied() else { continue };
            let orphan = tables.orphans.contains(&(subvolume, ino));
            let directory = node.kind == FileKind::Directory;
            let right = if directory { 1 } else { node.names };
            if node.names == 0 && ino != Ino::ROOT {
                self.check_nameless(ino, node, orphan, tables, found)?;
                continue;
            }
            if node.nlink != right {
                let message = format!("it has {right} names and counts {}", node.nlink);
                found.add(
                    Severity::Damage,
                    "link-count",
                    self.about(ino),
                    message,
                    Some("corrects the count"),
                );
                self.change_row(ino, found, |row| row.nlink = right)?;
            }
            if node.cut && node.own && !orphan && !self.view.snapshot {
                let message = "something was cut off it and is not listed to be removed".to_owned();
                found.add(Severity::Untidy, "orphan-unlisted", self.about(ino), message, Some("lists it"));
                found.rows.insert(Key::Orphan(subvolume, ino).encode(), Some(Vec::new()));
            }
            if orphan && !node.cut && !self.view.snapshot {
                let message = "it is listed to be removed, and has a name".to_owned();
                found.add(
                    Severity::Untidy,
                    "orphan-named",
                    self.about(ino),
                    message,
                    Some("takes it off the list"),
                );
                found.rows.insert(Key::Orphan(subvolume, ino).encode(), None);
            }
            if directory && ino != Ino::ROOT && node.parent != node.named_by {
                let (wrong, right) = (node.parent, node.named_by);
                let message = format!("it takes directory {wrong} for its parent, and is named in {right}");
                found.add(Severity::Damage, "parent", self.about(ino), message, Some("corrects the parent"));
                self.change_row(ino, found, |row| row.parent = right)?;
            }
        }
        if !self.view.snapshot {
            self.check_orphans(tables, found);
        }
        Ok(())
    }

    /// What has no name is to be removed, or was cut off.
    fn check_nameless(
        &mut self,
        ino: Ino,
        node: Node,
        orphan: bool,
        tables: &mut Tables,
        found: &mut Found,
    ) -> Result<(), VolumeError> {
        if node.nlink > 0 {
            let message = format!("it has no name, and should have {}", node.nlink);
            let what = "puts it into lost+found";
            found.add(Severity::Damage, "unreachable", self.about(ino), message, Some(what));
            return self.attach(ino, tables, found);
        }
        if !orphan && !self.view.snapshot && node.own {
            let message = "it has no name and is not listed to be removed".to_owned();
            found.add(Severity::Untidy, "orphan-unlisted", self.about(ino), message, Some("lists it"));
            found.rows.insert(Key::Orphan(self.view.head().0, ino).encode(), Some(Vec::new()));
        }
        Ok(())
    }

    fn check_orphans(&self, tables: &Tables, found: &mut Found) {
        let subvolume = self.view.head().0;
        for (_, ino) in tables.orphans.iter().filter(|(id, _)| *id == subvolume) {
            if !self.nodes.contains_key(ino) {
                let message = "it is listed to be removed, and is not there".to_owned();
                found.add(
                    Severity::Untidy,
                    "orphan-stale",
                    self.about(*ino),
                    message,
                    Some("takes it off the list"),
                );
                found.rows.insert(Key::Orphan(subvolume, *ino).encode(), None);
            }
        }
    }

    /// Directories that are named in each other and not from the root.
    fn check_reach(&mut self, tables: &mut Tables, found: &mut Found) -> Result<(), VolumeError> {
        let mut settled: FxHashSet<Ino> = FxHashSet::from_iter([Ino::ROOT]);
        let is_directory = |node: &Node| node.kind == FileKind::Directory && node.names > 0;
        let mut directories: Vec<Ino> =
            self.nodes.iter().filter(|(_, node)| is_directory(node)).map(|(ino, _)| *ino).collect();
        directories.sort_unstable();
        for start in directories {
            let mut path = Vec::new();
            let mut on_path = FxHashSet::default();
            let mut at = start;
            while !settled.contains(&at) && on_path.insert(at) {
                path.push(at);
                match self.nodes.get(&at) {
                    Some(node) if node.named_by != Ino(0) => at = node.named_by,
                    _ => break,
                }
            }
            let last_named = self.nodes.get(&at).is_some_and(|node| node.named_by != Ino(0));
            if !settled.contains(&at) && last_named {
                self.break_cycle(at, tables, found)?;
            }
            settled.extend(path);
        }
        Ok(())
    }

    fn break_cycle(&mut self, ino: Ino, tables: &mut Tables, found: &mut Found) -> Result<(), VolumeError> {
        let message = "it is a directory inside itself".to_owned();
        found.add(
            Severity::Damage,
            "directory-cycle",
            self.about(ino),
            message,
            Some("puts it into lost+found"),
        );
        let parent = self.nodes.get(&ino).map_or(Ino(0), |node| node.named_by);
        if let Some(name) = self.name_in(parent, ino)? {
            found.remove(self.view, &Item::Dentry(parent, name));
        }
        self.attach(ino, tables, found)
    }

    fn check_ghosts(&mut self, found: &mut Found) {
        let mut ghosts: Vec<(Ino, Ghost)> = std::mem::take(&mut self.ghosts).into_iter().collect();
        ghosts.sort_unstable_by_key(|(ino, _)| *ino);
        for (ino, ghost) in ghosts {
            let entity = ghost.entity.unwrap_or_else(|| Entity::new(ino));
            let directory = ghost.has_entries || entity.directory.is_some();
            if directory || !entity.extents.is_empty() || entity.inline.is_some() {
                if ino == Ino::ROOT {
                    continue;
                }
                let message = "its attributes are not there, and what belongs to it is".to_owned();
                let what = "makes them anew, for root alone";
                found.add(Severity::Loss, "inode-missing", self.about(ino), message, Some(what));
                self.make_again(ino, directory, &ghost.named, &entity, found);
                continue;
            }
            for (parent, name, _) in ghost.named {
                let message =
                    format!("its entry '{}' is for inode {ino}, which is not there", name.escape_ascii());
                found.add(
                    Severity::Loss,
                    "entry-dangling",
                    self.about(parent),
                    message,
                    Some("removes the entry"),
                );
                found.remove(self.view, &Item::Dentry(parent, name));
            }
            if entity.cuts.is_some() {
                let message = "it is not there, and something was cut off it".to_owned();
                found.add(Severity::Untidy, "row-stray", self.about(ino), message, Some("removes that row"));
                found.remove(self.view, &Item::Cuts(ino));
            }
            if !entity.xattrs.is_empty() {
                let message = "it is not there, and has extended attributes".to_owned();
                found.add(Severity::Untidy, "row-stray", self.about(ino), message, Some("removes them"));
                for name in entity.xattrs {
                    found.remove(self.view, &Item::Xattr(ino, name));
                }
            }
        }
    }

    /// Makes the row of an inode of which other rows are left. Counts and layout are put right by the next walk.
    fn make_again(
        &mut self,
        ino: Ino,
        directory: bool,
        named: &[(Ino, Vec<u8>, FileKind)],
        entity: &Entity,
        found: &mut Found,
    ) {
        let parent = named.first().map_or(Ino::ROOT, |(parent, ..)| *parent);
        if directory {
            return self.make_directory(ino, parent, found);
        }
        let block_size = u64::from(self.block_size);
        let inline = entity.inline.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let ends = entity.extents.iter().map(|(block, offset, extent)| {
            u64::from(*block) * block_size + u64::from(*offset) + u64::from(extent.len)
        });
        let link = named.iter().any(|(.., kind)| *kind == FileKind::Symlink) && entity.inline.is_some();
        let kind = if link { FileKind::Symlink } else { FileKind::Regular };
        let mut row = new_inode(kind, 0o600, parent);
        row.size = ends.fold(inline, u64::max);
        row.nlink = named.len().max(1) as u32;
        row.layout = if entity.extents.is_empty() { Layout::Inline } else { Layout::Extents };
        row.has_xattrs = !entity.xattrs.is_empty();
        row.has_cuts = entity.cuts.is_some();
        found.put(self.view, &Item::Inode(ino), row.encode());
    }

    fn change_row(
        &self,
        ino: Ino,
        found: &mut Found,
        change: impl FnOnce(&mut InodeRow),
    ) -> Result<(), VolumeError> {
        let item = Item::Inode(ino);
        let planned = found.rows.get(&self.view.key(&item)).cloned().flatten();
        let value = match planned {
            Some(value) => Some(value),
            None => self.view.get(self.image, &item)?,
        };
        if let Some(mut row) = value.and_then(|value| InodeRow::decode(&value).ok()) {
            change(&mut row);
            found.put(self.view, &item, row.encode());
        }
        Ok(())
    }

    /// Names an inode in `lost+found` by its number.
    fn attach(&mut self, ino: Ino, tables: &mut Tables, found: &mut Found) -> Result<(), VolumeError> {
        let Some(node) = self.nodes.get(&ino).copied() else { return Ok(()) };
        let haven = self.haven(tables, found)?;
        let mut name = format!("#{}", ino.0).into_bytes();
        while self.view.get(self.image, &Item::Dentry(haven, name.clone()))?.is_some() {
            name.push(b'_');
        }
        found.put(self.view, &Item::Dentry(haven, name), DentryRow { ino, kind: node.kind }.encode());
        self.change_row(ino, found, |row| {
            row.parent = haven;
            row.nlink = 1;
        })
    }

    fn haven(&mut self, tables: &mut Tables, found: &mut Found) -> Result<Ino, VolumeError> {
        if let Some(ino) = self.haven {
            return Ok(ino);
        }
        let mut name = LOST_AND_FOUND.to_vec();
        while let Some(value) = self.view.get(self.image, &Item::Dentry(Ino::ROOT, name.clone()))? {
            match DentryRow::decode(&value) {
                Ok(row) if self.nodes.get(&row.ino).is_some_and(|node| node.kind == FileKind::Directory) => {
                    self.haven = Some(row.ino);
                    return Ok(row.ino);
                }
                _ => name.push(b'_'),
            }
        }
        let least =
            CountersRow { run: tables.highest_run + 1, segment: 1, object: 1, subvolume: 2, inodes: None };
        let counters = tables.counters.get_or_insert(least);
        let ino = Ino::in_run(counters.run, 0);
        counters.run += 1;
        found.rows.insert(Key::Counters.encode(), Some(counters.encode()));
        self.make_directory(ino, Ino::ROOT, found);
        found.put(
            self.view,
            &Item::Dentry(Ino::ROOT, name),
            DentryRow { ino, kind: FileKind::Directory }.encode(),
        );
        self.haven = Some(ino);
        Ok(ino)
    }
}

fn new_inode(kind: FileKind, mode: u16, parent: Ino) -> InodeRow {
    let now = SystemClock.now();
    InodeRow {
        kind,
        mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        allocated: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent,
        has_xattrs: false,
        has_cuts: false,
        coherence: forebay_types::Coherence::Coherent,
        policy: forebay_types::PolicyId::NONE,
        layout: Layout::Empty,
    }
}
