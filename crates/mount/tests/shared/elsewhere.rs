//! A shared volume that the test itself changes, as another machine would.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use forebay_format::row::{DirectoryRow, InodeRow, Layout};
use forebay_meta::{DirEntry, Inode, MetaError, NewInode, Removed, RenameMode, SetAttr, SetXattr};
use forebay_types::{Coherence, FileKind, Ino, PolicyId, Timespec};
use forebay_vfs::{By, Files, ReadPiece, ReadPieces, Space, VfsError, Whence, Write, WriteAt};
use parking_lot::{Condvar, Mutex};
use smallvec::smallvec;

type Result<T> = std::result::Result<T, VfsError>;

#[derive(Debug, Default)]
struct State {
    inodes: BTreeMap<Ino, InodeRow>,
    bytes: BTreeMap<Ino, Vec<u8>>,
    names: BTreeMap<(Ino, Vec<u8>), Ino>,
    last: u64,
    now: i64,
    /// Offsets that writes came with, and what they wanted.
    writes: Vec<WriteAt>,
}

/// Where an operation stands still until it may go on.
#[derive(Debug, Default)]
pub struct Gate {
    closed: AtomicBool,
    state: Mutex<usize>,
    changed: Condvar,
}

impl Gate {
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    /// How many stand at it.
    pub fn standing(&self) -> usize {
        *self.state.lock()
    }

    fn pass(&self) {
        let mut standing = self.state.lock();
        *standing += 1;
        while self.closed.load(Ordering::SeqCst) {
            self.changed.wait(&mut standing);
        }
        *standing -= 1;
    }
}

/// The volume.
#[derive(Debug)]
pub struct Elsewhere {
    state: Mutex<State>,
    /// What leases last for.
    pub lifetime: Mutex<Duration>,
    /// What stays as it is without a lease.
    pub sealed: Mutex<Option<Ino>>,
    /// Whose files are to be on no disk.
    pub off_disk: Mutex<Option<PolicyId>>,
    /// Before something is made.
    pub making: Gate,
    /// After bytes were looked at, before they are answered.
    pub reading: Gate,
    /// After a name was looked up, before it is answered.
    pub finding: Gate,
    /// Before bytes are written.
    pub writing: Gate,
}

impl Elsewhere {
    pub fn new() -> Arc<Elsewhere> {
        let mut state = State { last: 1, now: 1000, ..State::default() };
        let root = row(FileKind::Directory, 0o755, Ino::ROOT, state.now);
        state.inodes.insert(Ino::ROOT, root);
        Arc::new(Elsewhere {
            state: Mutex::new(state),
            lifetime: Mutex::new(Duration::from_secs(3600)),
            sealed: Mutex::default(),
            off_disk: Mutex::default(),
            making: Gate::default(),
            reading: Gate::default(),
            finding: Gate::default(),
            writing: Gate::default(),
        })
    }

    /// Another machine puts a file there with these bytes, or changes the one that is there.
    pub fn put(&self, parent: Ino, name: &str, bytes: &[u8]) -> Ino {
        let mut state = self.state.lock();
        let key = (parent, name.as_bytes().to_vec());
        let ino = match state.names.get(&key) {
            Some(ino) => *ino,
            None => state.add(parent, name.as_bytes(), FileKind::Regular, 0o644),
        };
        state.now += 1;
        state.bytes.insert(ino, bytes.to_vec());
        state.resize(ino);
        ino
    }

    pub fn directory(&self, parent: Ino, name: &str) -> Ino {
        self.state.lock().add(parent, name.as_bytes(), FileKind::Directory, 0o755)
    }

    /// Another machine takes a name away.
    pub fn take(&self, parent: Ino, name: &str) {
        self.state.lock().names.remove(&(parent, name.as_bytes().to_vec())).unwrap();
    }

    pub fn chmod(&self, ino: Ino, mode: u16) {
        self.state.lock().inodes.get_mut(&ino).unwrap().mode = mode;
    }

