//! What writers have left open whose sessions ended, and what nobody has all of any more.

use std::collections::BTreeMap;

use forebay_cluster::Moment;
use forebay_group::{
    Fenced, Gone, GroupRow, GroupTerms, Hope, Inquiry, Left, MemberId, Offer, Recovery, SetRow, SetState,
};
use forebay_types::{Epoch, SegmentId};

use super::{Meta, TAKES_UP, sessions::settle};
use crate::{
    engine::{Key, Rows, Txn, Value},
    faults::Planted,
    messages::{Message, node_of},
    world::{Context, METAS, SECOND, Tag},
};

/// The recovery of one segment, in the epoch that its row has since this server took it up.
#[derive(Debug)]
pub(super) struct Recovering {
    recovery: Recovery,
    row: SetRow,
    since: u64,
}

/// Open segments whose writers have ended.
fn orphans<'a>(rows: &'a Rows) -> BTreeMap<SegmentId, &'a SetRow> {
    let is_orphan =
        |row: &SetRow| row.state == SetState::Open && !rows.contains_key(&Key::Session(row.writer));
    let orphan = |(key, value): (&Key, &'a Value)| match (key, value) {
        (Key::Set(segment), Value::Set(row)) => is_orphan(row).then_some((*segment, row)),
        _ => None,
    };
    rows.iter().filter_map(orphan).collect()
}

impl Meta {
    /// Goes on with what this server has ended or taken up, and takes up what another one does not go on with: in a higher epoch, so that what that one hears is late.
    pub(super) fn recover(&mut self, rows: &Rows, context: &mut Context<'_>) {
        let left = orphans(rows);
        self.raised.retain(|segment, _| rows.contains_key(&Key::Set(*segment)));
        self.orphans.retain(|segment, _| left.contains_key(segment));
        self.recoveries.retain(|segment, recovering| left.get(segment) == Some(&&recovering.row));
        for (segment, row) in left {
            if self.raised.get(&segment) == Some(&row.epoch) {
                let recovering = self.recoveries.entry(segment).or_insert_with(|| Recovering {
                    recovery: Recovery::new([(segment, row.clone())], GroupTerms::default()),
                    row: row.clone(),
                    since: context.now,
                });
                recovering.go_on(segment, rows, context);
            } else if self.is_left_alone(segment, row.epoch, context.clock)
                && let Some(fenced) = row.fenced()
            {
                self.raised.insert(segment, fenced.epoch);
                let mut txn = Txn::new(rows);
                txn.put_set(Key::Set(segment), fenced);
                context.commit(txn.batch, Tag::None, Vec::new());
            }
        }
    }

    /// Whether a segment is in this epoch for so long that whoever began its recovery may be gone.
    fn is_left_alone(&mut self, segment: SegmentId, epoch: Epoch, now: Moment) -> bool {
        let (known, since) = self.orphans.entry(segment).or_insert((epoch, now));
        if *known != epoch {
            (*known, *since) = (epoch, now);
        }
        now.since(*since).as_nanos() as u64 >= TAKES_UP
    }

    /// A member has fenced a segment, and says what it has.
    pub(super) fn fenced(
        &mut self,
        (id, segment, epoch): (MemberId, SegmentId, Epoch),
        fenced: Fenced,
        now: Moment,
    ) {
        if let Some((inquiry, _)) = self.inquiries.get_mut(&segment) {
            inquiry.answered(id, epoch, fenced);
        }
        if let Some(recovering) = self.recoveries.get_mut(&segment) {
            recovering.recovery.answered(id, segment, epoch, fenced, now);
        }
    }
}

impl Recovering {
    fn go_on(&mut self, segment: SegmentId, rows: &Rows, context: &mut Context<'_>) {
        if let Some(Value::Group(group)) = rows.get(&Key::Group) {
            group.removed.iter().for_each(|member| self.recovery.removed(*member, context.clock));
        }
        for (id, segment, epoch) in self.recovery.to_ask() {
            context.send(node_of(id), Message::Fence { id, segment, epoch });
        }
        if context.planted(Planted::EndsUnheard) && context.now >= self.since + 4 * SECOND {
            let silent = self.recovery.to_ask();
            silent.iter().for_each(|(member, ..)| self.recovery.removed(*member, context.clock));
        }
        let found = self.recovery.ready(context.clock).unwrap_or_default();
        if let Some(row) = found.into_iter().find_map(|found| found.row) {
            let mut txn = Txn::new(rows);
            settle(&mut txn, segment, SetRow { settled: true, ..row });
            context.commit(txn.batch, Tag::Recovered, Vec::new());
        }
    }
}

impl Meta {
    pub(super) fn note_lacking(&mut self, id: MemberId, offers: &[Offer], rows: &Rows) {
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
    pub(super) fn see_to_losses(&mut self, rows: &Rows, context: &mut Context<'_>) {
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
