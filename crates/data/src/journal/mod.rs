//! The journal: one order of records, each with the changes of an operation and the bytes of its small writes.
//!
//! Guarantees: records survive as a prefix. A record counts after a crash only if everything before it does, so [`Journal::sync`] of one
//! makes all before it durable. A file of the journal is also the segment that extents name, so its bytes can be read as soon as
//! they are appended.
//!
//! Order that must hold: head and name of a file are on stable storage before its successor is created, so that a journal whose first file
//! is younger than it should be has lost a file, and not only unsynced bytes; a file is synced before [`Journal::synced`] covers records
//! of its successor.
//!
//! Locks, in the order in which they are taken: the append lock (held by [`Append`]), the writer's turn, the pending bytes. Reading,
//! writing out and syncing never wait for the append lock.

mod behind;
mod found;
mod log_file;
mod pending;
mod replay;

use std::{
    collections::BTreeMap,
    fmt, io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use forebay_env::{
    durable::{Point, sync_dir, sync_file},
    rounds::Rounds,
};
use forebay_format::record::{Changes, FILE_HEAD_LEN, FileHead, PART_MAX, RECORD_HEAD_LEN, RecordHead};
use forebay_types::{Epoch, SegmentId, Sequence, VolumeId};
use parking_lot::{Mutex, MutexGuard, RwLock};

pub use self::{
    log_file::JournalFile,
    replay::{Damage, Dropped, Replay, Replayed},
};
use self::{
    log_file::{FILE_LEN, LogFile, Spare},
    pending::{Chunk, Pending},
};
use crate::{DataError, error::io_error, failure::Poison, segment_file};

/// Appenders write out themselves once this many bytes wait.
const PENDING_MAX: usize = 1 << 20;
/// Room that must be left for the changes of a record before it is begun; longer ones make the file longer.
const CHANGES_ROOM: u64 = 64 << 10;
/// The end of the last file that can be had is for [`Urgency::Reclaim`].
const RECLAIM_ROOM: u64 = FILE_LEN / 4;
/// So many appends pass between two attempts to reserve space on a full disk.
const SPARE_PAUSE: u32 = 32;

/// What an append is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Anything that can be refused when the disk is full.
    Normal,
    /// What frees space in the end: unlink, truncate, the records of a checkpoint. It may use what is kept in reserve.
    Reclaim,
}

/// Hands out the segment of each new file. Called under the append lock: it must not call the journal.
type NextSegment = Box<dyn Fn() -> SegmentId + Send + Sync>;

/// The journal of one writer. Shared by all its threads.
pub struct Journal {
    dir: PathBuf,
    volume: VolumeId,
    epoch: Epoch,
    next_segment: NextSegment,
    tail: Mutex<Tail>,
    writer: Mutex<()>,
    pending: Mutex<Pending>,
    files: RwLock<BTreeMap<SegmentId, Arc<LogFile>>>,
    rounds: Rounds,
    last: AtomicU64,
    synced: AtomicU64,
    /// Files synced for those who waited.
    syncs: AtomicU64,
    poison: Poison,
}

/// Where the next record goes.
struct Tail {
    file: Arc<LogFile>,
    len: u64,
    last: Sequence,
    /// Bytes that the file may have.
    capacity: u64,
    /// What the last record that says so calls durable.
    marked: Sequence,
    spare: Option<Spare>,
    pause: u32,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (last, synced) = (self.last(), self.synced());
        write!(f, "Journal({}, last {last}, synced {synced})", self.dir.display())
    }
}

impl Journal {
    /// Most bytes of data in one record: half a file.
    pub const DATA_MAX: usize = (FILE_LEN / 2) as usize;

