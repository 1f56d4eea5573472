//! A member: a disk, and a process that comes and goes.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_group::{
    Append, GroupTerms, Incarnation, Member as Entry, MemberId, MemberLog, MemberState, Membership, Record,
    Step, Verdict,
};
use forebay_types::SegmentId;

use crate::{
    faults::Planted,
    messages::{Message, Node, Part, node_of},
    world::{Context, SECOND},
};

/// A disk: what was written to it, and how much of that is there for good.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    pub id: MemberId,
    pub records: Vec<(u64, Record)>,
    pub synced: usize,
}

impl Disk {
    /// What the synced log has of each segment, whatever was cut or given up later.
    pub fn durable(&self) -> BTreeMap<SegmentId, Vec<u8>> {
        let mut found: BTreeMap<SegmentId, Vec<u8>> = BTreeMap::new();
        for (_, record) in &self.records[..self.synced] {
            match record {
                Record::Append(append) => found.entry(append.segment).or_default().extend(&append.bytes),
                Record::Seal { segment, len, .. } => {
                    found.entry(*segment).or_default().truncate(*len as usize);
                }
                Record::Drop { segment } => drop(found.remove(segment)),
                Record::Fence { .. } => {}
            }
        }
        found
    }

    /// Forgets what was given up.
    fn prune(&mut self) {
        let Some((last, _)) = self.records[..self.synced].last().cloned() else { return };
        let mut dropped = BTreeMap::new();
        for (position, record) in &self.records[..self.synced] {
            if let Record::Drop { segment } = record {
                dropped.insert(*segment, *position);
            }
        }
        let before = self.records.len();
        self.records.retain(|(position, record)| {
            *position >= last || dropped.get(&record.segment()).is_none_or(|gone| position > gone)
        });
        self.synced -= before - self.records.len();
    }
}

#[derive(Debug)]
struct Put {
    parts: Vec<Part>,
    contents: Vec<(SegmentId, Bytes)>,
    done: bool,
}

#[derive(Debug)]
pub struct Member {
    pub disk: Disk,
    pub log: MemberLog,
    pub membership: Membership,
    at: usize,
    /// Answers that wait until the log is synced.
    waiting: Vec<(u64, Node, Message)>,
    syncing: Option<(u64, usize)>,
    puts: BTreeMap<u64, Put>,
    next_object: u64,
    incarnations: u64,
    asked: u64,
    offered: u64,
}

fn incarnation(at: usize, life: u64, number: u64) -> Incarnation {
    let mut id = [at as u8; 16];
    id[..8].copy_from_slice(&life.to_be_bytes());
    id[8..15].copy_from_slice(&number.to_be_bytes()[1..]);
    Incarnation(id)
}

impl Member {
    pub fn new(at: usize, life: u64, disk: Disk) -> Member {
        let mut log = MemberLog::new();
        for (position, record) in &disk.records {
            log.replay(*position, record);
        }
        log.replayed(0);
        let entry = Entry {
            incarnation: incarnation(at, life, 0),
            address: at.to_string(),
            node: at.to_string(),
            zone: format!("z{}", at % 3),
            weight: 1 + at as u32,
            state: MemberState::Active,
        };
        Member {
            membership: Membership::new(disk.id, entry, GroupTerms::default()),
            disk,
            log,
            at,
            waiting: Vec::new(),
            syncing: None,
            puts: BTreeMap::new(),
            next_object: (at as u64 + 1) << 48 | life << 24,
            incarnations: 0,
            asked: 0,
            offered: 0,
        }
    }

    /// What the disk has after a crash, when so many of the records that were not synced are there.
    pub fn torn(&self, survive: usize) -> Disk {
        let mut disk = self.disk.clone();
        disk.records.truncate((disk.synced + survive).min(disk.records.len()));
        disk.synced = disk.records.len();
        disk
    }

    pub fn unsynced(&self) -> usize {
        self.disk.records.len() - self.disk.synced
    }

    fn note(&mut self, record: Option<Record>, context: &mut Context<'_>) {
        if let Some(record) = record {
            if let Record::Drop { segment } = &record {
                context.dropped.push((self.disk.id, *segment));
            }
            self.disk.records.push((self.log.end() - record.size(), record));
        }
    }

