//! What is asked of the bucket for a reader who goes on, one who jumps, and one of many small files.

use std::{
    collections::BTreeSet,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forebay_meta::WriteAttr;
use forebay_object::{Backend, ETag, Expected, Meta, ObjectError, ObjectStore, Page, PutOutcome, StoreUrl};
use forebay_types::{Durability, Encryption, Ino};
use forebay_volume::{OpenOptions, ReadPiece, Volume};
use parking_lot::{Condvar, Mutex};

use crate::world::{AT, Bucket, Random, file};

const MIB: usize = 1 << 20;
const KIB: u64 = 1 << 10;

#[derive(Debug, Default)]
struct Seen {
    ranges: Vec<Range<u64>>,
    /// Objects of data whose length was asked for.
    lengths: Vec<String>,
    in_flight: usize,
    most: usize,
    /// Range reads of data wait until so many are in flight.
    gate: usize,
}

/// A store that notes the range reads of data, and holds them until several are under way.
#[derive(Debug)]
struct Gauge {
    inner: ObjectStore,
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Gauge {
    fn take(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.seen.lock().ranges)
    }

    fn enter(&self, range: &Range<u64>) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut seen = self.seen.lock();
        seen.ranges.push(range.clone());
        seen.in_flight += 1;
        seen.most = seen.most.max(seen.in_flight);
        self.changed.notify_all();
        while seen.most < seen.gate && !self.changed.wait_until(&mut seen, deadline).timed_out() {}
    }
}

impl Backend for Gauge {
    fn url(&self) -> &StoreUrl {
        self.inner.url()
    }
    fn put_new(&self, key: &str, bytes: Bytes) -> Result<PutOutcome, ObjectError> {
        self.inner.put_new(key, bytes)
    }
    fn put_new_file(&self, key: &str, file: &Path) -> Result<PutOutcome, ObjectError> {
        self.inner.put_new_file(key, file)
    }
    fn put_if(&self, key: &str, bytes: Bytes, expected: &Expected) -> Result<PutOutcome, ObjectError> {
        self.inner.put_if(key, bytes, expected)
    }
    fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ObjectError> {
        if !key.starts_with("data/") {
            return self.inner.get_range(key, range);
        }
        self.enter(&range);
        let got = self.inner.get_range(key, range);
        self.seen.lock().in_flight -= 1;
        got
    }
    fn get(&self, key: &str) -> Result<(Bytes, ETag), ObjectError> {
        self.inner.get(key)
    }
    fn head(&self, key: &str) -> Result<Meta, ObjectError> {
        if key.starts_with("data/") {
            self.seen.lock().lengths.push(key.to_owned());
            // As long as a store elsewhere takes: others ask meanwhile.
            std::thread::sleep(Duration::from_millis(20));
        }
        self.inner.head(key)
    }
    fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.inner.delete(key)
    }
    fn list(&self, prefix: &str, after: Option<&str>) -> Result<Page, ObjectError> {
        self.inner.list(prefix, after)
    }
}

/// A volume whose files are in the bucket alone, opened over a gauge with an empty cache.
struct Far {
    volume: Arc<Volume>,
    gauge: Arc<Gauge>,
    root: std::path::PathBuf,
    _bucket: Bucket,
}

impl Far {
    fn with(seed: u64, files: &[(Vec<u8>, Vec<u8>)]) -> Far {
        let mut bucket = Bucket::new(seed);
        let machine = bucket.create(Durability::Local, Encryption::None);
        let volume = machine.volume();
        for (name, content) in files {
            let ino = volume.namespace().make(AT, Ino::ROOT, name, &file()).unwrap().ino;
            for (index, part) in content.chunks(MIB).enumerate() {
                volume.write(ino, (index * MIB) as u64, part, WriteAttr::default()).unwrap();
            }
        }
        volume.drain(&mut |_| {}).unwrap();
        drop(machine);
        let (root, volume, _) = bucket.recover(None);
        drop(volume);
        let (seen, changed) = (Mutex::default(), Condvar::new());
        let gauge = Arc::new(Gauge { inner: bucket.store(), seen, changed });
        let volume = open(&root, &gauge);
        Far { volume, gauge, root, _bucket: bucket }
    }

    /// Opens it again, with the cache on disk as it is.
    fn reopened(self) -> Far {
        let Far { volume, gauge, root, _bucket } = self;
        volume.close().unwrap();
        drop(volume);
        let volume = open(&root, &gauge);
        gauge.take();
        Far { volume, gauge, root, _bucket }
    }

    fn ino(&self, name: &[u8]) -> Ino {
        self.volume.namespace().lookup(AT, Ino::ROOT, name).unwrap().ino
    }

    fn read(&self, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in self.volume.read(ino, offset, len as u32).unwrap() {
            match piece {
                ReadPiece::Bytes(piece) => bytes.extend_from_slice(&piece),
                ReadPiece::Zeros(len) => bytes.resize(bytes.len() + len, 0),
            }
        }
        bytes
    }
}

