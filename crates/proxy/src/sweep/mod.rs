//! Keeps in this member's cache what policies want there, and nothing that they do not (`docs/design/policies.md`).
//!
//! Guarantees: what a whole pass found to be pinned, and had room for, does not leave the cache before a later whole pass finds that it is not wanted; a pass in which an owner
//! did not answer unpins nothing of its volume; at most one request to a store is under way, of [`REQUEST`] bytes, and at most [`RATE`] bytes come in a second. Relies on the
//! cache: what is in it is no more than a copy of what the store has.

mod pass;
mod servers;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use forebay_group::{Candidate, GroupId, Incarnation, MemberId, ViewEpoch};
use forebay_protocol::{PolicyReport, PolicySums, PolicyVersion, Wanted, WantedOf};
use forebay_types::VolumeId;
use parking_lot::Mutex;

use crate::reads::{Objects, VolumeNumber};

pub(crate) use servers::Servers;

/// Bytes of one request to a store.
const REQUEST: u64 = 8 << 20;
/// Bytes that are fetched in a second at most.
const RATE: u64 = 64 << 20;
/// How often it is looked whether this member is in its group.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After so many passes in a row that ended because policies had changed, one goes on to its end.
const CUT_SHORT_MAX: u32 = 2;
/// An owner that did not answer is left alone for so many times as long as that took, and for so long at most: others wait for their turn meanwhile.
const SILENT: (u32, Duration) = (10, Duration::from_secs(60));
/// The pause after a pass is this many times what it took, within the bounds of [`Pace`]; once, if something failed.
const PAUSE_SHARE: u32 = 20;

/// How often things are done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How often owners are asked whether anything has changed.
    pub(crate) ask_every: Duration,
    /// The shortest and the longest pause after a pass.
    pub(crate) pause: (Duration, Duration),
    /// How long a view stands before a pass is made for it, and for how long a volume is not read through the group before what is here of it is dropped.
    pub(crate) view_stands: Duration,
    /// For how many times as long as an owner did not answer it is left alone, and for how long at most.
    pub(crate) silent: (u32, Duration),
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            ask_every: Duration::from_secs(10),
            pause: (Duration::from_secs(60), Duration::from_secs(3600)),
            view_stands: Duration::from_secs(60),
            silent: SILENT,
        }
    }
}

/// As what this member acts, and with whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acts {
    pub(crate) incarnation: Incarnation,
    pub(crate) view: ViewEpoch,
    /// Who is asked for pieces.
    pub(crate) active: Vec<Candidate>,
}

/// Whom a sweep asks. Errors are words.
pub(crate) trait Asks: Send + Sync {
    /// As what this member acts; `None` while it is not in its group.
    fn acts(&self) -> Option<Acts>;

    /// The volumes that are read through the group.
    fn volumes(&self) -> Result<Vec<String>, String>;

    /// What the owner of a volume wants.
    fn wanted(&self, of: &WantedOf) -> Result<Wanted, String>;
}

/// The volumes that are read through the group, with the versions of their policies, as far as they are known.
type Versions = BTreeMap<String, Option<PolicyVersion>>;

/// What is known of a volume.
#[derive(Clone, Default, Debug)]
struct Known {
    id: Option<VolumeId>,
    version: Option<PolicyVersion>,
    report: Option<PolicyReport>,
    /// Until when its owner is left alone, and what it did instead of answering.
    silent: Option<(Instant, String)>,
}

/// What a sweep has around it.
struct Shared {
    ids: (GroupId, MemberId),
    asks: Box<dyn Asks>,
    objects: Arc<Objects>,
    pace: Pace,
    known: Mutex<BTreeMap<String, Known>>,
}

/// The thread that sweeps.
pub(crate) struct Sweeper {
    shared: Arc<Shared>,
    until: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    /// Begins.
    ///
    /// # Errors
    /// When there can be no thread.
    pub(crate) fn start(
        ids: (GroupId, MemberId),
        asks: Box<dyn Asks>,
        objects: Arc<Objects>,
        pace: Pace,
    ) -> std::io::Result<Sweeper> {
        let shared = Arc::new(Shared { ids, asks, objects, pace, known: Mutex::default() });
        let (until, ended) = mpsc::channel();
        let running = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("fb-sweep".to_owned());
        let thread = thread.spawn(move || Rounds::default().run(&running, &Until(ended)))?;
        Ok(Sweeper { shared, until: Some(until), thread: Some(thread) })
    }

