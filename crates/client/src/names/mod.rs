//! What a client knows under its leases, and the leases.
//!
//! Guarantees: what is told from here was true at some moment since it was asked: it is put in only if the lease that came with it is still held, and is gone before
//! that is returned. An own change takes out what it touches before it is sent ([`changes`]). Relies on: every answer with leases passes through
//! [`Names::finish`], every recall through [`Names::recall`].
//!
//! One mutex, held for no longer than it takes to look something up.

mod ahead;
mod cache;
mod changes;
mod known;
mod sealed;
mod take_in;
#[cfg(test)]
mod tests;
mod touches;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use forebay_cluster::{Grant, HeldLeases, Lease, Moment, Recalled, Stamp, Terms};
use forebay_protocol::{InodeAnswer, Recall};
use forebay_types::{Coherence, Epoch, Ino};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::{error::ClientError, link::Patience, ticks::Ticks};
use cache::Cache;
use changes::Changes;
use sealed::Sealed;

pub(crate) use sealed::is_sealed;
pub(crate) use take_in::inode_of;

/// Entries that one request asks for at most: with their inodes they fit into an answer.
pub(crate) const PAGE_MAX: usize = 1024;

/// How long a recall waits for the answer with the lease that it recalls: else whoever asked for the lease would never come to use it.
const OVERTAKEN: Duration = Duration::from_millis(200);

/// Leases, and what is known under them.
pub(crate) struct Names {
    state: Mutex<State>,
    /// A tenure ended, or an answer came.
    changed: Condvar,
    ticks: Arc<dyn Ticks>,
    /// Commits that were answered: what is put over an inode's row may be gone since, and the row newer.
    commits: AtomicU64,
    /// Who else keeps something of inodes until their leases go. Called with the mutex held, so that it is before any recall.
    learn: OnceLock<Learn>,
}

/// Takes in what came with an inode.
pub(crate) type Learn = Box<dyn Fn(&InodeAnswer) + Send + Sync>;

struct State {
    /// The session that it is all of.
    number: u64,
    held: Option<HeldLeases>,
    tenures: FxHashMap<Ino, u32>,
    /// Requests under way that may bring a lease.
    wanted: FxHashMap<Ino, u32>,
    /// Requests under way that name an inode: they may wait for somebody who waits for its lease.
    asked: FxHashMap<Ino, u32>,
    cache: Cache,
    sealed: Sealed,
    changes: Changes,
}

/// The right to write, kept from being returned.
pub(crate) struct Tenure {
    names: Arc<Names>,
    ino: Ino,
}

impl Drop for Tenure {
    fn drop(&mut self) {
        let mut state = self.names.state.lock();
        less(&mut state.tenures, self.ino);
        drop(state);
        self.names.changed.notify_all();
    }
}

fn less(counts: &mut FxHashMap<Ino, u32>, ino: Ino) {
    if let Some(count) = counts.get_mut(&ino) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&ino);
        }
    }
}

impl Names {
    /// `max`: how many things are kept, about.
    pub(crate) fn new(ticks: Arc<dyn Ticks>, max: usize) -> Arc<Names> {
        let state = State {
            number: 0,
            held: None,
            tenures: FxHashMap::default(),
            wanted: FxHashMap::default(),
            asked: FxHashMap::default(),
            cache: Cache::new(max),
            sealed: Sealed::new(max),
            changes: Changes::default(),
        };
        Arc::new(Names {
            state: Mutex::new(state),
            changed: Condvar::new(),
            ticks,
            commits: AtomicU64::new(0),
            learn: OnceLock::new(),
        })
    }

    /// Who else is told of inodes that come with a lease. Does not wait, and does not call back.
    pub(crate) fn teach(&self, learn: Learn) {
        // Only once for a volume.
        let _ = self.learn.set(learn);
    }

    // ---- the session ---------------------------------------------------------------------------------------------

    pub(crate) fn begun(&self, number: u64, terms: Terms, epoch: Epoch, sent: Moment) {
        let mut state = self.state.lock();
        state.number = number;
        state.held = Some(HeldLeases::new(terms, epoch, sent));
        state.cache.clear();
    }

    /// The session is over. Returns the inodes of which something was known or a lease was held.
    pub(crate) fn over(&self) -> Vec<Ino> {
        let mut state = self.state.lock();
        let mut inos = state.cache.clear();
        if let Some(mut held) = state.held.take() {
            let epoch = held.epoch();
            inos.extend(held.to_reclaim(epoch).into_iter().map(|(ino, _)| ino));
        }
        drop(state);
        self.changed.notify_all();
        inos.sort_unstable();
        inos.dedup();
        inos
    }

