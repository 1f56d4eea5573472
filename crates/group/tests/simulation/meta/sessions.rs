//! Sessions of clients, and what is asked in their slots: segments are opened and settled, files get new contents, what nobody needs goes.

use std::collections::BTreeSet;

use forebay_cluster::SessionId;
use forebay_group::{Candidate, Closed, PieceKey, SetRow, SetState, placement};
use forebay_types::SegmentId;
use rand::RngExt;

use super::{Meta, SESSION_TERM};
use crate::{
    client::SLOTS,
    engine::{FileRow, Key, Rows, SegmentRow, SessionRow, SlotRow, Txn, Value},
    faults::Planted,
    messages::{Answer, Extent, Message, Node, Opened, Operation},
    world::{Context, Tag},
};

impl Meta {
    /// Ends sessions that were not heard of for a term.
    pub(super) fn watch_sessions(&mut self, rows: &Rows, context: &mut Context<'_>) {
        let now = context.clock;
        let mut before = std::mem::take(&mut self.sessions);
        for (key, value) in rows {
            let (Key::Session(id), Value::Session(row)) = (key, value) else { continue };
            let since = match before.remove(id) {
                // Only that it was heard of counts, not what was carried out for it.
                Some((beat, since)) if beat == row.beat => since,
                _ => now,
            };
            self.sessions.insert(*id, (row.beat, since));
            if now.since(since).as_nanos() as u64 >= SESSION_TERM {
                self.end_session(rows, *id, context);
            }
        }
    }

    /// In one batch: no request of it is carried out any more, its segments are settled, and those that are open are in an epoch of their own.
    fn end_session(&mut self, rows: &Rows, id: SessionId, context: &mut Context<'_>) {
        let mut txn = Txn::new(rows);
        txn.session(Key::Session(id));
        for segment in txn.sets_of(id) {
            let Some(row) = txn.set(Key::Set(segment)) else { continue };
            let row = match row.fenced() {
                Some(fenced) => {
                    self.raised.insert(segment, fenced.epoch);
                    fenced
                }
                None => row,
            };
            settle(&mut txn, segment, SetRow { settled: true, ..row });
        }
        txn.put(Key::Session(id), None);
        if !context.planted(Planted::CommitsAfterEnd) {
            (0..SLOTS).for_each(|slot| txn.put(Key::Slot(id, slot), None));
        }
        context.commit(txn.batch, Tag::SessionEnded(id), Vec::new());
    }
}

/// Carries out what is asked in a slot: the next number once, the same again is answered as it was.
pub(super) fn ask(
    from: Node,
    (session, slot, number): (SessionId, usize, u64),
    operation: Operation,
    rows: &Rows,
    context: &mut Context<'_>,
) {
    let mut txn = Txn::new(rows);
    if !lives(session, &mut txn) && !context.planted(Planted::CommitsAfterEnd) {
        return context.send(from, Message::Ended { session });
    }
    let answered = |answer| Message::Answered { session, slot, number, answer };
    let last = match txn.slot(Key::Slot(session, slot)) {
        Some(row) if row.number == number => return context.send(from, answered(row.answer)),
        last => last.map_or(0, |row| row.number),
    };
    if last + 1 != number {
        // A copy that was overtaken.
        return;
    }
    let answer = match operation {
        Operation::Open { members, copies, count } => open(&mut txn, session, (&members, copies), count),
        Operation::Commit { extents, object } => commit(&mut txn, session, (&extents, object), context),
        Operation::Settle { closed, settled } => settle_all(&mut txn, session, (&closed, &settled)),
    };
    txn.put_slot(Key::Slot(session, slot), SlotRow { number, answer: answer.clone() });
    context.commit(txn.batch, Tag::None, vec![(from, answered(answer))]);
}

fn lives(session: SessionId, txn: &mut Txn<'_>) -> bool {
    txn.session(Key::Session(session)).is_some()
}

/// A client begins a session, or says that it is there.
pub(super) fn alive(
    from: Node,
    (session, sent): (SessionId, u64),
    begins: bool,
    rows: &Rows,
    context: &mut Context<'_>,
) {
    let mut txn = Txn::new(rows);
    let Some(Value::Group(group)) = rows.get(&Key::Group) else { return };
    let writer = (session.0 >> 64) as usize;
    let row = match txn.session(Key::Session(session)) {
        Some(row) => SessionRow { beat: row.beat + 1, ..row },
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
            SessionRow { writer, beat: 1, opened: 0 }
        }
    };
    txn.put_session(Key::Session(session), row);
    let view = group.view.clone();
    context.commit(txn.batch, Tag::None, vec![(from, Message::Alive { session, view, sent })]);
}

