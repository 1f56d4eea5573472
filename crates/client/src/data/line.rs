//! What waits to be committed: how much is kept back, of which files, and what has been asked for.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    time::{Duration, Instant},
};

use forebay_types::Ino;

use super::allowance::Allowance;
use crate::ClientError;

/// Bytes of a batch, and of an object before its runs are encoded.
pub(super) const BATCH_MAX: u64 = 64 << 20;
/// Files of a batch.
const FILES_MAX: usize = 4096;
/// Bytes of files nobody waits for that are packed with those somebody waits for.
const COMPANY_MAX: u64 = 1 << 20;
const COMPANY_FILES: usize = 256;
/// How long after a failure nothing is tried unasked; it doubles up to the second.
const PAUSE: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// What an extent of a commit weighs in a batch.
const EXTENT_WEIGHT: u64 = 512;

/// What a layer weighs in a batch: its bytes go into objects, its pieces into the commit.
pub(super) fn weight(cost: u64, pieces: usize) -> u64 {
    cost + EXTENT_WEIGHT * pieces as u64
}

/// A file in the order of packing. First, whether it waits for the store although the volume does not: those are in batches of their own, and not in all threads at a time.
pub(super) type Place = (bool, Ino, Ino);

/// A file with an open layer.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Since when.
    since: Instant,
    /// What its open layer weighs.
    weight: u64,
}

#[derive(Debug, Default)]
pub(super) struct Line {
    /// What all layers cost, and what writers are about to put there.
    pub(super) kept: u64,
    /// The most that there ever were.
    pub(super) kept_max: u64,
    /// For how much of that the owner has set room aside.
    pub(super) allowance: Allowance,
    /// Files with an open layer, by directory.
    dirty: BTreeMap<Place, Waiting>,
    /// The same by age.
    ages: BTreeSet<(Instant, Place)>,
    /// What open layers weigh.
    open: u64,
    /// Files that somebody waits for.
    wanted: BTreeSet<Place>,
    /// Files whose open layer is worth a batch by itself.
    full: BTreeSet<Place>,
    /// Writers that wait for room.
    pub(super) squeezed: usize,
    /// Batches on their way, and those of them that wait for the store although the volume does not.
    pub(super) flying: usize,
    pub(super) aside: usize,
    /// Where the last batch that was taken unasked ended.
    cursor: Option<Place>,
    /// Until when nothing is tried unasked, and the pause after that.
    paused: Option<(Instant, Duration)>,
    /// Why the store or the owner takes nothing, if that passes only when somebody does something.
    pub(super) refused: Option<ClientError>,
    /// The threads end.
    pub(super) stop: bool,
}

/// When a batch begins unasked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    /// At so many bytes in open layers.
    pub(super) bytes: u64,
    /// When something is as old as this.
    pub(super) age: Duration,
    /// Of so many batches at a time, one only where somebody waits for it.
    pub(super) batches: usize,
}

impl Line {
    /// Of a volume that has a limit, or none.
    pub(super) fn of(limited: bool) -> Line {
        let mut line = Line::default();
        line.allowance.begin(limited);
        line
    }

    /// Notes that a file has an open layer of this weight. Returns whether a thread that stores has to be told.
    pub(super) fn dirty(&mut self, place: Place, weight: u64, now: Instant, full: bool) -> bool {
        let first = self.dirty.is_empty();
        let waiting = self.dirty.entry(place).or_insert(Waiting { since: now, weight: 0 });
        self.open = self.open.saturating_sub(waiting.weight) + weight;
        waiting.weight = weight;
        self.ages.insert((waiting.since, place));
        if full {
            self.full.insert(place);
        }
        first
    }

    /// Notes that a file has none any more.
    pub(super) fn clean(&mut self, place: Place) -> u64 {
        self.full.remove(&place);
        self.wanted.remove(&place);
        let Some(waiting) = self.dirty.remove(&place) else { return 0 };
        self.ages.remove(&(waiting.since, place));
        self.open = self.open.saturating_sub(waiting.weight);
        waiting.weight
    }

    /// Notes that somebody waits for a file. Who writes to it may not have said so yet.
    pub(super) fn want(&mut self, place: Place) {
        self.wanted.insert(place);
    }

