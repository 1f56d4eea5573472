//! Bytes for direct I/O, which moves whole blocks from addresses that are multiples of one.

/// Offsets, lengths and addresses of direct I/O are multiples of this: the block size of common file systems, and no less than any disk's.
pub(crate) const BLOCK: usize = 4096;

/// A buffer that begins at a multiple of [`BLOCK`].
#[derive(Debug)]
pub(crate) struct Blocks {
    bytes: Vec<u8>,
    start: usize,
}

impl Blocks {
    pub(crate) fn with_capacity(capacity: usize) -> Blocks {
        let mut bytes: Vec<u8> = Vec::with_capacity(capacity + BLOCK);
        let start = bytes.as_ptr().align_offset(BLOCK).min(BLOCK);
        bytes.resize(start, 0);
        Blocks { bytes, start }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Bytes of whole blocks.
    pub(crate) fn whole(&self) -> usize {
        self.len() - self.len() % BLOCK
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Makes room for `more` bytes; a vector that grew by itself would lose its place.
    pub(crate) fn reserve(&mut self, more: usize) {
        if self.bytes.capacity() - self.bytes.len() < more {
            let mut larger = Blocks::with_capacity((self.len() + more).next_multiple_of(BLOCK));
            larger.bytes.extend_from_slice(self.as_slice());
            *self = larger;
        }
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Adds zeros up to a whole block.
    pub(crate) fn pad(&mut self) {
        let more = self.len().next_multiple_of(BLOCK) - self.len();
        self.reserve(more);
        self.bytes.resize(self.bytes.len() + more, 0);
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }

    /// Takes the first `len` bytes away.
    pub(crate) fn drop_front(&mut self, len: usize) {
        self.bytes.drain(self.start..self.start + len);
    }
}
