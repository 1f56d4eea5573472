//! A client: an application that does one thing after the other, what the daemon keeps under leases, and what its kernel keeps.

use std::{collections::BTreeMap, time::Duration};

use forebay_cluster::{HeldLeases, Lease, Moment, Recalled, SessionId, SlotNumber, Stamp};
use forebay_types::{Epoch, Ino};
use rand::RngExt;

use crate::{
    faults::Planted,
    history::{History, State},
    messages::{Message, Node, Op},
    world::{Context, REGISTERS, SERVERS, terms},
};

const AGAIN_AFTER: Duration = Duration::from_millis(700);
const RENEW_EVERY: Duration = Duration::from_secs(2);

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// The application waits for it.
    Application,
    /// A lease to write, and then the application's write under it.
    Acquire(u64),
    /// Something that was kept back.
    Flush,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    purpose: Purpose,
    op: Op,
    slot: Option<(SlotNumber, u64)>,
    wish: Option<Lease>,
    last: Moment,
}

/// What an application wrote and the owner does not know of.
#[derive(Debug, Default)]
struct Dirty {
    value: u64,
    /// In the history: what was written and seen under it, in order.
    operations: Vec<usize>,
    /// How many of them the flush under way covers.
    flushing: Option<usize>,
}

#[derive(Debug)]
pub struct Client {
    pub at: usize,
    life: u64,
    sessions: u64,
    session: SessionId,
    /// `None` until the session is begun.
    held: Option<HeldLeases>,
    server: usize,
    cache: BTreeMap<Ino, u64>,
    dirty: BTreeMap<Ino, Dirty>,
    /// What the kernel has, and until when.
    kernel: BTreeMap<Ino, (u64, Moment)>,
    giving_back: Vec<Ino>,
    /// The application's operation, in the history, and one that waits for a flush.
    application: Option<usize>,
    next: Option<Op>,
    requests: BTreeMap<u64, Sent>,
    next_tag: u64,
    slots: BTreeMap<SlotNumber, u64>,
    asked: Moment,
    /// From whom leases are being reclaimed, of which epoch, and since when.
    reclaims: Option<(Node, Epoch, Moment)>,
    written: u64,
    last_done: u64,
}

impl Client {
    pub fn new(at: usize, life: u64) -> Client {
        let mut client = Client {
            at,
            life,
            sessions: 0,
            session: SessionId(0),
            held: None,
            server: 0,
            cache: BTreeMap::new(),
            dirty: BTreeMap::new(),
            kernel: BTreeMap::new(),
            giving_back: Vec::new(),
            application: None,
            next: None,
            requests: BTreeMap::new(),
            next_tag: 0,
            slots: BTreeMap::new(),
            asked: Moment(0),
            reclaims: None,
            written: 0,
            last_done: 0,
        };
        client.new_session();
        client
    }

    pub fn last_done(&self) -> u64 {
        self.last_done
    }

    /// Dies, and is begun again.
    pub fn crash(&mut self, life: u64, history: &mut History) -> Client {
        self.lose(history);
        let mut successor = Client::new(self.at, life);
        successor.last_done = self.last_done;
        successor.written = self.written;
        successor
    }

    fn new_session(&mut self) {
        self.sessions += 1;
        self.session = SessionId((self.at as u128) << 64 | u128::from(self.life << 32 | self.sessions));
        self.held = None;
        self.reclaims = None;
        self.asked = Moment(0);
    }

    /// The session is over: what was kept back is lost, and the application is told.
    fn lose(&mut self, history: &mut History) {
        for ino in self.dirty.keys().copied().collect::<Vec<_>>() {
            self.lose_dirty(ino, history);
        }
        self.application = None;
        self.next = None;
        self.cache.clear();
        self.kernel.clear();
        self.giving_back.clear();
        self.requests.clear();
        self.slots.clear();
        self.new_session();
    }

    fn lose_dirty(&mut self, ino: Ino, history: &mut History) {
        let Some(dirty) = self.dirty.remove(&ino) else { return };
        let flushed = dirty.operations[..dirty.flushing.unwrap_or(0)].iter().rev();
        // The last write that was on its way may arrive; nobody but this client saw the others.
        let on_its_way = flushed.copied().find(|at| history.is_change(*at));
        for at in dirty.operations {
            history.becomes(at, if Some(at) == on_its_way { State::Open } else { State::Lost });
        }
    }

    fn has(&self, ino: Ino, lease: Lease, context: &Context<'_>) -> bool {
        let now = if context.planted(Planted::KeepsTooLong) { Moment(0) } else { context.clock };
        self.held.as_ref().is_some_and(|held| held.has(ino, lease, now))
    }