    /// The files of the next batch, if it is time for one. They are in the line no longer.
    pub(super) fn next(&mut self, now: Instant, due: Due) -> Option<Vec<Place>> {
        let mut batch = Batch::default();
        if let Some(first) = self.next_wanted(due) {
            let mut next = Some(first);
            while let Some(place) = next {
                batch.add(place, self.clean(place));
                let same = self.wanted.range(first..).next().filter(|place| place.0 == first.0);
                next = same.copied().filter(|_| !batch.is_full());
            }
            self.keep_company(&mut batch);
            return Some(batch.places);
        }
        if self.is_busy(due) || self.paused.is_some_and(|(until, _)| now < until) {
            return None;
        }
        if let Some(place) = self.full.first().copied().filter(|place| self.may_go(place, due)) {
            self.clean(place);
            return Some(vec![place]);
        }
        let old = self.oldest(due).is_some_and(|since| since + due.age <= now);
        if !(old || self.is_pressed(due)) {
            return None;
        }
        // From where the last one ended, so that every directory has its turn; what is old has been passed by at most once.
        while !batch.is_full() {
            let after = self.cursor.and_then(|cursor| self.dirty.range((Excluded(cursor), Unbounded)).next());
            let place = after.or_else(|| self.dirty.first_key_value()).map(|(place, _)| *place);
            let place = place.filter(|place| self.may_go(place, due)).or_else(|| self.first_to_go(due));
            let same = |place: &Place| batch.places.first().is_none_or(|first| first.0 == place.0);
            let Some(place) = place.filter(same) else { break };
            self.cursor = Some(place);
            batch.add(place, self.clean(place));
        }
        (!batch.places.is_empty()).then_some(batch.places)
    }

    /// The first file that somebody waits for, of those that have their turn: one thread is for those aside, else the others would never leave them one.
    fn next_wanted(&self, due: Due) -> Option<Place> {
        let aside = self.wanted.range((true, Ino(0), Ino(0))..).next().filter(|_| self.aside == 0);
        aside.or_else(|| self.wanted.first()).copied().filter(|place| self.may_go(place, due))
    }

    /// Whether a file may be in a batch now: of those that wait for the store although the volume does not, some threads are free.
    fn may_go(&self, place: &Place, due: Due) -> bool {
        !place.0 || self.aside < due.batches.saturating_sub(2).max(1)
    }

    /// The first one that may go, in the order of packing.
    fn first_to_go(&self, due: Due) -> Option<Place> {
        self.dirty.first_key_value().map(|(place, _)| *place).filter(|place| self.may_go(place, due))
    }

    /// Since when the oldest waits that may go.
    fn oldest(&self, due: Due) -> Option<Instant> {
        self.ages.iter().find(|(_, place)| self.may_go(place, due)).map(|(since, _)| *since)
    }

    fn keep_company(&mut self, batch: &mut Batch) {
        let Some(first) = batch.places.first().copied() else { return };
        let near = self.dirty.range(first..).map(|(place, _)| *place).take(COMPANY_FILES);
        let near: Vec<Place> = near.take_while(|place| place.0 == first.0).collect();
        for place in near {
            let bytes = self.dirty.get(&place).map_or(u64::MAX, |waiting| waiting.weight);
            if batch.bytes.saturating_add(bytes) > COMPANY_MAX || batch.is_full() {
                return;
            }
            batch.add(place, self.clean(place));
        }
    }

    /// Whether the last thread is left for those who wait.
    fn is_busy(&self, due: Due) -> bool {
        self.flying > 0 && self.flying + 1 >= due.batches
    }

    /// Whether room is wanted.
    pub(super) fn is_pressed(&self, due: Due) -> bool {
        self.squeezed > 0 || self.open >= due.bytes
    }

    /// How long nothing has to be done; `None` until something changes.
    pub(super) fn idle_for(&self, now: Instant, due: Due) -> Option<Duration> {
        let oldest = self.oldest(due).map(|since| since + due.age).filter(|_| !self.is_busy(due))?;
        let next = self.paused.map_or(oldest, |(until, _)| {
            if self.is_pressed(due) || !self.full.is_empty() { until } else { until.max(oldest) }
        });
        Some(next.saturating_duration_since(now).max(Duration::from_millis(1)))
    }

    /// Notes that a batch failed.
    pub(super) fn failed(&mut self, now: Instant, error: Option<&ClientError>) {
        let pause = self.paused.map_or(PAUSE, |(_, pause)| (pause * 2).min(PAUSE_MAX));
        self.paused = Some((now + pause, pause));
        if let Some(error) = error {
            self.refused = Some(error.clone());
        }
    }

    /// Notes that a batch was committed.
    pub(super) fn succeeded(&mut self) {
        (self.paused, self.refused) = (None, None);
    }
}

#[derive(Default)]
struct Batch {
    places: Vec<Place>,
    bytes: u64,
}

