//! One batch of a client: appended to segments until all of their sets have it, or put as an object where members are too few, then committed. As
//! `crates/client/src/data/{batch,lanes/packing}.rs` do it, each wait for others being a stage here.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_group::{Append, MemberId};
use forebay_types::SegmentId;
use rand::RngExt;

use crate::{
    client::Shared,
    faults::Planted,
    lanes::{Filling, Used},
    messages::{Answer, Extent, Message, Node, Operation, Write, node_of},
    world::{Context, SECOND},
};

/// Bytes of one append, unless a single version is longer.
const APPEND_MAX: usize = 80;
/// A member has failed that has not answered an append for so long, or for so long after another one of the set has.
const ANSWERS_WITHIN: u64 = 8 * SECOND;
const AFTER_ANOTHER: u64 = 3 * SECOND / 2;
/// How long the store is asked before members are asked again.
const TURN: u64 = 5 * SECOND;

#[derive(Debug)]
struct Appending {
    filling: Filling,
    append: Append,
    /// What is in it.
    extents: Vec<Extent>,
    since: u64,
    /// When the first of the set answered.
    heard: Option<u64>,
    /// Who has answered, and whether it has it on stable storage.
    answers: BTreeMap<MemberId, bool>,
}

/// For what a batch waits.
#[derive(Debug)]
enum Stage {
    /// The owner, for a segment.
    Opening,
    /// All of a set.
    Appending(Box<Appending>),
    /// The store.
    Putting { object: u64, bytes: Bytes, since: u64 },
    /// The owner, to whom all of it was named: at members, or in this object.
    Committing { object: Option<u64> },
}

#[derive(Debug)]
pub struct Batch {
    slot: usize,
    writes: Vec<Write>,
    /// How many of them, from the first on, all of a set have.
    done: usize,
    placed: Vec<Extent>,
    used: Used,
    stage: Stage,
}

impl Batch {
    pub fn begin(slot: usize, writes: Vec<Write>, shared: &mut Shared, context: &mut Context<'_>) -> Batch {
        let stage = Stage::Opening;
        let mut batch = Batch { slot, writes, done: 0, placed: Vec::new(), used: Used::default(), stage };
        batch.append(shared, context);
        batch
    }

    /// Whether a version of a file is on its way: of one file there is one batch at a time.
    pub fn has(&self, file: u64) -> bool {
        self.writes.iter().any(|write| write.file == file)
    }

    /// Appends what no set has, to one segment after the other; then the owner is told.
    fn append(&mut self, shared: &mut Shared, context: &mut Context<'_>) {
        if self.done == self.writes.len() {
            return self.commit(None, shared, context);
        }
        if let Some(open) = self.used.open.pop() {
            return self.append_to(open, shared, context);
        }
        let Some(members) = shared.group(context.now) else { return self.put(shared, context) };
        if let Some(known) = shared.lanes.known(&members) {
            return self.append_to(known, shared, context);
        }
        let (copies, count) = (shared.copies(), context.rng.random_range(1..=2));
        shared.slots.ask(self.slot, Operation::Open { members, copies, count }, context);
        self.stage = Stage::Opening;
    }

    /// Appends some of it as one, and waits for the set.
    fn append_to(&mut self, mut filling: Filling, shared: &mut Shared, context: &mut Context<'_>) {
        let (mut bytes, mut extents) = (Vec::new(), Vec::new());
        let (segment, start) = (filling.replication.segment(), filling.replication.end());
        for write in &self.writes[self.done..] {
            let more = write.bytes();
            if !bytes.is_empty() && bytes.len() + more.len() > APPEND_MAX {
                break;
            }
            let (offset, len) = (start + bytes.len() as u64, more.len() as u64);
            extents.push(Extent { write: *write, segment, offset, len });
            bytes.extend_from_slice(&more);
        }
        let append = filling.replication.append(bytes.into());
        let (since, heard, answers) = (context.now, None, BTreeMap::new());
        let appending = Appending { filling, append, extents, since, heard, answers };
        appending.send(context);
        let (set, end) = (appending.silent(), appending.append.end());
        self.stage = Stage::Appending(Box::new(appending));
        if context.planted(Planted::CommitsAtOnce) {
            set.iter().for_each(|id| self.answered_by(*id, segment, end, shared, context));
        }
    }

    /// A member has synced its copy of a segment up to here.
    pub fn synced(
        &mut self,
        (id, segment, end, draining): (MemberId, SegmentId, u64, bool),
        shared: &mut Shared,
        context: &mut Context<'_>,
    ) {
        let Stage::Appending(appending) = &mut self.stage else { return };
        if appending.append.segment != segment || appending.append.end() != end {
            return;
        }
        appending.filling.ends |= draining;
        let set = appending.filling.replication.set();
        let who = if context.planted(Planted::SingleCopy) { set } else { vec![id] };
        who.iter().for_each(|id| self.answered_by(*id, segment, end, shared, context));
    }

    fn answered_by(
        &mut self,
        id: MemberId,
        segment: SegmentId,
        end: u64,
        shared: &mut Shared,
        context: &mut Context<'_>,
    ) {
        let Stage::Appending(appending) = &mut self.stage else { return };
        if appending.append.segment == segment && appending.filling.replication.names(id) {
            appending.filling.replication.synced(id, end);
            appending.heard.get_or_insert(context.now);
            appending.answers.entry(id).or_insert(true);
            self.look_at_answers(shared, context);
        }
    }