    /// What is counted, asked whenever somebody wants to know.
    pub(crate) fn counted(&self) -> Counted {
        Counted(Arc::clone(&self.shared))
    }

    /// Ends, once what is being fetched is there, 8 MiB at most, or a question is answered.
    pub(crate) fn stop(&mut self) {
        drop(self.until.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that sees to policies panicked");
        }
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a sweep has found the last time.
#[derive(Clone)]
pub(crate) struct Counted(Arc<Shared>);

impl Counted {
    /// Of all volumes and policies together.
    pub(crate) fn sums(&self) -> PolicySums {
        let mut all = PolicySums::default();
        for known in self.0.known.lock().values() {
            for (_, sums) in known.report.iter().flat_map(|report| &report.sums) {
                all.wanted += sums.wanted;
                all.kept += sums.kept;
                all.no_room += sums.no_room;
                all.failed += sums.failed;
                all.dropped += sums.dropped;
            }
        }
        all
    }
}

/// Ends when its other end is dropped.
struct Until(mpsc::Receiver<()>);

impl Until {
    /// Waits, or as long as it goes on. Whether it goes on.
    fn wait(&self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout)
    }

    fn goes_on(&self) -> bool {
        self.wait(Duration::ZERO)
    }
}

/// What came of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Passed {
    /// Whether every page of every volume came.
    whole: bool,
    /// Whether it ended because policies have changed.
    news: bool,
    unpinned: u64,
    no_room: u64,
    failed: u64,
}

/// When passes are made.
#[derive(Default)]
struct Rounds {
    /// The mark of the last pass.
    mark: u8,
    /// By what the last pass went: the volumes with their versions, and the view.
    went_by: Option<(Versions, ViewEpoch)>,
    /// When the next one is due, if nothing changes.
    next: Option<Instant>,
    /// The last pass made room for what had none, so the one after it came at once.
    made_room: bool,
    /// So many passes in a row ended because policies had changed.
    cut_short: u32,
    /// A view that is not that of the last pass, and since when.
    view: Option<(ViewEpoch, Instant)>,
    /// Volumes of which something may be here and that are not read through the group, as far as that is seen, and since when, or since it was dropped.
    left: BTreeMap<VolumeNumber, Instant>,
    said: String,
}

impl Rounds {
    fn run(mut self, shared: &Shared, until: &Until) {
        loop {
            let acts = shared.asks.acts();
            if let Some(acts) = &acts
                && let Err(why) = self.round(shared, acts, until)
                && self.said != why
            {
                tracing::warn!("what policies want in this cache is not known: {why}");
                self.said = why;
            }
            let pause = if acts.is_some() { shared.pace.ask_every } else { LOOK_EVERY };
            if !until.wait(pause) {
                return;
            }
        }
    }

    /// Asks whether anything has changed, and makes a pass if one is due.
    fn round(&mut self, shared: &Shared, acts: &Acts, until: &Until) -> Result<(), String> {
        let (versions, failure) = shared.versions(acts, None)?;
        self.drop_left(shared);
        if self.is_due(shared, acts, &versions) {
            let began = Instant::now();
            self.mark = if self.mark == u8::MAX { 1 } else { self.mark + 1 };
            // Where policies change all the time, what stands at the end would never be seen to: then one goes on to its end, and the next one goes by what is new.
            let heeds_news = self.cut_short < CUT_SHORT_MAX;
            let passed = shared.pass(acts, self.mark, (&versions, heeds_news), until);
            self.cut_short = if passed.news { self.cut_short + 1 } else { 0 };
            self.went_by = Some((versions, acts.view));
            self.next = Some(Instant::now() + self.pause(shared, passed, began.elapsed()));
        }
        failure.map_or_else(
            || {
                self.said.clear();
                Ok(())
            },
            Err,
        )
    }

