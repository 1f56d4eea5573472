//! Reading the journal back after a stop of any kind.
//!
//! Between a crash and damage the rule is: bytes that no sync covered may be missing or torn, so the first record that is not there ends the
//! journal; what was certainly durable and is gone is an error. Certainly durable are applied records (the engine passes a record only after
//! its sync), and head and name of every file that has a successor.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use forebay_env::durable::{Point, sync_dir, sync_file};
use forebay_format::{
    FormatError,
    record::{Changes, FILE_HEAD_LEN, FileHead, RECORD_HEAD_LEN, RecordHead, StreamRun},
};
use forebay_types::{Epoch, SegmentId, Sequence, VolumeId};

use super::{
    Journal,
    log_file::{EXTENSION, JournalFile, LogFile},
};
use crate::{DataError, ReplayError, error::io_error, segment_file};

/// A record that was found.
#[derive(Debug)]
pub struct Replayed<'a> {
    /// Its place in the order.
    pub sequence: Sequence,
    /// The file that has it.
    pub segment: SegmentId,
    /// Where in the file its data is.
    pub data_offset: u64,
    /// Bytes of its data.
    pub data_len: u32,
    /// Its data.
    pub data: &'a [u8],
    /// What it changes.
    pub changes: Changes,
    /// Whether it is later than what had been applied.
    pub fresh: bool,
}

/// What a replay found; [`Journal::start`] continues from it.
#[derive(Debug)]
pub struct Replay {
    /// The last record that counts: found, or applied before.
    pub last: Sequence,
    /// The files that stay, in the order of their records.
    pub files: Vec<JournalFile>,
    /// Why the journal ends before the bytes do; `None` where it ends as it was left.
    pub cut: Option<String>,
    doomed: Vec<PathBuf>,
}

impl Replay {
    /// Makes durable that what is beyond the cut is gone, and that what was replayed is there.
    pub(super) fn settle(self, dir: &Path) -> Result<Vec<LogFile>, DataError> {
        let mut files = Vec::with_capacity(self.files.len());
        for about in self.files {
            let path = segment_file::path(dir, about.segment, EXTENSION);
            let file = segment_file::open(&path)?;
            if file.metadata().map_err(io_error("stat", &path))?.len() > about.len {
                file.set_len(about.len).map_err(io_error("truncate", &path))?;
            }
            sync_file(&file, Point::JOURNAL_DATA).map_err(io_error("sync", &path))?;
            files.push(LogFile::new(path, file, about, true));
        }
        for path in &self.doomed {
            segment_file::delete(path)?;
        }
        sync_dir(dir, Point::JOURNAL_NAME).map_err(io_error("sync", dir))?;
        Ok(files)
    }
}