    fn answer(&mut self, step: Step, to: Node, message: Message, context: &mut Context<'_>) {
        let (upto, now) = (step.upto, self.log.synced_upto());
        self.note(step.record, context);
        if upto <= now || context.planted(Planted::AnswersBeforeSync) {
            context.send(to, message);
        } else {
            self.waiting.push((upto, to, message));
        }
        self.sync(context);
    }

    fn sync(&mut self, context: &mut Context<'_>) {
        if self.syncing.is_none() && self.unsynced() > 0 {
            self.syncing = Some((self.log.end(), self.disk.records.len()));
            context.sync = true;
        }
    }

    pub fn synced(&mut self, context: &mut Context<'_>) {
        let Some((upto, count)) = self.syncing.take() else { return };
        self.disk.synced = count;
        self.log.synced(upto);
        for (_, to, message) in self.waiting.extract_if(.., |waits| waits.0 <= upto) {
            context.send(to, message);
        }
        self.disk.prune();
        self.sync(context);
    }

    pub fn tick(&mut self, context: &mut Context<'_>) {
        let (log_end, dirty) = (self.log.synced_upto(), self.log.segments());
        if context.now >= self.asked + SECOND / 2 {
            self.asked = context.now;
            let now = context.clock;
            if let Some(joining) = self.membership.join(log_end, dirty, now) {
                context.send_meta(Message::Join(joining));
            } else if self.membership.is_due(now)
                && let Some(renewal) = self.membership.renew(log_end, dirty, now)
            {
                context.send_meta(Message::Renew(renewal));
            }
        }
        if context.now >= self.offered + SECOND {
            self.offered = context.now;
            let offers = self.log.offers();
            if !offers.is_empty() {
                context.send_meta(Message::Offers { id: self.disk.id, offers });
            }
            self.put_again(context);
        }
        if context.planted(Planted::EvictsDirty) && self.log.dirty() > 1_000 {
            let first = self.log.offers().first().map(|offer| offer.segment);
            let record = first.and_then(|segment| self.log.judged(segment, Verdict::Clean));
            self.note(record, context);
        }
        self.sync(context);
    }

    fn put_again(&mut self, context: &mut Context<'_>) {
        let id = self.disk.id;
        for (object, put) in &self.puts {
            if put.done {
                context.send_meta(Message::Stores { id, object: *object, parts: put.parts.clone() });
            } else {
                context.send(
                    Node::Store,
                    Message::Put { id: Some(id), object: *object, contents: put.contents.clone() },
                );
            }
        }
    }

    fn bytes(&self, segment: SegmentId, len: u64) -> Option<Bytes> {
        let mut bytes = Vec::new();
        for piece in self.log.places(segment, 0, len) {
            let at =
                self.disk.records.binary_search_by_key(&piece.position, |(position, _)| *position).ok()?;
            let Record::Append(append) = &self.disk.records[at].1 else { return None };
            bytes.extend_from_slice(&append.bytes);
        }
        (bytes.len() as u64 >= len).then(|| Bytes::from(bytes).slice(..len as usize))
    }

    pub fn message(&mut self, from: Node, message: Message, context: &mut Context<'_>) {
        let own = self.disk.id;
        match message {
            Message::Joined { id, incarnation, view } if id == own => {
                self.membership.joined(incarnation, view)
            }
            Message::Out { id, incarnation } if id == own && incarnation == self.membership.incarnation() => {
                self.incarnations += 1;
                self.membership.out(self::incarnation(self.at, context.life, self.incarnations));
            }
            Message::Renewed { id, incarnation, beat, view }
                if id == own && incarnation == self.membership.incarnation() =>
            {
                self.membership.renewed(beat, view);
            }
            Message::Append { id, append } if id == own => self.append(from, &append, context),
            Message::Seal { id, closed } if id == own => {
                if let Ok(step) = self.log.seal(closed.segment, closed.epoch, closed.len, closed.check) {
                    self.note(step.record, context);
                }
            }
            Message::Fence { id, segment, epoch } if id == own => {
                if let Ok((step, fenced)) = self.log.fence(segment, epoch) {
                    self.answer(step, from, Message::Fenced { id, segment, epoch, fenced }, context);
                }
            }
            Message::CopyTo { id, segment, epoch, target } if id == own => {
                let sealed = self.log.kept(segment).filter(|kept| !kept.damaged).and_then(|kept| kept.sealed);
                let Some((len, check)) = sealed else { return };
                if let Some(bytes) = self.bytes(segment, len) {
                    let append = Append { segment, epoch, offset: 0, check: crc32c::crc32c(&bytes), bytes };
                    context.send(node_of(target), Message::CopyAll { from: id, id: target, append, check });
                }
            }
            Message::CopyAll { from, id, append, check } if id == own => {
                self.copy(from, &append, check, context);
            }
            Message::Copied { from, id, segment, epoch } if id == own => {
                context.send_meta(Message::Seated { segment, epoch, target: from });
            }
            Message::Verdicts { id, verdicts } if id == own => self.judged(verdicts, context),
            Message::PutDone { id: Some(id), object } if id == own => {
                if let Some(put) = self.puts.get_mut(&object) {
                    put.done = true;
                    context.send_meta(Message::Stores { id, object, parts: put.parts.clone() });
                }
            }
            Message::Stored { id, object } if id == own => drop(self.puts.remove(&object)),
            _ => {}
        }
    }

