//! Segments that were opened: those to be filled, those that are being filled and rest between batches, and what the owner is to be told of others.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use forebay_group::{Closed, MemberId, Replication};
use forebay_protocol::{Answer, OpenSegments, OpenedSegment, Operation, Placing, SealedSegment, Settle};
use forebay_types::{Ino, PolicyId, SegmentId, SyncClass, limits::LANE_SEGMENT_MAX};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use super::{Bound, Members, WriteGroup};
use crate::{Asks, ClientError, data::SharedMembers};

/// How long a segment stays open.
const OPEN_FOR: Duration = Duration::from_secs(5);
/// How long a member is avoided that failed.
pub(super) const AVOIDED_FOR: Duration = Duration::from_secs(10);
/// How often segments are looked after while there are any.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Bytes of one append at most, heads and tables of frames included.
pub(super) const APPEND_MAX: u64 = (1 << 20) + (64 << 10);
/// From here on a segment takes no more.
pub(super) const FULL: u64 = LANE_SEGMENT_MAX - APPEND_MAX;
/// Bytes of a large append.
const LARGE: u64 = 256 << 10;
/// Segments that are told to the owner at a time.
const TOLD: usize = 1024;

/// A segment that is being filled, by one batch at a time.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) replication: Replication,
    place: Lying,
    since: Instant,
    /// Appends that all of its set have.
    appends: u32,
    /// A member is being drained.
    ends: bool,
}

/// For what a segment was opened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Lying {
    /// The directory, as it is named to the owner ([`forebay_protocol::confined_in`]).
    pub(super) directory: Ino,
    /// Whether it is a stream's.
    pub(super) stream: bool,
    /// By which policy its bytes may not be on all disks; none where they may.
    pub(super) policy: PolicyId,
}

#[derive(Debug, Default)]
struct Pool {
    /// Of which session all this is.
    session: u64,
    /// Opened, and empty, and since when.
    stock: VecDeque<(Lying, OpenedSegment, Instant)>,
    resting: Vec<Filling>,
    /// To be told: closed ones, and those that no request names any more.
    closed: Vec<SealedSegment>,
    settled: Vec<SegmentId>,
    avoided: BTreeMap<MemberId, Instant>,
    /// Where large appends have filled a segment while it was open, and when the last one was.
    filled: FxHashMap<Lying, Instant>,
    /// How often segments were asked for with a member of this machine.
    turns: usize,
}

/// What a batch has appended to.
#[derive(Debug, Default)]
pub(in crate::data) struct Used {
    pub(super) open: Vec<Filling>,
    /// Those that it has ended: full, or given up in the middle.
    pub(super) ended: Vec<SegmentId>,
}

impl Used {
    pub(super) fn add(&mut self, other: Used) {
        self.open.extend(other.open);
        self.ended.extend(other.ended);
    }
}

/// The segments of this client.
#[derive(Debug, Default)]
pub(in crate::data) struct Lanes {
    pool: Mutex<Pool>,
    /// There may be something to look after.
    filled: Condvar,
    /// Nobody is to look after them any more; set under the pool's lock.
    stop: AtomicBool,
    stopped: Condvar,
    /// Held while the owner is told of segments: an order of its own.
    telling: Mutex<()>,
}

impl Pool {
    /// What is of a former session is for the owner to recover: `None` where this is one.
    fn of(&mut self, session: u64) -> Option<&mut Pool> {
        if session < self.session {
            return None;
        }
        if session > self.session {
            *self = Pool { session, ..Pool::default() };
        }
        self.avoided.retain(|_, since| since.elapsed() < AVOIDED_FOR);
        self.filled.retain(|_, last| last.elapsed() < OPEN_FOR);
        Some(self)
    }

    fn avoids(&self, set: &[MemberId]) -> bool {
        set.iter().any(|member| self.avoided.contains_key(member))
    }

    /// Whether segments of a place are filled so fast that they need no company. They lie apart then, so that one directory does not keep two members busy and the rest idle.
    fn is_filled(&self, place: Lying) -> bool {
        self.filled.contains_key(&place)
    }

    /// The member of this machine whose turn it is, one disk after the other.
    fn next_near(&mut self, near: &[MemberId]) -> Option<MemberId> {
        let chosen = near.get(self.turns % near.len().max(1)).copied();
        self.turns = self.turns.wrapping_add(1);
        chosen
    }

    /// Ends a segment: the owner is to be told.
    fn close(&mut self, filling: Filling) -> (Vec<MemberId>, SealedSegment) {
        let Closed { segment, epoch, set, len, check } = filling.replication.close();
        let sealed = SealedSegment { segment, epoch, len, check };
        self.closed.push(sealed);
        (set, sealed)
    }