    /// Drops what is here of volumes that are not read through the group any more: nobody asks for it, and nobody says whether it may be here.
    fn drop_left(&mut self, shared: &Shared) {
        let read: Option<BTreeSet<VolumeId>> = shared.known.lock().values().map(|known| known.id).collect();
        // Of one whose owner has not yet said which it is, it may be.
        let Some(read) = read else { return };
        let (now, others) = (Instant::now(), shared.objects.others(&read));
        self.left.retain(|volume, _| others.contains(volume));
        let mut due = BTreeSet::new();
        for volume in others {
            let since = self.left.entry(volume).or_insert(now);
            if now.duration_since(*since) >= shared.pace.view_stands {
                // Somebody who was let in before may fetch more of it: it is looked at again.
                *since = now;
                due.insert(volume);
            }
        }
        let dropped = if due.is_empty() { 0 } else { shared.objects.expel_volumes(&due) };
        if dropped > 0 {
            tracing::info!(
                bytes = dropped,
                "what was here of volumes that are read through this group no longer is dropped"
            );
        }
    }

    fn pause(&mut self, shared: &Shared, passed: Passed, took: Duration) -> Duration {
        let (least, most) = shared.pace.pause;
        // What was unpinned may make room for what had none. Where files are replaced all the time, every pass does: one without a pause after each that has one.
        self.made_room = passed.unpinned > 0 && passed.no_room > 0 && !self.made_room;
        match passed {
            _ if self.made_room => Duration::ZERO,
            Passed { whole: true, failed: 0, .. } => (took * PAUSE_SHARE).clamp(least, most),
            _ => took.clamp(least, most),
        }
    }

    fn is_due(&mut self, shared: &Shared, acts: &Acts, versions: &Versions) -> bool {
        let Some((went_by, view)) = &self.went_by else { return true };
        let now = Instant::now();
        if *view == acts.view {
            self.view = None;
        } else if self.view.is_none_or(|(epoch, _)| epoch != acts.view) {
            self.view = Some((acts.view, now));
        }
        let stands = self.view.is_some_and(|(_, since)| now.duration_since(since) >= shared.pace.view_stands);
        went_by != versions || stands || self.next.is_none_or(|next| now >= next)
    }
}

impl Shared {
    /// Asks which volumes there are, and the owner of each for the version of its policies; tells what was found of them, of one so far. Where an owner does not say it, it is no other one as
    /// far as is known; the second is why.
    fn versions(
        &self,
        acts: &Acts,
        so_far: Option<(&str, PolicyReport)>,
    ) -> Result<(Versions, Option<String>), String> {
        let names = self.asks.volumes()?;
        self.known.lock().retain(|name, _| names.contains(name));
        let (mut versions, mut failure) = (Versions::new(), None);
        for name in names {
            let last = self.known.lock().get(&name).and_then(|known| known.report.clone());
            let so_far = so_far.as_ref().filter(|(at, _)| *at == name);
            let report = so_far.map(|(_, report)| report.clone()).or(last);
            self.known.lock().entry(name.clone()).or_default();
            let answer = self.ask(acts, &name, None, report);
            let mut all = self.known.lock();
            let known = all.entry(name.clone()).or_default();
            match answer {
                Ok(Wanted { volume, version, .. }) => {
                    (known.id, known.version) = (Some(volume.id), Some(version));
                }
                Err(why) => failure = Some(why),
            }
            versions.insert(name, known.version);
        }
        Ok((versions, failure))
    }

    fn ask(
        &self,
        acts: &Acts,
        volume: &str,
        from: Option<(forebay_types::Ino, u64)>,
        report: Option<PolicyReport>,
    ) -> Result<Wanted, String> {
        if let Some(why) = self.is_silent(volume) {
            return Err(why);
        }
        let ((group, member), incarnation) = (self.ids, acts.incarnation);
        let of = WantedOf { volume: volume.to_owned(), group, member, incarnation, from, report };
        let began = Instant::now();
        let answer = self.asks.wanted(&of);
        if let Some(known) = self.known.lock().get_mut(volume) {
            let (times, most) = self.pace.silent;
            let until = Instant::now() + began.elapsed().saturating_mul(times).min(most);
            known.silent = answer.as_ref().err().map(|why| (until, why.clone()));
        }
        answer
    }

    /// Why the owner of a volume is not asked now.
    fn is_silent(&self, volume: &str) -> Option<String> {
        let known = self.known.lock();
        let (until, why) = known.get(volume)?.silent.as_ref()?;
        (Instant::now() < *until).then(|| why.clone())
    }
}
