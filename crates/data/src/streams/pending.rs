//! Runs on their way into a stream's file past the page cache.
//!
//! A large write that goes through the page cache costs two copies and fresh pages for bytes that nobody is likely to read from there, and an
//! `fsync` then waits for all of them at once. Here the bytes are gathered in buffers that are used again, and go to the disk by direct I/O
//! while the next ones come. Direct I/O moves whole blocks: a chunk begins where the last whole block ended, so the block in which one chunk
//! ends is written again, with the same bytes at its front, as the beginning of the next.

use std::sync::Arc;

use forebay_env::direct::{BLOCK, Blocks};
use parking_lot::Mutex;

/// An appender writes itself, and so waits for the disk, once so many bytes wait behind those that are being written.
pub(super) const PENDING_MAX: usize = 2 << 20;
/// Capacity of a new buffer: what may wait, and one more write of the kernel's largest size.
const CAPACITY: usize = PENDING_MAX + (1 << 20) + (64 << 10);
/// Buffers that are kept for the next use.
const KEPT: usize = 6;

/// Buffers without contents, shared by all streams.
#[derive(Debug, Default)]
pub(super) struct Pool(Mutex<Vec<Blocks>>);

impl Pool {
    fn take(&self) -> Blocks {
        self.0.lock().pop().unwrap_or_else(|| Blocks::with_capacity(CAPACITY))
    }

    fn give(&self, mut buffer: Blocks) {
        let mut kept = self.0.lock();
        if kept.len() < KEPT && buffer.capacity() <= 2 * CAPACITY {
            buffer.clear();
            kept.push(buffer);
        }
    }
}

/// Whole blocks for the file.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Where in the file they begin.
    pub(super) at: u64,
    /// The blocks; zeros follow the last run.
    pub(super) blocks: Blocks,
    /// Where in the file the last run ends.
    pub(super) end: u64,
}

/// What has been appended to a file and is not in it yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Where in the file `filling` begins: at a whole block.
    at: u64,
    filling: Option<Blocks>,
    /// How many bytes at the front of `filling` are in `writing`, or in the file, too.
    carried: usize,
    writing: Option<Arc<Chunk>>,
    closed: bool,
}

impl Pending {
    /// Bytes that no chunk has yet.
    pub(super) fn waiting(&self) -> usize {
        self.filling.as_ref().map_or(0, |filling| filling.len() - self.carried)
    }

    pub(super) fn append(&mut self, parts: &[&[u8]], pool: &Pool) {
        let filling = self.filling.get_or_insert_with(|| pool.take());
        filling.reserve(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| filling.extend(part));
    }

    /// What to write next, if anything waits. It can be read here until [`Pending::written`].
    pub(super) fn next_chunk(&mut self, pool: &Pool) -> Option<Arc<Chunk>> {
        if self.waiting() == 0 {
            return None;
        }
        let mut blocks = self.filling.take()?;
        let (at, len) = (self.at, blocks.len());
        self.carried = len % BLOCK;
        self.at = at + (len - self.carried) as u64;
        if self.closed {
            self.carried = 0;
        }
        if self.carried > 0 {
            let mut filling = pool.take();
            filling.extend(&blocks.as_slice()[len - self.carried..]);
            self.filling = Some(filling);
        }
        blocks.pad();
        let chunk = Arc::new(Chunk { at, blocks, end: at + len as u64 });
        self.writing = Some(Arc::clone(&chunk));
        Some(chunk)
    }

    /// Says that the chunk is in the file.
    pub(super) fn written(&mut self, chunk: Arc<Chunk>, pool: &Pool) {
        self.writing = None;
        if let Some(chunk) = Arc::into_inner(chunk) {
            pool.give(chunk.blocks);
        }
    }

    /// Says that nothing more will be appended, so that no buffer is kept for it.
    pub(super) fn close(&mut self, pool: &Pool) {
        self.closed = true;
        if self.waiting() == 0
            && let Some(filling) = self.filling.take()
        {
            self.carried = 0;
            pool.give(filling);
        }
    }

    /// Copies what is here of the file's bytes from `offset` on to the end of `out`, and says how many at its front are in the file.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let mut in_file = out.len();
        let writing = self.writing.as_ref().map(|chunk| (chunk.at, &chunk.blocks));
        let filling = self.filling.as_ref().map(|filling| (self.at, filling));
        for (at, buffer) in writing.into_iter().chain(filling) {
            let bytes = buffer.as_slice();
            let (from, to) = (offset.max(at), (offset + out.len() as u64).min(at + bytes.len() as u64));
            if from < to {
                let place = (from - offset) as usize..(to - offset) as usize;
                in_file = in_file.min(place.start);
                out[place].copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            }
        }
        in_file
    }
}
