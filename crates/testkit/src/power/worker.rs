//! One thread of a workload: what it has on the file system, and single operations with their records.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use super::history::{Clock, Op, Record, Store};
use super::log::Change;
use super::pattern::{self, FileId};
use super::rng::Rng;
use super::sparse::Sparse;
use super::target::Target;

/// Why a thread stops before its plan ends.
#[derive(Debug)]
pub(crate) enum Stop {
    /// What it ran on was killed.
    Killed,
    /// There was no space for an operation; of the file, if it is one, some part may have been changed.
    Full(Option<FileId>),
    /// An operation failed that should not have.
    Failed(String),
}

/// A file that has at least one name or one open handle.
#[derive(Debug)]
pub(crate) struct Live {
    pub paths: Vec<String>,
    pub content: Sparse,
    pub writes: u32,
    pub attributes: BTreeMap<String, Vec<u8>>,
}

/// One thread's view. Everything it names is below `t<thread>/`, or in `shared/` with `t<thread>-` in front.
pub(crate) struct Worker<'a, T: Target> {
    pub target: &'a T,
    pub clock: &'a Clock<'a>,
    pub thread: u16,
    /// Leaves alone what is shared: it belongs to an earlier crew.
    pub alone: bool,
    pub rng: Rng,
    pub records: Vec<Record>,
    pub inodes: HashMap<FileId, u64>,
    pub files: BTreeMap<FileId, Live>,
    pub symlinks: Vec<String>,
    /// Own directories, the base first.
    pub dirs: Vec<String>,
    /// Files open since their creation.
    pub held: Vec<(FileId, T::File)>,
    pub streamed: u64,
    pub appended: u32,
    next_file: u16,
    next_dir: u32,
}

impl<'a, T: Target> Worker<'a, T> {
    pub fn new(target: &'a T, clock: &'a Clock<'a>, thread: u16, alone: bool, rng: Rng) -> Self {
        Self {
            target,
            clock,
            thread,
            alone,
            rng,
            records: Vec::new(),
            inodes: HashMap::new(),
            files: BTreeMap::new(),
            symlinks: Vec::new(),
            dirs: Vec::new(),
            held: Vec::new(),
            streamed: 0,
            appended: 0,
            next_file: 0,
            next_dir: 0,
        }
    }

    /// Does one operation and records it: its start before the call, so that an unanswered one is known too.
    pub fn act<R>(&mut self, op: Op, call: impl FnOnce(&T) -> io::Result<R>) -> Result<R, Stop> {
        let start = self.clock.now();
        self.records.push(Record { op, start, end: None });
        match call(self.target) {
            Ok(result) => {
                let end = self.clock.now();
                if let Some(record) = self.records.last_mut() {
                    record.end = Some(end);
                }
                Ok(result)
            }
            Err(_) if self.clock.excused() => Err(Stop::Killed),
            // A write may have been carried out in part: it stays, as one without an answer. Nothing else can be.
            Err(error) if self.clock.is_full(&error) => {
                let written = self.records.last().and_then(|record| match &record.op {
                    Op::Data { file, change: Change::Write { .. } } => Some(*file),
                    _ => None,
                });
                if written.is_none() {
                    self.records.pop();
                }
                Err(Stop::Full(written))
            }
            Err(error) => {
                let op = self.records.pop().map(|record| record.op);
                Err(Stop::Failed(format!("thread {}: {} failed: {error}", self.thread, summary(op.as_ref()))))
            }
        }
    }

    /// Does something that leaves no trace in the tree.
    pub fn quietly<R>(&self, what: &str, call: impl FnOnce(&T) -> io::Result<R>) -> Result<R, Stop> {
        call(self.target).map_err(|error| {
            if self.clock.excused() {
                Stop::Killed
            } else if self.clock.is_full(&error) {
                Stop::Full(None)
            } else {
                Stop::Failed(format!("thread {}: {what} failed: {error}", self.thread))
            }
        })
    }

