//! Putting what is this member's to put: sealed segments become objects, and the owner is told.
//!
//! Order that must hold: the object is in the store before the owner is told of it; it is told in the session that was given the number. What becomes of the
//! copies it says when they are offered next.

use std::{
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use forebay_client::{ClientError, Patience};
use forebay_format::row::ObjectRef;
use forebay_group::{NotTaken, ViewEpoch};
use forebay_object::{Backend, ErrorKind};
use forebay_protocol::{Answer, Operation, SEGMENTS_MAX, StoreSegments, StoredSegment, is_confined};
use forebay_types::{Ino, SegmentId};
use rustc_hash::FxHashSet;

use super::{
    Pace,
    object::{self, Object, Whole},
    offering::{Desk, Due},
    session::Session,
};
use crate::log::ReadError;

/// How long no put yields after the view has changed.
const HURRIES_FOR: Duration = Duration::from_mins(1);

/// What became of an object.
enum Put {
    /// The owner was told, and said so.
    Told,
    /// Nothing is to be put any more under this number: others were faster, or the session is over.
    Over,
    /// It is tried anew after a pause.
    Failed(String),
}

impl Desk {
    /// What makes the next object, in the order of directory and number. Of a directory that has enough of it, nothing but that; else all, once something has
    /// waited so long, or at once where the member is drained. What may not be on all disks is alone, a segment for an object: who
    /// reads what goes by another policy would have some of it, too, and which policy a segment's bytes go by is not known here.
    fn take(&mut self, now: Instant, pace: &Pace, draining: bool) -> Option<Vec<Due>> {
        if self.rest_until.is_some_and(|until| now < until) {
            return None;
        }
        let busy = &self.busy;
        let free = || self.due.iter().filter(|((_, segment), _)| !busy.contains(segment));
        let mut sums: Vec<(Ino, u64)> = Vec::new();
        for ((directory, _), due) in free() {
            match sums.last_mut().filter(|(last, _)| last == directory) {
                Some((_, sum)) => *sum += due.len,
                None => sums.push((*directory, due.len)),
            }
        }
        let full = sums.iter().find(|(_, sum)| *sum >= pace.put_bytes).map(|(directory, _)| *directory);
        let waited = |due: &Due| now.duration_since(due.since) >= pace.put_after;
        if full.is_none() && !draining && !free().any(|(_, due)| waited(due)) {
            return None;
        }
        let oldest = free().min_by_key(|(_, due)| due.since).map(|((directory, _), _)| *directory);
        let confined = full.or(oldest).is_some_and(is_confined);
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for ((directory, _), due) in free() {
            if full.is_some_and(|full| full != *directory) || is_confined(*directory) != confined {
                continue;
            }
            bytes += due.len;
            let full = bytes > pace.object_bytes || taken.len() == SEGMENTS_MAX;
            if !taken.is_empty() && (full || confined) {
                break;
            }
            taken.push(*due);
        }
        self.busy.extend(taken.iter().map(|due| due.segment));
        (!taken.is_empty()).then_some(taken)
    }

    /// Whether what is due waits for streams of this machine. It does so for a while, and again only once all of it was put, or has become another member's turn;
    /// not where members came or went lately: what a member has taken with it has a copy less.
    fn yields_to(&mut self, stream: bool, view: Option<ViewEpoch>, now: Instant, pace: &Pace) -> bool {
        if self.view.is_some() && self.view != view {
            self.view_changed = Some(now);
        }
        self.view = view;
        let stream = stream && self.view_changed.is_none_or(|at| now.duration_since(at) >= HURRIES_FOR);
        if self.due.is_empty() {
            self.yields = None;
            return false;
        }
        stream && now.duration_since(*self.yields.get_or_insert(now)) < pace.yields_for
    }

    /// These are not being put any more: what becomes of them is asked.
    fn done(&mut self, taken: &[Due]) {
        for due in taken {
            self.busy.remove(&due.segment);
            self.asks_again(due.segment);
        }
        let segments: FxHashSet<_> = taken.iter().map(|due| due.segment).collect();
        self.due.retain(|(_, segment), _| !segments.contains(segment));
    }
}

impl Session {
    pub(super) fn put_until_stopped(&self) {
        let pace = &self.shared.pace;
        loop {
            let acting = self.shared.around.acting();
            let draining = acting.is_some_and(|acting| acting.draining);
            let stream = !draining && self.may_yield() && self.shared.around.writers_stream();
            let taken = {
                let mut desk = self.desk.lock();
                if desk.stopped {
                    return;
                }
                let now = Instant::now();
                let yields = desk.yields_to(stream, acting.map(|acting| acting.view), now, pace);
                let taken = if yields { None } else { desk.take(now, pace, draining) };
                if taken.is_none() {
                    self.changed.wait_for(&mut desk, pace.look_every);
                }
                taken
            };
            let Some(taken) = taken else { continue };
            let put = self.put(&taken);
            {
                let mut desk = self.desk.lock();
                desk.done(&taken);
                match put {
                    Put::Told => desk.failed = 0,
                    Put::Over => {}
                    Put::Failed(why) => {
                        if desk.failed == 0 {
                            tracing::warn!("what is here of '{}' is put later: {why}", self.info.name);
                        }
                        desk.rest_until = Some(Instant::now() + self.pause(desk.failed));
                        desk.failed += 1;
                    }
                }
            }
            self.ears.heard.lock().news = true;
            self.ears.bell.notify_all();
        }
    }

    /// Whether there is so much room that puts may wait.
    fn may_yield(&self) -> bool {
        self.shared.log.budget().is_far(self.shared.log.status().dirty)
    }

    fn pause(&self, failed: u32) -> Duration {
        let pace = &self.shared.pace;
        pace.again_after.saturating_mul(1 << failed.min(16)).min(pace.again_max)
    }

    fn put(&self, taken: &[Due]) -> Put {
        let (number, object) = match self.numbers.next(&self.link) {
            Ok(given) => given,
            Err(ClientError::Closed) => return Put::Over,
            Err(error) => return Put::Failed(error.to_string()),
        };
        let Object { bytes, segments } = match self.bring(taken, number, object) {
            Ok(brought) => brought,
            Err(put) => return put,
        };
        let names: Vec<SegmentId> = segments.iter().map(|one| one.segment).collect();
        let told = self.tell_stored(number, object, segments);
        if matches!(told, Put::Told) {
            self.shared.around.stored(&self.info, object, &names, &bytes);
        }
        told
    }

    /// Puts an object until the store has it. A number is for one object: it is the same at each attempt, or there is none.
    fn bring(&self, taken: &[Due], number: u64, name: ObjectRef) -> Result<Object, Put> {
        let store = self.store().map_err(Put::Failed)?;
        let (mut tried, mut failed) = (None, 0);
        loop {
            let Object { bytes, segments } = object::object_of(self.volume, &self.read(taken));
            if segments.is_empty() || tried.as_ref().is_some_and(|tried| *tried != segments) {
                return Err(Put::Over);
            }
            match object::put(&store, &name.key(), &bytes) {
                Ok(()) => {
                    self.shared.counts.puts.fetch_add(1, Relaxed);
                    self.shared.counts.put_bytes.fetch_add(bytes.len() as u64, Relaxed);
                    return Ok(Object { bytes, segments });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    return Err(Put::Failed(format!("another object has the name of a new one: {error}")));
                }
                Err(error) if failed == 0 => {
                    tracing::warn!(store = %store.url(), "what is here of '{}' is put later: {error}", self.info.name);
                }
                Err(error) => tracing::debug!(%error, "a put is tried again"),
            }
            tried = Some(segments);
            if !self.rests(self.pause(failed)) || self.link.number() != number {
                return Err(Put::Over);
            }
            failed += 1;
        }
    }

    /// Waits so long. Whether it is to go on then.
    fn rests(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut desk = self.desk.lock();
        while !desk.stopped && !self.changed.wait_until(&mut desk, until).timed_out() {}
        !desk.stopped
    }

    /// Those that are here as they were offered.
    fn read(&self, taken: &[Due]) -> Vec<Whole> {
        let whole = |due: &Due| {
            let Due { segment, epoch, len, check, .. } = *due;
            let same = |kept: &forebay_group::Kept| kept.sealed == Some((len, check)) && kept.epoch == epoch;
            let kept = self.shared.log.kept(self.volume, segment);
            kept.filter(same)?;
            loop {
                match self.shared.log.read(self.volume, segment, 0, len) {
                    Ok((bytes, found)) if found == check => {
                        return Some(Whole { segment, epoch, check, bytes });
                    }
                    // Moved a moment ago: it is where it was as well until that is synced.
                    Err(ReadError::NotSynced { .. }) if self.rests(Duration::from_millis(1)) => {}
                    _ => return None,
                }
            }
        };
        taken.iter().filter_map(whole).collect()
    }

    fn tell_stored(&self, number: u64, object: ObjectRef, segments: Vec<StoredSegment>) -> Put {
        let operation = Operation::Store(StoreSegments { object, segments });
        // Until it is known, whoever owns the volume meanwhile: then the number is used.
        let told = self.link.ask(operation, None, Some(number), (), &Patience::new(None, None));
        match told.map(|answered| answered.response.answer) {
            Ok(Answer::Stored(not_taken)) => {
                let mut desk = self.desk.lock();
                for (segment, why) in not_taken {
                    tracing::info!(%segment, ?object, "a segment is not taken from an object: {why}");
                    self.shared.counts.not_taken.fetch_add(1, Relaxed);
                    if let NotTaken::Late(epoch) = why {
                        desk.late.insert(segment, epoch);
                    }
                }
                Put::Told
            }
            Ok(Answer::Failed(failure)) => {
                Put::Failed(format!("the owner does not take in {object:?}: {failure:?}"))
            }
            Ok(other) => Put::Failed(format!("{other:?} to an object")),
            // Garbage of a session: the next one puts what is still wanted.
            Err(ClientError::SessionEnded | ClientError::Closed) => Put::Over,
            Err(error) => Put::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_types::Epoch;

    use super::*;

    fn desk(segments: &[(u64, u64, u64)]) -> Desk {
        let mut desk = Desk::default();
        for (directory, segment, len) in segments.iter().copied() {
            let (segment, since) = (SegmentId(segment), Instant::now());
            let due = Due { segment, epoch: Epoch(1), len, check: 0, since };
            desk.due.insert((Ino(directory), segment), due);
        }
        desk
    }

    fn numbers(taken: Option<Vec<Due>>) -> Vec<u64> {
        taken.into_iter().flatten().map(|due| due.segment.0).collect()
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_put_waits_for_company_and_goes_in_order() {
        let (pace, now) = (Pace::default(), Instant::now());
        let mut desk = desk(&[(2, 5, MIB), (1, 9, MIB), (1, 7, MIB)]);
        assert_eq!(numbers(desk.take(now, &pace, false)), [] as [u64; 0], "it waits");
        assert_eq!(numbers(desk.take(now + pace.put_after * 2, &pace, false)), [7, 9, 5]);
        assert_eq!(
            numbers(desk.take(now + pace.put_after * 2, &pace, false)),
            [] as [u64; 0],
            "they are being put"
        );
        let draining = super::tests::desk(&[(2, 5, MIB)]).take(now, &pace, true);
        assert_eq!(numbers(draining), [5], "at once");
    }

    #[test]
    fn puts_yield_to_streams_for_a_while_and_not_again_before_all_is_put() {
        let (pace, now) = (Pace::default(), Instant::now());
        let mut desk = desk(&[(1, 5, MIB), (1, 6, MIB)]);
        let yields = |desk: &mut Desk, stream, secs| {
            desk.yields_to(stream, Some(ViewEpoch(3)), now + Duration::from_secs(secs), &pace)
        };
        assert!(!yields(&mut desk, false, 0));
        assert!(yields(&mut desk, true, 0) && yields(&mut desk, true, 9));
        assert!(!yields(&mut desk, true, 10));
        desk.due.pop_first();
        assert!(!yields(&mut desk, true, 11), "one is left");
        let last = desk.due.pop_first().unwrap();
        assert!(!yields(&mut desk, true, 12), "there is nothing");
        desk.due.insert(last.0, last.1);
        assert!(yields(&mut desk, true, 13));
    }

    #[test]
    fn no_put_yields_while_members_come_and_go() {
        let (pace, now) = (Pace::default(), Instant::now());
        let mut desk = desk(&[(1, 5, MIB)]);
        let mut yields = |view, secs| {
            // Its time is not over.
            desk.yields = None;
            desk.yields_to(true, Some(ViewEpoch(view)), now + Duration::from_secs(secs), &pace)
        };
        assert!(yields(3, 0) && !yields(4, 1) && !yields(4, 60) && yields(4, 61));
    }

    #[test]
    fn what_may_not_be_on_all_disks_is_put_with_nothing_else() {
        let (pace, now) = (Pace::default(), Instant::now());
        let confined = |directory| forebay_protocol::confined_in(Ino(directory)).0;
        let mut desk = desk(&[(1, 5, MIB), (confined(1), 6, MIB), (2, 7, MIB), (confined(2), 8, MIB)]);
        // The oldest of it says whose turn it is.
        desk.due.get_mut(&(Ino(confined(2)), SegmentId(8))).unwrap().since -= pace.put_after * 2;
        assert_eq!(numbers(desk.take(now, &pace, false)), [6], "each by itself");
        assert_eq!(numbers(desk.take(now, &pace, false)), [8]);
        assert_eq!(numbers(desk.take(now, &pace, false)), [] as [u64; 0], "the others wait");
        assert_eq!(numbers(desk.take(now + pace.put_after * 2, &pace, false)), [5, 7]);
    }

    #[test]
    fn a_directory_with_much_has_objects_of_its_own() {
        let (pace, now) = (Pace::default(), Instant::now());
        let of =
            |directory, first: u64| (first..first + 20).map(move |segment| (directory, segment, 4 * MIB));
        let all: Vec<_> = of(2, 100).chain([(1, 7, MIB), (3, 8, MIB)]).collect();
        let mut desk = desk(&all);
        assert_eq!(numbers(desk.take(now, &pace, false)), (100..116).collect::<Vec<_>>(), "64 MiB");
        assert_eq!(numbers(desk.take(now, &pace, false)), (116..120).collect::<Vec<_>>());
        assert_eq!(numbers(desk.take(now, &pace, false)), [] as [u64; 0], "the rest waits");
        assert_eq!(numbers(desk.take(now + pace.put_after * 2, &pace, false)), [7, 8]);
    }
}
