//! A client that writes as the product's does: batches are appended to the logs of members, or put where these are too few, then named to the owner; what they wrote counts once
//! the owner has answered that.

use std::collections::VecDeque;

use forebay_cluster::{Moment, SessionId};
use forebay_group::{Candidate, View};
use rand::RngExt;

use crate::{
    batch::Batch,
    lanes::Lanes,
    messages::{Answer, Message, Node, Operation, Write},
    world::{CLIENTS, COLD, Context, FILES, MEMBERS, SECOND, STOP},
};

/// A client stops so long after it asked what was answered last.
const LIVES_FOR: u64 = 9 * SECOND;
/// Batches that are on their way at a time, each in a slot of its own.
const BATCHES: usize = 2;
/// The slot in which the owner is told of segments.
const TELLING: usize = BATCHES;
pub const SLOTS: usize = BATCHES + 1;
/// Writes that wait for a batch at most, and those of a batch.
const WAITING: usize = 6;
const BATCH_MAX: usize = 6;

/// The slots of a session: of each the last number, and what was asked in it and is not answered.
#[derive(Debug)]
pub struct Slots {
    session: SessionId,
    last: [u64; SLOTS],
    unanswered: [Option<Operation>; SLOTS],
}

impl Slots {
    fn new(session: SessionId) -> Slots {
        Slots { session, last: [0; SLOTS], unanswered: [const { None }; SLOTS] }
    }

    pub fn ask(&mut self, slot: usize, operation: Operation, context: &mut Context<'_>) {
        self.last[slot] += 1;
        self.unanswered[slot] = Some(operation);
        self.send(slot, context);
    }

    fn send(&self, slot: usize, context: &mut Context<'_>) {
        if let Some(operation) = self.unanswered[slot].clone() {
            let (session, number) = (self.session, self.last[slot]);
            context.send_meta(Message::Ask { session, slot, number, operation });
        }
    }

    fn are_free(&self) -> bool {
        self.unanswered.iter().all(Option::is_none)
    }

    /// Whether an answer is the one that is waited for.
    fn takes(&mut self, slot: usize, number: u64) -> bool {
        self.last[slot] == number && self.unanswered[slot].take().is_some()
    }
}

/// What batches share.
#[derive(Debug)]
pub struct Shared {
    at: usize,
    /// It writes in class `local`: each of its segments is at the member of its own machine, and nowhere else.
    local: bool,
    view: Option<View>,
    pub lanes: Lanes,
    pub slots: Slots,
    objects: u64,
}

impl Shared {
    pub fn copies(&self) -> usize {
        let of_group = || self.view.as_ref().map_or(1, |view| usize::from(view.copies));
        if self.local { 1 } else { of_group() }
    }

    pub fn group(&mut self, now: u64) -> Option<Vec<Candidate>> {
        let copies = self.copies();
        self.lanes.group(self.view.as_ref()?, Node::Member(self.at), copies, now)
    }

    pub fn next_object(&mut self) -> u64 {
        self.objects += 1;
        self.objects
    }
}

#[derive(Debug)]
pub struct Client {
    session: SessionId,
    sessions: u64,
    /// When the last answered word was sent, by the own clock.
    alive: Option<Moment>,
    shared: Shared,
    /// What applications have written and wait for, and no batch has.
    writes: VecDeque<Write>,
    batches: [Option<Batch>; BATCHES],
    asked: u64,
    pub last_acknowledged: u64,
}

impl Client {
    pub fn new(at: usize, life: u64, local: bool) -> Client {
        let (lanes, slots) = (Lanes::default(), Slots::new(SessionId(0)));
        let objects = ((MEMBERS + 1 + at) as u64) << 48 | life << 24;
        let mut client = Client {
            session: SessionId(0),
            sessions: life << 32,
            alive: None,
            shared: Shared { at, local, view: None, lanes, slots, objects },
            writes: VecDeque::new(),
            batches: [const { None }; BATCHES],
            asked: 0,
            last_acknowledged: 0,
        };
        client.begin();
        client
    }

    /// Begins a session: what was not acknowledged in the one before is lost, and what that has opened is for the owner to recover.
    fn begin(&mut self) {
        self.sessions += 1;
        self.session = SessionId((self.shared.at as u128) << 64 | u128::from(self.sessions));
        self.alive = None;
        (self.shared.lanes, self.shared.slots) = (Lanes::default(), Slots::new(self.session));
        self.writes.clear();
        self.batches = [const { None }; BATCHES];
    }

    /// Whether its session may have ended; then it begins another.
    fn is_over(&mut self, context: &Context<'_>) -> bool {
        let late = |alive: Moment| context.clock.since(alive).as_nanos() as u64 >= LIVES_FOR;
        let over = self.alive.is_some_and(late);
        if over {
            self.begin();
        }
        over
    }

