//! A volume's life on one machine: written, sealed, stored, compacted, closed, dropped as by a crash, and opened again.

#![allow(clippy::unwrap_used)]

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_meta::{NewInode, SetAttr, WriteAttr};
use forebay_types::{Compression, Encryption, FileKind, Ino, SubvolumeId};
use forebay_volume::{CreateOptions, OpenOptions, ReadPiece, Volume, create};

const AT: SubvolumeId = SubvolumeId::FIRST;

fn by_hand() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

fn file() -> NewInode {
    NewInode {
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Vec::new(),
        xattrs: Vec::new(),
    }
}

/// Bytes that tell where they belong.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

fn read(volume: &Volume, ino: Ino) -> Vec<u8> {
    let size = volume.namespace().inode(AT, ino).unwrap().row.size;
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < size {
        for piece in volume.read(ino, at, 1 << 20).unwrap() {
            match piece {
                ReadPiece::Bytes(piece) => bytes.extend_from_slice(&piece),
                ReadPiece::Zeros(len) => bytes.resize(bytes.len() + len, 0),
            }
        }
        at = bytes.len() as u64;
    }
    bytes
}

fn fill(volume: &Volume) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut expected = Vec::new();
    for (index, len) in [0, 1, 1000, 1024, 1025, 5000, 70_000, 200_000, 5 << 20].into_iter().enumerate() {
        let name = format!("file{index}").into_bytes();
        let inode = volume.namespace().make(AT, Ino::ROOT, &name, &file()).unwrap();
        let bytes = pattern(index as u64, len);
        for (part, chunk) in bytes.chunks(1 << 20).enumerate() {
            volume.write(inode.ino, (part << 20) as u64, chunk, WriteAttr::default()).unwrap();
        }
        expected.push((name, bytes));
    }
    expected
}

fn check(volume: &Volume, expected: &[(Vec<u8>, Vec<u8>)]) {
    for (name, bytes) in expected {
        let inode = volume.namespace().lookup(AT, Ino::ROOT, name).unwrap();
        let found = read(volume, inode.ino);
        assert!(found == *bytes, "{} differs ({} bytes)", name.escape_ascii(), bytes.len());
    }
}

fn new_volume(root: &Path, options: &CreateOptions) -> Arc<Volume> {
    create(root, options).unwrap();
    Volume::open(root, &by_hand()).unwrap()
}

#[test]
fn data_survives_every_step_of_its_way() {
    for encryption in [Encryption::None, Encryption::Aes256Gcm] {
        for compression in [Compression::Lz4, Compression::Zstd, Compression::None] {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().join("volume");
            let volume =
                new_volume(&root, &CreateOptions { encryption, compression, ..CreateOptions::default() });
            let expected = fill(&volume);
            check(&volume, &expected);
            volume.sync().unwrap();
            drop(volume);

            let volume = Volume::open(&root, &by_hand()).unwrap();
            check(&volume, &expected);
            volume.checkpoint_now().unwrap();
            check(&volume, &expected);
            volume.seal_all().unwrap();
            check(&volume, &expected);
            volume.store_all().unwrap();
            volume.checkpoint_now().unwrap();
            check(&volume, &expected);
            assert_eq!(volume.dirty_bytes(), 0);
            drop(volume);

            let volume = Volume::open(&root, &by_hand()).unwrap();
            check(&volume, &expected);
            volume.drain(&mut |_| {}).unwrap();
            volume.close().unwrap();
            drop(volume);
            assert_eq!(std::fs::read_dir(root.join("staging")).unwrap().count(), 0);

            let volume = Volume::open(&root, &by_hand()).unwrap();
            check(&volume, &expected);
        }
    }
}

