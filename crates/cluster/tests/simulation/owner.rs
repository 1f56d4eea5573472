//! An owner: registers in memory, ahead of the engine by what is not committed yet.

use std::collections::{BTreeMap, VecDeque};

use forebay_cluster::{
    Access, Arrival, Effect, Lease, LeaseTable, Need, Ownership, RequestId, SessionError, SessionId,
    Sessions, SlotNumber,
};
use forebay_types::{Epoch, Ino};

use crate::{
    engine::{Key, Rows, Value},
    faults::Planted,
    messages::{Message, Op},
    world::{Context, SECOND, client_of, terms},
};

/// A row put or deleted.
pub type Change = (Key, Option<Value>);

/// What was asked.
#[derive(Clone, Copy, Debug)]
struct Request {
    session: SessionId,
    tag: u64,
    sent: u64,
    slot: Option<(SlotNumber, u64)>,
    op: Op,
    wish: Option<Lease>,
}

#[derive(Debug)]
pub struct Owner {
    epoch: Epoch,
    values: BTreeMap<Ino, u64>,
    /// The last record that changed a register.
    changed: BTreeMap<Ino, u64>,
    sessions: Sessions<(u64, u64)>,
    table: LeaseTable,
    requests: BTreeMap<RequestId, Request>,
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
        let (mut values, mut writes) = (BTreeMap::new(), Vec::new());
        for key in rows.rows.keys() {
            if let Key::Session(id) = key {
                sessions.begin(*id, epoch, context.clock);
            }
        }
        for (key, value) in &rows.rows {
            match key {
                Key::Value(ino) => drop(values.insert(*ino, value.0)),
                Key::Slot(id, slot) => sessions.restore(*id, *slot, value.0, (value.1, 0)),
                Key::WriteLease(id, ino) => writes.push((*id, *ino)),
                Key::Session(_) => {}
            }
        }
        let table = if context.planted(Planted::NoGrace) {
            LeaseTable::taken_over(epoch, &[], &writes)
        } else {
            LeaseTable::taken_over(epoch, &sessions.all(), &writes)
        };
        Owner {
            epoch,
            values,
            changed: BTreeMap::new(),
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
            let effects = self.table.end(session);
            self.carry_out(effects, ownership, context);
        }
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
        self.sessions.end(session);
        let mut rows = vec![(Key::Session(session), None)];
        rows.extend((0..8).map(|slot| (Key::Slot(session, SlotNumber(slot)), None)));
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
                    self.record([(Key::Session(session), Some((0, 0)))]);
                }
                self.answer(self.last, session, Message::Begun { session, epoch: self.epoch, sent }, context);
            }
            Message::Renew { session, sent } if self.heard(session, context) => {
                context.send(client_of(session), Message::Renewed { session, sent });
            }
            Message::Request { session, tag, sent, slot, op, wish } if self.heard(session, context) => {
                let request = Request { session, tag, sent, slot, op, wish };
                self.request(request, ownership, context);
            }
            Message::Return { session, ino, stamp, kept } if self.sessions.lives(session) => {
                let effects = self.table.returned(session, ino, stamp, kept);
                self.carry_out(effects, ownership, context);
            }
            Message::Reclaim { session, leases, sent } => {
                if self.sessions.heard(session, now).is_err() {
                    context.send(client_of(session), Message::Ended { session });
                    return;
                }
                if !self.table.must_reclaim(session) && self.leases_in > self.committed {
                    // Asked again, it may name leases whose rows are on their way.
                    return;
                }
                let (given, effects) = self.table.reclaim(session, &leases);
                let reclaimed = Message::Reclaimed { session, epoch: self.epoch, given, sent };
                context.send(client_of(session), reclaimed);
                self.record_leases(context);
                self.carry_out(effects, ownership, context);
            }
            _ => {}
        }
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
                Ok(Arrival::Repeated((value, record))) => {
                    let again = Message::Answer { session, tag, sent, value, grants: Vec::new() };
                    self.answer(record, session, again, context);
                    return;
                }
                Err(SessionError::OutOfOrder { number, last, .. }) if number > last => {
                    self.end(session);
                    return;
                }
                // A late copy of an old message; over one connection there is none.
                Err(SessionError::OutOfOrder { .. } | SessionError::Ended) => return,
            }
        }
        self.next_request += 1;
        let id = RequestId(self.next_request);
        self.requests.insert(id, request);
        let writes = request.op.changes() || request.wish == Some(Lease::Write);
        let access = if writes { Access::Write } else { Access::Read };
        let needs: Vec<Need> = request.op.inos().into_iter().map(|ino| Need { ino, access }).collect();
        let effects = self.table.arrive(id, session, &needs);
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
            |(session, ino, given): (_, _, bool)| (Key::WriteLease(session, ino), given.then_some((0, 0)));
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
        let Some(request) = self.requests.get(&id).copied() else { return };
        if !request.op.changes() && !may {
            self.late.push_back(id);
            return;
        }
        self.requests.remove(&id);
        let Request { session, tag, sent, slot, op, wish } = request;
        let lives = self.sessions.lives(session);
        let (mut wait_for, value) =
            if lives { self.carry_out_op(op, slot, session, context) } else { (0, 0) };
        let wishes: Vec<(Ino, Lease)> = match wish {
            Some(lease) if lives => op.inos().into_iter().map(|ino| (ino, lease)).collect(),
            _ => Vec::new(),
        };
        let (grants, effects) = self.table.done(id, &wishes);
        self.record_leases(context);
        // Also one that was given already: its row may be on its way.
        if grants.iter().any(|grant| grant.lease == Lease::Write) {
            wait_for = wait_for.max(self.leases_in);
        }
        if lives {
            self.answer(wait_for, session, Message::Answer { session, tag, sent, value, grants }, context);
        }
        self.carry_out(effects, ownership, context);
    }

    /// Returns the record that the answer waits for, and the value.
    fn carry_out_op(
        &mut self,
        op: Op,
        slot: Option<(SlotNumber, u64)>,
        session: SessionId,
        context: &mut Context<'_>,
    ) -> (u64, u64) {
        let read = |owner: &Owner, ino: Ino| owner.values.get(&ino).copied().unwrap_or(0);
        let (value, changes): (u64, Vec<(Ino, u64)>) = match op {
            Op::Read(ino) => {
                let seen = self.changed.get(&ino).copied().unwrap_or(0);
                return (seen, read(self, ino));
            }
            Op::Write(ino, value) => (0, vec![(ino, value)]),
            Op::Move(from, to) => (read(self, from), vec![(from, 0), (to, read(self, from))]),
        };
        let mut rows: Vec<_> =
            changes.iter().map(|(ino, value)| (Key::Value(*ino), Some((*value, 0)))).collect();
        if let Some((slot, number)) = slot.filter(|_| !context.planted(Planted::NoRetryRow)) {
            rows.push((Key::Slot(session, slot), Some((number, value))));
        }
        let record = self.record(rows);
        for (ino, value) in changes {
            self.values.insert(ino, value);
            self.changed.insert(ino, record);
        }
        if let Some((slot, _)) = slot {
            self.sessions.answered(session, slot, (value, record));
        }
        (record, value)
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