impl Journal {
    /// Visits every record that counts, in order: those that were applied already as far as they are still there, then all later ones up to
    /// the point of the crash, which is the first record that is missing, torn, of an older epoch than the one before it, or whose stream
    /// runs `stream_ok` denies. Nothing on disk is changed before [`Journal::start`].
    ///
    /// Memory: one file at a time.
    ///
    /// # Errors
    /// [`DataError::JournalGap`] and [`DataError::Format`] where records are missing that a crash cannot have taken; [`DataError::Io`]; and
    /// what `visit` says.
    pub fn replay<E>(
        dir: &Path,
        volume: VolumeId,
        applied: Sequence,
        stream_ok: &mut dyn FnMut(&StreamRun) -> bool,
        visit: &mut dyn FnMut(Replayed<'_>) -> Result<(), E>,
    ) -> Result<Replay, ReplayError<E>> {
        let mut found = Found::scan(dir, volume)?;
        let unwritten = std::mem::take(&mut found.unwritten);
        let replay = Replay { last: applied, files: Vec::new(), cut: None, doomed: unwritten };
        let mut walk = Walk { dir, applied, next: None, epoch: Epoch::default(), replay, stream_ok, visit };
        for (index, file) in found.files.iter().enumerate() {
            let bound = found.files.get(index + 1).map(|next| next.head.first);
            walk.file(file, bound)?;
        }
        walk.end()?;
        walk.add_opaque(&found)?;
        Ok(walk.replay)
    }
}

struct FoundFile {
    path: PathBuf,
    head: FileHead,
}

/// The files in a journal's directory.
struct Found {
    /// With a good head, in the order of their records.
    files: Vec<FoundFile>,
    /// With a head that was written and is damaged.
    damaged: Vec<(SegmentId, PathBuf, FormatError)>,
    /// Made by a process that stopped before it wrote a head.
    unwritten: Vec<PathBuf>,
}

impl Found {
    fn scan(dir: &Path, volume: VolumeId) -> Result<Found, DataError> {
        let mut found = Found { files: Vec::new(), damaged: Vec::new(), unwritten: Vec::new() };
        for (segment, path) in segment_file::list(dir, EXTENSION)? {
            let file = File::open(&path).map_err(io_error("open", &path))?;
            let len = file.metadata().map_err(io_error("stat", &path))?.len();
            let mut head = [0; FILE_HEAD_LEN];
            let have = len.min(FILE_HEAD_LEN as u64) as usize;
            file.read_exact_at(&mut head[..have], 0).map_err(io_error("read", &path))?;
            if have < FILE_HEAD_LEN || head == [0; FILE_HEAD_LEN] {
                found.unwritten.push(path);
                continue;
            }
            match FileHead::decode(&head) {
                Ok(head) if head.volume != volume => {
                    let detail = format!("it belongs to volume {}, not {volume}", head.volume);
                    let source = FormatError::Invalid { what: "a journal file", detail };
                    return Err(DataError::Format { path, source });
                }
                Ok(head) if head.segment != segment || head.first == Sequence(0) => {
                    let detail = format!("its head says segment {} from {}", head.segment, head.first);
                    let error = FormatError::Invalid { what: "a journal file", detail };
                    found.damaged.push((segment, path, error));
                }
                Ok(head) => found.files.push(FoundFile { path, head }),
                Err(source @ FormatError::Version { .. }) => return Err(DataError::Format { path, source }),
                Err(error) => found.damaged.push((segment, path, error)),
            }
        }
        found.files.sort_by_key(|file| (file.head.first, file.head.epoch, file.head.segment));
        Ok(found)
    }
}

fn before(sequence: Sequence) -> Sequence {
    Sequence(sequence.0.saturating_sub(1))
}

/// Where a record ends, or why there is none.
enum Step {
    Next(usize),
    End,
    Damage(String),
}

struct Walk<'a, E> {
    dir: &'a Path,
    applied: Sequence,
    /// The next record that is expected; `None` before the first file.
    next: Option<Sequence>,
    epoch: Epoch,
    replay: Replay,
    stream_ok: &'a mut dyn FnMut(&StreamRun) -> bool,
    visit: &'a mut dyn FnMut(Replayed<'_>) -> Result<(), E>,
}

