//! Runs of one batch on their way into segments over the logs of members.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use forebay_format::{footer::RunEntry, row::Extent, run::Trial, stream};
use forebay_group::MemberId;
use forebay_protocol::{FileCommit, confined_in};
use forebay_types::PolicyId;

use super::{
    Members, WriteGroup,
    pool::{APPEND_MAX, AVOIDED_FOR, FULL, Filling, Lying, Used},
};
use crate::{
    ClientError,
    data::{
        Shared, Within, batch,
        file::Taken,
        runs::{Runs, extent},
    },
};

/// Raw bytes of one run at most: a member is not kept from others for longer.
const RUN_MAX: u32 = 1 << 20;
/// Bytes that are gathered before they are appended.
const GATHER: usize = 512 << 10;
/// A batch with more than this is a stream: its segments lie apart.
const STREAM: u64 = 4 << 20;
/// Segments that are opened at a time at most.
const OPENED: usize = 64;
/// Threads that append a stream at a time at most.
const HANDS: usize = 4;
/// An append that takes from this on has another thread begin: what takes time is the way to members or their disks, and other members may have nothing to do.
const SLOW: Duration = Duration::from_millis(30);
/// But not from this on: what is on its way is enough, and what others send waits behind it.
const ENOUGH: Duration = Duration::from_millis(500);
/// One that takes so long has a thread end that was added; another one may be added later.
const TOO_SLOW: Duration = Duration::from_secs(1);

/// To what a batch is bound.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct Bound {
    /// So many copies at least.
    pub(in crate::data) copies: u8,
    pub(in crate::data) within: Within,
    /// By which policy that is; none where it may be on any disk. What goes by another one has other segments.
    pub(in crate::data) policy: PolicyId,
}

/// A run that no member has yet: of which file of the batch, where in it, and its bytes.
struct Waiting {
    file: usize,
    offset: u64,
    entry: RunEntry,
    body: Bytes,
}

/// A run that is to be encoded: of which file of the batch, where in it, and its bytes.
type Raw<'a> = (usize, u64, Vec<&'a [u8]>);

/// The runs of a batch, in parts of about a segment, of which each is appended by one thread.
struct Work<'a> {
    parts: Vec<Vec<Raw<'a>>>,
    /// The part that is the next to be begun.
    next: AtomicUsize,
    /// Nothing is begun any more.
    stop: AtomicBool,
}

/// One batch on its way into segments. A stream's parts go to several at a time where appends take long.
pub(in crate::data) struct LanePacking<'a> {
    shared: &'a Shared,
    members: &'a dyn Members,
    session: u64,
    bound: Bound,
    place: Lying,
    taken: &'a [Taken],
    work: Work<'a>,
}

/// What one thread appends.
struct Hand<'a> {
    batch: &'a LanePacking<'a>,
    runs: Runs,
    group: Option<WriteGroup>,
    gathered: usize,
    waiting: Vec<Waiting>,
    placed: Vec<(usize, u64, Extent)>,
    used: Used,
    /// How long the last append took; for ever where a member asks to be given time.
    took: Duration,
    /// Since when one set after the other has failed it.
    failing: Option<Instant>,
}

/// What became of what one thread was to append: whether there was a set, and what it has appended.
type Appended = (Result<bool, ClientError>, Vec<(usize, u64, Extent)>, Used);

