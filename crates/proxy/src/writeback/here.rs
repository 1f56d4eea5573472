//! What clients of this machine write: they read it here again, so it is cached here once it is clean, whoever is asked first by others.
//!
//! In memory alone: of what was written before the process began it is not known, and it is cached where it belongs.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use forebay_protocol::group::Copies;
use forebay_types::{SegmentId, VolumeId};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

/// So many of the last segments are remembered at least, and twice as many at most.
const SEGMENTS: usize = 1 << 15;

/// So many bytes within a second are a stream, and how long it goes on after them.
const STREAM: u64 = 1 << 20;
const STREAM_WITHIN: Duration = Duration::from_secs(1);

/// How long there is no stream after something came of which there is no other copy: it is to be in the store soon.
const SOLE_FOR: Duration = Duration::from_secs(20);

type Segments = FxHashSet<(VolumeId, SegmentId)>;

/// Segments that clients of this machine have written to, and how much.
#[derive(Debug, Default)]
pub struct WrittenHere {
    /// The last ones, and those before.
    segments: Mutex<(Segments, Segments)>,
    bytes: AtomicU64,
    /// Bytes that other members get as well.
    rate: Mutex<Rate>,
}

/// How fast they write.
#[derive(Debug, Default)]
struct Rate {
    /// Since when bytes are counted, and how many there were.
    since: Option<Instant>,
    bytes: u64,
    /// When there last were enough for a stream.
    streamed: Option<Instant>,
    /// When something last came that no other member gets.
    sole: Option<Instant>,
}

impl Rate {
    fn note(&mut self, bytes: u64, now: Instant) {
        if now.duration_since(*self.since.get_or_insert(now)) >= STREAM_WITHIN {
            (self.since, self.bytes) = (Some(now), 0);
        }
        self.bytes += bytes;
        if self.bytes >= STREAM {
            (self.since, self.bytes, self.streamed) = (Some(now), 0, Some(now));
        }
    }

    fn is_stream(&self, now: Instant) -> bool {
        let within = |at: Option<Instant>, time| at.is_some_and(|at| now.duration_since(at) < time);
        within(self.streamed, STREAM_WITHIN) && !within(self.sole, SOLE_FOR)
    }
}

impl WrittenHere {
    /// So many bytes of a segment were taken in from a client of this machine.
    pub(super) fn note(&self, volume: VolumeId, segment: SegmentId, bytes: usize, copies: Copies) {
        self.bytes.fetch_add(bytes as u64, Relaxed);
        match copies {
            Copies::Several => self.rate.lock().note(bytes as u64, Instant::now()),
            Copies::One => self.rate.lock().sole = Some(Instant::now()),
        }
        let mut segments = self.segments.lock();
        if segments.0.len() >= SEGMENTS {
            segments.1 = std::mem::take(&mut segments.0);
        }
        segments.0.insert((volume, segment));
    }

    /// Whether a client of this machine has written to a segment lately.
    pub(crate) fn has(&self, volume: VolumeId, segment: SegmentId) -> bool {
        let (last, before) = &*self.segments.lock();
        last.contains(&(volume, segment)) || before.contains(&(volume, segment))
    }

    /// Whether clients of this machine write a MiB a second or more that other members get as well, and nothing else.
    pub(crate) fn is_stream(&self) -> bool {
        self.rate.lock().is_stream(Instant::now())
    }

    /// Bytes that clients of this machine have written, since the start.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_a_mib_within_a_second_and_ends_a_second_later() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!rate.is_stream(start));
        // Half a MiB a second.
        (0..8).for_each(|step| rate.note(STREAM / 4, at(500 * step)));
        assert!(!rate.is_stream(at(3500)));
        (0..3).for_each(|step| rate.note(STREAM / 2, at(5000 + 300 * step)));
        assert!(rate.is_stream(at(6200)) && !rate.is_stream(at(6300)));
    }

    #[test]
    fn what_no_other_member_gets_is_no_stream() {
        let (here, volume) = (WrittenHere::default(), VolumeId([1; 16]));
        here.note(volume, SegmentId(5), STREAM as usize, Copies::One);
        assert!(!here.is_stream());
        here.note(volume, SegmentId(5), STREAM as usize, Copies::Several);
        assert!(!here.is_stream(), "what has no other copy waits for nobody");
        here.rate.lock().sole = None;
        assert!(here.is_stream());
    }

    #[test]
    fn the_last_segments_are_known_and_not_too_many() {
        let (here, volume) = (WrittenHere::default(), VolumeId([1; 16]));
        here.note(volume, SegmentId(5), 100, Copies::Several);
        here.note(volume, SegmentId(5), 20, Copies::One);
        assert!(here.has(volume, SegmentId(5)) && !here.has(volume, SegmentId(6)));
        assert!(!here.has(VolumeId([2; 16]), SegmentId(5)), "of another volume");
        let many = 3 * SEGMENTS as u64;
        (10..10 + many).for_each(|number| here.note(volume, SegmentId(number), 1, Copies::One));
        assert!((many - SEGMENTS as u64..many).all(|at| here.has(volume, SegmentId(10 + at))));
        let (last, before) = &*here.segments.lock();
        assert!(last.len() + before.len() <= 2 * SEGMENTS, "{} and {}", last.len(), before.len());
        assert_eq!(here.bytes(), 120 + many);
    }
}
