//! Reading the journal back after a stop of any kind.
//!
//! Between a crash and damage the rule is: bytes that no sync covered may be missing or torn, so the first record that is not there ends the
//! journal; what was certainly durable, is not in the engine and cannot be read is an error. Certainly durable are applied records (the engine
//! passes a record only after its sync), those that a later record calls durable, and head and name of every file that has a successor. A file
//! without a successor of which a sync has succeeded has a durable head: the newest one, where there is nothing of a head, is beyond the end.
//!
//! Damage among applied records costs no operation, since the engine has their rows: reading goes on at the first whole record behind it. What
//! data the damaged bytes were is found out by whoever reads it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use forebay_env::durable::{Point, sync_dir, sync_file};
use forebay_format::record::{Changes, FILE_HEAD_LEN, RECORD_HEAD_LEN, StreamRun};
use forebay_types::{Epoch, SegmentId, Sequence, VolumeId};

use super::{
    Journal,
    behind::{Behind, Whole},
    found::{Found, FoundFile, Headless},
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

/// Bytes of the journal that are not what was written, of which nothing is needed but perhaps as data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The segment that it is.
    pub segment: SegmentId,
    /// The first byte that cannot be trusted.
    pub from: u64,
    /// Where the next whole record begins, or the file ends.
    pub to: u64,
    /// The first record that cannot be read.
    pub first: Sequence,
    /// The last one.
    pub last: Sequence,
    /// What is wrong.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { path, from, to, first, last, reason, .. } = self;
        write!(f, "'{}', bytes {from} to {to}: {reason}; the metadata ", path.display())?;
        write!(f, "contains records {first} to {last}, data in these bytes may be lost")
    }
}

/// What [`Journal::salvage`] gives up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Why a replay refuses the journal.
    pub reason: String,
    /// The first record that is missing.
    pub needed: Sequence,
    /// Whole records behind it, which count for nothing without it.
    pub records: u64,
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
    /// Damage that costs no operation.
    pub damages: Vec<Damage>,
    /// What a salvage gives up; never anything in a replay.
    pub dropped: Option<Dropped>,
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
    /// Visits every record that counts, in order: those that were applied already as far as they can still be read, then all later ones up to
    /// the point of the crash, which is the first record that is missing, torn, of an older epoch than the one before it, or whose stream
    /// runs `stream_ok` denies. Nothing on disk is changed before [`Journal::start`].
    ///
    /// Memory: two files at a time.
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
        Walk::run(dir, volume, (applied, Mode::Writer), stream_ok, visit)
    }

    /// Like [`Journal::replay`], of a copy that was put together elsewhere and may lack what its writer called durable.
    ///
    /// # Errors
    /// As [`Journal::replay`].
    pub fn replay_copy<E>(
        dir: &Path,
        volume: VolumeId,
        applied: Sequence,
        stream_ok: &mut dyn FnMut(&StreamRun) -> bool,
        visit: &mut dyn FnMut(Replayed<'_>) -> Result<(), E>,
    ) -> Result<Replay, ReplayError<E>> {
        Walk::run(dir, volume, (applied, Mode::Copy), stream_ok, visit)
    }

    /// Like [`Journal::replay`], but where that finds that durable records are lost, the journal ends there, and [`Replay::dropped`] tells.
    /// Files of another volume or of a newer release are an error all the same.
    ///
    /// # Errors
    /// As [`Journal::replay`], without [`DataError::JournalGap`].
    pub fn salvage<E>(
        dir: &Path,
        volume: VolumeId,
        applied: Sequence,
        stream_ok: &mut dyn FnMut(&StreamRun) -> bool,
        visit: &mut dyn FnMut(Replayed<'_>) -> Result<(), E>,
    ) -> Result<Replay, ReplayError<E>> {
        Walk::run(dir, volume, (applied, Mode::Salvage), stream_ok, visit)
    }

    /// The highest epoch that the journal's files name; 0 where there are none.
    ///
    /// # Errors
    /// [`DataError::Format`], [`DataError::Io`].
    pub fn last_epoch(dir: &Path, volume: VolumeId) -> Result<Epoch, DataError> {
        let found = Found::scan(dir, volume)?;
        Ok(found.files.iter().map(|file| file.head.epoch).max().unwrap_or_default())
    }

    /// Removes, durably, what is beyond the cut of a replay, as [`Journal::start`] would. Done again after a stop it does the rest.
    ///
    /// # Errors
    /// [`DataError`].
    pub fn cut(replay: Replay, dir: &Path) -> Result<(), DataError> {
        replay.settle(dir).map(drop)
    }
}

fn before(sequence: Sequence) -> Sequence {
    Sequence(sequence.0.saturating_sub(1))
}

/// What is read, and what for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The writer's own files.
    Writer,
    /// A copy of them.
    Copy,
    /// The writer's own files, of which what is behind lost records is given up.
    Salvage,
}

