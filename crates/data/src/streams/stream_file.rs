use std::{
    fs::File,
    io::{self, IoSlice},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use forebay_env::direct::{self, BLOCK};
use forebay_format::{
    footer::RunEntry,
    stream::{self, STREAM_HEAD_LEN},
};
use forebay_types::SegmentId;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::{
    RecoveredStream, Shared,
    pending::{Chunk, Pending},
};
use crate::{DataError, SealedSegment, error::is_full, sealed::raw_bytes, segment_file};

/// Space is reserved in such steps.
const RESERVE: u64 = 8 << 20;

/// A file of the staging directory.
#[derive(Debug)]
pub(super) struct StreamFile {
    pub(super) segment: SegmentId,
    pub(super) path: PathBuf,
    pub(super) file: File,
    /// Bytes to the end of the last run.
    pub(super) len: AtomicU64,
    /// Whether the list of unsynced files has it.
    pub(super) unsynced: AtomicBool,
    /// Whether its name is on stable storage.
    pub(super) named: AtomicBool,
    /// Calls of `sealable` since the last append.
    pub(super) idle: AtomicU32,
    /// Whether the writer has been asked to write what is pending.
    pub(super) queued: AtomicBool,
    pub(super) state: Mutex<StreamState>,
    /// The same file for direct I/O, while runs are appended and the file system can do it. Held while a chunk is written.
    direct: Mutex<Option<File>>,
    pending: Mutex<Pending>,
}

/// Under the lock that an append holds.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    pub(super) runs: Vec<RunEntry>,
    /// Whether no slot appends to it any more.
    pub(super) closed: bool,
    pub(super) sealed: bool,
    /// How much of the file has its space already; `None` where runs go through the page cache.
    reserved: Option<u64>,
}

impl StreamFile {
    /// A new file in the staging directory.
    pub(super) fn create(segment: SegmentId, path: PathBuf) -> Result<StreamFile, DataError> {
        let file = segment_file::create(&path)?;
        let direct = direct::open_direct(&path);
        let reserved = direct.is_some().then_some(0);
        let stream = StreamFile::new(segment, path, file);
        *stream.direct.lock() = direct;
        stream.state.lock().reserved = reserved;
        Ok(stream)
    }

    fn new(segment: SegmentId, path: PathBuf, file: File) -> StreamFile {
        StreamFile {
            segment,
            path,
            file,
            len: AtomicU64::new(0),
            unsynced: AtomicBool::new(false),
            named: AtomicBool::new(false),
            idle: AtomicU32::new(0),
            queued: AtomicBool::new(false),
            state: Mutex::default(),
            direct: Mutex::default(),
            pending: Mutex::default(),
        }
    }

    pub(super) fn recovered(found: RecoveredStream) -> StreamFile {
        let stream = StreamFile::new(found.segment, found.path, found.file);
        stream.len.store(found.valid_len, Ordering::Release);
        stream.named.store(true, Ordering::Release);
        *stream.state.lock() =
            StreamState { runs: found.runs, closed: true, sealed: found.sealed, reserved: None };
        stream
    }

