//! Sessions, members and segments of the random steps.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_cluster::SessionId;
use forebay_group::{Append, MemberId, MemberLog};
use forebay_protocol::{Judged, StoredSegment};
use forebay_types::{Epoch, SegmentId};

/// Bytes that one file has: all of them are written at a time.
pub const LEN: usize = 24;

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A session, and the number of its next request.
pub struct Session {
    pub id: SessionId,
    pub next: u64,
}

pub struct Member {
    pub id: MemberId,
    pub log: MemberLog,
    pub bytes: BTreeMap<SegmentId, Vec<u8>>,
    pub session: Session,
    /// It answers nobody for the while.
    pub silent: bool,
}

impl Member {
    pub fn append(&mut self, segment: SegmentId, offset: u64, bytes: &[u8]) -> bool {
        let (check, bytes) = (crc32c::crc32c(bytes), Bytes::copy_from_slice(bytes));
        let append = Append { segment, epoch: Epoch(1), offset, bytes, check };
        let taken = !self.silent && self.log.append(&append).is_ok();
        if taken {
            let kept = self.bytes.entry(segment).or_default();
            kept.truncate(offset as usize);
            kept.extend_from_slice(&append.bytes);
        }
        taken
    }

    /// What it puts of these as one object.
    pub fn held(&self, puts: &[&Judged]) -> Vec<(StoredSegment, Vec<u8>)> {
        let (mut held, mut offset) = (Vec::new(), 0);
        for one in puts {
            let (segment, kept) = (one.segment, self.log.kept(one.segment).unwrap());
            let ((len, check), epoch) = (kept.sealed.unwrap(), kept.epoch);
            let bytes = self.bytes.get(&segment).map_or(Vec::new(), |bytes| bytes[..len as usize].to_vec());
            assert_eq!(crc32c::crc32c(&bytes), check);
            held.push((StoredSegment { segment, epoch, len, check, offset, raw: len }, bytes));
            offset += len;
        }
        held
    }

    pub fn has(&self, segment: SegmentId, from: u64) -> Option<&[u8]> {
        let kept = self.log.kept(segment).filter(|kept| !kept.damaged)?;
        let whole = self.bytes.get(&segment)?.get(..kept.end() as usize)?;
        whole.get(from as usize..from as usize + LEN)
    }
}

/// A segment as its writer knows it.
#[derive(Clone)]
pub struct Open {
    pub segment: SegmentId,
    pub set: [usize; 2],
    pub whole: Vec<u8>,
}
