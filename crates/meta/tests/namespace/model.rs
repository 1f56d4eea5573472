//! What a subvolume holds, as plain maps. A byte of a file is a token: 0 is a hole, below 256 an inline byte, else one written byte of one run.

use std::collections::BTreeMap;

use forebay_meta::MetaError;
use forebay_types::{FileKind, Ino};

pub type Name = Vec<u8>;

/// Why the model refuses an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    NotFound,
    Stale,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    IntoItself,
    Invalid,
    NameTooLong,
    TooLarge,
    NoAttribute,
    AttributeExists,
    Log,
    Other,
}

impl From<MetaError> for Refusal {
    fn from(error: MetaError) -> Refusal {
        match error {
            MetaError::NotFound => Refusal::NotFound,
            MetaError::Stale(_) => Refusal::Stale,
            MetaError::Exists => Refusal::Exists,
            MetaError::NotDirectory(_) => Refusal::NotDirectory,
            MetaError::IsDirectory(_) => Refusal::IsDirectory,
            MetaError::NotEmpty(_) => Refusal::NotEmpty,
            MetaError::IntoItself => Refusal::IntoItself,
            MetaError::Invalid(_) => Refusal::Invalid,
            MetaError::NameTooLong(_) => Refusal::NameTooLong,
            MetaError::FileTooLarge(_) => Refusal::TooLarge,
            MetaError::NoAttribute => Refusal::NoAttribute,
            MetaError::AttributeExists => Refusal::AttributeExists,
            MetaError::Log(_) => Refusal::Log,
            _ => Refusal::Other,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub kind: FileKind,
    pub mode: u16,
    pub uid: u32,
    pub names: u32,
    pub parent: Ino,
    pub entries: BTreeMap<Name, Ino>,
    pub data: Vec<u32>,
    /// Bytes of the inline row; `None` where the data is extents, or none.
    pub inline: Option<usize>,
    pub xattrs: BTreeMap<Name, Vec<u8>>,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
}

impl Node {
    pub fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub fn resize(&mut self, size: usize) {
        self.data.resize(size, 0);
        self.inline = self.inline.map(|len| len.min(size)).filter(|len| *len > 0);
    }

    pub fn touch(&mut self, now: i64) {
        self.mtime = now;
        self.ctime = now;
    }

    pub fn allocated(&self) -> u64 {
        match self.inline {
            Some(len) => len as u64,
            None => self.data.iter().filter(|token| **token != 0).count() as u64,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree(pub BTreeMap<Ino, Node>);

impl Tree {
    pub fn new() -> Tree {
        Tree(BTreeMap::from([(Ino::ROOT, Tree::node(FileKind::Directory, 0o755, Ino::ROOT, 0))]))
    }

    pub fn node(kind: FileKind, mode: u16, parent: Ino, now: i64) -> Node {
        Node {
            kind,
            mode,
            uid: 0,
            names: 1,
            parent,
            entries: BTreeMap::new(),
            data: Vec::new(),
            inline: None,
            xattrs: BTreeMap::new(),
            atime: now,
            mtime: now,
            ctime: now,
        }
    }

    pub fn get(&mut self, ino: Ino) -> Result<&mut Node, Refusal> {
        self.0.get_mut(&ino).ok_or(Refusal::Stale)
    }

    pub fn file(&mut self, ino: Ino) -> Result<&mut Node, Refusal> {
        let node = self.get(ino)?;
        match node.kind {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err(Refusal::IsDirectory),
            _ => Err(Refusal::Invalid),
        }
    }

    /// A directory that names can be put in.
    pub fn target(&mut self, ino: Ino) -> Result<&mut Node, Refusal> {
        let node = self.get(ino)?;
        match (node.is_directory(), node.names) {
            (false, _) => Err(Refusal::NotDirectory),
            (true, 0) => Err(Refusal::NotFound),
            (true, _) => Ok(node),
        }
    }

    pub fn find(&mut self, parent: Ino, name: &[u8]) -> Result<Ino, Refusal> {
        let node = self.get(parent)?;
        if !node.is_directory() {
            return Err(Refusal::NotDirectory);
        }
        node.entries.get(name).copied().ok_or(Refusal::NotFound)
    }

    /// Takes a name off an inode. Returns whether it was the last.
    pub fn drop_name(&mut self, ino: Ino, in_use: bool, now: i64) -> Result<bool, Refusal> {
        let node = self.get(ino)?;
        node.names -= 1;
        node.ctime = now;
        let last = node.names == 0;
        if last && !in_use {
            self.0.remove(&ino);
        }
        Ok(last)
    }

    pub fn is_above(&self, ino: Ino, mut below: Ino) -> bool {
        while below != Ino::ROOT {
            if below == ino {
                return true;
            }
            below = self.0[&below].parent;
        }
        ino == Ino::ROOT
    }

    pub fn put(&mut self, parent: Ino, name: &[u8], ino: Ino, now: i64) {
        let node = self.0.get_mut(&parent).unwrap();
        node.entries.insert(name.to_vec(), ino);
        node.touch(now);
    }

    pub fn take(&mut self, parent: Ino, name: &[u8], now: i64) {
        let node = self.0.get_mut(&parent).unwrap();
        node.entries.remove(name);
        node.touch(now);
    }

    pub fn settle(&mut self, ino: Ino, parent: Ino, now: i64) {
        let node = self.0.get_mut(&ino).unwrap();
        node.parent = parent;
        node.ctime = now;
    }

    /// Directories among a directory's entries.
    pub fn directories(&self, ino: Ino) -> usize {
        self.0[&ino].entries.values().filter(|ino| self.0[ino].is_directory()).count()
    }
}
