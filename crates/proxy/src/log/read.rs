//! Reading the log when a process begins: what each file has, what a crash tore off, what is damaged.
//!
//! Guarantees: what is offered as good is what was written, record by record; where something that was on stable storage cannot be read, the segments that may
//! have had a part of it count for nothing. Reading changes nothing on the disk.

use std::{collections::BTreeMap, io, sync::Arc};

use bytes::Bytes;
use forebay_format::{
    FormatError,
    member_log::{BLOCK, FILE_HEAD_LEN, FileHead, RECORD_HEAD_LEN, RecordHead, RecordKind},
};
use forebay_group::{Append, MemberLog, Record, ViewEpoch};
use forebay_types::VolumeId;

use super::{
    Disk, DiskFile, LogOptions, OpenError,
    behind::{Behind, find_behind},
    window::Window,
};

const EXTENSION: &str = ".log";
/// The file that will be the next one of the log.
pub(super) const SPARE: &str = "spare";

/// The name of a file of the log.
pub(super) fn file_name(number: u64) -> String {
    format!("{number:016x}{EXTENSION}")
}

fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION).filter(|digits| digits.len() == 16)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (file_name(number) == name).then_some(number)
}

/// A file as it was found.
pub(super) struct FoundFile {
    pub(super) number: u64,
    pub(super) first: u64,
    /// The position behind its last record.
    pub(super) end: u64,
    pub(super) len: u64,
    pub(super) file: Arc<dyn DiskFile>,
}

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) volumes: BTreeMap<VolumeId, MemberLog>,
    pub(super) files: Vec<FoundFile>,
    /// Files in which nothing ever was, to be removed.
    pub(super) empty: Vec<String>,
    /// Where the log goes on.
    pub(super) end: u64,
    pub(super) next_number: u64,
    pub(super) view: ViewEpoch,
    /// Between the first and the last of these positions records were lost, of segments that nobody knows.
    pub(super) lost: Option<(u64, u64)>,
    /// Segments whose bytes do not check, though their record is known.
    pub(super) damaged: u64,
}

impl Found {
    fn lose(&mut self, from: u64, to: u64) {
        let (first, last) = self.lost.unwrap_or((from, to));
        self.lost = Some((first.min(from), last.max(to)));
    }
}

struct Listed {
    number: u64,
    name: String,
    file: Arc<dyn DiskFile>,
    len: u64,
    head: Option<FileHead>,
}

/// Reads the log of a member.
///
/// # Errors
/// [`OpenError`].
pub(super) fn read_log(options: &LogOptions) -> Result<Found, OpenError> {
    let mut found = Found::default();
    let listed = list(options, &mut found)?;
    let last = listed.len().saturating_sub(1);
    for (at, file) in listed.iter().enumerate() {
        let next = listed[at + 1..].iter().find_map(|file| file.head).map(|head| head.first);
        match file.head {
            Some(head) => {
                if head.first > found.end.next_multiple_of(BLOCK) && at > 0 {
                    found.lose(found.end, head.first);
                }
                read_file(file, &head, next, at == last, &mut found)?;
            }
            None => headless(file, next, &mut found),
        }
    }
    for log in found.volumes.values_mut() {
        log.replayed(found.lost.map_or(0, |(_, to)| to));
    }
    Ok(found)
}

fn list(options: &LogOptions, found: &mut Found) -> Result<Vec<Listed>, OpenError> {
    let disk = &*options.disk;
    let mut numbers: Vec<u64> =
        disk.names().map_err(failed("list", disk, ""))?.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    found.next_number = numbers.last().map_or(1, |last| last + 1);
    let mut listed = Vec::new();
    for (at, number) in numbers.iter().copied().enumerate() {
        let name = file_name(number);
        let file = disk.open(&name).map_err(failed("open", disk, &name))?;
        let len = file.length().map_err(failed("look at", disk, &name))?;
        let head = head(&*file, &name, number, options)?;
        if head.is_none() && at + 1 == numbers.len() && is_blank(&*file, len) {
            // Its process stopped before the head was there, so nothing followed it.
            found.empty.push(name);
            continue;
        }
        listed.push(Listed { number, name, file, len, head });
    }
    Ok(listed)
}

fn failed<'a>(
    what: &'static str,
    disk: &'a dyn Disk,
    name: &'a str,
) -> impl FnOnce(io::Error) -> OpenError + 'a {
    move |source| OpenError::Io { what, path: disk.path(name), source }
}

/// The head of a file; nothing where it is damaged, or was never there.
fn head(
    file: &dyn DiskFile,
    name: &str,
    number: u64,
    options: &LogOptions,
) -> Result<Option<FileHead>, OpenError> {
    let mut bytes = vec![0; FILE_HEAD_LEN];
    let read = file.read(0, &mut bytes).unwrap_or(0);
    let path = || options.disk.path(name);
    let head = match FileHead::decode(&bytes[..read]) {
        Ok(head) => head,
        Err(source @ FormatError::Version { .. }) => return Err(OpenError::Newer { path: path(), source }),
        Err(error) => {
            tracing::debug!("the head of '{}' cannot be read: {error}", path().display());
            return Ok(None);
        }
    };
    let foreign = |why: String| Err(OpenError::Foreign { path: path(), why });
    if (head.member, head.group) != (options.member.0, options.group.0) {
        let (member, group) = (forebay_group::MemberId(head.member), forebay_group::GroupId(head.group));
        return foreign(format!("it belongs to member {member} of group {group}"));
    }
    if head.number != number {
        return foreign(format!("it was the file {}", file_name(head.number)));
    }
    Ok(Some(head))
}

