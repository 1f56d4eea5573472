//! What the embedded engine costs below everything else: rows of a million files in checkpoints, small checkpoints, reads, removal, bytes.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{fs, os::unix::fs::MetadataExt, path::Path, time::Instant};

use forebay_format::{
    key::{Item, dentries},
    row::{DentryRow, Extent, InodeRow, Layout, Row},
};
use forebay_meta::{Batch, EmbeddedEngine, Engine, Outcome};
use forebay_types::{FileKind, Generation, Ino, SegmentId, SubvolumeId, Timespec};

const V: SubvolumeId = SubvolumeId::FIRST;
const FILES: u64 = 1_000_000;
const PER_DIRECTORY: u64 = 1000;
/// Directories that are filled at a time.
const WIDE: u64 = 16;
const CHECKPOINTS: u64 = 60;

type Rows = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_add(0x9e37_79b9).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ number >> 31
}

/// Directory and number there of the file that is made as the so-and-so-many-th.
fn place(at: u64) -> (u64, u64) {
    let first = at / (WIDE * PER_DIRECTORY) * WIDE;
    let wide = WIDE.min(FILES / PER_DIRECTORY - first);
    let rest = at % (WIDE * PER_DIRECTORY);
    (first + rest % wide, rest / wide)
}

fn keys(at: u64) -> (Vec<u8>, Vec<u8>, Ino, Ino) {
    let (directory, number) = place(at);
    let (parent, ino) = (Ino(2 + directory), Ino::in_run(2 + directory, number as u16));
    let name = format!("{:05x}{number:03x}", mixed(at) & 0xf_ffff);
    let dentry = Item::Dentry(parent, name.into_bytes()).key(V, Generation::FIRST);
    (dentry, Item::Inode(ino).key(V, Generation::FIRST), parent, ino)
}

/// The inode of a file after `age` changes.
fn inode(at: u64, parent: Ino, age: u64) -> Vec<u8> {
    let time = |salt: u64| Timespec {
        secs: 1_763_000_000 + (at / 20_000 + age * 100) as i64,
        nanos: (mixed(at * 8 + salt + age * 77) % 1_000_000_000) as u32,
    };
    let len = 1500 + (mixed(at) % 200_000) as u32;
    let (segment, run_offset) = (SegmentId(1000 + at / 600), at % 600 * 100_000);
    let check = mixed(at ^ 55) as u32;
    let extent =
        Extent { len, segment, run_offset, stored_len: len / 2 + 40, run_len: len, skip: 0, form: 1, check };
    let row = InodeRow {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 1000,
        rdev: 0,
        size: len.into(),
        allocated: len.into(),
        atime: time(0),
        mtime: time(1),
        ctime: time(1),
        btime: time(0),
        parent,
        has_xattrs: false,
        has_cuts: false,
        coherence: forebay_types::Coherence::Coherent,
        policy: forebay_types::PolicyId::NONE,
        layout: Layout::Single(0, 0, extent),
    };
    row.encode()
}

fn commit(engine: &EmbeddedEngine, mut rows: Rows) -> f64 {
    rows.sort();
    rows.dedup_by(|one, next| one.0 == next.0);
    let start = Instant::now();
    assert_eq!(engine.commit(&Batch::of(&rows)).unwrap(), Outcome::Committed);
    start.elapsed().as_secs_f64()
}

/// Bytes that the files in a directory and below take.
fn on_disk(dir: &Path) -> u64 {
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => on_disk(&entry.path()),
        meta => meta.map_or(0, |meta| meta.blocks() * 512),
    };
    fs::read_dir(dir).unwrap().flatten().map(size).sum()
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn show(what: &str, value: f64, unit: &str) {
    println!("{what:<32} {value:>8.2} {unit}");
}

fn show_size(what: &str, engine: &EmbeddedEngine, dir: &Path, files: u64) {
    show(what, engine.size_on_disk() as f64 / files as f64, "bytes a file");
    show("  with log and what is left over", on_disk(dir) as f64 / files as f64, "bytes a file");
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let engine = EmbeddedEngine::open(dir.path()).unwrap();
    let made = |at: u64| {
        let (dentry, key, parent, ino) = keys(at);
        let row = DentryRow { ino, kind: FileKind::Regular }.encode();
        [(dentry, Some(row)), (key, Some(inode(at, parent, 0)))]
    };
    let gone = |at: u64| made(at).map(|(key, _)| (key, None));
    let part = |number: u64| number * FILES / CHECKPOINTS..(number + 1) * FILES / CHECKPOINTS;
    let took: Vec<f64> =
        (0..CHECKPOINTS).map(|number| commit(&engine, part(number).flat_map(made).collect())).collect();
    show("checkpoint of 33,333 rows", middle(took) * 1e3, "ms");
    show_size("as built", &engine, dir.path(), FILES);

    let random = |salt: u64| (0..1000).map(move |number| mixed(salt * 1_000_003 + number) % FILES);
    let changed = |age: u64| {
        commit(&engine, random(age).map(|at| (keys(at).1, Some(inode(at, keys(at).2, age)))).collect())
    };
    show("checkpoint of 1,000 rows", middle((1..=40).map(changed).collect()) * 1e3, "ms");

    engine.settle().unwrap();
    show_size("settled", &engine, dir.path(), FILES);
    let get = |at: u64| {
        let (key, start) = (keys(at).1, Instant::now());
        assert!(engine.get(&key).unwrap().is_some());
        start.elapsed().as_secs_f64() * 1e6
    };
    show("get", middle((0..100).flat_map(random).map(get).collect()), "us");
    let list = |at: u64| {
        let (from, start) = (dentries(V, keys(at).2), Instant::now());
        assert_eq!(engine.scan(&from, None, 1000).unwrap().rows.len(), 1000);
        start.elapsed().as_secs_f64() * 1e6
    };
    show("scan of 1,000 rows", middle(random(0).map(list).collect()), "us");

    let odd = |at: &u64| place(*at).0 % 2 == 1;
    let removed = |number: u64| commit(&engine, part(number).filter(odd).flat_map(gone).collect());
    show("half of the directories removed", (0..CHECKPOINTS).map(removed).sum(), "s");
    show_size("half removed", &engine, dir.path(), FILES / 2);
    engine.settle().unwrap();
    show_size("half removed and settled", &engine, dir.path(), FILES / 2);
}