    pub(super) fn adopted(sealed: &SealedSegment, file: File) -> StreamFile {
        let stream = StreamFile::new(sealed.segment, sealed.path.clone(), file);
        stream.len.store(sealed.len, Ordering::Release);
        stream.named.store(true, Ordering::Release);
        *stream.state.lock() =
            StreamState { runs: sealed.runs.clone(), closed: true, sealed: true, reserved: None };
        stream
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Appends a run and its head: to the file, or to what is pending. After an error nothing was appended.
    pub(super) fn append(
        &self,
        state: &mut StreamState,
        entry: &RunEntry,
        run: [&[u8]; 2],
        shared: &Shared,
    ) -> io::Result<RunEntry> {
        let at = self.len();
        let run_offset = at + STREAM_HEAD_LEN as u64;
        let stored_len = (run[0].len() + run[1].len()) as u32;
        let entry = RunEntry { run_offset, stored_len, ..*entry };
        let end = run_offset + u64::from(stored_len);
        let head = stream::encode(self.segment, &entry);
        let parts = [&head[..], run[0], run[1]];
        if self.reserve(state, end)? {
            self.pending.lock().append(&parts, &shared.pool);
        } else if let Err(error) = self.write_through(&parts, at) {
            self.file.set_len(at)?;
            return Err(error);
        }
        state.runs.push(entry);
        self.len.store(end, Ordering::Release);
        self.idle.store(0, Ordering::Relaxed);
        Ok(entry)
    }

    /// Gets the space for the bytes up to `end`, since a run that is written later must not meet a full disk. False: there is no such thing
    /// here, and the run has to be written at once.
    fn reserve(&self, state: &mut StreamState, end: u64) -> io::Result<bool> {
        let Some(reserved) = state.reserved else { return Ok(false) };
        if end <= reserved {
            return Ok(true);
        }
        let wanted = end.next_multiple_of(RESERVE);
        let least = end.next_multiple_of(BLOCK as u64);
        let got = match segment_file::reserve(&self.file, reserved, wanted - reserved) {
            Ok(reserves) => reserves.then_some(wanted),
            Err(error) if is_full(&error) => {
                segment_file::reserve(&self.file, reserved, least - reserved)?.then_some(least)
            }
            Err(error) => return Err(error),
        };
        if got.is_none() {
            *self.direct.lock() = None;
        }
        state.reserved = got;
        Ok(got.is_some())
    }

    fn write_through(&self, parts: &[&[u8]; 3], at: u64) -> io::Result<()> {
        let slices = parts.map(IoSlice::new);
        let mut done = match rustix::io::pwritev(&self.file, &slices, at) {
            Ok(done) => done,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut place = at;
        for part in parts {
            let skip = done.min(part.len());
            self.file.write_all_at(&part[skip..], place + skip as u64)?;
            done -= skip;
            place += part.len() as u64;
        }
        Ok(())
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.pending.lock().waiting()
    }

    /// Returns once everything that was appended before the call is in the file; a failure is kept in `shared`.
    pub(super) fn drain(&self, shared: &Shared) {
        let target = self.len();
        let mut direct = self.direct.lock();
        while !shared.poison.is_set() {
            let Some(chunk) = self.pending.lock().next_chunk(&shared.pool) else { return };
            if let Err(error) = self.write_chunk(&mut direct, &chunk) {
                return shared.poison.set("write to", &self.path, error);
            }
            let end = chunk.end;
            self.pending.lock().written(chunk, &shared.pool);
            if end >= target {
                return;
            }
        }
    }

    fn write_chunk(&self, direct: &mut Option<File>, chunk: &Chunk) -> io::Result<()> {
        let blocks = chunk.blocks.as_slice();
        if let Some(file) = direct {
            match file.write_all_at(blocks, chunk.at) {
                // A disk whose blocks are larger than any that were foreseen.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => *direct = None,
                written => return written,
            }
        }
        self.file.write_all_at(&blocks[..(chunk.end - chunk.at) as usize], chunk.at)
    }

    /// Says that nothing more will be appended.
    pub(super) fn close(&self, state: &mut StreamState, shared: &Shared) {
        state.closed = true;
        self.pending.lock().close(&shared.pool);
    }

    /// Says that nothing more will be written.
    pub(super) fn end_direct(&self) {
        *self.direct.lock() = None;
    }

    pub(super) fn read_into(&self, offset: u64, out: &mut [u8]) -> Result<(), DataError> {
        let in_file = self.pending.lock().read(offset, out);
        segment_file::read_into(&self.file, &self.path, offset, &mut out[..in_file])
    }

    pub(super) fn as_sealed(&self, state: &StreamState) -> SealedSegment {
        SealedSegment {
            segment: self.segment,
            path: self.path.clone(),
            len: self.len(),
            raw: raw_bytes(&state.runs),
            runs: state.runs.clone(),
        }
    }
}
