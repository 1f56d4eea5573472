//! One assembled file: the bytes of an inode in a nameless file on the cache's disk.

use std::{fs::File, io, os::fd::AsFd, os::unix::fs::FileExt, os::unix::fs::MetadataExt, path::Path};

use forebay_data::{ReadPiece, ReadPieces};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::{
    fs::{FallocateFlags, Mode, OFlags, SeekFrom, fallocate},
    io::Errno,
};

/// What shares a checksum, and what is copied and scrubbed in one step.
pub(super) const PIECE: u64 = 1 << 20;

/// The bytes of one inode. It has no name, so it goes with the process, and nobody else can open it.
///
/// Changes come from the thread that holds the inode's data lock; others read.
#[derive(Debug)]
pub struct PlainFile {
    file: File,
    /// Which assembly this is: never the same twice.
    number: u64,
    /// CRC32C of the pieces that were not changed since they were last read. Held while a piece is changed or checked.
    sums: Mutex<FxHashMap<u64, u32>>,
}

impl PlainFile {
    pub(super) fn new(dir: &Path, number: u64, size: u64) -> io::Result<PlainFile> {
        let file = nameless(dir)?;
        file.set_len(size)?;
        Ok(PlainFile { file, number, sums: Mutex::default() })
    }

    /// One that another process has assembled, which said that it is `number` and gave the checksums of its pieces.
    #[must_use]
    pub fn from_parts(file: File, number: u64, sums: impl IntoIterator<Item = (u64, u32)>) -> PlainFile {
        PlainFile { file, number, sums: Mutex::new(sums.into_iter().collect()) }
    }

    /// The checksums of its pieces, by their numbers.
    #[must_use]
    pub fn sums(&self) -> Vec<(u64, u32)> {
        self.sums.lock().iter().map(|(piece, sum)| (*piece, *sum)).collect()
    }

    /// The file, open for reading and writing. Whoever changes it by itself makes readers see what was never written.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Which assembly this is; no other one of the mount has the same number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it takes on disk.
    pub(super) fn disk_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }

    /// Fills in the `len` bytes of a piece as reads give them, and notes its checksum; holes stay holes. `anew`: something is there already. False: it is not all there.
    pub(super) fn fill_piece(&self, piece: u64, len: u64, parts: ReadPieces, anew: bool) -> io::Result<bool> {
        let offset = piece * PIECE;
        let (mut at, mut sum, mut whole) = (offset, 0, true);
        for part in parts {
            match part {
                ReadPiece::Bytes(bytes) => {
                    self.file.write_all_at(&bytes, at)?;
                    sum = crc32c::crc32c_append(sum, &bytes);
                    at += bytes.len() as u64;
                }
                ReadPiece::Zeros(zeros) => {
                    whole = false;
                    if anew {
                        self.punch(at, zeros as u64)?;
                    }
                    at += zeros as u64;
                }
            }
        }
        if at != offset + len {
            return Ok(false);
        }
        if whole {
            self.sums.lock().insert(piece, sum);
        }
        Ok(true)
    }

    /// Takes the room that bytes need, so that writing them cannot fail for want of it.
    pub(super) fn reserve(&self, offset: u64, len: u64) -> io::Result<()> {
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len.max(1)) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes, as the inode was written.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.changed(offset, bytes.len() as u64, || self.file.write_all_at(bytes, offset))
    }

    /// Makes zeros of a range, without making the file longer.
    pub(super) fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        let len = len.min(size.saturating_sub(offset));
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.changed(offset, len, || match fallocate(&self.file, flags, offset, len) {
            Err(Errno::OPNOTSUPP) => self.write_zeros(offset, len),
            result => Ok(result?),
        })
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = vec![0; PIECE.min(len) as usize];
        let mut done = 0;
        while done < len {
            let step = (len - done).min(zeros.len() as u64);
            self.file.write_all_at(&zeros[..step as usize], offset + done)?;
            done += step;
        }
        Ok(())
    }

    /// Makes it `size` bytes long.
    pub(super) fn resize(&self, size: u64) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        let (from, to) = (before.min(size), before.max(size));
        self.changed(from, to - from, || self.file.set_len(size))
    }

    /// Makes it at least `size` bytes long.
    pub(super) fn extend(&self, size: u64) -> io::Result<()> {
        if self.file.metadata()?.len() < size { self.resize(size) } else { Ok(()) }
    }

    fn changed(&self, offset: u64, len: u64, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut sums = self.sums.lock();
        let touched = offset / PIECE..(offset + len).div_ceil(PIECE);
        if touched.end - touched.start > sums.len() as u64 {
            sums.retain(|piece, _| !touched.contains(piece));
        } else {
            for piece in touched {
                sums.remove(&piece);
            }
        }
        change()
    }

    /// Reads the first piece anew, from `piece` on, that is no hole. `None`: there is none any more.
    pub(super) fn check(&self, piece: u64) -> io::Result<Option<Checked>> {
        let mut sums = self.sums.lock();
        let piece = match rustix::fs::seek(&self.file, SeekFrom::Data(piece * PIECE)) {
            Ok(at) => at / PIECE,
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut bytes = vec![0; PIECE as usize];
        let len = read_full(&self.file, piece * PIECE, &mut bytes)?;
        let sum = crc32c::crc32c(&bytes[..len]);
        Ok(Some(Checked { piece, intact: *sums.entry(piece).or_insert(sum) == sum }))
    }
}

/// A piece that was read anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Checked {
    pub piece: u64,
    /// Whether it is what it was.
    pub intact: bool,
}

fn read_full(file: &File, offset: u64, out: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match file.read_at(&mut out[done..], offset + done as u64)? {
            0 => break,
            got => done += got,
        }
    }
    Ok(done)
}

/// A file without a name, open for reading and writing, for nobody but us.
fn nameless(dir: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(dir, flags | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let path = dir.join("assembling");
            let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
            std::fs::remove_file(&path)?;
            Ok(file.into())
        }
        opened => Ok(opened?.into()),
    }
}

impl AsFd for PlainFile {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}
