//! The emulated disk: what a running machine sees, and the log of how it came about.
//!
//! Guarantees: an operation is in the log before its caller gets an answer, and the log's order is the order in which the
//! operations took effect. Nothing is ever removed from the log, so the state after a power cut at any point can be
//! computed later, as often as wanted ([`super::cut`]). Relies on nothing outside the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::io::Errno;

use super::log::{Change, Event, Ino, Kind, Name, ROOT, Slot};
use super::sparse::Sparse;

/// What `stat` says of one inode.
#[derive(Debug, Clone)]
pub struct Stat {
    /// The inode number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub len: u64,
    /// How many names it has.
    pub links: u32,
    /// Last change of the bytes.
    pub modified: SystemTime,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    permissions: u32,
    uid: u32,
    gid: u32,
    modified: SystemTime,
    links: u32,
    opens: u32,
    bytes: Sparse,
    /// Space that was allocated up to here without a change of the length.
    reserved: u64,
    entries: BTreeMap<Name, Ino>,
    parent: Ino,
}

impl Node {
    fn new(kind: Kind, permissions: u32, parent: Ino) -> Self {
        Self {
            kind,
            permissions,
            uid: 0,
            gid: 0,
            modified: SystemTime::now(),
            links: 0,
            opens: 0,
            bytes: Sparse::default(),
            reserved: 0,
            entries: BTreeMap::new(),
            parent,
        }
    }
}

#[derive(Debug)]
struct State {
    nodes: HashMap<Ino, Node>,
    next: Ino,
    log: Vec<Event>,
    /// Whether each directory of the root stands for a disk of its own.
    parted: bool,
    /// Bytes that all files together may have, by their lengths.
    room: u64,
    used: u64,
}

/// A disk in memory. All operations are atomic and ordered; any thread may call any of them.
#[derive(Debug)]
pub struct Disk {
    state: Mutex<State>,
    points: AtomicU64,
}

impl Default for Disk {
    fn default() -> Self {
        let root = Node { links: 1, ..Node::new(Kind::Directory, 0o755, ROOT) };
        let state = State {
            nodes: HashMap::from([(ROOT, root)]),
            next: ROOT + 1,
            log: Vec::new(),
            parted: false,
            room: u64::MAX,
            used: 0,
        };
        Self { state: Mutex::new(state), points: AtomicU64::new(0) }
    }
}

impl Disk {
    /// Several disks with one log: what is in one directory of the root cannot be linked or moved to another, as across devices.
    #[must_use]
    pub fn parted() -> Self {
        let disk = Self::default();
        disk.state().parted = true;
        disk
    }

    /// From now on all files together may have only this many bytes more, counted by their lengths: what would make one longer than that is
    /// refused. What changes bytes that a file has, or makes it shorter, is not.
    pub fn limit(&self, more: u64) {
        let mut state = self.state();
        state.room = state.used.saturating_add(more);
    }

    /// Bytes that may be added before the disk is full.
    pub fn free(&self) -> u64 {
        let state = self.state();
        state.room.saturating_sub(state.used)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, state: &mut State, event: Event) {
        state.log.push(event);
        self.points.store(state.log.len() as u64, Ordering::SeqCst);
    }

    /// How many points have been logged. An operation whose answer was seen before this call is among them.
    pub fn points(&self) -> u64 {
        self.points.load(Ordering::SeqCst)
    }

    /// The log so far. Cheap: the bytes in it are shared.
    #[must_use]
    pub fn log(&self) -> Vec<Event> {
        self.state().log.clone()
    }

