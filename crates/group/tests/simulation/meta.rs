//! A metadata server: keeps the view, owns the volume. All that it knows for sure is in the engine; a batch says what it rests on.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use forebay_cluster::{Moment, SessionId};
use forebay_group::{
    Gone, GroupRow, GroupTerms, Hope, Inquiry, Joining, Lane, Left, MemberId, MemberRow, Offer, Recovered,
    Recovery, Refusal, Renewal, SetRow, SetState, Watch, repair, replay_order,
};
use forebay_types::SegmentId;
use rand::RngExt;

use crate::{
    engine::{FileRow, Key, Rows, SegmentRow, SessionRow, Txn, Value},
    faults::Planted,
    messages::{Message, Node, Part, Request, node_of},
    world::{Context, METAS, SECOND, Tag},
};

const SESSION_TERM: u64 = 10 * SECOND;
/// After which another server takes up a recovery, or the same one begins anew.
const TAKES_UP: u64 = 12 * SECOND;

#[derive(Debug)]
struct Recovering {
    recovery: Recovery,
    row: SessionRow,
    rows: BTreeMap<SegmentId, SetRow>,
    read: BTreeMap<SegmentId, Bytes>,
    since: u64,
}

#[derive(Debug)]
pub struct Meta {
    at: usize,
    watch: Watch,
    sessions: BTreeMap<SessionId, (SessionRow, Moment)>,
    recoveries: BTreeMap<SessionId, Recovering>,
    attempts: u64,
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
    pub fn new(at: usize, life: u64) -> Meta {
        Meta {
            at,
            watch: Watch::new(GroupTerms::default()),
            sessions: BTreeMap::new(),
            recoveries: BTreeMap::new(),
            attempts: life << 32,
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
        collect(rows, context);
        mend(rows, context);
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

    fn watch_sessions(&mut self, rows: &Rows, context: &mut Context<'_>) {
        let now = context.clock;
        let mut before = std::mem::take(&mut self.sessions);
        for (key, value) in rows {
            let (Key::Session(id), Value::Session(row)) = (key, value) else { continue };
            let since = match before.remove(id) {
                // Only that it was heard of counts, not what was carried out for it.
                Some((known, since)) if (known.beat, known.ending) == (row.beat, row.ending) => since,
                _ => now,
            };
            self.sessions.insert(*id, (*row, since));
            let term = if row.ending.is_some() { TAKES_UP } else { SESSION_TERM };
            if now.since(since).as_nanos() as u64 >= term {
                self.attempts += 1;
                end_session(rows, *id, (self.at, self.attempts), context);
            }
        }
    }

    /// Goes on with recoveries that this server has taken up.
    fn recover(&mut self, rows: &Rows, context: &mut Context<'_>) {
        for (key, value) in rows {
            let (Key::Session(id), Value::Session(row)) = (key, value) else { continue };
            let Some((at, attempt)) = row.ending.filter(|ending| ending.0 == self.at) else { continue };
            if attempt > self.attempts || attempt >> 32 != self.attempts >> 32 {
                // A former process of this server had taken it up.
                continue;
            }
            let known = self.recoveries.get(id).is_some_and(|known| known.row.ending == Some((at, attempt)));
            if !known {
                let txn = Txn::new(rows);
                let sets: BTreeMap<SegmentId, SetRow> = txn
                    .sets_of(*id)
                    .into_iter()
                    .filter_map(|segment| match rows.get(&Key::Set(segment)) {
                        Some(Value::Set(row)) => Some((segment, row.clone())),
                        _ => None,
                    })
                    .collect();
                let mut recovery = Recovery::new(sets.clone(), GroupTerms::default());
                if let Some(Value::Group(group)) = rows.get(&Key::Group) {
                    group.removed.iter().for_each(|member| recovery.removed(*member, context.clock));
                }
                let (rows, read) = (sets, BTreeMap::new());
                let begun = Recovering { recovery, row: *row, rows, read, since: context.now };
                self.recoveries.insert(*id, begun);
            }
        }
        // What was given up meanwhile is not waited for.
        self.recoveries.retain(|_, recovering| {
            recovering.rows.iter().all(|(segment, known)| match rows.get(&Key::Set(*segment)) {
                Some(Value::Set(now)) => (now.state == SetState::Lost) == (known.state == SetState::Lost),
                _ => true,
            })
        });
        self.recoveries.retain(|id, recovering| {
            let same = matches!(rows.get(&Key::Session(*id)), Some(Value::Session(row)) if row.ending == recovering.row.ending);
            same && recovering.advance(*id, rows, context)
        });
    }

    pub fn message(&mut self, from: Node, message: Message, rows: &Rows, context: &mut Context<'_>) {
        match message {
            Message::Join(joining) => join(from, &joining, rows, context),
            Message::Renew(renewal) => renew(from, &renewal, rows, context),
            Message::Offers { id, offers } if !is_given_up(rows, id) => {
                self.note_lacking(id, &offers, rows);
                judge(from, id, &offers, rows, context);
            }
            Message::Stores { id, object, parts } => stores(from, id, object, &parts, rows, context),
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
                if let Some((inquiry, _)) = self.inquiries.get_mut(&segment) {
                    inquiry.answered(id, epoch, fenced);
                }
                for recovering in self.recoveries.values_mut() {
                    recovering.recovery.answered(id, segment, epoch, fenced, context.clock);
                }
            }
            Message::Read { segment, bytes } => {
                for recovering in self.recoveries.values_mut() {
                    if recovering.rows.contains_key(&segment) {
                        recovering.read.insert(segment, bytes.clone());
                    }
                }
            }
            Message::Begin { session, sent } | Message::Beat { session, sent } => {
                let begins = matches!(message, Message::Begin { .. });
                alive(from, session, sent, begins, rows, context);
            }
            Message::Open { session, lane, set, token } => {
                open(from, session, lane, set, token, rows, context)
            }
            Message::Commit { session, request, object } => {
                let mut txn = Txn::new(rows);
                let Some(row) = lives(session, &mut txn, from, context) else { return };
                let committed = Message::Committed { session, number: request.number };
                if row.applied >= request.number {
                    context.send(from, committed);
                } else if row.applied + 1 == request.number {
                    if let Some(object) = object {
                        let row = SegmentRow { object: Some((object, 0)), live: 0 };
                        txn.put_segment(Key::Segment(request.segment), row);
                        txn.put_object(Key::Object(object), vec![request.segment]);
                    }
                    apply(&mut txn, &request, context);
                    txn.put_session(Key::Session(session), SessionRow { applied: request.number, ..row });
                    context.commit(txn.batch, Tag::None, vec![(from, committed)]);
                }
            }
            Message::Says { session, token, closed, settled } => {
                let mut txn = Txn::new(rows);
                if lives(session, &mut txn, from, context).is_none() {
                    return;
                }
                for closed in closed {
                    let sealed = txn
                        .set(Key::Set(closed.segment))
                        .and_then(|row| row.sealed(closed.epoch, closed.len, closed.check));
                    if let Some(row) = sealed {
                        txn.put_set(Key::Set(closed.segment), row);
                    }
                }
                for segment in settled {
                    if let Some(row) = txn.set(Key::Set(segment)) {
                        settle(&mut txn, segment, SetRow { settled: true, ..row });
                    }
                }
                context.commit(txn.batch, Tag::None, vec![(from, Message::Heard { session, token })]);
            }
            _ => {}
        }
    }
}

impl Meta {
    fn note_lacking(&mut self, id: MemberId, offers: &[Offer], rows: &Rows) {
        for offer in offers {
            let Some(Value::Set(row)) = rows.get(&Key::Set(offer.segment)) else { continue };
            let lacking = self.lacking.entry(offer.segment).or_default();
            if row.set.contains(&id) && row.is_lacking(offer) {
                lacking.insert(id);
            } else {
                lacking.remove(&id);
            }
        }
    }

