//! What one inode has: attributes, counts, data, extended attributes, and what they should be.
//!
//! The rule of every correction: what a reader gets now, he gets afterwards; what nobody can see any more gives way.

use forebay_format::{
    key::Item,
    row::{BytesRow, Cut, CutsRow, DirectoryRow, Extent, InodeRow, Layout, Row},
};
use forebay_types::{FileKind, Ino};

use super::{
    found::Found,
    image::{Image, Shown, View, ViewStream},
    report::Severity,
    tree::{Node, Tree},
};
use crate::error::VolumeError;

/// An extent with its block and its offset there.
pub(super) type Place = (u32, u32, Extent);

/// All rows of one inode that a view shows, except the entries.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    pub(super) ino: Ino,
    pub(super) row: Option<InodeRow>,
    pub(super) directory: Option<DirectoryRow>,
    pub(super) inline: Option<Vec<u8>>,
    pub(super) extents: Vec<Place>,
    pub(super) cuts: Option<Vec<Cut>>,
    pub(super) xattrs: Vec<Vec<u8>>,
}

impl Entity {
    pub(super) fn new(ino: Ino) -> Entity {
        let (extents, xattrs) = (Vec::new(), Vec::new());
        Entity { ino, row: None, directory: None, inline: None, extents, cuts: None, xattrs }
    }

    fn take(&mut self, kind: usize, shown: &Shown) {
        match kind {
            0 => self.row = InodeRow::decode(&shown.value).ok(),
            1 => self.directory = DirectoryRow::decode(&shown.value).ok(),
            2 => self.inline = BytesRow::decode(&shown.value).ok().map(|row| row.0),
            3 => {
                if let (Some((block, offset)), Ok(extent)) = (shown.place(), Extent::decode(&shown.value)) {
                    self.extents.push((block, offset, extent));
                }
            }
            4 => self.cuts = CutsRow::decode(&shown.value).ok().map(|row| row.0),
            _ => self.xattrs.extend(shown.name().map(<[u8]>::to_vec)),
        }
    }
}

/// The inodes of a view, by number.
pub(super) struct Files<'a> {
    streams: Vec<(ViewStream<'a>, Option<Shown>)>,
}

impl<'a> Files<'a> {
    pub(super) fn new(image: &'a Image, view: &View) -> Files<'a> {
        let kinds = [
            Item::Inode(Ino(0)),
            Item::Directory(Ino(0)),
            Item::Inline(Ino(0)),
            Item::Extent(Ino(0), 0, 0),
            Item::Cuts(Ino(0)),
            Item::Xattr(Ino(0), Vec::new()),
        ];
        Files { streams: kinds.iter().map(|kind| (view.items(image, kind), None)).collect() }
    }

    pub(super) fn next_entity(&mut self) -> Result<Option<Entity>, VolumeError> {
        for (stream, head) in &mut self.streams {
            if head.is_none() {
                *head = stream.next_item()?;
            }
        }
        let heads = self.streams.iter().filter_map(|(_, head)| head.as_ref().and_then(Shown::ino));
        let Some(ino) = heads.min() else { return Ok(None) };
        let mut entity = Entity::new(ino);
        for (kind, (stream, head)) in self.streams.iter_mut().enumerate() {
            while let Some(shown) = head.take_if(|shown| shown.ino().is_none_or(|found| found == ino)) {
                if shown.ino().is_some() {
                    entity.take(kind, &shown);
                }
                *head = stream.next_item()?;
            }
        }
        Ok(Some(entity))
    }
}

/// What an inode should have, and what is wrong with what it has.
#[derive(Debug)]
pub(super) struct Settled {
    row: InodeRow,
    directory: Option<DirectoryRow>,
    inline: Option<Vec<u8>>,
    /// Those that are shown.
    extents: Vec<Place>,
    /// Those in a cut: nobody sees them, and they are stored until they are removed.
    hidden: Vec<Place>,
    cuts: Option<Vec<Cut>>,
    problems: Vec<Problem>,
}

#[derive(Debug)]
struct Problem {
    severity: Severity,
    code: &'static str,
    message: String,
    repair: Option<&'static str>,
}

impl Settled {
    pub(super) fn of(tree: &Tree<'_>, entity: &Entity, row: InodeRow, node: &Node) -> Settled {
        let mut settled = Settled {
            row,
            directory: entity.directory,
            inline: entity.inline.clone(),
            extents: entity.extents.clone(),
            hidden: Vec::new(),
            cuts: entity.cuts.clone(),
            problems: Vec::new(),
        };
        settled.cuts();
        settled.directory(node);
        settled.xattrs(entity.xattrs.len());
        match row.kind {
            FileKind::Regular => {
                settled.bounds(u64::from(tree.block_size));
                settled.layout();
                settled.sizes();
            }
            FileKind::Symlink => settled.link(),
            _ => settled.without_data(),
        }
        settled
    }

    fn problem(&mut self, code: &'static str, message: String, repair: &'static str) {
        self.problems.push(Problem { severity: Severity::Damage, code, message, repair: Some(repair) });
    }

