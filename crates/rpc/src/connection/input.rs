use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use forebay_env::buffers::{Buffer, Buffers};

use crate::{
    time::Time,
    wire::{HEADER_LEN, Header},
};

use super::ProtocolError;

/// What small frames are read into.
const BUFFER_LEN: usize = 16 << 10;
/// A payload that lacks at least this much is read into directly.
const DIRECT_MIN: usize = 4 << 10;
/// A payload of at least this much comes into a buffer that is used again.
const KEPT_MIN: usize = 48 << 10;
/// Bytes of idle buffers that are kept of each size.
const IDLE_MAX: usize = 8 << 20;

/// Idle buffers of all connections.
static BUFFERS: LazyLock<Arc<Buffers>> = LazyLock::new(|| Buffers::new(IDLE_MAX));

/// Bytes on their way in: cut into headers and payloads.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
    /// When the frame began that has not ended.
    since: Option<Time>,
    /// The last room given was of the payload, not of the buffer.
    direct: bool,
}

#[derive(Debug)]
struct Payload {
    header: Header,
    kept: bool,
    bytes: Room,
    filled: usize,
    /// Bytes to be passed over.
    skip: u64,
}

/// Where a payload comes in. It is handed on once all of it was written, and no sooner: what is in a buffer before means nothing.
#[derive(Debug)]
enum Room {
    Own(Vec<u8>),
    Kept(Buffer),
}

impl Room {
    fn new(len: usize) -> Room {
        let kept = if len < KEPT_MIN { None } else { BUFFERS.take_snug(len) };
        kept.map_or_else(|| Room::Own(vec![0; len]), Room::Kept)
    }

    fn freeze(self) -> Bytes {
        match self {
            Room::Own(bytes) => bytes.into(),
            Room::Kept(buffer) => buffer.freeze(),
        }
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Room::Own(bytes) => bytes,
            Room::Kept(buffer) => buffer,
        }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Room::Own(bytes) => bytes,
            Room::Kept(buffer) => buffer,
        }
    }
}

/// A whole frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) header: Header,
    pub(super) body: Bytes,
    pub(super) bulk: Bytes,
    /// Whether it is to be looked at.
    pub(super) kept: bool,
}

impl Input {
    pub(super) fn new() -> Input {
        let buffer = vec![0; BUFFER_LEN].into_boxed_slice();
        Input { buffer, start: 0, end: 0, payload: None, since: None, direct: false }
    }

    /// Where the next bytes are to be read into; never empty.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let direct = match &self.payload {
            Some(payload) => self.start == self.end && payload.lacks() >= DIRECT_MIN,
            None => false,
        };
        self.direct = direct;
        if direct && let Some(payload) = &mut self.payload {
            return &mut payload.bytes[payload.filled..];
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// This many bytes were read into what `space` gave.
    pub(super) fn filled(&mut self, len: usize, now: Time) {
        match &mut self.payload {
            Some(payload) if self.direct => payload.filled += len,
            _ => self.end += len,
        }
        self.direct = false;
        if len > 0 && self.since.is_none() {
            self.since = Some(now);
        }
    }

    /// Bytes that are there and belong to no payload.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn consume(&mut self, len: usize, now: Time) {
        self.start += len;
        self.since = (self.start < self.end).then_some(now);
    }

    /// When the frame began that has not ended.
    pub(super) fn since(&self) -> Option<Time> {
        self.since
    }

    /// The next whole frame. `check` sees each header before there is room for its payload, and says whether the frame is kept or passed over.
    pub(super) fn frame(
        &mut self,
        now: Time,
        mut check: impl FnMut(&Header) -> Result<bool, ProtocolError>,
    ) -> Result<Option<Frame>, ProtocolError> {
        if self.payload.is_none() {
            let Some(bytes) = self.buffer[self.start..self.end].first_chunk::<HEADER_LEN>() else {
                return Ok(None);
            };
            let header = Header::decode(bytes)?;
            let kept = check(&header)?;
            self.start += HEADER_LEN;
            let room = if kept { header.payload() as usize } else { 0 };
            let skip = if kept { 0 } else { header.payload() };
            self.payload = Some(Payload { header, kept, bytes: Room::new(room), filled: 0, skip });
        }
        let Some(payload) = &mut self.payload else { return Ok(None) };
        self.start += payload.take(&self.buffer[self.start..self.end]);
        if payload.skip > 0 || payload.lacks() > 0 {
            return Ok(None);
        }
        let done = self.payload.take().map(Payload::finish);
        self.since = (self.start < self.end).then_some(now);
        Ok(done)
    }
}

impl Payload {
    fn lacks(&self) -> usize {
        self.bytes.len() - self.filled
    }

    /// Takes what it lacks from the front of `bytes`, and says how much that was.
    fn take(&mut self, bytes: &[u8]) -> usize {
        if self.skip > 0 {
            let len = self.skip.min(bytes.len() as u64);
            self.skip -= len;
            return len as usize;
        }
        let len = self.lacks().min(bytes.len());
        self.bytes[self.filled..self.filled + len].copy_from_slice(&bytes[..len]);
        self.filled += len;
        len
    }

    fn finish(self) -> Frame {
        let mut body = self.bytes.freeze();
        let bulk = match self.kept {
            true => body.split_off(self.header.body as usize),
            false => Bytes::new(),
        };
        Frame { header: self.header, body, bulk, kept: self.kept }
    }
}
