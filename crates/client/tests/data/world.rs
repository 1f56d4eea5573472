//! An owner, a store, and clients of both.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use forebay_client::{Asks, ClientError, Contents, ContentsOptions, Room, StoreCache};
use forebay_data::ReadPiece;
use forebay_format::row::ObjectRef;
use forebay_meta::{Inode, NewInode, SetAttr, WriteAttr};
use forebay_object::{Backend, DirectoryStore, FaultyStore, ObjectStore};
use forebay_protocol::{Answer, Operation, VolumeInfo};
use forebay_types::{Compression, FileKind, Ino, Timespec, VolumeId};
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::{
    owner::{Owner, V},
    store::Gate,
};

pub const BLOCK: u32 = 256 << 10;

pub struct World {
    pub dir: TempDir,
    pub owner: Arc<Owner>,
    pub faulty: Arc<FaultyStore>,
    pub gate: Arc<Gate>,
    pub volume: VolumeInfo,
    files: AtomicU64,
}

/// A client, with rows that it got some time ago.
pub struct Client {
    pub contents: Arc<Contents>,
    owner: Arc<Owner>,
    rows: Mutex<HashMap<Ino, Arc<Inode>>>,
}

impl World {
    pub fn new() -> World {
        World::with(Compression::Lz4)
    }

    pub fn with(compression: Compression) -> World {
        World::of_blocks(compression, BLOCK)
    }

    pub fn of_blocks(compression: Compression, block_size: u32) -> World {
        let dir = tempfile::tempdir().unwrap();
        let store = DirectoryStore::create(&dir.path().join("store")).unwrap();
        let faulty = Arc::new(FaultyStore::new(Arc::new(store), 7));
        let gate = Arc::new(Gate::new(Arc::clone(&faulty) as Arc<dyn Backend>));
        let volume = VolumeInfo {
            name: "shared".to_owned(),
            id: VolumeId([5; 16]),
            store: String::new(),
            endpoint: None,
            region: None,
            block_size,
            compression,
            created: Timespec::default(),
            limit: None,
            generation: 1,
        };
        let owner = Arc::new(Owner::new(block_size));
        World { dir, owner, faulty, gate, volume, files: AtomicU64::new(0) }
    }

    pub fn store(&self) -> ObjectStore {
        ObjectStore::over(Arc::clone(&self.gate) as Arc<dyn Backend>)
    }

    /// Nothing happens because of its age, and what is read goes through a small cache in memory.
    pub fn options(&self) -> ContentsOptions {
        let (age, cache) = (Duration::from_hours(1), StoreCache::Memory(8 << 20));
        ContentsOptions { age, cache, ..ContentsOptions::of(&self.store()) }
    }

    pub fn client(&self) -> Client {
        self.client_with(self.options())
    }

    pub fn client_with(&self, options: ContentsOptions) -> Client {
        let asks = Arc::clone(&self.owner) as Arc<dyn Asks>;
        let contents = Contents::start(asks, self.store(), &self.volume, options).unwrap();
        Client { contents, owner: Arc::clone(&self.owner), rows: Mutex::default() }
    }

    pub fn make(&self) -> Ino {
        let name = format!("f{}", self.files.fetch_add(1, Ordering::SeqCst));
        let kind = FileKind::Regular;
        let new = NewInode { kind, mode: 0o6755, uid: 0, gid: 0, rdev: 0, target: vec![], xattrs: vec![] };
        self.owner.ns.make(V, Ino::ROOT, name.as_bytes(), &new).unwrap().ino
    }

    /// Objects in the store.
    pub fn objects(&self) -> BTreeSet<ObjectRef> {
        let (mut objects, mut after) = (BTreeSet::new(), None);
        loop {
            let page = self.store().list("data", after.as_deref()).unwrap();
            objects.extend(page.entries.iter().map(|entry| forebay_reading::parse_key(&entry.key).unwrap()));
            after = page.next;
            if after.is_none() {
                return objects;
            }
        }
    }

    /// Those that the owner knows.
    pub fn named(&self) -> BTreeSet<ObjectRef> {
        self.owner.ns.objects().into_iter().map(|(object, _)| object).collect()
    }

