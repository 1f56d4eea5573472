//! A client that writes: a data lane, a journal over it, and requests to the owner behind them. Where members are too few for a segment, what waits for one goes to the store,
//! and its request to the owner at once: it counts when that is carried out.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_cluster::{Moment, SessionId};
use forebay_group::{Closed, Effect, Lane, MemberId, PieceKey, View, Writer, placement};
use forebay_types::{Epoch, SegmentId};
use rand::RngExt;

use crate::{
    faults::Planted,
    messages::{Message, Node, Request, contents, node_of},
    world::{CLIENTS, COLD, Context, FILES, MEMBERS, SECOND, STOP},
};

/// A client stops so long after it asked what was answered last.
const LIVES_FOR: u64 = 9 * SECOND;
const SILENT_FOR: u64 = 3 * SECOND / 2;

#[derive(Debug)]
struct LaneState {
    writer: Writer,
    /// Sets of segments that are not settled.
    sets: BTreeMap<SegmentId, Vec<MemberId>>,
    /// The last record of the journal that names a segment, or is in it.
    named: BTreeMap<SegmentId, u64>,
    closed: BTreeSet<SegmentId>,
}

impl LaneState {
    fn new(segment_max: u64) -> LaneState {
        LaneState {
            writer: Writer::new(segment_max),
            sets: BTreeMap::new(),
            named: BTreeMap::new(),
            closed: BTreeSet::new(),
        }
    }
}

#[derive(Debug)]
pub struct Client {
    at: usize,
    /// It writes in class `local`: each of its segments is at the member of its own machine, and nowhere else.
    local: bool,
    session: SessionId,
    sessions: u64,
    /// When the last answered word was sent, by the own clock.
    alive: Option<Moment>,
    view: Option<View>,
    data: LaneState,
    journal: LaneState,
    /// What the data lane's records are: file and version.
    writes: BTreeMap<u64, (u64, u64)>,
    /// Requests in the journal that were not carried out.
    requests: BTreeMap<u64, Request>,
    /// Those of them that no journal has, with the object that they are about, if it was put for them.
    direct: BTreeMap<u64, Option<u64>>,
    /// Records of the data lane that are put into the store, by object.
    puts: BTreeMap<u64, (u64, Bytes)>,
    objects: u64,
    acknowledged: u64,
    committed: u64,
    opening: Option<(Lane, Vec<MemberId>, u64)>,
    opened: u64,
    need: [bool; 2],
    saying: Option<(u64, Vec<Closed>, Vec<SegmentId>)>,
    said: u64,
    unsaid: Vec<Closed>,
    silent_since: BTreeMap<MemberId, u64>,
    avoided: BTreeMap<MemberId, u64>,
    asked: u64,
    flushed: u64,
    pub last_acknowledged: u64,
}

impl Client {
    pub fn new(at: usize, life: u64, local: bool) -> Client {
        let mut client = Client {
            at,
            local,
            session: SessionId(0),
            sessions: life << 32,
            alive: None,
            view: None,
            data: LaneState::new(0),
            journal: LaneState::new(0),
            writes: BTreeMap::new(),
            requests: BTreeMap::new(),
            direct: BTreeMap::new(),
            puts: BTreeMap::new(),
            objects: ((MEMBERS + 1 + at) as u64) << 48 | life << 24,
            acknowledged: 0,
            committed: 0,
            opening: None,
            opened: 0,
            need: [false; 2],
            saying: None,
            said: 0,
            unsaid: Vec::new(),
            silent_since: BTreeMap::new(),
            avoided: BTreeMap::new(),
            asked: 0,
            flushed: 0,
            last_acknowledged: 0,
        };
        client.begin();
        client
    }

    /// Begins anew: what was not acknowledged is lost.
    fn begin(&mut self) {
        self.sessions += 1;
        self.session = SessionId((self.at as u128) << 64 | u128::from(self.sessions));
        self.alive = None;
        (self.data, self.journal) = (LaneState::new(200), LaneState::new(240));
        self.writes.clear();
        self.requests.clear();
        self.direct.clear();
        self.puts.clear();
        (self.acknowledged, self.committed, self.opened, self.said) = (0, 0, 0, 0);
        (self.opening, self.saying, self.need) = (None, None, [true; 2]);
        self.unsaid.clear();
        self.silent_since.clear();
        self.avoided.clear();
    }

