//! Buffers that operations fill, and the reply that a transport sends.

use bytes::Bytes;

use crate::errno::Errno;
use crate::protocol::{DIRENT, ENTRY_OUT, OUT_HEADER, align8, put_dirent, put_entry};
use crate::types::{Entry, FileKind};

/// One run of a read's answer.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Bytes(Bytes),
    Zeros(usize),
}

/// The answer to a read: runs of bytes and of zeros, sent together without being copied first.
///
/// It takes at most as many bytes as were asked for; what goes beyond is dropped.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    pieces: Vec<Piece>,
    len: usize,
    limit: usize,
}

impl ReadBuffer {
    /// An empty one that takes `limit` bytes.
    pub fn with_limit(limit: usize) -> ReadBuffer {
        ReadBuffer { pieces: Vec::new(), len: 0, limit }
    }

    pub(crate) fn reset(&mut self, limit: usize) {
        self.pieces.clear();
        self.len = 0;
        self.limit = limit;
    }

    /// Appends `bytes`; the buffer shares them until the answer is sent.
    pub fn push(&mut self, mut bytes: Bytes) {
        bytes.truncate(self.remaining());
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.pieces.push(Piece::Bytes(bytes));
        }
    }

    /// Appends a copy of `bytes`.
    pub fn push_copy(&mut self, bytes: &[u8]) {
        let take = bytes.len().min(self.remaining());
        if let Some(bytes) = bytes.get(..take).filter(|bytes| !bytes.is_empty()) {
            self.push(Bytes::copy_from_slice(bytes));
        }
    }

    /// Appends `count` zero bytes, which take no memory.
    pub fn push_zeros(&mut self, count: usize) {
        let count = count.min(self.remaining());
        self.len += count;
        match self.pieces.last_mut() {
            _ if count == 0 => {}
            Some(Piece::Zeros(run)) => *run += count,
            _ => self.pieces.push(Piece::Zeros(count)),
        }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that it still takes.
    pub fn remaining(&self) -> usize {
        self.limit - self.len
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The content in one piece, for callers other than a transport.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len);
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => all.extend_from_slice(bytes),
                Piece::Zeros(count) => all.resize(all.len() + count, 0),
            }
        }
        all
    }
}

/// The answer to readdir.
#[derive(Debug)]
pub struct DirBuffer<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> DirBuffer<'a> {
    /// Appends to `out` at most `limit` bytes.
    pub fn new(out: &'a mut Vec<u8>, limit: usize) -> DirBuffer<'a> {
        let end = out.len() + limit;
        DirBuffer { out, end }
    }

    /// Adds an entry; `next_offset` is where a later listing goes on after it. False: full, the entry was not taken.
    pub fn add(&mut self, ino: u64, next_offset: u64, kind: FileKind, name: &[u8]) -> bool {
        let fits = self.out.len() + align8(DIRENT + name.len()) <= self.end;
        if fits {
            put_dirent(self.out, ino, next_offset, kind, name);
        }
        fits
    }
}

/// The answer to readdirplus.
#[derive(Debug)]
pub struct DirPlusBuffer<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> DirPlusBuffer<'a> {
    /// Appends to `out` at most `limit` bytes.
    pub fn new(out: &'a mut Vec<u8>, limit: usize) -> DirPlusBuffer<'a> {
        let end = out.len() + limit;
        DirPlusBuffer { out, end }
    }

    /// Adds an entry with its attributes. False: full, the entry was not taken and counts as no lookup.
    pub fn add(&mut self, entry: &Entry, next_offset: u64, name: &[u8]) -> bool {
        let kind = FileKind::from_mode(entry.attr.mode).unwrap_or(FileKind::File);
        self.push(entry, entry.attr.ino, next_offset, kind, name)
    }

    /// Adds an entry by name only, as for `.` and `..`: the kernel will look it up if it needs to.
    pub fn add_name(&mut self, ino: u64, next_offset: u64, kind: FileKind, name: &[u8]) -> bool {
        self.push(&Entry::negative(std::time::Duration::ZERO), ino, next_offset, kind, name)
    }

    fn push(&mut self, entry: &Entry, ino: u64, next_offset: u64, kind: FileKind, name: &[u8]) -> bool {
        let fits = self.out.len() + align8(ENTRY_OUT + DIRENT + name.len()) <= self.end;
        if fits {
            put_entry(self.out, entry);
            put_dirent(self.out, ino, next_offset, kind, name);
        }
        fits
    }
}

/// One reply in the making, kept by a worker and used again: header and small answers in `head`, a read's answer in
/// `data`.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub head: Vec<u8>,
    pub data: ReadBuffer,
}

impl Reply {
    /// Above this a buffer that a large listing left behind is given back.
    const KEEP: usize = 256 << 10;

    pub(crate) fn start(&mut self) {
        self.head.clear();
        self.head.shrink_to(Reply::KEEP);
        self.head.resize(OUT_HEADER, 0);
        self.data.reset(0);
    }

    /// Fills in the header; an error drops what the answer had so far.
    pub(crate) fn finish(&mut self, unique: u64, error: Option<Errno>) {
        if error.is_some() {
            self.start();
        }
        let len = (self.head.len() + self.data.len()) as u32;
        let code = error.map_or(0, |error| -error.raw());
        if let Some(header) = self.head.first_chunk_mut::<OUT_HEADER>() {
            header[0..4].copy_from_slice(&len.to_ne_bytes());
            header[4..8].copy_from_slice(&code.to_ne_bytes());
            header[8..16].copy_from_slice(&unique.to_ne_bytes());
        }
    }

    /// Bytes of the answer after its header.
    pub(crate) fn body_len(&self) -> usize {
        self.head.len() - OUT_HEADER + self.data.len()
    }
}
