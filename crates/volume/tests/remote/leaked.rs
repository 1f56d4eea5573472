//! Objects that no row names: found, deleted once nothing can need them, and never one that something does.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use forebay_object::{
    Backend, ETag, Expected, Fault, Meta, ObjectError, ObjectStore, Operation, Page, PutOutcome, StoreUrl,
};
use forebay_types::{Durability, Encryption, Sequence};
use forebay_volume::{Leaked, Volume, VolumeError, fsck::survey};
use parking_lot::{Condvar, Mutex};

use crate::world::{Bucket, Machine, Random, files_of, names, pattern};

/// Stores what the machine has, with the answer to the put lost. The key of the object that nobody knows of then.
fn leak(bucket: &Bucket, machine: &Machine) -> String {
    let before = bucket.keys("data");
    bucket.faulty.plan(Operation::PutNewFile, Fault::LoseAnswer);
    machine.volume().seal_all().unwrap();
    let error = machine.volume().store_all().unwrap_err();
    assert!(matches!(error, VolumeError::Object(_)), "{error}");
    let mut new = bucket.keys("data");
    new.retain(|key| !before.contains(key));
    assert_eq!(new.len(), 1);
    new.remove(0)
}

fn drain(machine: &Machine) {
    machine.volume().drain(&mut |_| {}).unwrap();
}

fn counts(leaked: Leaked) -> (u64, u64, u64) {
    (leaked.listed, leaked.objects, leaked.kept)
}

#[test]
fn an_object_whose_put_was_never_answered_is_found_and_deleted() {
    for durability in [Durability::Local, Durability::Object] {
        let mut random = Random(1);
        let mut bucket = Bucket::new(1);
        let mut machine = bucket.create(durability, Encryption::Aes256Gcm);
        machine.write(b"a", 0, &pattern(&mut random, 300_000)).unwrap();
        let lost = leak(&bucket, &machine);
        drain(&machine);
        let size = std::fs::metadata(bucket.path().join(&lost)).unwrap().len();
        let found = machine.volume().leaked().unwrap();
        assert_eq!((counts(found), found.bytes), ((2, 1, 0), size));
        assert!(bucket.path().join(&lost).exists(), "counting deletes nothing");

        assert_eq!(counts(machine.volume().collect_leaked().unwrap()), (2, 1, 0));
        assert!(!bucket.path().join(&lost).exists());
        assert_eq!(bucket.keys("data").len(), 1);
        assert_eq!(counts(machine.volume().collect_leaked().unwrap()), (1, 0, 0));
        let last = machine.volume().namespace().last();
        machine.volume().ship().unwrap();
        machine.lose(&mut bucket, last);
    }
}

#[test]
fn after_the_machine_died_it_is_kept_until_the_bucket_stands_without_the_old_journal() {
    let mut random = Random(2);
    let mut bucket = Bucket::new(2);
    let mut machine = bucket.create(Durability::Object, Encryption::None);
    machine.write(b"a", 0, &pattern(&mut random, 300_000)).unwrap();
    machine.sync().unwrap();
    let lost = leak(&bucket, &machine);
    machine.reopen(&bucket);
    assert!(!bucket.keys("journal").is_empty());
    // A chunk of the last opening may say that a segment is in it.
    assert_eq!(counts(machine.volume().collect_leaked().unwrap()), (1, 1, 1));
    assert!(bucket.path().join(&lost).exists());
    drain(&machine);
    assert_eq!(counts(machine.volume().collect_leaked().unwrap()), (2, 1, 0));
    assert!(!bucket.path().join(&lost).exists());
    let last = machine.volume().namespace().last();
    machine.lose(&mut bucket, last);
}

#[test]
fn what_a_deposed_machine_stored_late_is_deleted_by_its_successor() {
    let mut random = Random(3);
    let mut bucket = Bucket::new(3);
    let mut machine = bucket.create(Durability::Object, Encryption::None);
    machine.write(b"a", 0, &pattern(&mut random, 200_000)).unwrap();
    machine.sync().unwrap();
    drain(&machine);
    let synced = machine.synced;
    machine.write(b"b", 0, &pattern(&mut random, 300_000)).unwrap();
    machine.volume().seal_all().unwrap();
    let mut old = machine.take_over(&mut bucket, synced);
    // Its last look at the owner may be recent enough for a put, or not: what arrives late is the same either way.
    let late = bucket.path().join("data/77/00000001-0000000000000077");
    std::fs::create_dir_all(late.parent().unwrap()).unwrap();
    std::fs::copy(bucket.path().join(&bucket.keys("data")[0]), &late).unwrap();
    old.write(b"c", 0, &pattern(&mut random, 100_000)).unwrap();
    let _it_may_still_pass = old.volume().store_all();

    assert!(matches!(old.volume().collect_leaked(), Err(VolumeError::Fenced { .. })), "it deletes nothing");
    assert!(late.exists());
    drain(&machine);
    let found = machine.volume().collect_leaked().unwrap();
    assert!(found.objects >= 1 && found.kept == 0, "{found:?}");
    assert!(!late.exists());
    assert_eq!(files_of(machine.volume(), &names()), machine.files);
    drop(old);
    let last = machine.volume().namespace().last();
    machine.volume().ship().unwrap();
    machine.lose(&mut bucket, last);
}