    /// Gives up what nobody has any more, and ends where it ends now what nobody has all of any more.
    fn see_to_losses(&mut self, rows: &Rows, context: &mut Context<'_>) {
        let Some(Value::Group(group)) = rows.get(&Key::Group) else { return };
        let GroupRow { given_up, removed, .. } = group;
        let gone = Gone { given_up, removed };
        self.lacking.retain(|segment, _| rows.contains_key(&Key::Set(*segment)));
        for (key, value) in rows {
            let (Key::Set(segment), Value::Set(row)) = (key, value) else { continue };
            // A volume has one owner: two would ask anew in turns, each in an epoch of its own.
            if segment.0 / 256 % METAS as u64 != self.at as u64 {
                continue;
            }
            let asked = self.inquiries.get(segment).filter(|(inquiry, _)| inquiry.is_of(row));
            let left = match asked {
                Some((inquiry, _)) => {
                    for id in inquiry.to_ask() {
                        let epoch = inquiry.epoch();
                        context.send(node_of(id), Message::Fence { id, segment: *segment, epoch });
                    }
                    inquiry.left(gone)
                }
                None => match row.hope(gone, self.lacking.get(segment)) {
                    Hope::None => Left::Nothing,
                    Hope::There if context.planted(Planted::GivesUpTooMuch) => {
                        let one = row.set.iter().any(|id| given_up.contains(id));
                        if one { Left::Nothing } else { Left::Whole }
                    }
                    Hope::There => Left::Whole,
                    Hope::Asking => {
                        let begun = self.inquiries.get(segment).is_some_and(|(inquiry, since)| {
                            inquiry.epoch() > row.epoch && context.now < since + 3 * SECOND
                        });
                        if let Some(asking) = row.asking().filter(|_| !begun) {
                            self.inquiries.insert(*segment, (Inquiry::new(asking.clone()), context.now));
                            let mut txn = Txn::new(rows);
                            txn.put_set(*key, asking);
                            context.commit(txn.batch, Tag::None, Vec::new());
                        }
                        continue;
                    }
                },
            };
            let (next, tag) = match left {
                Left::Unknown | Left::Unsound => continue,
                Left::Whole => {
                    self.inquiries.remove(segment);
                    continue;
                }
                Left::Row(next) => {
                    let tag = if next.state == row.state { Tag::None } else { Tag::Shortened };
                    (Some(next), tag)
                }
                Left::Nothing => (row.given_up(), Tag::GivenUp(*segment)),
            };
            if let Some(next) = next {
                let mut txn = Txn::new(rows);
                settle(&mut txn, *segment, next);
                context.commit(txn.batch, tag, Vec::new());
            }
        }
    }
}

impl Recovering {
    /// Whether it goes on.
    fn advance(&mut self, id: SessionId, rows: &Rows, context: &mut Context<'_>) -> bool {
        if context.now >= self.since + TAKES_UP {
            return false;
        }
        for (member, segment, epoch) in self.recovery.to_ask() {
            context.send(node_of(member), Message::Fence { id: member, segment, epoch });
        }
        if context.planted(Planted::EndsUnheard) && context.now >= self.since + 4 * SECOND {
            let silent: BTreeSet<MemberId> =
                self.recovery.to_ask().into_iter().map(|(member, ..)| member).collect();
            silent.iter().for_each(|member| self.recovery.removed(*member, context.clock));
        }
        let Some(found) = self.recovery.ready(context.clock) else { return true };
        let mut whole = true;
        for recovered in &found {
            let journal = self.rows[&recovered.segment].lane == Lane::Journal;
            let has = self.read.get(&recovered.segment).map_or(0, Bytes::len) as u64;
            if journal && has < recovered.len {
                whole = false;
                let segment = recovered.segment;
                for id in &recovered.set {
                    context.send(node_of(*id), Message::ReadBack { id: *id, segment, len: recovered.len });
                }
            }
        }
        if !whole {
            return true;
        }
        // A request that names what nobody has is carried out, so that the file says so.
        let lost = |segment: &SegmentId| {
            let row = &self.rows[segment];
            row.lane == Lane::Data && row.state == SetState::Lost
        };
        let len = |found: &Recovered| if lost(&found.segment) { u64::MAX } else { found.len };
        let lengths: BTreeMap<SegmentId, u64> =
            found.iter().map(|found| (found.segment, len(found))).collect();
        let mut records = Vec::new();
        for (segment, bytes) in &self.read {
            let len = lengths.get(segment).map_or(0, |len| *len as usize);
            let requests = Request::decode_all(&bytes[..len.min(bytes.len())]);
            records.extend(requests.into_iter().map(|request| (request.number, request)));
        }
        let mut txn = Txn::new(rows);
        let Some(row) = txn.session(Key::Session(id)) else { return false };
        let mut applied = row.applied;
        for (number, request) in replay_order(records, row.applied + 1) {
            if lengths.get(&request.segment).is_none_or(|len| *len < request.offset + request.len) {
                break;
            }
            apply(&mut txn, &request, context);
            applied = number;
        }
        for recovered in found {
            let Some(now) = txn.set(Key::Set(recovered.segment)) else { continue };
            if recovered.row.is_some() && Some(&now) != self.rows.get(&recovered.segment) {
                return false;
            }
            let row = recovered.row.unwrap_or(now);
            settle(&mut txn, recovered.segment, SetRow { settled: true, ..row });
        }
        txn.put(Key::Session(id), None);
        context.commit(txn.batch, Tag::SessionEnded(id, applied), Vec::new());
        true
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

fn join(from: Node, joining: &Joining, rows: &Rows, context: &mut Context<'_>) {
    let mut txn = Txn::new(rows);
    let (id, incarnation) = (joining.id, joining.member.incarnation);
    let Some(group) = txn.group(Key::Group) else { return };
    let row = txn.member(Key::Member(id));
    match group.join(row.as_ref(), joining, false) {
        Ok(Some(change)) => {
            let view = change.group.as_ref().map_or(group.view, |(_, next)| next.view.clone());
            put_change(&mut txn, change);
            context.commit(txn.batch, Tag::None, vec![(from, Message::Joined { id, incarnation, view })]);
        }
        Ok(None) => context.send(from, Message::Joined { id, incarnation, view: group.view }),
        // Also a late copy of an old word, whose log has grown since.
        Err(_) => context.send(from, Message::Out { id, incarnation }),
    }
}

fn renew(from: Node, renewal: &Renewal, rows: &Rows, context: &mut Context<'_>) {
    let mut txn = Txn::new(rows);
    let (id, incarnation, beat) = (renewal.id, renewal.row.incarnation, renewal.row.beat);
    let row = txn.member(Key::Member(id));
    let Some(Value::Group(group)) = rows.get(&Key::Group) else { return };
    let view = (group.view.epoch > renewal.row.acknowledged).then(|| group.view.clone());
    let renewed = Message::Renewed { id, incarnation, beat, view };
    match MemberRow::renew(row.as_ref(), renewal) {
        Ok(Some(change)) => {
            put_change(&mut txn, change);
            context.commit(txn.batch, Tag::None, vec![(from, renewed)]);
        }
        Ok(None) => context.send(from, renewed),
        Err(_) => context.send(from, Message::Out { id, incarnation }),
    }
}

/// Whoever asks first for a session that lives; tells others that theirs is over.
fn lives(session: SessionId, txn: &mut Txn<'_>, from: Node, context: &mut Context<'_>) -> Option<SessionRow> {
    let row = txn.session(Key::Session(session)).filter(|row| row.ending.is_none());
    if row.is_none() {
        context.send(from, Message::Ended { session });
    }
    row
}

fn alive(from: Node, session: SessionId, sent: u64, begins: bool, rows: &Rows, context: &mut Context<'_>) {
    let mut txn = Txn::new(rows);
    let Some(Value::Group(group)) = rows.get(&Key::Group) else { return };
    let writer = (session.0 >> 64) as usize;
    let row = match txn.session(Key::Session(session)) {
        Some(row) if row.ending.is_none() => SessionRow { beat: row.beat + 1, ..row },
        Some(_) => return context.send(from, Message::Ended { session }),
        None if !begins => return context.send(from, Message::Ended { session }),
        None => {
            let of = |value: &Value| matches!(value, Value::Session(row) if row.writer == writer);
            let former = rows.iter().any(|(key, value)| matches!(key, Key::Session(_)) && of(value));
            // A late copy of an old word begins no session; leases keep two of one client apart.
            if context.is_old(session) {
                return context.send(from, Message::Ended { session });
            }
            if former {
                return;
            }
            SessionRow { writer, beat: 1, opened: 0, last: SegmentId(0), applied: 0, ending: None }
        }
    };
    txn.put_session(Key::Session(session), row);
    let view = group.view.clone();
    context.commit(txn.batch, Tag::None, vec![(from, Message::Alive { session, view, sent })]);
}

fn open(
    from: Node,
    session: SessionId,
    lane: Lane,
    set: Vec<MemberId>,
    token: u64,
    rows: &Rows,
    context: &mut Context<'_>,
) {
    let mut txn = Txn::new(rows);
    let Some(row) = lives(session, &mut txn, from, context) else { return };
    let number = txn.number(Key::NextSegment).unwrap_or(1);
    if row.opened + 1 != token {
        // Carried out, and the answer was lost.
        if row.opened == token {
            let segment = row.last;
            context.send(from, Message::Opened { session, lane, segment, set, token });
        }
        return;
    }
    let segment = SegmentId(number << 8);
    txn.put_number(Key::NextSegment, number + 1);
    txn.put_session(Key::Session(session), SessionRow { opened: token, last: segment, ..row });
    txn.put_set(Key::Set(segment), SetRow::open(session, lane, set.clone()));
    if lane == Lane::Data {
        txn.put_segment(Key::Segment(segment), SegmentRow::default());
    }
    let opened = Message::Opened { session, lane, segment, set, token };
    context.commit(txn.batch, Tag::None, vec![(from, opened)]);
}

/// Carries out a request: a file has new contents.
fn apply(txn: &mut Txn<'_>, request: &Request, context: &mut Context<'_>) {
    let Request { file, version, segment, offset, len, .. } = *request;
    let Some(mut row) = txn.segment(Key::Segment(segment)) else {
        return context.violation(format!("segment {segment} was collected before {request:?}"));
    };
    row.live += len;
    txn.put_segment(Key::Segment(segment), row);
    if let Some(old) = txn.file(Key::File(file)) {
        if old.version >= version {
            context.violation(format!("{request:?} comes after version {}", old.version));
        }
        if let Some(mut row) = txn.segment(Key::Segment(old.segment)) {
            row.live -= old.len;
            txn.put_segment(Key::Segment(old.segment), row);
        }
    }
    txn.put_file(Key::File(file), FileRow { version, segment, offset, len });
}

fn settle(txn: &mut Txn<'_>, segment: SegmentId, row: SetRow) {
    let live = txn.segment(Key::Segment(segment)).map_or(0, |row| row.live);
    let over = row.is_over(live);
    txn.put(Key::Set(segment), (!over).then_some(Value::Set(row)));
}

fn end_session(rows: &Rows, id: SessionId, by: (usize, u64), context: &mut Context<'_>) {
    let mut txn = Txn::new(rows);
    let Some(row) = txn.session(Key::Session(id)) else { return };
    for segment in txn.sets_of(id) {
        if let Some(fenced) = txn.set(Key::Set(segment)).and_then(|row| row.fenced()) {
            txn.put_set(Key::Set(segment), fenced);
        }
    }
    txn.put_session(Key::Session(id), SessionRow { ending: Some(by), ..row });
    context.commit(txn.batch, Tag::None, Vec::new());
}

fn judge(from: Node, id: MemberId, offers: &[Offer], rows: &Rows, context: &mut Context<'_>) {
    let here = present(rows);
    let verdict = |offer: &Offer| {
        let row = match rows.get(&Key::Set(offer.segment)) {
            Some(Value::Set(row)) => Some(row),
            _ => None,
        };
        let first = row.and_then(|row| row.set.iter().find(|member| here.contains(member)));
        // Another one now and then, should the first not be able to.
        let turn = first == Some(&id) || offer.segment.0 / 256 % 7 == context.now / SECOND % 7;
        let data = row.is_some_and(|row| row.lane == Lane::Data && row.state != SetState::Stored);
        (offer.segment, SetRow::verdict(row, id, offer), turn && data)
    };
    let verdicts = offers.iter().map(verdict).collect();
    context.send(from, Message::Verdicts { id, verdicts });
}

fn stores(from: Node, id: MemberId, object: u64, parts: &[Part], rows: &Rows, context: &mut Context<'_>) {
    let mut txn = Txn::new(rows);
    let stored = Message::Stored { id, object };
    if txn.object(Key::Object(object)).is_some() || txn.number(Key::Garbage(object)).is_some() {
        return context.send(from, stored);
    }
    let mut taken = Vec::new();
    for (segment, epoch, at, len, check) in parts {
        let Some(row) = txn.set(Key::Set(*segment)) else { continue };
        if is_given_up(rows, id) {
            continue;
        }
        let next = row.stored(*epoch, *len, *check);
        if let (Ok(next), Some(mut place)) = (next, txn.segment(Key::Segment(*segment))) {
            place.object = Some((object, *at));
            txn.put_segment(Key::Segment(*segment), place);
            settle(&mut txn, *segment, next);
            taken.push(*segment);
        }
    }
    if taken.is_empty() {
        txn.put_number(Key::Garbage(object), 0);
    } else {
        txn.put_object(Key::Object(object), taken);
    }
    context.commit(txn.batch, Tag::None, vec![(from, stored)]);
}

/// Takes away what nobody needs.
fn collect(rows: &Rows, context: &mut Context<'_>) {
    for (key, value) in rows {
        match (key, value) {
            (Key::Segment(segment), Value::Segment(row)) if row.live == 0 => {
                let mut txn = Txn::new(rows);
                let set = txn.set(Key::Set(*segment));
                if !SetRow::may_collect(set.as_ref()) && !context.planted(Planted::CollectsUnsettled) {
                    continue;
                }
                if set.is_some_and(|set| set.state == SetState::Open) {
                    continue;
                }
                txn.segment(Key::Segment(*segment));
                txn.put(Key::Segment(*segment), None);
                txn.put(Key::Set(*segment), None);
                if let Some((object, _)) = row.object {
                    let mut left = txn.object(Key::Object(object)).unwrap_or_default();
                    left.retain(|other| other != segment);
                    if left.is_empty() {
                        txn.put(Key::Object(object), None);
                        txn.put_number(Key::Garbage(object), 0);
                    } else {
                        txn.put_object(Key::Object(object), left);
                    }
                }
                context.commit(txn.batch, Tag::None, Vec::new());
            }
            (Key::Garbage(object), Value::Number(0)) => {
                context.send(Node::Store, Message::Delete { object: *object });
            }
            _ => {}
        }
    }
}

/// Has copies made in the place of those that are gone.
fn mend(rows: &Rows, context: &mut Context<'_>) {
    let Some(Value::Group(group)) = rows.get(&Key::Group) else { return };
    let (active, here) = (group.view.active(), present(rows));
    for (key, value) in rows {
        let (Key::Set(segment), Value::Set(row)) = (key, value) else { continue };
        // The class of the volume, and that in which it was acknowledged, if that is a higher one.
        let of_volume = if context.local { 1 } else { usize::from(group.view.copies) };
        let copies = row.set.len().max(of_volume);
        let Some((source, target)) = repair(*segment, row, &active, &here, copies) else { continue };
        let goes_on = row.joining.filter(|joining| here.contains(joining));
        if let Some(target) = goes_on.filter(|_| !context.rng.random_bool(0.05)) {
            let copy = Message::CopyTo { id: source, segment: *segment, epoch: row.epoch, target };
            context.send(node_of(source), copy);
        } else if let Some(mut seating) = row.seating(target) {
            if context.planted(Planted::SeatsAtOnce) {
                seating = seating.seated(seating.epoch, target, &here).unwrap();
            }
            let mut txn = Txn::new(rows);
            txn.put_set(*key, seating);
            context.commit(txn.batch, Tag::None, Vec::new());
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