impl Batch {
    fn add(&mut self, place: Place, bytes: u64) {
        self.places.push(place);
        self.bytes += bytes;
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_MAX || self.places.len() >= FILES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: Due = Due { bytes: 64 << 20, age: Duration::from_secs(5), batches: 4 };

    fn at(directory: u64, ino: u64) -> Place {
        (false, Ino(directory), Ino(ino))
    }

    #[test]
    fn what_waits_for_the_store_beside_others_leaves_them_threads() {
        let (mut line, now) = (Line::default(), Instant::now());
        let aside = |ino| (true, Ino(1), Ino(ino));
        line.dirty(aside(1), 4096, now, false);
        line.dirty(at(1, 2), 4096, now, false);
        line.want(aside(1));
        line.want(at(1, 2));
        assert_eq!(
            line.next(now, DUE),
            Some(vec![aside(1)]),
            "in batches of their own, and not last for ever"
        );
        line.aside = 1;
        line.want(aside(1));
        assert_eq!(line.next(now, DUE), Some(vec![at(1, 2)]));
        assert_eq!(line.next(now, DUE), Some(vec![aside(1)]));
        // As many as may wait for the store do.
        (line.flying, line.aside) = (2, 2);
        line.dirty(aside(3), 70 << 20, now, true);
        line.want(aside(3));
        assert_eq!(line.next(now + DUE.age, DUE), None);
        assert_eq!(line.idle_for(now, DUE), None, "until something changes");
        line.dirty(at(1, 4), 4096, now, false);
        assert_eq!(line.next(now + DUE.age, DUE), Some(vec![at(1, 4)]));
        line.dirty(at(1, 4), 4096, now, false);
        line.want(at(1, 4));
        assert_eq!(line.next(now, DUE), Some(vec![at(1, 4)]));
        (line.flying, line.aside) = (1, 1);
        assert_eq!(line.next(now, DUE), Some(vec![aside(3)]));
    }

    #[test]
    fn nothing_is_due_before_its_age_and_all_is_then() {
        let (mut line, start) = (Line::default(), Instant::now());
        for ino in 0..10 {
            line.dirty(at(1, ino), 4096, start, false);
        }
        assert_eq!(line.next(start + Duration::from_secs(4), DUE), None);
        assert_eq!(line.next(start + DUE.age, DUE).map(|batch| batch.len()), Some(10));
        assert_eq!(line.idle_for(start, DUE), None);
    }

    #[test]
    fn who_waits_is_served_first_and_takes_small_neighbours_along() {
        let (mut line, now) = (Line::default(), Instant::now());
        line.dirty(at(1, 1), 4096, now, false);
        line.dirty(at(1, 2), 4096, now, false);
        line.dirty(at(1, 3), 2 << 20, now, false);
        line.want(at(1, 1));
        assert_eq!(line.next(now, DUE), Some(vec![at(1, 1), at(1, 2)]));
        assert_eq!(line.next(now, DUE), None);
    }

    #[test]
    fn a_file_is_waited_for_before_its_writer_has_come_to_the_line() {
        let (mut line, now) = (Line::default(), Instant::now());
        line.want(at(1, 1));
        assert_eq!(line.next(now, DUE), Some(vec![at(1, 1)]));
        assert_eq!(line.next(now, DUE), None);
    }

    #[test]
    fn one_batch_at_a_time_is_for_those_who_wait() {
        let (mut line, now) = (Line::default(), Instant::now());
        line.flying = 3;
        line.dirty(at(1, 1), 70 << 20, now, true);
        assert_eq!(line.next(now, DUE), None);
        line.want(at(1, 1));
        assert_eq!(line.next(now, DUE), Some(vec![at(1, 1)]));
        line.dirty(at(1, 1), 70 << 20, now, true);
        line.flying = 2;
        assert_eq!(line.next(now, DUE), Some(vec![at(1, 1)]));
    }

    #[test]
    fn a_failure_stops_what_nobody_asked_for() {
        let (mut line, now) = (Line::default(), Instant::now());
        line.failed(now, None);
        line.dirty(at(1, 1), 70 << 20, now, true);
        assert_eq!(line.next(now, DUE), None);
        line.want(at(1, 1));
        assert_eq!(line.next(now, DUE), Some(vec![at(1, 1)]));
        line.dirty(at(1, 1), 70 << 20, now, true);
        line.succeeded();
        assert_eq!(line.next(now, DUE), Some(vec![at(1, 1)]));
    }

    #[test]
    fn under_pressure_every_directory_has_its_turn() {
        let (mut line, now) = (Line::default(), Instant::now());
        for directory in 1..4 {
            line.dirty(at(directory, 1), 64 << 20, now, false);
        }
        assert_eq!(line.next(now, DUE), Some(vec![at(1, 1)]));
        line.dirty(at(1, 1), 64 << 20, now, false);
        assert_eq!(line.next(now, DUE), Some(vec![at(2, 1)]));
        assert_eq!(line.next(now, DUE), Some(vec![at(3, 1)]));
    }
}
