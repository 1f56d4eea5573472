//! Time, messages, processes and the store.

mod context;
mod wrong;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use bytes::Bytes;
use forebay_cluster::{Moment, SessionId};
use forebay_group::{GroupRow, MemberId};
use forebay_types::SegmentId;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    client::Client,
    engine::{Batch, Key, Rows, Value},
    faults::{Fault, Planted},
    member::{Disk, Member},
    messages::{Message, Node},
    meta::Meta,
    promise,
};

use context::Replies;
pub use context::{Context, Counts, Tag};

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;
pub const MEMBERS: usize = 4;
pub const METAS: usize = 2;
pub const CLIENTS: usize = 2;
/// Files that a client writes again and again, and those that it writes now and then.
pub const FILES: usize = 3;
pub const COLD: usize = 50;
/// How long faults happen, until when clients write, and when everything is to be in the store.
const FAULTY: u64 = 60 * SECOND;
pub const STOP: u64 = FAULTY + 45 * SECOND;
const END: u64 = STOP + 40 * SECOND;
const TICK: u64 = 60 * MILLISECOND;

#[derive(Debug)]
enum Event {
    Tick(Node),
    Message {
        from: Node,
        to: Node,
        life: u64,
        message: Message,
    },
    Synced {
        member: usize,
        life: u64,
    },
    Reach {
        meta: usize,
        life: u64,
        batch: Batch,
        tag: Tag,
        replies: Replies,
    },
    Answer {
        meta: usize,
        life: u64,
        replies: Replies,
    },
    Fault,
    /// What comes of one that was.
    Follows(Fault),
    Check,
}

#[derive(Clone, Copy, Debug)]
struct Condition {
    offset: u64,
    /// Its clock's rate in thousandths.
    rate: u64,
    /// Raised when it dies.
    life: u64,
    paused_until: u64,
    isolated_until: u64,
}

pub struct World {
    pub tell: bool,
    pub rows: Rows,
    pub members: Vec<Member>,
    pub objects: BTreeMap<u64, Vec<(SegmentId, Bytes)>>,
    /// The last version of each file that was acknowledged to an application.
    pub acknowledged: BTreeMap<u64, u64>,
    pub ended: BTreeSet<SessionId>,
    pub lost: BTreeSet<MemberId>,
    /// Whether all copies of something may be lost in it.
    careless: bool,
    /// Whether the volume is of class `local`: the first client writes so, and the files of the others are of a higher class.
    local: bool,
    now: u64,
    rng: StdRng,
    planted: Option<Planted>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
    metas: Vec<Meta>,
    clients: Vec<Client>,
    conditions: BTreeMap<Node, Condition>,
    cuts: Vec<(Node, Node, u64)>,
    engine_away_until: u64,
    store_away_until: u64,
    versions: BTreeMap<u64, u64>,
    wish: Option<MemberId>,
    disks: u8,
    violations: Vec<String>,
    pub counts: Counts,
}

impl World {
    pub fn new(seed: u64, planted: Option<Planted>) -> World {
        let mut rng = StdRng::seed_from_u64(seed);
        let metas = (0..METAS).map(Node::Meta);
        let nodes: Vec<Node> =
            metas.chain((0..MEMBERS).map(Node::Member)).chain((0..CLIENTS).map(Node::Client)).collect();
        let condition = |node: &Node| {
            let offset = rng.random_range(0..1000 * SECOND);
            let rate = rng.random_range(956..=1044);
            (*node, Condition { offset, rate, life: 0, paused_until: 0, isolated_until: 0 })
        };
        let conditions = nodes.iter().map(condition).collect();
        let mut world = World {
            tell: false,
            rows: Rows::from([(Key::Group, Value::Group(GroupRow::new(2)))]),
            members: (0..MEMBERS).map(|at| Member::new(at, 0, new_disk(at, 0))).collect(),
            objects: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            ended: BTreeSet::new(),
            lost: BTreeSet::new(),
            careless: seed.is_multiple_of(2),
            local: is_local(seed),
            now: 0,
            rng,
            planted,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            metas: (0..METAS).map(Meta::new).collect(),
            clients: (0..CLIENTS).map(|at| Client::new(at, 0, is_local(seed) && at == 0)).collect(),
            conditions,
            cuts: Vec::new(),
            engine_away_until: 0,
            store_away_until: 0,
            versions: BTreeMap::new(),
            wish: None,
            disks: 0,
            violations: Vec::new(),
            counts: Counts::default(),
        };
        for node in nodes {
            world.at(TICK, Event::Tick(node));
        }
        world.at(4 * SECOND, Event::Fault);
        world.at(SECOND, Event::Check);
        world
    }

