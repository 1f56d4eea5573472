//! Caches of an open volume: what they find, and that emptied ones change nothing but that.

#![allow(clippy::unwrap_used)]

use std::{path::Path, sync::Arc};

use forebay_meta::{NewInode, WriteAttr};
use forebay_types::{FileKind, Ino, SubvolumeId};
use forebay_volume::{CacheCounts, CreateOptions, OpenOptions, ReadPiece, Volume, create};

const LEN: usize = 900_000;

fn bytes() -> Vec<u8> {
    (0..LEN).map(|at| (at * 31 + at / 253) as u8).collect()
}

fn open(root: &Path) -> Arc<Volume> {
    Volume::open(root, &OpenOptions { background: false, ..OpenOptions::default() }).unwrap()
}

fn write(volume: &Volume) -> Ino {
    let new = NewInode {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Vec::new(),
        xattrs: Vec::new(),
    };
    let inode = volume.namespace().make(SubvolumeId::FIRST, Ino::ROOT, b"file", &new).unwrap();
    volume.write(inode.ino, 0, &bytes(), WriteAttr::default()).unwrap();
    volume.drain(&mut |_| {}).unwrap();
    inode.ino
}

fn check(volume: &Volume, ino: Ino) {
    assert_eq!(volume.namespace().inode(SubvolumeId::FIRST, ino).unwrap().row.size, LEN as u64);
    let pieces = volume.read(ino, 0, LEN as u32).unwrap();
    let bytes_of = |piece: ReadPiece| match piece {
        ReadPiece::Bytes(bytes) => bytes.to_vec(),
        ReadPiece::Zeros(len) => vec![0; len],
    };
    assert!(pieces.into_iter().flat_map(bytes_of).eq(bytes()));
}

fn counts(volume: &Volume, name: &str) -> CacheCounts {
    volume.cache_counts().into_iter().find(|counts| counts.name == name).unwrap()
}

#[test]
fn an_emptied_memory_finds_nothing_and_reads_right() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    create(&root, &CreateOptions::default()).unwrap();
    let ino = write(&open(&root));
    let volume = open(&root);
    check(&volume, ino);
    let first = counts(&volume, "memory");
    assert!(first.misses > 0 && first.used_bytes >= LEN as u64, "{first:?}");
    check(&volume, ino);
    let second = counts(&volume, "memory");
    assert!(second.hits > first.hits && second.misses == first.misses, "{second:?}");
    assert_eq!(volume.empty_caches().len(), 2);
    assert_eq!(counts(&volume, "memory").used_bytes, 0);
    check(&volume, ino);
    let third = counts(&volume, "memory");
    assert_eq!(third.misses, 2 * first.misses, "{third:?}");
}

#[test]
fn an_emptied_disk_cache_asks_the_store_again() {
    let dir = tempfile::tempdir().unwrap();
    let (root, store) = (dir.path().join("volume"), dir.path().join("store"));
    let store = format!("file://{}", store.display()).parse().unwrap();
    create(&root, &CreateOptions { store: Some(store), ..CreateOptions::default() }).unwrap();
    // A store that is a directory has one only where it is asked for.
    let cache_dir = Some(dir.path().join("cache"));
    let options = OpenOptions { background: false, cache_dir, ..OpenOptions::default() };
    let volume = Volume::open(&root, &options).unwrap();
    let ino = write(&volume);
    assert!(volume.empty_caches().contains(&"contents on disk"));
    assert_eq!(counts(&volume, "disk").used_bytes, 0);
    let before = counts(&volume, "disk");
    check(&volume, ino);
    let after = counts(&volume, "disk");
    assert!(after.misses > before.misses && after.used_bytes > 0, "{after:?}");
}

#[test]
fn a_store_in_a_directory_is_read_without_a_copy_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (root, store) = (dir.path().join("volume"), dir.path().join("store"));
    let store = format!("file://{}", store.display()).parse().unwrap();
    create(&root, &CreateOptions { store: Some(store), ..CreateOptions::default() }).unwrap();
    let ino = write(&open(&root));
    let volume = open(&root);
    check(&volume, ino);
    assert!(volume.cache_counts().iter().all(|counts| counts.name == "memory"));
    assert!(!volume.paths().cache().exists());
}