    fn to_server(&self, context: &mut Context<'_>, message: Message) {
        context.send(Node::Server(self.server), message);
    }

    pub fn tick(&mut self, context: &mut Context<'_>) {
        let now = context.clock;
        let over = self.held.as_ref().is_some_and(|held| held.ends_at() <= now);
        if over && !context.planted(Planted::KeepsTooLong) {
            self.lose(context.history);
        }
        let (session, sent) = (self.session, now.0);
        match &self.held {
            None if now.since(self.asked) >= AGAIN_AFTER => {
                self.server = context.rng.random_range(0..SERVERS);
                self.asked = now;
                self.to_server(context, Message::Begin { session, sent });
            }
            None => {}
            Some(_) => {
                if now.since(self.asked) >= RENEW_EVERY {
                    self.asked = now;
                    self.to_server(context, Message::Renew { session, sent });
                }
                self.send_again(context);
                self.application(context);
            }
        }
    }

    fn send_again(&mut self, context: &mut Context<'_>) {
        if let Some((from, epoch, since)) = self.reclaims
            && context.clock.since(since) >= AGAIN_AFTER
        {
            self.reclaim(from, epoch, context);
        }
        let late: Vec<u64> = self
            .requests
            .iter()
            .filter(|(_, sent)| context.clock.since(sent.last) >= AGAIN_AFTER)
            .map(|(tag, _)| *tag)
            .collect();
        if !late.is_empty() && context.rng.random_bool(0.3) {
            self.server = context.rng.random_range(0..SERVERS);
        }
        for tag in late {
            self.send(tag, context);
        }
    }

    fn send(&mut self, tag: u64, context: &mut Context<'_>) {
        let Some(sent) = self.requests.get_mut(&tag) else { return };
        sent.last = context.clock;
        let Sent { op, slot, wish, .. } = *sent;
        let request = Message::Request { session: self.session, tag, sent: context.clock.0, slot, op, wish };
        self.to_server(context, request);
    }

    fn request(&mut self, purpose: Purpose, op: Op, wish: Option<Lease>, context: &mut Context<'_>) {
        let slot = op.changes().then(|| {
            let slot = match (purpose, op) {
                (Purpose::Flush, Op::Write(ino, _)) => SlotNumber(ino.0 as u16),
                _ => SlotNumber(0),
            };
            let number = self.slots.entry(slot).or_default();
            *number += 1;
            (slot, *number)
        });
        if op.changes() && purpose != Purpose::Flush {
            // What is kept is not true any more once the owner has carried it out, which is before the answer comes.
            for ino in op.inos() {
                self.cache.remove(&ino);
                self.kernel.remove(&ino);
            }
        }
        self.next_tag += 1;
        self.requests.insert(self.next_tag, Sent { purpose, op, slot, wish, last: context.clock });
        self.send(self.next_tag, context);
    }

    // ---- the application -----------------------------------------------------------------------------------------

    fn application(&mut self, context: &mut Context<'_>) {
        if let Some(op) = self.next {
            if op.inos().iter().all(|ino| !self.dirty.contains_key(ino)) {
                self.next = None;
                self.request(Purpose::Application, op, Some(Lease::Read), context);
            }
            return;
        }
        if self.application.is_some() {
            return;
        }
        if context.rng.random_bool(0.05) {
            let dirty: Vec<Ino> = self.dirty.keys().copied().collect();
            dirty.into_iter().for_each(|ino| self.flush(ino, context));
        }
        let ino = draw(context);
        match context.rng.random_range(0..10) {
            0..=4 => self.read(ino, context),
            5..=8 => self.write(ino, context),
            _ => {
                let op = Op::Move(ino, Ino(ino.0 % REGISTERS as u64 + 1));
                self.application = Some(context.history.begin(self.at, op, context.now));
                self.after_flush(op, context);
            }
        }
    }

    /// An operation that the owner carries out: not before it knows what was kept back.
    fn after_flush(&mut self, op: Op, context: &mut Context<'_>) {
        op.inos().into_iter().for_each(|ino| self.flush(ino, context));
        self.next = Some(op);
    }

    fn read(&mut self, ino: Ino, context: &mut Context<'_>) {
        if self.kernel_read(ino, context) {
            return;
        }
        let at = context.history.begin(self.at, Op::Read(ino), context.now);
        match self.cache.get(&ino).copied() {
            Some(value) if self.has(ino, Lease::Read, context) => {
                self.tell_kernel(ino, value, context);
                self.saw(at, ino, value, context);
            }
            _ if self.dirty.contains_key(&ino) => {
                self.application = Some(at);
                self.after_flush(Op::Read(ino), context);
            }
            _ => {
                self.application = Some(at);
                let wish = context.rng.random_bool(0.8).then_some(Lease::Read);
                self.request(Purpose::Application, Op::Read(ino), wish, context);
            }
        }
    }