#[test]
fn what_nobody_refers_to_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root, &CreateOptions::default());
    let expected = fill(&volume);
    volume.drain(&mut |_| {}).unwrap();
    assert!(volume.status().objects > 0);
    for (name, _) in &expected {
        volume.namespace().unlink(AT, Ino::ROOT, name, &|_| false).unwrap();
    }
    for _ in 0..3 {
        volume.drain(&mut |_| {}).unwrap();
    }
    let status = volume.status();
    assert_eq!((status.live_bytes, status.objects), (0, 0));
    assert_eq!(volume.namespace().garbage().unwrap(), Vec::new());
    assert!(
        !root.join("objects/data").exists()
            || std::fs::read_dir(root.join("objects/data")).unwrap().count() == 0
    );
}

#[test]
fn compaction_keeps_every_byte() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root, &CreateOptions::default());
    let mut expected = Vec::new();
    for index in 0..200u64 {
        let name = format!("file{index}").into_bytes();
        let inode = volume.namespace().make(AT, Ino::ROOT, &name, &file()).unwrap();
        let bytes = pattern(index, 400_000);
        volume.write(inode.ino, 0, &bytes, WriteAttr::default()).unwrap();
        expected.push((name, bytes));
    }
    volume.drain(&mut |_| {}).unwrap();
    let before = volume.status();
    for (index, (name, bytes)) in expected.iter_mut().enumerate() {
        let ino = volume.namespace().lookup(AT, Ino::ROOT, name).unwrap().ino;
        if index % 5 != 0 {
            *bytes = pattern(1000 + index as u64, 400_000);
            volume.write(ino, 0, bytes, WriteAttr::default()).unwrap();
        }
    }
    for _ in 0..6 {
        volume.drain(&mut |_| {}).unwrap();
        volume.compact().unwrap();
    }
    volume.drain(&mut |_| {}).unwrap();
    check(&volume, &expected);
    let after = volume.status();
    assert!(after.garbage_bytes < after.live_bytes / 2, "{before:?} {after:?}");
    let done = &after.upkeep;
    assert!(done.compacted_objects > 0 && done.deleted_objects > 0, "{done:?}");
    // What stayed as it was is a fifth of the files; each is moved once at least.
    assert!(done.compacted_bytes >= 40 * 400_000, "{done:?}");
    assert_eq!(before.upkeep.deleted_objects, 0);
    drop(volume);
    check(&Volume::open(&root, &by_hand()).unwrap(), &expected);
}

/// A stream that has its footer, with the record of that lost, is stored all the same.
#[test]
fn a_stream_sealed_just_before_a_stop_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (root, copy) = (dir.path().join("volume"), dir.path().join("copy"));
    let volume = new_volume(&root, &CreateOptions::default());
    let inode = volume.namespace().make(AT, Ino::ROOT, b"file", &file()).unwrap();
    let bytes = pattern(1, 1 << 20);
    volume.write(inode.ino, 0, &bytes, WriteAttr::default()).unwrap();
    volume.sync().unwrap();
    let copied = |from: &Path, to: &Path| {
        let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
        assert!(status.success());
    };
    copied(&root, &copy);
    volume.seal_all().unwrap();
    let stream = std::fs::read_dir(root.join("staging")).unwrap().next().unwrap().unwrap();
    std::fs::copy(stream.path(), copy.join("staging").join(stream.file_name())).unwrap();
    drop(volume);

    let volume = Volume::open(&copy, &by_hand()).unwrap();
    volume.drain(&mut |_| {}).unwrap();
    assert_eq!(volume.dirty_bytes(), 0);
    assert_eq!(read(&volume, inode.ino), bytes);
}

/// What the store has stays in the journal's eyes until a checkpoint says so: two stops one after the other lose nothing.
#[test]
fn two_stops_before_a_checkpoint_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root, &CreateOptions::default());
    let expected = fill(&volume);
    volume.sync().unwrap();
    volume.seal_all().unwrap();
    volume.store_all().unwrap();
    volume.sync().unwrap();
    drop(volume);
    for _ in 0..3 {
        drop(Volume::open(&root, &by_hand()).unwrap());
    }
    let volume = Volume::open(&root, &by_hand()).unwrap();
    check(&volume, &expected);
    volume.drain(&mut |_| {}).unwrap();
    check(&volume, &expected);
    assert_eq!(std::fs::read_dir(root.join("staging")).unwrap().count(), 0);
}

