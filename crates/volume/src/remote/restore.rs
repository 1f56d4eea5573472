//! Restoring: what the bucket has becomes the files of a local directory, from which a volume is opened as after a crash.
//!
//! The rows come from a base and the deltas after it. The files of the journal and of streams come from chunks. What a deposed owner put after it had been
//! deposed is told by the sequence at which its successor started, and left out.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use forebay_format::{
    Keyring,
    record::{FILE_HEAD_LEN, FileHead, RECORD_HEAD_LEN, RecordHead},
    row::ObjectRef,
};
use forebay_meta::{Batch, Engine, Namespace};
use forebay_object::{Backend, ErrorKind, ObjectStore};
use forebay_reading::object_key;
use forebay_types::{Epoch, SegmentId, Sequence, VolumeId};
use rustc_hash::FxHashMap;

use super::{
    Kind,
    base::{Base, Found, parts_of},
    chunk::{Item, StoredAt, items},
    container::{HEAD_MAX, Head, decode, decode_head, rows},
    list,
    names::{CHUNKS, ChunkName},
};
use crate::{
    VolumePaths,
    error::{VolumeError, io_error},
};

/// How often an object whose bytes do not check is read.
const READS: u32 = 3;

/// What came out of the bucket.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// The last record that the rows contain.
    pub(crate) applied: Sequence,
    /// Segments that records name, and that are in the store.
    pub(crate) stored: FxHashMap<SegmentId, StoredAt>,
    /// The highest number of a segment that was seen.
    pub(crate) highest: u64,
    /// The highest number of an object in the store, whether anything names it or not.
    pub(crate) highest_object: u64,
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
}

/// Where things come from and go to.
struct Restore<'a> {
    store: &'a ObjectStore,
    volume: VolumeId,
    keys: &'a Keyring,
    paths: &'a VolumePaths,
    /// The first record of each epoch that left anything.
    starts: BTreeMap<Epoch, Sequence>,
    files: BTreeMap<PathBuf, Assembly>,
    restored: Restored,
}

/// A file that is being put together.
struct Assembly {
    file: File,
    segment: SegmentId,
    journal: bool,
    ranges: Vec<(u64, u64)>,
}

impl Assembly {
    /// Bytes from the start without a gap.
    fn whole(&mut self) -> u64 {
        self.ranges.sort_unstable();
        self.ranges.iter().fold(0, |end, (from, to)| if *from <= end { end.max(*to) } else { end })
    }
}

/// Restores rows into `engine`, which is empty, and files into the directories of `paths`. `progress` gets the bytes read so far. `epoch` is that of the
/// new owner.
///
/// # Errors
/// [`VolumeError`].
pub(crate) fn restore(
    (store, volume, epoch): (&ObjectStore, VolumeId, Epoch),
    keys: &Keyring,
    paths: &VolumePaths,
    engine: &dyn Engine,
    progress: &mut dyn FnMut(u64),
) -> Result<Restored, VolumeError> {
    let (starts, files, restored) = (BTreeMap::new(), BTreeMap::new(), Restored::default());
    let mut restore = Restore { store, volume, keys, paths, starts, files, restored };
    let found = Found::look(store)?;
    let mut chunks: Vec<(ChunkName, u64)> = list(store, CHUNKS)?
        .into_iter()
        .filter_map(|meta| Some((ChunkName::parse(&meta.key)?, meta.size)))
        .collect();
    chunks.sort_unstable();
    restore.find_starts(&found, &chunks)?;
    restore.rows(&found, engine, progress)?;
    for (name, _) in &chunks {
        restore.chunk(name)?;
        progress(restore.restored.bytes);
    }
    restore.finish_files(epoch)?;
    Ok(restore.restored)
}

/// Whether what is in the bucket can be read with these keys: asked before the volume is taken over.
///
/// # Errors
/// [`VolumeError`].
pub(crate) fn try_keys(store: &ObjectStore, volume: VolumeId, keys: &Keyring) -> Result<(), VolumeError> {
    let found = Found::look(store)?;
    let Some(base) = found.bases.last() else { return Ok(()) };
    let key = base.name.whole();
    let (bytes, _) = store.get(&key)?;
    decode(&bytes, volume, Kind::BaseWhole, keys).map(|_| ()).map_err(|error| VolumeError::Damaged {
        path: format!("{}/{key}", store.url()).into(),
        detail: error.to_string(),
    })
}

