//! The files in a journal's directory, as they are after a stop of any kind.
//!
//! Guarantees: nothing is changed. A file whose head is damaged counts all the same where its first record is whole, because that one has
//! all that the head says. A block that the disk does not give is damage in its file, not an error.
//!
//! A head is durable before anything else in its file is called so, and before the next file is made. So what is no head at all, in the newest
//! file, may be a sector that a stop left unwritten; what is still recognized as a head is damage.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use forebay_format::{
    FormatError,
    record::{FILE_HEAD_LEN, FileHead},
};
use forebay_types::{SegmentId, Sequence, VolumeId};
use rustix::io::Errno;

use super::{behind::Whole, log_file::EXTENSION};
use crate::{DataError, error::io_error, segment_file};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Bytes of a piece that the disk refused which are tried on their own.
const SMALL_PIECE: usize = 4096;
/// Stands for bytes that the disk does not give. Not zero, which would be the journal's end.
const UNREADABLE: u8 = 0xdb;

/// A file with records.
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) head: FileHead,
}

impl FoundFile {
    pub(super) fn read(&self) -> Result<Vec<u8>, DataError> {
        read(&self.path)
    }
}

/// A file with a head that is not right, and a first record that is not whole either.
pub(super) struct Headless {
    pub(super) path: PathBuf,
    pub(super) segment: SegmentId,
    /// What is wrong with the head.
    pub(super) error: FormatError,
    /// Whether it may never have had a head, as far as its place and its first bytes tell.
    pub(super) may_be_unwritten: bool,
}

impl Headless {
    pub(super) fn read(&self) -> Result<Vec<u8>, DataError> {
        read(&self.path)
    }
}

/// The files in a journal's directory.
#[derive(Default)]
pub(super) struct Found {
    /// With a head, in the order of their records.
    pub(super) files: Vec<FoundFile>,
    /// Without one, and not known to be unwritten.
    pub(super) headless: Vec<Headless>,
    /// Made by a process that stopped before it wrote a head, or a record.
    pub(super) unwritten: Vec<PathBuf>,
}

impl Found {
    pub(super) fn scan(dir: &Path, volume: VolumeId) -> Result<Found, DataError> {
        let mut found = Found::default();
        let files = match dir.is_dir() {
            true => segment_file::list(dir, EXTENSION)?,
            false => Vec::new(),
        };
        let newest = files.last().map(|(segment, _)| *segment);
        for (segment, path) in files {
            let head = read_start(&path)?;
            if head.len() < FILE_HEAD_LEN || head.iter().all(|byte| *byte == 0) {
                found.unwritten.push(path);
                continue;
            }
            match FileHead::decode(&head) {
                Ok(head) if head.volume != volume => {
                    let detail = format!("it belongs to volume {}, not {volume}", head.volume);
                    return Err(foreign(path, detail));
                }
                Ok(head) if head.segment != segment => {
                    let detail = format!(
                        "its head says that it is {}.{EXTENSION}: it was renamed; give it its name back",
                        head.segment
                    );
                    return Err(foreign(path, detail));
                }
                Ok(head) if head.first != Sequence(0) => found.files.push(FoundFile { path, head }),
                Ok(_) => found.take_headless(volume, (segment, newest), path, no_first())?,
                Err(source @ FormatError::Version { .. }) => return Err(DataError::Format { path, source }),
                Err(error) => found.take_headless(volume, (segment, newest), path, error)?,
            }
        }
        found.files.sort_by_key(|file| (file.head.first, file.head.epoch, file.head.segment));
        Ok(found)
    }