    fn lane(&mut self, lane: Lane) -> &mut LaneState {
        match lane {
            Lane::Data => &mut self.data,
            Lane::Journal => &mut self.journal,
        }
    }

    fn lane_of(&self, segment: SegmentId) -> Option<Lane> {
        let lanes = [(Lane::Data, &self.data), (Lane::Journal, &self.journal)];
        lanes.into_iter().find(|(_, state)| state.sets.contains_key(&segment)).map(|(lane, _)| lane)
    }

    /// Whether its session may have ended; then it begins another.
    fn is_over(&mut self, context: &Context<'_>) -> bool {
        let late = |alive: Moment| context.clock.since(alive).as_nanos() as u64 >= LIVES_FOR;
        if self.alive.is_some_and(late) && !context.planted(Planted::NoFence) {
            self.begin();
            return true;
        }
        false
    }

    pub fn is_done(&self) -> bool {
        self.data.writer.pending() + self.journal.writer.pending() + self.requests.len() == 0
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
            self.send_again(context);
        }
        if self.alive.is_none() {
            return;
        }
        self.watch_members(context);
        self.flush(context);
        self.open(context);
        let calm = context.now < STOP && self.writes.len() + self.requests.len() < 5;
        if calm && context.rng.random_bool(0.6) {
            // Most is overwritten soon; some stays, and so do its segments until they are stored.
            let file = match context.rng.random_bool(0.15) {
                true => ((CLIENTS + self.at) * COLD + context.rng.random_range(0..COLD)) as u64,
                false => (self.at * FILES + context.rng.random_range(0..FILES)) as u64,
            };
            let version = context.next_version(file);
            self.writes.insert(self.data.writer.next_number(), (file, version));
            let effects = self.data.writer.write(contents(file, version));
            self.carry_out(Lane::Data, effects, context);
        }
        self.commit(context);
    }

    fn send_again(&mut self, context: &mut Context<'_>) {
        let all = [self.data.writer.outstanding(), self.journal.writer.outstanding()].concat();
        for (id, append) in all {
            context.send(node_of(id), Message::Append { id, append });
        }
        for (object, (_, bytes)) in &self.puts {
            put(*object, bytes, context);
        }
        let session = self.session;
        if let Some((lane, set, token)) = self.opening.clone() {
            context.send_meta(Message::Open { session, lane, set, token });
        }
        if let Some((token, closed, settled)) = self.saying.clone() {
            context.send_meta(Message::Says { session, token, closed, settled });
        }
    }

    /// Gives up members that do not answer for long.
    fn watch_members(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        let all = [self.data.writer.outstanding(), self.journal.writer.outstanding()].concat();
        let behind: BTreeSet<MemberId> = all.into_iter().map(|(id, _)| id).collect();
        self.silent_since.retain(|id, _| behind.contains(id));
        for id in behind {
            if now >= *self.silent_since.entry(id).or_insert(now) + SILENT_FOR {
                self.failed(id, context);
            }
        }
        let forgiven: Vec<_> =
            self.avoided.extract_if(.., |_, since| now >= *since + 4 * SECOND).map(|(id, _)| id).collect();
        for id in forgiven {
            for lane in [Lane::Data, Lane::Journal] {
                let effects = self.lane(lane).writer.forgive(id);
                self.carry_out(lane, effects, context);
            }
        }
    }

    fn failed(&mut self, id: MemberId, context: &mut Context<'_>) {
        self.silent_since.remove(&id);
        self.avoided.insert(id, context.now);
        for lane in [Lane::Data, Lane::Journal] {
            if context.planted(Planted::SealWithoutAll) {
                let open = self.lane(lane).writer.open_segments();
                for segment in open {
                    let effects = self.lane(lane).writer.synced(id, segment, u64::MAX);
                    self.carry_out(lane, effects, context);
                }
            }
            let effects = self.lane(lane).writer.failed(id);
            self.carry_out(lane, effects, context);
            self.give_back(lane);
        }
    }

    /// Segments that cannot be used any more end empty.
    fn give_back(&mut self, lane: Lane) {
        for segment in self.lane(lane).writer.unusable() {
            let set = self.lane(lane).sets.get(&segment).cloned().unwrap_or_default();
            self.lane(lane).closed.insert(segment);
            self.unsaid.push(Closed { segment, epoch: Epoch(1), set, len: 0, check: 0 });
        }
    }

    fn flush(&mut self, context: &mut Context<'_>) {
        let stops = context.now >= STOP && self.is_done();
        if context.now >= self.flushed + 2 * SECOND || stops {
            self.flushed = context.now;
            for lane in [Lane::Data, Lane::Journal] {
                let effects = self.lane(lane).writer.flush();
                self.carry_out(lane, effects, context);
            }
        }
        if stops {
            let sets: Vec<_> =
                self.data.sets.values().chain(self.journal.sets.values()).flatten().copied().collect();
            for lane in [Lane::Data, Lane::Journal] {
                for id in &sets {
                    drop(self.lane(lane).writer.failed(*id));
                }
                self.give_back(lane);
            }
        }
        self.say(context);
    }

    fn say(&mut self, context: &mut Context<'_>) {
        if self.saying.is_some() {
            return;
        }
        let (committed, mut settled) = (self.committed, Vec::new());
        let waits: Vec<SegmentId> = self.requests.values().map(|request| request.segment).collect();
        for lane in [&mut self.data, &mut self.journal] {
            let (named, writer) = (&lane.named, &lane.writer);
            let over = |segment: &SegmentId| {
                let carried_out = named.get(segment).is_none_or(|number| *number <= committed);
                carried_out && !waits.contains(segment) && !writer.holds(*segment)
            };
            settled.extend(lane.closed.extract_if(.., over));
            settled.iter().for_each(|segment| drop(lane.sets.remove(segment)));
        }
        let closed = std::mem::take(&mut self.unsaid);
        if !closed.is_empty() || !settled.is_empty() {
            self.said += 1;
            self.saying = Some((self.said, closed.clone(), settled.clone()));
            let (session, token) = (self.session, self.said);
            context.send_meta(Message::Says { session, token, closed, settled });
        }
    }

    fn open(&mut self, context: &mut Context<'_>) {
        let stops = context.now >= STOP && self.is_done();
        let Some(at) = self.need.iter().position(|need| *need).filter(|_| self.opening.is_none() && !stops)
        else {
            return;
        };
        let Some(view) = &self.view else { return };
        let mut members = view.active();
        members.retain(|member| !self.avoided.contains_key(&member.id));
        members.retain(|member| !self.local || node_of(member.id) == Node::Member(self.at));
        let copies = if self.local { 1 } else { usize::from(view.copies) };
        let key = PieceKey::of(SegmentId(context.rng.random()), 0);
        let set = placement::choose(key, &members, copies, None);
        let lane = [Lane::Data, Lane::Journal][at];
        if set.len() < copies {
            return self.go_to_the_store(context);
        }
        self.need[at] = false;
        self.opened += 1;
        let (token, session) = (self.opened, self.session);
        self.opening = Some((lane, set.clone(), token));
        context.send_meta(Message::Open { session, lane, set, token });
    }

    /// What waits for a segment, in whichever lane, needs none: bytes are put as an object, and of requests the owner is told.
    fn go_to_the_store(&mut self, context: &mut Context<'_>) {
        while let Some((number, bytes)) = self.data.writer.withdraw(SegmentId(self.objects + 1)) {
            self.objects += 1;
            put(self.objects, &bytes, context);
            self.puts.insert(self.objects, (number, bytes));
            if context.planted(Planted::NamesBeforeStored) {
                let effects = self.data.writer.stored(number);
                self.carry_out(Lane::Data, effects, context);
            }
        }
        while let Some((number, _)) = self.journal.writer.withdraw(SegmentId(0)) {
            self.direct.insert(number, None);
        }
    }

    fn commit(&mut self, context: &mut Context<'_>) {
        let next = self.committed + 1;
        let direct = self.direct.get(&next);
        if (next <= self.acknowledged || direct.is_some())
            && let Some(request) = self.requests.get(&next)
        {
            let (session, object) = (self.session, direct.copied().flatten());
            context.send_meta(Message::Commit { session, request: *request, object });
        }
    }

    /// The owner has carried out the next request, which counts from now on if it did not before.
    fn committed(&mut self, number: u64, context: &mut Context<'_>) {
        let request = self.requests.remove(&number);
        self.committed = number;
        if let (Some(_), Some(request)) = (self.direct.remove(&number), request) {
            context.acknowledged.push((self.session, request));
            context.direct += 1;
            self.last_acknowledged = context.now;
            let effects = self.journal.writer.stored(number);
            self.carry_out(Lane::Journal, effects, context);
        }
        self.commit(context);
    }

    fn carry_out(&mut self, lane: Lane, effects: Vec<Effect>, context: &mut Context<'_>) {
        for effect in effects {
            match effect {
                Effect::Append(id, append) => context.send(node_of(id), Message::Append { id, append }),
                Effect::Seal(closed) => {
                    for id in &closed.set {
                        context.send(node_of(*id), Message::Seal { id: *id, closed: closed.clone() });
                    }
                    self.lane(lane).closed.insert(closed.segment);
                    self.unsaid.push(closed);
                }
                Effect::NeedSegments => self.need[usize::from(lane == Lane::Journal)] = true,
                Effect::Acknowledged { number, segment, offset, len } if lane == Lane::Data => {
                    let Some((file, version)) = self.writes.remove(&number) else { continue };
                    if !self.data.sets.contains_key(&segment) {
                        let request = Request { number: 0, file, version, segment, offset, len };
                        let number = self.journal.writer.write_elsewhere(SegmentId(0), request.encode());
                        self.requests.insert(number, Request { number, ..request });
                        self.direct.insert(number, Some(segment.0));
                        continue;
                    }
                    let number = self.journal.writer.next_number();
                    let request = Request { number, file, version, segment, offset, len };
                    self.data.named.insert(segment, number);
                    self.requests.insert(number, request);
                    let effects = self.journal.writer.write(request.encode());
                    self.carry_out(Lane::Journal, effects, context);
                }
                Effect::Acknowledged { number, segment, .. } => {
                    self.journal.named.insert(segment, number);
                    self.acknowledged = number;
                    if let Some(request) = self.requests.get(&number) {
                        context.acknowledged.push((self.session, *request));
                        self.last_acknowledged = context.now;
                    }
                }
            }
        }
    }

    pub fn message(&mut self, _: Node, message: Message, context: &mut Context<'_>) {
        if self.is_over(context) {
            return;
        }
        let own = self.session;
        match message {
            Message::Alive { session, view, sent } if session == own => {
                self.alive = Some(self.alive.map_or(Moment(sent), |alive| alive.max(Moment(sent))));
                self.view = Some(view);
            }
            Message::Ended { session } if session == own => self.begin(),
            Message::Opened { session, lane, segment, set, token }
                if session == own && self.opening.as_ref().is_some_and(|opening| opening.2 == token) =>
            {
                self.opening = None;
                self.lane(lane).sets.insert(segment, set.clone());
                let effects = self.lane(lane).writer.opened(segment, Epoch(1), set);
                self.carry_out(lane, effects, context);
                self.give_back(lane);
            }
            Message::Committed { session, number } if session == own && number == self.committed + 1 => {
                self.committed(number, context);
            }
            Message::PutDone { id: None, object } => {
                let Some((number, _)) = self.puts.remove(&object) else { return };
                let effects = self.data.writer.stored(number);
                self.carry_out(Lane::Data, effects, context);
            }
            Message::Heard { session, token } if session == own => {
                self.saying.take_if(|saying| saying.0 == token);
            }
            Message::Synced { id, segment, end } => {
                self.silent_since.remove(&id);
                let Some(lane) = self.lane_of(segment) else { return };
                let who = match self.lane(lane).sets.get(&segment) {
                    Some(set) if context.planted(Planted::SingleCopy) => set.clone(),
                    _ => vec![id],
                };
                for id in who {
                    let effects = self.lane(lane).writer.synced(id, segment, end);
                    self.carry_out(lane, effects, context);
                }
            }
            Message::Refused { id, segment } => {
                let open = [self.data.writer.open_segments(), self.journal.writer.open_segments()].concat();
                if open.contains(&segment) {
                    self.failed(id, context);
                }
            }
            _ => {}
        }
    }
}

/// An object with one segment, which has its number.
fn put(object: u64, bytes: &Bytes, context: &mut Context<'_>) {
    let contents = vec![(SegmentId(object), bytes.clone())];
    context.send(Node::Store, Message::Put { id: None, object, contents });
}
