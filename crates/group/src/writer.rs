//! A writer's log: records in their order, over one segment after the other.
//!
//! Guarantees: a record is acknowledged once every member of its segment's set has synced it, and all records before it are acknowledged; a member
//! that fails costs no record, and its segment is sealed at what was acknowledged. Relies on its driver: the row of a segment is committed
//! before [`Writer::opened`].
//!
//! A record that was appended anew has its number, so whoever finds it twice takes one of the two.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use forebay_types::{Epoch, SegmentId};

use crate::{Append, Closed, MemberId, Replication};

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send this.
    Append(MemberId, Append),
    /// Tell the set, and with the next request the owner, that a segment ends here.
    Seal(Closed),
    /// A record is as durable as the class says. It is at this place.
    Acknowledged {
        /// Which record.
        number: u64,
        /// In which segment.
        segment: SegmentId,
        /// Where in it.
        offset: u64,
        /// How long it is.
        len: u64,
    },
    /// No segment is left that a record could go to: open some, or put what waits into the store.
    NeedSegments,
}

#[derive(Debug)]
struct Active {
    replication: Replication,
    /// Records in it that not all have: number and end.
    records: VecDeque<(u64, u64)>,
}

/// Where a record is.
#[derive(Clone, Copy, Debug)]
struct Place {
    segment: SegmentId,
    offset: u64,
    len: u64,
    synced: bool,
}

/// A writer's log.
#[derive(Debug)]
pub struct Writer {
    segment_max: u64,
    /// Segments that were opened and are empty.
    stock: VecDeque<(SegmentId, Epoch, Vec<MemberId>)>,
    active: VecDeque<Active>,
    /// Records that are in no segment, or are to be in another.
    waiting: BTreeMap<u64, Bytes>,
    /// Records that are not acknowledged, and bytes as long as they may have to be appended anew.
    places: BTreeMap<u64, (Place, Bytes)>,
    failed: BTreeSet<MemberId>,
    last: u64,
}

impl Writer {
    /// A log without segments. A segment takes no more records once it has `segment_max` bytes.
    #[must_use]
    pub fn new(segment_max: u64) -> Writer {
        Writer {
            segment_max,
            stock: VecDeque::new(),
            active: VecDeque::new(),
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            failed: BTreeSet::new(),
            last: 0,
        }
    }

