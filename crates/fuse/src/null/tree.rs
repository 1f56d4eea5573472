//! Inodes and directories in memory.
//!
//! Locking: an operation locks one directory at a time; rename and rmdir, which lock two, take [`Tree::moves`] first, so
//! that no two of them can wait for each other.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

use crate::errno::Errno;
use crate::types::*;

const SHARDS: usize = 64;

/// Spreads inode numbers, which nobody chooses with ill intent.
#[derive(Default)]
pub(super) struct InoHasher(u64);

impl Hasher for InoHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

type Shard = RwLock<HashMap<u64, Arc<Node>, BuildHasherDefault<InoHasher>>>;

/// One name in a directory.
#[derive(Debug, Clone)]
pub(super) struct Dentry {
    pub name: Box<[u8]>,
    pub ino: u64,
    pub kind: FileKind,
}

/// A directory's names, each at a position that stays its own while others come and go.
#[derive(Debug, Default)]
pub(super) struct Dir {
    pub parent: u64,
    pub removed: bool,
    positions: HashMap<Box<[u8]>, u64>,
    pub entries: BTreeMap<u64, Dentry>,
    last: u64,
}

/// Positions 1 and 2 are `.` and `..`.
const FIRST_POSITION: u64 = 3;

impl Dir {
    fn new(parent: u64) -> Dir {
        Dir { parent, last: FIRST_POSITION - 1, ..Dir::default() }
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Dentry> {
        self.entries.get(self.positions.get(name)?)
    }

    pub(super) fn insert(&mut self, name: &[u8], ino: u64, kind: FileKind) -> Result<(), Errno> {
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.removed {
            return Err(Errno::ENOENT);
        }
        if self.positions.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.last += 1;
        let name: Box<[u8]> = name.into();
        self.positions.insert(name.clone(), self.last);
        self.entries.insert(self.last, Dentry { name, ino, kind });
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Dentry> {
        let position = self.positions.remove(name)?;
        self.entries.remove(&position)
    }

    /// Makes an existing name mean another inode.
    pub(super) fn replace(&mut self, name: &[u8], ino: u64, kind: FileKind) {
        if let Some(entry) = self.positions.get(name).and_then(|position| self.entries.get_mut(position)) {
            (entry.ino, entry.kind) = (ino, kind);
        }
    }
}

/// What an inode is besides its attributes.
#[derive(Debug)]
pub(super) enum Body {
    Dir(RwLock<Dir>),
    Symlink(Bytes),
    Other,
}

#[derive(Debug)]
pub(super) struct Node {
    pub attr: Mutex<FileAttr>,
    pub body: Body,
    pub xattrs: Mutex<BTreeMap<Vec<u8>, Bytes>>,
    lookups: AtomicU64,
}

impl Node {
    pub(super) fn dir(&self) -> Result<&RwLock<Dir>, Errno> {
        match &self.body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub(super) fn count_lookup(&self) {
        self.lookups.fetch_add(1, Ordering::AcqRel);
    }

    /// Changes the count of links and the change time.
    pub(super) fn relink(&self, by: i32) {
        let mut attr = self.attr.lock();
        attr.nlink = attr.nlink.saturating_add_signed(by);
        attr.ctime = now();
    }

    /// Sets the times of a directory whose names changed.
    pub(super) fn touch(&self) {
        let mut attr = self.attr.lock();
        attr.mtime = now();
        attr.ctime = attr.mtime;
    }
}

#[derive(Debug)]
pub(super) struct Tree {
    shards: [Shard; SHARDS],
    next: AtomicU64,
    pub moves: Mutex<()>,
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

/// What a new inode begins with.
pub(super) struct Birth {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub parent: u64,
    pub target: Option<Bytes>,
}

impl Tree {
    pub(super) fn new() -> Tree {
        let tree = Tree {
            shards: std::array::from_fn(|_| Shard::default()),
            next: AtomicU64::new(ROOT_INO),
            moves: Mutex::new(()),
        };
        let root =
            Birth { mode: libc::S_IFDIR | 0o755, uid: 0, gid: 0, rdev: 0, parent: ROOT_INO, target: None };
        tree.add(root);
        tree
    }

    fn shard(&self, ino: u64) -> &Shard {
        &self.shards[(ino % SHARDS as u64) as usize]
    }

    pub(super) fn get(&self, ino: u64) -> Result<Arc<Node>, Errno> {
        self.shard(ino).read().get(&ino).cloned().ok_or(Errno::ESTALE)
    }

    /// Makes an inode, with one link (two, if a directory).
    pub(super) fn add(&self, birth: Birth) -> Arc<Node> {
        let ino = self.next.fetch_add(1, Ordering::Relaxed);
        let kind = FileKind::from_mode(birth.mode).unwrap_or(FileKind::File);
        let time = now();
        let attr = FileAttr {
            ino,
            size: birth.target.as_ref().map_or(0, |target| target.len() as u64),
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            mode: (birth.mode & 0o7777) | kind.mode_bits(),
            nlink: if kind == FileKind::Dir { 2 } else { 1 },
            uid: birth.uid,
            gid: birth.gid,
            rdev: birth.rdev,
            blksize: 4096,
        };
        let body = match (kind, birth.target) {
            (FileKind::Dir, _) => Body::Dir(RwLock::new(Dir::new(birth.parent))),
            (_, Some(target)) => Body::Symlink(target),
            _ => Body::Other,
        };
        let node = Arc::new(Node {
            attr: Mutex::new(attr),
            body,
            xattrs: Mutex::default(),
            lookups: AtomicU64::new(0),
        });
        self.shard(ino).write().insert(ino, Arc::clone(&node));
        node
    }

    /// Drops an inode that has neither names nor lookups.
    pub(super) fn drop_unused(&self, ino: u64) {
        let mut shard = self.shard(ino).write();
        let unused =
            |node: &Arc<Node>| node.lookups.load(Ordering::Acquire) == 0 && node.attr.lock().nlink == 0;
        if shard.get(&ino).is_some_and(unused) {
            shard.remove(&ino);
        }
    }

    pub(super) fn forget(&self, ino: u64, count: u64) {
        let Ok(node) = self.get(ino) else { return };
        let less = |lookups: u64| Some(lookups.saturating_sub(count));
        let before = node.lookups.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        if before.is_ok_and(|before| before <= count) {
            self.drop_unused(ino);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }
}
