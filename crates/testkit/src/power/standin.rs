//! A tiny journaled file system on the emulated disk, right in itself and breakable on demand: what the oracle is tried on.
//!
//! One generation is three files: a checkpoint (records that build the tree), a journal (records since), and the bytes of
//! large writes. `current` names the generation and is replaced by rename. A record carries a checksum, also of the
//! bytes it refers to, and recovery stops at the first that is not whole.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::image::Image;
use super::log::{Change, Ino, Kind, ROOT};
use super::observe::{Entry, Observed};
use super::sparse::Sparse;
use super::target::Target;

/// What is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    JournalNotSynced,
    BytesNotSynced,
    CheckpointNotSynced,
    CheckpointBytesNotSynced,
    CurrentNotSynced,
    DirectoryNotSynced,
    NoChecksum,
    NamesBeforeBytes,
    SharedNamesLate,
    OneThreadLate,
    TruncationForgotten,
    WritesReversed,
    FsyncForgotten,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Step {
    Create(String, u64),
    Mkdir(String),
    Symlink(String, String),
    Link(String, String),
    Rename(String, String),
    Exchange(String, String),
    Remove(String),
    Write(u64, u64, Vec<u8>),
    WriteFar { file: u64, offset: u64, at: u64, len: u64, sum: u64 },
    SetLen(u64, u64),
    Zero(u64, u64, u64),
}

impl Step {
    fn is_naming(&self) -> bool {
        !matches!(self, Self::Write(..) | Self::WriteFar { .. } | Self::SetLen(..) | Self::Zero(..))
    }
}

#[derive(Debug, Clone)]
enum Node {
    Directory,
    File(u64),
    Symlink(String),
}

#[derive(Debug, Default)]
struct Tree {
    names: BTreeMap<String, Node>,
    files: BTreeMap<u64, Sparse>,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    next_file: u64,
    generation: u64,
    journal: Ino,
    bytes: Ino,
    /// Records that are not yet in the journal file.
    waiting: Vec<Step>,
    /// Records that a fault holds back.
    late: Vec<Step>,
    since_checkpoint: u32,
}

#[derive(Debug)]
pub struct Standin {
    disk: Arc<Disk>,
    fault: Fault,
    state: Mutex<State>,
}

#[derive(Debug)]
pub struct Handle {
    file: u64,
    sync: bool,
}