    /// The number of the next record.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// Records that are not acknowledged.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.waiting.len() + self.places.len()
    }

    /// Whether a record that is not acknowledged is in a segment, be it open or closed: it may yet be named.
    #[must_use]
    pub fn holds(&self, segment: SegmentId) -> bool {
        self.places.values().any(|(place, _)| place.segment == segment)
    }

    /// Segments that are being filled, or wait to be.
    #[must_use]
    pub fn open_segments(&self) -> Vec<SegmentId> {
        let active = self.active.iter().map(|active| active.replication.segment());
        active.chain(self.stock.iter().map(|(segment, ..)| *segment)).collect()
    }

    /// A record.
    pub fn write(&mut self, bytes: Bytes) -> Vec<Effect> {
        self.last += 1;
        self.waiting.insert(self.last, bytes);
        self.pump()
    }

    /// A segment may be filled: its row is committed.
    pub fn opened(&mut self, segment: SegmentId, epoch: Epoch, set: Vec<MemberId>) -> Vec<Effect> {
        self.stock.push_back((segment, epoch, set));
        self.pump()
    }

    /// A member has synced its copy of a segment up to `end`.
    pub fn synced(&mut self, member: MemberId, segment: SegmentId, end: u64) -> Vec<Effect> {
        let found = self.active.iter_mut().find(|active| active.replication.segment() == segment);
        if let Some(active) = found {
            let upto = active.replication.synced(member, end);
            while let Some((number, _)) = active.records.pop_front_if(|(_, end)| *end <= upto) {
                if let Some((place, _)) = self.places.get_mut(&number) {
                    place.synced = true;
                }
            }
        }
        let mut effects = self.acknowledge();
        effects.extend(self.close_full());
        effects
    }

    /// A member does not answer, or refuses: its segments are sealed at what was acknowledged, and it is avoided until [`Writer::forgive`].
    pub fn failed(&mut self, member: MemberId) -> Vec<Effect> {
        self.failed.insert(member);
        let mut effects = Vec::new();
        let (gone, stay): (VecDeque<_>, VecDeque<_>) =
            self.active.drain(..).partition(|active| active.replication.names(member));
        self.active = stay;
        for active in gone {
            effects.extend(self.abandon(active));
        }
        effects.extend(self.pump());
        effects
    }

    /// A member may be chosen again.
    pub fn forgive(&mut self, member: MemberId) -> Vec<Effect> {
        self.failed.remove(&member);
        self.pump()
    }

    /// Segments are given back that name a member that failed, and were never used.
    pub fn unusable(&mut self) -> Vec<SegmentId> {
        let failed = &self.failed;
        let (gone, stay) =
            self.stock.drain(..).partition(|(_, _, set)| set.iter().any(|member| failed.contains(member)));
        self.stock = stay;
        VecDeque::into_iter(gone).map(|(segment, ..)| segment).collect()
    }

    /// Closes the segments that have something and of which all is acknowledged.
    pub fn flush(&mut self) -> Vec<Effect> {
        self.close(|active| active.replication.end() > 0)
    }

    /// The first record that is in no segment of a member, to be put elsewhere: it is now in `segment`, which is in the store. Like every other one it is acknowledged
    /// in its turn, once [`Writer::stored`] says that it is there.
    pub fn withdraw(&mut self, segment: SegmentId) -> Option<(u64, Bytes)> {
        let (number, bytes) = self.waiting.pop_first()?;
        let place = Place { segment, offset: 0, len: bytes.len() as u64, synced: false };
        self.places.insert(number, (place, bytes.clone()));
        Some((number, bytes))
    }

    /// A record that is to be in no segment of a member from the beginning: as one that was written and withdrawn.
    pub fn write_elsewhere(&mut self, segment: SegmentId, bytes: Bytes) -> u64 {
        self.last += 1;
        let place = Place { segment, offset: 0, len: bytes.len() as u64, synced: false };
        self.places.insert(self.last, (place, bytes));
        self.last
    }

    /// A record that was put elsewhere is there.
    pub fn stored(&mut self, number: u64) -> Vec<Effect> {
        if let Some((place, _)) = self.places.get_mut(&number) {
            place.synced = true;
        }
        self.acknowledge()
    }

    /// What a member has not answered: to be sent again.
    #[must_use]
    pub fn outstanding(&self) -> Vec<(MemberId, Append)> {
        let mut all = Vec::new();
        for active in &self.active {
            for member in active.replication.behind() {
                all.extend(active.replication.outstanding(member).map(|append| (member, append.clone())));
            }
        }
        all
    }

    fn abandon(&mut self, active: Active) -> Option<Effect> {
        for (number, _) in &active.records {
            if let Some((_, bytes)) = self.places.remove(number) {
                self.waiting.insert(*number, bytes);
            }
        }
        // An empty one, too: the owner is to know that nothing comes any more.
        Some(Effect::Seal(active.replication.close()))
    }

    /// Puts what waits into segments.
    fn pump(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while !self.waiting.is_empty() {
            if !self.has_room() && !self.begin() {
                effects.push(Effect::NeedSegments);
                break;
            }
            let (Some(active), Some((number, bytes))) = (self.active.back_mut(), self.waiting.pop_first())
            else {
                break;
            };
            let append = active.replication.append(bytes.clone());
            active.records.push_back((number, append.end()));
            let (segment, offset, len) = (append.segment, append.offset, bytes.len() as u64);
            self.places.insert(number, (Place { segment, offset, len, synced: false }, bytes));
            effects.extend(active.replication.set().into_iter().map(|to| Effect::Append(to, append.clone())));
        }
        effects
    }

    fn has_room(&self) -> bool {
        self.active.back().is_some_and(|active| active.replication.end() < self.segment_max)
    }

    fn begin(&mut self) -> bool {
        let usable = |set: &[MemberId]| !set.iter().any(|member| self.failed.contains(member));
        let Some(at) = self.stock.iter().position(|(_, _, set)| usable(set)) else { return false };
        let Some((segment, epoch, set)) = self.stock.remove(at) else { return false };
        let replication = Replication::new(segment, epoch, set);
        self.active.push_back(Active { replication, records: VecDeque::new() });
        true
    }

    fn acknowledge(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(first) = self.places.first_entry() {
            let earlier_waits =
                self.waiting.first_key_value().is_some_and(|(number, _)| number < first.key());
            if earlier_waits || !first.get().0.synced {
                break;
            }
            let (number, (Place { segment, offset, len, .. }, _)) = first.remove_entry();
            effects.push(Effect::Acknowledged { number, segment, offset, len });
        }
        effects
    }

    fn close_full(&mut self) -> Vec<Effect> {
        let max = self.segment_max;
        self.close(|active| active.replication.end() >= max)
    }

    fn close(&mut self, which: impl Fn(&Active) -> bool) -> Vec<Effect> {
        let done = |active: &Active| active.replication.acknowledged() == active.replication.end();
        let (closed, stay): (VecDeque<_>, VecDeque<_>) =
            self.active.drain(..).partition(|active| done(active) && which(active));
        self.active = stay;
        closed.into_iter().map(|active| Effect::Seal(active.replication.close())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemberId = MemberId([1; 16]);
    const B: MemberId = MemberId([2; 16]);
    const C: MemberId = MemberId([3; 16]);

    fn writer() -> Writer {
        let mut writer = Writer::new(8);
        assert!(writer.opened(SegmentId(1), Epoch(1), vec![A, B]).is_empty());
        assert!(writer.opened(SegmentId(2), Epoch(1), vec![A, C]).is_empty());
        writer
    }

    fn acknowledged(effects: &[Effect]) -> Vec<(u64, u64)> {
        let number = |effect: &Effect| match effect {
            Effect::Acknowledged { number, segment, .. } => Some((*number, segment.0)),
            _ => None,
        };
        effects.iter().filter_map(number).collect()
    }

    fn sent(effects: &[Effect]) -> Vec<(MemberId, u64, u64)> {
        let send = |effect: &Effect| match effect {
            Effect::Append(to, append) => Some((*to, append.segment.0, append.offset)),
            _ => None,
        };
        effects.iter().filter_map(send).collect()
    }

    #[test]
    fn a_record_waits_for_all_of_its_set() {
        let mut writer = writer();
        let effects = writer.write(Bytes::from_static(b"abcd"));
        assert_eq!(sent(&effects), [(A, 1, 0), (B, 1, 0)]);
        assert!(writer.synced(A, SegmentId(1), 4).is_empty());
        assert_eq!(writer.outstanding().len(), 1);
        assert_eq!(acknowledged(&writer.synced(B, SegmentId(1), 4)), [(1, 1)]);
        assert_eq!(writer.pending(), 0);
    }

    #[test]
    fn records_are_acknowledged_in_their_order_over_segments() {
        let mut writer = writer();
        writer.write(Bytes::from_static(b"12345678"));
        let second = writer.write(Bytes::from_static(b"9"));
        assert_eq!(sent(&second), [(A, 2, 0), (C, 2, 0)], "the first segment is full");
        writer.synced(A, SegmentId(2), 1);
        assert!(acknowledged(&writer.synced(C, SegmentId(2), 1)).is_empty(), "an earlier one is not");
        writer.synced(A, SegmentId(1), 8);
        let effects = writer.synced(B, SegmentId(1), 8);
        assert_eq!(acknowledged(&effects), [(1, 1), (2, 2)]);
        let full = |effect: &Effect| matches!(effect, Effect::Seal(closed) if closed.len == 8);
        assert!(effects.iter().any(full), "and the full one is sealed");
    }

    #[test]
    fn a_member_that_fails_costs_its_segment_and_no_record() {
        let mut writer = writer();
        writer.write(Bytes::from_static(b"ab"));
        writer.synced(A, SegmentId(1), 2);
        writer.synced(B, SegmentId(1), 2);
        writer.write(Bytes::from_static(b"cd"));
        writer.synced(A, SegmentId(1), 4);
        let effects = writer.failed(B);
        let seal = effects.iter().find_map(|effect| match effect {
            Effect::Seal(closed) => Some(closed.clone()),
            _ => None,
        });
        assert_eq!(seal.map(|closed| (closed.segment.0, closed.len)), Some((1, 2)));
        assert_eq!(sent(&effects), [(A, 2, 0), (C, 2, 0)]);
        assert!(acknowledged(&effects).is_empty());
        assert!(writer.synced(B, SegmentId(1), 4).is_empty(), "too late");
        writer.synced(A, SegmentId(2), 2);
        assert_eq!(acknowledged(&writer.synced(C, SegmentId(2), 2)), [(2, 2)]);
    }

    #[test]
    fn without_a_set_it_asks_for_one() {
        let mut writer = writer();
        assert_eq!(writer.failed(A), []);
        assert_eq!(writer.write(Bytes::from_static(b"x")), [Effect::NeedSegments]);
        assert_eq!(writer.unusable(), [SegmentId(1), SegmentId(2)]);
        assert_eq!(sent(&writer.opened(SegmentId(3), Epoch(1), vec![B, C])).len(), 2);
        assert_eq!(writer.forgive(A), []);
    }

    #[test]
    fn what_finds_no_segment_is_acknowledged_from_the_store_in_its_turn() {
        let mut writer = writer();
        writer.failed(C);
        writer.write(Bytes::from_static(b"12345678"));
        assert_eq!(writer.write(Bytes::from_static(b"9")), [Effect::NeedSegments]);
        assert_eq!(writer.withdraw(SegmentId(7)), Some((2, Bytes::from_static(b"9"))));
        assert_eq!(writer.withdraw(SegmentId(8)), None, "the first one is with members");
        assert_eq!(writer.write_elsewhere(SegmentId(8), Bytes::from_static(b"0")), 3);
        assert!(writer.stored(3).is_empty() && writer.stored(2).is_empty(), "the first one is not there");
        assert_eq!(writer.pending(), 3);
        // What others take after it waits for nothing else.
        writer.opened(SegmentId(3), Epoch(1), vec![A, B]);
        assert!(writer.withdraw(SegmentId(9)).is_none());
        writer.synced(A, SegmentId(1), 8);
        assert_eq!(acknowledged(&writer.synced(B, SegmentId(1), 8)), [(1, 1), (2, 7), (3, 8)]);
        assert_eq!(writer.pending(), 0);
    }

    #[test]
    fn what_was_taken_back_is_not_overtaken() {
        let mut writer = writer();
        writer.write(Bytes::from_static(b"12345678"));
        writer.write(Bytes::from_static(b"9"));
        writer.synced(A, SegmentId(2), 1);
        writer.failed(B);
        assert!(
            acknowledged(&writer.synced(C, SegmentId(2), 1)).is_empty(),
            "the first one is in segment 2 again"
        );
        writer.synced(A, SegmentId(2), 9);
        assert_eq!(acknowledged(&writer.synced(C, SegmentId(2), 9)), [(1, 2), (2, 2)]);
        assert!(matches!(&writer.flush()[..], [] | [Effect::Seal(_)]));
        assert!(writer.open_segments().is_empty());
    }
}
