//! Time, messages, processes, the store, and what goes wrong with them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use bytes::Bytes;
use forebay_cluster::{Moment, SessionId};
use forebay_group::{GroupRow, Incarnation, MemberId};
use forebay_types::SegmentId;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    client::Client,
    engine::{Batch, Key, Rows, Value},
    faults::{Fault, Planted},
    member::{Disk, Member},
    messages::{Message, Node, Request},
    meta::Meta,
    promise,
};

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

/// What a batch does that the world looks at.
#[derive(Clone, Copy, Debug)]
pub enum Tag {
    None,
    /// A member was removed for good.
    Removed(MemberId),
    /// A session ended, with its journal carried out up to here.
    SessionEnded(SessionId, u64),
    /// A segment was given up.
    GivenUp(SegmentId),
    /// A segment ends where those have it end who are left.
    Shortened,
}

type Replies = Vec<(Node, Message)>;

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

/// What a process does.
pub struct Context<'a> {
    /// The process's own clock.
    pub clock: Moment,
    /// The world's time.
    pub now: u64,
    pub life: u64,
    pub rng: &'a mut StdRng,
    pub wish: Option<MemberId>,
    /// The log is to be synced from here on.
    pub sync: bool,
    /// Copies that were given up.
    pub dropped: Vec<(MemberId, SegmentId)>,
    /// Whether the volume is of class `local`.
    pub local: bool,
    /// Who took something in, and as what.
    pub accepted: Vec<(MemberId, Incarnation)>,
    /// Requests that are as durable as was promised.
    pub acknowledged: Vec<(SessionId, Request)>,
    /// How many of them no journal has: the owner had carried them out before.
    pub direct: usize,
    planted: Option<Planted>,
    versions: &'a mut BTreeMap<u64, u64>,
    ended: &'a BTreeSet<SessionId>,
    /// Members whose disks are lost for good.
    pub lost: &'a BTreeSet<MemberId>,
    sends: Replies,
    commits: Vec<(Batch, Tag, Replies)>,
    violations: Vec<String>,
}

impl Context<'_> {
    pub fn send(&mut self, to: Node, message: Message) {
        self.sends.push((to, message));
    }

    /// To one of the metadata servers.
    pub fn send_meta(&mut self, message: Message) {
        let meta = Node::Meta(self.rng.random_range(0..METAS));
        self.send(meta, message);
    }

    pub fn commit(&mut self, batch: Batch, tag: Tag, replies: Replies) {
        self.commits.push((batch, tag, replies));
    }

    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub fn planted(&self, mistake: Planted) -> bool {
        self.planted == Some(mistake)
    }

    pub fn next_version(&mut self, file: u64) -> u64 {
        let version = self.versions.entry(file).or_insert(0);
        *version += 1;
        *version
    }

    pub fn is_old(&self, session: SessionId) -> bool {
        self.ended.contains(&session)
    }
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
    /// What was acknowledged to applications, by session and number.
    pub acknowledged: BTreeMap<SessionId, BTreeMap<u64, Request>>,
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