    fn admits(&self, segment: SegmentId, context: &Context<'_>) -> bool {
        if context.planted(Planted::StaleView) && self.membership.view().is_some() {
            return true;
        }
        let now = context.clock;
        let opens = !self.log.has(segment);
        let admitted = if opens { self.membership.may_open(now) } else { self.membership.may_act(now) };
        admitted.is_ok()
    }

    fn is_draining(&self) -> bool {
        let known = self.membership.view().and_then(|view| view.members.get(&self.disk.id));
        known.is_some_and(|member| member.state == MemberState::Draining)
    }

    fn append(&mut self, from: Node, append: &Append, context: &mut Context<'_>) {
        let (id, segment) = (self.disk.id, append.segment);
        let refused = Message::Refused { id, segment };
        if !self.admits(segment, context) {
            context.send(from, refused);
            return;
        }
        match self.log.append(append) {
            Ok(step) => {
                if step.record.is_some() {
                    context.accepted.push((id, self.membership.incarnation()));
                }
                let (end, draining) = (step.end, self.is_draining());
                self.answer(step, from, Message::Synced { id, segment, end, draining }, context);
            }
            Err(_) => context.send(from, refused),
        }
    }

    fn copy(&mut self, from: MemberId, append: &Append, check: u32, context: &mut Context<'_>) {
        let segment = append.segment;
        if !self.admits(segment, context) {
            return;
        }
        let Ok(step) = self.log.append(append) else { return };
        self.note(step.record, context);
        if let Ok(step) = self.log.seal(segment, append.epoch, append.end(), check) {
            let copied = Message::Copied { from: self.disk.id, id: from, segment, epoch: append.epoch };
            self.answer(step, node_of(from), copied, context);
        }
    }

    fn judged(&mut self, verdicts: Vec<(SegmentId, Verdict, bool)>, context: &mut Context<'_>) {
        let (mut parts, mut contents) = (Vec::new(), Vec::new());
        let mut at = 0;
        for (segment, verdict, puts) in verdicts {
            let record = self.log.judged(segment, verdict);
            self.note(record, context);
            let busy = self.puts.values().any(|put| put.parts.iter().any(|part| part.0 == segment));
            let Some(kept) = self.log.kept(segment).filter(|kept| puts && !busy && !kept.damaged) else {
                continue;
            };
            let Some((len, check)) = kept.sealed else { continue };
            let epoch = kept.epoch;
            if let Some(bytes) = self.bytes(segment, len) {
                parts.push((segment, epoch, at, len, check));
                contents.push((segment, bytes));
                at += len;
            }
        }
        if parts.is_empty() {
            return;
        }
        if context.planted(Planted::DropsBeforeStored) {
            for (segment, ..) in &parts {
                let record = self.log.judged(*segment, Verdict::Clean);
                self.note(record, context);
            }
        }
        self.next_object += 1;
        let object = self.next_object;
        let put = Message::Put { id: Some(self.disk.id), object, contents: contents.clone() };
        context.send(Node::Store, put);
        self.puts.insert(object, Put { parts, contents, done: false });
    }
}