    /// Whatever is in the store is known to the owner, or one of the numbers that it gave, or that were given back.
    pub fn assert_accounted_for(&self) {
        let (objects, named) = (self.objects(), self.named());
        let given: BTreeSet<_> = &*self.owner.given.lock() | &*self.owner.abandoned.lock();
        assert!(objects.iter().all(|object| named.contains(object) || given.contains(object)));
        assert!(named.is_subset(&objects), "{named:?} {objects:?}");
    }

    /// What somebody else reads.
    pub fn read_elsewhere(&self, ino: Ino) -> Vec<u8> {
        self.client().read_all(ino)
    }
}

impl Client {
    /// The inode as this client knows it: a row from some time ago, and what it has kept since.
    pub fn inode(&self, ino: Ino) -> Inode {
        let known = self.rows.lock().get(&ino).cloned();
        let known = known.unwrap_or_else(|| {
            let told = self.owner.told(ino).unwrap();
            self.contents.learn(&told);
            let inode = Arc::new(Inode::removed(ino, told.row, None));
            self.rows.lock().insert(ino, Arc::clone(&inode));
            inode
        });
        let mut inode = Inode::clone(&known);
        self.contents.overlay(&mut inode);
        inode
    }

    /// The lease went.
    pub fn forget(&self, ino: Ino) {
        self.rows.lock().remove(&ino);
        self.contents.forget(ino);
    }

    pub fn try_write(&self, ino: Ino, offset: u64, data: &[u8], room: Room) -> Result<(), ClientError> {
        self.contents
            .write(&self.inode(ino), offset, data, WriteAttr::default(), (room, self.owner.session()))
            .map(drop)
    }

    pub fn write(&self, ino: Ino, offset: u64, data: &[u8]) {
        self.try_write(ino, offset, data, Room::Wait).unwrap();
    }

    /// Writes bytes somewhere, of a few lengths, and into the model of the file. Returns where, in words.
    pub fn write_random(&self, random: &mut Random, ino: Ino, model: &mut Vec<u8>) -> String {
        let (far, long) = (random.below(2) as usize, random.below(2) as usize);
        let at = random.below([800, 50_000][far]);
        let len = 1 + random.below([300, 60_000][long]) as usize;
        let data = bytes(random.next(), len);
        self.write(ino, at, &data);
        let start = at as usize;
        model.resize(model.len().max(start + len), 0);
        model[start..start + len].copy_from_slice(&data);
        format!("{at}+{len}")
    }

    pub fn set_attr(&self, ino: Ino, set: &SetAttr) {
        self.contents.before_set_attr(ino, set).unwrap();
        let answer = self.owner.ask(Operation::SetAttr(ino, set.clone()), None).unwrap().answer;
        assert!(matches!(answer, Answer::Inode(_)), "{answer:?}");
        self.forget(ino);
    }

    pub fn try_read(&self, ino: Ino, offset: u64, len: u32) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        for piece in self.contents.read(&self.inode(ino), offset, len, &|| true)? {
            match piece {
                ReadPiece::Bytes(piece) => bytes.extend_from_slice(&piece),
                ReadPiece::Zeros(len) => bytes.resize(bytes.len() + len, 0),
            }
        }
        Ok(bytes)
    }

    pub fn read(&self, ino: Ino, offset: u64, len: u32) -> Vec<u8> {
        self.try_read(ino, offset, len).unwrap()
    }

    pub fn read_all(&self, ino: Ino) -> Vec<u8> {
        self.read(ino, 0, u32::MAX)
    }

    pub fn try_settle(&self, ino: Ino) -> Result<(), ClientError> {
        self.contents.settle(&[ino])
    }

    pub fn settle(&self, ino: Ino) {
        self.try_settle(ino).unwrap();
    }
}

/// Bytes that compress now and then.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut out = Vec::with_capacity(len + 80);
    while out.len() < len {
        let (word, times) = (random.next(), 1 + random.next() % 9);
        (0..times).for_each(|_| out.extend_from_slice(&word.to_le_bytes()));
    }
    out.truncate(len);
    out
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Waits for something that another thread brings about.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "it did not come to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
