//! An owner: what is in memory, ahead of the engine by what is not committed yet; sessions, leases, locks, numbers.

mod perform;
mod tree;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use forebay_cluster::{
    Arrival, Effect, Grant, Lease, LeaseTable, Need, Ownership, RequestId, SessionError, SessionId, Sessions,
};
use forebay_types::{Epoch, Ino};

use crate::{
    engine::{Key, Rows},
    faults::Planted,
    messages::{GONE, Message, Request},
    world::{Context, SECOND, client_of, terms},
};
pub use perform::Wrong;
use tree::{Change, Tree};

/// What a slot answered: a value, what went by the way, and the record with it.
type Answered = (u64, Ino, u64);

/// The first run of inode numbers.
const FIRST_RUN: u64 = 4;

#[derive(Debug)]
pub struct Owner {
    epoch: Epoch,
    tree: Tree,
    /// The last record that changed an inode.
    changed: BTreeMap<Ino, u64>,
    locks: BTreeMap<Ino, SessionId>,
    objects: BTreeSet<u64>,
    /// The next run of inode numbers, those that sessions were given, and what a former owner may have given.
    next_run: u64,
    given: BTreeMap<SessionId, BTreeSet<u64>>,
    former: (BTreeSet<SessionId>, u64),
    sessions: Sessions<Answered>,
    table: LeaseTable,
    requests: BTreeMap<RequestId, (Request, Vec<Need>)>,
    /// Requests to look something up that wait until that may be told.
    late: VecDeque<RequestId>,
    next_request: u64,
    /// The last record, and the last one that is committed.
    last: u64,
    committed: u64,
    /// The last record with rows of leases to write.
    leases_in: u64,
    pending: Vec<Change>,
    /// The batch under way, and its last record.
    batch: Option<(Vec<Change>, u64)>,
    /// Answers that wait for a record.
    held_back: Vec<(u64, SessionId, Message)>,
    /// Sessions whose end is in a record that is not committed.
    ending: Vec<(u64, SessionId)>,
    told_again: u64,
}

impl Owner {
    pub fn load(epoch: Epoch, rows: &Rows, context: &mut Context<'_>) -> Owner {
        let mut sessions = Sessions::new(terms());
        let (mut locks, mut writes) = (BTreeMap::new(), Vec::new());
        for key in rows.rows.keys() {
            if let Key::Session(id) = key {
                sessions.begin(*id, epoch, context.clock);
            }
        }
        for (key, value) in &rows.rows {
            match key {
                Key::Slot(id, slot) => sessions.restore(*id, *slot, value[0], (value[1], Ino(value[2]), 0)),
                Key::WriteLease(id, ino) => writes.push((*id, *ino)),
                Key::Lock(ino) => {
                    locks.insert(*ino, SessionId(u128::from(value[0]) << 64 | u128::from(value[1])));
                }
                _ => {}
            }
        }
        let next_run = rows.rows.get(&Key::Runs).map_or(FIRST_RUN, |row| row[0]);
        let former = (sessions.all().into_iter().collect(), next_run);
        let table = if context.planted(Planted::NoGrace) {
            LeaseTable::taken_over(epoch, &[], &writes)
        } else {
            LeaseTable::taken_over(epoch, &sessions.all(), &writes)
        };
        Owner {
            epoch,
            tree: Tree::load(rows),
            changed: BTreeMap::new(),
            locks,
            objects: rows
                .rows
                .keys()
                .filter_map(|key| if let Key::Object(it) = key { Some(*it) } else { None })
                .collect(),
            next_run,
            given: BTreeMap::new(),
            former,
            sessions,
            table,
            requests: BTreeMap::new(),
            late: VecDeque::new(),
            next_request: 0,
            last: 0,
            committed: 0,
            leases_in: 0,
            pending: Vec::new(),
            batch: None,
            held_back: Vec::new(),
            ending: Vec::new(),
            told_again: 0,
        }
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty() || self.batch.is_some()
    }

    /// The batch under way, or the next one.
    pub fn batch(&mut self) -> Vec<Change> {
        let (pending, last) = (&mut self.pending, self.last);
        self.batch.get_or_insert_with(|| (std::mem::take(pending), last)).0.clone()
    }

    fn record(&mut self, rows: impl IntoIterator<Item = Change>) -> u64 {
        self.last += 1;
        self.pending.extend(rows);
        self.last
    }

    pub fn committed(&mut self, ownership: &mut Ownership, context: &mut Context<'_>) {
        let Some((_, upto)) = self.batch.take() else { return };
        self.committed = upto;
        for (_, _, message) in self.held_back.extract_if(.., |held| held.0 <= upto) {
            context.send(session_client(&message), message);
        }
        let ended: Vec<SessionId> =
            self.ending.extract_if(.., |end| end.0 <= upto).map(|end| end.1).collect();
        for session in ended {
            self.locks.retain(|_, holder| *holder != session);
            let effects = self.table.end(session);
            self.carry_out(effects, ownership, context);
        }
        self.renewed(ownership, context);
    }