    pub(crate) fn heard(&self, number: u64, sent: Moment) {
        let mut state = self.state.lock();
        if state.number == number
            && let Some(held) = &mut state.held
        {
            held.heard(sent);
        }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.state.lock().held.as_ref().map_or(Epoch(0), HeldLeases::epoch)
    }

    pub(crate) fn to_reclaim(&self, epoch: Epoch) -> Vec<(Ino, Lease)> {
        self.state.lock().held.as_mut().map(|held| held.to_reclaim(epoch)).unwrap_or_default()
    }

    /// A new owner has given these leases again. Returns the inodes on which there is none any more.
    pub(crate) fn reclaimed(&self, epoch: Epoch, grants: &[Grant]) -> Vec<Ino> {
        let mut state = self.state.lock();
        let Some(held) = &mut state.held else { return Vec::new() };
        let before = held.to_reclaim(epoch);
        held.reclaimed(epoch, grants);
        let lost: Vec<Ino> =
            before.into_iter().map(|(ino, _)| ino).filter(|ino| held.stamp(*ino).is_none()).collect();
        lost.iter().for_each(|ino| state.cache.drop_node(*ino));
        lost
    }

    // ---- leases --------------------------------------------------------------------------------------------------

    pub(crate) fn has(&self, ino: Ino, lease: Lease) -> bool {
        let now = self.ticks.now();
        self.state.lock().has(ino, lease, now)
    }

    /// How long the kernel may keep what it is told of an inode; `None` for as long as it likes.
    pub(crate) fn lifetime(&self, ino: Ino) -> Option<Duration> {
        let now = self.ticks.now();
        let state = self.state.lock();
        if state.changes.is_busy(ino) {
            return Some(Duration::ZERO);
        }
        if state.sealed.has(ino) {
            return None;
        }
        Some(state.held.as_ref().map_or(Duration::ZERO, |held| held.lifetime(ino, now)))
    }

    /// Whether the contents of a file are known to be final.
    pub(crate) fn is_sealed(&self, ino: Ino) -> bool {
        self.state.lock().sealed.has(ino)
    }

    /// How long the kernel may keep the name of `ino` in a directory; `None` until it is told that names may have changed.
    pub(crate) fn name_lifetime(&self, parent: Ino, ino: Ino) -> Option<Duration> {
        let now = self.ticks.now();
        let state = self.state.lock();
        let stays = |directory: Ino| {
            let known = state.cache.peek(directory).and_then(|node| node.inode.as_ref());
            let immutable = known.is_some_and(|inode| inode.row.coherence == Coherence::Immutable);
            immutable && state.has(directory, Lease::Read, now)
        };
        if !state.changes.is_busy(parent) && stays(parent) && (state.sealed.has(ino) || stays(ino)) {
            return None;
        }
        drop(state);
        self.lifetime(parent)
    }

    /// Keeps the lease to write on an inode, if it is held.
    pub(crate) fn tenure(self: &Arc<Self>, ino: Ino) -> Option<Tenure> {
        let now = self.ticks.now();
        let mut state = self.state.lock();
        if !state.has(ino, Lease::Write, now) {
            return None;
        }
        *state.tenures.entry(ino).or_default() += 1;
        Some(Tenure { names: Arc::clone(self), ino })
    }

    /// How many commits have been answered.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    // ---- recalls -------------------------------------------------------------------------------------------------

    /// The owner recalls a lease. From now on nothing more than `keep` is answered by it. An answer that the recall has overtaken is waited for, a little while.
    pub(crate) fn recall(&self, ino: Ino, keep: Option<Lease>, stamp: Stamp) -> Recalled {
        let until = Instant::now() + OVERTAKEN;
        let mut state = self.state.lock();
        while state.is_overtaken(ino, stamp) && !self.changed.wait_until(&mut state, until).timed_out() {}
        state.recall(ino, keep, stamp)
    }

    /// The same of several leases that are recalled at once. Left out, and still held, are those that a thread here has a tenure of, or whose answer was overtaken: who waits for
    /// the others is not to wait for these.
    pub(crate) fn recall_all(&self, leases: &[Recall]) -> Vec<(Recall, Option<Recalled>)> {
        let mut state = self.state.lock();
        let mut recall = |lease: &Recall| {
            let Recall { ino, keep, stamp } = *lease;
            let waits = state.tenures.contains_key(&ino) || state.is_overtaken(ino, stamp);
            (*lease, (!waits).then(|| state.recall(ino, keep, stamp)))
        };
        leases.iter().map(&mut recall).collect()
    }

    /// Begins to give up leases of which too much is known: returns inodes and stamps in the order of the inodes, once each, unless they [stay](Names::stay).
    pub(crate) fn too_much(&self) -> Vec<(Ino, Stamp)> {
        let mut state = self.state.lock();
        let leave = state.cache.too_much();
        let mut given_up = Vec::new();
        for ino in leave {
            if state.is_in_use(ino) {
                state.cache.stay(ino);
                continue;
            }
            match state.held.as_ref().and_then(|held| held.stamp(ino)) {
                Some(stamp) => given_up.push((ino, stamp)),
                None => state.cache.drop_node(ino),
            }
        }
        given_up.sort_unstable();
        given_up
    }