/// Segments, each with the set that its number says.
fn open(
    txn: &mut Txn<'_>,
    session: SessionId,
    (members, copies): (&[Candidate], usize),
    count: u64,
) -> Answer {
    if let Some(row) = txn.session(Key::Session(session)) {
        // Nobody opens one unseen.
        txn.put_session(Key::Session(session), SessionRow { opened: row.opened + count, ..row });
    }
    let first = txn.number(Key::NextSegment).unwrap_or(1);
    txn.put_number(Key::NextSegment, first + count);
    let mut opened = Vec::new();
    for segment in (first..first + count).map(|number| SegmentId(number << 8)) {
        let set = placement::choose(PieceKey::of(segment, 0), members, copies, None);
        let row = SetRow::open(session, set.clone());
        opened.push(Opened { segment, epoch: row.epoch, set });
        txn.put_set(Key::Set(segment), row);
        txn.put_segment(Key::Segment(segment), SegmentRow::default());
    }
    Answer::Opened(opened)
}

/// Takes in what files consist of: in segments that the session writes and has not settled, or in an object that it has put.
fn commit(
    txn: &mut Txn<'_>,
    session: SessionId,
    (extents, object): (&[Extent], Option<u64>),
    context: &mut Context<'_>,
) -> Answer {
    let named: BTreeSet<SegmentId> = extents.iter().map(|extent| extent.segment).collect();
    let lost = |row: &SetRow| row.state == SetState::Lost;
    let names_lost = named.iter().any(|segment| txn.set(Key::Set(*segment)).is_some_and(|row| lost(&row)));
    if names_lost || context.rng.random_bool(0.02) {
        return Answer::Refused;
    }
    if let Some(object) = object {
        let row = SegmentRow { object: Some((object, 0)), live: 0 };
        txn.put_segment(Key::Segment(SegmentId(object)), row);
        txn.put_object(Key::Object(object), vec![SegmentId(object)]);
    }
    for extent in extents {
        if object.is_none() {
            let row = txn.set(Key::Set(extent.segment));
            if let Some(why) = is_in_the_way(session, extent, row.as_ref()) {
                context.violation(format!("{extent:?} is named, but {why}: {row:?}"));
            }
        }
        apply(txn, extent, context);
    }
    Answer::Committed
}

/// Why a session may not name an extent, if it may not.
fn is_in_the_way(session: SessionId, extent: &Extent, row: Option<&SetRow>) -> Option<&'static str> {
    let Some(row) = row else { return Some("its segment has no row") };
    match row.state {
        _ if row.writer != session => Some("another session writes its segment"),
        _ if row.settled => Some("its segment is settled"),
        SetState::Sealed { len, .. } if len < extent.offset + extent.len => Some("its segment ends before"),
        _ => None,
    }
}

/// A file has new contents.
fn apply(txn: &mut Txn<'_>, extent: &Extent, context: &mut Context<'_>) {
    let Extent { write, segment, offset, len } = *extent;
    let Some(mut row) = txn.segment(Key::Segment(segment)) else {
        return context.violation(format!("segment {segment} was collected before {extent:?}"));
    };
    row.live += len;
    txn.put_segment(Key::Segment(segment), row);
    if let Some(old) = txn.file(Key::File(write.file)) {
        if old.version >= write.version {
            context.violation(format!("{extent:?} comes after version {}", old.version));
        }
        if let Some(mut row) = txn.segment(Key::Segment(old.segment)) {
            row.live -= old.len;
            txn.put_segment(Key::Segment(old.segment), row);
        }
    }
    txn.put_file(Key::File(write.file), FileRow { version: write.version, segment, offset, len });
}

/// Takes in what a writer says of its segments. One that is open yet is not settled: it stays until the session ends.
fn settle_all(txn: &mut Txn<'_>, session: SessionId, (closed, settled): (&[Closed], &[SegmentId])) -> Answer {
    for one in closed {
        let row = txn.set(Key::Set(one.segment)).filter(|row| row.writer == session);
        if let Some(row) = row.and_then(|row| row.sealed(one.epoch, one.len, one.check)) {
            txn.put_set(Key::Set(one.segment), row);
        }
    }
    for segment in settled {
        let row = txn.set(Key::Set(*segment)).filter(|row| row.writer == session);
        if let Some(row) = row.filter(|row| row.state != SetState::Open) {
            settle(txn, *segment, SetRow { settled: true, ..row });
        }
    }
    Answer::Done
}

/// Puts a row, or takes it away where nobody needs it any more.
pub(super) fn settle(txn: &mut Txn<'_>, segment: SegmentId, row: SetRow) {
    let live = txn.segment(Key::Segment(segment)).map_or(0, |row| row.live);
    let over = row.is_over(live);
    txn.put(Key::Set(segment), (!over).then_some(Value::Set(row)));
}

/// Takes away what nobody needs.
pub(super) fn collect(rows: &Rows, context: &mut Context<'_>) {
    for (key, value) in rows {
        match (key, value) {
            (Key::Segment(segment), Value::Segment(row)) if row.live == 0 => {
                let mut txn = Txn::new(rows);
                let set = txn.set(Key::Set(*segment));
                if !SetRow::may_collect(set.as_ref()) && !context.planted(Planted::CollectsUnsettled) {
                    continue;
                }
                if set.is_some_and(|set| set.state == SetState::Open && !set.settled) {
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
