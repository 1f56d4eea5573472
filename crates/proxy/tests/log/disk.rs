//! A disk in memory: what is not synced may be lost, block by block; writes and syncs fail on demand; it has so much room.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Weak},
};

use forebay_proxy::log::{Disk, DiskFile};
use parking_lot::Mutex;
use rand::{Rng, RngExt};

pub const BLOCK: usize = 4096;

/// The bytes of a file: those on stable storage, and blocks that were written since.
#[derive(Clone, Default)]
struct Contents {
    synced: Vec<u8>,
    len: usize,
    written: Vec<(usize, Vec<u8>)>,
}

impl Contents {
    fn now(&self) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        bytes.resize(bytes.len().max(self.len), 0);
        for (at, block) in &self.written {
            put(&mut bytes, *at, block);
        }
        bytes.truncate(self.len);
        bytes
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, block: &[u8]) {
    bytes.resize(bytes.len().max(at + block.len()), 0);
    bytes[at..at + block.len()].copy_from_slice(block);
}

#[derive(Default)]
struct Inner {
    names: BTreeMap<String, u64>,
    synced_names: BTreeMap<String, u64>,
    files: BTreeMap<u64, Contents>,
    last: u64,
    room: Option<usize>,
    fail_write: Option<u32>,
    fail_sync: Option<u32>,
    dead: bool,
    full_writes: bool,
    held: bool,
    unreadable: Vec<(u64, usize)>,
}

#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Inner>>);

struct MemoryFile(Weak<Mutex<Inner>>, u64);

fn eio() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

fn full() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error())
}

