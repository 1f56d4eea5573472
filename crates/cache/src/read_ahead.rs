use std::ops::Range;

use rustc_hash::FxHashMap;

/// The first window, in bytes.
pub const MIN_WINDOW: u64 = 512 << 10;
/// The window that a long sequential reader ends with, in bytes.
pub const MAX_WINDOW: u64 = 16 << 20;
/// Streams that are followed; beyond, the one that was quiet longest is forgotten.
const MAX_STREAMS: usize = 1024;
/// How far from where it should be a read may begin and still continue the stream, at least and at most: parallel
/// requests of one reader arrive out of order.
const SLACK: Range<u64> = (128 << 10)..(4 << 20);

/// Decides what to read ahead, for many streams. Does no I/O and starts nothing: the caller has the ranges fetched.
///
/// The second read that continues the first opens a window of [`MIN_WINDOW`]; each time the reader has come half
/// way through what was read ahead, the window doubles, up to the limit. A read elsewhere closes it.
#[derive(Debug)]
pub struct ReadAhead {
    limit: u64,
    streams: FxHashMap<u64, Stream>,
    reads: u64,
}

/// One reader's place.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Where the next read is expected.
    next: u64,
    /// 0 until reads have followed each other.
    window: u64,
    /// End of what was read ahead, or read.
    ahead: u64,
    last_read: u64,
}

impl ReadAhead {
    /// Follows streams with windows of at most `limit` bytes (and at most [`MAX_WINDOW`]); 0 reads nothing ahead.
    #[must_use]
    pub fn new(limit: u64) -> ReadAhead {
        ReadAhead { limit: limit.min(MAX_WINDOW), streams: FxHashMap::default(), reads: 0 }
    }

    /// Takes note of a read of `len` bytes at `offset` of `stream` (whatever the caller calls a stream: a file
    /// handle), `stream_len` bytes long, and says what to read ahead now. Ranges of one stream do not overlap until it seeks.
    pub fn observe(&mut self, stream: u64, offset: u64, len: u64, stream_len: u64) -> Option<Range<u64>> {
        self.reads += 1;
        let end = offset.saturating_add(len);
        let fresh = Stream { next: end, window: 0, ahead: end, last_read: self.reads };
        if !self.streams.contains_key(&stream) {
            self.make_room();
        }
        let state = self.streams.entry(stream).or_insert(Stream { next: u64::MAX, ..fresh });
        state.last_read = self.reads;

        let slack = (4 * len.min(SLACK.end)).clamp(SLACK.start, SLACK.end);
        if offset.abs_diff(state.next) > slack {
            *state = fresh;
            return None;
        }
        if end <= state.next {
            return None;
        }
        state.next = end;
        state.ahead = state.ahead.max(end);
        if state.window > 0 && state.ahead - end > state.window / 2 {
            return None;
        }
        state.window = (state.window * 2).max(MIN_WINDOW).min(self.limit);
        let range = state.ahead..end.saturating_add(state.window).min(stream_len);
        if range.is_empty() {
            return None;
        }
        state.ahead = range.end;
        Some(range)
    }

    /// The stream is closed.
    pub fn forget(&mut self, stream: u64) {
        self.streams.remove(&stream);
    }

    fn make_room(&mut self) {
        if self.streams.len() >= MAX_STREAMS {
            let quietest =
                self.streams.iter().min_by_key(|(_, state)| state.last_read).map(|(&stream, _)| stream);
            if let Some(stream) = quietest {
                self.streams.remove(&stream);
            }
        }
    }
}