    /// Whether all that was written is acknowledged.
    fn is_done(&self) -> bool {
        self.writes.is_empty() && self.batches.iter().all(Option::is_none)
    }

    /// Whether besides all segments have ended, and the owner has heard that.
    pub fn is_idle(&self) -> bool {
        self.is_done() && self.shared.lanes.is_idle() && self.shared.slots.are_free()
    }

    pub fn tick(&mut self, context: &mut Context<'_>) {
        if self.is_over(context) {
            return;
        }
        if context.now >= self.asked + SECOND / 2 {
            self.asked = context.now;
            let (session, sent) = (self.session, context.clock.0);
            match self.alive {
                None => return context.send_meta(Message::Begin { session, sent }),
                Some(_) => context.send_meta(Message::Beat { session, sent }),
            }
            (0..SLOTS).for_each(|slot| self.shared.slots.send(slot, context));
            self.batches.iter().flatten().for_each(|batch| batch.send_again(context));
        }
        if self.alive.is_none() {
            return;
        }
        for batch in self.batches.iter_mut().flatten() {
            batch.watch(&mut self.shared, context);
        }
        self.write(context);
        self.begin_batches(context);
        self.sweep(context);
    }

    /// Applications write, most again and again.
    fn write(&mut self, context: &mut Context<'_>) {
        let calm = context.now < STOP && self.writes.len() < WAITING;
        if calm && context.rng.random_bool(0.6) {
            let at = self.shared.at;
            // Most is overwritten soon; some stays, and so do its segments until they are stored.
            let file = match context.rng.random_bool(0.15) {
                true => ((CLIENTS + at) * COLD + context.rng.random_range(0..COLD)) as u64,
                false => (at * FILES + context.rng.random_range(0..FILES)) as u64,
            };
            let version = context.next_version(file);
            self.writes.push_back(Write { file, version });
        }
    }

    /// What waits goes into batches; of one file there is one on its way at a time.
    fn begin_batches(&mut self, context: &mut Context<'_>) {
        for slot in 0..BATCHES {
            if self.batches[slot].is_some() {
                continue;
            }
            let on_its_way = |write: &Write| self.batches.iter().flatten().any(|batch| batch.has(write.file));
            let (mut taken, mut left) = (Vec::new(), VecDeque::new());
            for write in self.writes.drain(..) {
                if taken.len() < BATCH_MAX && !on_its_way(&write) {
                    taken.push(write);
                } else {
                    left.push_back(write);
                }
            }
            self.writes = left;
            if !taken.is_empty() {
                self.batches[slot] = Some(Batch::begin(slot, taken, &mut self.shared, context));
            }
        }
    }

    /// Ends segments that were open for long, all once nothing more is written, and tells the owner of what has ended, until it has heard that.
    fn sweep(&mut self, context: &mut Context<'_>) {
        let stops = context.now >= STOP && self.is_done();
        let Shared { lanes, slots, .. } = &mut self.shared;
        lanes.end_old(stops, context);
        if slots.unanswered[TELLING].is_none()
            && let Some((closed, settled)) = lanes.take_told()
        {
            slots.ask(TELLING, Operation::Settle { closed, settled }, context);
        }
    }

    pub fn message(&mut self, _: Node, message: Message, context: &mut Context<'_>) {
        if self.is_over(context) {
            return;
        }
        let (own, shared) = (self.session, &mut self.shared);
        match message {
            Message::Alive { session, view, sent } if session == own => {
                self.alive = Some(self.alive.map_or(Moment(sent), |alive| alive.max(Moment(sent))));
                shared.view = Some(view);
            }
            Message::Ended { session } if session == own => self.begin(),
            Message::Answered { session, slot, number, answer }
                if session == own && shared.slots.takes(slot, number) =>
            {
                self.answered(slot, answer, context);
            }
            Message::PutDone { id: None, object } => {
                for batch in self.batches.iter_mut().flatten() {
                    batch.was_put(object, shared, context);
                }
            }
            Message::Synced { id, segment, end, draining } => {
                for batch in self.batches.iter_mut().flatten() {
                    batch.synced((id, segment, end, draining), shared, context);
                }
            }
            Message::Refused { id, segment } => {
                for batch in self.batches.iter_mut().flatten() {
                    batch.failed(id, segment, shared, context);
                }
            }
            _ => {}
        }
    }

    fn answered(&mut self, slot: usize, answer: Answer, context: &mut Context<'_>) {
        let Some(batch) = self.batches.get_mut(slot).and_then(Option::as_mut) else { return };
        if batch.answered(answer, &mut self.shared, context) {
            self.batches[slot] = None;
            self.last_acknowledged = context.now;
        }
    }
}