    /// A member refuses what goes to a segment, or does not answer.
    pub fn failed(
        &mut self,
        id: MemberId,
        segment: SegmentId,
        shared: &mut Shared,
        context: &mut Context<'_>,
    ) {
        let Stage::Appending(appending) = &mut self.stage else { return };
        if appending.append.segment != segment || appending.answers.contains_key(&id) {
            return;
        }
        if context.planted(Planted::SealWithoutAll) {
            appending.filling.replication.synced(id, appending.append.end());
        }
        appending.answers.insert(id, false);
        shared.lanes.avoid(id, context.now);
        self.look_at_answers(shared, context);
    }

    /// Once each of the set has answered, or failed: what not all have goes to another segment, and this one ends where all have it.
    fn look_at_answers(&mut self, shared: &mut Shared, context: &mut Context<'_>) {
        let Stage::Appending(appending) = &self.stage else { return };
        if appending.answers.len() < appending.filling.replication.set().len() {
            return;
        }
        let Stage::Appending(appending) = std::mem::replace(&mut self.stage, Stage::Opening) else { return };
        let Appending { filling, append, extents, answers, .. } = *appending;
        let all = filling.replication.acknowledged() == append.end();
        if all {
            self.done += extents.len();
            self.placed.extend(extents);
        }
        if all && !filling.is_full() && answers.values().all(|has| *has) {
            self.used.open.push(filling);
        } else {
            let segment = shared.lanes.end(filling, context);
            self.used.ended.push(segment);
            if context.planted(Planted::SettlesEarly) {
                shared.lanes.settle(segment);
            }
        }
        self.append(shared, context);
    }

    /// Members are too few: all of it is put as an object, and nothing is named that was appended.
    fn put(&mut self, shared: &mut Shared, context: &mut Context<'_>) {
        shared.lanes.done(std::mem::take(&mut self.used));
        (self.done, self.placed) = (0, Vec::new());
        let object = shared.next_object();
        let mut bytes = Vec::new();
        for write in &self.writes {
            let (offset, more) = (bytes.len() as u64, write.bytes());
            let (segment, len) = (SegmentId(object), more.len() as u64);
            self.placed.push(Extent { write: *write, segment, offset, len });
            bytes.extend_from_slice(&more);
        }
        let bytes = Bytes::from(bytes);
        put(object, &bytes, context);
        self.stage = Stage::Putting { object, bytes, since: context.now };
        if context.planted(Planted::NamesBeforeStored) {
            self.commit(Some(object), shared, context);
        }
    }

    pub fn was_put(&mut self, object: u64, shared: &mut Shared, context: &mut Context<'_>) {
        if matches!(self.stage, Stage::Putting { object: awaited, .. } if awaited == object) {
            self.commit(Some(object), shared, context);
        }
    }

    fn commit(&mut self, object: Option<u64>, shared: &mut Shared, context: &mut Context<'_>) {
        let extents = self.placed.clone();
        shared.slots.ask(self.slot, Operation::Commit { extents, object }, context);
        self.stage = Stage::Committing { object };
    }

    /// The owner has answered. Returns whether the batch is over: from now on it counts.
    pub fn answered(&mut self, answer: Answer, shared: &mut Shared, context: &mut Context<'_>) -> bool {
        match answer {
            Answer::Opened(opened) => {
                shared.lanes.opened(opened, context.now);
                self.append(shared, context);
                false
            }
            Answer::Committed => {
                shared.lanes.done(std::mem::take(&mut self.used));
                if matches!(self.stage, Stage::Committing { object: Some(_) }) {
                    context.direct += self.placed.len();
                }
                context.acknowledged.append(&mut self.placed);
                true
            }
            Answer::Refused => {
                shared.lanes.done(std::mem::take(&mut self.used));
                (self.done, self.placed) = (0, Vec::new());
                self.append(shared, context);
                false
            }
            Answer::Done => false,
        }
    }

    /// Sends again what was not answered.
    pub fn send_again(&self, context: &mut Context<'_>) {
        match &self.stage {
            Stage::Appending(appending) => appending.send(context),
            Stage::Putting { object, bytes, .. } => put(*object, bytes, context),
            Stage::Opening | Stage::Committing { .. } => {}
        }
    }

    /// Gives up members that do not answer for long; and the store, where members may take it again.
    pub fn watch(&mut self, shared: &mut Shared, context: &mut Context<'_>) {
        let now = context.now;
        match &self.stage {
            Stage::Appending(appending) => {
                let late = now >= appending.since + ANSWERS_WITHIN
                    || appending.heard.is_some_and(|heard| now >= heard + AFTER_ANOTHER);
                if late {
                    let segment = appending.append.segment;
                    for id in appending.silent() {
                        self.failed(id, segment, shared, context);
                    }
                }
            }
            Stage::Putting { since, .. } if now >= since + TURN && shared.group(now).is_some() => {
                (self.done, self.placed) = (0, Vec::new());
                self.append(shared, context);
            }
            _ => {}
        }
    }
}

impl Appending {
    fn silent(&self) -> Vec<MemberId> {
        let set = self.filling.replication.set();
        set.into_iter().filter(|id| !self.answers.contains_key(id)).collect()
    }

    fn send(&self, context: &mut Context<'_>) {
        for id in self.silent() {
            context.send(node_of(id), Message::Append { id, append: self.append.clone() });
        }
    }
}

/// An object with one segment, which has its number.
fn put(object: u64, bytes: &Bytes, context: &mut Context<'_>) {
    let contents = vec![(SegmentId(object), bytes.clone())];
    context.send(Node::Store, Message::Put { id: None, object, contents });
}
