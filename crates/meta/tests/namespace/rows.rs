//! Looks at rows as they lie there, without the crate's own reading.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    key::{Item, Key},
    row::{Cut, CutsRow, Extent, InodeRow, Layout, Row, SubvolumeRow, TOMBSTONE},
};
use forebay_types::{Generation, Ino, SegmentId, SubvolumeId};

pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The versioned rows: subvolume, item, generation and value.
pub fn versions(rows: &Rows) -> impl Iterator<Item = (SubvolumeId, Item, Generation, &[u8])> {
    rows.iter().filter_map(|(key, value)| match Key::decode(key).unwrap() {
        Key::Versioned(subvolume, item, generation) => Some((subvolume, item, generation, value.as_slice())),
        _ => None,
    })
}

/// The extent that a row has: inode, block, extent.
pub fn extent(item: &Item, value: &[u8]) -> Option<(Ino, u32, Extent)> {
    if value == TOMBSTONE {
        return None;
    }
    match item {
        Item::Extent(ino, block, _) => Some((*ino, *block, Extent::decode(value).unwrap())),
        Item::Inode(ino) => match InodeRow::decode(value).unwrap().layout {
            Layout::Single(block, _, extent) => Some((*ino, block, extent)),
            _ => None,
        },
        _ => None,
    }
}

/// Raw bytes in use of every segment, summed over all rows.
pub fn live(rows: &Rows) -> BTreeMap<SegmentId, u64> {
    let mut live = BTreeMap::new();
    for (_, item, _, value) in versions(rows) {
        if let Some((_, _, extent)) = extent(&item, value) {
            *live.entry(extent.segment).or_default() += u64::from(extent.len);
        }
    }
    live
}

/// The cuts of a file, among the rows that a view shows.
pub fn cuts(shown: &BTreeMap<Item, Vec<u8>>, ino: Ino) -> Vec<Cut> {
    shown.get(&Item::Cuts(ino)).map(|value| CutsRow::decode(value).unwrap().0).unwrap_or_default()
}

pub fn subvolume(rows: &Rows, id: SubvolumeId) -> SubvolumeRow {
    SubvolumeRow::decode(&rows[&Key::Subvolume(id).encode()]).unwrap()
}

/// What a view shows: the newest version of every item that is not a tombstone.
pub fn visible(rows: &Rows, id: SubvolumeId, at: Option<Generation>) -> BTreeMap<Item, Vec<u8>> {
    let (mut shown, mut settled) = (BTreeMap::new(), BTreeSet::new());
    let mut level = Some((id, at.unwrap_or(subvolume(rows, id).generation)));
    while let Some((id, generation)) = level {
        let mut here = BTreeSet::new();
        for (owner, item, version, value) in versions(rows) {
            if owner != id || version > generation || settled.contains(&item) || !here.insert(item.clone()) {
                continue;
            }
            if value != TOMBSTONE {
                shown.insert(item, value.to_vec());
            }
        }
        settled.extend(here);
        level = subvolume(rows, id).origin;
    }
    shown
}
