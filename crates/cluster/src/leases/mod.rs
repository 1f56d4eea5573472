//! Who may keep what of an inode, and which requests wait for that.
//!
//! Guarantees: a request runs only while no other session has a lease that it conflicts with and no conflicting request runs; requests that conflict run in
//! the order of their arrival, so none waits for ever and no two wait for each other; a lease to read is not granted in the way of a request that waits, and one to
//! write, whose session had its turn, is recalled at once. Relies on: a session that is recalled returns the lease, or ends.
//!
//! By a request that names only inodes on which its session has a lease to write, the session sends what it kept back: it runs before those that wait
//! for that lease, or none of them ever would.
//!
//! A request names all its inodes at once. One that finds out more while it runs begins again with all of them ([`LeaseTable::again`]): nothing is
//! held while something else is waited for.

mod node;
mod reclaim;
mod returned;
#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;

use forebay_types::{Epoch, Ino};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::SessionId;
use node::Node;

/// A request that an owner carries out: its own number, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// What a request does with an inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Access {
    /// Looks at it.
    Read,
    /// Changes it.
    Write,
}

impl Access {
    /// Whether two requests with these may not run at once.
    #[must_use]
    pub fn conflicts_with(self, other: Access) -> bool {
        self == Access::Write || other == Access::Write
    }

    /// The most that another session may have of an inode while a request does this.
    #[must_use]
    pub fn leaves(self) -> Option<Lease> {
        match self {
            Access::Read => Some(Lease::Read),
            Access::Write => None,
        }
    }
}

/// A session's right on an inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lease {
    /// What was read may be kept.
    Read,
    /// What was changed may be kept back, too. Nobody else has a lease.
    Write,
}

impl Lease {
    /// The access that a session does by itself by having it.
    #[must_use]
    pub fn access(self) -> Access {
        match self {
            Lease::Read => Access::Read,
            Lease::Write => Access::Write,
        }
    }
}

/// An inode that a request looks at or changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Need {
    /// The inode.
    pub ino: Ino,
    /// What is done with it.
    pub access: Access,
}

/// Which grant of a lease is meant: later ones are greater, also those of a later owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Stamp {
    /// The owner's term.
    pub epoch: Epoch,
    /// The grant's place among those of that owner.
    pub number: u64,
}

/// A lease that was granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// On what.
    pub ino: Ino,
    /// What the session has now: what it asked for, or the more that it had.
    pub lease: Lease,
    /// Which grant it is.
    pub stamp: Stamp,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The request is to be carried out now; [`LeaseTable::done`] or [`LeaseTable::again`] follows.
    Run(RequestId),
    /// The session is to be told to return the lease with this stamp. Told twice, it returns it once.
    Recall {
        /// Whose it is.
        session: SessionId,
        /// On what.
        ino: Ino,
        /// The most that it may keep.
        keep: Option<Lease>,
        /// Which grant is meant: a later one is not.
        stamp: Stamp,
    },
}

/// A request that was taken in and is not done.
#[derive(Debug)]
struct Waiting {
    session: SessionId,
    needs: Vec<Need>,
    runs: bool,
}

/// The leases of a volume's sessions, and the requests that wait for them.
#[derive(Debug)]
pub struct LeaseTable {
    nodes: FxHashMap<Ino, Node>,
    requests: FxHashMap<RequestId, Waiting>,
    /// Inodes of each session's leases.
    held: FxHashMap<SessionId, FxHashSet<Ino>>,
    last: Stamp,
    /// Leases to write that were given (true) or are gone, since that was asked for.
    write_changes: Vec<(SessionId, Ino, bool)>,
    /// Sessions of the former owner that have not yet said which leases to read they have: they may have any.
    unreclaimed: FxHashSet<SessionId>,
    /// Those of them that have said what they have and were to say it again: what is known of them is what they said.
    said: FxHashSet<SessionId>,
}

impl LeaseTable {
    /// The table of the owner of this epoch, of a volume that has no sessions.
    #[must_use]
    pub fn new(epoch: Epoch) -> LeaseTable {
        LeaseTable {
            nodes: FxHashMap::default(),
            requests: FxHashMap::default(),
            held: FxHashMap::default(),
            last: Stamp { epoch, number: 0 },
            write_changes: Vec::new(),
            unreclaimed: FxHashSet::default(),
            said: FxHashSet::default(),
        }
    }

