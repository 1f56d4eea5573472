use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use forebay_env::durable::{Point, sync_dir, sync_file};
use forebay_format::footer::RunEntry;
use forebay_types::{SegmentId, VolumeId};

use crate::{
    DataError, SealedSegment,
    error::io_error,
    sealed::raw_bytes,
    segment_file,
    streams::{EXTENSION, PART_EXTENSION},
};

const BUFFER: usize = 256 << 10;

/// Writes a segment of runs that are there already: sealing the journal's data, or compaction. Not shared between threads.
///
/// The file has its final name only once it is whole and synced; one that is dropped before [`PackedWriter::finish`] is removed, and
/// what a crash leaves is removed by [`crate::Streams::recover`].
#[derive(Debug)]
pub struct PackedWriter {
    file: Option<BufWriter<File>>,
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
        let file = Some(BufWriter::with_capacity(BUFFER, segment_file::create(&part)?));
        Ok(PackedWriter { file, dir: dir.to_owned(), part, volume, segment, len: 0, runs: Vec::new() })
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

    /// Appends a run as it is stored; `entry.run_offset` is ignored. Returns where in the segment it starts.
    ///
    /// # Errors
    /// [`DataError::NoSpace`], [`DataError::Io`]; the writer is then good for nothing but to be dropped.
    pub fn add(&mut self, entry: &RunEntry, run: &[u8]) -> Result<u64, DataError> {
        let run_offset = self.len;
        self.write(run)?;
        self.runs.push(RunEntry { run_offset, stored_len: run.len() as u32, ..*entry });
        self.len += run.len() as u64;
        Ok(run_offset)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        match &mut self.file {
            Some(file) => file.write_all(bytes).map_err(io_error("write to", &self.part)),
            None => Err(DataError::NoSegment { segment: self.segment }),
        }
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
        self.write(&sealed.footer(self.volume))?;
        if let Some(mut file) = self.file.take() {
            file.flush().map_err(io_error("write to", &self.part))?;
            sync_file(file.get_ref(), Point::STREAM_DATA).map_err(io_error("sync", &self.part))?;
        }
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
