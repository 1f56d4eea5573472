//! Names for the inodes that findings are about.

use std::collections::{BTreeMap, BTreeSet};

use forebay_format::{
    key::Item,
    row::{DentryRow, Row},
};
use forebay_types::{FileKind, Ino, SubvolumeId};
use rustc_hash::FxHashMap;

use super::{
    found::Draft,
    image::{Image, View},
    report::Finding,
};
use crate::error::VolumeError;

/// Directories that a path may be deep before it is taken for a cycle.
const DEPTH_MAX: usize = 4096;

type Wanted = BTreeMap<SubvolumeId, BTreeSet<Ino>>;
type Paths = FxHashMap<(SubvolumeId, Ino), String>;

/// Finishes findings: inodes and affected files get their names, from the heads where they have one there, else from a snapshot.
pub(super) fn tell(image: &Image, views: &[View], drafts: Vec<Draft>) -> Result<Vec<Finding>, VolumeError> {
    let mut wanted = Wanted::new();
    for draft in &drafts {
        for (subvolume, ino) in draft.inode.iter().chain(&draft.files) {
            wanted.entry(*subvolume).or_default().insert(*ino);
        }
    }
    let mut paths = Paths::default();
    for snapshots in [false, true] {
        for view in views.iter().filter(|view| view.snapshot == snapshots) {
            look(image, view, &mut wanted, &mut paths)?;
        }
    }
    let name = |place: &(SubvolumeId, Ino)| match paths.get(place) {
        Some(path) if place.0 == SubvolumeId::FIRST => path.clone(),
        Some(path) => format!("subvolume {}:{path}", place.0),
        None => format!("inode {}", place.1),
    };
    let finish = |mut draft: Draft| {
        draft.finding.path = draft.inode.and_then(|place| paths.get(&place).cloned());
        draft.finding.files = draft.files.iter().map(name).collect();
        draft.finding
    };
    Ok(drafts.into_iter().map(finish).collect())
}

fn look(image: &Image, view: &View, wanted: &mut Wanted, paths: &mut Paths) -> Result<(), VolumeError> {
    let subvolume = view.head().0;
    let Some(inodes) = wanted.get_mut(&subvolume).filter(|inodes| !inodes.is_empty()) else {
        return Ok(());
    };
    let mut named: FxHashMap<Ino, (Ino, Vec<u8>)> = FxHashMap::default();
    let mut entries = view.items(image, &Item::Dentry(Ino(0), Vec::new()));
    while let Some(shown) = entries.next_item()? {
        let (Some(parent), Some(name)) = (shown.ino(), shown.name()) else { continue };
        let Ok(row) = DentryRow::decode(&shown.value) else { continue };
        if row.kind == FileKind::Directory || inodes.contains(&row.ino) {
            named.entry(row.ino).or_insert_with(|| (parent, name.to_vec()));
        }
    }
    inodes.retain(|ino| match path(&named, *ino) {
        Some(path) => {
            paths.insert((subvolume, *ino), path);
            false
        }
        None => true,
    });
    Ok(())
}

fn path(named: &FxHashMap<Ino, (Ino, Vec<u8>)>, ino: Ino) -> Option<String> {
    let mut parts = Vec::new();
    let mut at = ino;
    while at != Ino::ROOT {
        let (parent, name) = named.get(&at)?;
        parts.push(name.escape_ascii().to_string());
        at = *parent;
        if parts.len() > DEPTH_MAX {
            return None;
        }
    }
    parts.reverse();
    Some(format!("/{}", parts.join("/")))
}
