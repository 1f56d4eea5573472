//! What a member has in its log, and what it takes in and refuses.
//!
//! Guarantees: of a segment it has the bytes from 0 to an end without a gap, each as its checksum said; after a fence nothing of a lower epoch is taken;
//! a sealed segment never changes; nothing is given up but by a verdict of the owner. Relies on its driver: records are written in the order in
//! which they were handed out, [`MemberLog::synced`] is told only what a sync covered, and no answer is given before the position in its
//! [`Step`] is synced. Whether the member acts at all is [`Membership`](crate::Membership)'s to say, before anything is appended.

mod kept;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_types::{Epoch, SegmentId};

use crate::Verdict;
pub use kept::{Kept, Piece};
pub use record::{Append, Record};

/// Why a member refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LogError {
    /// The segment is in a later epoch: whoever asks has been replaced.
    #[error("the segment is in epoch {0} by now")]
    Fenced(Epoch),
    /// The segment takes no more.
    #[error("the segment is sealed at {0} bytes")]
    Sealed(u64),
    /// There is a gap before the bytes, or fewer than are to be sealed.
    #[error("the segment ends at {0} here")]
    EndsAt(u64),
    /// Other bytes are there already, or the bytes are not those that their checksum is of.
    #[error("the bytes are not what they should be")]
    Different,
    /// This copy is damaged.
    #[error("the copy of the segment is damaged")]
    Damaged,
}

/// What a member is to do before it answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// To be written to the log, in this order; `None` where it has been already.
    pub record: Option<Record>,
    /// The answer waits until the log is synced up to here.
    pub upto: u64,
    /// Where the segment ends then.
    pub end: u64,
}

/// What a member has of a segment that was fenced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fenced {
    /// Where it ends.
    pub end: u64,
    /// CRC32C of all of it.
    pub check: u32,
    /// Nothing of it counts.
    pub damaged: bool,
}

/// A copy that a member has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// Of which segment.
    pub segment: SegmentId,
    /// The highest epoch that was heard of.
    pub epoch: Epoch,
    /// Where it ends.
    pub end: u64,
    /// CRC32C of all of it.
    pub check: u32,
    /// Length and CRC32C, once it is sealed.
    pub sealed: Option<(u64, u32)>,
    /// Nothing of it counts.
    pub damaged: bool,
}

/// A member's log: which segments of a volume it has, and where. Several may share one log on a disk: [`MemberLog::begin_at`].
#[derive(Clone, Debug, Default)]
pub struct MemberLog {
    segments: BTreeMap<SegmentId, Kept>,
    /// Where the next record goes.
    end: u64,
    /// Up to where all is on stable storage.
    synced: u64,
    /// Bytes of all segments.
    dirty: u64,
    /// Records before this position were lost, and nobody knows of which segments; 0 where none were.
    lost_before: u64,
}

impl MemberLog {
    /// The log of a new disk.
    #[must_use]
    pub fn new() -> MemberLog {
        MemberLog::default()
    }

    /// Takes in a record that was read at `position`, when a process begins. Records come in their order; [`MemberLog::replayed`] follows the last one.
    pub fn replay(&mut self, position: u64, record: &Record) {
        self.end = position + record.size();
        self.synced = self.end;
        match record {
            Record::Append(append) => self.found(position, append, false),
            Record::Fence { segment, epoch } => {
                let kept = self.segments.entry(*segment).or_default();
                kept.epoch = kept.epoch.max(*epoch);
                kept.fenced_at(position);
            }
            Record::Seal { segment, epoch, len, check } => {
                let kept = self.segments.entry(*segment).or_default();
                kept.epoch = kept.epoch.max(*epoch);
                kept.said = Some(position);
                kept.found_seal(*len, *check);
            }
            Record::Drop { segment } => drop(self.segments.remove(segment)),
        }
    }

    /// Takes in bytes that were in the log before and had been appended anew, read at `position`: the later record counts.
    pub fn replay_again(&mut self, position: u64, append: &Append) {
        self.end = position + Record::Append(append.clone()).size();
        self.synced = self.end;
        self.found(position, append, true);
    }

    fn found(&mut self, position: u64, append: &Append, again: bool) {
        let kept = self.segments.entry(append.segment).or_default();
        kept.epoch = kept.epoch.max(append.epoch);
        let len = append.bytes.len() as u64;
        let piece = Piece { offset: append.offset, len, check: append.check, running: 0, position };
        kept.found(piece, again);
    }

    /// All records were read. Segments that are not whole are damaged; where records before the position `lost_before` were lost of which nobody knows what they
    /// were, so is each that may have had one: all that are not sealed and were not opened later, and those of which nothing is here.
    pub fn replayed(&mut self, lost_before: u64) {
        self.lost_before = self.lost_before.max(lost_before);
        for kept in self.segments.values_mut() {
            kept.judge(self.lost_before);
        }
        self.dirty = self.segments.values().map(Kept::end).sum();
    }

