//! Names of segment files in a directory, and the calls on them that journal and streams share.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use forebay_types::SegmentId;
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use crate::{DataError, error::io_error};

/// `dir/<segment:016x>.<extension>`.
pub(crate) fn path(dir: &Path, segment: SegmentId, extension: &str) -> PathBuf {
    dir.join(format!("{segment}.{extension}"))
}

/// The segment files in `dir` with this extension, by segment.
pub(crate) fn list(dir: &Path, extension: &str) -> Result<Vec<(SegmentId, PathBuf)>, DataError> {
    let mut found = Vec::new();
    for entry in dir.read_dir().map_err(io_error("list", dir))? {
        let path = entry.map_err(io_error("list", dir))?.path();
        if path.extension().is_some_and(|found| found == extension)
            && let Some(segment) = segment_of(&path)
        {
            found.push((segment, path));
        }
    }
    found.sort();
    Ok(found)
}

fn segment_of(path: &Path) -> Option<SegmentId> {
    let stem = path.file_stem()?.to_str()?;
    let digits = stem.len() == 16 && stem.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    digits.then(|| u64::from_str_radix(stem, 16).ok().map(SegmentId))?
}

/// Makes a file that is not there yet, for reading and writing.
pub(crate) fn create(path: &Path) -> Result<File, DataError> {
    let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    made.map_err(io_error("create", path))
}

/// Opens a file for reading and writing.
pub(crate) fn open(path: &Path) -> Result<File, DataError> {
    OpenOptions::new().read(true).write(true).open(path).map_err(io_error("open", path))
}

/// Gets disk space for `len` bytes at `offset`, without making the file longer. False: the file system cannot.
pub(crate) fn reserve(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    loop {
        match fallocate(file, FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) => return Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Fills `out`.
pub(crate) fn read_into(file: &File, path: &Path, offset: u64, out: &mut [u8]) -> Result<(), DataError> {
    file.read_exact_at(out, offset).map_err(io_error("read", path))
}

/// Reads exactly `len` bytes.
pub(crate) fn read_at(file: &File, path: &Path, offset: u64, len: usize) -> Result<Bytes, DataError> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).map_err(io_error("read", path))?;
    Ok(bytes.into())
}

/// Deletes a file that may be gone already.
pub(crate) fn delete(path: &Path) -> Result<(), DataError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error("delete", path)(error)),
        _ => Ok(()),
    }
}

/// Refuses a range that is not inside `0..have`.
pub(crate) fn check_range(segment: SegmentId, offset: u64, len: u64, have: u64) -> Result<(), DataError> {
    match offset.checked_add(len) {
        Some(end) if end <= have => Ok(()),
        _ => Err(DataError::OutOfRange { segment, offset, len, have }),
    }
}
