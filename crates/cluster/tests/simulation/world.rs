//! Time, messages, processes and what goes wrong with them.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use forebay_cluster::{Moment, SessionId, Terms};
use forebay_types::Ino;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{
    client::Client,
    engine::{Call, RegistryCall, Reply, Rows},
    faults::{Fault, Planted},
    history::History,
    messages::{Message, Node},
    process::Process,
    server::Server,
};

pub use crate::process::Context;

pub const MILLISECOND: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLISECOND;
pub const SERVERS: usize = 2;
pub const CLIENTS: usize = 3;
pub const REGISTERS: usize = 3;
/// Directories that are always there.
pub const ROOTS: [Ino; 2] = [Ino(11), Ino(12)];
/// Inode numbers of a run.
pub const RUN: u64 = 16;
/// How long faults happen, and how long after that everybody has to get on again.
const FAULTY: u64 = 60 * SECOND;
const CALM: u64 = 45 * SECOND;
/// When applications begin nothing more, so that what they did is told.
pub const LAST_BEGIN: u64 = FAULTY + CALM - 8 * SECOND;
const TICK: u64 = 50 * MILLISECOND;

pub fn terms() -> Terms {
    Terms::default()
}

/// Whose session it is.
pub fn client_of(session: SessionId) -> Node {
    Node::Client((session.0 >> 64) as usize)
}

#[derive(Debug)]
enum Event {
    Tick(Node),
    Message { from: Node, to: Node, life: u64, message: Message },
    Reach { server: usize, life: u64, call: Call },
    Answer { server: usize, life: u64, reply: Reply },
    Put { client: usize, life: u64, object: u64 },
    IsPut { client: usize, life: u64, object: u64 },
    Fault,
}

/// A process's clock and what is wrong with the process.
#[derive(Clone, Copy, Debug)]
struct Condition {
    offset: u64,
    /// Its clock's rate in thousandths.
    rate: u64,
    /// Raised when it dies.
    life: u64,
    paused_until: u64,
    isolated_until: u64,
    /// Until then it reaches everybody but the engine.
    no_engine_until: u64,
    /// Until then it does not reach the registry.
    no_registry_until: u64,
}

pub struct World {
    pub history: History,
    pub tell: bool,
    now: u64,
    rng: StdRng,
    planted: Option<Planted>,
    /// Whether one server at a time has the place.
    alone: bool,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    next_event: u64,
    engine: Rows,
    engine_away_until: u64,
    store: BTreeSet<u64>,
    servers: Vec<Server>,
    clients: Vec<Client>,
    conditions: BTreeMap<Node, Condition>,
    cuts: Vec<(Node, Node, u64)>,
}

impl World {
    pub fn new(seed: u64, planted: Option<Planted>) -> World {
        let mut rng = StdRng::seed_from_u64(seed);
        let alone = seed % 2 == 1;
        let nodes: Vec<Node> = (0..SERVERS).map(Node::Server).chain((0..CLIENTS).map(Node::Client)).collect();
        let conditions = nodes
            .iter()
            .map(|node| {
                let offset = rng.random_range(0..1000 * SECOND);
                let rate = rng.random_range(956..=1044);
                (
                    *node,
                    Condition {
                        offset,
                        rate,
                        life: 0,
                        paused_until: 0,
                        isolated_until: 0,
                        no_engine_until: 0,
                        no_registry_until: 0,
                    },
                )
            })
            .collect();
        let mut world = World {
            history: History::default(),
            tell: false,
            now: 0,
            rng,
            planted,
            alone,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            engine: Rows::default(),
            engine_away_until: 0,
            store: BTreeSet::new(),
            servers: (0..SERVERS).map(|at| Server::new(at, 0, alone)).collect(),
            clients: (0..CLIENTS).map(|at| Client::new(at, 0)).collect(),
            conditions,
            cuts: Vec::new(),
        };
        for node in nodes {
            world.at(TICK, Event::Tick(node));
        }
        world.at(5 * SECOND, Event::Fault);
        world
    }