/// A tiny file that a truncation made huge is copied in pieces, not through memory, and never taken for empty.
#[test]
fn a_tiny_file_made_huge_is_copied_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let volume = new_volume(&dir.path().join("volume"), &CreateOptions::default());
    let [source, target] =
        [b"source", b"target"].map(|name| volume.namespace().make(AT, Ino::ROOT, name, &file()).unwrap().ino);
    volume.write(source, 0, b"tiny", WriteAttr::default()).unwrap();
    let huge = forebay_meta::SetAttr { size: Some(1 << 32), ..forebay_meta::SetAttr::default() };
    volume.set_attr(source, &huge).unwrap();
    let copied = volume.copy_range((source, 0), (target, 0), 1 << 32, WriteAttr::default()).unwrap();
    assert!((4..=1 << 20).contains(&copied), "{copied}");
    assert!(read(&volume, target).starts_with(b"tiny\0"));
}

#[test]
fn a_large_file_that_is_cut_is_cleaned_after_stops_in_between() {
    const EXTENTS: u64 = 1500;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    let volume = new_volume(&root, &CreateOptions::default());
    let ino = volume.namespace().make(AT, Ino::ROOT, b"large", &file()).unwrap().ino;
    for index in 0..EXTENTS {
        volume.write(ino, index * 8192, &pattern(index, 1000), WriteAttr::default()).unwrap();
    }
    volume.drain(&mut |_| {}).unwrap();
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    volume.set_attr(ino, &size(300)).unwrap();
    volume.set_attr(ino, &size(EXTENTS * 8192)).unwrap();
    let mut expected = vec![0; EXTENTS as usize * 8192];
    expected[..300].copy_from_slice(&pattern(0, 1000)[..300]);
    let at = 9 << 20;
    let fresh = pattern(99, 2000);
    volume.write(ino, at as u64, &fresh, WriteAttr::default()).unwrap();
    expected[at..at + 2000].copy_from_slice(&fresh);
    assert_eq!(volume.status().uncleaned_files, 1);
    assert!(read(&volume, ino) == expected);
    volume.sync().unwrap();
    drop(volume);

    let volume = Volume::open(&root, &by_hand()).unwrap();
    assert!(read(&volume, ino) == expected);
    volume.namespace().clean(AT, ino).unwrap();
    assert!(read(&volume, ino) == expected);
    volume.close().unwrap();
    drop(volume);

    let volume = Volume::open(&root, &by_hand()).unwrap();
    assert!(read(&volume, ino) == expected);
    volume.drain(&mut |_| {}).unwrap();
    assert!(read(&volume, ino) == expected);
    let status = volume.status();
    assert_eq!((status.uncleaned_files, status.live_bytes), (0, 2300));
    assert!(volume.namespace().orphans().unwrap().is_empty());
    volume.namespace().unlink(AT, Ino::ROOT, b"large", &|_| false).unwrap();
    volume.drain(&mut |_| {}).unwrap();
    assert_eq!(volume.status().live_bytes, 0);
}

#[test]
fn background_work_removes_a_large_file() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("volume");
    create(&root, &CreateOptions::default()).unwrap();
    let volume = Volume::open(&root, &OpenOptions::default()).unwrap();
    let ino = volume.namespace().make(AT, Ino::ROOT, b"large", &file()).unwrap().ino;
    for index in 0..1500 {
        volume.write(ino, index * 8192, &pattern(index, 1100), WriteAttr::default()).unwrap();
    }
    let removed = volume.namespace().unlink(AT, Ino::ROOT, b"large", &|_| false).unwrap();
    assert!(removed.orphan);
    volume.purge(ino);
    let deadline = Instant::now() + Duration::from_secs(300);
    while volume.status().uncleaned_files > 0 || !volume.namespace().orphans().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "it is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(volume.status().live_bytes, 0);
    volume.close().unwrap();
}
