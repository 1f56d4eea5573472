//! What a member has in its log, and what it takes in and refuses.
//!
//! Guarantees: of a segment it has the bytes from 0 to an end without a gap, each as its checksum said; after a fence nothing of a lower epoch is taken;
//! a sealed segment never changes; nothing is given up but by a verdict of the owner. Relies on its driver: records are written in the order in
//! which they were handed out, [`MemberLog::synced`] is told only what a sync covered, and no answer is given before the position in its
//! [`Step`] is synced. Whether the member acts at all is [`Membership`](crate::Membership)'s to say, before anything is appended.

mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use forebay_types::{Epoch, SegmentId};

use crate::Verdict;
pub use record::{Append, Record};

/// Bytes of a segment, as they were appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where they are in the segment.
    pub offset: u64,
    /// How many.
    pub len: u64,
    /// CRC32C of them.
    pub check: u32,
    /// CRC32C of the segment up to their end.
    pub running: u32,
    /// The position of their record in the log.
    pub position: u64,
}

/// A segment in the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// The highest epoch that was heard of.
    pub epoch: Epoch,
    /// What there is, without gaps.
    pub pieces: Vec<Piece>,
    /// Length and CRC32C, once it is sealed.
    pub sealed: Option<(u64, u32)>,
    /// Bytes of it in the log do not check: this copy counts for nothing.
    pub damaged: bool,
    /// The log has to be synced up to here before anything is said of it.
    upto: u64,
}

impl Kept {
    /// Where it ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.offset + piece.len)
    }

    /// CRC32C of all of it.
    #[must_use]
    pub fn check(&self) -> u32 {
        self.pieces.last().map_or(0, |piece| piece.running)
    }

    /// Where a prefix of this length ends among the pieces, and its CRC32C.
    fn cut(&self, len: u64) -> Option<(usize, u32)> {
        if len == 0 {
            return Some((0, 0));
        }
        let at = self.pieces.iter().position(|piece| piece.offset + piece.len == len)?;
        Some((at + 1, self.pieces[at].running))
    }
}

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

/// A member's log: which segments it has, and where.
#[derive(Clone, Debug, Default)]
pub struct MemberLog {
    segments: BTreeMap<SegmentId, Kept>,
    /// Where the next record goes.
    end: u64,
    /// Up to where all is on stable storage.
    synced: u64,
}

impl MemberLog {
    /// The log of a new disk.
    #[must_use]
    pub fn new() -> MemberLog {
        MemberLog::default()
    }

    /// Takes in a record that was read at `position`, when a process begins. Records come in their order; one that makes no sense damages its segment.
    pub fn replay(&mut self, position: u64, record: &Record) {
        self.end = position + record.size();
        self.synced = self.end;
        match record {
            Record::Append(append) => {
                let kept = self.segments.entry(append.segment).or_default();
                kept.epoch = kept.epoch.max(append.epoch);
                if append.offset == kept.end() && kept.sealed.is_none() {
                    push(kept, append, position);
                } else {
                    kept.damaged = true;
                }
            }
            Record::Fence { segment, epoch } => {
                let kept = self.segments.entry(*segment).or_default();
                kept.epoch = kept.epoch.max(*epoch);
            }
            Record::Seal { segment, epoch, len, check } => {
                let kept = self.segments.entry(*segment).or_default();
                kept.epoch = kept.epoch.max(*epoch);
                seal(kept, *len, *check);
            }
            Record::Drop { segment } => drop(self.segments.remove(segment)),
        }
    }

    /// Says that bytes of a segment in the log do not check.
    pub fn damaged(&mut self, segment: SegmentId) {
        self.segments.entry(segment).or_default().damaged = true;
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
        self.segments.values().map(Kept::end).sum()
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
            let same = |piece: &&Piece| {
                (piece.offset, piece.len) == (append.offset, append.bytes.len() as u64)
                    && piece.check == append.check
            };
            kept.pieces.iter().find(same).ok_or(LogError::Different)?;
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
        push(kept, append, position);
        kept.upto = self.end;
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
        if let Some(record) = &record {
            self.write(record);
        }
        let kept = self.segments.entry(segment).or_default();
        if record.is_some() {
            (kept.epoch, kept.upto) = (epoch, self.end);
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
        self.write(&record);
        let kept = self.segments.entry(segment).or_default();
        (kept.epoch, kept.upto) = (epoch, self.end);
        seal(kept, len, check);
        Ok(Step { record: Some(record), upto: self.end, end: len })
    }

    /// Takes in what the owner says of a copy that was offered. Returns what is to be written: the copy is given up, or cut.
    pub fn judged(&mut self, segment: SegmentId, verdict: Verdict) -> Option<Record> {
        match verdict {
            Verdict::Wanted => None,
            Verdict::SealedAt { epoch, len, check } => {
                self.seal(segment, epoch, len, check).ok().and_then(|step| step.record)
            }
            // Said before this copy was asked for.
            Verdict::Unwanted(epoch) if self.segments.get(&segment).is_none_or(|kept| kept.epoch > epoch) => {
                None
            }
            Verdict::Clean | Verdict::Gone | Verdict::Unwanted(_) => self.forget(segment),
        }
    }

    fn forget(&mut self, segment: SegmentId) -> Option<Record> {
        self.segments.remove(&segment)?;
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
        let inside = |piece: &&Piece| piece.offset < to && piece.offset + piece.len > from;
        kept.pieces.iter().filter(inside).copied().collect()
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

fn push(kept: &mut Kept, append: &Append, position: u64) {
    let running = crc32c::crc32c_append(kept.check(), &append.bytes);
    let len = append.bytes.len() as u64;
    kept.pieces.push(Piece { offset: append.offset, len, check: append.check, running, position });
}

fn seal(kept: &mut Kept, len: u64, check: u32) {
    match kept.cut(len) {
        Some((pieces, found)) if found == check => kept.pieces.truncate(pieces),
        _ => kept.damaged = true,
    }
    kept.sealed = Some((len, check));
}