    /// What `name` in `dir` is.
    ///
    /// # Errors
    /// `NOENT` when there is no such name, `NOTDIR` when `dir` is not a directory.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino, Errno> {
        let state = self.state();
        match name {
            b"." => Ok(dir),
            b".." => Ok(state.directory(dir)?.parent),
            _ => state.directory(dir)?.entries.get(name).copied().ok_or(Errno::NOENT),
        }
    }

    /// The attributes of `ino`.
    ///
    /// # Errors
    /// `NOENT` when there is no such inode.
    pub fn stat(&self, ino: Ino) -> Result<Stat, Errno> {
        let state = self.state();
        let node = state.nodes.get(&ino).ok_or(Errno::NOENT)?;
        let len = if let Kind::Symlink(target) = &node.kind { target.len() as u64 } else { node.bytes.len() };
        Ok(Stat {
            ino,
            kind: node.kind.clone(),
            permissions: node.permissions,
            uid: node.uid,
            gid: node.gid,
            len,
            links: node.links,
            modified: node.modified,
        })
    }

    /// Makes a new inode under a new name.
    ///
    /// # Errors
    /// `EXIST` when the name is taken, `NOENT` and `NOTDIR` as for [`Disk::lookup`].
    pub fn make(&self, dir: Ino, name: &[u8], kind: Kind, permissions: u32) -> Result<Ino, Errno> {
        let mut state = self.state();
        if state.directory(dir)?.entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let ino = state.next;
        state.next += 1;
        let mut node = Node::new(kind.clone(), permissions, dir);
        node.links = 1;
        state.nodes.insert(ino, node);
        state.set(dir, name, Some(ino));
        let slot = Slot { dir, name: name.to_vec(), old: None, new: Some(ino) };
        let event = Event::Names { born: Some((ino, kind)), slots: vec![slot], moves_directory: false };
        self.record(&mut state, event);
        Ok(ino)
    }

    /// Gives `ino` one more name.
    ///
    /// # Errors
    /// `EXIST` when the name is taken, `PERM` for a directory, `XDEV` between disks.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        if state.directory(dir)?.entries.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let node = state.nodes.get_mut(&ino).ok_or(Errno::NOENT)?;
        if node.kind == Kind::Directory {
            return Err(Errno::PERM);
        }
        let parent = node.parent;
        state.check_one_disk(parent, dir)?;
        let node = state.nodes.get_mut(&ino).ok_or(Errno::NOENT)?;
        node.links += 1;
        state.set(dir, name, Some(ino));
        let slot = Slot { dir, name: name.to_vec(), old: None, new: Some(ino) };
        self.record(&mut state, Event::Names { born: None, slots: vec![slot], moves_directory: false });
        Ok(())
    }

    /// Removes a name: of an empty directory when `directory`, of anything else when not.
    ///
    /// # Errors
    /// `NOENT`, `ISDIR`, `NOTDIR` and `NOTEMPTY` as `unlink` and `rmdir` give them.
    pub fn remove(&self, dir: Ino, name: &[u8], directory: bool) -> Result<(), Errno> {
        let mut state = self.state();
        let ino = *state.directory(dir)?.entries.get(name).ok_or(Errno::NOENT)?;
        state.check_replaceable(ino, directory)?;
        state.set(dir, name, None);
        state.unlinked(ino);
        let slot = Slot { dir, name: name.to_vec(), old: Some(ino), new: None };
        self.record(&mut state, Event::Names { born: None, slots: vec![slot], moves_directory: false });
        Ok(())
    }

    /// Renames, replacing what `to` names unless `no_replace`; with `exchange` the two change places.
    ///
    /// # Errors
    /// As `renameat2`: `NOENT`, `EXIST`, `ISDIR`, `NOTDIR`, `NOTEMPTY`, `INVAL` for a directory moved below itself, `XDEV` between disks.
    pub fn rename(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        no_replace: bool,
        exchange: bool,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        let moved = *state.directory(from.0)?.entries.get(from.1).ok_or(Errno::NOENT)?;
        state.check_one_disk(from.0, to.0)?;
        let target = state.directory(to.0)?.entries.get(to.1).copied();
        let is_directory = state.is_directory(moved);
        match target {
            Some(_) if no_replace => return Err(Errno::EXIST),
            None if exchange => return Err(Errno::NOENT),
            Some(target) if target == moved => return Ok(()),
            Some(target) if !exchange => state.check_replaceable(target, is_directory)?,
            _ => {}
        }
        if is_directory && state.is_below(to.0, moved) {
            return Err(Errno::INVAL);
        }
        let back = if exchange { target } else { None };
        state.set(from.0, from.1, back);
        state.set(to.0, to.1, Some(moved));
        if let Some(target) = target.filter(|_| !exchange) {
            state.unlinked(target);
        }
        let moves_directory = is_directory || back.is_some_and(|ino| state.is_directory(ino));
        let slots = vec![
            Slot { dir: from.0, name: from.1.to_vec(), old: Some(moved), new: back },
            Slot { dir: to.0, name: to.1.to_vec(), old: target, new: Some(moved) },
        ];
        self.record(&mut state, Event::Names { born: None, slots, moves_directory });
        Ok(())
    }

    /// The entries of a directory in a fixed order, without `.` and `..`.
    ///
    /// # Errors
    /// `NOENT` and `NOTDIR`.
    pub fn list(&self, dir: Ino) -> Result<Vec<(Name, Ino)>, Errno> {
        let state = self.state();
        Ok(state.directory(dir)?.entries.iter().map(|(name, ino)| (name.clone(), *ino)).collect())
    }

    /// The directory that holds `ino`: of several the one in which it got its last name.
    ///
    /// # Errors
    /// `NOENT` when there is no such inode.
    pub fn parent(&self, ino: Ino) -> Result<Ino, Errno> {
        Ok(self.state().nodes.get(&ino).ok_or(Errno::NOENT)?.parent)
    }

    /// Up to `len` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// `NOENT` when there is no such inode.
    pub fn read(&self, ino: Ino, offset: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let state = self.state();
        Ok(state.nodes.get(&ino).ok_or(Errno::NOENT)?.bytes.read(offset, len))
    }

    /// Changes a file's bytes or length; with `sync` the file is durable when this returns, as under `O_SYNC`.
    ///
    /// # Errors
    /// `NOENT` when there is no such inode, `INVAL` when it is not a file, `NOSPC` when there is no room.
    pub fn change(&self, ino: Ino, change: Change, sync: bool) -> Result<(), Errno> {
        let mut state = self.state();
        let node = state.nodes.get_mut(&ino).ok_or(Errno::NOENT)?;
        if node.kind != Kind::File {
            return Err(Errno::INVAL);
        }
        let before = node.space();
        let kept = if matches!(change, Change::SetLen(_)) { 0 } else { node.reserved };
        let after = change.len_after(node.bytes.len()).max(kept);
        let used = state.used.saturating_sub(before).saturating_add(after);
        if after > before && used > state.room {
            return Err(Errno::NOSPC);
        }
        state.used = used;
        let node = state.nodes.get_mut(&ino).ok_or(Errno::NOENT)?;
        node.reserved = kept;
        change.apply(&mut node.bytes);
        node.modified = SystemTime::now();
        self.record(&mut state, Event::Data { ino, change });
        if sync {
            self.record(&mut state, Event::SyncFile(ino));
        }
        Ok(())
    }

    /// Allocates space up to `end` of a file without a change of its length. No point of its own: a cut does not know of it.
    ///
    /// # Errors
    /// `NOENT` when there is no such inode, `NOSPC` when there is no room.
    pub fn reserve(&self, ino: Ino, end: u64) -> Result<(), Errno> {
        let mut state = self.state();
        let node = state.nodes.get(&ino).ok_or(Errno::NOENT)?;
        let more = end.saturating_sub(node.space());
        let used = state.used.saturating_add(more);
        if more > 0 && used > state.room {
            return Err(Errno::NOSPC);
        }
        state.used = used;
        let node = state.nodes.get_mut(&ino).ok_or(Errno::NOENT)?;
        node.reserved = node.reserved.max(end);
        Ok(())
    }

    /// Sets permission bits and ownership. These are no point of their own: a cut keeps the latest.
    ///
    /// # Errors
    /// `NOENT` when there is no such inode.
    pub fn set_owner(
        &self,
        ino: Ino,
        permissions: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), Errno> {
        let mut state = self.state();
        let node = state.nodes.get_mut(&ino).ok_or(Errno::NOENT)?;
        node.permissions = permissions.unwrap_or(node.permissions);
        node.uid = uid.unwrap_or(node.uid);
        node.gid = gid.unwrap_or(node.gid);
        Ok(())
    }

    /// Sets the time of last change of the bytes. Like ownership, no point of its own.
    ///
    /// # Errors
    /// `NOENT` when there is no such inode.
    pub fn set_modified(&self, ino: Ino, time: SystemTime) -> Result<(), Errno> {
        self.state().nodes.get_mut(&ino).ok_or(Errno::NOENT)?.modified = time;
        Ok(())
    }

    /// Makes a file or directory durable.
    ///
    /// # Errors
    /// `NOENT` when there is no such inode.
    pub fn sync(&self, ino: Ino) -> Result<(), Errno> {
        let mut state = self.state();
        let directory = state.nodes.get(&ino).ok_or(Errno::NOENT)?.kind == Kind::Directory;
        let event = if directory { Event::SyncDirectory(ino) } else { Event::SyncFile(ino) };
        self.record(&mut state, event);
        Ok(())
    }

    /// Counts one more open handle of `ino`: its bytes stay readable after its last name is gone.
    pub fn opened(&self, ino: Ino) {
        if let Some(node) = self.state().nodes.get_mut(&ino) {
            node.opens += 1;
        }
    }

    /// Counts one handle less.
    pub fn closed(&self, ino: Ino) {
        let mut state = self.state();
        if let Some(node) = state.nodes.get_mut(&ino) {
            node.opens = node.opens.saturating_sub(1);
            let freed = node.drop_if_dead();
            state.used = state.used.saturating_sub(freed);
        }
    }
}

