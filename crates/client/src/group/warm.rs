//! Having bytes cached by members ahead of those who read them. None of them travel to this client.

use bytes::Bytes;
use forebay_format::row::ObjectRef;
use forebay_group::GroupId;
use forebay_protocol::{
    Kind, Message, Refusal,
    group::{Warm, Warmed},
};
use forebay_reading::{NotWarm, Stored};
use forebay_rpc::{
    connection::{CallError, Outgoing},
    wire::Code,
};

use super::{
    Reader, VolumeGroup,
    link::MemberLink,
    route::{self, CHUNK},
};
use crate::data::Within;

/// How long a member may take to fetch from the store what it is asked to have, others that it was asked for before included.
const WARM_MS: u32 = 60_000;
/// Bytes of its answer.
const ANSWER_MAX: u32 = 4096;

/// What a member says to being asked to have something.
enum Asked {
    Done(Warmed),
    /// The store has no such object.
    NotThere,
    /// The store does not give it.
    StoreFails(String),
    /// It does not take it. What the member does, in words.
    Nothing(String),
}

impl VolumeGroup {
    /// Has a range of an object, at most 8 MiB, cached by the members that are asked for it by those who have no proxy on their machine: each piece by its first.
    ///
    /// # Errors
    /// [`NotWarm`]: no member takes it, or the store does not give it.
    pub(crate) fn warm(&self, stored: &Stored, within: Within) -> Result<Warmed, NotWarm> {
        let mut all = Warmed { cached: 0, fetched: 0, lost: 0 };
        let mut start = stored.range.start;
        while start < stored.range.end {
            let end = self.part(stored.object, start, stored.range.end);
            let warmed = self.warm_part(stored, (start, end), within)?;
            all.cached += warmed.cached;
            all.fetched += warmed.fetched;
            all.lost += warmed.lost;
            start = end;
        }
        Ok(all)
    }

    /// The end of the range that is asked of one member at a time, from `start` on.
    pub(super) fn part(&self, object: ObjectRef, start: u64, end: u64) -> u64 {
        let piece = |at: u64| self.shared.pieces.of(object, at).2;
        let first = piece(start);
        let mut at = start - start % CHUNK + CHUNK;
        while at < end && piece(at) == first {
            at += CHUNK;
        }
        at.min(end)
    }

    fn warm_part(
        &self,
        stored: &Stored,
        (start, end): (u64, u64),
        within: Within,
    ) -> Result<Warmed, NotWarm> {
        let shared = &self.shared;
        let Some(known) = self.gone_by(within) else {
            return Err(NotWarm::Failed(self.goes_by_none()));
        };
        let (segment, at, piece) = shared.pieces.of(stored.object, start);
        let Ok(len) = u32::try_from(end - start) else {
            return Err(NotWarm::Failed(format!("{} bytes of one piece", end - start)));
        };
        let warm = Warm { object: stored.object, offset: start, len, segment, at };
        let mut why = "no member of it is active".to_owned();
        // Whoever has no proxy of its own asks by the score alone.
        for id in route::ranked(&known.view, &[], piece).into_iter().take(2) {
            let Some(link) = known.links.get(&id) else { continue };
            match link.warm(&warm, &shared.reader, known.id) {
                Asked::Done(warmed) => return Ok(warmed),
                Asked::NotThere => return Err(NotWarm::Moved(stored.segment)),
                Asked::StoreFails(text) => return Err(NotWarm::Failed(text)),
                Asked::Nothing(text) => {
                    why = format!("the proxy at {} {text}", link.address);
                    shared.suspects(known.id, id);
                }
            }
        }
        Err(NotWarm::Failed(format!("the group '{}' does not take it: {why}", known.name)))
    }
}

impl MemberLink {
    fn warm(&self, warm: &Warm, reader: &Reader, group: GroupId) -> Asked {
        // A request would wait for one that is dead as long as for one that works.
        if !self.is_up() {
            let why = self.down().unwrap_or_default();
            return Asked::Nothing(format!("cannot be reached: {why}"));
        }
        match self.ask_to_have(warm) {
            Err(CallError::Refused(refusal)) if refusal.code == Code::DENIED => {
                if !self.greet(reader, group) {
                    return Asked::Nothing("does not let this client in".to_owned());
                }
                self.said(self.ask_to_have(warm))
            }
            asked => self.said(asked),
        }
    }

    fn ask_to_have(&self, warm: &Warm) -> Result<Bytes, CallError> {
        let (kind, body, bulk) = (Kind::Warm as u16, warm.encode().into(), Bytes::new());
        let request = Outgoing { kind, body, bulk, deadline_ms: WARM_MS, reply_max: ANSWER_MAX };
        self.request(request).map(|reply| reply.body)
    }

    fn said(&self, asked: Result<Bytes, CallError>) -> Asked {
        let refusal = match asked {
            Ok(body) => {
                return match Warmed::decode(&body) {
                    Ok(warmed) => Asked::Done(warmed),
                    Err(error) => Asked::Nothing(format!("answers what cannot be read: {error}")),
                };
            }
            Err(CallError::Refused(refusal)) => refusal,
            Err(error) => return Asked::Nothing(format!("does not answer: {error}")),
        };
        match (refusal.code, Refusal::decode(&refusal.detail)) {
            (Code(Kind::REFUSED), Ok(Refusal::Invalid(_))) => Asked::NotThere,
            (Code(Kind::REFUSED), Ok(Refusal::Unavailable(text))) => Asked::StoreFails(text),
            (Code::UNSUPPORTED, _) => Asked::Nothing("is of a release that does not know this".to_owned()),
            _ => Asked::Nothing(format!("refuses: {refusal}")),
        }
    }
}