/// Where a record ends, or why there is none.
enum Step {
    Next(usize),
    End,
    Damage(String),
    /// It is whole, and does not count without its streams: somebody else's sync may have taken it along before these were synced.
    Unsupported(String),
}

/// A file that is being read.
struct Reading<'a> {
    file: &'a FoundFile,
    /// The files after it.
    later: &'a [FoundFile],
    bytes: Vec<u8>,
    about: JournalFile,
}

impl Reading<'_> {
    fn bound(&self) -> Option<Sequence> {
        self.later.first().map(|next| next.head.first)
    }

    /// What is behind `at`, later than record `after`: in this file and in later ones.
    fn behind(&self, at: usize, after: Sequence) -> Result<Behind, DataError> {
        let mut behind = Behind::default();
        let epoch = self.file.head.epoch;
        behind.look(&self.bytes, at, Some(epoch), after, self.bound());
        behind.look_at_files(self.later, epoch)?;
        Ok(behind)
    }
}

struct Walk<'a, E> {
    dir: &'a Path,
    applied: Sequence,
    mode: Mode,
    /// The next record that is expected; `None` before the first file.
    next: Option<Sequence>,
    epoch: Epoch,
    replay: Replay,
    stream_ok: &'a mut dyn FnMut(&StreamRun) -> bool,
    visit: &'a mut dyn FnMut(Replayed<'_>) -> Result<(), E>,
}

