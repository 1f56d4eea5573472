//! Direct I/O: files written past the page cache, which moves whole blocks from addresses that are multiples of one.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::{
    fs::{FallocateFlags, OFlags, fallocate},
    io::Errno,
};

/// Offsets, lengths and addresses of direct I/O are multiples of this: the block size of common file systems, and no less than any disk's.
pub const BLOCK: usize = 4096;

/// A buffer that begins at a multiple of [`BLOCK`].
#[derive(Debug)]
pub struct Blocks {
    bytes: Vec<u8>,
    start: usize,
}

impl Blocks {
    /// An empty one with room for so many bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Blocks {
        let mut bytes: Vec<u8> = Vec::with_capacity(capacity + BLOCK);
        let start = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
        bytes.resize(start, 0);
        Blocks { bytes, start }
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of whole blocks.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.len() - self.len() % BLOCK
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Makes room for `more` bytes; a vector that grew by itself would lose its place.
    pub fn reserve(&mut self, more: usize) {
        if self.bytes.capacity() - self.bytes.len() < more {
            let mut larger = Blocks::with_capacity((self.len() + more).next_multiple_of(BLOCK));
            larger.bytes.extend_from_slice(self.as_slice());
            *self = larger;
        }
    }

    /// Adds bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds zeros up to a whole block.
    pub fn pad(&mut self) {
        let more = self.len().next_multiple_of(BLOCK) - self.len();
        self.reserve(more);
        self.bytes.resize(self.bytes.len() + more, 0);
    }

    /// Takes all bytes away; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    /// Takes the first `len` bytes away.
    pub fn drop_front(&mut self, len: usize) {
        self.bytes.drain(self.start..self.start + len);
    }
}

/// Gets disk space for the first `len` bytes and makes the file that long. Where the file system cannot preallocate, nothing happens.
///
/// # Errors
/// The system's.
pub fn preallocate(file: &File, len: u64) -> io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, len) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens a file for writing past the page cache; `None` where the file system cannot do that.
#[must_use]
pub fn open_direct(path: &Path) -> Option<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
    OpenOptions::new().write(true).custom_flags(flags).open(path).ok()
}
