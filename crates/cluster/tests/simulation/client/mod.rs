//! A client: an application that does one thing after the other, what the daemon keeps under leases, and what its kernel keeps.

mod ahead;
mod application;
mod asking;
mod kept;
mod queue;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use forebay_cluster::{Grant, HeldLeases, Lease, Moment, Recalled, SessionId, SlotNumber, Stamp};
use forebay_types::{Epoch, Ino};
use rand::RngExt;

use crate::{
    faults::Planted,
    history::History,
    messages::{Message, Node},
    world::{Context, SERVERS, terms},
};
use ahead::Ahead;
use application::Doing;
use asking::Sent;
use kept::{Dirty, Kernel, Known};

const AGAIN_AFTER: Duration = Duration::from_millis(700);
const RENEW_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub struct Client {
    pub at: usize,
    life: u64,
    sessions: u64,
    session: SessionId,
    /// `None` until the session is begun.
    held: Option<HeldLeases>,
    server: usize,
    known: Known,
    kernel: Kernel,
    dirty: BTreeMap<Ino, Dirty>,
    ahead: Ahead,
    giving_back: Vec<Ino>,
    doing: Option<Doing>,
    /// Directories and files that the application has heard of.
    directories: Vec<Ino>,
    files: Vec<Ino>,
    locks: BTreeSet<Ino>,
    /// Inodes of which something is lost that nobody was told of.
    failures: BTreeSet<Ino>,
    requests: BTreeMap<u64, Sent>,
    next_tag: u64,
    /// The last request that was sent before a file's contents were taken in by the owner.
    flushed_at: BTreeMap<Ino, u64>,
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
            known: Known::default(),
            kernel: Kernel::default(),
            dirty: BTreeMap::new(),
            ahead: Ahead::default(),
            giving_back: Vec::new(),
            doing: None,
            directories: Vec::new(),
            files: Vec::new(),
            locks: BTreeSet::new(),
            failures: BTreeSet::new(),
            requests: BTreeMap::new(),
            next_tag: 0,
            flushed_at: BTreeMap::new(),
            slots: BTreeMap::new(),
            asked: Moment(0),
            reclaims: None,
            written: 0,
            last_done: 0,
        };
        client.new_session();
        client
    }

    /// Since when something waits: an operation, or what was done ahead.
    pub fn waits_since(&self, now: u64) -> u64 {
        self.last_done.min(self.ahead.oldest().unwrap_or(now))
    }

    /// The locks that the application may go by.
    pub fn locks(&self, clock: Moment) -> Vec<Ino> {
        let lasts = self.held.as_ref().is_some_and(|held| held.ends_at() > clock);
        self.locks.iter().copied().filter(|_| lasts).collect()
    }

    /// Dies, and is begun again.
    pub fn crash(&mut self, life: u64, history: &mut History) -> Client {
        self.lose(history, false);
        history.died(self.at);
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

    /// The session is over: what was kept back is lost, and the application will be told.
    fn lose(&mut self, history: &mut History, keeps_part: bool) {
        // First, as what was written may be on its way along with it.
        let lost = self.ahead.lose(history, keeps_part);
        self.failures.extend(lost);
        for ino in self.dirty.keys().copied().collect::<Vec<_>>() {
            self.lose_dirty(ino, history);
        }
        if let Some(doing) = self.doing.take()
            && !doing.asked
        {
            history.never_sent(doing.at);
        }
        self.known = Known::default();
        self.kernel = Kernel::default();
        self.locks.clear();
        self.giving_back.clear();
        self.requests.clear();
        self.slots.clear();
        self.new_session();
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
            self.lose(context.history, context.planted(Planted::KeepsPartOfQueue));
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
                if context.rng.random_bool(0.4) {
                    self.ship(context);
                }
            }
        }
    }

    fn send_again(&mut self, context: &mut Context<'_>) {
        if let Some((from, epoch, since)) = self.reclaims
            && context.clock.since(since) >= AGAIN_AFTER
        {
            self.reclaim(from, epoch, context);
        }
        self.put_again(context);
        self.ask_again(context);
    }

    pub fn message(&mut self, from: Node, message: Message, context: &mut Context<'_>) {
        match message {
            Message::Begun { session, epoch, sent } if session == self.session && self.held.is_none() => {
                self.held = Some(HeldLeases::new(terms(), epoch, Moment(sent)));
                self.asked = context.clock;
            }
            Message::Renewed { session, sent } if session == self.session => self.heard(sent),
            Message::Answer { session, tag, sent, value, also, grants } if session == self.session => {
                self.heard(sent);
                self.answered(tag, (value, also), &grants, context);
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
                let idle = self.doing.is_none() && self.requests.is_empty();
                if !(idle && context.planted(Planted::KeepsTooLong)) {
                    self.lose(context.history, context.planted(Planted::KeepsPartOfQueue));
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
        let (session, sent) = (self.session, context.clock.0);
        context.send(from, Message::Reclaim { session, epoch, leases, sent });
    }

    fn reclaimed(&mut self, epoch: Epoch, given: &[Grant], sent: u64, context: &mut Context<'_>) {
        let Some(held) = self.held.as_mut().filter(|held| held.epoch() < epoch) else { return };
        held.heard(Moment(sent));
        held.reclaimed(epoch, given);
        let reads = |ino: Ino| held.has(ino, Lease::Read, context.clock);
        self.known.retain(&reads);
        self.kernel.retain(&reads);
        self.ahead.retain(&|ino| held.has(ino, Lease::Write, context.clock));
        // What is kept back was under a lease that is held, or being given back: no owner gives it away.
        let kept = |ino: &Ino| held.lease(*ino) == Some(Lease::Write);
        if let Some(ino) = self.dirty.keys().find(|ino| !kept(ino)) {
            let what = format!("client {} lost the lease on {ino:?}, and not what it kept back", self.at);
            context.history.finds(what);
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
                    self.known.forget(ino);
                    if context.planted(Planted::StaleNegative) {
                        self.kernel.names.retain(|name, known| name.0 != ino || known.0.0 == 0);
                        self.kernel.values.remove(&ino);
                    } else if !context.planted(Planted::StaleKernel) {
                        self.kernel.forget(ino);
                    }
                }
                if self.ahead.is_delegated(ino) {
                    self.ahead.put_off(ino);
                }
                self.ahead.forget(ino);
                if !self.giving_back.contains(&ino) {
                    self.giving_back.push(ino);
                }
                self.give_back(ino, context);
            }
        }
    }

    /// Returns a lease, once what was changed under it is at the owner.
    fn give_back(&mut self, ino: Ino, context: &mut Context<'_>) {
        if !self.ahead.is_told(self.ahead.until(&[ino])) {
            self.ship(context);
            if !context.planted(Planted::ReturnBeforeTold) {
                return;
            }
        }
        if self.dirty.contains_key(&ino) {
            self.flush(ino, context);
            let too_early = context.planted(Planted::ReturnsBeforeStep) && self.is_along(ino);
            if !context.planted(Planted::FlushAfterReturn) && !too_early {
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

    /// Something has reached the owner: what waited for that is returned.
    fn give_back_more(&mut self, context: &mut Context<'_>) {
        for ino in self.giving_back.clone() {
            self.give_back(ino, context);
        }
    }
}
