//! The leases that a client has, and until when they count.
//!
//! Guarantees: a client answers from memory only under a lease that the owner has given to nobody else meanwhile, whatever was lost, late or stopped. Relies
//! on: clocks of client and owner differ in rate by less than a tenth; a lease is returned only when nothing is answered by it any more and the
//! kernel has dropped what it had by it.
//!
//! An answer with a lease and the recall of that lease may be taken in in either order: stamps tell which of the two is later.

use std::time::Duration;

use forebay_types::{Epoch, Ino};
use rustc_hash::FxHashMap;

use crate::{Grant, Lease, Moment, Stamp, Terms};

/// What a recall asks of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recalled {
    /// It has no such lease (any more, or not yet: then the grant counts for nothing): the return is sent at once.
    NotHeld,
    /// What was changed is to be sent, and what the kernel keeps dropped; then [`HeldLeases::returned`].
    GiveBack,
    /// That is being done already.
    UnderWay,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    stamp: Stamp,
    /// What may be kept at most, once a recall came.
    recalled: Option<Option<Lease>>,
    /// The term in which it was last granted; a recall of a later one does not change that.
    term: Epoch,
    /// The inode was made here, and no answer has said yet that its making is committed.
    made: bool,
}

impl Held {
    fn granted(lease: Lease, stamp: Stamp) -> Held {
        Held { lease, stamp, recalled: None, term: stamp.epoch, made: false }
    }
}

/// The leases of one session.
#[derive(Debug)]
pub struct HeldLeases {
    terms: Terms,
    held: FxHashMap<Ino, Held>,
    /// Of inodes without a lease: the last stamp that was recalled. Grants up to it count for nothing.
    void: FxHashMap<Ino, Stamp>,
    /// When the last request that was answered had been sent.
    sent: Moment,
    /// The term of the owner that knows of the leases.
    epoch: Epoch,
    /// Grants of an earlier term count for nothing.
    valid_from: Epoch,
}

impl HeldLeases {
    /// Those of a session that was begun with the owner of this epoch by a request sent at `sent`: none.
    #[must_use]
    pub fn new(terms: Terms, epoch: Epoch, sent: Moment) -> HeldLeases {
        HeldLeases {
            terms,
            held: FxHashMap::default(),
            void: FxHashMap::default(),
            sent,
            epoch,
            valid_from: epoch,
        }
    }

    /// A request that was sent at `sent` was answered by the owner.
    pub fn heard(&mut self, sent: Moment) {
        self.sent = self.sent.max(sent);
    }

    /// When the session ends for the client: from then on nothing is answered from memory, and nothing is sent under it.
    #[must_use]
    pub fn ends_at(&self) -> Moment {
        self.sent + self.terms.session.saturating_sub(self.terms.margin)
    }

    /// An answer came with a lease. Returns whether it may be kept: else what came is good for this one answer. So is what was overtaken by a later grant: between
    /// the two the lease may have been recalled, and what it was about changed. And so is a grant of a new owner before it is known whether that has given the lease again
    /// that a former one gave: if it has not, others may have changed what is known by it.
    pub fn granted(&mut self, Grant { ino, lease, stamp }: Grant) -> bool {
        if stamp.epoch < self.valid_from || self.void.get(&ino).is_some_and(|void| *void >= stamp) {
            return false;
        }
        let unsure = |held: &Held| held.term < stamp.epoch && !held.made;
        if stamp.epoch > self.epoch && self.held.get(&ino).is_some_and(unsure) {
            return false;
        }
        if let Some(held) = self.held.get_mut(&ino) {
            // Also where its recall came before: an owner that gave it says nothing of it in an earlier answer to a reclaim.
            (held.made, held.term) = (false, held.term.max(stamp.epoch));
        }
        match self.held.get_mut(&ino) {
            Some(held) if held.stamp >= stamp => held.stamp == stamp && held.recalled.is_none(),
            Some(held) => {
                // A lease is granted anew only while no other session is in the way: an earlier recall has nothing to say of it.
                *held = Held::granted(lease, stamp);
                true
            }
            None => {
                self.void.remove(&ino);
                self.held.insert(ino, Held::granted(lease, stamp));
                true
            }
        }
    }

    /// An inode was made here and the owner does not know it yet: nobody else can have a lease on it, so this session has the one to write, with a
    /// stamp before all that the owner gives. The owner is told of it like of any other when it has changed, and may know it by then.
    pub fn made(&mut self, ino: Ino) -> Grant {
        let stamp = Stamp { epoch: self.epoch, number: 0 };
        let at_first = Held { made: true, ..Held::granted(Lease::Write, stamp) };
        let held = self.held.entry(ino).or_insert(at_first);
        Grant { ino, lease: held.lease, stamp: held.stamp }
    }

    /// The lease to write on an inode, if it counts at `now`.
    #[must_use]
    pub fn to_write(&self, ino: Ino, now: Moment) -> Option<Grant> {
        let stamp = self.stamp(ino).filter(|_| self.has(ino, Lease::Write, now))?;
        Some(Grant { ino, lease: Lease::Write, stamp })
    }

