//! Streams: large writes go straight to a segment of their own, and the journal only names them. The staging directory also has the segments
//! that were packed and wait for their upload.
//!
//! Guarantees: a run that was appended can be read at once; after [`Streams::sync`] returned it survives a power cut. Each run has a head
//! before it, so an unsealed stream can be listed after a crash ([`Streams::recover`]). What was appended and not synced may be in this
//! process alone: a few MiB a file, on their way to the disk.
//!
//! Order that must hold: sync the streams before the journal whose records name them.
//!
//! Locks: a slot, then the state of its file, then the file's turn to be written, then what is pending of it; the list of unsynced files last.
//! A slot is held over an append, so runs of one slot are one after the other in the file and never interleaved.

mod pending;
mod recover;
mod stream_file;
mod writer;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use forebay_env::{
    durable::{Point, sync_dir, sync_file},
    rounds::Rounds,
};
use forebay_format::{FormatError, footer::RunEntry, record::StreamRun, stream::STREAM_HEAD_LEN};
use forebay_types::{Ino, SegmentId, VolumeId};
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

pub use self::recover::RecoveredStream;
use self::{
    pending::{PENDING_MAX, Pool},
    stream_file::StreamFile,
    writer::Writer,
};
use crate::{DataError, SealedSegment, error::io_error, failure::Poison, segment_file};

pub(crate) const EXTENSION: &str = "seg";
pub(crate) const PART_EXTENSION: &str = "part";
const SLOTS: usize = 4;
/// Bytes that a stream is meant to have.
const STREAM_LEN: u64 = 32 << 20;

/// The staging directory of one writer. Shared by all its threads.
pub struct Streams {
    dir: PathBuf,
    volume: VolumeId,
    next_segment: Box<dyn Fn() -> SegmentId + Send + Sync>,
    slots: [Mutex<Option<Arc<StreamFile>>>; SLOTS],
    files: RwLock<FxHashMap<SegmentId, Arc<StreamFile>>>,
    unsynced: Mutex<Vec<Arc<StreamFile>>>,
    rounds: Rounds,
    begun: AtomicU64,
    ended: AtomicU64,
    shared: Arc<Shared>,
    /// Begun with the first append.
    writer: OnceLock<Option<Writer>>,
}

/// What the thread that writes shares with those that append.
#[derive(Debug, Default)]
struct Shared {
    pool: Pool,
    poison: Poison,
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Streams({}, {} files)", self.dir.display(), self.files.read().len())
    }
}

