use std::{collections::BTreeMap, fs, path::Path};

use forebay_cache::{CacheError, CacheOptions, DiskCache};
use forebay_types::VolumeId;

use crate::store::{Cache, MIB, Store, VOLUME, check, object, open, try_open};

fn listing(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    files.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn refused(result: Result<Cache, CacheError>) -> CacheError {
    result.err().expect("it is refused")
}

#[test]
fn a_directory_of_somebody_else_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["thesis.tex", "slab-00000.chunks", "slab-00099.chunks"] {
        fs::write(dir.path().join(name), b"years of work").unwrap();
    }
    let before = listing(dir.path());
    let error = refused(try_open(dir.path(), MIB, &Store::new()));
    assert!(matches!(&error, CacheError::NotACache { .. }), "{error}");
    assert!(error.to_string().contains(&*dir.path().to_string_lossy()));
    assert_eq!(listing(dir.path()), before);
}

#[test]
fn other_files_in_a_cache_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), MIB, &Store::new()));
    let names = ["notes", "slab-1.chunks", "slab-00001.chunks.bak", "slab-0000x.chunks", "slab--0001.chunks"];
    for name in names {
        fs::write(dir.path().join(name), b"mine").unwrap();
    }
    drop(open(dir.path(), 0, &Store::new()));
    for name in names {
        assert_eq!(fs::read(dir.path().join(name)).unwrap(), b"mine");
    }
    assert!(!dir.path().join("slab-00000.chunks").exists(), "the room of our own is given back");
}

#[test]
fn the_cache_of_another_volume_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), MIB, &Store::new()));
    let before = listing(dir.path());
    let other = VolumeId([6; 16]);
    let result = DiskCache::open(dir.path(), other, 0, Store::new(), CacheOptions::default());
    match refused(result) {
        CacheError::OtherVolume { found, wanted, .. } => assert_eq!((found, wanted), (VOLUME, other)),
        error => panic!("{error}"),
    }
    assert_eq!(listing(dir.path()), before);
}

#[test]
fn two_at_once_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), MIB, &Store::new());
    let error = refused(try_open(dir.path(), MIB, &Store::new()));
    assert!(matches!(&error, CacheError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&*dir.path().to_string_lossy()));
    drop(first);
    open(dir.path(), MIB, &Store::new());
}

#[test]
fn newer_and_damaged_markers_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path(), MIB, &Store::new()));
    let marker = dir.path().join("forebay-cache");
    let right = fs::read(&marker).unwrap();

    let mut newer = right.clone();
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..32]);
    newer[32..].copy_from_slice(&crc.to_le_bytes());
    fs::write(&marker, &newer).unwrap();
    let error = refused(try_open(dir.path(), MIB, &Store::new()));
    assert!(matches!(error, CacheError::Newer { found: 2, known: 1, .. }), "{error}");

    for bit in 0..right.len() * 8 {
        let mut wrong = right.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        fs::write(&marker, &wrong).unwrap();
        let error = refused(try_open(dir.path(), MIB, &Store::new()));
        assert!(matches!(error, CacheError::Damaged { .. }), "{error}");
    }
    for len in 0..right.len() {
        fs::write(&marker, &right[..len]).unwrap();
        assert!(matches!(refused(try_open(dir.path(), MIB, &Store::new())), CacheError::Damaged { .. }));
    }
    fs::write(&marker, &right).unwrap();
    open(dir.path(), MIB, &Store::new());
}

#[test]
fn an_interrupted_first_opening_is_taken_up() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("lock"), b"").unwrap();
    fs::write(dir.path().join("forebay-cache.new"), b"torn").unwrap();
    check(&open(dir.path(), MIB, &Store::new()), object(1), 100, 0..100);
}

#[test]
fn a_path_that_cannot_be_a_directory_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, b"").unwrap();
    let error = refused(try_open(&path, MIB, &Store::new()));
    assert!(error.to_string().contains(&*path.to_string_lossy()), "{error}");
    open(&dir.path().join("a/b/c"), MIB, &Store::new());
}
