//! Requests of the peer: those that were taken and are not answered.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::{
    time::Time,
    wire::{DEADLINE_MAX_MS, Header},
};

use super::{Limits, ProtocolError};

#[derive(Debug)]
struct Request {
    cost: u64,
    reply_max: u32,
    expires: Time,
}

#[derive(Debug, Default)]
pub(super) struct Taken {
    last: u64,
    requests: FxHashMap<u64, Request>,
    bytes: u64,
    /// Deadlines of those whose handler was not told yet.
    times: BTreeSet<(Time, u64)>,
}

impl Taken {
    /// Takes a request, whose payload is still to come, or says which rule it breaks.
    pub(super) fn take(&mut self, header: &Header, limits: &Limits, now: Time) -> Result<(), ProtocolError> {
        let &Header { id, deadline_ms, reply_max, .. } = header;
        self.count(id)?;
        for (what, found, max) in [("body", header.body, limits.body), ("bulk", header.bulk, limits.bulk)] {
            if found > max {
                return Err(ProtocolError::Oversized { what, found: found.into(), max: max.into() });
            }
        }
        if !(1..=DEADLINE_MAX_MS).contains(&deadline_ms) {
            return Err(ProtocolError::Deadline { id, deadline_ms });
        }
        if self.requests.len() >= limits.requests as usize {
            return Err(ProtocolError::TooManyRequests { max: limits.requests });
        }
        let cost = header.payload() + u64::from(reply_max);
        if self.bytes + cost > u64::from(limits.bytes) {
            return Err(ProtocolError::TooManyBytes { max: limits.bytes });
        }
        self.bytes += cost;
        let expires = now.after(deadline_ms);
        self.times.insert((expires, id));
        self.requests.insert(id, Request { cost, reply_max, expires });
        Ok(())
    }

    /// Notes a number that was used, or says that it was not the next.
    pub(super) fn count(&mut self, id: u64) -> Result<(), ProtocolError> {
        if id <= self.last {
            return Err(ProtocolError::Replayed { id, last: self.last });
        }
        self.last = id;
        Ok(())
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn expires(&self, id: u64) -> Option<Time> {
        self.requests.get(&id).map(|request| request.expires)
    }

    /// The request is answered. Its largest reply, if it was not answered before.
    pub(super) fn answer(&mut self, id: u64) -> Option<u32> {
        let request = self.requests.remove(&id)?;
        self.bytes -= request.cost;
        self.times.remove(&(request.expires, id));
        Some(request.reply_max)
    }

    /// A request whose handler is to be told that its time is over; each once.
    pub(super) fn late(&mut self, now: Time) -> Option<u64> {
        let (time, id) = *self.times.first()?;
        (time <= now).then(|| {
            self.times.pop_first();
            id
        })
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.times.first().map(|(time, _)| *time)
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }
}