fn counted(left: &mut Option<u32>) -> bool {
    match left {
        Some(0) => true,
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

impl MemoryDisk {
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    pub fn shared(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    /// What the disk has after the power went: of what was not synced any blocks, each as a whole or in part.
    pub fn crashed(&self, rng: &mut impl Rng) -> MemoryDisk {
        let mut inner = self.0.lock();
        inner.dead = true;
        let names = if rng.random() { &inner.names } else { &inner.synced_names };
        let mut after = Inner { names: names.clone(), last: inner.last, ..Inner::default() };
        after.synced_names = after.names.clone();
        let keeps = rng.random_range(0..=100);
        for (id, contents) in &inner.files {
            let mut bytes = contents.synced.clone();
            for (at, block) in &contents.written {
                if rng.random_range(0..100) < keeps {
                    put(&mut bytes, *at, block);
                } else if rng.random_range(0..4) == 0 {
                    // The sectors of a block do not go together.
                    let part = rng.random_range(0..8) * 512;
                    put(&mut bytes, *at, &block[..part]);
                }
            }
            bytes.resize(contents.len, 0);
            let len = bytes.len();
            after.files.insert(*id, Contents { synced: bytes, len, written: Vec::new() });
        }
        MemoryDisk(Arc::new(Mutex::new(after)))
    }

    /// The same disk, for a process that came after one that was killed: nothing is lost.
    pub fn killed(&self) -> MemoryDisk {
        let mut inner = self.0.lock();
        inner.dead = true;
        let mut after = Inner { names: inner.names.clone(), last: inner.last, ..Inner::default() };
        after.synced_names = inner.synced_names.clone();
        after.files = inner.files.clone();
        MemoryDisk(Arc::new(Mutex::new(after)))
    }

    pub fn limit(&self, room: Option<usize>) {
        self.0.lock().room = room;
    }

    pub fn fail_write_after(&self, writes: u32) {
        self.0.lock().fail_write = Some(writes);
    }

    pub fn fail_sync_after(&self, syncs: u32) {
        self.0.lock().fail_sync = Some(syncs);
    }

    /// Space that was promised is not there: writes fail for it.
    pub fn fill(&self, full: bool) {
        self.0.lock().full_writes = full;
    }

    /// Writes wait until they are let go.
    pub fn hold(&self, held: bool) {
        self.0.lock().held = held;
    }

    pub fn names(&self) -> Vec<String> {
        self.0.lock().names.keys().cloned().collect()
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let inner = self.0.lock();
        inner.files[&inner.names[name]].now()
    }

    /// Changes what is on the disk.
    pub fn set(&self, name: &str, bytes: Vec<u8>) {
        let mut inner = self.0.lock();
        let id = inner.names[name];
        let len = bytes.len();
        inner.files.insert(id, Contents { synced: bytes, len, written: Vec::new() });
    }

    pub fn set_unreadable(&self, name: &str, block: usize) {
        let mut inner = self.0.lock();
        let id = inner.names[name];
        inner.unreadable.push((id, block));
    }

    pub fn forget(&self, name: &str) {
        self.0.lock().names.remove(name);
    }
}

impl Disk for MemoryDisk {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(MemoryDisk::names(self))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = self.0.lock().names.get(name).copied().ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile(Arc::downgrade(&self.0), id)))
    }

    fn create(&self, name: &str, len: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.0.lock();
        if inner.dead {
            return Err(eio());
        }
        inner.names.remove(name);
        let used: usize = inner.names.values().map(|id| inner.files[id].len).sum();
        if inner.room.is_some_and(|room| used + len as usize > room) {
            return Err(full());
        }
        inner.last += 1;
        let id = inner.last;
        inner.names.insert(name.to_owned(), id);
        inner.files.insert(id, Contents { len: len as usize, ..Contents::default() });
        Ok(Arc::new(MemoryFile(Arc::downgrade(&self.0), id)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.0.lock();
        if inner.dead {
            return Err(eio());
        }
        let id = inner.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        inner.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.0.lock();
        if inner.dead {
            return Err(eio());
        }
        inner.names.remove(name);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut inner = self.0.lock();
        if inner.dead {
            return Err(eio());
        }
        inner.synced_names = inner.names.clone();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/memory").join(name)
    }
}

impl MemoryFile {
    fn with<R>(&self, change: impl FnOnce(&mut Inner, u64) -> io::Result<R>) -> io::Result<R> {
        let inner = self.0.upgrade().ok_or_else(eio)?;
        let mut inner = inner.lock();
        if inner.dead {
            return Err(eio());
        }
        change(&mut inner, self.1)
    }
}

impl DiskFile for MemoryFile {
    fn length(&self) -> io::Result<u64> {
        self.with(|inner, id| Ok(inner.files[&id].len as u64))
    }

    fn write_blocks(&self, offset: u64, blocks: &[u8]) -> io::Result<()> {
        while self.with(|inner, _| Ok(inner.held))? {
            std::thread::yield_now();
        }
        self.with(|inner, id| {
            assert!(offset.is_multiple_of(BLOCK as u64) && blocks.len().is_multiple_of(BLOCK));
            assert!(blocks.as_ptr().addr().is_multiple_of(BLOCK), "direct I/O needs aligned memory");
            if inner.full_writes {
                return Err(full());
            }
            let failed = counted(&mut inner.fail_write);
            let contents = inner.files.get_mut(&id).unwrap();
            let keeps = if failed { blocks.len() / BLOCK / 2 } else { blocks.len() / BLOCK };
            for (index, block) in blocks.chunks(BLOCK).take(keeps).enumerate() {
                contents.written.push((offset as usize + index * BLOCK, block.to_vec()));
            }
            contents.len = contents.len.max(offset as usize + keeps * BLOCK);
            if failed { Err(eio()) } else { Ok(()) }
        })
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        self.with(|inner, id| {
            let (offset, end) = (offset as usize, offset as usize + out.len());
            let hit = |(file, block): &(u64, usize)| {
                *file == id && block * BLOCK < end && (block + 1) * BLOCK > offset
            };
            if inner.unreadable.iter().any(hit) {
                return Err(eio());
            }
            let bytes = inner.files[&id].now();
            let from = bytes.get(offset..).unwrap_or_default();
            let len = from.len().min(out.len());
            out[..len].copy_from_slice(&from[..len]);
            Ok(len)
        })
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.with(|inner, id| {
            let contents = inner.files.get_mut(&id).unwrap();
            let mut bytes = contents.now();
            bytes.truncate(len as usize);
            *contents = Contents { len: bytes.len(), synced: bytes, written: Vec::new() };
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|inner, id| {
            if counted(&mut inner.fail_sync) {
                return Err(eio());
            }
            let contents = inner.files.get_mut(&id).unwrap();
            contents.synced = contents.now();
            contents.written.clear();
            Ok(())
        })
    }
}