impl<'a, E> Walk<'a, E> {
    fn run(
        dir: &'a Path,
        volume: VolumeId,
        (applied, mode): (Sequence, Mode),
        stream_ok: &'a mut dyn FnMut(&StreamRun) -> bool,
        visit: &'a mut dyn FnMut(Replayed<'_>) -> Result<(), E>,
    ) -> Result<Replay, ReplayError<E>> {
        let mut found = Found::scan(dir, volume)?;
        let doomed = std::mem::take(&mut found.unwritten);
        let replay = Replay {
            last: applied,
            files: Vec::new(),
            cut: None,
            damages: Vec::new(),
            dropped: None,
            doomed,
        };
        let epoch = Epoch::default();
        let mut walk = Walk { dir, applied, mode, next: None, epoch, replay, stream_ok, visit };
        for (index, file) in found.files.iter().enumerate() {
            walk.file(file, &found.files[index + 1..])?;
        }
        let last = walk.next.map_or(applied, before);
        walk.replay.last = last.max(applied);
        walk.add_headless(&found)?;
        Ok(walk.replay)
    }

    fn file(&mut self, file: &FoundFile, later: &[FoundFile]) -> Result<(), ReplayError<E>> {
        if self.replay.cut.is_none() {
            self.link(file, later)?;
        }
        if self.replay.cut.is_some() {
            self.replay.doomed.push(file.path.clone());
            return Ok(());
        }
        self.epoch = file.head.epoch;
        let (segment, first) = (file.head.segment, file.head.first);
        let about = JournalFile { segment, first, last: first, len: FILE_HEAD_LEN as u64, data_bytes: 0 };
        let mut reading = Reading { file, later, bytes: file.read()?, about };
        let bound = reading.bound();
        let (mut sequence, mut at) = (first, FILE_HEAD_LEN);
        while Some(sequence) != bound {
            let reason = match self.record(&mut reading, at, sequence)? {
                Step::Next(end) => {
                    at = end;
                    sequence = sequence.next();
                    continue;
                }
                // A later file that has what follows, or a file that was removed since, is no reason to wonder.
                Step::End
                    if sequence > self.applied || bound.is_some_and(|bound| bound <= self.applied.next()) =>
                {
                    break;
                }
                Step::End => format!("the records end before record {sequence}"),
                Step::Damage(reason) => reason,
                Step::Unsupported(reason) => {
                    self.replay.cut = Some(format!("{reason} in '{}' at byte {at}", file.path.display()));
                    break;
                }
            };
            match self.go_on(&reading, at, sequence, reason)? {
                Some((found_at, found)) => (at, sequence) = (found_at, found),
                None => break,
            }
        }
        self.next = Some(sequence);
        reading.about.len = at as u64;
        self.keep(reading, sequence);
        Ok(())
    }

    /// Whether `file` follows what came before; else there is a cut, or an error.
    fn link(&mut self, file: &FoundFile, later: &[FoundFile]) -> Result<(), DataError> {
        let first = file.head.first;
        let wanted = self.next.unwrap_or(self.applied.next());
        let needed = wanted.max(self.applied.next());
        if first > needed {
            let mut behind = Behind::default();
            behind.look(&file.read()?, 0, Some(file.head.epoch), before(first), None);
            behind.look_at_files(later, file.head.epoch)?;
            if self.next.is_none_or(|next| next <= self.applied) || self.calls_durable(&behind, needed) {
                let why = format!("its files begin with record {first} after a gap");
                return self.lost(self.dir, why, needed, &Behind { first: Some(first), ..behind });
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
        reading: &mut Reading<'_>,
        at: usize,
        sequence: Sequence,
    ) -> Result<Step, ReplayError<E>> {
        let record = match Whole::parse(&reading.bytes, at, Some(reading.file.head.epoch)) {
            Ok(None) => return Ok(Step::End),
            Ok(Some(record)) if record.head.sequence == sequence => record,
            Ok(Some(record)) => {
                let found = record.head.sequence;
                return Ok(Step::Damage(format!(
                    "record {sequence} is not there, but an old record {found}"
                )));
            }
            Err(reason) => return Ok(Step::Damage(format!("record {sequence} {reason}"))),
        };
        let fresh = sequence > self.applied;
        let (data_offset, end) = ((at + RECORD_HEAD_LEN) as u64, record.end);
        if fresh && let Some(run) = record.changes.streams.iter().find(|run| !(self.stream_ok)(run)) {
            let (stream, offset) = (run.segment, run.run_offset);
            let reason = format!("record {sequence} needs stream {stream} at {offset}, which is not whole");
            return Ok(Step::Unsupported(reason));
        }
        let (segment, data, data_len) = (reading.file.head.segment, record.data, record.head.data_len);
        reading.about.data_bytes += u64::from(data_len);
        let changes = record.changes;
        let replayed = Replayed { sequence, segment, data_offset, data_len, data, changes, fresh };
        (self.visit)(replayed).map_err(|source| ReplayError::Visit { sequence, source })?;
        Ok(Step::Next(end))
    }

    /// Record `sequence` should be at `at` and is not. Says where to go on, or ends the file there.
    fn go_on(
        &mut self,
        reading: &Reading<'_>,
        at: usize,
        sequence: Sequence,
        reason: String,
    ) -> Result<Option<(usize, Sequence)>, DataError> {
        let path = &reading.file.path;
        let place = format!("{reason} at byte {at}");
        if sequence > self.applied {
            let behind = reading.behind(at + 1, sequence)?;
            if self.calls_durable(&behind, sequence) {
                self.lost(path, place, sequence, &behind)?;
                return Ok(None);
            }
            if behind.records > 0 {
                tracing::warn!(
                    "'{}': {place}; {} later records are whole, nothing says that they were durable",
                    path.display(),
                    behind.records
                );
            }
            self.replay.cut = Some(format!("{reason} in '{}' at byte {at}", path.display()));
            return Ok(None);
        }
        let wanted = sequence.next()..reading.bound().unwrap_or(Sequence(u64::MAX));
        let next = Whole::find(&reading.bytes, at + 1, Some(reading.file.head.epoch), &wanted);
        let next = next.map(|(found_at, record)| (found_at, record.head.sequence));
        let needed = self.applied.next();
        let resumed = next.filter(|(_, found)| *found <= needed);
        let to = resumed.map_or(reading.bytes.len(), |(found_at, _)| found_at) as u64;
        let follows = resumed.or(next).map(|(_, found)| found).or(reading.bound());
        let last = follows.map_or(self.applied, before).min(self.applied);
        let (path, segment, from) = (path.clone(), reading.file.head.segment, at as u64);
        self.replay.damages.push(Damage { path, segment, from, to, first: sequence, last, reason });
        if resumed.is_none() && next.is_some() {
            let behind = reading.behind(at + 1, sequence)?;
            self.lost(&reading.file.path, place, needed, &behind)?;
        }
        Ok(resumed)
    }

    /// Whether what is behind a gap says that `sequence` was durable here.
    fn calls_durable(&self, behind: &Behind, sequence: Sequence) -> bool {
        self.mode != Mode::Copy && behind.durable >= sequence
    }

    /// Durable records that the engine does not have are lost.
    fn lost(&mut self, path: &Path, why: String, needed: Sequence, behind: &Behind) -> Result<(), DataError> {
        let path = path.to_owned();
        let error = DataError::JournalGap { path, why, needed, found: behind.first };
        if self.mode != Mode::Salvage {
            return Err(error);
        }
        let (reason, records) = (error.to_string(), behind.records);
        self.replay.cut = Some(reason.clone());
        self.replay.dropped = Some(Dropped { reason, needed, records });
        Ok(())
    }

    /// Notes what becomes of a file of which records up to before `next` were found.
    fn keep(&mut self, reading: Reading<'_>, next: Sequence) {
        let bound = reading.bound();
        let Reading { file, bytes, mut about, .. } = reading;
        about.last = before(next);
        if next <= self.applied && bound != Some(next) {
            // Damaged where everything was applied: extents may name data behind the damage.
            about.len = bytes.len() as u64;
            about.last = bound.map_or(self.applied, before).min(self.applied);
        }
        if about.last < about.first && about.len == FILE_HEAD_LEN as u64 {
            self.replay.doomed.push(file.path.clone());
        } else {
            self.replay.files.push(about);
        }
    }

    /// A file without a readable head stays, for the data in it, if a later file shows that all its records were applied. It goes if it is one
    /// of which no sync has succeeded; else it is damaged.
    fn add_headless(&mut self, found: &Found) -> Result<(), DataError> {
        for file in &found.headless {
            let Headless { path, segment, error, .. } = file;
            let later = found
                .files
                .iter()
                .find(|file| file.head.segment > *segment && file.head.first <= self.applied.next());
            let Some(later) = later else {
                if self.may_be_unsynced(file)? {
                    let reason = format!("'{}' was never written to its end: it has no head", path.display());
                    self.replay.cut.get_or_insert(reason);
                } else {
                    let needed = self.replay.last.next();
                    let why = format!("head and first record are damaged ({error})");
                    self.lost(path, why, needed, &Behind::default())?;
                }
                self.replay.doomed.push(path.clone());
                continue;
            };
            let len = std::fs::metadata(path).map_err(io_error("stat", path))?.len();
            let last = before(later.head.first);
            let (segment, data_bytes) = (*segment, len);
            self.replay.files.push(JournalFile { segment, first: last, last, len, data_bytes });
        }
        self.replay.files.sort_by_key(|file| (file.first, file.segment));
        Ok(())
    }

    /// Whether nothing says that the newest file, of which the head is not there, was ever synced. Something does: a whole record in it that the
    /// engine has, or one that calls durable what no earlier file has.
    fn may_be_unsynced(&self, file: &Headless) -> Result<bool, DataError> {
        if !file.may_be_unwritten {
            return Ok(false);
        }
        let mut inside = Behind::default();
        inside.look(&file.read()?, 0, None, self.next.map_or(Sequence(0), before), None);
        let applied = inside.first.is_some_and(|first| first <= self.applied);
        Ok(!applied && inside.durable <= self.replay.last)
    }
}
