//! One open segment over the logs of its set.
//!
//! Guarantees: what [`Replication::acknowledged`] covers was synced by every member of the set; a segment is sealed at no more than that. Relies on: a
//! member says it has synced up to an end only if it has.

use std::collections::VecDeque;

use bytes::Bytes;
use forebay_types::{Epoch, SegmentId};

use crate::{Append, MemberId};

#[derive(Debug)]
struct Part {
    append: Append,
    /// CRC32C of the segment up to the end of this part.
    running: u32,
}

/// A segment that its writer has closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Closed {
    /// Which segment.
    pub segment: SegmentId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Who is to seal it.
    pub set: Vec<MemberId>,
    /// What all of them had synced, in bytes.
    pub len: u64,
    /// CRC32C of that.
    pub check: u32,
}

/// A writer's open segment.
#[derive(Debug)]
pub struct Replication {
    segment: SegmentId,
    epoch: Epoch,
    /// The set, each with where its copy ends on stable storage.
    set: Vec<(MemberId, u64)>,
    /// What not all have synced, in order.
    parts: VecDeque<Part>,
    end: u64,
    running: u32,
    acknowledged: u64,
    acknowledged_check: u32,
}

impl Replication {
    /// A segment of which nothing was sent yet.
    #[must_use]
    pub fn new(segment: SegmentId, epoch: Epoch, set: Vec<MemberId>) -> Replication {
        Replication {
            segment,
            epoch,
            set: set.into_iter().map(|member| (member, 0)).collect(),
            parts: VecDeque::new(),
            end: 0,
            running: 0,
            acknowledged: 0,
            acknowledged_check: 0,
        }
    }

    /// Which segment.
    #[must_use]
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Whether a member is in the set.
    #[must_use]
    pub fn names(&self, member: MemberId) -> bool {
        self.set.iter().any(|(id, _)| *id == member)
    }

    /// The set.
    #[must_use]
    pub fn set(&self) -> Vec<MemberId> {
        self.set.iter().map(|(id, _)| *id).collect()
    }

    /// Where the segment ends, acknowledged or not.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Up to where all of the set have synced it.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Bytes at the end. Returns what is sent to every member of the set.
    pub fn append(&mut self, bytes: Bytes) -> Append {
        let check = crc32c::crc32c(&bytes);
        self.running = crc32c::crc32c_append(self.running, &bytes);
        let (segment, epoch) = (self.segment, self.epoch);
        let append = Append { segment, epoch, offset: self.end, bytes, check };
        self.end = append.end();
        self.parts.push_back(Part { append: append.clone(), running: self.running });
        append
    }

    /// A member has synced its copy up to `end`. Returns up to where all have.
    pub fn synced(&mut self, member: MemberId, end: u64) -> u64 {
        if let Some((_, known)) = self.set.iter_mut().find(|(id, _)| *id == member) {
            *known = (*known).max(end);
        }
        let least = self.set.iter().map(|(_, end)| *end).min().unwrap_or(0);
        while let Some(part) = self.parts.pop_front_if(|part| part.append.end() <= least) {
            (self.acknowledged, self.acknowledged_check) = (part.append.end(), part.running);
        }
        self.acknowledged
    }

    /// What a member has not said to have synced: to be sent again.
    pub fn outstanding(&self, member: MemberId) -> impl Iterator<Item = &Append> {
        let end = self.set.iter().find(|(id, _)| *id == member).map_or(u64::MAX, |(_, end)| *end);
        self.parts.iter().map(|part| &part.append).filter(move |append| append.end() > end)
    }

    /// Who has not synced everything.
    #[must_use]
    pub fn behind(&self) -> Vec<MemberId> {
        self.set.iter().filter(|(_, end)| *end < self.end).map(|(id, _)| *id).collect()
    }

    /// The segment ends at what was acknowledged. What was not is to be appended elsewhere.
    #[must_use]
    pub fn close(self) -> Closed {
        let set = self.set();
        let (segment, epoch) = (self.segment, self.epoch);
        Closed { segment, epoch, set, len: self.acknowledged, check: self.acknowledged_check }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: MemberId = MemberId([1; 16]);
    const B: MemberId = MemberId([2; 16]);

    #[test]
    fn only_what_all_have_is_acknowledged_and_sealed() {
        let mut segment = Replication::new(SegmentId(1), Epoch(1), vec![A, B]);
        segment.append(Bytes::from_static(b"abc"));
        segment.append(Bytes::from_static(b"de"));
        assert_eq!(segment.synced(A, 5), 0);
        assert_eq!(segment.synced(B, 3), 3);
        assert_eq!(segment.synced(B, 1), 3, "nothing is taken back");
        assert_eq!(segment.synced(MemberId([9; 16]), 5), 3, "a stranger");
        assert_eq!(segment.outstanding(B).count(), 1);
        assert_eq!((segment.outstanding(A).count(), segment.behind()), (0, vec![B]));
        let closed = segment.close();
        assert_eq!((closed.len, closed.check), (3, crc32c::crc32c(b"abc")));
    }

    proptest! {
        #[test]
        fn acknowledged_is_the_least_of_all(
            ends in prop::collection::vec((0..3u8, 0..12u64), 1..30),
        ) {
            let members: Vec<_> = (0..3).map(|at| MemberId([at; 16])).collect();
            let mut segment = Replication::new(SegmentId(1), Epoch(1), members.clone());
            for _ in 0..4 {
                segment.append(Bytes::from_static(b"xyz"));
            }
            let mut model = [0u64; 3];
            for (member, end) in ends {
                // A member syncs whole appends.
                let end = end / 3 * 3;
                model[usize::from(member)] = model[usize::from(member)].max(end);
                let least = model.iter().copied().min().unwrap_or(0);
                prop_assert_eq!(segment.synced(members[usize::from(member)], end), least);
            }
        }
    }
}
