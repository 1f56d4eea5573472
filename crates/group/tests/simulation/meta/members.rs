//! Members: who joins and renews, what becomes of their copies, and who is given some.

use forebay_group::{Joining, MemberId, MemberRow, Offer, Renewal, SetRow, SetState, repair};
use rand::RngExt;

use super::{is_given_up, present, put_change, sessions::settle};
use crate::{
    engine::{Key, Rows, Txn, Value},
    faults::Planted,
    messages::{Message, Node, Part, node_of},
    world::{Context, SECOND, Tag},
};

pub(super) fn join(from: Node, joining: &Joining, rows: &Rows, context: &mut Context<'_>) {
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

pub(super) fn renew(from: Node, renewal: &Renewal, rows: &Rows, context: &mut Context<'_>) {
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

pub(super) fn judge(from: Node, id: MemberId, offers: &[Offer], rows: &Rows, context: &mut Context<'_>) {
    let here = present(rows);
    let verdict = |offer: &Offer| {
        let row = match rows.get(&Key::Set(offer.segment)) {
            Some(Value::Set(row)) => Some(row),
            _ => None,
        };
        let first = row.and_then(|row| row.set.iter().find(|member| here.contains(member)));
        // Another one now and then, should the first not be able to.
        let turn = first == Some(&id) || offer.segment.0 / 256 % 7 == context.now / SECOND % 7;
        let data = row.is_some_and(|row| !matches!(row.state, SetState::Stored | SetState::Lost));
        (offer.segment, SetRow::verdict(row, id, offer), turn && data)
    };
    let verdicts = offers.iter().map(verdict).collect();
    context.send(from, Message::Verdicts { id, verdicts });
}

pub(super) fn stores(
    from: Node,
    id: MemberId,
    object: u64,
    parts: &[Part],
    rows: &Rows,
    context: &mut Context<'_>,
) {
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

/// Has copies made in the place of those that are gone.
pub(super) fn mend(rows: &Rows, context: &mut Context<'_>) {
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