#[test]
fn what_is_another_owners_or_strange_is_left_alone() {
    let mut random = Random(4);
    let mut bucket = Bucket::new(4);
    let mut machine = bucket.create(Durability::Local, Encryption::None);
    machine.write(b"a", 0, &pattern(&mut random, 300_000)).unwrap();
    drain(&machine);
    let own = bucket.path().join(&bucket.keys("data")[0]);
    let mut other = Bucket::new(5);
    let mut stranger = other.create(Durability::Local, Encryption::None);
    stranger.write(b"a", 0, &pattern(&mut random, 300_000)).unwrap();
    drain(&stranger);
    let foreign = other.path().join(&other.keys("data")[0]);

    let newer = "data/01/000000ff-0000000000000001";
    let damaged = "data/02/00000000-0000000000000002";
    let strangers = "data/03/00000000-0000000000000003";
    let unknown = "data/README";
    for (key, from) in [(newer, Some(&own)), (damaged, None), (strangers, Some(&foreign)), (unknown, None)] {
        let path = bucket.path().join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match from {
            Some(from) => drop(std::fs::copy(from, &path).unwrap()),
            None => std::fs::write(&path, "something that is no object").unwrap(),
        }
    }
    assert_eq!(counts(machine.volume().collect_leaked().unwrap()), (4, 2, 2));
    for key in [newer, damaged, strangers, unknown] {
        assert!(bucket.path().join(key).exists(), "{key}");
    }
}

#[test]
fn garbage_that_an_older_checkpoint_in_the_bucket_names_is_not_leaked() {
    let mut random = Random(6);
    let mut bucket = Bucket::new(6);
    let mut machine = bucket.create(Durability::Local, Encryption::None);
    machine.write(b"a", 0, &pattern(&mut random, 300_000)).unwrap();
    drain(&machine);
    let shipped = machine.volume().namespace().last();
    let object = bucket.keys("data").remove(0);
    machine.unlink(b"a").unwrap();
    // The rows forget the object; the bucket still has those that name it.
    bucket.faulty.set_away(true);
    for _ in 0..3 {
        let _the_store_is_away = machine.volume().drain(&mut |_| {});
    }
    bucket.faulty.set_away(false);
    assert_eq!(counts(machine.volume().collect_leaked().unwrap()), (1, 0, 0));
    assert!(bucket.path().join(&object).exists());
    machine.lose(&mut bucket, shipped);
    assert_eq!(machine.files.len(), 1, "the file is back, and reads");
}

/// A store in which a put of an object of data is there, and does not return until it may.
#[derive(Debug)]
struct Holding {
    inner: ObjectStore,
    holds: AtomicBool,
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

const PATIENCE: Duration = Duration::from_secs(60);

impl Holding {
    fn wait(&self, until: impl Fn(&(bool, bool)) -> bool) {
        let mut state = self.state.lock();
        assert!(!self.changed.wait_while_for(&mut state, |state| !until(state), PATIENCE).timed_out());
    }

    fn set(&self, change: impl FnOnce(&mut (bool, bool))) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }
}

impl Backend for Holding {
    fn url(&self) -> &StoreUrl {
        self.inner.url()
    }
    fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectError> {
        self.inner.put_new(key, bytes)
    }
    fn put_new_file(&self, key: &str, file: &Path) -> Result<PutOutcome, ObjectError> {
        let put = self.inner.put_new_file(key, file);
        if self.holds.load(Ordering::SeqCst) {
            self.set(|(arrived, _)| *arrived = true);
            self.wait(|(_, released)| *released);
        }
        put
    }
    fn put_if(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<PutOutcome, ObjectError> {
        self.inner.put_if(key, bytes, expected)
    }
    fn get_range(&self, key: &str, range: std::ops::Range<u64>) -> Result<Bytes, ObjectError> {
        self.inner.get_range(key, range)
    }
    fn get(&self, key: &str) -> Result<(Bytes, ETag), ObjectError> {
        self.inner.get(key)
    }
    fn head(&self, key: &str) -> Result<Meta, ObjectError> {
        self.inner.head(key)
    }
    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.inner.delete(key)
    }
    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        self.inner.list(prefix, after)
    }
}