    /// Whether something may be answered, or kept back, under this lease at `now`.
    #[must_use]
    pub fn has(&self, ino: Ino, lease: Lease, now: Moment) -> bool {
        now < self.ends_at()
            && self.held.get(&ino).is_some_and(|held| {
                let most = held.recalled.map_or(Some(held.lease), |keep| keep.min(Some(held.lease)));
                most >= Some(lease)
            })
    }

    /// The last grant of a lease that is held or being given back.
    #[must_use]
    pub fn stamp(&self, ino: Ino) -> Option<Stamp> {
        self.held.get(&ino).map(|held| held.stamp)
    }

    /// The lease that is held or being given back.
    #[must_use]
    pub fn lease(&self, ino: Ino) -> Option<Lease> {
        self.held.get(&ino).map(|held| held.lease)
    }

    /// How long the kernel may keep what it is told of an inode at `now`: to the end of the session, nothing without a lease.
    #[must_use]
    pub fn lifetime(&self, ino: Ino, now: Moment) -> Duration {
        if self.has(ino, Lease::Read, now) { self.ends_at().since(now) } else { Duration::ZERO }
    }

    /// The owner recalls the lease with this stamp. From now on [`HeldLeases::has`] says no to more than `keep`.
    pub fn recall(&mut self, ino: Ino, keep: Option<Lease>, stamp: Stamp) -> Recalled {
        match self.held.get_mut(&ino) {
            Some(held) if held.stamp <= stamp => {
                // A grant that only renewed the lease may still be on its way: it counts for nothing then.
                held.stamp = stamp;
                let before = held.recalled;
                let least = before.map_or(keep, |before| before.min(keep));
                held.recalled = Some(least);
                if before == Some(least) { Recalled::UnderWay } else { Recalled::GiveBack }
            }
            Some(_) => Recalled::NotHeld,
            None => {
                // The grant is still on its way, or the lease was returned.
                let void = self.void.entry(ino).or_default();
                *void = stamp.max(*void);
                Recalled::NotHeld
            }
        }
    }

    /// The client itself gives up the lease with this stamp, as if it had been recalled whole. False: nothing is to be done for it, as it was granted anew since, is being recalled, or
    /// is gone.
    pub fn give_up(&mut self, ino: Ino, stamp: Stamp) -> bool {
        let held = self.held.get_mut(&ino).filter(|held| held.stamp == stamp && held.recalled.is_none());
        held.map(|held| held.recalled = Some(None)).is_some()
    }

    /// All that a recall asked for is done: returns the stamp and what is kept, to be told to the owner. `None` where nothing was recalled.
    pub fn returned(&mut self, ino: Ino) -> Option<(Stamp, Option<Lease>)> {
        let held = self.held.get_mut(&ino)?;
        let kept = held.recalled?.min(Some(held.lease));
        let stamp = held.stamp;
        match kept {
            Some(kept) => (held.lease, held.recalled, held.made) = (kept, None, false),
            None => {
                self.held.remove(&ino);
                let void = self.void.entry(ino).or_default();
                *void = stamp.max(*void);
            }
        }
        Some((stamp, kept))
    }

    /// No request is under way: no grant that was recalled can still come.
    pub fn nothing_under_way(&mut self) {
        self.void.clear();
    }

    /// All leases, in the order of the inodes, to be reclaimed from the owner of this epoch; asked until it has answered. Those that are being given
    /// back are among them: what was changed under them may not have been sent. From now on grants of earlier owners count for
    /// nothing: the new one is not told of them.
    pub fn to_reclaim(&mut self, epoch: Epoch) -> Vec<(Ino, Lease)> {
        self.valid_from = self.valid_from.max(epoch);
        let mut all: Vec<(Ino, Lease)> = self.held.iter().map(|(ino, held)| (*ino, held.lease)).collect();
        all.sort_unstable();
        all
    }

    /// The owner's term that the leases are of.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The owner of this epoch has granted these again, and no others but those that it does not know yet ([`HeldLeases::made`]) and those that it has granted
    /// in later answers. What is kept of inodes without a lease is to be dropped.
    pub fn reclaimed(&mut self, epoch: Epoch, given: &[Grant]) {
        (self.epoch, self.valid_from) = (epoch, epoch);
        self.void.retain(|_, void| void.epoch >= epoch);
        let mut before = std::mem::take(&mut self.held);
        for Grant { ino, lease, stamp } in given {
            // The new owner may have recalled it before its answer was taken in.
            if self.void.get(ino).is_some_and(|void| void >= stamp) {
                continue;
            }
            let recalled = before.remove(ino).filter(|held| held.stamp >= *stamp);
            let held = recalled.unwrap_or_else(|| Held::granted(*lease, *stamp));
            self.held.insert(*ino, held);
        }
        for (ino, held) in before {
            // One that the new owner has granted since it answered: that answer overtook this one.
            let is_later = held.term >= epoch && !held.made;
            if is_later {
                self.held.entry(ino).or_insert(held);
            } else if held.made && !self.held.contains_key(&ino) {
                // Had its making been committed, there would be a row of the lease, and the owner would have given it. What the former owner recalled
                // before it could commit is made all the same.
                let stamp = Stamp { epoch, number: 0 };
                self.held.insert(ino, Held { made: true, ..Held::granted(Lease::Write, stamp) });
            }
        }
    }
}

#[cfg(test)]
mod tests;