    /// Ends those that were open for long, empty or not, or cannot be filled any more, or `all`. Nothing names them that is still to come.
    fn end_old(&mut self, all: bool) -> Vec<(Vec<MemberId>, SealedSegment)> {
        let over = |one: &mut Filling| all || one.since.elapsed() >= OPEN_FOR;
        let mut ended: Vec<Filling> = self.resting.extract_if(.., over).collect();
        for (place, opened, since) in std::mem::take(&mut self.stock) {
            if all || since.elapsed() >= OPEN_FOR || self.avoids(&opened.set) {
                ended.push(filling(place, opened));
            } else {
                self.stock.push_back((place, opened, since));
            }
        }
        self.settled.extend(ended.iter().map(|one| one.replication.segment()));
        ended.into_iter().map(|one| self.close(one)).collect()
    }

    /// What the owner is to be told, some of it: what is settled is sealed, by this or before.
    fn take_told(&mut self) -> Settle {
        let sealed: Vec<_> = self.closed.drain(..self.closed.len().min(TOLD)).collect();
        let waits = |segment: &SegmentId| self.closed.iter().any(|closed| closed.segment == *segment);
        let (mut later, mut settled): (Vec<_>, Vec<_>) = self.settled.drain(..).partition(waits);
        later.extend(settled.split_off(settled.len().min(TOLD)));
        self.settled = later;
        Settle { sealed, settled }
    }

    fn is_idle(&self) -> bool {
        self.stock.is_empty() && self.resting.is_empty() && self.closed.is_empty() && self.settled.is_empty()
    }
}

impl Lanes {
    /// The group to write over as bytes are bound, without members that failed lately; for one copy alone, with those of this machine. `None` where there
    /// are fewer than copies: objects are put.
    pub(in crate::data) fn group(
        &self,
        members: &SharedMembers,
        session: u64,
        bound: Bound,
    ) -> Option<WriteGroup> {
        let mut group = takers(members, bound)?;
        let mut pool = self.pool.lock();
        let pool = pool.of(session)?;
        group.members.retain(|member| !pool.avoided.contains_key(&member.id));
        group.near.retain(|near| group.members.iter().any(|member| member.id == *near));
        (group.members.len() >= usize::from(group.copies.max(1))).then_some(group)
    }

    /// Whether there is a set for so many copies once those take something again that failed lately.
    pub(in crate::data) fn may_have_set(members: &SharedMembers, bound: Bound) -> bool {
        takers(members, bound).is_some_and(|group| group.members.len() >= usize::from(group.copies.max(1)))
    }

    /// A member failed: it gets nothing new for a while.
    pub(super) fn avoid(&self, session: u64, member: MemberId) {
        if let Some(pool) = self.pool.lock().of(session) {
            pool.avoided.insert(member, Instant::now());
        }
    }

