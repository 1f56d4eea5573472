use std::{
    fs::File,
    io::{self, IoSlice},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use forebay_format::{
    footer::RunEntry,
    stream::{self, STREAM_HEAD_LEN},
};
use forebay_types::SegmentId;
use parking_lot::Mutex;

use crate::{SealedSegment, sealed::raw_bytes};

use super::RecoveredStream;

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
    pub(super) state: Mutex<StreamState>,
}

/// Under the lock that an append holds.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    pub(super) runs: Vec<RunEntry>,
    /// Whether no slot appends to it any more.
    pub(super) closed: bool,
    pub(super) sealed: bool,
}

impl StreamFile {
    pub(super) fn new(segment: SegmentId, path: PathBuf, file: File) -> StreamFile {
        StreamFile {
            segment,
            path,
            file,
            len: AtomicU64::new(0),
            unsynced: AtomicBool::new(false),
            named: AtomicBool::new(false),
            idle: AtomicU32::new(0),
            state: Mutex::default(),
        }
    }

    pub(super) fn recovered(found: RecoveredStream) -> StreamFile {
        let stream = StreamFile::new(found.segment, found.path, found.file);
        stream.len.store(found.valid_len, Ordering::Release);
        stream.named.store(true, Ordering::Release);
        *stream.state.lock() = StreamState { runs: found.runs, closed: true, sealed: found.sealed };
        stream
    }

    pub(super) fn adopted(sealed: &SealedSegment, file: File) -> StreamFile {
        let stream = StreamFile::new(sealed.segment, sealed.path.clone(), file);
        stream.len.store(sealed.len, Ordering::Release);
        stream.named.store(true, Ordering::Release);
        *stream.state.lock() = StreamState { runs: sealed.runs.clone(), closed: true, sealed: true };
        stream
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Appends a run and its head. After an error the file is as long as before.
    pub(super) fn append(
        &self,
        state: &mut StreamState,
        entry: &RunEntry,
        run: &[u8],
    ) -> io::Result<RunEntry> {
        let at = self.len();
        let run_offset = at + STREAM_HEAD_LEN as u64;
        let entry = RunEntry { run_offset, stored_len: run.len() as u32, ..*entry };
        let head = stream::encode(self.segment, &entry);
        if let Err(error) = self.write(&head, run, at) {
            self.file.set_len(at)?;
            return Err(error);
        }
        state.runs.push(entry);
        self.len.store(run_offset + run.len() as u64, Ordering::Release);
        self.idle.store(0, Ordering::Relaxed);
        Ok(entry)
    }

    fn write(&self, head: &[u8; STREAM_HEAD_LEN], run: &[u8], at: u64) -> io::Result<()> {
        let slices = [IoSlice::new(head), IoSlice::new(run)];
        let done = match rustix::io::pwritev(&self.file, &slices, at) {
            Ok(done) => done,
            Err(rustix::io::Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let head_rest = head.get(done..).unwrap_or_default();
        self.file.write_all_at(head_rest, at + done as u64)?;
        let run_done = done.saturating_sub(STREAM_HEAD_LEN);
        self.file.write_all_at(&run[run_done..], at + (STREAM_HEAD_LEN + run_done) as u64)
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
