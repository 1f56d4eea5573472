//! One pass over all that policies want of the volumes that are read through the group.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use forebay_cache::{CHUNK_BYTES, ObjectKey};
use forebay_group::{PieceKey, placement};
use forebay_object::ObjectError;
use forebay_protocol::{PolicyReport, PolicySums, WantedPlace, Wish};
use forebay_types::{Ino, PolicyId};
use rustc_hash::FxHashSet;

use super::{Acts, Passed, RATE, REQUEST, Shared, Until};
use crate::reads::VolumeNumber;

/// Chunks of which it is remembered that they were seen to in this pass: of more than these, one that is wanted for several files counts several times.
const SEEN_MAX: usize = 1 << 20;

/// What is to become of a range of whole chunks.
struct Part {
    key: ObjectKey,
    len: u64,
    range: Range<u64>,
}

/// A pass that is under way.
struct Pass<'a> {
    shared: &'a Shared,
    acts: &'a Acts,
    until: &'a Until,
    mark: u8,
    seen: FxHashSet<(ObjectKey, u64)>,
    /// What was found of the volume that it is at.
    sums: BTreeMap<PolicyId, PolicySums>,
    stopped: bool,
}

impl Shared {
    /// Goes through all of these volumes. What it finds is told with each question.
    pub(super) fn pass<'a>(
        &self,
        acts: &Acts,
        mark: u8,
        volumes: impl Iterator<Item = &'a String>,
        until: &Until,
    ) -> Passed {
        let (seen, sums) = (FxHashSet::default(), BTreeMap::new());
        let mut pass = Pass { shared: self, acts, until, mark, seen, sums, stopped: false };
        let mut passed = Passed { whole: true, ..Passed::default() };
        for volume in volumes {
            pass.sums.clear();
            let gone_through = pass.volume(volume);
            if let Err(why) = &gone_through {
                tracing::info!("what policies want of '{volume}' was not gone through: {why}");
            }
            passed.whole &= gone_through.is_ok();
            for sums in pass.sums.values() {
                passed.no_room += sums.no_room;
                passed.failed += sums.failed;
            }
            // What was found before counts until all is known anew.
            if gone_through.is_ok() {
                self.known.lock().entry(volume.clone()).or_default().report = Some(pass.report());
            }
        }
        if passed.whole {
            passed.unpinned = self.objects.unpin_others(mark);
        }
        passed
    }
}

