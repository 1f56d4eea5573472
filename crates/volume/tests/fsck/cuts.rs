//! A file that lost most of its extents, with their rows still there: nothing is wrong with it, and what is wrong with such rows is found.

use std::path::PathBuf;

use forebay_format::{
    key::{Item, Key},
    row::{Cut, CutsRow, Row},
};
use forebay_meta::WriteAttr;
use forebay_types::{FileKind, Ino};
use forebay_volume::fsck::{FsckOptions, repair};
use tempfile::TempDir;

use crate::{
    plant::{Rows, torn},
    volumes::{AT, BLOCK, file, looked_at, make, new_volume, open, pattern, write},
};

/// Many more than one record removes.
const EXTENTS: u64 = 1200;
const STEP: u64 = 4096;
const LEN: usize = 500;

/// A closed volume with `/cut`, of which all but the first block is punched and some of that is still to be removed; and `/plain`.
fn volume() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root);
    let cut = make(&volume, Ino::ROOT, "cut", FileKind::Regular);
    for index in 0..EXTENTS {
        write(&volume, cut, index * STEP, index, LEN);
    }
    file(&volume, Ino::ROOT, "plain", 5000);
    volume.drain(&mut |_| {}).unwrap();
    volume.punch(cut, u64::from(BLOCK), EXTENTS * STEP, None, WriteAttr::default()).unwrap();
    volume.close().unwrap();
    (dir, root)
}

fn codes(name: &str, plant: impl FnOnce(&Rows)) -> Vec<String> {
    let (_dir, root) = volume();
    plant(&Rows::of(&root));
    let found = looked_at(&root).codes().iter().map(ToString::to_string).collect();
    let repaired = repair(&root, &FsckOptions::default(), &mut |_| {}).unwrap();
    let after = looked_at(&root);
    assert!(after.codes().is_empty(), "{name} after repair: {after}\nwas: {repaired}");
    let again = repair(&root, &FsckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(again.repaired, 0, "{name} repaired again: {again}");
    let volume = open(&root);
    volume.drain(&mut |_| {}).unwrap();
    assert_eq!(volume.status().uncleaned_files, 0);
    let cut = volume.namespace().lookup(AT, Ino::ROOT, b"cut").unwrap();
    assert_eq!(volume.read(cut.ino, STEP, LEN as u32).unwrap().len(), 1);
    volume.close().unwrap();
    drop(volume);
    let after = looked_at(&root);
    assert!(after.codes().is_empty(), "{name} after a drain: {after}");
    found
}

#[test]
fn what_is_still_to_be_removed_is_no_fault() {
    let (_dir, root) = volume();
    let report = looked_at(&root);
    assert!(report.complete && report.findings.is_empty(), "{report}");
    let volume = open(&root);
    assert_eq!(volume.status().uncleaned_files, 1);
    let cut = volume.namespace().lookup(AT, Ino::ROOT, b"cut").unwrap();
    let size = (EXTENTS - 1) * STEP + LEN as u64;
    assert_eq!(cut.row.size, size);
    for index in [0, u64::from(BLOCK) / STEP - 1, u64::from(BLOCK) / STEP, EXTENTS - 1] {
        let kept = index * STEP < u64::from(BLOCK);
        let expected = if kept { pattern(index, LEN) } else { vec![0; LEN] };
        let found: Vec<u8> = volume
            .read(cut.ino, index * STEP, LEN as u32)
            .unwrap()
            .into_iter()
            .flat_map(|piece| match piece {
                forebay_volume::ReadPiece::Bytes(bytes) => bytes.to_vec(),
                forebay_volume::ReadPiece::Zeros(len) => vec![0; len],
            })
            .collect();
        assert!(found == expected, "extent {index}");
    }
    let live = volume.fsck(&FsckOptions::default(), &mut |_| {}).unwrap();
    assert!(live.findings.is_empty(), "{live}");
    volume.drain(&mut |_| {}).unwrap();
    let status = volume.status();
    assert_eq!(status.uncleaned_files, 0);
    assert_eq!(status.live_bytes, u64::from(BLOCK) / STEP * LEN as u64 + 5000);
    volume.close().unwrap();
    drop(volume);
    let report = looked_at(&root);
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn cuts_that_are_not_right_are_found() {
    let row = |first, last| CutsRow(vec![Cut { first, last }]).encode();
    let found = codes("no cuts", |rows| rows.wipe(&Item::Cuts(rows.ino("cut"))));
    assert_eq!(found, ["cuts-missing"]);
    let found = codes("torn cuts", |rows| {
        let item = Item::Cuts(rows.ino("cut"));
        rows.put(&item, torn(rows.shown(&item).unwrap().1));
    });
    assert_eq!(found, ["cuts-missing", "row-undecodable"]);
    let found = codes("cuts that the inode does not tell of", |rows| {
        rows.change("cut", |row| row.has_cuts = false);
    });
    assert_eq!(found, ["cuts-stray", "orphan-named"]);
    let found = codes("not listed", |rows| rows.set(Key::Orphan(AT, rows.ino("cut")).encode(), None));
    assert_eq!(found, ["orphan-unlisted"]);
    let found = codes("cuts of another", |rows| rows.put(&Item::Cuts(rows.ino("plain")), row(0, 0)));
    assert_eq!(found, ["cuts-stray"]);
    let found = codes("cuts of a directory", |rows| rows.put(&Item::Cuts(Ino::ROOT), row(0, 9)));
    assert_eq!(found, ["cuts-stray"]);
    let found = codes("cuts of nothing", |rows| rows.put(&Item::Cuts(Ino(4095)), row(3, 4)));
    assert_eq!(found, ["row-stray"]);
}
