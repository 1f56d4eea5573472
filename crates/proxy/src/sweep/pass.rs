//! One pass over all that policies want of the volumes that are read through the group.

use std::{
    collections::{BTreeMap, BTreeSet},
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

use super::{Acts, Passed, RATE, REQUEST, Shared, Until, Versions};
use crate::reads::VolumeNumber;

/// Chunks of which it is remembered that they were seen to in this pass: of more than these, one that is wanted for several files counts several times.
const SEEN_MAX: usize = 1 << 20;

/// Failures in a row after which a store is left alone for the rest of a pass: each may have taken the ten seconds that a read waits.
const GIVE_UP_AFTER: u32 = 3;

/// Why a volume was not gone through.
enum Left {
    /// In words: another pass may find it.
    Failed(String),
    /// No other volume is, either.
    Cut(Cut),
}

/// Why a pass ends before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// This proxy stops.
    Stopped,
    /// Policies have changed, or the volumes: by what was wanted before nothing more is to be done.
    News,
}

/// What a store has answered in this pass.
#[derive(Default)]
struct Heard {
    /// Failures in a row.
    failed: u32,
    why: String,
}

impl Heard {
    /// Why the store is not asked any more.
    fn given_up(&self) -> Option<String> {
        (self.failed >= GIVE_UP_AFTER).then(|| self.why.clone())
    }

    fn note<T>(&mut self, answer: Result<T, ObjectError>) -> Result<T, String> {
        match answer {
            Ok(answer) => {
                self.failed = 0;
                Ok(answer)
            }
            Err(error) => {
                // That an object is gone says nothing of others.
                self.failed = if error.is_answer() { 0 } else { self.failed + 1 };
                self.why = error.to_string();
                Err(self.why.clone())
            }
        }
    }
}

/// What is to become of a range of whole chunks.
struct Part {
    key: ObjectKey,
    len: u64,
    range: Range<u64>,
}

/// What is seen to while a volume is gone through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Walk {
    /// Bytes that are to be on no disk here: they are dropped.
    Drops,
    /// Bytes that are to be here: they are fetched and pinned.
    Fetches,
}

/// A pass that is under way.
struct Pass<'a> {
    shared: &'a Shared,
    acts: &'a Acts,
    until: &'a Until,
    mark: u8,
    /// The volumes with the versions of their policies, as they were when it began; whether it ends where they are others; and when that was asked last.
    goes_by: &'a Versions,
    heeds_news: bool,
    asked: Instant,
    seen: FxHashSet<(ObjectKey, u64)>,
    /// The volume that it is at, for what, whether any of it is to be here, what was found of it, and of its store.
    volume: &'a str,
    walk: Walk,
    fetches: bool,
    sums: BTreeMap<PolicyId, PolicySums>,
    store: Heard,
}

impl Shared {
    /// Goes through all of these volumes. What it finds is told with each question. Where policies have changed meanwhile it ends, if it is to heed that.
    pub(super) fn pass(
        &self,
        acts: &Acts,
        mark: u8,
        (goes_by, heeds_news): (&Versions, bool),
        until: &Until,
    ) -> Passed {
        let mut pass = Pass {
            shared: self,
            acts,
            until,
            mark,
            goes_by,
            heeds_news,
            asked: Instant::now(),
            seen: FxHashSet::default(),
            volume: "",
            walk: Walk::Drops,
            fetches: false,
            sums: BTreeMap::new(),
            store: Heard::default(),
        };
        let mut passed = Passed { whole: true, ..Passed::default() };
        match pass.go_through_all(&mut passed) {
            // Of what is wanted there nothing is known: its pins stay, and nobody else's for its sake.
            Ok(unknown) => passed.unpinned = self.objects.unpin_others(mark, &unknown),
            Err(left) => (passed.whole, passed.news) = (false, left == Cut::News),
        }
        passed
    }

    /// By which number a volume goes here, if it has one and its owner has ever said which it is.
    fn number(&self, volume: &str) -> Option<VolumeNumber> {
        let id = self.known.lock().get(volume).and_then(|known| known.id)?;
        self.objects.number(id)
    }
}

impl<'a> Pass<'a> {
    /// Drops of all volumes what is not to be here, and then fetches what is: that may take hours, for which nothing stays that must not be here. Returns those volumes of which it is not known
    /// what is wanted.
    fn go_through_all(&mut self, passed: &mut Passed) -> Result<BTreeSet<VolumeNumber>, Cut> {
        let (mut unknown, mut to_fetch) = (BTreeSet::new(), Vec::new());
        let volumes = self.goes_by.keys();
        for volume in volumes {
            if self.walk(volume, (Walk::Drops, BTreeMap::new()))? {
                to_fetch.push((volume, self.fetches, std::mem::take(&mut self.sums)));
            } else {
                passed.whole = false;
                unknown.extend(self.shared.number(volume));
            }
        }
        for (volume, fetches, dropped) in to_fetch {
            let walked = match fetches {
                true => self.walk(volume, (Walk::Fetches, dropped)),
                false => {
                    (self.volume, self.sums) = (volume, dropped);
                    Ok(true)
                }
            };
            for sums in self.sums.values() {
                passed.no_room += sums.no_room;
                passed.failed += sums.failed;
            }
            if walked? {
                // What was found before counts until all is known anew.
                let report = Some(self.report());
                self.shared.known.lock().entry(volume.clone()).or_default().report = report;
            } else {
                passed.whole = false;
                unknown.extend(self.shared.number(volume));
            }
        }
        Ok(unknown)
    }