    /// Continues after what was replayed, in a new file. First makes unreachable what is beyond the cut, and makes durable what was replayed:
    /// it may have been read from the page cache of a system that has not written it yet.
    ///
    /// Each segment that `next_segment` gives must be greater than all before it.
    ///
    /// # Errors
    /// [`DataError::NoSpace`] where not even the shortest file can be had; [`DataError::Io`].
    pub fn start(
        replayed: Replay,
        dir: &Path,
        volume: VolumeId,
        epoch: Epoch,
        next_segment: Box<dyn Fn() -> SegmentId + Send + Sync>,
    ) -> Result<Journal, DataError> {
        let last = replayed.last;
        let old = replayed.settle(dir)?;
        let no_space =
            || DataError::NoSpace { what: "reserve space for a journal file", path: dir.to_owned() };
        let (spare, capacity) = match Spare::get(dir)? {
            Some(spare) => (spare, FILE_LEN),
            None => Spare::short(dir)?.ok_or_else(no_space)?,
        };
        let (file, head) =
            new_file(spare, dir, volume, epoch, last, next_segment()).map_err(|(_, error)| error)?;
        let tail = Tail {
            file: Arc::clone(&file),
            len: FILE_HEAD_LEN as u64,
            last,
            capacity,
            marked: Sequence::default(),
            spare: None,
            pause: 0,
        };
        let mut files: BTreeMap<_, _> = old.into_iter().map(|old| (old.segment, Arc::new(old))).collect();
        files.insert(file.segment, Arc::clone(&file));
        let journal = Journal {
            dir: dir.to_owned(),
            volume,
            epoch,
            next_segment,
            tail: Mutex::new(tail),
            writer: Mutex::new(()),
            pending: Mutex::new(Pending::new(file, &head, last)),
            files: RwLock::new(files),
            rounds: Rounds::default(),
            last: AtomicU64::new(last.0),
            synced: AtomicU64::new(last.0),
            syncs: AtomicU64::new(0),
            poison: Poison::default(),
        };
        journal.drain();
        journal.check()?;
        Ok(journal)
    }

    /// Takes the append lock and finds the place for a record with this data. Everything that must have the same order as the records is
    /// done before [`Append::commit`]; an `Append` that is dropped appends nothing.
    ///
    /// The thread that holds an `Append` must not call `begin`, `rotate` or `remove`.
    ///
    /// # Errors
    /// [`DataError::NoSpace`], [`DataError::JournalFailed`], [`DataError::Io`] where a new file cannot be made or the data is longer than
    /// [`Journal::DATA_MAX`].
    pub fn begin<'a>(&'a self, data: &'a [u8], urgency: Urgency) -> Result<Append<'a>, DataError> {
        if data.len() > Self::DATA_MAX {
            let longer =
                io::Error::new(io::ErrorKind::InvalidInput, "a record's data is longer than any may be");
            return Err(io_error("append to the journal in", &self.dir)(longer));
        }
        self.check()?;
        if self.pending.lock().len() > PENDING_MAX {
            self.drain();
            self.check()?;
        }
        let data_crc = RecordHead::data_crc(data);
        let mut tail = self.tail.lock();
        self.place(&mut tail, data.len() as u64, urgency)?;
        Ok(Append { journal: self, tail, data, data_crc })
    }

    /// Makes room in the current file, or goes on to the next one.
    fn place(&self, tail: &mut Tail, data_len: u64, urgency: Urgency) -> Result<(), DataError> {
        self.refill_spare(tail)?;
        let free = tail.capacity.saturating_sub(tail.len);
        if free < RECORD_HEAD_LEN as u64 + data_len + CHANGES_ROOM {
            return self.next_file(tail);
        }
        if tail.spare.is_none() && urgency == Urgency::Normal && free < RECLAIM_ROOM {
            return Err(self.no_space());
        }
        Ok(())
    }

    fn no_space(&self) -> DataError {
        DataError::NoSpace { what: "append to the journal", path: self.dir.clone() }
    }

    fn refill_spare(&self, tail: &mut Tail) -> Result<(), DataError> {
        if tail.spare.is_some() {
            return Ok(());
        }
        if tail.pause > 0 {
            tail.pause -= 1;
            return Ok(());
        }
        tail.spare = Spare::get(&self.dir)?;
        if tail.spare.is_none() {
            tail.pause = SPARE_PAUSE;
        }
        Ok(())
    }

    fn next_file(&self, tail: &mut Tail) -> Result<(), DataError> {
        if !tail.file.settled.load(Ordering::Acquire) {
            self.drain();
            self.check()?;
        }
        let spare = tail.spare.take().ok_or_else(|| self.no_space())?;
        let segment = (self.next_segment)();
        match new_file(spare, &self.dir, self.volume, self.epoch, tail.last, segment) {
            Ok((file, head)) => {
                self.files.write().insert(segment, Arc::clone(&file));
                self.pending.lock().switch(Arc::clone(&file), &head);
                tail.file = file;
                tail.len = FILE_HEAD_LEN as u64;
                tail.capacity = FILE_LEN;
                Ok(())
            }
            Err((spare, error)) => {
                tail.spare = Some(spare);
                Err(error)
            }
        }
    }

