//! A metadata server: keeps the view, owns the volume. All that it knows for sure is in the engine; a batch says what it rests on.

mod members;
mod recovery;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};

use forebay_cluster::{Moment, SessionId};
use forebay_group::{GroupTerms, Inquiry, MemberId, Refusal, SetRow, SetState, Watch};
use forebay_types::{Epoch, SegmentId};

use crate::{
    engine::{Key, Rows, Txn, Value},
    faults::Planted,
    messages::{Message, Node},
    world::{Context, SECOND, Tag},
};
use recovery::Recovering;

const SESSION_TERM: u64 = 10 * SECOND;
/// After which another server takes up the recovery of a segment.
const TAKES_UP: u64 = 12 * SECOND;

#[derive(Debug)]
pub struct Meta {
    at: usize,
    watch: Watch,
    /// The last beat of each session, and since when it is known.
    sessions: BTreeMap<SessionId, (u64, Moment)>,
    /// The epochs that this process has raised for recovery.
    raised: BTreeMap<SegmentId, Epoch>,
    recoveries: BTreeMap<SegmentId, Recovering>,
    /// Open segments whose writers have ended and that others recover: their epochs, and since when they are known.
    orphans: BTreeMap<SegmentId, (Epoch, Moment)>,
    chores: u64,
    /// Who has offered less of a segment than was sealed.
    lacking: BTreeMap<SegmentId, BTreeSet<MemberId>>,
    /// What is asked, and since when.
    inquiries: BTreeMap<SegmentId, (Inquiry, u64)>,
}

/// The names of those in the view.
fn present(rows: &Rows) -> Vec<MemberId> {
    match rows.get(&Key::Group) {
        Some(Value::Group(group)) => group.view.members.keys().copied().collect(),
        _ => Vec::new(),
    }
}

impl Meta {
    pub fn new(at: usize) -> Meta {
        Meta {
            at,
            watch: Watch::new(GroupTerms::default()),
            sessions: BTreeMap::new(),
            raised: BTreeMap::new(),
            recoveries: BTreeMap::new(),
            orphans: BTreeMap::new(),
            chores: 0,
            lacking: BTreeMap::new(),
            inquiries: BTreeMap::new(),
        }
    }

    pub fn tick(&mut self, rows: &Rows, context: &mut Context<'_>) {
        let mut members = BTreeMap::new();
        for (key, value) in rows {
            if let (Key::Member(id), Value::Member(row)) = (key, value) {
                members.insert(*id, row.clone());
            }
        }
        let Some(Value::Group(group)) = rows.get(&Key::Group) else { return };
        self.watch.saw(group.view.epoch, &members, context.clock);
        if context.now < self.chores + SECOND / 2 {
            return;
        }
        self.chores = context.now;
        for (id, watched) in self.watch.overdue(context.clock) {
            let mut txn = Txn::new(rows);
            let Some(group) = txn.group(Key::Group) else { continue };
            let change = group.count_out(id, &watched, false);
            put_change(&mut txn, change);
            context.commit(txn.batch, Tag::None, Vec::new());
        }
        self.keep_wish(rows, context);
        give_up(rows, context);
        self.see_to_losses(rows, context);
        self.watch_sessions(rows, context);
        self.recover(rows, context);
        sessions::collect(rows, context);
        members::mend(rows, context);
    }

    /// What the operator wishes: that a member is drained and removed.
    fn keep_wish(&mut self, rows: &Rows, context: &mut Context<'_>) {
        let Some(id) = context.wish else { return };
        let mut txn = Txn::new(rows);
        let Some(group) = txn.group(Key::Group) else { return };
        let row = txn.member(Key::Member(id));
        if !group.draining.contains(&id) {
            if let Ok(change) = group.drain(id, false) {
                put_change(&mut txn, change);
                context.commit(txn.batch, Tag::None, Vec::new());
            }
            return;
        }
        let mut told = row.clone();
        if let Some(told) = told.as_mut().filter(|_| context.planted(Planted::RemovesDirty)) {
            (told.dirty, told.acknowledged) = (0, group.view.epoch);
        }
        match group.remove(id, told.as_ref(), false) {
            Ok(mut change) => {
                if let Some((_, expect, _)) = &mut change.member {
                    *expect = row;
                }
                put_change(&mut txn, change);
                context.commit(txn.batch, Tag::Removed(id), Vec::new());
            }
            Err(Refusal::NotDrained { .. } | Refusal::Unknown(_)) => {}
            Err(other) => context.violation(format!("a removal is refused as {other}")),
        }
    }

