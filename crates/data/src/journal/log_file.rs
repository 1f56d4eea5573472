use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use forebay_env::direct;
use forebay_format::record::FILE_HEAD_LEN;
use forebay_types::{SegmentId, Sequence};

use crate::{
    DataError,
    error::{io_error, is_full},
    segment_file,
};

/// Bytes that a file of the journal is meant to have.
pub(super) const FILE_LEN: u64 = 32 << 20;
/// Bytes set aside beyond that, for the changes of a last record that are longer than was foreseen.
const OVERRUN: u64 = 2 << 20;
pub(super) const EXTENSION: &str = "log";
const SPARE_NAME: &str = "spare";
/// Lengths of a first file that is to be had where the disk is full: enough for what frees space.
const SHORT_LENS: [u64; 4] = [8 << 20, 4 << 20, 2 << 20, 1 << 20];
/// Room in a short file for the changes of a last record.
const SHORT_OVERRUN: u64 = 128 << 10;

/// A file of the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalFile {
    /// The segment that it is.
    pub segment: SegmentId,
    /// Its first record; the next one to come where it has none.
    pub first: Sequence,
    /// Its last record; the one before `first` where it has none.
    pub last: Sequence,
    /// Bytes from its start to the end of its last record, whether written out or not.
    pub len: u64,
    /// Bytes of data in its records, as stored.
    pub data_bytes: u64,
}

/// An open file of the journal. What grows is changed under the append lock only.
#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) segment: SegmentId,
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) first: Sequence,
    pub(super) last: AtomicU64,
    pub(super) len: AtomicU64,
    pub(super) data_bytes: AtomicU64,
    /// Whether head and name are on stable storage.
    pub(super) settled: AtomicBool,
}

impl LogFile {
    pub(super) fn new(path: PathBuf, file: File, about: JournalFile, settled: bool) -> LogFile {
        LogFile {
            segment: about.segment,
            path,
            file,
            first: about.first,
            last: AtomicU64::new(about.last.0),
            len: AtomicU64::new(about.len),
            data_bytes: AtomicU64::new(about.data_bytes),
            settled: AtomicBool::new(settled),
        }
    }

    pub(super) fn about(&self) -> JournalFile {
        JournalFile {
            segment: self.segment,
            first: self.first,
            last: Sequence(self.last.load(Ordering::Acquire)),
            len: self.len.load(Ordering::Acquire),
            data_bytes: self.data_bytes.load(Ordering::Acquire),
        }
    }
}

/// The file that will be the next one: its space is reserved, its bytes are nothing.
#[derive(Debug)]
pub(super) struct Spare(File);

impl Spare {
    fn path(dir: &Path) -> PathBuf {
        dir.join(SPARE_NAME)
    }

    /// Makes the spare, or takes the one that is there. `None` where the disk is full.
    ///
    /// One with a head was a file of the journal until a stop undid its renaming, and is made anew: with another name, and its new head lost in the
    /// next stop, it would be taken for a file that somebody has renamed.
    pub(super) fn get(dir: &Path) -> Result<Option<Spare>, DataError> {
        let path = Spare::path(dir);
        if let Ok(file) = segment_file::open(&path) {
            let is_whole = file.metadata().is_ok_and(|about| about.len() == FILE_LEN + OVERRUN);
            if is_whole && has_no_head(&file) {
                return Ok(Some(Spare(file)));
            }
            drop(file);
            segment_file::delete(&path)?;
        }
        let file = match segment_file::create(&path) {
            Err(DataError::NoSpace { .. }) => return Ok(None),
            made => made?,
        };
        match direct::preallocate(&file, FILE_LEN + OVERRUN) {
            Ok(()) => Ok(Some(Spare(file))),
            Err(error) => {
                drop(file);
                segment_file::delete(&path)?;
                if is_full(&error) { Ok(None) } else { Err(io_error("reserve space for", &path)(error)) }
            }
        }
    }

    /// A file as long as the disk has room for, and the bytes that it may have. `None` where there is no room even for the shortest.
    pub(super) fn short(dir: &Path) -> Result<Option<(Spare, u64)>, DataError> {
        let path = Spare::path(dir);
        for len in SHORT_LENS {
            segment_file::delete(&path)?;
            let file = match segment_file::create(&path) {
                Err(DataError::NoSpace { .. }) => return Ok(None),
                made => made?,
            };
            match direct::preallocate(&file, len) {
                Ok(()) => return Ok(Some((Spare(file), len - SHORT_OVERRUN))),
                Err(error) if is_full(&error) => {}
                Err(error) => return Err(io_error("reserve space for", &path)(error)),
            }
        }
        segment_file::delete(&path)?;
        Ok(None)
    }

    /// Gives the spare its name as a file of the journal; where that fails it stays a spare.
    pub(super) fn name(self, dir: &Path, segment: SegmentId) -> Result<(File, PathBuf), (Spare, DataError)> {
        let (from, to) = (Spare::path(dir), segment_file::path(dir, segment, EXTENSION));
        match std::fs::rename(&from, &to) {
            Ok(()) => Ok((self.0, to)),
            Err(error) => Err((self, io_error("name a new journal file", &to)(error))),
        }
    }
}

fn has_no_head(file: &File) -> bool {
    let mut head = [0; FILE_HEAD_LEN];
    file.read_exact_at(&mut head, 0).is_ok() && head == [0; FILE_HEAD_LEN]
}