fn sum(bytes: &[u8], start: u64) -> u64 {
    bytes.iter().fold(start ^ 0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Makes a record good at one place of one generation only: an old one that comes to lie elsewhere is none.
fn salt(generation: u64, offset: u64) -> u64 {
    generation << 40 ^ offset
}

fn failed(error: rustix::io::Errno) -> io::Error {
    error.into()
}

impl Standin {
    pub fn create(disk: Arc<Disk>, fault: Fault) -> io::Result<Self> {
        let state = State {
            tree: Tree::default(),
            next_file: 10,
            generation: 0,
            journal: 0,
            bytes: 0,
            waiting: Vec::new(),
            late: Vec::new(),
            since_checkpoint: 0,
        };
        let own = Self { disk, fault, state: Mutex::new(state) };
        own.checkpoint(&mut own.state())?;
        Ok(own)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sync(&self, ino: Ino, skipped_by: Fault) -> io::Result<()> {
        if self.fault == skipped_by { Ok(()) } else { self.disk.sync(ino).map_err(failed) }
    }

    fn put(&self, ino: Ino, data: &[u8]) -> io::Result<u64> {
        let offset = self.disk.stat(ino).map_err(failed)?.len;
        self.disk.change(ino, Change::Write { offset, data: Arc::from(data) }, false).map_err(failed)?;
        Ok(offset)
    }

    fn new_file(&self, name: &str) -> io::Result<Ino> {
        self.disk.make(ROOT, name.as_bytes(), Kind::File, 0o600).map_err(failed)
    }

    fn record(&self, ino: Ino, generation: u64, step: &Step) -> io::Result<()> {
        let payload = serde_json::to_vec(step)?;
        let mut frame = u32::try_from(payload.len()).map_err(io::Error::other)?.to_le_bytes().to_vec();
        let offset = self.disk.stat(ino).map_err(failed)?.len;
        frame.extend_from_slice(&sum(&payload, salt(generation, offset)).to_le_bytes());
        frame.extend_from_slice(&payload);
        self.put(ino, &frame).map(|_| ())
    }

    /// Applies a step and has it journaled some time.
    fn step(&self, state: &mut State, step: Step) -> io::Result<()> {
        state.tree.apply(&step, &[])?;
        self.enqueue(state, step);
        state.since_checkpoint += 1;
        if state.waiting.len() > 12 {
            self.flush(state)?;
        }
        if state.since_checkpoint > 150 {
            self.flush_all(state, true)?;
            self.checkpoint(state)?;
        }
        Ok(())
    }

    fn enqueue(&self, state: &mut State, step: Step) {
        let path = match &step {
            Step::Create(path, _) | Step::Mkdir(path) | Step::Remove(path) => path.as_str(),
            _ => "",
        };
        let late = match self.fault {
            Fault::NamesBeforeBytes => !step.is_naming(),
            Fault::SharedNamesLate => path.starts_with("shared/"),
            Fault::OneThreadLate => path.starts_with("t2/"),
            Fault::TruncationForgotten if matches!(step, Step::SetLen(..)) => return,
            _ => false,
        };
        if late { state.late.push(step) } else { state.waiting.push(step) }
    }

    /// Hands what waits to the disk, without making it durable.
    fn flush(&self, state: &mut State) -> io::Result<()> {
        if self.fault == Fault::WritesReversed {
            let (names, mut bytes): (Vec<Step>, Vec<Step>) =
                state.waiting.drain(..).partition(Step::is_naming);
            bytes.reverse();
            state.waiting = names.into_iter().chain(bytes).collect();
        }
        for mut step in std::mem::take(&mut state.waiting) {
            if let Step::Write(file, offset, data) = &step
                && data.len() > 2048
            {
                let at = self.put(state.bytes, data)?;
                let sum = sum(data, 0);
                step = Step::WriteFar { file: *file, offset: *offset, at, len: data.len() as u64, sum };
            }
            self.record(state.journal, state.generation, &step)?;
        }
        Ok(())
    }

    fn flush_all(&self, state: &mut State, sync: bool) -> io::Result<()> {
        let late = std::mem::take(&mut state.late);
        state.waiting.extend(late);
        self.flush(state)?;
        if sync && self.fault != Fault::FsyncForgotten {
            self.sync(state.bytes, Fault::BytesNotSynced)?;
            self.sync(state.journal, Fault::JournalNotSynced)?;
        }
        Ok(())
    }

    fn checkpoint(&self, state: &mut State) -> io::Result<()> {
        let old = state.generation;
        let generation = old + 1;
        let bytes = self.new_file(&format!("bytes.{generation}"))?;
        let checkpoint = self.new_file(&format!("checkpoint.{generation}"))?;
        let journal = self.new_file(&format!("journal.{generation}"))?;
        for step in state.tree.steps() {
            let step = match step {
                Step::Write(file, offset, data) => {
                    let at = self.put(bytes, &data)?;
                    Step::WriteFar { file, offset, at, len: data.len() as u64, sum: sum(&data, 0) }
                }
                other => other,
            };
            self.record(checkpoint, generation, &step)?;
        }
        self.sync(bytes, Fault::CheckpointBytesNotSynced)?;
        self.sync(checkpoint, Fault::CheckpointNotSynced)?;
        self.sync(journal, Fault::None)?;
        self.sync(ROOT, Fault::DirectoryNotSynced)?;
        let current = self.new_file("current.new")?;
        self.put(current, format!("{generation};").as_bytes())?;
        self.sync(current, Fault::CurrentNotSynced)?;
        self.disk.rename((ROOT, b"current.new"), (ROOT, b"current"), false, false).map_err(failed)?;
        self.sync(ROOT, Fault::DirectoryNotSynced)?;
        if old > 0 {
            for name in ["bytes", "checkpoint", "journal"] {
                self.disk.remove(ROOT, format!("{name}.{old}").as_bytes(), false).map_err(failed)?;
            }
        }
        (state.generation, state.journal, state.bytes) = (generation, journal, bytes);
        state.since_checkpoint = 0;
        Ok(())
    }

    /// What a mount of `image` shows.
    pub fn recover(image: &Image, fault: Fault) -> Observed {
        match recover(image, fault) {
            Ok(tree) => tree.observe(),
            Err(error) => Observed { unreadable: vec![format!("no mount: {error}")], ..Observed::default() },
        }
    }
}

fn whole(image: &Image, name: &str) -> io::Result<Vec<u8>> {
    let file = image.file(name).ok_or_else(|| io::Error::other(format!("no {name}")))?;
    Ok(file.read(0, file.len()))
}

fn recover(image: &Image, fault: Fault) -> io::Result<Tree> {
    let current = String::from_utf8_lossy(&whole(image, "current")?).into_owned();
    let generation: u64 = current
        .split_once(';')
        .and_then(|(number, _)| number.parse().ok())
        .ok_or(io::ErrorKind::InvalidData)?;
    let bytes = whole(image, &format!("bytes.{generation}"))?;
    let mut tree = Tree::default();
    let checkpoint = whole(image, &format!("checkpoint.{generation}"))?;
    let used = replay(&mut tree, &checkpoint, &bytes, generation, fault);
    if used != checkpoint.len() {
        return Err(io::Error::other("damaged checkpoint"));
    }
    replay(&mut tree, &whole(image, &format!("journal.{generation}"))?, &bytes, generation, fault);
    Ok(tree)
}

/// Applies records until one is not whole; says how many bytes were good.
fn replay(tree: &mut Tree, records: &[u8], bytes: &[u8], generation: u64, fault: Fault) -> usize {
    let mut at = 0;
    loop {
        let Some(step) = frame(records, at, generation, fault) else { return at };
        let (step, len) = step;
        if let Step::WriteFar { at: from, len, sum: expected, .. } = &step {
            let range = usize::try_from(*from).unwrap_or(0)..usize::try_from(from + len).unwrap_or(0);
            let good = bytes.get(range).is_some_and(|bytes| sum(bytes, 0) == *expected);
            if !good && fault != Fault::NoChecksum {
                return at;
            }
        }
        if tree.apply(&step, bytes).is_err() {
            return at;
        }
        at += len;
    }
}

fn frame(records: &[u8], at: usize, generation: u64, fault: Fault) -> Option<(Step, usize)> {
    let len = usize::try_from(u32::from_le_bytes(records.get(at..at + 4)?.try_into().ok()?)).ok()?;
    let expected = u64::from_le_bytes(records.get(at + 4..at + 12)?.try_into().ok()?);
    let payload = records.get(at + 12..at + 12 + len)?;
    let good = sum(payload, salt(generation, at as u64)) == expected;
    let step = serde_json::from_slice(payload).ok()?;
    (good || fault == Fault::NoChecksum).then_some((step, 12 + len))
}

impl Tree {
    fn apply(&mut self, step: &Step, far: &[u8]) -> io::Result<()> {
        match step {
            Step::Create(path, file) => {
                self.names.insert(path.clone(), Node::File(*file));
                self.files.insert(*file, Sparse::default());
            }
            Step::Mkdir(path) => drop(self.names.insert(path.clone(), Node::Directory)),
            Step::Symlink(target, path) => {
                drop(self.names.insert(path.clone(), Node::Symlink(target.clone())))
            }
            Step::Link(from, to) => {
                let node = self.names.get(from).cloned().ok_or(io::ErrorKind::NotFound)?;
                self.names.insert(to.clone(), node);
            }
            Step::Rename(from, to) => self.rename(from, to),
            Step::Exchange(one, other) => {
                let (a, b) = (self.names.remove(one), self.names.remove(other));
                self.names.extend(a.map(|node| (other.clone(), node)));
                self.names.extend(b.map(|node| (one.clone(), node)));
            }
            Step::Remove(path) => drop(self.names.remove(path)),
            Step::Write(file, offset, data) => self.files.entry(*file).or_default().write(*offset, data),
            Step::WriteFar { file, offset, at, len, .. } => {
                let range = usize::try_from(*at).unwrap_or(0)..usize::try_from(at + len).unwrap_or(0);
                let data = far.get(range).ok_or(io::ErrorKind::InvalidData)?;
                self.files.entry(*file).or_default().write(*offset, data);
            }
            Step::SetLen(file, len) => self.files.entry(*file).or_default().set_len(*len),
            Step::Zero(file, offset, len) => self.files.entry(*file).or_default().zero(*offset, *len),
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) {
        let below = format!("{from}/");
        let moved: Vec<String> =
            self.names.keys().filter(|path| *path == from || path.starts_with(&below)).cloned().collect();
        for path in moved {
            let rest = path.strip_prefix(from).unwrap_or_default().to_owned();
            if let Some(node) = self.names.remove(&path) {
                self.names.insert(format!("{to}{rest}"), node);
            }
        }
    }

    /// Steps that build this tree from nothing. Links come as links, so that they stay one file.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut first: BTreeMap<u64, &String> = BTreeMap::new();
        for (path, node) in &self.names {
            steps.push(match node {
                Node::Directory => Step::Mkdir(path.clone()),
                Node::Symlink(target) => Step::Symlink(target.clone(), path.clone()),
                Node::File(file) => match first.get(file) {
                    Some(known) => Step::Link((*known).clone(), path.clone()),
                    None => {
                        first.insert(*file, path);
                        Step::Create(path.clone(), *file)
                    }
                },
            });
        }
        for (file, bytes) in self.files.iter().filter(|(file, _)| first.contains_key(file)) {
            steps.push(Step::Write(*file, 0, bytes.read(0, bytes.len())));
        }
        steps
    }

    fn observe(&self) -> Observed {
        let mut seen = Observed::default();
        for (path, node) in &self.names {
            let entry = match node {
                Node::Directory => Entry::Directory,
                Node::Symlink(target) => Entry::Symlink(target.clone()),
                Node::File(file) => {
                    let same = |node: &&Node| matches!(node, Node::File(other) if other == file);
                    let links = self.names.values().filter(same).count() as u64;
                    let bytes = self.files.get(file).map(|bytes| bytes.read(0, bytes.len()));
                    Entry::File {
                        inode: *file,
                        links,
                        bytes: bytes.unwrap_or_default(),
                        attributes: BTreeMap::new(),
                    }
                }
            };
            seen.entries.insert(path.clone(), entry);
        }
        seen
    }
}

impl Target for Standin {
    type File = Handle;

    fn create(&self, path: &str) -> io::Result<Handle> {
        let mut state = self.state();
        state.next_file += 1;
        let file = state.next_file;
        self.step(&mut state, Step::Create(path.to_owned(), file))?;
        Ok(Handle { file, sync: false })
    }

    fn open(&self, path: &str, sync: bool) -> io::Result<Handle> {
        match self.state().tree.names.get(path) {
            Some(Node::File(file)) => Ok(Handle { file: *file, sync }),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn inode(&self, file: &Handle) -> io::Result<u64> {
        Ok(file.file)
    }

    fn write(&self, file: &Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        self.step(&mut state, Step::Write(file.file, offset, data.to_vec()))?;
        if file.sync { self.flush_all(&mut state, true) } else { Ok(()) }
    }

    fn append(&self, path: &str, data: &[u8]) -> io::Result<()> {
        let file = self.open(path, false)?;
        let mut state = self.state();
        let offset = state.tree.files.get(&file.file).map_or(0, Sparse::len);
        self.step(&mut state, Step::Write(file.file, offset, data.to_vec()))
    }

    fn set_len(&self, file: &Handle, len: u64) -> io::Result<()> {
        self.step(&mut self.state(), Step::SetLen(file.file, len))
    }

    fn punch(&self, file: &Handle, offset: u64, len: u64) -> io::Result<()> {
        self.step(&mut self.state(), Step::Zero(file.file, offset, len))
    }

    fn copy(&self, from: (&Handle, u64), to: (&Handle, u64), len: u64) -> io::Result<u64> {
        let mut state = self.state();
        let data = state.tree.files.get(&from.0.file).map(|file| file.read(from.1, len)).unwrap_or_default();
        let copied = data.len() as u64;
        self.step(&mut state, Step::Write(to.0.file, to.1, data))?;
        Ok(copied)
    }

    fn sync(&self, _: &Handle, _: bool) -> io::Result<()> {
        self.flush_all(&mut self.state(), true)
    }

    fn close(&self, _: Handle) {}

    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.step(&mut self.state(), Step::Mkdir(path.to_owned()))
    }

    fn rmdir(&self, path: &str) -> io::Result<()> {
        self.unlink(path)
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        self.step(&mut self.state(), Step::Remove(path.to_owned()))
    }

    fn rename(&self, from: &str, to: &str, exchange: bool) -> io::Result<()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.step(&mut self.state(), if exchange { Step::Exchange(from, to) } else { Step::Rename(from, to) })
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        self.step(&mut self.state(), Step::Link(from.to_owned(), to.to_owned()))
    }

    fn symlink(&self, target: &str, path: &str) -> io::Result<()> {
        self.step(&mut self.state(), Step::Symlink(target.to_owned(), path.to_owned()))
    }

    fn sync_directory(&self, _: &str) -> io::Result<()> {
        self.flush_all(&mut self.state(), true)
    }
}
