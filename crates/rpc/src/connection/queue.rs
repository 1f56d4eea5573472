use std::{collections::VecDeque, io::IoSlice};

use bytes::Bytes;

use crate::{time::Time, wire::HEADER_LEN};

/// Below this many bytes a body is copied behind its header, so that many small frames are one piece.
const COPY_MAX: usize = 4 << 10;
/// A piece that is this long gets nothing appended.
const PIECE_MAX: usize = 16 << 10;

/// Bytes on their way out, in order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are out.
    at: usize,
    left: usize,
    /// Bytes that ever left.
    gone: u64,
}

#[derive(Debug)]
struct Piece {
    bytes: Content,
    /// When its first byte was queued.
    since: Time,
}

#[derive(Debug)]
enum Content {
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Content {
    fn get(&self) -> &[u8] {
        match self {
            Content::Own(bytes) => bytes,
            Content::Shared(bytes) => bytes,
        }
    }
}

impl Queue {
    pub(super) fn frame(&mut self, header: &[u8; HEADER_LEN], body: Bytes, bulk: Bytes, now: Time) {
        self.copy(header, now);
        for part in [body, bulk] {
            if part.len() <= COPY_MAX {
                self.copy(&part, now);
            } else {
                self.left += part.len();
                self.pieces.push_back(Piece { bytes: Content::Shared(part), since: now });
            }
        }
    }

    pub(super) fn copy(&mut self, bytes: &[u8], now: Time) {
        if bytes.is_empty() {
            return;
        }
        self.left += bytes.len();
        if let Some(Piece { bytes: Content::Own(own), .. }) = self.pieces.back_mut()
            && own.len() + bytes.len() <= PIECE_MAX
        {
            own.extend_from_slice(bytes);
            return;
        }
        let mut own = Vec::with_capacity(bytes.len().max(256));
        own.extend_from_slice(bytes);
        self.pieces.push_back(Piece { bytes: Content::Own(own), since: now });
    }

    /// Fills `slices` with the first bytes, and says with how many of them.
    pub(super) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut skip = self.at;
        let mut filled = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(&piece.bytes.get()[skip..]);
            skip = 0;
            filled += 1;
        }
        filled
    }

    pub(super) fn advance(&mut self, mut len: usize) {
        debug_assert!(len <= self.left, "more was written than there is");
        self.gone += len as u64;
        self.left -= len;
        while let Some(piece) = self.pieces.front() {
            let rest = piece.bytes.get().len() - self.at;
            if len < rest {
                self.at += len;
                return;
            }
            len -= rest;
            self.at = 0;
            self.pieces.pop_front();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.left
    }

    /// When the oldest byte was queued.
    pub(super) fn since(&self) -> Option<Time> {
        self.pieces.front().map(|piece| piece.since)
    }

    /// Where the next byte will be, counted from the connection's first.
    pub(super) fn end(&self) -> u64 {
        self.gone + self.left as u64
    }

    /// Bytes that ever left.
    pub(super) fn gone(&self) -> u64 {
        self.gone
    }
}
