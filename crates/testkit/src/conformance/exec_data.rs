//! Steps on open files: their bytes, size, space and position.

use std::os::fd::BorrowedFd;

use rustix::fs::{self, CWD, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::{self, Errno};

use super::exec::{Call, Executor, summary, words};
use super::op::{Op, Slot, Whence, digest, pattern, raw};

/// Alignment of every buffer, so that O_DIRECT refuses only what the file system refuses.
const ALIGNMENT: usize = 4096;
/// How much is read at once where a whole file is read.
const CHUNK: usize = 1 << 20;

impl Executor {
    pub(super) fn file_op(&mut self, op: &Op) -> Option<Call<String>> {
        let outcome = match op {
            Op::Open { slot, path, flags, mode } => self.open(*slot, path, *flags, *mode),
            Op::OpenAt { dir, slot, path, flags } => self.open_at(*dir, *slot, path, *flags),
            Op::Close { slot } => self.forget(*slot),
            Op::Read { slot, len } => self.slot(*slot).and_then(|fd| read(fd, None, *len)),
            Op::Pread { slot, at, len } => self.slot(*slot).and_then(|fd| read(fd, Some(*at), *len)),
            Op::Write { slot, len, seed } => self.slot(*slot).and_then(|fd| write(fd, None, *len, *seed)),
            Op::Pwrite { slot, at, len, seed } => {
                self.slot(*slot).and_then(|fd| write(fd, Some(*at), *len, *seed))
            }
            Op::Seek { slot, whence, to } => self.slot(*slot).and_then(|fd| seek(fd, *whence, *to)),
            Op::Ftruncate { slot, size } => {
                self.slot(*slot).and_then(|fd| fs::ftruncate(fd, *size)).map(nothing)
            }
            Op::Fallocate { slot, mode, at, len } => self
                .slot(*slot)
                .and_then(|fd| fs::fallocate(fd, FallocateFlags::from_bits_retain(*mode as u32), *at, *len))
                .map(nothing),
            Op::CopyRange { from, at, to, to_at, len } => self.copy_range((*from, *at), (*to, *to_at), *len),
            Op::Fsync { slot, data_only } => self
                .slot(*slot)
                .and_then(|fd| if *data_only { fs::fdatasync(fd) } else { fs::fsync(fd) })
                .map(nothing),
            Op::Fstat { slot } => self.slot(*slot).and_then(fs::fstat).map(|stat| words(&stat)),
            Op::Fchmod { slot, mode } => {
                self.slot(*slot).and_then(|fd| fs::fchmod(fd, Mode::from_raw_mode(*mode))).map(nothing)
            }
            Op::Holes { slot } => self.slot(*slot).and_then(holes),
            Op::Content { path } => content(path),
            _ => return None,
        };
        Some(outcome)
    }

    fn open(&mut self, slot: Slot, path: &str, flags: i32, mode: u32) -> Call<String> {
        let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
        let fd = fs::openat(CWD, raw(path), flags, Mode::from_raw_mode(mode))?;
        Ok(self.keep(slot, fd))
    }

    fn open_at(&mut self, dir: Slot, slot: Slot, path: &str, flags: i32) -> Call<String> {
        let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
        let fd = fs::openat(self.slot(dir)?, raw(path), flags, Mode::empty())?;
        Ok(self.keep(slot, fd))
    }

    fn copy_range(&self, from: (Slot, u64), to: (Slot, u64), len: usize) -> Call<String> {
        let (source, target) = (self.slot(from.0)?, self.slot(to.0)?);
        let (mut at, mut to_at, mut copied) = (from.1, to.1, 0);
        while copied < len {
            match fs::copy_file_range(source, Some(&mut at), target, Some(&mut to_at), len - copied)? {
                0 => break,
                some => copied += some,
            }
        }
        Ok(format!("copied {copied}"))
    }
}

fn nothing((): ()) -> String {
    String::new()
}

/// A zeroed buffer of which `[start..start + len]` is aligned.
fn aligned(len: usize) -> (Vec<u8>, usize) {
    let buffer = vec![0; len + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    (buffer, start)
}

fn read(fd: BorrowedFd<'_>, at: Option<u64>, len: usize) -> Call<String> {
    let (mut buffer, start) = aligned(len);
    let target = &mut buffer[start..start + len];
    let got = match at {
        Some(at) => io::pread(fd, target, at)?,
        None => io::read(fd, target)?,
    };
    Ok(summary(&buffer[start..start + got]))
}

fn write(fd: BorrowedFd<'_>, at: Option<u64>, len: usize, seed: u64) -> Call<String> {
    let (mut buffer, start) = aligned(len);
    let source = &mut buffer[start..start + len];
    source.copy_from_slice(&pattern(seed, len));
    let written = match at {
        Some(at) => io::pwrite(fd, source, at)?,
        None => io::write(fd, source)?,
    };
    Ok(format!("wrote {written}"))
}

/// Writes all of `bytes` from position `at` on.
pub(super) fn write_all(fd: BorrowedFd<'_>, at: u64, bytes: &[u8]) -> Call<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += io::pwrite(fd, &bytes[done..], at + done as u64)?;
    }
    Ok(())
}

fn seek(fd: BorrowedFd<'_>, whence: Whence, to: i64) -> Call<String> {
    let unsigned = || u64::try_from(to).map_err(|_| Errno::INVAL);
    let from = match whence {
        Whence::Set => SeekFrom::Start(unsigned()?),
        Whence::Current => SeekFrom::Current(to),
        Whence::End => SeekFrom::End(to),
        Whence::Data => SeekFrom::Data(unsigned()?),
        Whence::Hole => SeekFrom::Hole(unsigned()?),
    };
    fs::seek(fd, from).map(|position| format!("at {position}"))
}

/// The ranges that SEEK_DATA and SEEK_HOLE call data, in order.
pub(super) fn data_ranges(fd: BorrowedFd<'_>) -> Call<Vec<(u64, u64)>> {
    let size = u64::try_from(fs::fstat(fd)?.st_size).map_err(|_| Errno::OVERFLOW)?;
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match fs::seek(fd, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(other) => return Err(other),
        };
        let end = fs::seek(fd, SeekFrom::Hole(start))?;
        if start < at || end <= start || end > size {
            return Err(Errno::PROTO);
        }
        ranges.push((start, end));
        at = end;
    }
    Ok(ranges)
}