    /// Gives up what of these nobody has come to use since [`Names::too_much`] named them, in one step: returned are those that nothing is answered by any more, and whether any may
    /// be a directory. The others stay, or somebody else sees to them.
    pub(crate) fn give_up(&self, leases: &[(Ino, Stamp)]) -> (Vec<(Ino, Stamp)>, bool) {
        let mut state = self.state.lock();
        let (mut given_up, mut directories) = (Vec::new(), false);
        for (ino, stamp) in leases.iter().copied() {
            if !state.is_in_use(ino) && state.held.as_mut().is_some_and(|held| held.give_up(ino, stamp)) {
                given_up.push((ino, stamp));
                directories |= state.cache.peek(ino).is_none_or(|node| node.is_directory != Some(false));
                state.cache.drop_node(ino);
            } else {
                state.cache.stay(ino);
            }
        }
        (given_up, directories)
    }

    /// These are not given up after all.
    pub(crate) fn stay(&self, inos: impl Iterator<Item = Ino>) {
        let mut state = self.state.lock();
        inos.for_each(|ino| state.cache.stay(ino));
    }

    /// Waits until nobody writes under the lease any more. Whoever does waits for no lease.
    pub(crate) fn wait_for_tenures(&self, ino: Ino) {
        let mut state = self.state.lock();
        while state.tenures.contains_key(&ino) {
            self.changed.wait(&mut state);
        }
    }

    /// Waits until no change of an inode is under way here. Called by who has no tenure.
    ///
    /// # Errors
    /// [`ClientError`] where patience ends.
    pub(crate) fn wait_while_busy(&self, ino: Ino, patience: &Patience<'_>) -> Result<(), ClientError> {
        let mut state = self.state.lock();
        while state.changes.is_busy(ino) {
            patience.wait(&self.changed, &mut state)?;
        }
        Ok(())
    }

    /// Whether the lease that is being given back was one to write.
    pub(crate) fn was_to_write(&self, ino: Ino) -> bool {
        let mut state = self.state.lock();
        let Some(held) = &mut state.held else { return false };
        held.lease(ino) == Some(Lease::Write)
    }

    /// Whether an inode is a directory, as far as that is known.
    pub(crate) fn is_directory(&self, ino: Ino) -> Option<bool> {
        self.state.lock().cache.peek(ino)?.is_directory
    }

    /// Waits until `done` is set ([`Names::stir`]), or a request under way names one of the inodes, which are in their order; and so long at most, if it is said.
    pub(crate) fn wait_unless_asked(&self, inos: &[Ino], done: &AtomicBool, most: Option<Duration>) {
        let until = most.map(|most| Instant::now() + most);
        let mut state = self.state.lock();
        let is_asked = |state: &State| state.asked.keys().any(|ino| inos.binary_search(ino).is_ok());
        while !done.load(Ordering::SeqCst) && !is_asked(&state) {
            match until {
                None => self.changed.wait(&mut state),
                Some(until) if self.changed.wait_until(&mut state, until).timed_out() => return,
                Some(_) => {}
            }
        }
    }

    /// Has everybody look again who waits here.
    pub(crate) fn stir(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// All that a recall asked for is done: what the owner is to be told, if anything.
    pub(crate) fn returned(&self, ino: Ino) -> Option<(Stamp, Option<Lease>)> {
        self.state.lock().held.as_mut()?.returned(ino)
    }
}

impl State {
    /// Whether a lease is used, or asked for, right now.
    fn is_in_use(&self, ino: Ino) -> bool {
        self.tenures.contains_key(&ino) || self.asked.contains_key(&ino) || self.changes.is_busy(ino)
    }

    /// Whether the answer with a lease is on its way still that is recalled already.
    fn is_overtaken(&self, ino: Ino, stamp: Stamp) -> bool {
        self.wanted.contains_key(&ino) && self.held.as_ref().is_some_and(|held| held.stamp(ino) < Some(stamp))
    }

    fn recall(&mut self, ino: Ino, keep: Option<Lease>, stamp: Stamp) -> Recalled {
        let Some(held) = &mut self.held else { return Recalled::NotHeld };
        let recalled = held.recall(ino, keep, stamp);
        if keep.is_none() {
            self.cache.drop_node(ino);
        }
        recalled
    }

    fn has(&self, ino: Ino, lease: Lease, now: Moment) -> bool {
        self.held.as_ref().is_some_and(|held| held.has(ino, lease, now))
    }
}