    pub fn create(&mut self, path: &str) -> Result<(FileId, T::File), Stop> {
        let file = FileId { thread: self.thread, number: self.next_file };
        self.next_file += 1;
        let handle = self.act(Op::Create { path: path.to_owned(), file }, |target| target.create(path))?;
        self.adopt(file, &handle, vec![path.to_owned()])?;
        Ok((file, handle))
    }

    /// Makes a file that has no name yet; [`Worker::link_open`] must come next but for changes of its own bytes.
    pub fn create_unnamed(&mut self, directory: &str) -> Result<(FileId, T::File), Stop> {
        let file = FileId { thread: self.thread, number: self.next_file };
        self.next_file += 1;
        let handle = self.quietly("open with O_TMPFILE", |target| target.create_unnamed(directory))?;
        self.adopt(file, &handle, Vec::new())?;
        Ok((file, handle))
    }

    /// Gives a file one more name.
    pub fn link(&mut self, file: FileId, from: &str, to: &str) -> Result<(), Stop> {
        let op = Op::Link { from: from.to_owned(), to: to.to_owned(), file };
        self.act(op, |target| target.link(from, to))?;
        if let Some(live) = self.files.get_mut(&file) {
            live.paths.push(to.to_owned());
        }
        Ok(())
    }

    pub fn link_open(&mut self, file: FileId, handle: &T::File, to: &str) -> Result<(), Stop> {
        let op = Op::Link { from: String::new(), to: to.to_owned(), file };
        self.act(op, |target| target.link_open(handle, to))?;
        if let Some(live) = self.files.get_mut(&file) {
            live.paths.push(to.to_owned());
        }
        Ok(())
    }

    fn adopt(&mut self, file: FileId, handle: &T::File, paths: Vec<String>) -> Result<(), Stop> {
        let inode = self.quietly("stat of a new file", |target| target.inode(handle))?;
        self.inodes.insert(file, inode);
        let live = Live { paths, content: Sparse::default(), writes: 0, attributes: BTreeMap::new() };
        self.files.insert(file, live);
        Ok(())
    }

    /// Sets an attribute, or removes it.
    pub fn attribute(
        &mut self,
        file: FileId,
        name: &str,
        value: Option<Vec<u8>>,
        call: impl FnOnce(&T) -> io::Result<()>,
    ) -> Result<(), Stop> {
        let op = Op::Attribute { file, name: name.to_owned(), value: value.clone() };
        self.act(op, call)?;
        if let Some(live) = self.files.get_mut(&file) {
            match value {
                Some(value) => live.attributes.insert(name.to_owned(), value),
                None => live.attributes.remove(name),
            };
        }
        Ok(())
    }

    /// The first close of a file that this thread made.
    pub fn close_new(&mut self, file: FileId, handle: T::File) -> Result<(), Stop> {
        self.act(Op::Close { file }, |target| {
            target.close(handle);
            Ok(())
        })
    }

    pub fn write(&mut self, file: FileId, handle: &T::File, offset: u64, len: usize) -> Result<(), Stop> {
        let data = self.next_bytes(file, offset, len);
        let change = Change::Write { offset, data: Arc::clone(&data) };
        let op = Op::Data { file, change: change.clone() };
        self.act(op, |target| target.write(handle, offset, &data))?;
        self.apply(file, &change);
        Ok(())
    }

    /// A write through a handle under `O_SYNC`: durable once it has returned.
    pub fn write_synced(
        &mut self,
        file: FileId,
        handle: &T::File,
        offset: u64,
        len: usize,
    ) -> Result<(), Stop> {
        self.write(file, handle, offset, len)?;
        if let Some(Record { start, end, .. }) = self.records.last().cloned() {
            self.records.push(Record { op: Op::SyncFile { file }, start, end });
        }
        Ok(())
    }

    /// Stores bytes in a shared mapping of a file that has them already; with `sync` they are durable once this has returned.
    pub fn store_mapped(
        &mut self,
        file: FileId,
        path: &str,
        places: &[(u64, usize)],
        sync: bool,
    ) -> Result<(), Stop> {
        let stores: Vec<Store> =
            places.iter().map(|(offset, len)| (*offset, self.next_bytes(file, *offset, *len))).collect();
        let op = Op::Mapped { file, stores: stores.clone() };
        self.act(op, |target| target.store_mapped(path, &stores, sync))?;
        for (offset, data) in stores {
            self.apply(file, &Change::Write { offset, data });
        }
        if let Some(Record { start, end, .. }) = self.records.last().filter(|_| sync).cloned() {
            self.records.push(Record { op: Op::SyncFile { file }, start, end });
        }
        Ok(())
    }

