use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use forebay_env::{
    direct::{self, Blocks},
    durable::{Point, sync_dir, sync_file},
};
use forebay_format::footer::RunEntry;
use forebay_types::{SegmentId, VolumeId};

use rustix::io::Errno;

use crate::{
    DataError, SealedSegment,
    error::io_error,
    sealed::raw_bytes,
    segment_file,
    streams::{EXTENSION, PART_EXTENSION},
};

/// Bytes that are written at once.
const BUFFER: usize = 1 << 20;

/// Writes a segment of runs that are there already: sealing the journal's data, or compaction. Not shared between threads. The bytes go
/// past the page cache where the file system allows that: nobody has asked to read them.
///
/// The file has its final name only once it is whole and synced; one that is dropped before [`PackedWriter::finish`] is removed, and
/// what a crash leaves is removed by [`crate::Streams::recover`].
#[derive(Debug)]
pub struct PackedWriter {
    file: File,
    direct: Option<File>,
    /// What is not in the file yet, from `written` on.
    blocks: Blocks,
    written: u64,
    dir: PathBuf,
    part: PathBuf,
    volume: VolumeId,
    segment: SegmentId,
    len: u64,
    runs: Vec<RunEntry>,
}

impl PackedWriter {
    /// A new segment in the staging directory `dir`.
    ///
    /// # Errors
    /// [`DataError::NoSpace`], [`DataError::Io`].
    pub fn create(dir: &Path, volume: VolumeId, segment: SegmentId) -> Result<PackedWriter, DataError> {
        let part = segment_file::path(dir, segment, PART_EXTENSION);
        let file = segment_file::create(&part)?;
        let direct = direct::open_direct(&part);
        let blocks = Blocks::with_capacity(BUFFER + BUFFER / 4);
        let (dir, runs) = (dir.to_owned(), Vec::new());
        Ok(PackedWriter { file, direct, blocks, written: 0, dir, part, volume, segment, len: 0, runs })
    }

    /// Bytes of the body so far.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing has been added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Appends a run as it is stored, in two parts that follow each other; `entry.run_offset` is ignored. Returns where in the segment it
    /// starts.
    ///
    /// # Errors
    /// [`DataError::NoSpace`], [`DataError::Io`]; the writer is then good for nothing but to be dropped.
    pub fn add(&mut self, entry: &RunEntry, run: [&[u8]; 2]) -> Result<u64, DataError> {
        let run_offset = self.len;
        let stored_len = run[0].len() + run[1].len();
        run.iter().for_each(|part| self.blocks.extend(part));
        if self.blocks.len() >= BUFFER {
            self.write_blocks().map_err(io_error("write to", &self.part))?;
        }
        self.runs.push(RunEntry { run_offset, stored_len: stored_len as u32, ..*entry });
        self.len += stored_len as u64;
        Ok(run_offset)
    }

    /// Writes all whole blocks.
    fn write_blocks(&mut self) -> io::Result<()> {
        let whole = self.blocks.whole();
        let bytes = &self.blocks.as_slice()[..whole];
        match self.direct.as_ref().map(|file| file.write_all_at(bytes, self.written)) {
            Some(Ok(())) => {}
            Some(Err(error)) if Errno::from_io_error(&error) != Some(Errno::INVAL) => return Err(error),
            _ => {
                self.direct = None;
                self.file.write_all_at(bytes, self.written)?;
            }
        }
        self.blocks.drop_front(whole);
        self.written += whole as u64;
        Ok(())
    }

    /// Writes the footer; returns once bytes and name are on stable storage.
    ///
    /// # Errors
    /// [`DataError::NoSpace`], [`DataError::Io`]; nothing is left behind.
    pub fn finish(mut self) -> Result<SealedSegment, DataError> {
        let runs = std::mem::take(&mut self.runs);
        let path = segment_file::path(&self.dir, self.segment, EXTENSION);
        let raw = raw_bytes(&runs);
        let sealed = SealedSegment { segment: self.segment, path, len: self.len, raw, runs };
        self.blocks.extend(&sealed.footer(self.volume));
        let end = self.written + self.blocks.len() as u64;
        self.blocks.pad();
        self.write_blocks().map_err(io_error("write to", &self.part))?;
        self.file.set_len(end).map_err(io_error("truncate", &self.part))?;
        sync_file(&self.file, Point::STREAM_DATA).map_err(io_error("sync", &self.part))?;
        std::fs::rename(&self.part, &sealed.path).map_err(io_error("name", &sealed.path))?;
        sync_dir(&self.dir, Point::STREAM_NAME).map_err(io_error("sync", &self.dir))?;
        Ok(sealed)
    }
}

impl Drop for PackedWriter {
    fn drop(&mut self) {
        if let Err(error) = segment_file::delete(&self.part) {
            tracing::warn!("an unfinished segment stays: {error}");
        }
    }
}
