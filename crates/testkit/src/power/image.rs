//! What lies on the disk after a cut, on its way into a directory that can be mounted.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;

use super::disk::Disk;
use super::log::{Change, Ino, Kind, ROOT};
use super::sparse::Sparse;

/// A tree of files, links included.
#[derive(Debug, Clone, Default)]
pub struct Image {
    names: Vec<(Vec<u8>, Ino, Kind)>,
    bytes: HashMap<Ino, Sparse>,
}

impl Image {
    /// Whether the bytes of `ino` are known.
    #[must_use]
    pub fn has(&self, ino: Ino) -> bool {
        self.bytes.contains_key(&ino)
    }

    /// Sets the bytes of a file.
    pub fn put_bytes(&mut self, ino: Ino, bytes: Sparse) {
        self.bytes.insert(ino, bytes);
    }

    /// Adds a name, as a path from the root without a leading slash. A directory comes before what is in it.
    pub fn put_name(&mut self, path: Vec<u8>, ino: Ino, kind: Kind) {
        self.names.push((path, ino, kind));
    }

    /// The bytes of the file at `path`, if it is there.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&Sparse> {
        let (_, ino, kind) = self.names.iter().find(|(name, ..)| name == path.as_bytes())?;
        if *kind == Kind::File { self.bytes.get(ino) } else { None }
    }

    /// All paths, directories before what is in them.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|(path, ..)| String::from_utf8_lossy(path).into_owned())
    }

    /// Whether there is anything at `path`.
    #[must_use]
    pub fn has_name(&self, path: &str) -> bool {
        self.names.iter().any(|(name, ..)| name == path.as_bytes())
    }

    /// What is at the name `top` in the root, or below it, alone; or all but that, unless `inside`.
    #[must_use]
    pub fn part(&self, top: &str, inside: bool) -> Self {
        let is_inside = |path: &[u8]| {
            path.strip_prefix(top.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        let names = self.names.iter().filter(|(path, ..)| is_inside(path) == inside).cloned().collect();
        Self { names, bytes: self.bytes.clone() }
    }

    /// Adds what is in `other`, which has no name and no file in common with this one.
    pub fn join(&mut self, other: &Self) {
        self.names.extend(other.names.iter().cloned());
        let own: std::collections::HashSet<Ino> = other.names.iter().map(|(_, ino, _)| *ino).collect();
        let bytes = other.bytes.iter().filter(|(ino, _)| own.contains(ino));
        self.bytes.extend(bytes.map(|(ino, bytes)| (*ino, bytes.clone())));
    }

    /// Bytes of all files together.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.values().map(Sparse::len).sum()
    }

    /// Lays the tree out in `root`, which must exist and be empty. Holes stay holes; hard links stay one file.
    ///
    /// # Errors
    /// What the file system of `root` gives.
    pub fn write_to(&self, root: &Path) -> io::Result<()> {
        let mut done: HashMap<Ino, PathBuf> = HashMap::new();
        for (path, ino, kind) in &self.names {
            let place = root.join(OsStr::from_bytes(path));
            if *kind != Kind::Directory
                && let Some(first) = done.get(ino)
            {
                fs::hard_link(first, &place)?;
                continue;
            }
            match kind {
                Kind::Directory => fs::create_dir(&place)?,
                Kind::File => self.write_file(*ino, &place)?,
                Kind::Symlink(target) => symlink(OsStr::from_bytes(target), &place)?,
                Kind::Special(bits) => {
                    mknodat(CWD, &place, FileType::from_raw_mode(*bits), Mode::from(0o600), 0)?;
                }
            }
            done.insert(*ino, place);
        }
        Ok(())
    }

    /// Puts the tree on an empty disk and makes all of it durable there.
    ///
    /// # Errors
    /// When the disk is not empty.
    pub fn load_into(&self, disk: &Disk) -> Result<(), Errno> {
        let mut places: HashMap<&[u8], Ino> = HashMap::from([(&b""[..], ROOT)]);
        let mut done: HashMap<Ino, Ino> = HashMap::new();
        for (path, ino, kind) in &self.names {
            let cut = path.iter().rposition(|byte| *byte == b'/');
            let (dir, name) = cut.map_or((&b""[..], &path[..]), |at| (&path[..at], &path[at + 1..]));
            let dir = *places.get(dir).ok_or(Errno::NOENT)?;
            if let Some(own) = done.get(ino) {
                disk.link(*own, dir, name)?;
                continue;
            }
            let own =
                disk.make(dir, name, kind.clone(), if *kind == Kind::Directory { 0o755 } else { 0o600 })?;
            done.insert(*ino, own);
            places.insert(path, own);
            if let Some(bytes) = self.bytes.get(ino) {
                for (offset, data) in bytes.written() {
                    disk.change(own, Change::Write { offset, data: Arc::from(data) }, false)?;
                }
                disk.change(own, Change::SetLen(bytes.len()), false)?;
            }
        }
        places.values().chain(done.values()).try_for_each(|ino| disk.sync(*ino))
    }

    fn write_file(&self, ino: Ino, place: &Path) -> io::Result<()> {
        let file = File::create(place)?;
        let Some(bytes) = self.bytes.get(&ino) else { return Ok(()) };
        file.set_len(bytes.len())?;
        for (offset, chunk) in bytes.written() {
            if chunk.iter().any(|byte| *byte != 0) {
                file.write_all_at(chunk, offset)?;
            }
        }
        Ok(())
    }
}