/// Checks each hole of a file of at most 64 MiB for zeroes; the position is restored.
fn holes(fd: BorrowedFd<'_>) -> Call<String> {
    let before = fs::tell(fd)?;
    let size = u64::try_from(fs::fstat(fd)?.st_size).map_err(|_| Errno::OVERFLOW)?;
    let ranges = data_ranges(fd)?;
    let mut hole_starts = 0;
    let mut nonzero_holes = 0;
    for (start, end) in ranges.iter().copied().chain([(size, size)]) {
        if start > hole_starts && size <= 64 << 20 {
            let hole = read_range(fd, hole_starts, start)?;
            nonzero_holes += usize::from(hole.iter().any(|&byte| byte != 0));
        }
        hole_starts = end;
    }
    fs::seek(fd, SeekFrom::Start(before))?;
    Ok(format!("size {size}, holes that hold data: {nonzero_holes}"))
}

/// The bytes from `start` to `end`, or to the end of the file.
pub(super) fn read_range(fd: BorrowedFd<'_>, start: u64, end: u64) -> Call<Vec<u8>> {
    let len = usize::try_from(end - start).map_err(|_| Errno::FBIG)?;
    let mut bytes = vec![0; len];
    let mut done = 0;
    while done < len {
        match io::pread(fd, &mut bytes[done..], start + done as u64)? {
            0 => break,
            some => done += some,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

fn content(path: &str) -> Call<String> {
    let fd = fs::openat(CWD, raw(path), OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    sparse_digest(std::os::fd::AsFd::as_fd(&fd))
}

/// Size and a digest of a file's bytes that does not depend on which zeroes are holes.
pub(super) fn sparse_digest(fd: BorrowedFd<'_>) -> Call<String> {
    let size = u64::try_from(fs::fstat(fd)?.st_size).map_err(|_| Errno::OVERFLOW)?;
    let mut sum = 0u64;
    let mut next = 0;
    for (start, end) in data_ranges(fd)? {
        let mut at = next.max(start / CHUNK as u64 * CHUNK as u64);
        while at < end {
            let until = (at + CHUNK as u64).min(size);
            let bytes = read_range(fd, at, until)?;
            if bytes.len() as u64 != until - at {
                return Err(Errno::PROTO);
            }
            for (page, chunk) in bytes.chunks(ALIGNMENT).enumerate() {
                if chunk.iter().any(|&byte| byte != 0) {
                    let place = (at + (page * ALIGNMENT) as u64).wrapping_add(1);
                    sum = sum.wrapping_add(digest(trim_zeroes(chunk)).wrapping_mul(place | 1));
                }
            }
            at = until;
            next = until;
        }
    }
    Ok(format!("{size} bytes {sum:016x}"))
}

fn trim_zeroes(chunk: &[u8]) -> &[u8] {
    let end = chunk.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &chunk[..end]
}
