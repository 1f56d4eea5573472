use std::{
    hash::{BuildHasher, BuildHasherDefault},
    ops::Range,
};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};

/// The first window, in bytes.
pub const MIN_WINDOW: u64 = 512 << 10;
/// The window that a long sequential reader ends with, in bytes.
pub const MAX_WINDOW: u64 = 32 << 20;
const SHARDS: usize = 16;
/// Streams that a shard follows; beyond, the one that was quiet longest is forgotten.
const SHARD_STREAMS: usize = 64;
/// Readers that are told apart in one stream.
const TRAILS: usize = 4;
/// How far from where it should be a read may begin and still continue a sequential reader, at least and at most: parallel requests arrive
/// out of order.
const SLACK: Range<u64> = (128 << 10)..(4 << 20);
/// Reads at the same distance, after which the next ones are foreseen.
const STEPS_SEEN: u32 = 2;
/// A reader that leaves out less than three of four bytes is sequential.
const DENSE: u64 = 4;
/// Most reads that are foreseen of one that goes in steps.
const STEPS_AHEAD: u32 = 8;

/// How a read goes on from those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// It begins the stream at its start: what follows may be wanted or not.
    Start,
    /// It continues an earlier read.
    Sequential,
    /// It is as far from an earlier read as that was from the one before, backward or forward.
    Strided,
    /// It jumps.
    Random,
}

/// What is known at a read, and what to read ahead now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advice {
    /// How the read goes on from earlier ones.
    pub pattern: Pattern,
    /// Ranges that are likely to be wanted next and were not advised before: at most eight, none empty.
    pub ahead: Vec<Range<u64>>,
}

/// Decides what to read ahead, for many streams. Does no I/O and starts nothing: the caller has the ranges fetched. All threads share it.
///
/// A *stream* is whatever the caller reads from: an inode. Up to four readers in it are told apart by where they read. The second read that
/// continues another opens a window of [`MIN_WINDOW`]; each time the reader has come half way through what was read ahead, the
/// window doubles, up to the limit. Each jump halves the windows of the stream; at less than [`MIN_WINDOW`] they close. Reads at a constant
/// distance, as those of a column or of a file from its end, are foreseen one by one, twice as many each time, up to eight.
#[derive(Debug)]
pub struct ReadAhead {
    limit: u64,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    streams: FxHashMap<u64, Stream>,
    reads: u64,
}

/// The readers of one stream, the one that read last first.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    trails: [Option<Trail>; TRAILS],
    last_read: u64,
}

/// One reader's place.
#[derive(Clone, Copy, Debug)]
struct Trail {
    /// Where its last read began.
    start: u64,
    /// Where the next read is expected.
    next: u64,
    /// 0 until reads have followed each other.
    window: u64,
    /// End of what was read ahead, or read.
    ahead: u64,
    /// Distance between the beginnings of the last two reads.
    stride: i64,
    /// Reads at that distance.
    steps: u32,
    /// Of the reads to come at that distance, so many were advised.
    foreseen: u32,
    reads: u32,
}

impl ReadAhead {
    /// Follows streams with windows of at most `limit` bytes (and at most [`MAX_WINDOW`]); 0 reads nothing ahead.
    #[must_use]
    pub fn new(limit: u64) -> ReadAhead {
        ReadAhead { limit: limit.min(MAX_WINDOW), shards: Default::default() }
    }

    /// Takes note of a read of `len` bytes (at least 1) at `offset` of `stream`, which is `stream_len` bytes long, and says what to read ahead now.
    pub fn observe(&self, stream: u64, offset: u64, len: u64, stream_len: u64) -> Advice {
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(stream);
        let mut shard = self.shards[(hash >> 56) as usize % SHARDS].lock();
        shard.reads += 1;
        let reads = shard.reads;
        if !shard.streams.contains_key(&stream) {
            shard.make_room();
        }
        let state = shard.streams.entry(stream).or_default();
        state.last_read = reads;
        state.observe(offset, len.max(1), stream_len, self.limit)
    }
}

impl Shard {
    fn make_room(&mut self) {
        if self.streams.len() >= SHARD_STREAMS {
            let quietest =
                self.streams.iter().min_by_key(|(_, state)| state.last_read).map(|(&stream, _)| stream);
            if let Some(stream) = quietest {
                self.streams.remove(&stream);
            }
        }
    }
}

