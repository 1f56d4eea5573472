//! Faults, planted in the rows of a closed volume.

use std::path::Path;

use forebay_format::{
    key::{Item, Key, after_prefix},
    row::{DentryRow, Extent, InodeRow, Row, SegmentRow, SegmentState, SubvolumeRow},
};
use forebay_meta::{Batch, EmbeddedEngine, Engine};
use forebay_types::{FileKind, Generation, Ino, SegmentId};

use crate::volumes::AT;

/// The metadata of a closed volume.
pub struct Rows(EmbeddedEngine);

impl Rows {
    pub fn of(root: &Path) -> Rows {
        Rows(EmbeddedEngine::open(&root.join("meta")).unwrap())
    }

    pub fn set(&self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.0.commit(&Batch::of(&[(key, value)])).unwrap();
    }

    pub fn get(&self, key: &Key) -> Vec<u8> {
        self.0.get(&key.encode()).unwrap().unwrap()
    }

    /// The generation that the first subvolume writes.
    pub fn head(&self) -> Generation {
        SubvolumeRow::decode(&self.get(&Key::Subvolume(AT))).unwrap().generation
    }

    /// The version that the head shows: key and value.
    pub fn shown(&self, item: &Item) -> Option<(Vec<u8>, Vec<u8>)> {
        let prefix = item.prefix(AT);
        let page = self.0.scan(&prefix, after_prefix(&prefix).as_deref(), 1).unwrap();
        page.rows.into_iter().next()
    }

    pub fn put(&self, item: &Item, value: Vec<u8>) {
        self.set(item.key(AT, self.head()), Some(value));
    }

    /// Takes all versions of an item away.
    pub fn wipe(&self, item: &Item) {
        while let Some((key, _)) = self.shown(item) {
            self.set(key, None);
        }
    }

    /// The inode of a path.
    pub fn ino(&self, path: &str) -> Ino {
        path.split('/').fold(Ino::ROOT, |at, name| {
            let item = Item::Dentry(at, name.as_bytes().to_vec());
            DentryRow::decode(&self.shown(&item).unwrap().1).unwrap().ino
        })
    }

    pub fn inode(&self, path: &str) -> InodeRow {
        InodeRow::decode(&self.shown(&Item::Inode(self.ino(path))).unwrap().1).unwrap()
    }

    pub fn change(&self, path: &str, change: impl FnOnce(&mut InodeRow)) {
        let mut row = self.inode(path);
        change(&mut row);
        self.put(&Item::Inode(self.ino(path)), row.encode());
    }

    pub fn name(&self, parent: Ino, name: &str, ino: Ino, kind: FileKind) {
        self.put(&Item::Dentry(parent, name.as_bytes().to_vec()), DentryRow { ino, kind }.encode());
    }

    /// The extent rows of a file, with their keys.
    pub fn extents(&self, path: &str) -> Vec<(Vec<u8>, Extent)> {
        let prefix = forebay_format::key::extents(AT, self.ino(path));
        let page = self.0.scan(&prefix, after_prefix(&prefix).as_deref(), 1000).unwrap();
        page.rows.into_iter().map(|(key, value)| (key, Extent::decode(&value).unwrap())).collect()
    }

    pub fn set_extent(&self, path: &str, block: u32, offset: u32, extent: Extent) {
        self.put(&Item::Extent(self.ino(path), block, offset), extent.encode());
    }

    /// The segment that has the first bytes of a file.
    pub fn segment_of(&self, path: &str) -> SegmentId {
        match self.inode(path).layout {
            forebay_format::row::Layout::Single(_, _, extent) => extent.segment,
            _ => self.extents(path)[0].1.segment,
        }
    }

    pub fn segment(&self, id: SegmentId) -> SegmentRow {
        SegmentRow::decode(&self.get(&Key::Segment(id))).unwrap()
    }

    pub fn change_segment(&self, path: &str, change: impl FnOnce(&mut SegmentRow)) {
        let id = self.segment_of(path);
        let mut row = self.segment(id);
        change(&mut row);
        self.set(Key::Segment(id).encode(), Some(row.encode()));
    }

    /// The file or object of the segment that has the first bytes of a file.
    pub fn place_of(&self, root: &Path, path: &str) -> std::path::PathBuf {
        let id = self.segment_of(path);
        let row = self.segment(id);
        match (row.object, row.state) {
            (Some(object), SegmentState::Stored) => {
                let (epoch, id) = (object.epoch.0, object.id.0);
                root.join(format!("objects/data/{:02x}/{epoch:08x}-{id:016x}", id & 0xff))
            }
            _ if row.kind == forebay_format::row::SegmentKind::Journal => {
                root.join(format!("journal/{id}.log"))
            }
            _ => root.join(format!("staging/{id}.seg")),
        }
    }
}

/// Cuts a row's value in the middle, so that it is none.
pub fn torn(mut value: Vec<u8>) -> Vec<u8> {
    value.truncate(value.len() / 2);
    value
}