impl<'a> LanePacking<'a> {
    /// Appends the runs of a batch, to so many members at least each; those that may not be on all disks to segments that have nothing else. Returns what the owner is to be told of the files, and what was appended to. `None` where there is no set: the batch is to be put as
    /// objects, and nothing that was appended is named.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(in crate::data) fn pack(
        shared: &'a Shared,
        (session, bound): (u64, Bound),
        taken: &'a [Taken],
    ) -> Result<Option<(Vec<FileCommit>, Used)>, ClientError> {
        let Some(members) = &shared.options.members else { return Ok(None) };
        let Some(first) = taken.iter().find(|taken| taken.inline.is_none()) else { return Ok(None) };
        let bytes: u64 = taken.iter().map(|taken| taken.layer.cost()).sum();
        let parent = first.file.parent;
        let directory = if bound.within == Within::Any { parent } else { confined_in(parent) };
        let place = Lying { directory, stream: bytes > STREAM, policy: bound.policy };
        let work = Work::of(taken, place.stream, shared.block_size());
        LanePacking { shared, members: Arc::as_ref(members), session, bound, place, taken, work }.all()
    }

    fn all(&self) -> Result<Option<(Vec<FileCommit>, Used)>, ClientError> {
        let mut files: Vec<FileCommit> = self.taken.iter().map(batch::file_commit).collect();
        let (mut used, mut outcome) = (Used::default(), Ok(true));
        for (result, placed, appended) in self.by_hands() {
            for (file, offset, extent) in placed {
                files[file].extents.push((offset, extent));
            }
            used.add(appended);
            outcome = match (outcome, result) {
                (Err(error), _) | (Ok(_), Err(error)) => Err(error),
                (Ok(one), Ok(other)) => Ok(one && other),
            };
        }
        // Each hand has its own in order.
        files.iter_mut().for_each(|file| file.extents.sort_unstable_by_key(|(offset, _)| *offset));
        if let Ok(true) = outcome {
            return Ok(Some((files, used)));
        }
        self.shared.lanes.done(self.session, used);
        outcome.map(|_| None)
    }

    /// Appends all of it: by this thread, and by further ones where appends take long and there are parts left.
    fn by_hands(&self) -> Vec<Appended> {
        thread::scope(|scope| {
            let mut others: Vec<ScopedJoinHandle<'_, Appended>> = Vec::new();
            let mut help = |took: Duration| {
                // Those that have ended may be wanted again.
                let at_work = 1 + others.iter().filter(|hand| !hand.is_finished()).count();
                if (SLOW..ENOUGH).contains(&took) && at_work < HANDS && self.work.left() > 0 {
                    let hand = || Hand::of(self).go(&mut |took| took < TOO_SLOW);
                    // Without another thread it takes longer.
                    others.extend(thread::Builder::new().name("append".to_owned()).spawn_scoped(scope, hand));
                }
                true
            };
            let mut all = vec![Hand::of(self).go(&mut help)];
            let ended = others.into_iter().map(|hand| hand.join());
            all.extend(ended.map(|hand| hand.unwrap_or_else(|panic| std::panic::resume_unwind(panic))));
            all
        })
    }
}

impl<'a> Work<'a> {
    /// Small files stay together.
    fn of(taken: &'a [Taken], stream: bool, block_size: u64) -> Work<'a> {
        // Inside one block each.
        let cut = block_size.min(1 << block_size.trailing_zeros().min(RUN_MAX.trailing_zeros()));
        let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
        let stored = taken.iter().enumerate().filter(|(_, taken)| taken.inline.is_none());
        for (file, taken) in stored {
            for (offset, run) in taken.layer.runs(cut) {
                bytes += run.iter().map(|piece| piece.len() as u64).sum::<u64>();
                part.push((file, offset, run));
                if stream && bytes >= FULL {
                    parts.push(std::mem::take(&mut part));
                    bytes = 0;
                }
            }
        }
        if !part.is_empty() {
            parts.push(part);
        }
        Work { parts, next: AtomicUsize::new(0), stop: AtomicBool::new(false) }
    }

    /// The next part.
    fn take(&self) -> Option<&[Raw<'a>]> {
        if self.stop.load(Relaxed) {
            return None;
        }
        self.parts.get(self.next.fetch_add(1, Relaxed)).map(Vec::as_slice)
    }

    /// Parts that nobody has begun.
    fn left(&self) -> usize {
        self.parts.len().saturating_sub(self.next.load(Relaxed))
    }
}

impl<'a> Hand<'a> {
    fn of(batch: &'a LanePacking<'a>) -> Hand<'a> {
        Hand {
            batch,
            runs: Runs::default(),
            group: None,
            gathered: 0,
            waiting: Vec::new(),
            placed: Vec::new(),
            used: Used::default(),
            took: Duration::ZERO,
            failing: None,
        }
    }

    /// Appends one part after the other. It ends with the part in which `heard`, which hears what each append took, says so.
    fn go(mut self, heard: &mut dyn FnMut(Duration) -> bool) -> Appended {
        let outcome = self.append_parts(heard);
        if !matches!(outcome, Ok(true)) {
            self.batch.work.stop.store(true, Relaxed);
        }
        (outcome, self.placed, self.used)
    }

    fn append_parts(&mut self, heard: &mut dyn FnMut(Duration) -> bool) -> Result<bool, ClientError> {
        let mut goes_on = true;
        while goes_on && let Some(part) = self.batch.work.take() {
            let (mut trial, mut of) = (Trial::default(), None);
            for (file, offset, bytes) in part {
                if of.replace(*file) != Some(*file) {
                    trial = Trial::default();
                }
                let run = self.encode(*file, (*offset, bytes), &mut trial)?;
                let len = run.body.len() + stream::STREAM_HEAD_LEN;
                // What is gathered with it may be more than one append.
                if (self.gathered + len) as u64 > APPEND_MAX {
                    if !self.append()? {
                        return Ok(false);
                    }
                    goes_on &= heard(self.took);
                }
                self.gathered += len;
                self.waiting.push(run);
                if self.gathered >= GATHER {
                    if !self.append()? {
                        return Ok(false);
                    }
                    goes_on &= heard(self.took);
                }
            }
        }
        self.append()
    }