fn open(root: &Path, gauge: &Arc<Gauge>) -> Arc<Volume> {
    let store = Some(ObjectStore::over(Arc::clone(gauge) as Arc<dyn Backend>));
    let options = OpenOptions { background: false, cache_size: 1 << 30, store, ..OpenOptions::default() };
    Volume::open(root, &options).unwrap()
}

/// Bytes that do not compress.
fn noise(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

#[test]
fn a_sequential_reader_has_several_requests_under_way() {
    let content = noise(&mut Random(20), 40 * MIB);
    let far = Far::with(20, &[(b"big".to_vec(), content.clone())]);
    let ino = far.ino(b"big");
    for at in (0..content.len()).step_by(MIB / 4) {
        if at == 8 * MIB {
            let mut seen = far.gauge.seen.lock();
            (seen.most, seen.gate) = (0, 4);
        }
        let bytes = far.read(ino, at as u64, MIB / 4);
        assert!(bytes == content[at..at + MIB / 4], "at {at}");
    }
    let most = far.gauge.seen.lock().most;
    assert!(most >= 4, "{most} requests at a time");
    let ranges = far.gauge.take();
    let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    assert!(ranges.iter().all(|range| range.end - range.start <= 8 << 20));
    assert!(total < content.len() as u64 * 5 / 4, "{total} bytes for {}", content.len());
    // Runs of a MiB lie side by side: what is read ahead is asked for by 2 MiB, whatever the reader is faster with.
    let longest = ranges.iter().filter(|range| range.end - range.start == 2 << 20).count();
    assert!(longest >= 4, "{longest} of {} requests: {ranges:?}", ranges.len());
}

#[test]
fn the_length_of_an_object_is_asked_for_once() {
    let content = noise(&mut Random(23), 16 * MIB);
    let far = Far::with(23, &[(b"big".to_vec(), content.clone())]);
    far.gauge.seen.lock().lengths.clear();
    let (ino, together) = (far.ino(b"big"), std::sync::Barrier::new(8));
    std::thread::scope(|scope| {
        for part in 0..8 {
            let (far, content, together) = (&far, &content, &together);
            scope.spawn(move || {
                together.wait();
                for at in (0..2 * MIB).step_by(MIB).map(|at| part * 2 * MIB + at) {
                    assert!(far.read(ino, at as u64, MIB) == content[at..at + MIB], "at {at}");
                }
            });
        }
    });
    let mut asked = far.gauge.seen.lock().lengths.clone();
    asked.sort();
    let objects = asked.len();
    asked.dedup();
    assert!(objects > 0 && asked.len() == objects, "{objects} times for {asked:?}");
}

#[test]
fn a_reader_that_jumps_asks_for_its_frames_alone_and_once() {
    const READS: u64 = 80;
    let mut random = Random(21);
    let content = noise(&mut random, 24 * MIB);
    let far = Far::with(21, &[(b"big".to_vec(), content.clone())]);
    let ino = far.ino(b"big");
    // Each in a chunk of its own, far from the last ones, and never twice at one distance.
    let place = |index: u64| (index * 37 % 96 * 256 * KIB + 4096 * (1 + random.below(60))) as usize;
    let places: Vec<usize> = (0..READS).map(place).collect();
    let check = |far: &Far, at: usize| {
        assert!(far.read(ino, at as u64, 4096) == content[at..at + 4096], "at {at}");
    };
    let runs: BTreeSet<usize> = places.iter().map(|at| at / MIB).collect();
    let mut all = Vec::new();
    for at in &places {
        check(&far, *at);
        let asked = far.gauge.take();
        assert!(asked.len() <= 2, "a frame, and perhaps the table of its run: {asked:?}");
        assert!(asked.iter().all(|range| range.end - range.start <= 96 * KIB), "{asked:?}");
        all.extend(asked);
    }
    let asked = all;
    let bytes: u64 = asked.iter().map(|range| range.end - range.start).sum();
    assert!(asked.len() <= places.len() + runs.len(), "{} requests", asked.len());
    assert!(bytes <= READS * 96 * KIB + runs.len() as u64 * 32 * KIB, "{bytes} bytes");
    let far = far.reopened();
    places.iter().for_each(|at| check(&far, *at));
    assert_eq!(far.gauge.take(), [], "the cache on disk has them");
}

#[test]
fn the_neighbours_of_a_small_file_come_along() {
    let mut random = Random(22);
    let files: Vec<(Vec<u8>, Vec<u8>)> =
        (0..60).map(|index| (format!("file-{index}").into_bytes(), noise(&mut random, 4096))).collect();
    let far = Far::with(22, &files);
    for (name, content) in &files {
        assert!(far.read(far.ino(name), 0, 8192) == *content);
    }
    let asked = far.gauge.take();
    assert!(asked.len() <= 2, "60 files of 4 KiB: {asked:?}");
}
