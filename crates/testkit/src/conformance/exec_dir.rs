//! Steps on whole directories: what a listing holds while names come and go.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use super::exec::Call;
use super::op::{printed, raw};

/// One entry as the kernel gave it: name, type and the cookie that continues after it.
struct Entry {
    name: Vec<u8>,
    kind: FileType,
    cookie: u64,
}

pub(super) fn fill(path: &str, prefix: &str, count: usize, remove: bool) -> Call<()> {
    let dir = open_dir(path)?;
    for number in 0..count {
        let name = format!("{prefix}{number}");
        if remove {
            fs::unlinkat(&dir, name, AtFlags::empty())?;
        } else {
            make(&dir, &name)?;
        }
    }
    Ok(())
}

/// Sorted names and types, `.` and `..` included.
pub(super) fn list(path: &str) -> Call<String> {
    let dir = open_dir(path)?;
    let mut names: Vec<String> = read_from(dir.as_fd(), None, 32 << 10)?
        .into_iter()
        .map(|entry| format!("{} {:?}", printed(&entry.name), known_type(&dir, &entry)))
        .collect();
    names.sort();
    if names.len() > 50 {
        let all = names.join("\n");
        return Ok(format!("{} entries {:016x}", names.len(), super::op::digest(all.as_bytes())));
    }
    Ok(names.join(", "))
}

/// Keeps `lasting` names, makes and unlinks others after every piece that is read, and says whether each lasting name
/// came exactly once and whether no name came twice.
pub(super) fn churn(path: &str, lasting: usize) -> Call<String> {
    let dir = open_dir(path)?;
    for number in 0..lasting {
        make(&dir, &format!("lasting-{number}"))?;
    }
    for number in 0..lasting {
        make(&dir, &format!("early-{number}"))?;
    }
    let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let mut round = 0;
    loop {
        let piece = read_piece(dir.as_fd(), 1024)?;
        if piece.is_empty() {
            break;
        }
        for entry in piece {
            *seen.entry(entry.name).or_default() += 1;
        }
        if round < lasting {
            fs::unlinkat(&dir, format!("early-{}", (round * 7) % lasting), AtFlags::empty()).or_else(gone)?;
            make(&dir, &format!("late-{round}"))?;
        }
        round += 1;
    }
    for name in (0..lasting).flat_map(|number| [format!("early-{number}"), format!("late-{number}")]) {
        fs::unlinkat(&dir, name, AtFlags::empty()).or_else(gone)?;
    }
    let missing =
        (0..lasting).filter(|number| !seen.contains_key(format!("lasting-{number}").as_bytes())).count();
    let twice = seen.values().filter(|&&times| times > 1).count();
    Ok(format!("lasting names missing: {missing}, names that came twice: {twice}"))
}

fn gone(error: Errno) -> Call<()> {
    if error == Errno::NOENT { Ok(()) } else { Err(error) }
}

/// Reads once, then again from every eleventh cookie, from the start, and after a name before the place is gone.
pub(super) fn cookies(path: &str) -> Call<String> {
    let dir = open_dir(path)?;
    let all = read_from(dir.as_fd(), None, 4096)?;
    let mut wrong = 0;
    for place in (0..all.len()).step_by(11) {
        let rest = read_from(dir.as_fd(), Some(all[place].cookie), 4096)?;
        let expected: Vec<&Vec<u8>> = all[place + 1..].iter().map(|entry| &entry.name).collect();
        wrong += usize::from(rest.iter().map(|entry| &entry.name).collect::<Vec<_>>() != expected);
    }
    let again = read_from(dir.as_fd(), Some(0), 4096)?;
    Ok(format!("{} entries, again {}, cookies that lead astray: {wrong}", all.len(), again.len()))
}

fn open_dir(path: &str) -> Call<OwnedFd> {
    fs::openat(CWD, raw(path), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn make(dir: &OwnedFd, name: &str) -> Call<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::from_raw_mode(0o644)).map(drop)
}

/// Everything from `cookie` (or the current place) on, with a buffer of `piece` bytes.
fn read_from(dir: BorrowedFd<'_>, cookie: Option<u64>, piece: usize) -> Call<Vec<Entry>> {
    if let Some(cookie) = cookie {
        fs::seek(dir, SeekFrom::Start(cookie))?;
    }
    let mut all = Vec::new();
    loop {
        let some = read_piece(dir, piece)?;
        if some.is_empty() {
            return Ok(all);
        }
        all.extend(some);
    }
}

/// One `getdents`.
fn read_piece(dir: BorrowedFd<'_>, piece: usize) -> Call<Vec<Entry>> {
    let mut buffer = vec![MaybeUninit::uninit(); piece];
    let mut raw_dir = RawDir::new(dir, &mut buffer);
    let mut entries = Vec::new();
    while let Some(entry) = raw_dir.next() {
        let entry = entry?;
        entries.push(Entry {
            name: entry.file_name().to_bytes().to_vec(),
            kind: entry.file_type(),
            cookie: entry.next_entry_cookie(),
        });
        if raw_dir.is_buffer_empty() {
            break;
        }
    }
    Ok(entries)
}

fn known_type(dir: &OwnedFd, entry: &Entry) -> FileType {
    if entry.kind != FileType::Unknown {
        return entry.kind;
    }
    fs::statat(dir, &entry.name[..], AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}