#[test]
fn an_object_on_its_way_is_not_leaked() {
    let mut random = Random(7);
    let mut bucket = Bucket::new(7);
    let mut machine = bucket.create(Durability::Local, Encryption::None);
    machine.write(b"a", 0, &pattern(&mut random, 300_000)).unwrap();
    drain(&machine);
    let expected = machine.files.clone();
    let root = machine.root.clone();
    drop(machine);
    let holding = Arc::new(Holding {
        inner: bucket.store(),
        holds: AtomicBool::new(false),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let mut options = bucket.options();
    options.store = Some(ObjectStore::over(Arc::clone(&holding) as _));
    let volume = Volume::open(&root, &options).unwrap();
    volume.drain(&mut |_| {}).unwrap();
    let ino = volume.namespace().lookup(crate::world::AT, forebay_types::Ino::ROOT, b"a").unwrap().ino;
    let more = pattern(&mut random, 200_000);
    volume.write(ino, 300_000, &more, forebay_meta::WriteAttr::default()).unwrap();
    volume.seal_all().unwrap();
    let listed = bucket.faulty.count(Operation::List);
    holding.holds.store(true, Ordering::SeqCst);
    let found = std::thread::scope(|scope| {
        let storing = scope.spawn(|| volume.store_all());
        holding.wait(|(arrived, _)| *arrived);
        let collecting = scope.spawn(|| volume.collect_leaked());
        let begun = std::time::Instant::now();
        while bucket.faulty.count(Operation::List) == listed {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        // Gives one that does not wait for the record the time to do harm; one that does gets nothing from it.
        for _ in 0..50 {
            if collecting.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        holding.set(|(_, released)| *released = true);
        storing.join().unwrap().unwrap();
        collecting.join().unwrap().unwrap()
    });
    assert_eq!(counts(found), (2, 0, 0));
    assert_eq!(bucket.keys("data").len(), 2);
    let read = files_of(&volume, &names());
    assert_eq!(read[&b"a"[..]][..300_000], expected[&b"a"[..]][..]);
    assert_eq!(read[&b"a"[..]][300_000..], more[..]);
}

#[test]
fn looking_at_a_closed_volume_changes_nothing_and_says_what_is_there() {
    let mut random = Random(8);
    let mut bucket = Bucket::new(8);
    let mut machine = bucket.create(Durability::Object, Encryption::Aes256Gcm);
    machine.write(b"a", 0, &pattern(&mut random, 300_000)).unwrap();
    let lost = leak(&bucket, &machine);
    drain(&machine);
    machine.write(b"b", 0, &pattern(&mut random, 20_000)).unwrap();
    machine.sync().unwrap();
    std::fs::write(bucket.path().join(".forebay/put/0123"), vec![7; 1000]).unwrap();
    let (open, last) = (machine.volume().status(), machine.volume().namespace().last());
    let root = machine.root.clone();
    drop(machine);
    let before = (tree(&root), tree(&bucket.path()));
    let found = survey(&root, true).unwrap();
    assert!((tree(&root), tree(&bucket.path())) == before, "looking changed something");
    assert_eq!((Sequence(found.journal_last), found.complete), (last, true));
    let totals = found.totals;
    assert_eq!((totals.segments, totals.dirty_segments), (open.segments, open.dirty_segments));
    assert_eq!((totals.live_bytes, totals.dirty_bytes), (open.live_bytes, open.dirty_bytes));
    assert_eq!((totals.objects, totals.stored_bytes), (open.objects, open.stored_bytes));
    assert_eq!((totals.garbage_bytes, totals.journal_bytes), (open.garbage_bytes, open.journal_bytes));
    assert_eq!(found.totals.live_bytes, 320_000);
    assert_eq!(found.totals.dirty_bytes, 20_000);
    let leaked = found.leaked.unwrap();
    let size = std::fs::metadata(bucket.path().join(&lost)).unwrap().len();
    assert_eq!((counts(leaked), leaked.bytes), ((2, 1, 0), size));
    assert_eq!((leaked.files, leaked.file_bytes), (1, 1000));
    assert_eq!((survey(&root, false).unwrap().leaked, found.taken_over_by), (None, None));

    let kept = bucket.path().join("../kept");
    std::fs::copy(root.join("key"), &kept).unwrap();
    let (_elsewhere, volume, _) = bucket.recover(Some(kept));
    assert_eq!(survey(&root, true).unwrap().taken_over_by, Some(volume.epoch().0));
    volume.drain(&mut |_| {}).unwrap();
    let collected = volume.collect_leaked().unwrap();
    assert_eq!((collected.objects, collected.kept, collected.files), (1, 0, 1));
    assert!(!bucket.path().join(lost).exists() && !bucket.path().join(".forebay/put/0123").exists());
}

/// Paths, times and contents of all files.
fn tree(dir: &Path) -> Vec<(std::path::PathBuf, std::time::SystemTime, Vec<u8>)> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        files.push((dir.clone(), std::fs::metadata(&dir).unwrap().modified().unwrap(), Vec::new()));
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => dirs.push(path),
                path => {
                    let modified = entry.metadata().unwrap().modified().unwrap();
                    let bytes = std::fs::read(&path).unwrap();
                    files.push((path, modified, bytes));
                }
            }
        }
    }
    files.sort();
    files
}