impl Node {
    /// Gives up the bytes of a file without names and handles, and says how many.
    fn drop_if_dead(&mut self) -> u64 {
        if self.links > 0 || self.opens > 0 {
            return 0;
        }
        let freed = self.space();
        (self.bytes, self.reserved) = (Sparse::default(), 0);
        freed
    }

    /// Bytes that it takes on a disk.
    fn space(&self) -> u64 {
        self.bytes.len().max(self.reserved)
    }
}

impl State {
    fn directory(&self, ino: Ino) -> Result<&Node, Errno> {
        let node = self.nodes.get(&ino).ok_or(Errno::NOENT)?;
        if node.kind == Kind::Directory { Ok(node) } else { Err(Errno::NOTDIR) }
    }

    fn is_directory(&self, ino: Ino) -> bool {
        self.directory(ino).is_ok()
    }

    fn set(&mut self, dir: Ino, name: &[u8], to: Option<Ino>) {
        if let Some(node) = self.nodes.get_mut(&dir) {
            match to {
                Some(ino) => node.entries.insert(name.to_vec(), ino),
                None => node.entries.remove(name),
            };
            node.modified = SystemTime::now();
        }
        if let Some(child) = to.and_then(|ino| self.nodes.get_mut(&ino)) {
            child.parent = dir;
        }
    }