impl Stream {
    fn observe(&mut self, offset: u64, len: u64, stream_len: u64, limit: u64) -> Advice {
        let found = |fits: &dyn Fn(&Trail) -> bool| {
            self.trails.iter().position(|trail| trail.as_ref().is_some_and(fits))
        };
        let at = found(&|trail| trail.expects(offset)).or_else(|| found(&|trail| trail.is_near(offset, len)));
        let Some(at) = at else { return self.jump(offset, len) };
        self.trails[..=at].rotate_right(1);
        let Some(trail) = &mut self.trails[0] else { return self.jump(offset, len) };
        trail.moved(offset);
        let (pattern, ahead) = if trail.strides(len) {
            (Pattern::Strided, trail.step(len, stream_len, limit))
        } else if trail.is_near(offset, len) {
            (Pattern::Sequential, trail.go_on(len, stream_len, limit))
        } else {
            (Pattern::Random, Vec::new())
        };
        Advice { pattern, ahead }
    }

    /// A read that continues none: a new trail in place of the one that was quiet longest.
    fn jump(&mut self, offset: u64, len: u64) -> Advice {
        for trail in self.trails.iter_mut().flatten() {
            trail.window = if trail.window / 2 < MIN_WINDOW { 0 } else { trail.window / 2 };
        }
        let end = offset.saturating_add(len);
        let mut fresh = Trail {
            start: offset,
            next: end,
            window: 0,
            ahead: end,
            stride: 0,
            steps: 0,
            foreseen: 0,
            reads: 1,
        };
        if let Some(last) = self.trails[0] {
            (fresh.stride, fresh.steps) = (offset.wrapping_sub(last.start) as i64, 1);
        }
        // What was read once makes way first, so that a reader who jumps does not push the others out.
        let free = self.trails.iter().position(Option::is_none);
        let once = || self.trails.iter().rposition(|trail| trail.is_some_and(|trail| trail.reads == 1));
        let at = free.or_else(once).unwrap_or(TRAILS - 1);
        self.trails[..=at].rotate_right(1);
        self.trails[0] = Some(fresh);
        let pattern = if offset == 0 { Pattern::Start } else { Pattern::Random };
        Advice { pattern, ahead: Vec::new() }
    }
}

impl Trail {
    fn expects(&self, offset: u64) -> bool {
        self.stride != 0 && self.start.checked_add_signed(self.stride) == Some(offset)
    }

    /// Whether a read continues this trail. Small ones at random must not, only because they come near one of the last few.
    fn is_near(&self, offset: u64, len: u64) -> bool {
        let slack = match self.window {
            0 => len.saturating_mul(2),
            _ => (4 * len.min(SLACK.end)).clamp(SLACK.start, SLACK.end),
        };
        offset.abs_diff(self.next) <= slack
    }

    fn moved(&mut self, offset: u64) {
        let stride = offset.wrapping_sub(self.start) as i64;
        self.steps = if stride == self.stride { self.steps.saturating_add(1) } else { 1 };
        self.reads = self.reads.saturating_add(1);
        (self.start, self.stride) = (offset, stride);
    }

    /// Whether its reads go backward, or leave most of the stream out.
    fn strides(&self, len: u64) -> bool {
        let apart = self.stride < 0 || self.stride.unsigned_abs() > DENSE * len;
        self.steps >= STEPS_SEEN && apart
    }

    fn go_on(&mut self, len: u64, stream_len: u64, limit: u64) -> Vec<Range<u64>> {
        let end = self.start.saturating_add(len);
        if end <= self.next {
            return Vec::new();
        }
        self.next = end;
        self.ahead = self.ahead.max(end);
        if self.window > 0 && self.ahead - end > self.window / 2 {
            return Vec::new();
        }
        self.window = (self.window * 2).max(MIN_WINDOW).min(limit);
        let range = self.ahead..end.saturating_add(self.window).min(stream_len);
        if range.is_empty() {
            return Vec::new();
        }
        self.ahead = range.end;
        vec![range]
    }

    fn step(&mut self, len: u64, stream_len: u64, limit: u64) -> Vec<Range<u64>> {
        let end = self.start.saturating_add(len);
        (self.next, self.ahead, self.window) = (end, end, 0);
        if self.steps == STEPS_SEEN {
            self.foreseen = 0;
        }
        self.foreseen = self.foreseen.saturating_sub(1);
        let room = u32::try_from(limit / len).unwrap_or(u32::MAX);
        let wanted = self.steps.min(STEPS_AHEAD).min(room);
        if self.foreseen * 2 > wanted || self.foreseen >= wanted {
            return Vec::new();
        }
        let from = self.foreseen + 1;
        self.foreseen = wanted;
        let place = |step: u32| self.start.checked_add_signed(self.stride.checked_mul(i64::from(step))?);
        let range = |step| place(step).map(|at| at..at.saturating_add(len).min(stream_len));
        (from..=wanted).filter_map(range).filter(|range| !range.is_empty()).collect()
    }
}
