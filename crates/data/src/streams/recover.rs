use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use forebay_env::durable::{Point, sync_dir, sync_file};
use forebay_format::{
    footer::RunEntry,
    record::StreamRun,
    run,
    stream::{self, STREAM_HEAD_LEN},
};
use forebay_types::SegmentId;

use super::{EXTENSION, PART_EXTENSION, Streams};
use crate::{DataError, error::io_error, read_footer, segment_file};

/// A file of the staging directory as it was found.
#[derive(Debug)]
pub struct RecoveredStream {
    /// The segment that it is.
    pub segment: SegmentId,
    /// Its runs as far as their heads are whole; what is in the frames has not been verified.
    pub runs: Vec<RunEntry>,
    /// Bytes to the end of the last of them.
    pub valid_len: u64,
    /// Whether it had been sealed: it has a footer, and `runs` are the footer's.
    pub sealed: bool,
    pub(super) path: PathBuf,
    pub(super) file: File,
}

impl RecoveredStream {
    /// Whether the stream has this run with every checksum right: what [`crate::Journal::replay`] asks. Frames are read, not opened, so no key
    /// is needed.
    ///
    /// # Errors
    /// [`DataError::Io`] where the disk cannot be read; a run that is missing or torn is not an error.
    pub fn has(&self, wanted: &StreamRun) -> Result<bool, DataError> {
        let listed = self.runs.iter().any(|run| {
            run.run_offset == wanted.run_offset
                && (run.stored_len, run.run_len) == (wanted.stored_len, wanted.run_len)
                && (run.form, run.check) == (wanted.form, wanted.check)
        });
        if !listed {
            return Ok(false);
        }
        let len = wanted.stored_len as usize;
        let stored = segment_file::read_at(&self.file, &self.path, wanted.run_offset, len)?;
        Ok(run::verify(&stored, wanted.form, wanted.run_len, wanted.check).is_ok())
    }
}

impl Streams {
    /// Lists what a stop of any kind left in the staging directory `dir`, by segment, and makes it durable as it is, so that what a replay of
    /// the journal accepts cannot be lost to a later crash. Segments that were being packed are removed; they were never named.
    ///
    /// # Errors
    /// [`DataError::Io`].
    pub fn recover(dir: &Path) -> Result<Vec<RecoveredStream>, DataError> {
        for (_, path) in segment_file::list(dir, PART_EXTENSION)? {
            segment_file::delete(&path)?;
        }
        let mut recovered = Vec::new();
        for (segment, path) in segment_file::list(dir, EXTENSION)? {
            let file = segment_file::open(&path)?;
            sync_file(&file, Point::STREAM_DATA).map_err(io_error("sync", &path))?;
            recovered.push(recover_one(segment, path, file)?);
        }
        sync_dir(dir, Point::STREAM_NAME).map_err(io_error("sync", dir))?;
        Ok(recovered)
    }
}

fn recover_one(segment: SegmentId, path: PathBuf, file: File) -> Result<RecoveredStream, DataError> {
    match read_footer(&file, &path) {
        Ok(mut footer) if footer.segments.len() == 1 && footer.segments[0].id == segment => {
            let entry = footer.segments.swap_remove(0);
            return Ok(RecoveredStream {
                segment,
                runs: entry.runs,
                valid_len: entry.len,
                sealed: true,
                path,
                file,
            });
        }
        Ok(_) | Err(DataError::Format { .. }) => {}
        Err(error) => return Err(error),
    }
    let len = file.metadata().map_err(io_error("stat", &path))?.len();
    let mut runs = Vec::new();
    let mut at = 0;
    let mut head = [0; STREAM_HEAD_LEN];
    while at + STREAM_HEAD_LEN as u64 <= len {
        file.read_exact_at(&mut head, at).map_err(io_error("read", &path))?;
        let Ok(run) = stream::decode(&head, segment, at) else { break };
        let end = run.run_offset + u64::from(run.stored_len);
        if run.stored_len == 0 || end > len {
            break;
        }
        runs.push(run);
        at = end;
    }
    Ok(RecoveredStream { segment, runs, valid_len: at, sealed: false, path, file })
}