impl Pass<'_> {
    /// What was found of the volume in this pass.
    fn report(&self) -> PolicyReport {
        let sums = self.sums.iter().map(|(policy, sums)| (*policy, sums.clone())).collect();
        PolicyReport { whole: true, sums }
    }

    /// What is said while it goes on: what the last pass found, but where this one has found more already.
    fn report_so_far(&self, volume: &str) -> PolicyReport {
        let last = self.shared.known.lock().get(volume).and_then(|known| known.report.clone());
        let mut whole = last.is_some();
        let mut all: BTreeMap<_, _> = last.into_iter().flat_map(|report| report.sums).collect();
        for (policy, sums) in &self.sums {
            if all.get(policy).is_none_or(|last| last.wanted < sums.wanted) {
                whole = false;
                all.insert(*policy, sums.clone());
            }
        }
        PolicyReport { whole, sums: all.into_iter().collect() }
    }

    fn volume(&mut self, volume: &str) -> Result<(), String> {
        let mut from = (Ino(0), 0);
        loop {
            let report = self.report_so_far(volume);
            let wanted = self.shared.ask(self.acts, volume, Some(from), Some(report))?;
            if !wanted.places.is_empty() {
                let number = self.shared.objects.volume(&wanted.volume)?;
                for place in &wanted.places {
                    self.see_to(number, place);
                    if self.stopped {
                        return Err("this proxy stops".to_owned());
                    }
                }
            }
            match wanted.next {
                // One that does not go on would never end.
                Some(next) if next <= from => return Err("its owner does not go on".to_owned()),
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    fn see_to(&mut self, number: VolumeNumber, wanted: &WantedPlace) {
        let Some(key) = number.key(wanted.place.object) else { return };
        let start = wanted.place.offset.saturating_add(wanted.from);
        let bytes = start..start.saturating_add(wanted.len);
        if wanted.wish == Wish::Nowhere {
            for range in self.unseen(key, &bytes, |_| true) {
                let dropped = self.shared.objects.expel(key, range);
                self.sums.entry(wanted.policy).or_default().dropped += dropped;
            }
            return;
        }
        let (active, own) = (&self.acts.active, self.shared.ids.1);
        // As clients ask: for a chunk by the segment that is wanted of it.
        let is_own = |chunk: u64| {
            let piece = PieceKey::of(wanted.segment, chunk.saturating_sub(wanted.place.offset));
            placement::first(piece, active) == Some(own)
        };
        for range in self.unseen(key, &bytes, is_own) {
            match self.shared.objects.length(key) {
                Ok(len) => {
                    let part = Part { key, len, range: range.start..range.end.min(len) };
                    self.keep(wanted, &part);
                }
                Err(error) => {
                    let sums = self.sums.entry(wanted.policy).or_default();
                    sums.wanted += range.end - range.start;
                    sums.failed += range.end - range.start;
                    sums.why = error.to_string();
                }
            }
        }
    }

    /// Those chunks of a range that were not seen to in this pass, in ranges of at most [`REQUEST`].
    fn unseen(
        &mut self,
        key: ObjectKey,
        bytes: &Range<u64>,
        is_own: impl Fn(u64) -> bool,
    ) -> Vec<Range<u64>> {
        let mut parts: Vec<Range<u64>> = Vec::new();
        let mut chunk = bytes.start - bytes.start % CHUNK_BYTES;
        while chunk < bytes.end {
            let next = chunk + CHUNK_BYTES;
            if is_own(chunk) && self.is_new(key, chunk) {
                match parts.last_mut() {
                    Some(last) if last.end == chunk && next - last.start <= REQUEST => last.end = next,
                    _ => parts.push(chunk..next),
                }
            }
            chunk = next;
        }
        parts
    }

    fn is_new(&mut self, key: ObjectKey, chunk: u64) -> bool {
        match self.seen.len() < SEEN_MAX {
            true => self.seen.insert((key, chunk)),
            false => !self.seen.contains(&(key, chunk)),
        }
    }

    /// Has chunks in the cache, and says what came of it.
    fn keep(&mut self, wanted: &WantedPlace, part: &Part) {
        let Part { key, len, range } = part;
        let (objects, mark) = (Arc::clone(&self.shared.objects), self.mark);
        let all = range.end.saturating_sub(range.start);
        let kept = match wanted.wish {
            Wish::Stay => {
                let here = objects.pin(*key, *len, range.clone(), mark);
                match here.missing_bytes() {
                    0 => Ok(here.stays),
                    missing => self
                        .paced(missing, || objects.pin_fetched(*key, *len, range.clone(), mark))
                        .map(|pinned| pinned.stays),
                }
            }
            _ => match objects.missing(*key, *len, range.clone()) {
                0 => Ok(all),
                missing => self
                    .paced(missing, || objects.warm(*key, *len, range.clone()))
                    .map(|warmed| all.saturating_sub(warmed.lost)),
            },
        };
        let sums = self.sums.entry(wanted.policy).or_default();
        sums.wanted += all;
        match kept {
            Ok(kept) => {
                sums.kept += kept;
                sums.no_room += all.saturating_sub(kept);
            }
            Err(error) => {
                let kept = all.saturating_sub(objects.missing(*key, *len, range.clone()));
                sums.kept += kept;
                sums.failed += all.saturating_sub(kept);
                sums.why = error.to_string();
            }
        }
    }

    /// Fetches so many bytes, and waits until as much time has passed as they may take at least.
    fn paced<T>(
        &mut self,
        bytes: u64,
        fetch: impl FnOnce() -> Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        let began = Instant::now();
        let fetched = fetch();
        let least = Duration::from_micros(bytes.saturating_mul(1_000_000) / RATE);
        self.stopped |= !self.until.wait(least.saturating_sub(began.elapsed()));
        fetched
    }
}
