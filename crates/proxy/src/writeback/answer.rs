//! Requests about segments.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use forebay_group::{Append, NotActing, Step, Verdict};
use forebay_protocol::group::{
    AppendPart, Appends, Copied, Copies, Fence, FenceAnswer, ReadBack, ReadBackAnswer, Seal, SegmentAnswer,
    SegmentRefusal, Taken,
};
use forebay_rpc::{
    connection::{Reply, Request},
    wire::{Code, Refusal as WireRefusal},
};

use super::{Bound, Refused, WriteBack, decode, malformed, reply};
use crate::log::{PutError, ReadError};

/// Parts of a message at most.
const PARTS_MAX: usize = 1024;
/// Bytes of a part, and of what is read back, at most.
const BYTES_MAX: u64 = forebay_format::member_log::BYTES_MAX as u64;
/// What has no room looks again after this, if nothing tells it earlier.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn refusal(error: &PutError) -> SegmentRefusal {
    match error {
        PutError::Refused(error) => (*error).into(),
        PutError::NotActing(NotActing::Draining) => SegmentRefusal::Draining,
        PutError::NotActing(NotActing::Out) | PutError::Failed(_) => SegmentRefusal::Out,
        PutError::Full | PutError::OverBudget | PutError::Behind => SegmentRefusal::Full,
    }
}

impl WriteBack {
    /// [`forebay_protocol::Kind::Append`]: all parts are taken in, then one sync is waited for.
    pub(super) async fn append(self: &Arc<Self>, bound: &Bound, request: &Request) -> Result<Reply, Refused> {
        bound.may_write()?;
        let Appends { parts } = decode(&request.body)?;
        let appends = split(&parts, &request.bulk)?;
        let mut taken = Vec::with_capacity(appends.len());
        for (append, part) in appends.iter().zip(&parts) {
            taken.push(self.take_in(bound, append, part.copies).await);
        }
        self.settled(taken).await
    }

    /// Takes one in; waits as long as there is no room for bytes of a segment that is open here.
    async fn take_in(&self, bound: &Bound, append: &Append, copies: Copies) -> Result<Step, PutError> {
        let mut durable = self.log.durable();
        let mut waited = false;
        loop {
            match self.log.append(bound.volume, append, &|opens| self.standing.may(opens)) {
                Err(PutError::OverBudget | PutError::Behind) => {
                    if !std::mem::replace(&mut waited, true) {
                        self.counts.waited.fetch_add(1, Relaxed);
                    }
                    // Whatever it tells, there may be room.
                    let _ = tokio::time::timeout(LOOK_EVERY, durable.changed()).await;
                }
                result => {
                    if result.is_ok() && bound.here {
                        self.written_here.note(bound.volume, append.segment, append.bytes.len(), copies);
                    }
                    return result;
                }
            }
        }
    }

    /// The answer once all that was taken in is on stable storage.
    async fn settled(&self, taken: Vec<Result<Step, PutError>>) -> Result<Reply, Refused> {
        let upto = taken.iter().flatten().map(|step| step.upto).max();
        let synced = match upto {
            Some(upto) => self.log.synced(upto).await.is_ok(),
            None => true,
        };
        let answer = |step: Result<Step, PutError>| match step {
            Ok(step) if synced => SegmentAnswer::Synced { end: step.end },
            Ok(_) => SegmentAnswer::Refused(SegmentRefusal::Out),
            Err(error) => SegmentAnswer::Refused(refusal(&error)),
        };
        let parts: Vec<SegmentAnswer> = taken.into_iter().map(answer).collect();
        let refused = parts.iter().filter(|part| matches!(part, SegmentAnswer::Refused(_))).count();
        self.counts.refused.fetch_add(refused as u64, Relaxed);
        let pace = self.log.budget().pace(self.log.status().dirty);
        let (_, view, draining) = self.standing.now();
        let pace_us = u64::try_from(pace.as_micros()).unwrap_or(u64::MAX);
        Ok(reply(&Taken { member: self.member, parts, pace_us, view, draining }, Bytes::new()))
    }

    /// [`forebay_protocol::Kind::Seal`]
    pub(super) async fn seal(self: &Arc<Self>, bound: &Bound, request: &Request) -> Result<Reply, Refused> {
        bound.may_write()?;
        let seal: Seal = decode(&request.body)?;
        let sealed = self.log.seal(bound.volume, seal.segment, seal.epoch, (seal.len, seal.check));
        self.settled(vec![sealed]).await
    }