    /// Ends the current file, if it has any record, so that it can be removed or packed as a whole.
    ///
    /// # Errors
    /// As [`Journal::begin`].
    pub fn rotate(&self) -> Result<(), DataError> {
        self.check()?;
        let mut tail = self.tail.lock();
        if tail.last < tail.file.first {
            return Ok(());
        }
        self.refill_spare(&mut tail)?;
        self.next_file(&mut tail)
    }

    /// Writes to the file what is buffered, so that it outlives this process (not the machine). If another thread is writing, that one writes
    /// ours too and this call does not wait. A failure shows at the next `begin` or `sync`.
    ///
    /// To be called after each operation, without its locks.
    pub fn write_out(&self) {
        loop {
            let Some(turn) = self.writer.try_lock() else { return };
            self.write_all_pending();
            drop(turn);
            if self.poison.is_set() || self.pending.lock().len() == 0 {
                return;
            }
        }
    }

    /// Waits for its turn and writes everything that is pending.
    fn drain(&self) {
        let _turn = self.writer.lock();
        self.write_all_pending();
    }

    /// The writer's turn must be held.
    fn write_all_pending(&self) {
        while !self.poison.is_set() {
            let Some(chunk) = self.pending.lock().next_chunk() else { return };
            match self.write_chunk(&chunk) {
                Ok(()) => self.pending.lock().written(chunk),
                Err((what, error)) => self.poison.set(what, &chunk.file.path, error),
            }
        }
    }

    fn write_chunk(&self, chunk: &Chunk) -> Result<(), (&'static str, io::Error)> {
        let file = &chunk.file;
        file.file.write_all_at(&chunk.bytes, chunk.at).map_err(|error| ("write to", error))?;
        if !file.settled.load(Ordering::Acquire) {
            sync_file(&file.file, Point::JOURNAL_DATA).map_err(|error| ("sync", error))?;
            sync_dir(&self.dir, Point::JOURNAL_NAME).map_err(|error| ("sync the name of", error))?;
            file.settled.store(true, Ordering::Release);
        }
        if chunk.ends_file {
            let end = chunk.at + chunk.bytes.len() as u64;
            file.file.set_len(end).map_err(|error| ("truncate", error))?;
        }
        Ok(())
    }

    /// Returns once record `upto` (or the last one, if that is earlier) and all before it are on stable storage. One thread syncs for all
    /// that wait. What the records name in streams must have been synced before.
    ///
    /// # Errors
    /// [`DataError::JournalFailed`]: whatever [`Journal::synced`] does not cover may be lost.
    pub fn sync(&self, upto: Sequence) -> Result<(), DataError> {
        let upto = upto.min(self.last());
        self.rounds.join(|| self.poison.is_set() || self.synced() >= upto, || self.sync_round());
        self.check()
    }