    /// As [`Worker::change`], by the call given.
    pub fn change_by<R>(
        &mut self,
        file: FileId,
        change: &Change,
        call: impl FnOnce(&T) -> io::Result<R>,
    ) -> Result<R, Stop> {
        let done = self.act(Op::Data { file, change: change.clone() }, call)?;
        self.apply(file, change);
        Ok(done)
    }

    pub fn change(&mut self, file: FileId, handle: &T::File, change: &Change) -> Result<(), Stop> {
        let op = Op::Data { file, change: change.clone() };
        self.act(op, |target| match change {
            Change::SetLen(len) => target.set_len(handle, *len),
            Change::Zero { offset, len } => target.punch(handle, *offset, *len),
            Change::Write { offset, data } => target.write(handle, *offset, data),
        })?;
        self.apply(file, change);
        Ok(())
    }

    /// Copies bytes between two files; both offsets are multiples of the page size, so that requests end at pages.
    pub fn copy(
        &mut self,
        from: (FileId, &T::File, u64),
        to: (FileId, &T::File, u64),
        len: u64,
    ) -> Result<(), Stop> {
        let data: Arc<[u8]> =
            self.files.get(&from.0).map(|live| live.content.read(from.2, len)).unwrap_or_default().into();
        if data.is_empty() {
            return Ok(());
        }
        let whole = Change::Write { offset: to.2, data: Arc::clone(&data) };
        let op = Op::Data { file: to.0, change: whole };
        let len = data.len() as u64;
        let done = self.act(op, |target| target.copy((from.1, from.2), (to.1, to.2), len))?;
        let copied = data.get(..usize::try_from(done).unwrap_or(0)).unwrap_or(&data);
        let change = Change::Write { offset: to.2, data: Arc::from(copied) };
        self.apply(to.0, &change);
        if let Some(Record { op: Op::Data { change: recorded, .. }, .. }) = self.records.last_mut() {
            *recorded = change;
        }
        Ok(())
    }

    pub fn sync(&mut self, file: FileId, handle: &T::File) -> Result<(), Stop> {
        let data_only = self.rng.chance(1, 2);
        self.act(Op::SyncFile { file }, |target| target.sync(handle, data_only))
    }

    pub fn sync_directory(&mut self, path: &str) -> Result<(), Stop> {
        self.act(Op::SyncDirectory { path: path.to_owned() }, |target| target.sync_directory(path))
    }

    pub fn mkdir(&mut self, path: &str) -> Result<(), Stop> {
        self.act(Op::Mkdir { path: path.to_owned() }, |target| target.mkdir(path))?;
        self.dirs.push(path.to_owned());
        Ok(())
    }

    pub fn unlink(&mut self, path: &str) -> Result<(), Stop> {
        self.act(Op::Unlink { path: path.to_owned() }, |target| target.unlink(path))?;
        self.forget(path);
        Ok(())
    }

    /// Renames a file, over another one if that has the name.
    pub fn rename_file(&mut self, file: FileId, from: &str, to: &str) -> Result<(), Stop> {
        let op = Op::Rename { from: from.to_owned(), to: to.to_owned(), file: Some(file) };
        self.act(op, |target| target.rename(from, to, false))?;
        self.forget(to);
        if let Some(path) = self.files.get_mut(&file).and_then(|l| l.paths.iter_mut().find(|p| *p == from)) {
            to.clone_into(path);
        }
        Ok(())
    }