/// Whether nothing was ever written to a file, as far as can be told.
fn is_blank(file: &dyn DiskFile, len: u64) -> bool {
    let mut window = Window::new(file, len);
    let mut blocks = (0..len).step_by(BLOCK as usize);
    blocks.all(|at| window.get(at, BLOCK as usize).iter().all(|byte| *byte == 0))
}

/// A file whose head is damaged: nobody can say whose its records were.
fn headless(file: &Listed, next: Option<u64>, found: &mut Found) {
    let first = found.end.next_multiple_of(BLOCK);
    let end = next.unwrap_or(first + file.len.next_multiple_of(BLOCK));
    tracing::error!(file = file.name, "the head of a file of the log is damaged: what was in it is lost");
    found.lose(found.end, end);
    found.end = end;
    found.files.push(FoundFile {
        number: file.number,
        first,
        end,
        len: file.len,
        file: Arc::clone(&file.file),
    });
}

/// Reads the records of a file: up to where the next file begins, or to the torn tail of the last one.
fn read_file(
    listed: &Listed,
    head: &FileHead,
    next: Option<u64>,
    last: bool,
    found: &mut Found,
) -> Result<(), OpenError> {
    let file = &*listed.file;
    let capacity = head.first + listed.len.saturating_sub(FILE_HEAD_LEN as u64);
    let limit = next.unwrap_or(capacity);
    let mut reading =
        Reading { head, file, len: listed.len, window: Window::new(file, listed.len), behind: None, limit };
    let mut position = head.first;
    while position < limit {
        match reading.at(position) {
            Here::Record(head, bytes) => {
                take(found, position, &head, bytes);
                position += head.size();
            }
            Here::Padding(end) => position = end,
            Here::Spoiled(head) if !last || reading.vouched(position) => {
                tracing::error!(segment = %head.segment, "bytes in the log are damaged: '{}'", listed.name);
                found.volumes.entry(head.volume).or_default().damaged(head.segment);
                found.damaged += 1;
                position += head.size();
            }
            Here::Nothing | Here::Spoiled(_) if last && !reading.vouched(position) => break,
            Here::Nothing | Here::Spoiled(_) => {
                let to = reading.next_after(position).unwrap_or(limit).min(limit);
                tracing::error!("records of the log are damaged: '{}'", listed.name);
                found.lose(position, to);
                position = to;
            }
        }
    }
    let end = position.min(limit);
    found.end = found.end.max(end);
    let (number, len) = (listed.number, listed.len);
    found.files.push(FoundFile { number, first: head.first, end, len, file: Arc::clone(&listed.file) });
    Ok(())
}

enum Here {
    Record(RecordHead, Bytes),
    /// Zeros up to the next block.
    Padding(u64),
    /// A record's head, and other bytes behind it than it had.
    Spoiled(RecordHead),
    Nothing,
}

struct Reading<'a> {
    head: &'a FileHead,
    file: &'a dyn DiskFile,
    len: u64,
    window: Window<'a>,
    /// Whole records behind the first place where there was none.
    behind: Option<Behind>,
    limit: u64,
}

impl Reading<'_> {
    fn at(&mut self, position: u64) -> Here {
        let offset = FILE_HEAD_LEN as u64 + (position - self.head.first);
        let bytes = self.window.get(offset, RECORD_HEAD_LEN);
        if let Ok(head) = RecordHead::decode(bytes, &self.head.incarnation, position) {
            if position + head.size() > self.limit {
                return Here::Nothing;
            }
            if head.len == 0 {
                return Here::Record(head, Bytes::new());
            }
            let bytes = self.window.get(offset + RECORD_HEAD_LEN as u64, head.len as usize);
            return match crc32c::crc32c(bytes) == head.check {
                true => Here::Record(head, Bytes::copy_from_slice(bytes)),
                false => Here::Spoiled(head),
            };
        }
        let boundary = position.next_multiple_of(BLOCK);
        let left = (boundary - position) as usize;
        match left > 0 && self.window.get(offset, left).iter().all(|byte| *byte == 0) {
            true => Here::Padding(boundary),
            false => Here::Nothing,
        }
    }

    fn behind(&mut self, position: u64) -> &Behind {
        let (file, len, head, limit) = (self.file, self.len, self.head, self.limit);
        self.behind.get_or_insert_with(|| find_behind((file, len), head, position, limit))
    }

    /// Whether a later record says that what was here was on stable storage.
    fn vouched(&mut self, position: u64) -> bool {
        self.behind(position).vouches(position)
    }

    fn next_after(&mut self, position: u64) -> Option<u64> {
        self.behind(position).next_after(position)
    }
}

fn take(found: &mut Found, position: u64, head: &RecordHead, bytes: Bytes) {
    let (segment, epoch) = (head.segment, head.epoch);
    let append = |bytes| Append { segment, epoch, offset: head.offset, bytes, check: head.check };
    let record = match head.kind {
        RecordKind::View => return found.view = found.view.max(ViewEpoch(epoch.0)),
        RecordKind::Lost => return found.lose(epoch.0, head.offset),
        RecordKind::Again => {
            let log = found.volumes.entry(head.volume).or_default();
            return log.replay_again(position, &append(bytes));
        }
        RecordKind::Append => Record::Append(append(bytes)),
        RecordKind::Fence => Record::Fence { segment, epoch },
        RecordKind::Seal => Record::Seal { segment, epoch, len: head.offset, check: head.check },
        RecordKind::Drop => Record::Drop { segment },
    };
    found.volumes.entry(head.volume).or_default().replay(position, &record);
}