    /// What waited until it may be looked up is tried again.
    pub fn renewed(&mut self, ownership: &mut Ownership, context: &mut Context<'_>) {
        for id in std::mem::take(&mut self.late) {
            self.run(id, ownership, context);
        }
    }

    pub fn tick(&mut self, ownership: &mut Ownership, context: &mut Context<'_>) {
        for session in self.sessions.overdue(context.clock) {
            self.end(session);
        }
        if self.told_again + SECOND < context.now {
            self.told_again = context.now;
            for session in self.sessions.all() {
                let effects = self.table.outstanding(session);
                self.carry_out(effects, ownership, context);
            }
        }
    }

    fn end(&mut self, session: SessionId) {
        let slots = self.sessions.slots(session).into_iter();
        let mut rows: Vec<Change> = slots.map(|slot| (Key::Slot(session, slot), None)).collect();
        self.sessions.end(session);
        self.given.remove(&session);
        self.former.0.remove(&session);
        rows.push((Key::Session(session), None));
        let locks = self.locks.iter().filter(|(_, holder)| **holder == session);
        rows.extend(locks.map(|(ino, _)| (Key::Lock(*ino), None)));
        let leases = self.table.leases_of(session).into_iter();
        rows.extend(leases.map(|grant| (Key::WriteLease(session, grant.ino), None)));
        let record = self.record(rows);
        self.ending.push((record, session));
    }

    pub fn message(&mut self, message: Message, ownership: &mut Ownership, context: &mut Context<'_>) {
        let now = context.clock;
        // Nothing is answered, and no session renewed, that another owner would not know of.
        if !ownership.may_look_up(now) && !context.planted(Planted::ServesTooLong) {
            return;
        }
        match message {
            Message::Begin { session, sent } => {
                if !self.sessions.lives(session) && !self.ending.iter().any(|end| end.1 == session) {
                    self.sessions.begin(session, self.epoch, now);
                    self.record([(Key::Session(session), Some([0; 3]))]);
                }
                self.answer(self.last, session, Message::Begun { session, epoch: self.epoch, sent }, context);
            }
            Message::Renew { session, sent } if self.heard(session, context) => {
                context.send(client_of(session), Message::Renewed { session, sent });
            }
            Message::Request(request) if self.heard(request.session, context) => {
                self.request(request, ownership, context);
            }
            Message::Return { session, ino, stamp, kept } if self.sessions.lives(session) => {
                let effects = self.table.returned(session, ino, stamp, kept);
                self.carry_out(effects, ownership, context);
            }
            // What was said to a former owner is of before what that one gave and took.
            Message::Reclaim { session, epoch, .. } if epoch != self.epoch => {
                self.heard(session, context);
            }
            Message::Reclaim { session, leases, sent, .. } => {
                if self.sessions.heard(session, now).is_err() {
                    context.send(client_of(session), Message::Ended { session });
                    return;
                }
                if !self.table.must_reclaim(session) && self.leases_in > self.committed {
                    // Asked again, it may name leases whose rows are on their way.
                    return;
                }
                let had = self.known_leases(session, &leases);
                let (given, effects) = self.table.reclaim(session, &leases);
                let Some(given) = given else {
                    // It was heard of all the same, and says so again.
                    context.send(client_of(session), Message::Renewed { session, sent });
                    self.carry_out(effects, ownership, context);
                    return;
                };
                for (ino, lease) in had {
                    // From now on others may change what the session answers from until it has heard of it.
                    if !given.iter().any(|grant| grant.ino == ino && grant.lease >= lease) {
                        context
                            .history
                            .finds(format!("{session:?} had {lease:?} on {ino:?}, and is refused it"));
                    }
                }
                let reclaimed = Message::Reclaimed { session, epoch: self.epoch, given, sent };
                context.send(client_of(session), reclaimed);
                self.record_leases(context);
                self.carry_out(effects, ownership, context);
            }
            _ => {}
        }
    }

    /// Those of the leases of a session that is yet to reclaim that a former owner had given for certain: one to write was in no row where its inode was made ahead of the owner.
    fn known_leases(&self, session: SessionId, leases: &[(Ino, Lease)]) -> Vec<(Ino, Lease)> {
        let counts = |(ino, lease): &&(Ino, Lease)| {
            self.table.must_reclaim(session)
                && (*lease == Lease::Read || self.table.lease(session, *ino) == Some(Lease::Write))
        };
        leases.iter().filter(counts).copied().collect()
    }

    fn heard(&mut self, session: SessionId, context: &mut Context<'_>) -> bool {
        if self.sessions.heard(session, context.clock).is_err() {
            context.send(client_of(session), Message::Ended { session });
            return false;
        }
        if self.table.must_reclaim(session) {
            context.send(client_of(session), Message::MustReclaim { session, epoch: self.epoch });
            return false;
        }
        true
    }