    /// A segment to be filled. `None` where the owner gives none with the members that are left.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(super) fn next(
        &self,
        asks: &dyn Asks,
        (session, group): (u64, &WriteGroup),
        place: Lying,
        count: u32,
    ) -> Result<Option<Filling>, ClientError> {
        if let Some(filling) = self.known(session, group, place) {
            return Ok(Some(filling));
        }
        let WriteGroup { group, copies, members, near } = group.clone();
        let (apart, near) = {
            let mut pool = self.pool.lock();
            let pool = pool.of(session).ok_or(ClientError::SessionEnded)?;
            (place.stream || pool.is_filled(place), pool.next_near(&near))
        };
        let known: Vec<MemberId> = members.iter().map(|member| member.id).collect();
        let placing = Placing::Best { members, copies, near };
        let open = OpenSegments { directory: place.directory, apart, count, group, placing };
        let opened = match asks.ask_in(session, Operation::OpenSegments(open), None)?.answer {
            Answer::Opened(opened) => opened,
            // The directory is gone, or there are too many already: the store takes it.
            Answer::Failed(failure) => {
                tracing::debug!(?failure, "no segments over the logs of members are opened");
                return Ok(None);
            }
            other => return Err(ClientError::Unexpected(format!("{other:?} to a request for segments"))),
        };
        let chosen = self.fill(session, |pool| {
            pool.stock.extend(opened.into_iter().map(|opened| (place, opened, Instant::now())));
            // There may be others that were opened for fewer copies.
            let asked = |set: &[MemberId]| set.iter().all(|member| known.contains(member));
            let takes =
                |set: &[MemberId]| set.len() == usize::from(copies) && asked(set) && !pool.avoids(set);
            let at = pool.stock.iter().position(|(of, opened, _)| *of == place && takes(&opened.set));
            at.and_then(|at| pool.stock.remove(at)).map(|(_, opened, _)| filling(place, opened))
        });
        chosen.ok_or(ClientError::SessionEnded)
    }

    /// Puts something into the pool, if this is no former session, and wakes who looks after it.
    fn fill<R>(&self, session: u64, work: impl FnOnce(&mut Pool) -> R) -> Option<R> {
        let done = self.pool.lock().of(session).map(work);
        self.filled.notify_one();
        done
    }

    /// One that rests or was opened before, of members that may still be chosen.
    fn known(&self, session: u64, group: &WriteGroup, place: Lying) -> Option<Filling> {
        let mut pool = self.pool.lock();
        let pool = pool.of(session)?;
        // How many copies there are to be may have changed since.
        let enough = |set: &[MemberId]| set.len() == usize::from(group.copies);
        let knows = |member: &MemberId| group.members.iter().any(|known| known.id == *member);
        let takes = |set: &[MemberId]| enough(set) && set.iter().all(knows);
        let at = pool.resting.iter().position(|one| one.place == place && takes(&one.replication.set()));
        if let Some(at) = at {
            return Some(pool.resting.swap_remove(at));
        }
        let at = pool.stock.iter().position(|(of, opened, _)| *of == place && takes(&opened.set))?;
        pool.stock.remove(at).map(|(_, opened, _)| filling(place, opened))
    }

    /// A batch ends a segment at what all of its set have: it is full, or given up. Members may put it from then on, long before the batch is committed; it stays whatever is in use of it
    /// until it is settled.
    pub(super) fn end(&self, members: &dyn Members, session: u64, filling: Filling) -> SegmentId {
        let segment = filling.replication.segment();
        let end = self.fill(session, |pool| {
            if filling.is_filled_fast() {
                pool.filled.insert(filling.place, Instant::now());
            }
            pool.close(filling)
        });
        if let Some((set, sealed)) = end {
            members.seal(&set, &sealed);
        }
        segment
    }

    /// The batch's commit was answered, or never sent: what it has appended to may be filled by others.
    pub(in crate::data) fn done(&self, session: u64, used: Used) {
        self.fill(session, |pool| {
            pool.settled.extend(used.ended);
            pool.resting.extend(used.open);
        });
    }

    /// Nobody can tell whether the batch's commit is carried out: what it names stays until the session ends.
    pub(in crate::data) fn unknown(&self, members: &SharedMembers, session: u64, used: Used) {
        let ends: Option<Vec<_>> =
            self.fill(session, |pool| used.open.into_iter().map(|filling| pool.close(filling)).collect());
        seal(members, &ends.unwrap_or_default());
    }

    /// Waits until segments are to be looked after: a while after there are any. Returns `false` after [`Lanes::stop`].
    pub(in crate::data) fn await_sweep(&self) -> bool {
        let goes_on = || !self.stop.load(Relaxed);
        let mut pool = self.pool.lock();
        self.filled.wait_while(&mut pool, |pool| goes_on() && pool.is_idle());
        self.stopped.wait_while_for(&mut pool, |_| goes_on(), SWEEP_EVERY);
        goes_on()
    }

    /// Nobody is to wait in [`Lanes::await_sweep`] any more.
    pub(in crate::data) fn stop(&self) {
        let pool = self.pool.lock();
        self.stop.store(true, Relaxed);
        drop(pool);
        self.filled.notify_all();
        self.stopped.notify_all();
    }

    /// Ends segments that were open for long, or `all`, and tells the owner of what has ended.
    pub(in crate::data) fn sweep(&self, members: &SharedMembers, asks: &dyn Asks, all: bool) {
        if members.is_none() {
            return;
        }
        let _one = self.telling.lock();
        let session = asks.session();
        let (ends, settle) = {
            let mut pool = self.pool.lock();
            let Some(pool) = pool.of(session) else { return };
            (pool.end_old(all), pool.take_told())
        };
        seal(members, &ends);
        if settle != Settle::default() {
            let told = asks.ask_in(session, Operation::Settle(settle.clone()), None);
            let told = told.map(|told| told.answer);
            if !matches!(told, Ok(Answer::Done)) {
                tracing::debug!(?told, "the owner is told of segments later");
                if let Some(pool) = self.pool.lock().of(session) {
                    pool.closed.extend(settle.sealed);
                    pool.settled.extend(settle.settled);
                }
            }
        }
    }
}

/// Who takes new segments for what is so bound. On another machine one copy is as good as none.
fn takers(members: &SharedMembers, bound: Bound) -> Option<WriteGroup> {
    let mut group = members.as_ref()?.writes_over(bound.within)?;
    group.copies = group.copies.max(bound.copies);
    if group.copies == SyncClass::COPIES_LOCAL {
        group.members.retain(|member| group.near.contains(&member.id));
    }
    Some(group)
}

fn seal(members: &SharedMembers, ends: &[(Vec<MemberId>, SealedSegment)]) {
    if let Some(members) = members {
        ends.iter().for_each(|(set, sealed)| members.seal(set, sealed));
    }
}

fn filling(place: Lying, OpenedSegment { segment, epoch, set }: OpenedSegment) -> Filling {
    Filling {
        replication: Replication::new(segment, epoch, set),
        place,
        since: Instant::now(),
        appends: 0,
        ends: false,
    }
}

impl Filling {
    pub(super) fn is_full(&self) -> bool {
        self.ends || self.replication.end() >= FULL
    }

    /// All of its set have one append more.
    pub(super) fn has_appended(&mut self) {
        self.appends += 1;
    }

    /// By appends so large that bytes are what takes time, and not the number of syncs.
    fn is_filled_fast(&self) -> bool {
        self.replication.end() >= FULL.max(u64::from(self.appends) * LARGE) && self.since.elapsed() < OPEN_FOR
    }

    /// It takes no more after this.
    pub(super) fn ends_soon(&mut self) {
        self.ends = true;
    }
}
