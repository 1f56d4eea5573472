//! Requests of ours: those that wait for credit, those in flight, and those that nobody waits for any more.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rustc_hash::FxHashMap;

use crate::time::Time;

use super::{CallError, Limits};

/// A request to be made.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The kind of message.
    pub kind: u16,
    /// The message.
    pub body: Bytes,
    /// Data that goes with it.
    pub bulk: Bytes,
    /// Milliseconds until its answer is of no use; 1 to [`crate::wire::DEADLINE_MAX_MS`], others are brought into that range.
    pub deadline_ms: u32,
    /// The largest reply that is taken, body and bulk together, in bytes.
    pub reply_max: u32,
}

impl Outgoing {
    /// Bytes of credit that it takes.
    fn cost(&self) -> u64 {
        (self.body.len() + self.bulk.len()) as u64 + u64::from(self.reply_max)
    }

    fn check(&self, limits: &Limits) -> Result<(), CallError> {
        for (what, found, max) in [
            ("body", self.body.len() as u64, limits.body),
            ("bulk", self.bulk.len() as u64, limits.bulk),
            ("request with its reply", self.cost(), limits.bytes),
        ] {
            if found > u64::from(max) {
                return Err(CallError::TooLarge { what, found, max: u64::from(max) });
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Waiting {
    request: Outgoing,
    expires: Time,
}

#[derive(Debug)]
struct Sent {
    cost: u64,
    reply_max: u32,
    /// Where its first byte is in what was ever queued.
    at: u64,
    /// The deadline; of an abandoned one, when the peer is given up.
    expires: Time,
    abandoned: bool,
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
    sent: FxHashMap<u64, Sent>,
    bytes: u64,
    times: BTreeSet<(Time, u64)>,
}

/// What became of a request whose time came.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Late {
    /// It was never sent.
    Unsent(u64),
    /// It is to be cancelled.
    Sent(u64),
    /// It was cancelled long ago, and the peer does not answer.
    Unanswered(u64),
}

impl Calls {
    pub(super) fn add(&mut self, request: Outgoing, expires: Time) -> u64 {
        self.last += 1;
        self.times.insert((expires, self.last));
        self.waiting.insert(self.last, Waiting { request, expires });
        self.last
    }

    /// The next request for which there is credit, or one that cannot be sent at all.
    pub(super) fn next(&mut self, limits: &Limits) -> Option<(u64, Time, Result<Outgoing, CallError>)> {
        let first = self.waiting.first_entry()?;
        let request = &first.get().request;
        let possible = request.check(limits);
        let room = self.sent.len() < limits.requests as usize
            && self.bytes + request.cost() <= u64::from(limits.bytes);
        if possible.is_ok() && !room {
            return None;
        }
        let (id, Waiting { request, expires }) = first.remove_entry();
        if possible.is_err() {
            self.times.remove(&(expires, id));
        }
        Some((id, expires, possible.map(|()| request)))
    }

    /// The request that `next` gave is queued; its first byte is at `at`.
    pub(super) fn sent(&mut self, id: u64, request: &Outgoing, expires: Time, at: u64) {
        self.bytes += request.cost();
        let sent = Sent { cost: request.cost(), reply_max: request.reply_max, at, expires, abandoned: false };
        self.sent.insert(id, sent);
    }

    /// The largest reply that the request in flight takes.
    pub(super) fn reply_max(&self, id: u64) -> Option<u32> {
        self.sent.get(&id).map(|sent| sent.reply_max)
    }

    /// The request was answered. Says whether anybody waits for that.
    pub(super) fn answered(&mut self, id: u64) -> bool {
        let Some(sent) = self.sent.remove(&id) else { return false };
        self.bytes -= sent.cost;
        self.times.remove(&(sent.expires, id));
        !sent.abandoned
    }

    /// Nobody waits for the request any more. Says whether the peer is to be told; it has until `patience` to answer.
    pub(super) fn abandon(&mut self, id: u64, patience: Time) -> bool {
        if let Some(waiting) = self.waiting.remove(&id) {
            self.times.remove(&(waiting.expires, id));
            return false;
        }
        match self.sent.get_mut(&id) {
            Some(sent) if !sent.abandoned => {
                self.times.remove(&(sent.expires, id));
                (sent.abandoned, sent.expires) = (true, patience);
                self.times.insert((patience, id));
                true
            }
            _ => false,
        }
    }

    /// A request whose time has come. `Sent` and `Unsent` are to be abandoned.
    pub(super) fn late(&self, now: Time) -> Option<Late> {
        let (time, id) = *self.times.first()?;
        if time > now {
            return None;
        }
        Some(match self.sent.get(&id) {
            None => Late::Unsent(id),
            Some(sent) if sent.abandoned => Late::Unanswered(id),
            Some(_) => Late::Sent(id),
        })
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.times.first().map(|(time, _)| *time)
    }

    pub(super) fn none_in_flight(&self) -> bool {
        self.sent.is_empty()
    }

    /// Takes out everything that somebody waits for, and says of each whether any byte of it went out, `gone` being how many ever did.
    pub(super) fn take_all(&mut self, gone: u64) -> Vec<(u64, bool)> {
        let mut all: Vec<_> = self.waiting.keys().map(|id| (*id, false)).collect();
        let sent = self.sent.iter().filter(|(_, sent)| !sent.abandoned);
        all.extend(sent.map(|(id, sent)| (*id, sent.at < gone)));
        all.sort_unstable();
        let last = self.last;
        *self = Calls { last, ..Calls::default() };
        all
    }

    /// Takes out what the peer will not do: requests in flight above `last`, and those that wait. The ids of those that somebody waits for.
    pub(super) fn take_above(&mut self, last: u64) -> Vec<u64> {
        let above: Vec<_> = self.sent.keys().copied().filter(|id| *id > last).collect();
        let mut taken: Vec<_> = above.into_iter().filter(|id| self.answered(*id)).collect();
        while let Some((id, waiting)) = self.waiting.pop_first() {
            self.times.remove(&(waiting.expires, id));
            taken.push(id);
        }
        taken.sort_unstable();
        taken
    }
}