impl Streams {
    /// The staging directory `dir` with what [`Streams::recover`] found in it. Recovered streams take no more runs; they can be read and
    /// sealed. `next_segment` hands out the segment of each new file and must not call this object.
    #[must_use]
    pub fn open(
        recovered: Vec<RecoveredStream>,
        dir: &Path,
        volume: VolumeId,
        next_segment: Box<dyn Fn() -> SegmentId + Send + Sync>,
    ) -> Streams {
        let files =
            recovered.into_iter().map(|found| (found.segment, Arc::new(StreamFile::recovered(found))));
        Streams {
            dir: dir.to_owned(),
            volume,
            next_segment,
            slots: Default::default(),
            files: RwLock::new(files.collect()),
            unsynced: Mutex::default(),
            rounds: Rounds::default(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            shared: Arc::default(),
            writer: OnceLock::new(),
        }
    }

    /// Appends a run as it is stored, in two parts that follow each other. Runs of one inode go to one slot, so that they are neighbours.
    /// `entry.run_offset` and `stored_len` are ignored. Returns what a journal record has to name.
    ///
    /// Waits for the disk only where more than 2 MiB of the file wait for it.
    ///
    /// # Errors
    /// [`DataError::NoSpace`], [`DataError::Io`]: nothing was appended, and later calls may succeed. [`DataError::StreamsFailed`].
    pub fn append(&self, affinity: Ino, entry: &RunEntry, run: [&[u8]; 2]) -> Result<StreamRun, DataError> {
        self.check()?;
        let hash = affinity.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut slot = self.slots[(hash >> 62) as usize % SLOTS].lock();
        let stream = self.stream_for(&mut slot, (run[0].len() + run[1].len()) as u64)?;
        let mut state = stream.state.lock();
        let entry = stream
            .append(&mut state, entry, run, &self.shared)
            .map_err(io_error("append to stream", &stream.path))?;
        drop(state);
        if !stream.unsynced.swap(true, Ordering::AcqRel) {
            self.unsynced.lock().push(Arc::clone(&stream));
        }
        let RunEntry { run_offset, stored_len, run_len, form, check, .. } = entry;
        let placed = StreamRun { segment: stream.segment, run_offset, stored_len, run_len, form, check };
        self.write_behind(stream);
        Ok(placed)
    }

    /// Has written what waits: by the writer's thread, or here if that is too far behind or there is none.
    fn write_behind(&self, stream: Arc<StreamFile>) {
        let waiting = stream.waiting();
        if waiting == 0 {
            return;
        }
        let writer = self.writer.get_or_init(|| Writer::start(&self.shared));
        match writer {
            Some(writer) if waiting <= PENDING_MAX => writer.wake(stream),
            _ => stream.drain(&self.shared),
        }
    }

    /// The slot's file if it has room for the run, else a new one.
    fn stream_for(&self, slot: &mut Option<Arc<StreamFile>>, len: u64) -> Result<Arc<StreamFile>, DataError> {
        if let Some(stream) = slot {
            let have = stream.len();
            if have == 0 || have + STREAM_HEAD_LEN as u64 + len <= STREAM_LEN {
                return Ok(Arc::clone(stream));
            }
        }
        let segment = (self.next_segment)();
        let path = segment_file::path(&self.dir, segment, EXTENSION);
        let stream = Arc::new(StreamFile::create(segment, path)?);
        self.files.write().insert(segment, Arc::clone(&stream));
        if let Some(full) = slot.replace(Arc::clone(&stream)) {
            full.close(&mut full.state.lock(), &self.shared);
        }
        Ok(stream)
    }

    /// Returns once every run that was appended before the call is on stable storage, with the names of the files. One thread syncs for all
    /// that wait.
    ///
    /// # Errors
    /// [`DataError::StreamsFailed`]: what was appended since the last success may be lost.
    pub fn sync(&self) -> Result<(), DataError> {
        if self.is_synced() && self.begun.load(Ordering::Acquire) == self.ended.load(Ordering::Acquire) {
            // Nobody waits for company where there is nothing to sync.
            return self.check();
        }
        let round = self.begun.load(Ordering::Acquire) + 1;
        self.rounds.join(
            || self.shared.poison.is_set() || self.ended.load(Ordering::Acquire) >= round,
            || self.sync_round(),
        );
        self.check()
    }

    fn sync_round(&self) {
        let round = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let streams = std::mem::take(&mut *self.unsynced.lock());
        for stream in &streams {
            stream.unsynced.store(false, Ordering::Release);
            stream.drain(&self.shared);
            if self.shared.poison.is_set() {
                return;
            }
            if let Err(error) = sync_file(&stream.file, Point::STREAM_DATA) {
                return self.shared.poison.set("sync", &stream.path, error);
            }
        }
        if streams.iter().any(|stream| !stream.named.load(Ordering::Acquire)) {
            if let Err(error) = sync_dir(&self.dir, Point::STREAM_NAME) {
                return self.shared.poison.set("sync the names in", &self.dir, error);
            }
            streams.iter().for_each(|stream| stream.named.store(true, Ordering::Release));
        }
        self.ended.store(round, Ordering::Release);
    }

    fn check(&self) -> Result<(), DataError> {
        match self.shared.poison.get() {
            Some(cause) => Err(DataError::StreamsFailed { cause }),
            None => Ok(()),
        }
    }

    /// Whether everything that was appended is on stable storage.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.unsynced.lock().is_empty()
    }

    /// The streams that are worth sealing now: full ones, those of at least `min_len` bytes, and those to which nothing was appended during the
    /// last `idle_rounds` calls of this function. By segment; sealed ones are not among them.
    #[must_use]
    pub fn sealable(&self, min_len: u64, idle_rounds: u32) -> Vec<SegmentId> {
        let streams: Vec<_> = self.files.read().values().cloned().collect();
        let mut found = Vec::new();
        for stream in streams {
            // A stream that is being appended to or sealed right now is not waited for.
            let Some(state) = stream.state.try_lock() else { continue };
            if state.sealed || state.runs.is_empty() {
                continue;
            }
            let idle = stream.idle.fetch_add(1, Ordering::Relaxed);
            if state.closed || stream.len() >= min_len || idle >= idle_rounds {
                found.push(stream.segment);
            }
        }
        found.sort();
        found
    }