    fn unlinked(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.links = node.links.saturating_sub(1);
            let freed = node.drop_if_dead();
            self.used = self.used.saturating_sub(freed);
        }
    }

    /// Whether `ino` may be removed or replaced by something that is a directory or not.
    fn check_replaceable(&self, ino: Ino, directory: bool) -> Result<(), Errno> {
        let node = self.nodes.get(&ino).ok_or(Errno::NOENT)?;
        match (node.kind == Kind::Directory, directory) {
            (true, false) => Err(Errno::ISDIR),
            (false, true) => Err(Errno::NOTDIR),
            (true, true) if !node.entries.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Refuses what would lie on two disks.
    fn check_one_disk(&self, one: Ino, other: Ino) -> Result<(), Errno> {
        if self.parted && self.top(one) != self.top(other) { Err(Errno::XDEV) } else { Ok(()) }
    }

    /// The directory of the root that `dir` is or lies in; the root for itself.
    fn top(&self, mut dir: Ino) -> Ino {
        while let Some(node) = self.nodes.get(&dir).filter(|node| node.parent != ROOT) {
            dir = node.parent;
        }
        dir
    }

    fn is_below(&self, mut dir: Ino, ancestor: Ino) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            match self.nodes.get(&dir) {
                Some(node) if dir != ROOT => dir = node.parent,
                _ => return false,
            }
        }
    }
}