    /// # Errors
    /// The first promise that was broken.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(Reverse((time, id))) = self.queue.pop() {
            if time > END {
                break;
            }
            self.now = time;
            if let Some(event) = self.events.remove(&id) {
                self.happen(event);
            }
            if let Some(found) = self.violations.first() {
                return Err(format!("at {:.3} s: {found}", self.now as f64 / 1e9));
            }
        }
        for (at, client) in self.clients.iter().enumerate() {
            if client.last_acknowledged < STOP - 15 * SECOND || !client.is_idle() {
                return Err(format!("client {at} is stuck: {client:?}"));
            }
        }
        if let Some(wish) = self.wish {
            return Err(format!("{wish:?} was never drained"));
        }
        promise::at_the_end(self)
    }

    pub fn digest(&self) -> String {
        format!("{:?} {:?}", self.rows, self.counts)
    }

    fn at(&mut self, delay: u64, event: Event) {
        self.next_event += 1;
        self.events.insert(self.next_event, event);
        self.queue.push(Reverse((self.now + delay, self.next_event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(node) => {
                if self.conditions[&node].paused_until <= self.now {
                    self.act(node, |process, context| process.tick(context));
                }
                let delay = TICK + self.rng.random_range(0..TICK);
                self.at(delay, Event::Tick(node));
            }
            Event::Message { from, to, life, message } => self.deliver(from, to, life, message),
            Event::Synced { member, life } => {
                let node = Node::Member(member);
                if let Some(delay) = self.wakes_in(node) {
                    self.at(delay, Event::Synced { member, life });
                } else if self.conditions[&node].life == life {
                    self.act(node, |process, context| process.synced(context));
                }
            }
            Event::Reach { meta, life, batch, tag, replies } => self.reach(meta, life, batch, tag, replies),
            Event::Answer { meta, life, replies } => {
                let node = Node::Meta(meta);
                if let Some(delay) = self.wakes_in(node) {
                    self.at(delay, Event::Answer { meta, life, replies });
                } else if self.conditions[&node].life == life {
                    self.act(node, |_, context| context.sends.extend(replies));
                }
            }
            Event::Fault if self.now < FAULTY => {
                let fault = Fault::draw(&mut self.rng);
                self.go_wrong(fault);
                let delay = self.rng.random_range(100 * MILLISECOND..6 * SECOND);
                self.at(delay, Event::Fault);
            }
            Event::Fault => {}
            Event::Follows(fault) => self.go_wrong(fault),
            Event::Check => {
                let found = promise::holds(self);
                self.violations.extend(found);
                self.take_out_what_was_given_up();
                // Of all disks the one that costs most, now and then.
                if let Some(at) = promise::alone(self).filter(|_| self.careless && self.now < FAULTY) {
                    self.go_wrong(Fault::Burn(at));
                }
                self.at(SECOND, Event::Check);
            }
        }
    }

    fn wakes_in(&mut self, node: Node) -> Option<u64> {
        let until = self.conditions.get(&node).map_or(0, |condition| condition.paused_until);
        (until > self.now).then(|| until - self.now + self.rng.random_range(0..50 * MILLISECOND))
    }

    fn deliver(&mut self, from: Node, to: Node, life: u64, message: Message) {
        if let Some(delay) = self.wakes_in(to) {
            return self.at(delay, Event::Message { from, to, life, message });
        }
        let same = self.conditions.get(&to).is_none_or(|condition| condition.life == life);
        if !same || self.is_cut(from, to) {
            return;
        }
        if self.tell {
            println!("{:>12} {from:?} -> {to:?}: {message:?}", self.now);
        }
        if to == Node::Store {
            self.store(from, message);
        } else {
            self.act(to, |process, context| process.message(from, message, context));
        }
    }

    fn store(&mut self, from: Node, message: Message) {
        if self.store_away_until > self.now {
            return;
        }
        match message {
            Message::Put { id, object, contents } => {
                self.objects.entry(object).or_insert(contents);
                if !self.rng.random_bool(0.1) {
                    self.post(Node::Store, from, Message::PutDone { id, object });
                }
            }
            Message::Delete { object } => {
                if let Some(found) = promise::deletes(self, object) {
                    self.violations.push(found);
                }
                self.objects.remove(&object);
                self.rows.remove(&Key::Garbage(object));
            }
            _ => {}
        }
    }

    fn reach(&mut self, meta: usize, life: u64, batch: Batch, tag: Tag, replies: Replies) {
        if self.is_away(meta) {
            return;
        }
        let before = match tag {
            Tag::GivenUp(segment) => promise::gives_up(self, segment),
            _ => None,
        };
        if !batch.commit(&mut self.rows) {
            return;
        }
        self.violations.extend(before);
        if self.tell {
            println!("{:>12} meta {meta} commits {tag:?}, then {replies:?}", self.now);
        }
        match tag {
            Tag::None => {}
            Tag::Removed(id) => self.removed(id),
            Tag::SessionEnded(id) => {
                self.ended.insert(id);
                self.counts.ended += 1;
            }
            Tag::Recovered => self.counts.recovered += 1,
            Tag::GivenUp(_) => self.counts.given_up += 1,
            Tag::Shortened => self.counts.shortened += 1,
        }
        if !self.rng.random_bool(0.03) {
            let delay = self.delay();
            self.at(delay, Event::Answer { meta, life, replies });
        }
    }

    fn is_away(&self, meta: usize) -> bool {
        self.engine_away_until > self.now || self.is_isolated(Node::Meta(meta))
    }

    fn is_isolated(&self, node: Node) -> bool {
        self.conditions.get(&node).is_some_and(|condition| condition.isolated_until > self.now)
    }

    fn is_cut(&self, one: Node, other: Node) -> bool {
        let between =
            |cut: &(Node, Node, u64)| (cut.0, cut.1) == (one, other) || (cut.0, cut.1) == (other, one);
        self.is_isolated(one)
            || self.is_isolated(other)
            || self.cuts.iter().any(|cut| cut.2 > self.now && between(cut))
    }

    fn delay(&mut self) -> u64 {
        let longest = if self.rng.random_bool(0.02) { 2 * SECOND } else { 10 * MILLISECOND };
        self.rng.random_range(MILLISECOND / 10..longest)
    }

    /// Sends a message: it may get lost, or come twice.
    fn post(&mut self, from: Node, to: Node, message: Message) {
        let copies =
            [0, 1, 1, 2][usize::from(self.rng.random_bool(0.97)) + usize::from(self.rng.random_bool(0.03))];
        for _ in 0..copies {
            let delay = self.delay();
            let life = self.conditions.get(&to).map_or(0, |condition| condition.life);
            self.at(delay, Event::Message { from, to, life, message: message.clone() });
        }
    }

    /// Lets a process do something, and takes care of what it says.
    fn act(&mut self, node: Node, what: impl FnOnce(Process<'_>, &mut Context<'_>)) {
        let condition = self.conditions[&node];
        let away = matches!(node, Node::Meta(at) if self.is_away(at));
        let mut context = Context {
            clock: Moment(condition.offset + self.now / 1000 * condition.rate),
            now: self.now,
            life: condition.life,
            rng: &mut self.rng,
            wish: self.wish,
            sync: false,
            dropped: Vec::new(),
            local: self.local,
            accepted: Vec::new(),
            acknowledged: Vec::new(),
            direct: 0,
            planted: self.planted,
            versions: &mut self.versions,
            ended: &self.ended,
            lost: &self.lost,
            sends: Vec::new(),
            commits: Vec::new(),
            violations: Vec::new(),
        };
        let process = match node {
            Node::Meta(at) => Process::Meta(&mut self.metas[at], (!away).then_some(&self.rows)),
            Node::Member(at) => Process::Member(&mut self.members[at]),
            Node::Client(at) => Process::Client(&mut self.clients[at]),
            Node::Store => return,
        };
        what(process, &mut context);
        let Context { sync, dropped, accepted, acknowledged, direct, sends, commits, violations, .. } =
            context;
        self.violations.extend(violations);
        self.counts.direct += direct;
        if self.local && node == Node::Client(0) {
            self.counts.local += acknowledged.len() - direct;
        }
        for extent in acknowledged {
            self.counts.acknowledged += 1;
            let last = self.acknowledged.entry(extent.write.file).or_insert(0);
            *last = (*last).max(extent.write.version);
            let found = promise::counts(self, &extent);
            self.violations.extend(found);
        }
        self.violations
            .extend(accepted.into_iter().filter_map(|(id, as_what)| promise::acts(&self.rows, id, as_what)));
        let dropped: Vec<_> =
            dropped.iter().filter_map(|(id, segment)| promise::drops(self, *id, *segment)).collect();
        self.violations.extend(dropped);
        for (to, message) in sends {
            self.counts.seated += usize::from(matches!(message, Message::Copied { .. }));
            self.post(node, to, message);
        }
        let life = condition.life;
        if let (true, Node::Member(member)) = (sync, node) {
            let delay = self.rng.random_range(MILLISECOND..40 * MILLISECOND);
            self.at(delay, Event::Synced { member, life });
        }
        for (batch, tag, replies) in commits {
            let Node::Meta(meta) = node else { continue };
            let delay = self.delay();
            self.at(delay, Event::Reach { meta, life, batch, tag, replies });
        }
    }
}

/// In every second pair of worlds.
fn is_local(seed: u64) -> bool {
    seed / 2 % 2 == 1
}

fn new_disk(at: usize, number: u8) -> Disk {
    let mut id = [at as u8; 16];
    id[1] = number;
    Disk { id: MemberId(id), ..Disk::default() }
}

enum Process<'a> {
    /// With the engine's rows, where it reaches the engine.
    Meta(&'a mut Meta, Option<&'a Rows>),
    Member(&'a mut Member),
    Client(&'a mut Client),
}

impl Process<'_> {
    fn tick(self, context: &mut Context<'_>) {
        match self {
            Process::Meta(meta, Some(rows)) => meta.tick(rows, context),
            Process::Meta(_, None) => {}
            Process::Member(member) => member.tick(context),
            Process::Client(client) => client.tick(context),
        }
    }

    fn message(self, from: Node, message: Message, context: &mut Context<'_>) {
        match self {
            Process::Meta(meta, Some(rows)) => meta.message(from, message, rows, context),
            Process::Meta(_, None) => {}
            Process::Member(member) => member.message(from, message, context),
            Process::Client(client) => client.message(from, message, context),
        }
    }

    fn synced(self, context: &mut Context<'_>) {
        if let Process::Member(member) = self {
            member.synced(context);
        }
    }
}