    /// What was seen under a lease to write is not known to stay.
    fn saw(&mut self, at: usize, ino: Ino, value: u64, context: &mut Context<'_>) {
        let state = match self.dirty.get_mut(&ino) {
            Some(dirty) => {
                dirty.operations.push(at);
                State::KeptBack
            }
            None => State::Done,
        };
        context.history.end(at, value, context.now, state);
        self.last_done = context.now;
    }

    fn kernel_read(&mut self, ino: Ino, context: &mut Context<'_>) -> bool {
        let Some((value, until)) = self.kernel.get(&ino).copied() else { return false };
        if until <= context.clock {
            return false;
        }
        let at = context.history.begin(self.at, Op::Read(ino), context.now);
        self.saw(at, ino, value, context);
        true
    }

    /// What applications read while the daemon stands still.
    pub fn kernel_reads(&mut self, context: &mut Context<'_>) {
        if self.application.is_none() {
            let ino = draw(context);
            self.kernel_read(ino, context);
        }
    }

    fn tell_kernel(&mut self, ino: Ino, value: u64, context: &Context<'_>) {
        let Some(held) = &self.held else { return };
        let lifetime = held.lifetime(ino, context.clock);
        let lifetime =
            if context.planted(Planted::KeepsTooLong) { Duration::from_secs(60) } else { lifetime };
        self.kernel.insert(ino, (value, context.clock + lifetime));
    }

    fn write(&mut self, ino: Ino, context: &mut Context<'_>) {
        self.written += 1;
        let value = (self.at as u64 + 1) * 1_000_000 + self.written;
        let op = Op::Write(ino, value);
        let at = context.history.begin(self.at, op, context.now);
        if self.has(ino, Lease::Write, context) {
            self.keep_back(at, ino, value, context);
            return;
        }
        self.application = Some(at);
        if !self.dirty.contains_key(&ino) && context.rng.random_bool(0.5) {
            self.request(Purpose::Acquire(value), Op::Read(ino), Some(Lease::Write), context);
        } else {
            self.after_flush(op, context);
        }
    }

    fn keep_back(&mut self, at: usize, ino: Ino, value: u64, context: &mut Context<'_>) {
        self.cache.insert(ino, value);
        self.tell_kernel(ino, value, context);
        self.dirty.entry(ino).or_default().value = value;
        self.saw(at, ino, 0, context);
    }

    fn flush(&mut self, ino: Ino, context: &mut Context<'_>) {
        let Some(dirty) = self.dirty.get_mut(&ino) else { return };
        if dirty.flushing.is_none() {
            dirty.flushing = Some(dirty.operations.len());
            let op = Op::Write(ino, dirty.value);
            self.request(Purpose::Flush, op, None, context);
        }
    }

    // ---- what the owner says -------------------------------------------------------------------------------------

    pub fn message(&mut self, from: Node, message: Message, context: &mut Context<'_>) {
        match message {
            Message::Begun { session, epoch, sent } if session == self.session && self.held.is_none() => {
                self.held = Some(HeldLeases::new(terms(), epoch, Moment(sent)));
                self.asked = context.clock;
            }
            Message::Renewed { session, sent } if session == self.session => self.heard(sent),
            Message::Answer { session, tag, sent, value, grants } if session == self.session => {
                self.heard(sent);
                self.answered(tag, value, &grants, context);
            }
            Message::Recall { session, ino, keep, stamp } if session == self.session => {
                self.recalled(from, ino, keep, stamp, context);
            }
            Message::MustReclaim { session, epoch } if session == self.session => {
                self.reclaim(from, epoch, context);
            }
            Message::Reclaimed { session, epoch, given, sent } if session == self.session => {
                self.reclaimed(epoch, &given, sent, context);
            }
            Message::Ended { session } if session == self.session && self.held.is_some() => {
                let idle = self.application.is_none() && self.requests.is_empty();
                if !(idle && context.planted(Planted::KeepsTooLong)) {
                    self.lose(context.history);
                }
            }
            Message::NotOwner { owner } => {
                self.server = owner.unwrap_or_else(|| context.rng.random_range(0..SERVERS));
            }
            _ => {}
        }
    }

    fn heard(&mut self, sent: u64) {
        if let Some(held) = &mut self.held {
            held.heard(Moment(sent));
        }
    }