    /// The table of an owner that has taken over: these sessions live, and these leases to write are theirs. Until each has reclaimed or
    /// ended, nothing is changed.
    #[must_use]
    pub fn taken_over(epoch: Epoch, sessions: &[SessionId], writes: &[(SessionId, Ino)]) -> LeaseTable {
        let mut table = LeaseTable::new(epoch);
        table.unreclaimed.extend(sessions);
        for (session, ino) in writes {
            table.put(*session, *ino, Lease::Write);
        }
        table.write_changes.clear();
        table
    }

    /// The leases to write that were given (true) or are gone since this was last called, in order. Their rows are committed before anybody is told of what
    /// the calls in between have let happen.
    #[must_use]
    pub fn take_write_changes(&mut self) -> Vec<(SessionId, Ino, bool)> {
        std::mem::take(&mut self.write_changes)
    }

    /// Takes in a request with a number that no other one has. Of an inode that it names twice the stronger access counts.
    #[must_use]
    pub fn arrive(&mut self, id: RequestId, session: SessionId, needs: &[Need]) -> Vec<Effect> {
        let mut once: Vec<Need> = Vec::with_capacity(needs.len());
        let mut places: FxHashMap<Ino, usize> = FxHashMap::default();
        for need in needs {
            match places.entry(need.ino) {
                Entry::Occupied(place) => {
                    let known = &mut once[*place.get()];
                    known.access = known.access.max(need.access);
                }
                Entry::Vacant(place) => {
                    place.insert(once.len());
                    once.push(*need);
                }
            }
        }
        for need in &once {
            self.nodes.entry(need.ino).or_default().queue.push((id, need.access));
        }
        let inos: Vec<Ino> = once.iter().map(|need| need.ino).collect();
        let alone = inos.is_empty();
        self.requests.insert(id, Waiting { session, needs: once, runs: alone });
        if alone {
            return vec![Effect::Run(id)];
        }
        self.settle(&inos)
    }

    /// Says that a request was carried out, and which leases its session would like to have. Returns those that it gets.
    #[must_use]
    pub fn done(&mut self, id: RequestId, wishes: &[(Ino, Lease)]) -> (Vec<Grant>, Vec<Effect>) {
        let Some(request) = self.requests.remove(&id) else { return (Vec::new(), Vec::new()) };
        let mut inos = self.leave_queues(id, &request);
        let granted: Vec<Grant> =
            wishes.iter().filter_map(|(ino, lease)| self.grant(request.session, *ino, *lease)).collect();
        // A lease that was given anew is recalled anew, if somebody waits; also one on an inode that the request did not need.
        inos.extend(granted.iter().map(|grant| grant.ino));
        (granted, self.settle(&inos))
    }

    /// Gives a session the lease to write on an inode that its request, which runs, has just made: nobody else can know it, not even a session of the former
    /// owner that has yet to reclaim.
    pub fn made(&mut self, session: SessionId, ino: Ino) -> Grant {
        self.put(session, ino, Lease::Write)
    }

    /// Puts a request that runs back to the end of the order, with other needs.
    #[must_use]
    pub fn again(&mut self, id: RequestId, needs: &[Need]) -> Vec<Effect> {
        let Some(request) = self.requests.remove(&id) else { return Vec::new() };
        let inos = self.leave_queues(id, &request);
        let mut effects = self.settle(&inos);
        effects.extend(self.arrive(id, request.session, needs));
        effects
    }