    /// Renames a directory with all that is in it; `to` is a new name outside it.
    pub fn rename_directory(&mut self, from: &str, to: &str) -> Result<(), Stop> {
        let op = Op::Rename { from: from.to_owned(), to: to.to_owned(), file: None };
        self.act(op, |target| target.rename(from, to, false))?;
        let files = self.files.values_mut().flat_map(|live| live.paths.iter_mut());
        for path in files.chain(&mut self.symlinks).chain(&mut self.dirs) {
            if let Some(rest) = path.strip_prefix(from)
                && (rest.is_empty() || rest.starts_with('/'))
            {
                *path = format!("{to}{rest}");
            }
        }
        Ok(())
    }

    pub fn exchange(&mut self, one: (String, FileId), other: (String, FileId)) -> Result<(), Stop> {
        let op = Op::Exchange { one: one.clone(), other: other.clone() };
        self.act(op, |target| target.rename(&one.0, &other.0, true))?;
        for (file, from, to) in [(one.1, &one.0, &other.0), (other.1, &other.0, &one.0)] {
            if let Some(path) =
                self.files.get_mut(&file).and_then(|l| l.paths.iter_mut().find(|p| *p == from))
            {
                to.clone_into(path);
            }
        }
        Ok(())
    }

    /// A directory name that was never used.
    pub fn new_directory_name(&mut self) -> String {
        self.next_dir += 1;
        let parent = self.dirs[self.rng.index(self.dirs.len())].clone();
        format!("{parent}/d{}", self.next_dir)
    }

    /// A name for a file or link, in an own directory or in the shared one; it may be taken.
    pub fn some_name(&mut self) -> String {
        let number = self.rng.below(24);
        if self.rng.chance(1, 4) && !self.alone {
            format!("shared/t{}-f{number}", self.thread)
        } else {
            format!("{}/f{number}", self.dirs[self.rng.index(self.dirs.len())])
        }
    }

    pub fn is_taken(&self, path: &str) -> bool {
        self.symlinks.iter().any(|taken| taken == path) || self.owner(path).is_some()
    }

    pub fn owner(&self, path: &str) -> Option<FileId> {
        self.files.iter().find(|(_, live)| live.paths.iter().any(|p| p == path)).map(|(file, _)| *file)
    }

    /// A random file that has a name, with that name.
    pub fn some_file(&mut self) -> Option<(FileId, String)> {
        let named: Vec<FileId> =
            self.files.iter().filter(|(_, live)| !live.paths.is_empty()).map(|(file, _)| *file).collect();
        let file = *named.get(self.rng.index(named.len()))?;
        let paths = &self.files.get(&file)?.paths;
        let path = paths.get(self.rng.index(paths.len()))?.clone();
        Some((file, path))
    }

    pub fn len_of(&self, file: FileId) -> u64 {
        self.files.get(&file).map_or(0, |live| live.content.len())
    }

    fn forget(&mut self, path: &str) {
        self.symlinks.retain(|link| link != path);
        for live in self.files.values_mut() {
            live.paths.retain(|name| name != path);
        }
        let held: Vec<FileId> = self.held.iter().map(|(file, _)| *file).collect();
        self.files.retain(|file, live| !live.paths.is_empty() || held.contains(file));
    }

    fn next_bytes(&mut self, file: FileId, offset: u64, len: usize) -> Arc<[u8]> {
        let number = self.files.get_mut(&file).map_or(0, |live| {
            live.writes += 1;
            live.writes
        });
        pattern::bytes(file, number, offset, len).into()
    }

    fn apply(&mut self, file: FileId, change: &Change) {
        if let Some(live) = self.files.get_mut(&file) {
            change.apply(&mut live.content);
        }
    }
}

/// An operation for a person, without its bytes.
pub(crate) fn summary(op: Option<&Op>) -> String {
    match op {
        Some(Op::Data { file, change: Change::Write { offset, data }, .. }) => {
            format!("write of {} bytes at {offset} of file {}.{}", data.len(), file.thread, file.number)
        }
        Some(Op::Mapped { file, stores }) => {
            let places: Vec<u64> = stores.iter().map(|(offset, _)| *offset).collect();
            format!("stores at {places:?} of a mapping of file {}.{}", file.thread, file.number)
        }
        Some(op) => format!("{op:?}"),
        None => "an operation".to_owned(),
    }
}