    /// # Errors
    /// What was seen to be wrong, or who does not get on after the faults.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(Reverse((time, id))) = self.queue.pop() {
            if time > FAULTY + CALM {
                break;
            }
            self.now = time;
            if let Some(event) = self.events.remove(&id) {
                self.happen(event);
            }
            if let Some(found) = self.history.found() {
                return Err(found.clone());
            }
        }
        for client in &self.clients {
            if client.waits_since(self.now) + 18 * SECOND < FAULTY + CALM {
                return Err(format!("client {} is stuck: {client:?}", client.at));
            }
        }
        Ok(())
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
                } else if let Node::Client(at) = node {
                    // The daemon stands still; its kernel does not.
                    let mut context = self.context(node);
                    let (clients, context) = context.split();
                    clients[at].kernel_reads(context);
                }
                let delay = TICK + self.rng.random_range(0..TICK);
                self.at(delay, Event::Tick(node));
            }
            Event::Message { from, to, life, message } => self.deliver(from, to, life, message),
            Event::Reach { server, life, call } => self.reach(server, life, call),
            Event::Answer { server, life, reply } => {
                let node = Node::Server(server);
                let condition = self.conditions[&node];
                if condition.paused_until > self.now {
                    let delay =
                        condition.paused_until - self.now + self.rng.random_range(0..50 * MILLISECOND);
                    self.at(delay, Event::Answer { server, life, reply });
                } else if condition.life == life {
                    if self.tell {
                        println!("{:>12} engine answers server {server}: {reply:?}", self.now);
                    }
                    self.act(node, |process, context| process.answered(reply, context));
                }
            }
            Event::Put { client, life, object } => self.put(client, life, object),
            Event::IsPut { client, life, object } => {
                if self.conditions[&Node::Client(client)].life == life {
                    self.act(Node::Client(client), |process, context| process.stored(object, context));
                }
            }
            Event::Fault if self.now < FAULTY => {
                let fault = Fault::draw(&mut self.rng, self.alone);
                self.go_wrong(fault);
                let delay = self.rng.random_range(100 * MILLISECOND..8 * SECOND);
                self.at(delay, Event::Fault);
            }
            Event::Fault => {}
        }
    }

    fn deliver(&mut self, from: Node, to: Node, life: u64, message: Message) {
        let condition = self.conditions[&to];
        if condition.paused_until > self.now {
            let delay = condition.paused_until - self.now + self.rng.random_range(0..50 * MILLISECOND);
            self.at(delay, Event::Message { from, to, life, message });
            return;
        }
        if condition.life != life || self.is_cut(from, to) {
            return;
        }
        if self.tell {
            println!("{:>12} {from:?} -> {to:?}: {message:?}", self.now);
        }
        self.act(to, |process, context| process.message(from, message, context));
    }

    fn reach(&mut self, server: usize, life: u64, call: Call) {
        let node = Node::Server(server);
        let mut away = self.engine_away_until.max(self.conditions[&node].no_engine_until);
        if let Call::Registry(_) = call {
            away = away.max(self.conditions[&node].no_registry_until);
        }
        if away > self.now || self.is_isolated(node) {
            return;
        }
        let reply = self.engine.call(call, self.planted != Some(Planted::NoFence));
        if !self.rng.random_bool(0.03) {
            let delay = self.delay();
            self.at(delay, Event::Answer { server, life, reply });
        }
    }

    /// The store: what it is asked, and that it has done it, gets lost. An object that is there stays as it is.
    fn put(&mut self, client: usize, life: u64, object: u64) {
        if self.rng.random_bool(0.1) || self.is_isolated(Node::Client(client)) {
            return;
        }
        self.store.insert(object);
        if !self.rng.random_bool(0.15) {
            let condition = self.conditions[&Node::Client(client)];
            let delay = self.delay() + condition.paused_until.saturating_sub(self.now);
            self.at(delay, Event::IsPut { client, life, object });
        }
    }

    /// No two servers may look things up for others at the same moment, each by its own clock.
    fn check_owners(&mut self) {
        let may = |at: &usize| {
            let condition = self.conditions[&Node::Server(*at)];
            let clock = Moment(condition.offset + self.now / 1000 * condition.rate);
            self.servers[*at].may_look_up(clock)
        };
        let owners: Vec<usize> = (0..SERVERS).filter(may).collect();
        if owners.len() > 1 {
            self.history.finds(format!("servers {owners:?} own the volume at the same time"));
        }
    }

    /// No lock is held by two clients whose sessions last by their own clocks.
    fn check_locks(&mut self) {
        let mut holders: BTreeMap<Ino, usize> = BTreeMap::new();
        for client in &self.clients {
            let condition = self.conditions[&Node::Client(client.at)];
            let clock = Moment(condition.offset + self.now / 1000 * condition.rate);
            for ino in client.locks(clock) {
                if let Some(other) = holders.insert(ino, client.at) {
                    let found = format!("clients {other} and {} have the lock on {ino:?}", client.at);
                    self.history.finds(found);
                }
            }
        }
    }

    fn go_wrong(&mut self, fault: Fault) {
        if self.tell {
            println!("{:>12} {fault:?}", self.now);
        }
        let now = self.now;
        match fault {
            Fault::Crash(node) => {
                let condition = self.conditions.get_mut(&node).expect("every node has one");
                condition.life += 1;
                condition.paused_until = 0;
                let life = condition.life;
                match node {
                    Node::Server(at) => self.servers[at] = Server::new(at, life, self.alone),
                    Node::Client(at) => {
                        let successor = self.clients[at].crash(life, &mut self.history);
                        self.clients[at] = successor;
                    }
                }
            }
            Fault::Pause(node, long) => {
                self.conditions.get_mut(&node).expect("every node has one").paused_until = now + long;
            }
            Fault::Isolate(node, long) => {
                self.conditions.get_mut(&node).expect("every node has one").isolated_until = now + long;
            }
            Fault::Cut(one, other, long) => self.cuts.push((one, other, now + long)),
            Fault::NoEngine(node, long) => {
                self.conditions.get_mut(&node).expect("every node has one").no_engine_until = now + long;
            }
            Fault::NoRegistry(node, long) => {
                self.conditions.get_mut(&node).expect("every node has one").no_registry_until = now + long;
            }
            Fault::EngineAway(long) => self.engine_away_until = now + long,
            Fault::Stop(at) => self.act(Node::Server(at), |process, context| process.stop(context)),
        }
    }

    fn is_isolated(&self, node: Node) -> bool {
        self.conditions[&node].isolated_until > self.now
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

    fn context(&mut self, node: Node) -> Borrowed<'_> {
        let condition = self.conditions[&node];
        let clock = Moment(condition.offset + self.now / 1000 * condition.rate);
        Borrowed {
            servers: &mut self.servers,
            clients: &mut self.clients,
            context: Context {
                clock,
                now: self.now,
                rng: &mut self.rng,
                history: &mut self.history,
                planted: self.planted,
                stored: &self.store,
                sends: Vec::new(),
                calls: Vec::new(),
                puts: Vec::new(),
            },
        }
    }

    /// Lets a process do something, and takes care of what it says.
    fn act(&mut self, node: Node, what: impl FnOnce(Process<'_>, &mut Context<'_>)) {
        let mut borrowed = self.context(node);
        let Borrowed { servers, clients, context } = &mut borrowed;
        let process = match node {
            Node::Server(at) => Process::Server(&mut servers[at]),
            Node::Client(at) => Process::Client(&mut clients[at]),
        };
        what(process, context);
        let ended = matches!(node, Node::Server(at) if servers[at].ended);
        let (sends, calls) = (std::mem::take(&mut context.sends), std::mem::take(&mut context.calls));
        let puts = std::mem::take(&mut context.puts);
        for (to, message) in sends {
            // Lost, and twice.
            let copies = [0, 1, 1, 2]
                [usize::from(self.rng.random_bool(0.97)) + usize::from(self.rng.random_bool(0.03))];
            for _ in 0..copies {
                let delay = self.delay();
                let life = self.conditions[&to].life;
                self.at(delay, Event::Message { from: node, to, life, message: message.clone() });
            }
        }
        for call in calls {
            let Node::Server(server) = node else { continue };
            let (mut delay, life) = (self.delay(), self.conditions[&node].life);
            if let Call::Registry(RegistryCall::Open { .. }) = call {
                // It takes many requests.
                delay += self.rng.random_range(0..500 * MILLISECOND);
            }
            self.at(delay, Event::Reach { server, life, call });
        }
        if ended {
            self.go_wrong(Fault::Crash(node));
        }
        if let Node::Server(_) = node {
            self.check_owners();
        }
        if let Node::Client(client) = node {
            for object in puts {
                let (delay, life) = (self.delay(), self.conditions[&node].life);
                self.at(delay, Event::Put { client, life, object });
            }
            self.check_locks();
        }
    }
}

struct Borrowed<'a> {
    servers: &'a mut Vec<Server>,
    clients: &'a mut Vec<Client>,
    context: Context<'a>,
}

impl<'a> Borrowed<'a> {
    fn split(&mut self) -> (&mut Vec<Client>, &mut Context<'a>) {
        (self.clients, &mut self.context)
    }
}