    fn directory(&mut self, node: &Node) {
        if self.row.kind != FileKind::Directory {
            if self.directory.take().is_some() {
                let message = "it is no directory, and has a directory's counts".to_owned();
                let repair = Some("removes them");
                self.problems.push(Problem {
                    severity: Severity::Untidy,
                    code: "row-stray",
                    message,
                    repair,
                });
            }
            return;
        }
        let Node { entries, directories, .. } = *node;
        let Some(row) = &mut self.directory else {
            let (mtime, ctime) = (self.row.mtime, self.row.ctime);
            self.directory = Some(DirectoryRow { entries, directories, mtime, ctime });
            let message = "its times and counts are not there".to_owned();
            return self.problem("directory-row-missing", message, "makes them anew");
        };
        let counted = (row.entries, row.directories);
        if counted != (entries, directories) {
            (row.entries, row.directories) = (entries, directories);
            let message = format!(
                "it has {entries} entries ({directories} directories) and counts {} ({})",
                counted.0, counted.1
            );
            self.problem("entry-count", message, "corrects the counts");
        }
    }

    fn xattrs(&mut self, count: usize) {
        if self.row.has_xattrs != (count > 0) {
            self.row.has_xattrs = count > 0;
            let message = format!("it has {count} extended attributes, and its row says otherwise");
            self.problem("xattr-flag", message, "corrects the row");
        }
    }

    /// Cuts hide extents of a file whose row says that it has some.
    fn cuts(&mut self) {
        let file = self.row.kind == FileKind::Regular;
        if self.cuts.is_some() && !(file && self.row.has_cuts) {
            self.cuts = None;
            let message = "its row does not say that something was cut off, and there are cuts".to_owned();
            self.problem("cuts-stray", message, "removes the cuts, which nobody heeds");
        }
        if self.row.has_cuts && self.cuts.is_none() {
            self.row.has_cuts = false;
            let message = "its row says that something was cut off, and not what".to_owned();
            self.problem("cuts-missing", message, "shows what there is");
        }
        let cuts = self.cuts.as_deref().unwrap_or_default();
        let in_cut = |place: &Place| cuts.iter().any(|cut| (cut.first..=cut.last).contains(&place.0));
        (self.hidden, self.extents) = std::mem::take(&mut self.extents).into_iter().partition(in_cut);
    }

    /// Extents lie inside their blocks and the file, in order and without overlaps; where they overlap, the first is read.
    fn bounds(&mut self, block_size: u64) {
        let size = self.row.size;
        if let Layout::Single(block, offset, extent) = self.row.layout
            && let Some(kept) = self.fit((block, offset, extent), block_size, size)
        {
            match kept {
                Some((block, offset, extent)) => self.row.layout = Layout::Single(block, offset, extent),
                None => self.row.layout = Layout::Empty,
            }
        }
        let mut end = (0, 0);
        let mut kept = Vec::with_capacity(self.extents.len());
        for place in std::mem::take(&mut self.extents) {
            let Some((block, offset, extent)) = self.fit(place, block_size, size).unwrap_or(Some(place))
            else {
                continue;
            };
            let covered = if end.0 == block { u32::saturating_sub(end.1, offset) } else { 0 };
            if covered > 0 {
                let message = format!("extents of block {block} overlap at {offset}");
                self.problem("extent-overlap", message, "trims the second, which is not read there");
            }
            if covered < extent.len {
                let part = extent.part(covered, extent.len - covered);
                kept.push((block, offset + covered, part));
                end = (block, offset + extent.len);
            }
        }
        self.extents = kept;
    }

    /// `None` where the extent fits; else what of it does.
    fn fit(&mut self, place: Place, block_size: u64, size: u64) -> Option<Option<Place>> {
        let (block, offset, extent) = place;
        let start = u64::from(block) * block_size + u64::from(offset);
        let room = block_size.saturating_sub(u64::from(offset)).min(size.saturating_sub(start));
        if u64::from(extent.len) <= room {
            return None;
        }
        let message = format!(
            "the extent of {} bytes at {offset} of block {block} is longer than block and file have room",
            extent.len
        );
        self.problem("extent-bounds", message, "trims it");
        Some((room > 0).then(|| (block, offset, extent.part(0, room as u32))))
    }