    pub fn message(&mut self, from: Node, message: Message, rows: &Rows, context: &mut Context<'_>) {
        match message {
            Message::Join(joining) => members::join(from, &joining, rows, context),
            Message::Renew(renewal) => members::renew(from, &renewal, rows, context),
            Message::Offers { id, offers } if !is_given_up(rows, id) => {
                self.note_lacking(id, &offers, rows);
                members::judge(from, id, &offers, rows, context);
            }
            Message::Stores { id, object, parts } => members::stores(from, id, object, &parts, rows, context),
            Message::Seated { segment, epoch, target } if !is_given_up(rows, target) => {
                let mut txn = Txn::new(rows);
                let seated =
                    txn.set(Key::Set(segment)).and_then(|row| row.seated(epoch, target, &present(rows)));
                if let Some(row) = seated {
                    txn.put_set(Key::Set(segment), row);
                    context.commit(txn.batch, Tag::None, Vec::new());
                }
            }
            Message::Fenced { id, segment, epoch, fenced } if !is_given_up(rows, id) => {
                self.fenced((id, segment, epoch), fenced, context.clock);
            }
            Message::Begin { session, sent } | Message::Beat { session, sent } => {
                let begins = matches!(message, Message::Begin { .. });
                sessions::alive(from, (session, sent), begins, rows, context);
            }
            Message::Ask { session, slot, number, operation } => {
                sessions::ask(from, (session, slot, number), operation, rows, context);
            }
            _ => {}
        }
    }
}

fn put_change(txn: &mut Txn<'_>, change: forebay_group::Change) {
    if let Some((expect, next)) = change.group {
        if txn.group(Key::Group).as_ref() != Some(&expect) {
            return;
        }
        txn.put_group(Key::Group, next);
    }
    if let Some((id, expect, next)) = change.member
        && txn.member(Key::Member(id)) == expect
    {
        txn.put(Key::Member(id), next.map(Value::Member));
    }
}

fn is_given_up(rows: &Rows, id: MemberId) -> bool {
    matches!(rows.get(&Key::Group), Some(Value::Group(group)) if group.given_up.contains(&id))
}

/// The operator says of disks that are lost that they are, once their members were counted out.
fn give_up(rows: &Rows, context: &mut Context<'_>) {
    for id in context.lost.iter().copied().collect::<Vec<_>>() {
        let mut txn = Txn::new(rows);
        let Some(group) = txn.group(Key::Group) else { return };
        let row = txn.member(Key::Member(id));
        match group.give_up(id, row.as_ref(), false) {
            Ok(Some(change)) => {
                put_change(&mut txn, change);
                context.commit(txn.batch, Tag::None, Vec::new());
            }
            Ok(None) | Err(Refusal::There(_) | Refusal::Removed(_)) => {}
            Err(other) => context.violation(format!("a lost disk is not given up: {other}")),
        }
    }
}

/// Whether nothing is dirty.
pub fn dirty(rows: &Rows) -> Vec<(SegmentId, SetRow)> {
    let set = |(key, value): (&Key, &Value)| match (key, value) {
        (Key::Set(segment), Value::Set(row)) => Some((*segment, row.clone())),
        _ => None,
    };
    rows.iter().filter_map(set).collect()
}

/// What members are told, for the world's own checks.
pub fn is_needed(rows: &Rows, member: MemberId, segment: SegmentId) -> Option<&SetRow> {
    match rows.get(&Key::Set(segment)) {
        Some(Value::Set(row)) if row.state != SetState::Stored => (row.set.contains(&member)).then_some(row),
        _ => None,
    }
}
