//! A bucket, machines that come and go, and what their volume must have.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use forebay_meta::{NewInode, RenameMode, SetAttr, WriteAttr};
use forebay_object::{DirectoryStore, Faults, FaultyStore, ObjectStore, StoreUrl};
use forebay_types::{Durability, Encryption, FileKind, Ino, Sequence, SubvolumeId};
use forebay_volume::{
    CreateOptions, OpenOptions, ReadPiece, RecoverOptions, RecoverReport, Volume, VolumeError, create,
    recover,
};

pub(crate) const AT: SubvolumeId = SubvolumeId::FIRST;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

pub(crate) type Files = BTreeMap<Vec<u8>, Arc<Vec<u8>>>;

/// A bucket that is a directory behind a store that fails as it is told to.
pub(crate) struct Bucket {
    dir: tempfile::TempDir,
    pub(crate) faulty: Arc<FaultyStore>,
    machines: u32,
}

impl Bucket {
    pub(crate) fn new(seed: u64) -> Bucket {
        let dir = tempfile::tempdir().unwrap();
        let inner = Arc::new(DirectoryStore::create(&dir.path().join("bucket")).unwrap());
        Bucket { dir, faulty: Arc::new(FaultyStore::new(inner, seed)), machines: 0 }
    }

    pub(crate) fn url(&self) -> StoreUrl {
        StoreUrl::directory(&self.path()).unwrap()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("bucket")
    }

    pub(crate) fn store(&self) -> ObjectStore {
        ObjectStore::over(Arc::clone(&self.faulty) as _)
    }

    fn new_root(&mut self) -> PathBuf {
        self.machines += 1;
        self.dir.path().join(format!("machine{}", self.machines))
    }

    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            background: false,
            cache_size: 16 << 20,
            store: Some(self.store()),
            ..OpenOptions::default()
        }
    }

    /// A machine with a new volume.
    pub(crate) fn create(&mut self, durability: Durability, encryption: Encryption) -> Machine {
        let root = self.new_root();
        let store = Some(self.url());
        create(&root, &CreateOptions { store, durability, encryption, ..CreateOptions::default() }).unwrap();
        let volume = Volume::open(&root, &self.options()).unwrap();
        let seen = vec![(volume.namespace().last(), Files::new())];
        Machine { root, volume: Some(volume), files: Files::new(), seen, synced: Sequence(0) }
    }

    /// Every key of the bucket below a prefix.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let mut keys = Vec::new();
        let mut dirs = vec![self.path().join(prefix)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                if entry.path().is_dir() {
                    dirs.push(entry.path());
                } else {
                    keys.push(entry.path().strip_prefix(self.path()).unwrap().display().to_string());
                }
            }
        }
        keys.sort();
        keys
    }

    /// What a recovery finds, in a new directory.
    pub(crate) fn try_recover(
        &mut self,
        key: Option<PathBuf>,
    ) -> Result<(PathBuf, RecoverReport), VolumeError> {
        let root = self.new_root();
        let options = RecoverOptions { key, store: Some(self.store()), ..RecoverOptions::default() };
        let report = recover(&root, &self.url(), &options, &mut |_| {})?;
        Ok((root, report))
    }

    /// Recovers, however often the store fails, and opens.
    pub(crate) fn recover(&mut self, key: Option<PathBuf>) -> (PathBuf, Arc<Volume>, RecoverReport) {
        for attempt in 0..40 {
            if attempt == 20 {
                // Hundreds of requests without one retry hardly ever all succeed.
                self.faulty.set_faults(Faults::default());
            }
            if let Ok((root, report)) = self.try_recover(key.clone())
                && let Some(volume) = open(&root, &self.options())
            {
                return (root, volume, report);
            }
        }
        let error = self.try_recover(key).err();
        panic!("recovery fails again and again: {error:?}");
    }
}