    /// Where the data is said to be and where it is.
    fn layout(&mut self) {
        let has = |what: bool| if what { "has" } else { "has no" };
        let (inline, extents) = (self.inline.is_some(), !self.extents.is_empty());
        let (right, word) = match self.row.layout {
            Layout::Empty => (!inline && !extents, "no data"),
            Layout::Inline => (inline && !extents, "inline data"),
            Layout::Single(..) => (!inline && !extents, "one extent in its row"),
            Layout::Extents => (!inline && (extents || self.cuts.is_some()), "extents in rows"),
        };
        if right {
            return;
        }
        let message =
            format!("it should have {word}; it {} inline data and {} extent rows", has(inline), has(extents));
        self.problem("layout", message, "keeps what is read now, and else what there is");
        match self.row.layout {
            Layout::Inline if inline => self.extents.clear(),
            Layout::Single(block, offset, extent) => {
                self.inline = None;
                let (start, end) = (offset, offset + extent.len);
                let apart =
                    |place: &Place| place.0 != block || place.1 + place.2.len <= start || place.1 >= end;
                self.extents.retain(apart);
                if !self.extents.is_empty() {
                    self.extents.push((block, offset, extent));
                    self.extents.sort_unstable_by_key(|(block, offset, _)| (*block, *offset));
                    self.row.layout = Layout::Extents;
                }
            }
            _ if extents => {
                self.inline = None;
                self.row.layout = Layout::Extents;
            }
            _ if inline => self.row.layout = Layout::Inline,
            _ => self.row.layout = Layout::Empty,
        }
    }

    fn sizes(&mut self) {
        let size = self.row.size;
        if let Some(bytes) = &mut self.inline
            && bytes.len() as u64 > size
        {
            let message = format!("its inline data has {} bytes, and its size is {size}", bytes.len());
            bytes.truncate(size as usize);
            self.problem("inline-size", message, "cuts what is not read off");
        }
        if self.inline.as_ref().is_some_and(Vec::is_empty) {
            self.inline = None;
            self.row.layout = Layout::Empty;
        }
        let allocated = match self.row.layout {
            Layout::Empty => 0,
            Layout::Inline => self.inline.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Layout::Single(_, _, extent) => u64::from(extent.len),
            Layout::Extents => bytes(&self.extents),
        } + bytes(&self.hidden);
        let counted = self.row.allocated;
        if counted != allocated {
            self.row.allocated = allocated;
            if self.problems.is_empty() {
                let message = format!("it has {allocated} bytes stored and counts {counted}");
                self.problem("allocated", message, "corrects the count");
            }
        }
    }

    fn link(&mut self) {
        let target = self.inline.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if target == 0 && self.row.size > 0 {
            let message = "the target of the link is not there".to_owned();
            self.problems.push(Problem {
                severity: Severity::Loss,
                code: "target-lost",
                message,
                repair: None,
            });
        } else if target != self.row.size {
            let message = format!("the target of the link has {target} bytes and counts {}", self.row.size);
            self.row.size = target;
            self.problem("target-size", message, "corrects the size");
        }
        let layout = if target > 0 { Layout::Inline } else { self.row.layout };
        if layout != self.row.layout || !self.extents.is_empty() {
            self.row.layout = layout;
            self.extents.clear();
            let message = "it is a link, and its data is not where a link's is".to_owned();
            self.problem("layout", message, "keeps the target");
        }
    }

    fn without_data(&mut self) {
        let data = self.inline.is_some() || !self.extents.is_empty() || self.row.layout != Layout::Empty;
        if data {
            self.inline = None;
            self.extents.clear();
            self.row.layout = Layout::Empty;
            self.row.allocated = 0;
            let message = "it is of a kind that has no data, and has some".to_owned();
            self.problem("layout", message, "removes what is never read");
        }
    }

    /// Adds what is wrong to the findings, and the rows that put it right.
    pub(super) fn report(self, tree: &Tree<'_>, entity: &Entity, found: &mut Found) {
        if self.problems.is_empty() {
            return;
        }
        let (ino, view) = (entity.ino, tree.view);
        for Problem { severity, code, message, repair } in self.problems {
            found.add(severity, code, tree.about(ino), message, repair);
        }
        if entity.row != Some(self.row) {
            found.put(view, &Item::Inode(ino), self.row.encode());
        }
        if entity.directory != self.directory {
            match self.directory {
                Some(row) => found.put(view, &Item::Directory(ino), row.encode()),
                None => found.remove(view, &Item::Directory(ino)),
            }
        }
        if entity.inline != self.inline {
            match self.inline {
                Some(bytes) => found.put(view, &Item::Inline(ino), BytesRow(bytes).encode()),
                None => found.remove(view, &Item::Inline(ino)),
            }
        }
        if entity.cuts != self.cuts {
            found.remove(view, &Item::Cuts(ino));
        }
        let in_rows = self.row.layout == Layout::Extents;
        let wanted: &[Place] = if in_rows { &self.extents } else { &[] };
        for (block, offset, _) in
            entity.extents.iter().filter(|place| self.hidden.binary_search_by_key(&at(place), at).is_err())
        {
            if !wanted.iter().any(|place| (place.0, place.1) == (*block, *offset)) {
                found.remove(view, &Item::Extent(ino, *block, *offset));
            }
        }
        for place in wanted.iter().filter(|place| !entity.extents.contains(place)) {
            found.put(view, &Item::Extent(ino, place.0, place.1), place.2.encode());
        }
    }
}

fn at(place: &Place) -> (u32, u32) {
    (place.0, place.1)
}

fn bytes(places: &[Place]) -> u64 {
    places.iter().map(|(_, _, extent)| u64::from(extent.len)).sum()
}
