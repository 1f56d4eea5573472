//! A volume whose store is elsewhere is repaired by a record, because a copy of its metadata follows the journal.

use std::fs;

use forebay_format::{
    key::{Item, Key},
    row::TOMBSTONE,
};
use forebay_object::StoreUrl;
use forebay_types::{FileKind, Ino};
use forebay_volume::{
    CreateOptions, create,
    fsck::{FsckOptions, repair},
};

use crate::{
    plant::Rows,
    volumes::{AT, BLOCK, file, fingerprint, looked_at, make, open, write},
};

#[test]
fn a_record_repairs_and_survives() {
    let dir = tempfile::tempdir().unwrap();
    let (root, store) = (dir.path().join("volume"), dir.path().join("store"));
    let elsewhere = Some(StoreUrl::directory(&store).unwrap());
    create(&root, &CreateOptions { store: elsewhere, block_size: BLOCK, ..CreateOptions::default() })
        .unwrap();
    let volume = open(&root);
    let inner = make(&volume, Ino::ROOT, "dir", FileKind::Directory);
    let stored = file(&volume, inner, "stored", 300_000);
    volume.drain(&mut |_| {}).unwrap();
    file(&volume, Ino::ROOT, "packed", 5000);
    volume.seal_all().unwrap();
    write(&volume, stored, 1000, 5, 3000);
    volume.sync().unwrap();
    drop(volume);
    let clean = looked_at(&root);
    assert!(clean.is_sound(), "{clean}");

    // The engine lags behind the journal here, so the rows of a name are those of the checkpoint.
    let rows = Rows::of(&root);
    let inode = rows.ino("dir/stored");
    let unnamed = Item::Dentry(inner, b"stored".to_vec());
    rows.set(unnamed.key(AT, rows.head()), Some(TOMBSTONE.to_vec()));
    rows.set(vec![0, 0, 0, 1, b'z'], Some(vec![1]));
    rows.set(Key::Orphan(AT, Ino(4095)).encode(), Some(Vec::new()));
    drop(rows);
    let volume = open(&root);
    volume.checkpoint_now().unwrap();
    drop(volume);
    let rows = Rows::of(&root);
    let packed = rows.segment_of("packed");
    rows.set(Key::Segment(packed).encode(), None);
    drop(rows);
    fs::create_dir_all(store.join("data/ff")).unwrap();
    fs::write(store.join("data/ff/00000001-00000000000000ff"), "x").unwrap();

    let found = looked_at(&root);
    let expected = [
        "entry-count",
        "object-leaked",
        "orphan-stale",
        "row-undecodable",
        "segment-row-missing",
        "unreachable",
    ];
    assert_eq!(found.codes(), expected, "{found}");
    let repaired = repair(&root, &FsckOptions::default(), &mut |_| {}).unwrap();
    assert!(repaired.repaired > 5, "{repaired}");
    let after = looked_at(&root);
    assert!(after.is_clean(), "{after}");
    let before = fingerprint(&root);
    assert_eq!(repair(&root, &FsckOptions::default(), &mut |_| {}).unwrap().repaired, 0);
    assert_eq!(fingerprint(&root), before);

    let volume = open(&root);
    let found = volume.namespace().lookup(AT, Ino::ROOT, b"lost+found").unwrap();
    let name = format!("#{}", inode.0);
    assert_eq!(volume.namespace().lookup(AT, found.ino, name.as_bytes()).unwrap().row.size, 300_000);
    volume.drain(&mut |_| {}).unwrap();
    volume.close().unwrap();
    drop(volume);
    let drained = looked_at(&root);
    assert!(drained.is_clean(), "{drained}");
}