    /// Whether another session than this one has the lease to write on an inode.
    #[must_use]
    pub fn is_written_beside(&self, session: SessionId, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.forbids(session, Lease::Read))
    }

    /// A session has ended: its leases and its requests that did not run yet are gone. Those that run are still to be reported as done.
    #[must_use]
    pub fn end(&mut self, session: SessionId) -> Vec<Effect> {
        let gone: Vec<RequestId> = self
            .requests
            .iter()
            .filter(|(_, request)| request.session == session && !request.runs)
            .map(|(id, _)| *id)
            .collect();
        let mut touched: Vec<Ino> = Vec::new();
        for id in gone {
            if let Some(request) = self.requests.remove(&id) {
                touched.extend(self.leave_queues(id, &request));
            }
        }
        let held: Vec<Ino> = self.held.get(&session).into_iter().flatten().copied().collect();
        for ino in held {
            self.drop_lease(session, ino);
            touched.push(ino);
        }
        self.has_reclaimed(session);
        touched.sort_unstable();
        touched.dedup();
        let mut effects = self.settle(&touched);
        effects.extend(self.settle_all_if_open());
        effects
    }

    /// The recalls that a session has not answered: told again to one that was not connected.
    #[must_use]
    pub fn outstanding(&self, session: SessionId) -> Vec<Effect> {
        let inos = self.held.get(&session).into_iter().flatten();
        inos.filter_map(|ino| self.nodes.get(ino)?.outstanding(session, *ino)).collect()
    }

    /// Whether a session was told to return a lease, and has not.
    #[must_use]
    pub fn is_recalled(&self, session: SessionId, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.is_recalled(session))
    }

    /// All leases that a session has, in the order of the inodes.
    #[must_use]
    pub fn leases_of(&self, session: SessionId) -> Vec<Grant> {
        let inos = self.held.get(&session).into_iter().flatten();
        let mut all: Vec<Grant> = inos.filter_map(|ino| self.nodes.get(ino)?.grant(session, *ino)).collect();
        all.sort_unstable_by_key(|grant| grant.ino);
        all
    }

    /// How many leases all sessions have together.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.held.values().map(FxHashSet::len).sum()
    }

    /// Whether a session of the former owner has yet to reclaim.
    #[must_use]
    pub fn must_reclaim(&self, session: SessionId) -> bool {
        self.unreclaimed.contains(&session)
    }

    /// The lease that a session has.
    #[must_use]
    pub fn lease(&self, session: SessionId, ino: Ino) -> Option<Lease> {
        let holder = self.nodes.get(&ino)?.holder(session)?;
        Some(holder.lease)
    }

    /// Whether any session has a lease on an inode, or may have one from a former owner.
    #[must_use]
    pub fn is_held(&self, ino: Ino) -> bool {
        self.recovers() || self.nodes.get(&ino).is_some_and(|node| !node.holders.is_empty())
    }

    /// Whether another session than this one has a lease on an inode, or may have one from a former owner, or a request names it that is not done.
    #[must_use]
    pub fn is_wanted_beside(&self, session: SessionId, ino: Ino) -> bool {
        let wanted = |node: &Node| {
            !node.queue.is_empty() || node.holders.iter().any(|holder| holder.session != session)
        };
        self.recovers() || self.nodes.get(&ino).is_some_and(wanted)
    }

    /// Whether sessions of the former owner have yet to reclaim.
    #[must_use]
    pub fn recovers(&self) -> bool {
        !self.unreclaimed.is_empty()
    }

    /// Whether a request was taken in and is not done, and its session has not ended before it ran.
    #[must_use]
    pub fn has_request(&self, id: RequestId) -> bool {
        self.requests.contains_key(&id)
    }

    /// Requests that were taken in and are not done.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    fn leave_queues(&mut self, id: RequestId, request: &Waiting) -> Vec<Ino> {
        for need in &request.needs {
            if let Some(node) = self.nodes.get_mut(&need.ino) {
                node.queue.retain(|(queued, _)| *queued != id);
            }
        }
        request.needs.iter().map(|need| need.ino).collect()
    }

    fn grant(&mut self, session: SessionId, ino: Ino, lease: Lease) -> Option<Grant> {
        if lease == Lease::Write && self.recovers() {
            return None;
        }
        let requests = &self.requests;
        let of_other = |id: &RequestId| requests.get(id).is_some_and(|request| request.session != session);
        let in_the_way = self.nodes.get(&ino).is_some_and(|node| {
            // Where the right to write could be had only while nobody waits, those who take it from each other would never get it. Whoever waits recalls it at once.
            let yields = lease == Lease::Read;
            node.forbids(session, lease)
                || yields && node.is_recalled(session)
                || yields
                    && node
                        .queue
                        .iter()
                        .any(|(id, access)| of_other(id) && access.conflicts_with(lease.access()))
        });
        (!in_the_way).then(|| self.put(session, ino, lease))
    }

    /// Gives a lease, or another stamp for one that is had already; never a weaker one.
    fn put(&mut self, session: SessionId, ino: Ino, lease: Lease) -> Grant {
        self.last.number += 1;
        let before = self.lease(session, ino);
        self.held.entry(session).or_default().insert(ino);
        let lease = self.nodes.entry(ino).or_default().put(session, lease, self.last);
        self.note_writes(session, ino, before);
        Grant { ino, lease, stamp: self.last }
    }

    fn note_writes(&mut self, session: SessionId, ino: Ino, before: Option<Lease>) {
        let now = self.lease(session, ino) == Some(Lease::Write);
        if now != (before == Some(Lease::Write)) {
            self.write_changes.push((session, ino, now));
        }
    }

    fn drop_lease(&mut self, session: SessionId, ino: Ino) {
        let before = self.lease(session, ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.holders.retain(|holder| holder.session != session);
        }
        self.note_writes(session, ino, before);
        self.forget(session, ino);
    }

    fn forget(&mut self, session: SessionId, ino: Ino) {
        if let Some(inos) = self.held.get_mut(&session) {
            inos.remove(&ino);
            if inos.is_empty() {
                self.held.remove(&session);
            }
        }
    }

    /// What has become possible, or is to be recalled, now that something about these inodes has changed.
    fn settle(&mut self, inos: &[Ino]) -> Vec<Effect> {
        let mut effects = Vec::new();
        for ino in inos {
            self.recall(*ino, &mut effects);
            let waiting: Vec<RequestId> = match self.nodes.get(ino) {
                Some(node) if node.is_idle() => {
                    self.nodes.remove(ino);
                    continue;
                }
                Some(node) => node.queue.iter().map(|(id, _)| *id).collect(),
                None => continue,
            };
            for id in waiting {
                if self.may_run(id) {
                    if let Some(request) = self.requests.get_mut(&id) {
                        request.runs = true;
                    }
                    effects.push(Effect::Run(id));
                }
            }
        }
        effects
    }

    /// Once nobody has to reclaim, everything that waited for that.
    fn settle_all_if_open(&mut self) -> Vec<Effect> {
        if self.recovers() {
            return Vec::new();
        }
        let mut waiting: Vec<RequestId> =
            self.requests.iter().filter(|(_, request)| !request.runs).map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        let mut inos: Vec<Ino> = Vec::new();
        for id in waiting {
            inos.extend(self.requests[&id].needs.iter().map(|need| need.ino));
        }
        let mut seen = FxHashSet::default();
        inos.retain(|ino| seen.insert(*ino));
        self.settle(&inos)
    }

    fn may_run(&self, id: RequestId) -> bool {
        let Some(request) = self.requests.get(&id) else { return false };
        if request.runs {
            return false;
        }
        let kept_back = self.is_covered(request);
        request.needs.iter().all(|need| {
            let open = need.access == Access::Read || kept_back || !self.recovers();
            let Some(node) = self.nodes.get(&need.ino) else { return false };
            let earlier = node.queue.iter().take_while(|(queued, _)| *queued != id);
            let mut in_the_way = earlier.filter(|(_, earlier)| earlier.conflicts_with(need.access));
            open && node.leaves_room(request.session, need.access)
                && in_the_way.all(|(earlier, _)| kept_back && !self.runs(*earlier))
        })
    }

    fn runs(&self, id: RequestId) -> bool {
        self.requests.get(&id).is_some_and(|request| request.runs)
    }

    /// Whether a session has leases to write on all that its request names.
    fn is_covered(&self, request: &Waiting) -> bool {
        request.needs.iter().all(|need| self.lease(request.session, need.ino) == Some(Lease::Write))
    }

    fn recall(&mut self, ino: Ino, effects: &mut Vec<Effect>) {
        let (Some(node), requests) = (self.nodes.get_mut(&ino), &self.requests) else { return };
        let wanted: Vec<(SessionId, Access)> =
            node.queue.iter().filter_map(|(id, access)| Some((requests.get(id)?.session, *access))).collect();
        node.recall(ino, &wanted, effects);
    }
}
