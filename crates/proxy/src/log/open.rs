//! Opening a log: what is there is read, its torn tail is cut off, and a new file begins.

use std::{collections::VecDeque, sync::Arc};

use forebay_env::direct::Blocks;
use forebay_format::member_log::{BLOCK, FILE_HEAD_LEN, FileHead};
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use super::{
    Disk, DiskFile, Durable, Failure, Log, LogCounts, LogOptions, OpenError, Shared,
    disk::is_full,
    read::{Found, SPARE, file_name, read_log},
    state::{LogFile, State},
    writer,
};

/// Lengths of a first file that is to be had where the disk is full: enough for what frees space.
const SHORT_LENS: [u64; 3] = [16 << 20, 4 << 20, 1 << 20];

/// What was found when a log was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Files that were there.
    pub files: u64,
    /// Records of segments that nobody knows are lost: what was not sealed by then counts for nothing here, and the member should be replaced.
    pub lost: bool,
    /// Records whose bytes are damaged, of segments that are known.
    pub damaged: u64,
}

impl Log {
    /// Opens the log in a directory that this process alone uses, and begins a new file.
    ///
    /// # Errors
    /// [`OpenError`]: nothing was changed where the log is foreign or of a later release.
    pub fn open(options: LogOptions) -> Result<(Log, Opened), OpenError> {
        let found = read_log(&options)?;
        let opened =
            Opened { files: found.files.len() as u64, lost: found.lost.is_some(), damaged: found.damaged };
        settle(&options, &found)?;
        let state = begin(&options, found)?;
        let (durable, _) = watch::channel(Durable { upto: state.synced, failed: None });
        let (state, counts) = (Mutex::new(state), Mutex::new(LogCounts::default()));
        let shared = Arc::new(Shared { options, state, work: Condvar::new(), durable, counts });
        let writing = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("forebay-log".to_owned());
        let writer = thread.spawn(move || writer::run(&writing)).map_err(|source| {
            let path = shared.options.disk.path("");
            OpenError::Io { what: "start a thread for", path, source }
        })?;
        Ok((Log { shared, writer: Mutex::new(Some(writer)) }, opened))
    }
}

fn io_error<'a>(
    what: &'static str,
    disk: &'a dyn Disk,
    name: &'a str,
) -> impl FnOnce(std::io::Error) -> OpenError + 'a {
    move |source| OpenError::Io { what, path: disk.path(name), source }
}

/// Makes durable what was found, and cuts off what was torn: before a new file says that this is all.
fn settle(options: &LogOptions, found: &Found) -> Result<(), OpenError> {
    let disk = &*options.disk;
    for name in &found.empty {
        disk.remove(name).map_err(io_error("remove", disk, name))?;
    }
    let Some(last) = found.files.last() else { return Ok(()) };
    let name = file_name(last.number);
    let end = FILE_HEAD_LEN as u64 + (last.end - last.first);
    if end < last.len {
        last.file.truncate(end).map_err(io_error("cut the torn end off", disk, &name))?;
    }
    last.file.sync().map_err(io_error("sync", disk, &name))
}

/// The first file of this process, as long as can be had.
fn first_file(options: &LogOptions) -> Result<(Arc<dyn DiskFile>, u64), OpenError> {
    let disk = &*options.disk;
    if let Ok(spare) = disk.open(SPARE)
        && let Ok(len) = spare.length()
        && len == options.file_len
    {
        return Ok((spare, len));
    }
    let shorter = SHORT_LENS.into_iter().filter(|len| *len < options.file_len);
    for len in [options.file_len].into_iter().chain(shorter) {
        match disk.create(SPARE, len) {
            Ok(file) => return Ok((file, len)),
            Err(error) if is_full(&error) => {}
            Err(error) => return Err(io_error("make", disk, SPARE)(error)),
        }
    }
    Err(OpenError::NoSpace { path: disk.path("") })
}

fn begin(options: &LogOptions, found: Found) -> Result<State, OpenError> {
    let (file, len) = first_file(options)?;
    let (number, first) = (found.next_number, found.end.next_multiple_of(BLOCK));
    let named = name_file(options, &file, number, first);
    named.map_err(|Failure { what, path, source }| OpenError::Io {
        what,
        path,
        source: std::io::Error::new(source.kind(), source),
    })?;
    let mut files: VecDeque<LogFile> = found
        .files
        .into_iter()
        .map(|file| LogFile {
            number: file.number,
            first: file.first,
            end: file.end,
            len: file.len.min((FILE_HEAD_LEN as u64 + file.end - file.first).next_multiple_of(BLOCK)),
            file: Some(file.file),
        })
        .collect();
    files.push_back(LogFile { number, first, end: first, len, file: Some(file) });
    let mut state = State::new(found.volumes, files, first);
    (state.view, state.lost) = (found.view, found.lost);
    state.begin_file(options);
    Ok(state)
}

/// Makes the file that was kept ready a file of the log: its name and its head are on stable storage before anything else of it.
pub(super) fn name_file(
    options: &LogOptions,
    file: &Arc<dyn DiskFile>,
    number: u64,
    first: u64,
) -> Result<(), Failure> {
    let (disk, name) = (&*options.disk, file_name(number));
    let failed = |what| {
        let path = disk.path(&name);
        move |source| Failure::new(what, path, source)
    };
    let (member, group, incarnation) = (options.member.0, options.group.0, options.incarnation.0);
    let head = FileHead { member, group, number, incarnation, first };
    let mut blocks = Blocks::with_capacity(FILE_HEAD_LEN);
    blocks.extend(&head.encode());
    disk.rename(SPARE, &name).map_err(failed("name"))?;
    file.write_blocks(0, blocks.as_slice()).map_err(failed("write the head of"))?;
    file.sync().map_err(failed("sync the head of"))?;
    disk.sync_names().map_err(failed("sync the name of"))
}