    /// Goes through a volume for something, on top of what was found of it before. Whether every page came.
    fn walk(
        &mut self,
        volume: &'a str,
        (walk, sums): (Walk, BTreeMap<PolicyId, PolicySums>),
    ) -> Result<bool, Cut> {
        (self.volume, self.walk, self.sums, self.store) = (volume, walk, sums, Heard::default());
        self.fetches = false;
        match self.go_through() {
            Ok(()) => Ok(true),
            Err(Left::Failed(why)) => {
                tracing::info!("what policies want of '{volume}' was not gone through: {why}");
                Ok(false)
            }
            Err(Left::Cut(cut)) => Err(cut),
        }
    }

    /// What was found of the volume in this pass.
    fn report(&self) -> PolicyReport {
        let sums = self.sums.iter().map(|(policy, sums)| (*policy, sums.clone())).collect();
        PolicyReport { whole: true, sums }
    }

    /// What is said while it goes on: what the last pass found, but where this one has found more already.
    fn report_so_far(&self) -> PolicyReport {
        let last = self.shared.known.lock().get(self.volume).and_then(|known| known.report.clone());
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

    /// Looks now and then whether to go on: between one request to a store and the next.
    fn go_on(&mut self) -> Result<(), Left> {
        if !self.until.goes_on() {
            return Err(Left::Cut(Cut::Stopped));
        }
        if self.asked.elapsed() < self.shared.pace.ask_every {
            return Ok(());
        }
        let so_far = (self.volume, self.report_so_far());
        let now = self.shared.versions(self.acts, Some(so_far));
        self.asked = Instant::now();
        // Who does not answer has no news.
        match now.is_ok_and(|(now, _)| now != *self.goes_by) && self.heeds_news {
            true => Err(Left::Cut(Cut::News)),
            false => Ok(()),
        }
    }

    fn go_through(&mut self) -> Result<(), Left> {
        let mut from = (Ino(0), 0);
        loop {
            self.go_on()?;
            let report = self.report_so_far();
            let wanted = self.shared.ask(self.acts, self.volume, Some(from), Some(report));
            let wanted = wanted.map_err(Left::Failed)?;
            let known = self.goes_by.get(self.volume).copied().flatten();
            if known.is_some_and(|version| version != wanted.version) && self.heeds_news {
                return Err(Left::Cut(Cut::News));
            }
            if !wanted.places.is_empty() {
                let number = self.shared.objects.volume(&wanted.volume).map_err(Left::Failed)?;
                wanted.places.iter().try_for_each(|place| self.see_to(number, place))?;
            }
            match wanted.next {
                // One that does not go on would never end.
                Some(next) if next <= from => {
                    return Err(Left::Failed("its owner does not go on".to_owned()));
                }
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    fn see_to(&mut self, number: VolumeNumber, wanted: &WantedPlace) -> Result<(), Left> {
        let Some(key) = number.key(wanted.place.object) else { return Ok(()) };
        let start = wanted.place.offset.saturating_add(wanted.from);
        let bytes = start..start.saturating_add(wanted.len);
        let to_be_here = wanted.wish != Wish::Nowhere;
        self.fetches |= to_be_here;
        if to_be_here != (self.walk == Walk::Fetches) {
            return Ok(());
        }
        if !to_be_here {
            for range in self.unseen(key, &bytes, |_| true) {
                self.go_on()?;
                let dropped = self.shared.objects.expel(key, range);
                self.sums.entry(wanted.policy).or_default().dropped += dropped;
            }
            return Ok(());
        }
        let (active, own) = (&self.acts.active, self.shared.ids.1);
        // As clients ask: for a chunk by the segment that is wanted of it.
        let is_own = |chunk: u64| {
            let piece = PieceKey::of(wanted.segment, chunk.saturating_sub(wanted.place.offset));
            placement::first(piece, active) == Some(own)
        };
        for range in self.unseen(key, &bytes, is_own) {
            self.go_on()?;
            match self.length(key) {
                Ok(len) => {
                    let part = Part { key, len, range: range.start..range.end.min(len) };
                    self.keep(wanted, &part);
                }
                Err(why) => {
                    let all = range.end - range.start;
                    let kept = match wanted.wish {
                        Wish::Stay => self.shared.objects.pin_again(key, range, self.mark),
                        Wish::Near | Wish::Nowhere => 0,
                    };
                    let sums = self.sums.entry(wanted.policy).or_default();
                    sums.wanted += all;
                    sums.kept += kept;
                    sums.failed += all.saturating_sub(kept);
                    sums.why = why;
                }
            }
        }
        Ok(())
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
            Err(why) => {
                let kept = all.saturating_sub(objects.missing(*key, *len, range.clone()));
                sums.kept += kept;
                sums.failed += all.saturating_sub(kept);
                sums.why = why;
            }
        }
    }

    /// The length of an object, which is asked for where it is not known.
    fn length(&mut self, key: ObjectKey) -> Result<u64, String> {
        match (self.shared.objects.known_length(key), self.store.given_up()) {
            (Some(len), _) => Ok(len),
            (None, Some(why)) => Err(why),
            (None, None) => self.store.note(self.shared.objects.length(key)),
        }
    }

    /// Fetches so many bytes, unless the store is left alone, and waits until as much time has passed as they may take at least, or this proxy stops.
    fn paced<T>(&mut self, bytes: u64, fetch: impl FnOnce() -> Result<T, ObjectError>) -> Result<T, String> {
        if let Some(why) = self.store.given_up() {
            return Err(why);
        }
        let began = Instant::now();
        let fetched = self.store.note(fetch());
        let least = Duration::from_micros(bytes.saturating_mul(1_000_000) / RATE);
        self.until.wait(least.saturating_sub(began.elapsed()));
        fetched
    }
}