    fn encode(
        &mut self,
        file: usize,
        (offset, parts): (u64, &[&[u8]]),
        trial: &mut Trial,
    ) -> Result<Waiting, ClientError> {
        let LanePacking { shared, taken, .. } = *self.batch;
        let (entry, stored) = self.runs.encode(shared, taken[file].file.ino, (offset, parts), trial)?;
        let mut body = BytesMut::with_capacity(entry.stored_len as usize);
        stored.iter().for_each(|part| body.extend_from_slice(part));
        Ok(Waiting { file, offset, entry, body: body.freeze() })
    }

    /// Appends what waits, to one segment after the other until all of a set have it. Returns whether there was a set.
    fn append(&mut self) -> Result<bool, ClientError> {
        let LanePacking { shared, members, session, .. } = *self.batch;
        while !self.waiting.is_empty() {
            // Another one has failed: all of the batch goes elsewhere.
            if self.batch.work.stop.load(Relaxed) {
                return Ok(false);
            }
            let Some(mut filling) = self.segment()? else { return Ok(false) };
            let began = Instant::now();
            let Some(places) = self.append_to(&mut filling) else {
                self.used.ended.push(shared.lanes.end(members, session, filling));
                // In a large group those that failed first may be chosen again by now, and so without an end.
                if self.failing.get_or_insert(began).elapsed() >= AVOIDED_FOR {
                    return Ok(false);
                }
                continue;
            };
            self.failing = None;
            self.gathered = 0;
            let segment = filling.replication.segment();
            for (run, place) in self.waiting.drain(..).zip(places) {
                self.placed.push((run.file, run.offset, extent(&run.entry, segment, place)));
            }
            if filling.is_full() {
                self.used.ended.push(shared.lanes.end(members, session, filling));
            } else {
                self.used.open.push(filling);
            }
        }
        Ok(true)
    }

    /// The segment that this hand fills.
    fn segment(&mut self) -> Result<Option<Filling>, ClientError> {
        if let Some(open) = self.used.open.pop() {
            return Ok(Some(open));
        }
        let LanePacking { shared, session, bound, place, ref work, .. } = *self.batch;
        let mut given_none = None;
        loop {
            let group = shared.lanes.group(&shared.options.members, session, bound);
            // While the owner answered, a member of all that it gave may have failed another hand: there are others. Of the same ones it gives none.
            let Some(group) = group.filter(|group| given_none.as_ref() != Some(group)) else {
                return Ok(None);
            };
            let group = self.group.insert(group);
            let count = if place.stream { (work.left() + 1).min(OPENED) as u32 } else { 1 };
            let next = shared.lanes.next(shared.asks.as_ref(), (session, group), place, count)?;
            if next.is_some() {
                return Ok(next);
            }
            given_none = Some(group.clone());
        }
    }

    /// Appends all that waits as one, and waits for the set. Returns where each run is; `None` where a member failed.
    fn append_to(&mut self, filling: &mut Filling) -> Option<Vec<u64>> {
        let LanePacking { shared, members, session, .. } = *self.batch;
        let segment = filling.replication.segment();
        let (mut bytes, mut places) = (BytesMut::with_capacity(self.gathered), Vec::new());
        let start = filling.replication.end();
        for run in &self.waiting {
            let run_offset = start + (bytes.len() + stream::STREAM_HEAD_LEN) as u64;
            bytes.extend_from_slice(&stream::encode(segment, &RunEntry { run_offset, ..run.entry }));
            bytes.extend_from_slice(&run.body);
            places.push(run_offset);
        }
        let append = filling.replication.append(bytes.freeze());
        let set: Vec<MemberId> = filling.replication.set();
        let (mut pace, began) = (Duration::ZERO, Instant::now());
        let answers = members.append(&set, &append);
        self.took = began.elapsed();
        for (member, answer) in set.iter().zip(answers) {
            match answer {
                Ok(appended) => {
                    filling.replication.synced(*member, appended.end);
                    pace = pace.max(appended.pace);
                    if appended.draining {
                        filling.ends_soon();
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, %segment, "a member does not take what is written: others do, or the store");
                    shared.lanes.avoid(session, *member);
                }
            }
        }
        let all = filling.replication.acknowledged() == append.end();
        if all {
            filling.has_appended();
            let near = |member| self.group.as_ref().is_some_and(|group| group.near.contains(member));
            shared.counts.appended(append.bytes.len() as u64, set.iter().any(near));
        }
        if all && !pace.is_zero() {
            self.took = Duration::MAX;
            thread::sleep(pace.min(PACE_MAX));
        }
        all.then_some(places)
    }
}

/// How long a writer waits at most because a member says so.
const PACE_MAX: Duration = Duration::from_millis(100);