    /// The same for background work, which no round waits for.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn sync_behind(&self, upto: Sequence) -> Result<(), DataError> {
        let upto = upto.min(self.last());
        self.rounds.join_apart(|| self.poison.is_set() || self.synced() >= upto, || self.sync_round());
        self.check()
    }

    fn sync_round(&self) {
        let (last, files) = {
            let pending = self.pending.lock();
            (pending.last, pending.unsynced.clone())
        };
        self.drain();
        for file in &files {
            if self.poison.is_set() {
                return;
            }
            self.syncs.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = sync_file(&file.file, Point::JOURNAL_DATA) {
                return self.poison.set("sync", &file.path, error);
            }
        }
        if self.poison.is_set() {
            return;
        }
        let done = files.len().saturating_sub(1);
        self.pending.lock().unsynced.drain(..done);
        self.synced.fetch_max(last.0, Ordering::AcqRel);
    }

    fn check(&self) -> Result<(), DataError> {
        match self.poison.get() {
            Some(cause) => Err(DataError::JournalFailed { cause }),
            None => Ok(()),
        }
    }

    /// Bytes of a file of the journal, whether written out or not. Not verified.
    ///
    /// # Errors
    /// [`DataError::NoSegment`], [`DataError::OutOfRange`], [`DataError::Io`].
    pub fn read(&self, segment: SegmentId, offset: u64, len: u32) -> Result<Bytes, DataError> {
        let mut bytes = vec![0; len as usize];
        self.read_into(segment, offset, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Whether a segment is a file of the journal.
    #[must_use]
    pub fn has(&self, segment: SegmentId) -> bool {
        self.files.read().contains_key(&segment)
    }

    /// The same into `out`.
    ///
    /// # Errors
    /// As [`Journal::read`].
    pub fn read_into(&self, segment: SegmentId, offset: u64, out: &mut [u8]) -> Result<(), DataError> {
        let file = self.files.read().get(&segment).cloned().ok_or(DataError::NoSegment { segment })?;
        let have = file.len.load(Ordering::Acquire);
        segment_file::check_range(segment, offset, out.len() as u64, have)?;
        let in_file = self.pending.lock().read(segment, offset, out);
        segment_file::read_into(&file.file, &file.path, offset, &mut out[..in_file])
    }

    /// The last record appended.
    #[must_use]
    pub fn last(&self) -> Sequence {
        Sequence(self.last.load(Ordering::Acquire))
    }

    /// The last record that is known to be on stable storage with all before it.
    #[must_use]
    pub fn synced(&self) -> Sequence {
        Sequence(self.synced.load(Ordering::Acquire))
    }

    /// How often a file of it was synced since it was opened.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// The files of the journal by segment; the last one is the one being written.
    #[must_use]
    pub fn files(&self) -> Vec<JournalFile> {
        self.files.read().values().map(|file| file.about()).collect()
    }

    /// Deletes a file that is not the current one. All its records must have been applied, durably, and nothing may read its data any more.
    ///
    /// # Errors
    /// [`DataError::NoSegment`], also for the current file; [`DataError::Io`].
    pub fn remove(&self, segment: SegmentId) -> Result<(), DataError> {
        let mut tail = self.tail.lock();
        if tail.file.segment == segment {
            return Err(DataError::NoSegment { segment });
        }
        tail.pause = 0;
        drop(tail);
        let file = self.files.write().remove(&segment).ok_or(DataError::NoSegment { segment })?;
        segment_file::delete(&file.path)
    }
}

fn new_file(
    spare: Spare,
    dir: &Path,
    volume: VolumeId,
    epoch: Epoch,
    last: Sequence,
    segment: SegmentId,
) -> Result<(Arc<LogFile>, [u8; FILE_HEAD_LEN]), (Spare, DataError)> {
    let first = last.next();
    let (file, path) = spare.name(dir, segment)?;
    let about = JournalFile { segment, first, last, len: FILE_HEAD_LEN as u64, data_bytes: 0 };
    let head = FileHead { volume, segment, epoch, first }.encode();
    Ok((Arc::new(LogFile::new(path, file, about, false)), head))
}

/// The append lock, and the place of the record that is going to be appended.
pub struct Append<'a> {
    journal: &'a Journal,
    tail: MutexGuard<'a, Tail>,
    data: &'a [u8],
    data_crc: u32,
}

impl fmt::Debug for Append<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Append({} in {} at {})", self.sequence(), self.segment(), self.data_offset())
    }
}

impl Append<'_> {
    /// The segment that will have the data.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.tail.file.segment
    }

    /// Where in the segment the data will start.
    #[must_use]
    pub fn data_offset(&self) -> u64 {
        self.tail.len + RECORD_HEAD_LEN as u64
    }

    /// The record's place in the order.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.tail.last.next()
    }

    /// Appends the record. It can be read and will be written out in order; it is durable after [`Journal::sync`].
    pub fn commit(mut self, changes: &Changes) -> Sequence {
        let (journal, sequence) = (self.journal, self.sequence());
        let mut pending = journal.pending.lock();
        let buffer = pending.buffer();
        let start = buffer.len();
        buffer.resize(start + RECORD_HEAD_LEN, 0);
        buffer.extend_from_slice(self.data);
        let at = buffer.len();
        let durable = Some(journal.synced()).filter(|synced| *synced > self.tail.marked);
        changes.encode_marked_to(durable, buffer);
        if buffer.len() - at > PART_MAX as usize {
            let longer =
                io::Error::new(io::ErrorKind::InvalidInput, "a record's changes are longer than any may be");
            journal.poison.set("append to", &self.tail.file.path, longer);
            buffer.truncate(start);
            return sequence;
        }
        let head = RecordHead::with_data_crc(
            sequence,
            journal.epoch,
            (self.data.len() as u32, self.data_crc),
            &buffer[at..],
        );
        buffer[start..start + RECORD_HEAD_LEN].copy_from_slice(&head.encode());
        let len = (buffer.len() - start) as u64;
        pending.last = sequence;
        self.tail.last = sequence;
        self.tail.marked = durable.unwrap_or(self.tail.marked);
        self.tail.len += len;
        let file = &self.tail.file;
        file.len.store(self.tail.len, Ordering::Release);
        file.last.store(sequence.0, Ordering::Release);
        file.data_bytes.fetch_add(self.data.len() as u64, Ordering::AcqRel);
        journal.last.store(sequence.0, Ordering::Release);
        sequence
    }
}