impl<E> Walk<'_, E> {
    fn file(&mut self, file: &FoundFile, bound: Option<Sequence>) -> Result<(), ReplayError<E>> {
        let first = file.head.first;
        if self.replay.cut.is_none() {
            self.link(file)?;
        }
        if self.replay.cut.is_some() {
            self.replay.doomed.push(file.path.clone());
            return Ok(());
        }
        self.epoch = file.head.epoch;
        let bytes = std::fs::read(&file.path).map_err(io_error("read", &file.path))?;
        let segment = file.head.segment;
        let mut about = JournalFile { segment, first, last: first, len: FILE_HEAD_LEN as u64, data_bytes: 0 };
        let (mut sequence, mut at) = (first, FILE_HEAD_LEN);
        while Some(sequence) != bound {
            match self.record(file, &bytes, at, sequence, &mut about)? {
                Step::Next(end) => at = end,
                Step::End => break,
                Step::Damage(reason) => {
                    if sequence > self.applied {
                        self.replay.cut = Some(format!("{reason} in '{}' at byte {at}", file.path.display()));
                    }
                    break;
                }
            }
            sequence = sequence.next();
        }
        self.next = Some(sequence);
        about.len = at as u64;
        self.keep(about, sequence, bound, &bytes, &file.path);
        Ok(())
    }

    /// Whether `file` follows what came before; else there is a cut, or an error.
    fn link(&mut self, file: &FoundFile) -> Result<(), DataError> {
        let first = file.head.first;
        let wanted = self.next.unwrap_or(self.applied.next());
        if first > wanted && first > self.applied.next() {
            if self.next.is_none_or(|next| next <= self.applied) {
                let needed = self.applied.next();
                return Err(DataError::JournalGap { path: self.dir.to_owned(), needed, found: Some(first) });
            }
            self.replay.cut =
                Some(format!("record {wanted} is missing, '{}' begins later", file.path.display()));
        } else if file.head.epoch < self.epoch {
            let reason = format!("'{}' is of an older epoch than what comes before it", file.path.display());
            self.replay.cut = Some(reason);
        }
        Ok(())
    }

    fn record(
        &mut self,
        file: &FoundFile,
        bytes: &[u8],
        at: usize,
        sequence: Sequence,
        about: &mut JournalFile,
    ) -> Result<Step, ReplayError<E>> {
        let damage = |error: FormatError| Ok(Step::Damage(format!("record {sequence} is torn ({error})")));
        let rest = &bytes[at..];
        if rest.iter().take(RECORD_HEAD_LEN).all(|byte| *byte == 0) {
            return Ok(Step::End);
        }
        let head = match RecordHead::decode(rest) {
            Ok(head) => head,
            Err(error) => return damage(error),
        };
        if head.sequence != sequence || head.epoch != file.head.epoch {
            let (sequence, epoch) = (head.sequence, head.epoch);
            return Ok(Step::Damage(format!("an old record {sequence} of epoch {epoch} is left over")));
        }
        let (data_len, changes_len) = (head.data_len as usize, head.changes_len as usize);
        let parts = rest[RECORD_HEAD_LEN..].split_at_checked(data_len);
        let parts = parts.and_then(|(data, rest)| Some((data, rest.get(..changes_len)?)));
        let Some((data, changes)) = parts else {
            return Ok(Step::Damage(format!("record {sequence} is torn")));
        };
        let changes = match head.check(data, changes).and_then(|()| Changes::decode(changes)) {
            Ok(changes) => changes,
            Err(error) => return damage(error),
        };
        let fresh = sequence > self.applied;
        if fresh && let Some(run) = changes.streams.iter().find(|run| !(self.stream_ok)(run)) {
            let (segment, offset) = (run.segment, run.run_offset);
            let reason = format!("record {sequence} needs stream {segment} at {offset}, which is not whole");
            return Ok(Step::Damage(reason));
        }
        let data_offset = (at + RECORD_HEAD_LEN) as u64;
        about.data_bytes += data_len as u64;
        let segment = file.head.segment;
        let data_len = head.data_len;
        let replayed = Replayed { sequence, segment, data_offset, data_len, data, changes, fresh };
        (self.visit)(replayed).map_err(|source| ReplayError::Visit { sequence, source })?;
        Ok(Step::Next(at + RECORD_HEAD_LEN + data.len() + changes_len))
    }

    /// Notes what becomes of a file of which records up to before `next` were found.
    fn keep(
        &mut self,
        mut about: JournalFile,
        next: Sequence,
        bound: Option<Sequence>,
        bytes: &[u8],
        path: &Path,
    ) {
        about.last = before(next);
        if next <= self.applied && bound != Some(next) {
            // Damaged where everything was applied: extents may name data behind the damage.
            about.len = bytes.len() as u64;
            about.last = bound.map_or(about.last, before);
        }
        if about.last < about.first && about.len == FILE_HEAD_LEN as u64 {
            self.replay.doomed.push(path.to_owned());
        } else {
            self.replay.files.push(about);
        }
    }

    fn end(&mut self) -> Result<(), DataError> {
        let Some(next) = self.next else { return Ok(()) };
        if next <= self.applied {
            let path = self.dir.to_owned();
            return Err(DataError::JournalGap { path, needed: self.applied.next(), found: None });
        }
        self.replay.last = before(next);
        Ok(())
    }

    /// A file with a damaged head stays, for the data in it, if a later file shows that all its records were applied.
    fn add_opaque(&mut self, found: &Found) -> Result<(), DataError> {
        for (segment, path, error) in &found.damaged {
            let later = found
                .files
                .iter()
                .find(|file| file.head.segment > *segment && file.head.first <= self.applied.next());
            let Some(later) = later else {
                return Err(DataError::Format { path: path.clone(), source: error.clone() });
            };
            let len = std::fs::metadata(path).map_err(io_error("stat", path))?.len();
            let last = before(later.head.first);
            let (segment, data_bytes) = (*segment, len);
            self.replay.files.push(JournalFile { segment, first: last, last, len, data_bytes });
        }
        self.replay.files.sort_by_key(|file| (file.first, file.segment));
        Ok(())
    }
}