/// What happened, so that a world in which nothing does is seen.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub acknowledged: usize,
    /// Those of them that one member has alone.
    pub local: usize,
    /// Those that were acknowledged by the owner and not by members, of which there were too few.
    pub direct: usize,
    pub recovered: usize,
    pub lost_disks: usize,
    pub removed: usize,
    pub seated: usize,
    /// Segments that nobody has any more, and those of which less is left than recovery had sealed.
    pub given_up: usize,
    pub shortened: usize,
    /// Requests that were acknowledged and that no journal has any more.
    pub forgotten: usize,
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
            metas: (0..METAS).map(|at| Meta::new(at, 0)).collect(),
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
            if client.last_acknowledged < STOP - 15 * SECOND || !client.is_done() {
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
            Tag::SessionEnded(id, applied) => promise::forgets(self, id, applied),
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
            Tag::SessionEnded(id, applied) => {
                self.ended.insert(id);
                self.counts.recovered += 1;
                let forgotten = self.acknowledged.get_mut(&id).map(|all| all.split_off(&(applied + 1)));
                let forgotten = forgotten.unwrap_or_default();
                if let Some((number, request)) = forgotten.first_key_value().filter(|_| !self.careless) {
                    let what =
                        format!("{id:?} ended with {applied}, but {number} was acknowledged: {request:?}");
                    self.violations.push(what);
                }
                self.counts.forgotten += forgotten.len();
            }
            Tag::GivenUp(_) => self.counts.given_up += 1,
            Tag::Shortened => self.counts.shortened += 1,
        }
        if !self.rng.random_bool(0.03) {
            let delay = self.delay();
            self.at(delay, Event::Answer { meta, life, replies });
        }
    }

    /// A drained member's disk is taken out, and a new one put in.
    fn removed(&mut self, id: MemberId) {
        self.wish = None;
        self.counts.removed += 1;
        let at = usize::from(id.0[0]);
        if self.members[at].disk.id == id {
            // All that it has is given up by that. A fence of what it never had may have come late: that is nothing. Nor is a copy that was of no use any more, and is
            // there again since its drop was not synced when the member died.
            let offers = self.members[at].log.offers();
            let had = offers.iter().filter(|offer| offer.end > 0);
            let lost: Vec<_> = had.filter_map(|offer| promise::drops(self, id, offer.segment)).collect();
            self.violations.extend(lost.into_iter().map(|what| format!("removed: {what}")));
            self.replace_disk(at);
        }
    }

    /// Sooner or later a disk that was given up is taken out, and a new one put in. Till then it speaks.
    fn take_out_what_was_given_up(&mut self) {
        for at in 0..MEMBERS {
            if promise::is_given_up(&self.rows, self.members[at].disk.id) && self.rng.random_bool(0.1) {
                self.replace_disk(at);
            }
        }
    }

    fn replace_disk(&mut self, at: usize) {
        self.disks += 1;
        let life = self.next_life(Node::Member(at));
        self.members[at] = Member::new(at, life, new_disk(at, self.disks));
    }

    fn next_life(&mut self, node: Node) -> u64 {
        let condition = self.conditions.get_mut(&node).expect("every node has one");
        condition.life += 1;
        condition.paused_until = 0;
        condition.life
    }

    fn go_wrong(&mut self, fault: Fault) {
        if self.tell {
            println!("{:>12} {fault:?}", self.now);
        }
        let now = self.now;
        match fault {
            Fault::Crash(node) => {
                let life = self.next_life(node);
                match node {
                    Node::Meta(at) => self.metas[at] = Meta::new(at, life),
                    Node::Client(at) => self.clients[at] = Client::new(at, life, self.local && at == 0),
                    Node::Member(at) => {
                        let survive = self.rng.random_range(0..=self.members[at].unsynced());
                        let disk = self.members[at].torn(survive);
                        self.members[at] = Member::new(at, life, disk);
                    }
                    Node::Store => {}
                }
            }
            Fault::Pause(node, long) => {
                self.conditions.get_mut(&node).expect("every node has one").paused_until = now + long;
            }
            Fault::Isolate(node, long) => {
                self.conditions.get_mut(&node).expect("every node has one").isolated_until = now + long;
            }
            Fault::Cut(one, other, long) => self.cuts.push((one, other, now + long)),
            Fault::EngineAway(long) => self.engine_away_until = now + long,
            Fault::StoreAway(long) => self.store_away_until = now + long,
            Fault::LoseDisk(at) => {
                let id = self.members[at].disk.id;
                if promise::may_lose(self, id) && self.wish != Some(id) {
                    self.lost.insert(id);
                    self.counts.lost_disks += 1;
                    self.replace_disk(at);
                }
            }
            Fault::Burn(at) => {
                let id = self.members[at].disk.id;
                if self.careless && self.wish != Some(id) {
                    self.lost.insert(id);
                    self.counts.lost_disks += 1;
                    self.replace_disk(at);
                }
            }
            Fault::HalfWay(at, client, long) => {
                let long = 15 * SECOND + long;
                self.go_wrong(Fault::Isolate(Node::Member(at), long));
                self.go_wrong(Fault::StoreAway(long));
                let delay = self.rng.random_range(100 * MILLISECOND..1_200 * MILLISECOND);
                self.at(delay, Event::Follows(Fault::Crash(Node::Client(client))));
            }
            Fault::Mistake(at, long) => {
                let id = self.members[at].disk.id;
                if self.careless && self.wish != Some(id) {
                    self.lost.insert(id);
                    let condition = self.conditions.get_mut(&Node::Member(at)).expect("every node has one");
                    condition.isolated_until = now + long;
                }
            }
            Fault::Drain(at) => {
                let id = self.members[at].disk.id;
                if self.lost.contains(&id) {
                    return;
                }
                let Some(Value::Group(group)) = self.rows.get(&Key::Group) else { return };
                if self.wish.is_none()
                    && group.view.active().len() > 3
                    && group.view.members.contains_key(&id)
                {
                    self.wish = Some(id);
                }
            }
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
        for (session, request) in acknowledged {
            self.counts.acknowledged += 1;
            self.acknowledged.entry(session).or_default().insert(request.number, request);
            if self.ended.contains(&session) {
                self.violations.push(format!("{request:?} is acknowledged after {session:?} ended"));
            }
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