    /// Its contents are final from now on.
    pub fn seal_file(&self, ino: Ino) {
        self.state.lock().inodes.get_mut(&ino).unwrap().coherence = Coherence::Sealed;
    }

    /// It goes by a policy from now on.
    pub fn set_policy(&self, ino: Ino, policy: PolicyId) {
        self.state.lock().inodes.get_mut(&ino).unwrap().policy = policy;
    }

    pub fn bytes(&self, ino: Ino) -> Vec<u8> {
        self.state.lock().bytes.get(&ino).cloned().unwrap_or_default()
    }

    pub fn writes(&self) -> Vec<WriteAt> {
        self.state.lock().writes.clone()
    }
}

fn row(kind: FileKind, mode: u16, parent: Ino, secs: i64) -> InodeRow {
    let now = Timespec { secs, nanos: 0 };
    InodeRow {
        kind,
        mode,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        allocated: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent,
        has_xattrs: false,
        has_cuts: false,
        coherence: Coherence::Coherent,
        policy: PolicyId::NONE,
        layout: Layout::Empty,
    }
}

impl State {
    fn add(&mut self, parent: Ino, name: &[u8], kind: FileKind, mode: u16) -> Ino {
        self.last += 1;
        self.now += 1;
        let ino = Ino(self.last);
        self.inodes.insert(ino, row(kind, mode, parent, self.now));
        self.names.insert((parent, name.to_vec()), ino);
        ino
    }

    fn resize(&mut self, ino: Ino) {
        let size = self.bytes.get(&ino).map_or(0, Vec::len) as u64;
        let now = Timespec { secs: self.now, nanos: 0 };
        let row = self.inodes.get_mut(&ino).unwrap();
        (row.size, row.mtime, row.ctime) = (size, now, now);
    }

    fn inode(&self, ino: Ino) -> Result<Inode> {
        let row = *self.inodes.get(&ino).ok_or(VfsError::Stale(ino))?;
        let directory = (row.kind == FileKind::Directory).then_some(DirectoryRow {
            entries: 0,
            directories: 0,
            mtime: row.mtime,
            ctime: row.ctime,
        });
        Ok(Inode::removed(ino, row, directory))
    }
}

const NO: VfsError = VfsError::NotSupported("this");

impl Files for Elsewhere {
    fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.state.lock().inode(ino).map(Arc::new)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Arc<Inode>> {
        let state = self.state.lock();
        let ino = state.names.get(&(parent, name.to_vec())).copied().ok_or(VfsError::NotFound);
        let found = ino.and_then(|ino| state.inode(ino)).map(Arc::new);
        drop(state);
        self.finding.pass();
        found
    }

    fn entries(&self, dir: Ino, after: Option<&[u8]>, limit: usize, _: bool) -> Result<Vec<DirEntry>> {
        let state = self.state.lock();
        let all = state.names.iter().filter(|((parent, name), _)| {
            *parent == dir && after.is_none_or(|after| name.as_slice() > after)
        });
        let entry = |((_, name), ino): (&(Ino, Vec<u8>), &Ino)| DirEntry {
            name: name.clone(),
            ino: *ino,
            kind: state.inodes[ino].kind,
        };
        Ok(all.take(limit).map(entry).collect())
    }

    fn read_link(&self, _: Ino) -> Result<Vec<u8>> {
        Err(NO)
    }

    fn xattr(&self, _: Ino, _: &[u8]) -> Result<Vec<u8>> {
        Err(VfsError::NoAttribute)
    }