    fn reclaim(&mut self, from: Node, epoch: Epoch, context: &mut Context<'_>) {
        let Some(held) = self.held.as_mut().filter(|held| held.epoch() < epoch) else { return };
        self.reclaims = Some((from, epoch, context.clock));
        let leases = held.to_reclaim(epoch);
        context.send(from, Message::Reclaim { session: self.session, leases, sent: context.clock.0 });
    }

    fn reclaimed(
        &mut self,
        epoch: Epoch,
        given: &[forebay_cluster::Grant],
        sent: u64,
        context: &mut Context<'_>,
    ) {
        let Some(held) = self.held.as_mut().filter(|held| held.epoch() < epoch) else { return };
        held.heard(Moment(sent));
        held.reclaimed(epoch, given);
        let kept = |ino: &Ino| held.has(*ino, Lease::Read, context.clock);
        self.cache.retain(|ino, _| kept(ino));
        self.kernel.retain(|ino, _| kept(ino));
        let lost: Vec<Ino> =
            self.dirty.keys().copied().filter(|ino| !self.has(*ino, Lease::Write, context)).collect();
        for ino in lost {
            // A flush under way still counts: the lease was being given back.
            if self.dirty[&ino].flushing.is_none() {
                self.lose_dirty(ino, context.history);
            }
        }
    }

    fn answered(
        &mut self,
        tag: u64,
        value: u64,
        grants: &[forebay_cluster::Grant],
        context: &mut Context<'_>,
    ) {
        let Some(Sent { purpose, op, .. }) = self.requests.remove(&tag) else {
            return;
        };
        let mut kept = None;
        for grant in grants {
            if self.held.as_mut().is_some_and(|held| held.granted(*grant)) {
                self.giving_back.retain(|ino| *ino != grant.ino);
                kept = Some(grant.lease);
            }
        }
        match (purpose, op) {
            (Purpose::Flush, Op::Write(ino, _)) => self.flushed(ino, context),
            (Purpose::Acquire(to_write), Op::Read(ino)) => {
                let Some(at) = self.application else { return };
                if kept == Some(Lease::Write) && self.has(ino, Lease::Write, context) {
                    self.application = None;
                    self.keep_back(at, ino, to_write, context);
                } else {
                    self.after_flush(Op::Write(ino, to_write), context);
                }
            }
            _ => {
                let Some(at) = self.application.take() else { return };
                if let (Some(_), Op::Read(ino) | Op::Write(ino, _)) = (kept, op) {
                    let now = if let Op::Write(_, written) = op { written } else { value };
                    self.cache.insert(ino, now);
                    self.tell_kernel(ino, now, context);
                }
                context.history.end(at, value, context.now, State::Done);
                self.last_done = context.now;
            }
        }
    }

    fn flushed(&mut self, ino: Ino, context: &mut Context<'_>) {
        let Some(dirty) = self.dirty.get_mut(&ino) else { return };
        let covered = dirty.flushing.take().unwrap_or(0);
        for at in dirty.operations.drain(..covered) {
            context.history.becomes(at, State::Done);
        }
        if dirty.operations.is_empty() {
            self.dirty.remove(&ino);
        }
        if self.giving_back.contains(&ino) {
            self.give_back(ino, context);
        }
    }

    fn recalled(
        &mut self,
        from: Node,
        ino: Ino,
        keep: Option<Lease>,
        stamp: Stamp,
        context: &mut Context<'_>,
    ) {
        let Some(held) = &mut self.held else { return };
        match held.recall(ino, keep, stamp) {
            Recalled::NotHeld => {
                let session = self.session;
                context.send(from, Message::Return { session, ino, stamp, kept: None });
            }
            Recalled::UnderWay => {}
            Recalled::GiveBack => {
                if keep.is_none() {
                    self.cache.remove(&ino);
                    if !context.planted(Planted::StaleKernel) {
                        self.kernel.remove(&ino);
                    }
                }
                if !self.giving_back.contains(&ino) {
                    self.giving_back.push(ino);
                }
                self.give_back(ino, context);
            }
        }
    }

    /// Returns a lease, once what was changed under it is at the owner.
    fn give_back(&mut self, ino: Ino, context: &mut Context<'_>) {
        if self.dirty.contains_key(&ino) {
            self.flush(ino, context);
            if !context.planted(Planted::FlushAfterReturn) {
                return;
            }
        }
        self.giving_back.retain(|other| *other != ino);
        let returned = self.held.as_mut().and_then(|held| held.returned(ino));
        if let Some((stamp, kept)) = returned {
            let session = self.session;
            self.to_server(context, Message::Return { session, ino, stamp, kept });
        }
    }
}

fn draw(context: &mut Context<'_>) -> Ino {
    Ino(context.rng.random_range(1..=REGISTERS as u64))
}