    /// Takes a file whose head is damaged for what its first record says that it is.
    fn take_headless(
        &mut self,
        volume: VolumeId,
        (segment, newest): (SegmentId, Option<SegmentId>),
        path: PathBuf,
        error: FormatError,
    ) -> Result<(), DataError> {
        let bytes = read(&path)?;
        match Whole::parse(&bytes, FILE_HEAD_LEN, None) {
            Ok(Some(record)) => {
                tracing::error!(
                    "'{}': its head is damaged ({error}); its first record, {}, says what it is",
                    path.display(),
                    record.head.sequence
                );
                let (epoch, first) = (record.head.epoch, record.head.sequence);
                self.files.push(FoundFile { path, head: FileHead { volume, segment, epoch, first } });
            }
            _ if bytes[FILE_HEAD_LEN..].iter().all(|byte| *byte == 0) => self.unwritten.push(path),
            _ => {
                let head = &bytes[..FILE_HEAD_LEN];
                let refused = head.iter().all(|byte| *byte == UNREADABLE);
                let may_be_unwritten =
                    newest == Some(segment) && !refused && !FileHead::is_remnant(head, volume, segment);
                self.headless.push(Headless { path, segment, error, may_be_unwritten });
            }
        }
        Ok(())
    }
}

fn foreign(path: PathBuf, detail: String) -> DataError {
    DataError::Format { path, source: FormatError::Invalid { what: "a journal file", detail } }
}

fn no_first() -> FormatError {
    FormatError::Invalid { what: "a journal file", detail: "its head names no first record".to_owned() }
}

/// The first bytes of a file, as many as a head has.
fn read_start(path: &Path) -> Result<Vec<u8>, DataError> {
    let file = File::open(path).map_err(io_error("open", path))?;
    let len = file.metadata().map_err(io_error("stat", path))?.len().min(FILE_HEAD_LEN as u64);
    let (bytes, _) = read_around(len as usize, &mut |out, at| file.read_exact_at(out, at))
        .map_err(io_error("read", path))?;
    Ok(bytes)
}

fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    let file = File::open(path).map_err(io_error("open", path))?;
    let len = file.metadata().map_err(io_error("stat", path))?.len();
    let (bytes, refused) = read_around(len as usize, &mut |out, at| file.read_exact_at(out, at))
        .map_err(io_error("read", path))?;
    if refused > 0 {
        tracing::error!("'{}': the disk does not give {refused} bytes of it", path.display());
    }
    Ok(bytes)
}

/// Reads `len` bytes, and says how many of these the disk refused: they are something that no journal has.
///
/// # Errors
/// What `read` says, unless it is EIO.
pub(super) fn read_around(
    len: usize,
    read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<()>,
) -> io::Result<(Vec<u8>, u64)> {
    let mut bytes = vec![0; len];
    let mut refused = 0;
    for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
        let at = (index * PIECE) as u64;
        match read(piece, at) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => {}
            read => {
                read?;
                continue;
            }
        }
        for (index, small) in piece.chunks_mut(SMALL_PIECE).enumerate() {
            match read(small, at + (index * SMALL_PIECE) as u64) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::IO) => {
                    small.fill(UNREADABLE);
                    refused += small.len() as u64;
                }
                read => read?,
            }
        }
    }
    Ok((bytes, refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the blocks that the disk refuses are missing, and nothing of them looks like the journal's end.
    #[test]
    fn what_the_disk_refuses_is_damage() {
        let disk: Vec<u8> = (0..3 * PIECE + 5000).map(|at| (at % 251) as u8).collect();
        let bad = PIECE as u64 + 5000;
        let mut read = |out: &mut [u8], at: u64| {
            let end = at + out.len() as u64;
            if (at..end).contains(&bad) {
                return Err(io::Error::from(Errno::IO));
            }
            out.copy_from_slice(&disk[at as usize..end as usize]);
            Ok(())
        };
        let (bytes, refused) = read_around(disk.len(), &mut read).expect("the rest");
        assert_eq!(refused, SMALL_PIECE as u64);
        let hole = PIECE + SMALL_PIECE..PIECE + 2 * SMALL_PIECE;
        assert!(bytes[hole.clone()].iter().all(|byte| *byte == UNREADABLE));
        assert_eq!((&bytes[..hole.start], &bytes[hole.end..]), (&disk[..hole.start], &disk[hole.end..]));
    }

    #[test]
    fn other_errors_are_errors() {
        let denied = read_around(10, &mut |_, _| Err(io::Error::from(Errno::ACCESS)));
        assert_eq!(denied.expect_err("a refusal").kind(), io::ErrorKind::PermissionDenied);
    }
}