    fn xattrs(&self, _: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn make(&self, parent: Ino, name: &[u8], new: &NewInode) -> Result<Inode> {
        self.making.pass();
        let mut state = self.state.lock();
        if state.names.contains_key(&(parent, name.to_vec())) {
            return Err(VfsError::Exists);
        }
        let ino = state.add(parent, name, new.kind, new.mode);
        state.inode(ino)
    }

    fn make_nameless(&self, _: Ino, _: &NewInode) -> Result<Inode> {
        Err(NO)
    }

    fn link(&self, _: Ino, _: Ino, _: &[u8]) -> Result<Inode> {
        Err(NO)
    }

    fn unlink(&self, _: Ino, _: &[u8], _: &dyn Fn(Ino) -> bool) -> Result<Removed> {
        Err(NO)
    }

    fn rmdir(&self, _: Ino, _: &[u8], _: &dyn Fn(Ino) -> bool) -> Result<Removed> {
        Err(MetaError::NotEmpty(Ino::ROOT).into())
    }

    fn rename(
        &self,
        _: (Ino, &[u8]),
        _: (Ino, &[u8]),
        _: RenameMode,
        _: &dyn Fn(Ino) -> bool,
    ) -> Result<Option<Removed>> {
        Err(NO)
    }

    fn set_attr(&self, ino: Ino, _: &SetAttr) -> Result<Inode> {
        self.state.lock().inode(ino)
    }

    fn set_atime(&self, _: Ino, _: Timespec) -> Result<()> {
        Ok(())
    }

    fn set_xattr(&self, _: Ino, _: &[u8], _: &[u8], _: SetXattr) -> Result<()> {
        Err(NO)
    }

    fn remove_xattr(&self, _: Ino, _: &[u8]) -> Result<()> {
        Err(NO)
    }

    fn purge(&self, _: Ino) {}

    fn seal(&self, _: Ino) {}

    fn may_keep(&self, inode: &Inode) -> bool {
        *self.off_disk.lock() != Some(inode.row.policy)
    }

    fn read(&self, ino: Ino, offset: u64, len: u32) -> Result<ReadPieces> {
        let bytes = self.bytes(ino);
        self.reading.pass();
        let from = bytes.len().min(offset as usize);
        let to = bytes.len().min(from + len as usize);
        Ok(smallvec![ReadPiece::Bytes(Bytes::copy_from_slice(&bytes[from..to]))])
    }

    fn write(&self, ino: Ino, write: &Write<'_>) -> Result<u64> {
        self.writing.pass();
        let mut state = self.state.lock();
        state.writes.push(write.at);
        let bytes = state.bytes.entry(ino).or_default();
        let at = match write.at {
            WriteAt::End(_) => bytes.len(),
            other => other.expected() as usize,
        };
        bytes.resize(bytes.len().max(at + write.data.len()), 0);
        bytes[at..at + write.data.len()].copy_from_slice(write.data);
        state.now += 1;
        state.resize(ino);
        Ok(at as u64)
    }

    fn punch(&self, _: Ino, _: u64, _: u64, _: Option<u64>, _: By) -> Result<()> {
        Err(NO)
    }

    fn allocate(&self, _: Ino, _: u64, _: By) -> Result<()> {
        Err(NO)
    }

    fn copy_range(&self, _: (Ino, u64), _: (Ino, u64), _: u64, _: By) -> Result<u64> {
        Err(NO)
    }

    fn seek(&self, _: Ino, _: u64, _: Whence) -> Result<Option<u64>> {
        Err(NO)
    }

    fn sync_file(&self, _: Ino) -> Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn space(&self) -> Result<Space> {
        let [blocks, free, available, files, files_free] = [1 << 20; 5];
        Ok(Space { block_size: 4096, blocks, free, available, files, files_free, name_max: 255 })
    }

    fn read_only(&self) -> bool {
        false
    }

    fn block_size(&self) -> u32 {
        1 << 20
    }

    fn lifetime(&self, ino: Ino) -> Option<Duration> {
        (*self.sealed.lock() != Some(ino)).then(|| *self.lifetime.lock())
    }

    fn name_lifetime(&self, _: Ino, ino: Ino) -> Option<Duration> {
        self.lifetime(ino)
    }

    fn is_shared(&self) -> bool {
        true
    }
}