/// Opens a volume, however often the store fails.
pub(crate) fn open(root: &Path, options: &OpenOptions) -> Option<Arc<Volume>> {
    for _ in 0..200 {
        match Volume::open(root, options) {
            Ok(volume) => return Some(volume),
            Err(VolumeError::Object(_) | VolumeError::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    None
}

/// A machine that has the volume open, and what it did to it.
pub(crate) struct Machine {
    pub(crate) root: PathBuf,
    volume: Option<Arc<Volume>>,
    pub(crate) files: Files,
    /// The files after each operation, and the last record then.
    seen: Vec<(Sequence, Files)>,
    /// The last record for which an fsync was answered.
    pub(crate) synced: Sequence,
}

pub(crate) fn pattern(random: &mut Random, len: usize) -> Vec<u8> {
    let seed = random.next();
    (0..len).map(|at| ((seed >> (at % 7 * 8)) as u8).wrapping_add((at / 13) as u8)).collect()
}

pub(crate) fn file() -> NewInode {
    let (target, xattrs) = (Vec::new(), Vec::new());
    NewInode { kind: FileKind::Regular, mode: 0o644, uid: 0, gid: 0, rdev: 0, target, xattrs }
}

pub(crate) fn read(volume: &Volume, ino: Ino) -> Vec<u8> {
    let size = volume.namespace().inode(AT, ino).unwrap().row.size;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size {
        for piece in volume.read(ino, bytes.len() as u64, 1 << 20).unwrap() {
            match piece {
                ReadPiece::Bytes(piece) => bytes.extend_from_slice(&piece),
                ReadPiece::Zeros(len) => bytes.resize(bytes.len() + len, 0),
            }
        }
    }
    bytes
}

/// All files of the root directory.
pub(crate) fn files_of(volume: &Volume, names: &[Vec<u8>]) -> Files {
    let lookup = |name: &Vec<u8>| volume.namespace().lookup(AT, Ino::ROOT, name).ok();
    names.iter().filter_map(|name| Some((name.clone(), Arc::new(read(volume, lookup(name)?.ino))))).collect()
}

pub(crate) fn names() -> Vec<Vec<u8>> {
    (0..8u8).map(|index| vec![b'a' + index]).collect()
}

/// What two states differ in, for a person.
fn difference(found: &Files, expected: &Files) -> String {
    let about = |files: &Files, name: &Vec<u8>| files.get(name).map(|bytes| bytes.len());
    let differs = |name: &&Vec<u8>| found.get(*name) != expected.get(*name);
    let tell = |name: &Vec<u8>| {
        let pairs = found.get(name).zip(expected.get(name));
        let at = pairs.and_then(|(one, other)| one.iter().zip(other.iter()).position(|(a, b)| a != b));
        let name_text = name.escape_ascii();
        format!("{name_text}: {:?} bytes, not {:?}, from {at:?}", about(found, name), about(expected, name))
    };
    names().iter().filter(differs).map(tell).collect::<Vec<_>>().join("; ")
}

impl Machine {
    pub(crate) fn volume(&self) -> &Arc<Volume> {
        self.volume.as_ref().unwrap()
    }

    fn done(&mut self) {
        let last = self.volume().namespace().last();
        self.seen.push((last, self.files.clone()));
    }

    fn ino(&self, name: &[u8]) -> Ino {
        self.volume().namespace().lookup(AT, Ino::ROOT, name).unwrap().ino
    }

    /// Writes into a file, which is made where it is missing.
    pub(crate) fn write(&mut self, name: &[u8], offset: usize, bytes: &[u8]) -> Result<(), VolumeError> {
        if !self.files.contains_key(name) {
            self.volume().namespace().make(AT, Ino::ROOT, name, &file())?;
            self.files.insert(name.to_vec(), Arc::default());
            self.done();
        }
        self.volume().write(self.ino(name), offset as u64, bytes, WriteAttr::default())?;
        let content = Arc::make_mut(self.files.get_mut(name).unwrap());
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.done();
        Ok(())
    }

    pub(crate) fn unlink(&mut self, name: &[u8]) -> Result<(), VolumeError> {
        if self.files.contains_key(name) {
            let removed = self.volume().namespace().unlink(AT, Ino::ROOT, name, &|_| false)?;
            let _ = removed;
            self.files.remove(name);
            self.done();
        }
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> Result<(), VolumeError> {
        let last = self.volume().namespace().last();
        self.volume().sync()?;
        self.synced = last;
        Ok(())
    }

    /// Anything that an application might do.
    pub(crate) fn operate(&mut self, random: &mut Random) -> Result<(), VolumeError> {
        let names = names();
        let name = names[random.below(8) as usize].clone();
        match random.below(10) {
            0 => self.unlink(&name),
            1 => {
                let to = names[random.below(8) as usize].clone();
                if name != to && self.files.contains_key(&name) {
                    let ns = self.volume().namespace();
                    ns.rename(AT, (Ino::ROOT, &name), (Ino::ROOT, &to), RenameMode::Replace, &|_| false)?;
                    let content = self.files.remove(&name).unwrap();
                    self.files.insert(to, content);
                    self.done();
                }
                Ok(())
            }
            2 => {
                if self.files.contains_key(&name) {
                    let size = random.below(100_000);
                    let set = SetAttr { size: Some(size), ..SetAttr::default() };
                    self.volume().set_attr(self.ino(&name), &set)?;
                    Arc::make_mut(self.files.get_mut(&name).unwrap()).resize(size as usize, 0);
                    self.done();
                }
                Ok(())
            }
            kind => {
                let len = match kind {
                    3 => random.below(900),
                    4..7 => random.below(30_000),
                    7 | 8 => 128 * 1024 + random.below(100_000),
                    _ => random.below(130_000),
                } as usize;
                let offset = if random.below(2) == 0 { 0 } else { random.below(200_000) as usize };
                let bytes = pattern(random, len + 1);
                self.write(&name, offset, &bytes)
            }
        }
    }

    /// Anything that goes on behind an application's back.
    pub(crate) fn upkeep(&mut self, random: &mut Random) -> Result<(), VolumeError> {
        let volume = self.volume();
        match random.below(10) {
            0 | 1 => volume.checkpoint_now(),
            2 => volume.seal_all(),
            3 => volume.store_all(),
            4 => volume.ship(),
            5 | 6 => volume.publish(),
            7 => volume.compact(),
            8 => volume.collect_leaked().map(drop),
            _ => volume.drain(&mut |_| {}),
        }
    }

    /// Stops as by a crash and opens again.
    pub(crate) fn reopen(&mut self, bucket: &Bucket) {
        self.volume = None;
        let volume = open(&self.root, &bucket.options()).expect("the volume opens in the end");
        bucket.faulty.set_faults(Faults::default());
        assert_eq!(files_of(&volume, &names()), self.files, "after a crash of the process");
        self.volume = Some(volume);
        self.done();
    }

    /// The files as they were at a record.
    pub(crate) fn files_at(&self, last: Sequence) -> &Files {
        let at = self.seen.partition_point(|(sequence, _)| *sequence <= last);
        &self.seen[at - 1].1
    }

    /// The machine is lost, and another one takes its place. What was fsynced in class `object`, or up to `least`, must be there.
    pub(crate) fn lose(&mut self, bucket: &mut Bucket, least: Sequence) -> RecoverReport {
        self.volume = None;
        let key = self.root.join("key");
        let kept = bucket.path().join("../kept-key");
        if key.exists() {
            std::fs::copy(&key, &kept).unwrap();
        }
        std::fs::remove_dir_all(&self.root).unwrap();
        self.come_back(bucket, least)
    }

    /// Another machine takes the volume over while this one still has it open: that one is returned, with what it saw.
    pub(crate) fn take_over(&mut self, bucket: &mut Bucket, least: Sequence) -> Machine {
        let (root, volume) = (self.root.clone(), self.volume.clone());
        let old =
            Machine { root, volume, files: self.files.clone(), seen: self.seen.clone(), synced: self.synced };
        self.come_back(bucket, least);
        old
    }

    /// Recovers from the bucket, in this machine's place.
    pub(crate) fn come_back(&mut self, bucket: &mut Bucket, least: Sequence) -> RecoverReport {
        let kept = bucket.path().join("../kept-key");
        let (root, volume, report) = bucket.recover(kept.exists().then_some(kept));
        bucket.faulty.set_faults(Faults::default());
        assert!(report.last >= least, "recovered up to {}, not {least}", report.last);
        assert_eq!(report.missing, Vec::<String>::new());
        let expected = self.files_at(report.last).clone();
        let found = files_of(&volume, &names());
        assert!(found == expected, "{report:?}: {}", difference(&found, &expected));
        let last = volume.namespace().last();
        (self.root, self.volume, self.files) = (root, Some(volume), expected.clone());
        self.seen = vec![(Sequence(0), expected.clone()), (last, expected)];
        self.synced = Sequence(0);
        report
    }
}