    fn request(&mut self, request: Request, ownership: &mut Ownership, context: &mut Context<'_>) {
        let Request { session, slot, tag, sent, .. } = request;
        if let Some((slot, number)) = slot {
            match self.sessions.arrive(session, slot, number, context.clock) {
                Ok(Arrival::New) => {}
                Ok(Arrival::UnderWay) => return,
                Ok(Arrival::Repeated((value, also, record))) => {
                    let again = Message::Answer { session, tag, sent, value, also, grants: Vec::new() };
                    self.answer(record, session, again, context);
                    return;
                }
                Err(SessionError::Late { .. }) if context.planted(Planted::EndsForLateCopy) => {
                    self.end(session);
                    return;
                }
                Err(SessionError::OutOfOrder { .. }) => {
                    self.end(session);
                    return;
                }
                // Nobody waits for an answer to what comes late.
                Err(SessionError::Late { .. } | SessionError::Ended) => return,
            }
        }
        self.next_request += 1;
        let id = RequestId(self.next_request);
        let needs = self.needs(&request);
        let effects = self.table.arrive(id, session, &needs);
        self.requests.insert(id, (request, needs));
        if context.planted(Planted::NoRecall) && !effects.contains(&Effect::Run(id)) {
            self.run(id, ownership, context);
        }
        self.carry_out(effects, ownership, context);
    }

    /// Records the rows of leases to write that have changed.
    fn record_leases(&mut self, context: &Context<'_>) {
        let changes = self.table.take_write_changes();
        if changes.is_empty() || context.planted(Planted::NoWriteRow) {
            return;
        }
        let row =
            |(session, ino, given): (_, _, bool)| (Key::WriteLease(session, ino), given.then_some([0; 3]));
        self.leases_in = self.record(changes.into_iter().map(row));
    }

    fn carry_out(&mut self, effects: Vec<Effect>, ownership: &mut Ownership, context: &mut Context<'_>) {
        self.record_leases(context);
        for effect in effects {
            match effect {
                Effect::Run(id) => self.run(id, ownership, context),
                Effect::Recall { session, ino, keep, stamp } => {
                    context.send(client_of(session), Message::Recall { session, ino, keep, stamp });
                }
            }
        }
    }

    fn run(&mut self, id: RequestId, ownership: &mut Ownership, context: &mut Context<'_>) {
        let may = ownership.may_look_up(context.clock) || context.planted(Planted::ServesTooLong);
        let Some((request, declared)) = self.requests.get(&id).cloned() else { return };
        if !request.op.changes() && !may {
            self.late.push_back(id);
            return;
        }
        // Names may have come to stand for other inodes while it waited. From here on they cannot.
        let needs = self.needs(&request);
        let covers = |need: &Need| declared.iter().any(|it| it.ino == need.ino && it.access >= need.access);
        if !needs.iter().all(covers) && !context.planted(Planted::NoRecall) {
            self.requests.insert(id, (request, needs.clone()));
            let effects = self.table.again(id, &needs);
            self.carry_out(effects, ownership, context);
            return;
        }
        self.requests.remove(&id);
        self.finish(id, &request, &needs, ownership, context);
    }

    /// Carries a request out, and answers it once everything is committed that it has changed or seen.
    fn finish(
        &mut self,
        id: RequestId,
        request: &Request,
        needs: &[Need],
        ownership: &mut Ownership,
        context: &mut Context<'_>,
    ) {
        let Request { session, tag, sent, wish, .. } = *request;
        let lives = self.sessions.lives(session);
        let seen = needs.iter().filter_map(|need| self.changed.get(&need.ino)).copied().max().unwrap_or(0);
        let (mut wait_for, value, also, made) = match lives {
            true => self.perform(request, context),
            false => (0, 0, Ino(0), Vec::new()),
        };
        wait_for = wait_for.max(seen);
        let mut wishes: Vec<(Ino, Lease)> = Vec::new();
        if let Some(lease) = wish.filter(|_| lives && value != GONE) {
            let named = request.op.names().into_iter().filter_map(|name| self.tree.named(name));
            let inos: BTreeSet<Ino> = request.op.inos().into_iter().chain(named).collect();
            let there = inos.into_iter().filter(|ino| self.tree.value(*ino) != GONE);
            wishes.extend(there.map(|ino| (ino, lease)));
        }
        let mut grants: Vec<Grant> = made.into_iter().map(|ino| self.table.made(session, ino)).collect();
        let (wished, effects) = self.table.done(id, &wishes);
        grants.extend(wished);
        self.record_leases(context);
        // Also one that was given already: its row may be on its way.
        if grants.iter().any(|grant| grant.lease == Lease::Write) {
            wait_for = wait_for.max(self.leases_in);
        }
        if lives {
            let answer = Message::Answer { session, tag, sent, value, also, grants };
            self.answer(wait_for, session, answer, context);
        }
        self.carry_out(effects, ownership, context);
    }

    /// Sends an answer once a record is committed.
    fn answer(&mut self, record: u64, session: SessionId, message: Message, context: &mut Context<'_>) {
        if record <= self.committed || context.planted(Planted::ReplyBeforeCommit) {
            context.send(client_of(session), message);
        } else {
            self.held_back.push((record, session, message));
        }
    }
}

fn session_client(message: &Message) -> crate::messages::Node {
    match message {
        Message::Answer { session, .. } | Message::Begun { session, .. } => client_of(*session),
        other => unreachable!("{other:?} waits for no record"),
    }
}