impl Restore<'_> {
    fn damaged(&self, key: &str, detail: impl Into<String>) -> VolumeError {
        VolumeError::Damaged { path: format!("{}/{key}", self.store.url()).into(), detail: detail.into() }
    }

    /// An object of the bucket, verified; `None` where there is none.
    fn read(&mut self, key: &str, kind: Kind) -> Result<Option<(Head, Vec<u8>)>, VolumeError> {
        let mut attempt = 1;
        loop {
            let bytes = match self.store.get(key) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                got => got?.0,
            };
            match decode(&bytes, self.volume, kind, self.keys) {
                Ok(decoded) => {
                    self.restored.bytes += bytes.len() as u64;
                    return Ok(Some(decoded));
                }
                Err(_) if attempt < READS => attempt += 1,
                Err(error) => return Err(self.damaged(key, error.to_string())),
            }
        }
    }

    /// Learns from one object of each epoch where that epoch started.
    fn find_starts(&mut self, found: &Found, chunks: &[(ChunkName, u64)]) -> Result<(), VolumeError> {
        let chunks = chunks.iter().map(|(name, size)| (name.epoch, name.key(), Kind::Chunk, *size));
        let deltas =
            found.deltas.iter().map(|delta| (delta.name.epoch, delta.name.key(), Kind::Delta, delta.bytes));
        let mut all: Vec<_> = chunks.chain(deltas).collect();
        for base in &found.bases {
            let size = self.store.head(&base.name.whole())?.size;
            all.push((base.name.epoch, base.name.whole(), Kind::BaseWhole, size));
        }
        for (epoch, key, kind, size) in all {
            if self.starts.contains_key(&epoch) {
                continue;
            }
            let bytes = match self.store.get_range(&key, 0..size.min(HEAD_MAX)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                got => got?,
            };
            let head = match decode_head(&bytes, self.volume, kind) {
                Ok(head) => head,
                // Damage shows when it is read as a whole, where that is needed.
                Err(_) => continue,
            };
            self.starts.insert(epoch, head.start);
        }
        Ok(())
    }

    /// Whether a record of an epoch counts: whether no later epoch started before it.
    fn counts(&self, epoch: Epoch, sequence: Sequence) -> bool {
        self.starts.range(epoch.next()..).all(|(_, start)| sequence < *start)
    }

    fn rows(
        &mut self,
        found: &Found,
        engine: &dyn Engine,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), VolumeError> {
        let base = self.choose_base(found)?;
        for number in 0..base.parts {
            let key = base.name.part(number);
            let (_, payload) =
                self.read(&key, Kind::BasePart)?.ok_or_else(|| self.damaged(&key, "it is missing"))?;
            self.commit(engine, &key, &payload)?;
            progress(self.restored.bytes);
        }
        let mut have = base.name.from;
        for delta in found.deltas.iter().filter(|delta| delta.name.last > base.name.from) {
            let name = &delta.name;
            if !self.counts(name.epoch, name.last) || name.first > have.next() {
                continue;
            }
            let key = name.key();
            let (_, payload) =
                self.read(&key, Kind::Delta)?.ok_or_else(|| self.damaged(&key, "it is missing"))?;
            self.commit(engine, &key, &payload)?;
            have = name.last;
            progress(self.restored.bytes);
        }
        if have < base.to {
            let detail = format!("the deltas after record {have} are missing, up to {} are needed", base.to);
            return Err(self.damaged(&base.name.whole(), detail));
        }
        self.restored.applied = Namespace::applied(engine)?.sequence;
        Ok(())
    }

    /// The newest base that is whole and counts.
    fn choose_base(&mut self, found: &Found) -> Result<Base, VolumeError> {
        for base in found.bases.iter().rev() {
            let key = base.name.whole();
            let Some((head, payload)) = self.read(&key, Kind::BaseWhole)? else { continue };
            if self.counts(head.epoch, head.last) {
                let parts = parts_of(&payload).map_err(|error| self.damaged(&key, error.to_string()))?;
                return Ok(Base { to: head.last, parts, ..base.clone() });
            }
        }
        Err(self.damaged("meta/base", "there is no base that is whole: the volume was never made to its end"))
    }

    fn commit(&self, engine: &dyn Engine, key: &str, payload: &[u8]) -> Result<(), VolumeError> {
        let rows = rows(payload).map_err(|error| self.damaged(key, error.to_string()))?;
        engine.commit(&Batch::of(&rows))?;
        Ok(())
    }

    /// Writes what a chunk has to files. One that is gone was not needed: its owner deleted it before it lost the volume.
    fn chunk(&mut self, name: &ChunkName) -> Result<(), VolumeError> {
        if !self.counts(name.epoch, name.first) {
            return Ok(());
        }
        let key = name.key();
        let Some((_, payload)) = self.read(&key, Kind::Chunk)? else { return Ok(()) };
        self.restored.chunks += 1;
        for item in items(&payload).map_err(|error| self.damaged(&key, error.to_string()))? {
            self.restored.highest = self.restored.highest.max(item.segment().0);
            match item {
                Item::Journal { segment, from, bytes } => self.write(segment, true, from, bytes)?,
                Item::Stream { segment, from, bytes } => self.write(segment, false, from, bytes)?,
                // A late chunk of a former owner may name an object that was never recorded, and is gone: then the bytes are in other chunks.
                Item::Stored { segment, at } => {
                    if self.is_there(at.object)? {
                        self.restored.stored.insert(segment, at);
                    }
                }
            }
        }
        Ok(())
    }

    fn is_there(&self, object: ObjectRef) -> Result<bool, VolumeError> {
        match self.store.head(&object_key(object)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            found => Ok(found.map(|_| true)?),
        }
    }

    fn write(
        &mut self,
        segment: SegmentId,
        journal: bool,
        from: u64,
        bytes: &[u8],
    ) -> Result<(), VolumeError> {
        let (dir, extension) =
            if journal { (self.paths.journal(), "log") } else { (self.paths.staging(), "seg") };
        let path = dir.join(format!("{segment}.{extension}"));
        let assembly = match self.files.entry(path.clone()) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
                let file = file.map_err(io_error("make", &path))?;
                entry.insert(Assembly { file, segment, journal, ranges: Vec::new() })
            }
        };
        assembly.file.write_all_at(bytes, from).map_err(io_error("write", &path))?;
        assembly.ranges.push((from, from + bytes.len() as u64));
        Ok(())
    }

    /// Cuts each file where a gap begins, and the journal where the next owner's begins.
    fn finish_files(&mut self, epoch: Epoch) -> Result<(), VolumeError> {
        let mut last = None;
        for (path, mut assembly) in std::mem::take(&mut self.files) {
            let mut len = assembly.whole();
            if assembly.journal {
                let counted = self.counted_records(&path, len)?;
                len = counted.map_or(0, |(len, _)| len);
                last = last.max(counted.map(|(_, last)| last));
            } else if self.restored.stored.contains_key(&assembly.segment) {
                len = 0;
            }
            if len == 0 {
                fs::remove_file(&path).map_err(io_error("remove", &path))?;
            } else {
                assembly.file.set_len(len).map_err(io_error("truncate", &path))?;
            }
        }
        if last.is_some_and(|last| last < self.restored.applied) {
            self.begin_after_applied(epoch)?;
        }
        Ok(())
    }

    /// How much of a journal file counts, and its last record.
    fn counted_records(&self, path: &Path, len: u64) -> Result<Option<(u64, Sequence)>, VolumeError> {
        let bytes = fs::read(path).map_err(io_error("read", path))?;
        let bytes = bytes.get(..len as usize).unwrap_or(&bytes);
        let Ok(head) = FileHead::decode(bytes) else { return Ok(None) };
        let mut at = FILE_HEAD_LEN;
        let mut last = Sequence(head.first.0.saturating_sub(1));
        while let Some(record) = bytes.get(at..).and_then(|rest| RecordHead::decode(rest).ok()) {
            let end = at + RECORD_HEAD_LEN + record.data_len as usize + record.changes_len as usize;
            if end > bytes.len() || !self.counts(head.epoch, record.sequence) {
                break;
            }
            (at, last) = (end, record.sequence);
        }
        Ok((at > FILE_HEAD_LEN).then_some((at as u64, last)))
    }

    /// Files of the journal that are there for their data alone must not look like a journal that has lost its end: an empty file says where it goes on.
    fn begin_after_applied(&mut self, epoch: Epoch) -> Result<(), VolumeError> {
        self.restored.highest += 1;
        let segment = SegmentId(self.restored.highest);
        let head = FileHead { volume: self.volume, segment, epoch, first: self.restored.applied.next() };
        let path = self.paths.journal().join(format!("{segment}.log"));
        fs::write(&path, head.encode()).map_err(io_error("write", &path))
    }
}
