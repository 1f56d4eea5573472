//! What one operation of the namespace costs: microseconds each, with a log that keeps nothing and the embedded engine below.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use forebay_env::SystemClock;
use forebay_format::record::Changes;
use forebay_meta::{
    Append, EmbeddedEngine, Engine, ExtentSource, Log, LogError, Namespace, NewExtent, NewInode, Place,
    RenameMode, Urgency, WriteAttr,
};
use forebay_types::{Epoch, FileKind, Ino, SegmentId, Sequence, SubvolumeId};

const V: SubvolumeId = SubvolumeId::FIRST;
const FILES: u64 = 50_000;
const DIRECTORIES: u64 = 50;

struct NullLog(AtomicU64);

struct NullAppend<'a>(&'a NullLog);

impl Append for NullAppend<'_> {
    fn place(&self) -> Place {
        Place { segment: SegmentId(1), offset: self.0.0.load(Ordering::Relaxed) * 8192 }
    }

    fn commit(self: Box<Self>, changes: &Changes) -> Sequence {
        let mut bytes = Vec::with_capacity(256);
        changes.encode_to(&mut bytes);
        Sequence(self.0.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Log for NullLog {
    fn begin<'a>(&'a self, _: &'a [u8], _: Urgency) -> Result<Box<dyn Append + 'a>, LogError> {
        Ok(Box::new(NullAppend(self)))
    }

    fn write_out(&self) {}
}

fn timed(what: &str, count: u64, mut work: impl FnMut(u64)) {
    let start = Instant::now();
    (0..count).for_each(&mut work);
    println!("{what:<28} {:>8.2} us", start.elapsed().as_secs_f64() * 1e6 / count as f64);
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(EmbeddedEngine::open(dir.path()).unwrap());
    Namespace::format(engine.as_ref(), &SystemClock, 0, 0, 0o755).unwrap();
    let log = Arc::new(NullLog(AtomicU64::new(0)));
    let numbers = Arc::new(AtomicU64::new(2));
    let ns = Namespace::open(engine.clone(), log, Arc::new(SystemClock), 4 << 20, Epoch(1), numbers).unwrap();
    let new = |kind| NewInode { kind, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: vec![], xattrs: vec![] };
    let make = |parent, name: String, kind| ns.make(V, parent, name.as_bytes(), &new(kind)).unwrap().ino;
    let name = |number: u64| format!("file-{number:06}");
    let directories: Vec<Ino> =
        (0..DIRECTORIES).map(|at| make(Ino::ROOT, format!("d{at}"), FileKind::Directory)).collect();
    let parent = |number: u64| directories[(number % DIRECTORIES) as usize];
    let store = || ns.checkpoint().unwrap().map(|checkpoint| checkpoint.store().unwrap());
    let lookup = |number| drop(ns.lookup(V, parent(number), name(number).as_bytes()).unwrap());

    let mixed = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(32) as u32;

    let mut inodes = Vec::new();
    timed("make", FILES, |number| inodes.push(make(parent(number), name(number), FileKind::Regular)));
    timed("write 4 KiB in a record", FILES, |number| {
        let source = ExtentSource::Record(0);
        let new = NewExtent { offset: 0, len: 4096, source, stored_len: 4120, form: 0, check: mixed(number) };
        ns.write(V, inodes[number as usize], &[new], &[], 0, WriteAttr::default()).unwrap();
    });
    timed("lookup, pending", FILES, lookup);
    timed("checkpoint of all this", 1, |_| assert!(store().is_some()));
    engine.settle().unwrap();
    println!("{:<28} {:>8}", "bytes a file on disk", engine.size_on_disk() / FILES);
    timed("lookup, from the engine", FILES, lookup);
    timed("lookup of no name", FILES, |number| {
        assert!(ns.lookup(V, parent(number), b"no such name").is_err());
    });
    timed("inode, cached", FILES, |number| drop(ns.inode(V, inodes[number as usize]).unwrap()));
    timed("entries, a directory", DIRECTORIES, |number| {
        let mut after = None::<Vec<u8>>;
        while let Some(last) = ns.entries(V, parent(number), after.as_deref(), 256).unwrap().pop() {
            after = Some(last.name);
        }
    });
    let random = |number: u64| (number.wrapping_mul(0x9e37_79b9) % 100_000) * 4096;
    timed("random write to one file", FILES, |number| {
        let source = ExtentSource::Record(0);
        let new = NewExtent {
            offset: random(number),
            len: 4096,
            source,
            stored_len: 4120,
            form: 0,
            check: mixed(number),
        };
        ns.write(V, inodes[0], &[new], &[], 0, WriteAttr::default()).unwrap();
    });
    timed("map of 4 KiB of it", FILES, |number| drop(ns.map(V, inodes[0], random(number), 4096).unwrap()));
    timed("rename", FILES, |number| {
        let (old, new) = (name(number), format!("moved-{number}"));
        let (from, to) = ((parent(number), old.as_bytes()), (parent(number), new.as_bytes()));
        ns.rename(V, from, to, RenameMode::Replace, &|_| false).unwrap();
    });
    timed("unlink", FILES, |number| {
        ns.unlink(V, parent(number), format!("moved-{number}").as_bytes(), &|_| false).unwrap();
    });
    timed("checkpoint, all removed", 1, |_| assert!(store().is_some()));
}
