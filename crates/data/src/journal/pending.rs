use std::{collections::VecDeque, sync::Arc};

use forebay_types::{SegmentId, Sequence};

use super::log_file::LogFile;

/// Buffers longer than this are not kept for the next use.
const KEPT_BUFFER: usize = 2 << 20;

/// Bytes on their way to a file.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) file: Arc<LogFile>,
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
    /// Whether nothing follows in this file.
    pub(super) ends_file: bool,
}

/// What has been appended and is not in a file yet. The bytes of one file are always its end without a gap, oldest chunk first, so the
/// smallest pending offset of a file tells what the file itself has.
#[derive(Debug)]
pub(super) struct Pending {
    file: Arc<LogFile>,
    at: u64,
    filling: Vec<u8>,
    queue: VecDeque<Arc<Chunk>>,
    recycled: Vec<u8>,
    /// The last record appended.
    pub(super) last: Sequence,
    /// Files with bytes that no sync covered, in the order of their records; the last one is the current one.
    pub(super) unsynced: Vec<Arc<LogFile>>,
}

impl Pending {
    /// Begins `file` with its head; `last` is the record before its first.
    pub(super) fn new(file: Arc<LogFile>, head: &[u8], last: Sequence) -> Pending {
        let unsynced = vec![Arc::clone(&file)];
        let (filling, queue, recycled) = (head.to_vec(), VecDeque::new(), Vec::new());
        Pending { file, at: 0, filling, queue, recycled, last, unsynced }
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.filling.len() + self.queue.iter().map(|chunk| chunk.bytes.len()).sum::<usize>()
    }

    /// The buffer that takes the current file's next bytes.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.filling
    }

    fn close_chunk(&mut self, ends_file: bool) {
        let bytes = std::mem::replace(&mut self.filling, std::mem::take(&mut self.recycled));
        let at = self.at;
        self.at += bytes.len() as u64;
        self.queue.push_back(Arc::new(Chunk { file: Arc::clone(&self.file), at, bytes, ends_file }));
    }

    /// Ends the current file and begins `file` with its head.
    pub(super) fn switch(&mut self, file: Arc<LogFile>, head: &[u8]) {
        self.close_chunk(true);
        self.unsynced.push(Arc::clone(&file));
        self.file = file;
        self.at = 0;
        self.filling.extend_from_slice(head);
    }

    /// The chunk to write next. It stays pending until [`Pending::written`].
    pub(super) fn next_chunk(&mut self) -> Option<Arc<Chunk>> {
        if self.queue.is_empty() && !self.filling.is_empty() {
            self.close_chunk(false);
        }
        self.queue.front().cloned()
    }

    /// Says that the oldest chunk, which is `chunk`, is in its file.
    pub(super) fn written(&mut self, chunk: Arc<Chunk>) {
        self.queue.pop_front();
        if let Some(chunk) = Arc::into_inner(chunk)
            && chunk.bytes.capacity() <= KEPT_BUFFER
        {
            self.recycled = chunk.bytes;
            self.recycled.clear();
        }
    }

    /// Copies what is pending of `segment` in `offset..offset + out.len()` to the end of `out`, and says how many bytes at the front of the
    /// range are in the file instead.
    pub(super) fn read(&self, segment: SegmentId, offset: u64, out: &mut [u8]) -> usize {
        let mut in_file = out.len();
        let chunks = self.queue.iter().map(|chunk| (&chunk.file, chunk.at, chunk.bytes.as_slice()));
        for (file, at, bytes) in chunks.chain([(&self.file, self.at, self.filling.as_slice())]) {
            if file.segment != segment {
                continue;
            }
            let end = offset + out.len() as u64;
            let (from, to) = (offset.max(at), end.min(at + bytes.len() as u64));
            if from < to {
                let place = (from - offset) as usize..(to - offset) as usize;
                in_file = in_file.min(place.start);
                out[place].copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            }
        }
        in_file
    }
}
