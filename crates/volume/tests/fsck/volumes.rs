//! Volumes to be checked.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use forebay_meta::{NewInode, SetXattr, WriteAttr};
use forebay_types::{FileKind, Ino, SubvolumeId};
use forebay_volume::{
    CreateOptions, OpenOptions, Volume, create,
    fsck::{FsckOptions, Report, check},
};
use tempfile::TempDir;

pub const AT: SubvolumeId = SubvolumeId::FIRST;
pub const BLOCK: u32 = 256 << 10;

pub fn by_hand() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

pub fn open(root: &Path) -> Arc<Volume> {
    Volume::open(root, &by_hand()).unwrap()
}

pub fn new_volume(root: &Path) -> Arc<Volume> {
    create(root, &CreateOptions { block_size: BLOCK, ..CreateOptions::default() }).unwrap();
    open(root)
}

pub fn node(kind: FileKind) -> NewInode {
    NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: Vec::new(), xattrs: Vec::new() }
}

pub fn make(volume: &Volume, parent: Ino, name: &str, kind: FileKind) -> Ino {
    volume.namespace().make(AT, parent, name.as_bytes(), &node(kind)).unwrap().ino
}

pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub fn write(volume: &Volume, ino: Ino, offset: u64, seed: u64, len: usize) {
    volume.write(ino, offset, &pattern(seed, len), WriteAttr::default()).unwrap();
}

pub fn file(volume: &Volume, parent: Ino, name: &str, len: usize) -> Ino {
    let ino = make(volume, parent, name, FileKind::Regular);
    if len > 0 {
        write(volume, ino, 0, ino.0, len);
    }
    ino
}

/// A volume with everything that a volume can have, closed:
///
/// stored `/dir/single` (one extent), `/many` (three blocks), `/big`; `/dir/inline`, `/dir/inner/leaf`, `/link`, `/hard1` = `/hard2`, `/attrs`;
/// sealed and not stored `/sealed` (a stream), `/packed`; `/staged` in an open stream and `/fresh` in the journal; a snapshot of generation 1
/// and a clone of it.
fn fill(root: &Path) {
    let volume = new_volume(root);
    let ns = volume.namespace();
    let dir = make(&volume, Ino::ROOT, "dir", FileKind::Directory);
    let inner = make(&volume, dir, "inner", FileKind::Directory);
    file(&volume, inner, "leaf", 10);
    let inline = file(&volume, dir, "inline", 200);
    let single = file(&volume, dir, "single", 5000);
    file(&volume, Ino::ROOT, "many", 600_000);
    file(&volume, Ino::ROOT, "big", 200_000);
    let link = NewInode { target: b"dir/inline".to_vec(), ..node(FileKind::Symlink) };
    ns.make(AT, Ino::ROOT, b"link", &link).unwrap();
    let hard = file(&volume, Ino::ROOT, "hard1", 500);
    ns.link(AT, hard, Ino::ROOT, b"hard2").unwrap();
    let attrs = file(&volume, Ino::ROOT, "attrs", 0);
    ns.set_xattr(AT, attrs, b"user.one", b"1", SetXattr::Any).unwrap();
    volume.drain(&mut |_| {}).unwrap();
    let frozen = ns.take_snapshot(AT).unwrap();
    write(&volume, inline, 0, 77, 100);
    write(&volume, single, 100, 78, 100);
    let clone = ns.clone_snapshot(AT, frozen).unwrap();
    ns.make(clone, Ino::ROOT, b"of-the-clone", &node(FileKind::Regular)).unwrap();
    volume.drain(&mut |_| {}).unwrap();
    file(&volume, Ino::ROOT, "sealed", 200_000);
    file(&volume, Ino::ROOT, "packed", 5000);
    volume.seal_all().unwrap();
    file(&volume, Ino::ROOT, "staged", 200_000);
    file(&volume, Ino::ROOT, "fresh", 5000);
    volume.close().unwrap();
    drop(volume);
    shorten_journal(root);
    let reserve = root.join("meta/reserve");
    if reserve.exists() {
        fs::remove_file(reserve).unwrap();
    }
}

/// Takes away the space that the journal has in reserve, so that copies are small.
fn shorten_journal(root: &Path) {
    for entry in fs::read_dir(root.join("journal")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() == "spare" {
            fs::remove_file(&path).unwrap();
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        fs::write(&path, &bytes[..len]).unwrap();
    }
}

static TEMPLATE: OnceLock<TempDir> = OnceLock::new();

/// A copy of the volume with everything, in a directory of its own.
pub fn full() -> (TempDir, PathBuf) {
    let template = TEMPLATE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        fill(&dir.path().join("volume"));
        dir
    });
    let dir = tempfile::tempdir().unwrap();
    copy(template.path(), dir.path());
    let root = dir.path().join("volume");
    (dir, root)
}

pub fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Names, lengths and checksums of all files below a directory.
pub fn fingerprint(root: &Path) -> Vec<(PathBuf, u64, u32)> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                found.push((path, bytes.len() as u64, crc32c::crc32c(&bytes)));
            }
        }
    }
    found.sort();
    found
}

pub fn looked_at(root: &Path) -> Report {
    let options = FsckOptions { data: true, ..FsckOptions::default() };
    check(root, &options, &mut |_| {}).unwrap()
}