    /// [`forebay_protocol::Kind::Fence`]
    pub(super) async fn fence(self: &Arc<Self>, bound: &Bound, request: &Request) -> Result<Reply, Refused> {
        bound.is_member()?;
        let Fence { segment, epoch } = decode(&request.body)?;
        let answer = match self.log.fence(bound.volume, segment, epoch) {
            Ok((step, fenced, sealed)) => match self.log.synced(step.upto).await {
                Ok(()) => {
                    self.counts.fenced.fetch_add(1, Relaxed);
                    let (end, check, damaged) = (fenced.end, fenced.check, fenced.damaged);
                    FenceAnswer::Fenced { end, check, sealed, damaged }
                }
                Err(_) => FenceAnswer::Refused(SegmentRefusal::Out),
            },
            Err(error) => FenceAnswer::Refused(refusal(&error)),
        };
        Ok(reply(&answer, Bytes::new()))
    }

    /// [`forebay_protocol::Kind::ReadBack`]
    pub(super) async fn read_back(
        self: &Arc<Self>,
        bound: &Bound,
        request: &Request,
    ) -> Result<Reply, Refused> {
        let ReadBack { segment, from, to } = decode(&request.body)?;
        let len = to.checked_sub(from).ok_or_else(|| malformed("a range that ends before it begins"))?;
        if len > BYTES_MAX || len + 64 > u64::from(request.reply_max) {
            return Err(WireRefusal::new(Code::TOO_LARGE, format!("{len} bytes are too many at once")).into());
        }
        loop {
            let (log, volume) = (Arc::clone(&self.log), bound.volume);
            let reading = tokio::task::spawn_blocking(move || log.read(volume, segment, from, to));
            let read = reading.await.map_err(|error| WireRefusal::new(Code::FAILED, error.to_string()))?;
            let why = match read {
                Ok((bytes, check)) => {
                    self.counts.read_back_bytes.fetch_add(len, Relaxed);
                    return Ok(reply(&ReadBackAnswer::Read { check }, bytes));
                }
                Err(ReadError::NotSynced { upto }) => match self.log.synced(upto).await {
                    Ok(()) => continue,
                    Err(_) => SegmentRefusal::Out,
                },
                Err(ReadError::EndsAt { end }) => SegmentRefusal::EndsAt(end),
                Err(ReadError::Damaged) => SegmentRefusal::Damaged,
            };
            return Ok(reply(&ReadBackAnswer::Refused(why), Bytes::new()));
        }
    }

    /// [`forebay_protocol::Kind::Copy`]: a sealed segment as a whole. What there is of it from an earlier epoch was not in the set that is being repaired, and goes.
    pub(super) async fn copy(self: &Arc<Self>, bound: &Bound, request: &Request) -> Result<Reply, Refused> {
        bound.is_member()?;
        let Copied { seal } = decode(&request.body)?;
        let bytes = request.bulk.clone();
        if bytes.len() as u64 != seal.len || seal.len > BYTES_MAX {
            return Err(malformed("a copy that is not as long as its segment"));
        }
        let (segment, epoch, check) = (seal.segment, seal.epoch, seal.check);
        if let Some(kept) = self.log.kept(bound.volume, segment)
            && kept.epoch < epoch
            && (kept.damaged || (kept.end(), kept.check()) != (seal.len, check))
        {
            let verdict = Verdict::Unwanted(kept.epoch);
            if let Err(error) = self.log.judged(bound.volume, segment, verdict) {
                return self.settled(vec![Err(error)]).await;
            }
        }
        let whole = self.log.kept(bound.volume, segment).is_some_and(|kept| kept.end() == seal.len);
        if !whole && !bytes.is_empty() {
            let append = Append { segment, epoch, offset: 0, bytes, check };
            if let Err(error) = self.take_in(bound, &append, Copies::Several).await {
                return self.settled(vec![Err(error)]).await;
            }
        }
        let sealed = self.log.seal(bound.volume, segment, epoch, (seal.len, check));
        self.settled(vec![sealed]).await
    }
}

/// The bytes of each part.
fn split(parts: &[AppendPart], bulk: &Bytes) -> Result<Vec<Append>, Refused> {
    let total: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
    if parts.is_empty() || parts.len() > PARTS_MAX || total != bulk.len() as u64 {
        return Err(malformed("parts that are not as long as what came with them"));
    }
    let mut at = 0;
    let append = |part: &AppendPart| {
        let from = at;
        at += part.len as usize;
        let sound = part.len > 0
            && u64::from(part.len) <= BYTES_MAX
            && part.offset.checked_add(u64::from(part.len)).is_some();
        let (segment, epoch, offset, check) = (part.segment, part.epoch, part.offset, part.check);
        let bytes = bulk.slice(from..at);
        sound.then_some(Append { segment, epoch, offset, bytes, check })
    };
    let appends: Option<Vec<Append>> = parts.iter().map(append).collect();
    appends.ok_or_else(|| malformed("a part that is empty or too long"))
}