    /// Ends a stream: after its runs come footer and tail, so that the file is an object of one segment. Returns once it is on stable storage.
    /// Sealing a segment again changes nothing.
    ///
    /// # Errors
    /// [`DataError::NoSegment`]; [`DataError::NoSpace`] and [`DataError::Io`]: the stream can be read as before, and sealed later.
    /// [`DataError::Format`] for a file in which no run was found: it is left as it is.
    pub fn seal(&self, segment: SegmentId) -> Result<SealedSegment, DataError> {
        let stream = self.file(segment)?;
        for slot in &self.slots {
            let mut slot = slot.lock();
            if slot.as_ref().is_some_and(|open| open.segment == segment) {
                *slot = None;
            }
        }
        let mut state = stream.state.lock();
        stream.close(&mut state, &self.shared);
        let sealed = stream.as_sealed(&state);
        if state.sealed {
            return Ok(sealed);
        }
        if state.runs.is_empty() {
            // A segment that was packed and whose footer is damaged: its bytes must stay for a repair to find.
            let detail = "it has neither a footer nor runs that tell of themselves".to_owned();
            let source = FormatError::Invalid { what: "a segment", detail };
            return Err(DataError::Format { path: stream.path.clone(), source });
        }
        stream.drain(&self.shared);
        self.check()?;
        stream.end_direct();
        let footer = sealed.footer(self.volume);
        let end = sealed.len + footer.len() as u64;
        let written = std::os::unix::fs::FileExt::write_all_at(&stream.file, &footer, sealed.len);
        written.map_err(io_error("write the footer of", &stream.path))?;
        stream.file.set_len(end).map_err(io_error("truncate", &stream.path))?;
        if let Err(error) = sync_file(&stream.file, Point::STREAM_DATA) {
            self.shared.poison.set("sync", &stream.path, error);
        } else if let Err(error) = sync_dir(&self.dir, Point::STREAM_NAME) {
            self.shared.poison.set("sync the names in", &self.dir, error);
        }
        self.check()?;
        stream.named.store(true, Ordering::Release);
        state.sealed = true;
        Ok(sealed)
    }

    /// Whether a segment is here and has its footer. One that is being sealed right now may count either way.
    #[must_use]
    pub fn is_sealed(&self, segment: SegmentId) -> bool {
        let stream = self.files.read().get(&segment).cloned();
        stream.is_some_and(|stream| stream.state.try_lock().is_some_and(|state| state.sealed))
    }

    /// Takes in a segment that was packed in this directory, so that it can be read.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn adopt(&self, sealed: &SealedSegment) -> Result<(), DataError> {
        let file = segment_file::open(&sealed.path)?;
        self.files.write().insert(sealed.segment, Arc::new(StreamFile::adopted(sealed, file)));
        Ok(())
    }

    fn file(&self, segment: SegmentId) -> Result<Arc<StreamFile>, DataError> {
        self.files.read().get(&segment).cloned().ok_or(DataError::NoSegment { segment })
    }

    /// Bytes of a segment's body. Not verified.
    ///
    /// # Errors
    /// [`DataError::NoSegment`], [`DataError::OutOfRange`], [`DataError::Io`].
    pub fn read(&self, segment: SegmentId, offset: u64, len: u32) -> Result<Bytes, DataError> {
        let stream = self.file(segment)?;
        segment_file::check_range(segment, offset, u64::from(len), stream.len())?;
        let mut bytes = vec![0; len as usize];
        stream.read_into(offset, &mut bytes)?;
        Ok(bytes.into())
    }

    /// The same into `out`.
    ///
    /// # Errors
    /// As [`Streams::read`].
    pub fn read_into(&self, segment: SegmentId, offset: u64, out: &mut [u8]) -> Result<(), DataError> {
        let stream = self.file(segment)?;
        segment_file::check_range(segment, offset, out.len() as u64, stream.len())?;
        stream.read_into(offset, out)
    }

    /// Whether a segment is here.
    #[must_use]
    pub fn has(&self, segment: SegmentId) -> bool {
        self.files.read().contains_key(&segment)
    }

    /// Has the kernel read bytes that will be wanted soon. False: the segment is not here.
    pub fn prefetch(&self, segment: SegmentId, offset: u64, len: u32) -> bool {
        let Ok(stream) = self.file(segment) else { return false };
        // Advice only: who reads the bytes later waits for them, or is told why not.
        let _ = rustix::fs::fadvise(
            &stream.file,
            offset,
            std::num::NonZeroU64::new(u64::from(len)),
            rustix::fs::Advice::WillNeed,
        );
        true
    }

    /// The segments that are here.
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentId> {
        let mut segments: Vec<_> = self.files.read().keys().copied().collect();
        segments.sort();
        segments
    }

    /// Deletes a segment that nothing names any more, or that is in the store. Reads that are under way still succeed. The name is gone after a
    /// crash only if something syncs the directory; a segment that reappears is found by [`Streams::recover`].
    ///
    /// # Errors
    /// [`DataError::NoSegment`], [`DataError::Io`].
    pub fn remove(&self, segment: SegmentId) -> Result<(), DataError> {
        for slot in &self.slots {
            let mut slot = slot.lock();
            if slot.as_ref().is_some_and(|open| open.segment == segment) {
                *slot = None;
            }
        }
        let stream = self.files.write().remove(&segment).ok_or(DataError::NoSegment { segment })?;
        segment_file::delete(&stream.path)
    }
}