    /// Says that bytes of a segment in the log do not check.
    pub fn damaged(&mut self, segment: SegmentId) {
        self.segments.entry(segment).or_default().damaged = true;
    }

    /// Says that the next record goes to this position: there are records of others before it, or none.
    pub fn begin_at(&mut self, position: u64) {
        self.end = position;
    }

    /// Says that the log is on stable storage up to here.
    pub fn synced(&mut self, upto: u64) {
        self.synced = self.synced.max(upto);
    }

    /// Where the log ends, in bytes ever written.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Up to where it is on stable storage.
    #[must_use]
    pub fn synced_upto(&self) -> u64 {
        self.synced
    }

    /// Whether there is anything of a segment: it was opened here.
    #[must_use]
    pub fn has(&self, segment: SegmentId) -> bool {
        self.segments.contains_key(&segment)
    }

    /// What there is of a segment.
    #[must_use]
    pub fn kept(&self, segment: SegmentId) -> Option<&Kept> {
        self.segments.get(&segment)
    }

    /// Bytes that may be wanted.
    #[must_use]
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Segments that may be wanted, also empty ones.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.segments.len() as u64
    }

    /// Bytes come from a segment's writer.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn append(&mut self, append: &Append) -> Result<Step, LogError> {
        if crc32c::crc32c(&append.bytes) != append.check {
            return Err(LogError::Different);
        }
        let none = Kept::default();
        let kept = self.segments.get(&append.segment).unwrap_or(&none);
        let (end, upto) = (kept.end(), kept.upto);
        refuse(kept, append.epoch)?;
        if append.offset < end {
            let same = |piece: &&Piece| piece.len == append.bytes.len() as u64 && piece.check == append.check;
            kept.piece(append.offset).filter(same).ok_or(LogError::Different)?;
            return Ok(Step { record: None, upto, end: append.end() });
        }
        if let Some((len, _)) = kept.sealed {
            return Err(LogError::Sealed(len));
        }
        if append.offset > end {
            return Err(LogError::EndsAt(end));
        }
        let record = Record::Append(append.clone());
        let position = self.write(&record);
        let kept = self.segments.entry(append.segment).or_default();
        kept.epoch = kept.epoch.max(append.epoch);
        kept.push(append.offset, append.bytes.len() as u64, append.check, position);
        kept.upto = self.end;
        self.dirty += append.bytes.len() as u64;
        Ok(Step { record: Some(record), upto: self.end, end: append.end() })
    }

    /// Whoever recovers a segment takes it: nothing of a lower epoch is taken from now on, also where there is nothing of it.
    ///
    /// # Errors
    /// [`LogError::Fenced`].
    pub fn fence(&mut self, segment: SegmentId, epoch: Epoch) -> Result<(Step, Fenced), LogError> {
        let known = self.segments.get(&segment).map_or(Epoch(0), |kept| kept.epoch);
        if known > epoch {
            return Err(LogError::Fenced(known));
        }
        let record = (known < epoch).then_some(Record::Fence { segment, epoch });
        let position = record.as_ref().map(|record| self.write(record));
        // Of one that is not here there may have been something before records were lost.
        let none = Kept { damaged: self.lost_before > 0, ..Kept::default() };
        let kept = self.segments.entry(segment).or_insert(none);
        if let Some(position) = position {
            (kept.epoch, kept.upto) = (epoch, self.end);
            kept.fenced_at(position);
        }
        let fenced = Fenced { end: kept.end(), check: kept.check(), damaged: kept.damaged };
        Ok((Step { record, upto: kept.upto, end: kept.end() }, fenced))
    }

    /// The segment ends at `len`; what is beyond was not acknowledged.
    ///
    /// # Errors
    /// [`LogError`]. [`LogError::EndsAt`] where there is less: this copy is not whole.
    pub fn seal(&mut self, segment: SegmentId, epoch: Epoch, len: u64, check: u32) -> Result<Step, LogError> {
        let none = Kept::default();
        let kept = self.segments.get(&segment).unwrap_or(&none);
        refuse(kept, epoch)?;
        match kept.sealed {
            Some(sealed) if sealed == (len, check) && kept.epoch == epoch => {
                return Ok(Step { record: None, upto: kept.upto, end: len });
            }
            Some((sealed, _)) if sealed < len => return Err(LogError::Sealed(sealed)),
            _ => {}
        }
        if kept.end() < len {
            return Err(LogError::EndsAt(kept.end()));
        }
        if kept.cut(len).is_none_or(|(_, found)| found != check) {
            return Err(LogError::Different);
        }
        let record = Record::Seal { segment, epoch, len, check };
        let position = self.write(&record);
        let kept = self.segments.entry(segment).or_default();
        (kept.epoch, kept.upto, kept.said) = (epoch, self.end, Some(position));
        let before = kept.end();
        kept.found_seal(len, check);
        self.dirty -= before - kept.end();
        Ok(Step { record: Some(record), upto: self.end, end: len })
    }

    /// Takes in what the owner says of a copy that was offered. Returns what is to be written: the copy is given up, or cut.
    pub fn judged(&mut self, segment: SegmentId, verdict: Verdict) -> Option<Record> {
        match verdict {
            Verdict::Wanted => None,
            Verdict::SealedAt { epoch, len, check } => {
                self.heal(segment, len, check);
                self.seal(segment, epoch, len, check).ok().and_then(|step| step.record)
            }
            // Said before this copy was asked for.
            Verdict::Unwanted(epoch) if self.segments.get(&segment).is_none_or(|kept| kept.epoch > epoch) => {
                None
            }
            Verdict::Clean | Verdict::Gone | Verdict::Unwanted(_) => self.forget(segment),
        }
    }

    /// What was taken for damaged, since nobody knew what was missing, is whole if it is what the owner says.
    fn heal(&mut self, segment: SegmentId, len: u64, check: u32) {
        if let Some(kept) = self.segments.get_mut(&segment)
            && kept.cut(len).is_some_and(|(_, found)| found == check)
        {
            kept.damaged = false;
        }
    }

    fn forget(&mut self, segment: SegmentId) -> Option<Record> {
        self.dirty -= self.segments.remove(&segment)?.end();
        let record = Record::Drop { segment };
        self.write(&record);
        Some(record)
    }

    /// Where the bytes of a range are: pieces in their order, none where not all of it is here.
    #[must_use]
    pub fn places(&self, segment: SegmentId, from: u64, to: u64) -> Vec<Piece> {
        let Some(kept) = self.segments.get(&segment).filter(|kept| !kept.damaged && kept.end() >= to) else {
            return Vec::new();
        };
        let first = kept.pieces.partition_point(|piece| piece.end() <= from);
        kept.pieces[first..].iter().take_while(|piece| piece.offset < to).copied().collect()
    }

    /// Bytes of a segment could not be read back, or do not check: it ends before them, and counts for nothing.
    pub fn unreadable(&mut self, segment: SegmentId, offset: u64) {
        if let Some(kept) = self.segments.get_mut(&segment) {
            kept.damaged = true;
            let before = kept.end();
            let left = kept.pieces.partition_point(|piece| piece.end() <= offset);
            kept.pieces.truncate(left);
            self.dirty -= before - kept.end();
        }
    }

    /// The position of the first record that is still needed. `None` where none is.
    #[must_use]
    pub fn oldest(&self) -> Option<u64> {
        self.segments.values().filter_map(Kept::oldest).min()
    }

    /// Segments for which a record before `position` is needed.
    #[must_use]
    pub fn needing(&self, position: u64) -> Vec<SegmentId> {
        let needs = |kept: &Kept| kept.oldest().is_some_and(|oldest| oldest < position);
        self.segments.iter().filter(|(_, kept)| needs(kept)).map(|(segment, _)| *segment).collect()
    }

    /// Bytes of a segment are appended anew, with the record that is returned, so that the one that has them now is needed no more. `None` where the segment
    /// has no bytes at this offset from that record any more.
    pub fn again(&mut self, segment: SegmentId, piece: &Piece, bytes: Bytes) -> Option<Record> {
        let kept = self.segments.get(&segment)?;
        kept.piece(piece.offset).filter(|known| *known == piece)?;
        let epoch = kept.epoch;
        let record =
            Record::Append(Append { segment, epoch, offset: piece.offset, check: piece.check, bytes });
        let position = self.write(&record);
        let kept = self.segments.get_mut(&segment)?;
        let at = kept.pieces.binary_search_by_key(&piece.offset, |known| known.offset).ok()?;
        kept.pieces[at].position = position;
        kept.upto = self.end;
        Some(record)
    }

    /// What is known of a segment beside its bytes is said anew, where it is said before `position`.
    pub fn say_again(&mut self, segment: SegmentId, position: u64) -> Option<Record> {
        let kept = self.segments.get(&segment)?;
        kept.said.filter(|said| *said < position)?;
        let epoch = kept.epoch;
        let record = match kept.sealed {
            Some((len, check)) => Record::Seal { segment, epoch, len, check },
            None => Record::Fence { segment, epoch },
        };
        let said = self.write(&record);
        let kept = self.segments.get_mut(&segment)?;
        (kept.said, kept.upto) = (Some(said), self.end);
        Some(record)
    }

    /// What it has: to be told to the owner.
    #[must_use]
    pub fn offers(&self) -> Vec<Offer> {
        let offer = |(segment, kept): (&SegmentId, &Kept)| Offer {
            segment: *segment,
            epoch: kept.epoch,
            end: kept.end(),
            check: kept.check(),
            sealed: kept.sealed,
            damaged: kept.damaged,
        };
        self.segments.iter().map(offer).collect()
    }

    fn write(&mut self, record: &Record) -> u64 {
        let position = self.end;
        self.end += record.size();
        position
    }
}

fn refuse(kept: &Kept, epoch: Epoch) -> Result<(), LogError> {
    if kept.epoch > epoch {
        return Err(LogError::Fenced(kept.epoch));
    }
    if kept.damaged { Err(LogError::Damaged) } else { Ok(()) }
}
