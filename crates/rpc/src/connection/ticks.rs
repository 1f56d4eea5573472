//! What happens because time passes.

use crate::{
    time::Time,
    wire::{Code, FrameType, Header},
};

use super::{CallError, Connection, Event, ProtocolError, State, calls::Late};

impl Connection {
    /// When [`Connection::tick`] is to be called at the latest. Calls, answers and bytes may bring it forward.
    #[must_use]
    pub fn next_time(&self) -> Time {
        let timeouts = &self.terms.timeouts;
        let own = [self.calls.next_time(), self.taken.next_time(), self.stalled(), self.stuck()];
        let own = own.into_iter().flatten();
        let own = own.chain(self.leaving_since().map(|since| since.after(timeouts.stall_ms)));
        let alive = match (&self.state, self.pinged) {
            (State::Preface, _) => self.started.after(timeouts.preface_ms),
            (_, None) => self.heard.after(timeouts.ping_ms),
            (_, Some(asked)) => asked.after(timeouts.patience()),
        };
        own.chain(self.wants_read().then_some(alive)).min().unwrap_or(alive)
    }

    /// Does what the time asks for.
    ///
    /// # Errors
    /// The peer let a time pass: the connection is to be closed.
    pub fn tick(&mut self, now: Time) -> Result<(), ProtocolError> {
        if let State::Dead(error) = &self.state {
            return Err(error.clone());
        }
        self.alive(now).map_err(|error| self.die(error, now))?;
        while let Some(id) = self.taken.late(now) {
            self.events.push_back(Event::Over { id, code: Code::DEADLINE });
        }
        while let Some(late) = self.calls.late(now) {
            let (id, sent) = match late {
                Late::Unanswered(id) => return Err(self.die(ProtocolError::Unanswered { id }, now)),
                Late::Unsent(id) => (id, false),
                Late::Sent(id) => (id, true),
            };
            self.cancel(id, now);
            self.events.push_back(Event::Answer { id, result: Err(CallError::Deadline { sent }) });
        }
        Ok(())
    }

    /// When a frame to be sent is too old.
    fn stalled(&self) -> Option<Time> {
        self.queue.since().map(|since| since.after(self.terms.timeouts.stall_ms))
    }

    /// When a frame that began to come is too old.
    fn stuck(&self) -> Option<Time> {
        let since = self.input.since().filter(|_| self.wants_read());
        since.map(|since| since.after(self.terms.timeouts.stall_ms))
    }

    fn leaving_since(&self) -> Option<Time> {
        self.leaving.as_ref().and_then(|leaving| leaving.answered)
    }

    fn alive(&mut self, now: Time) -> Result<(), ProtocolError> {
        let timeouts = self.terms.timeouts;
        let past = |since: Time, ms: u32| now >= since.after(ms);
        if matches!(self.state, State::Preface) {
            let late = past(self.started, timeouts.preface_ms);
            return if late { Err(ProtocolError::NoPreface(timeouts.preface_ms)) } else { Ok(()) };
        }
        if self.stalled().is_some_and(|time| now >= time) {
            return Err(ProtocolError::SlowReader(timeouts.stall_ms));
        }
        if self.leaving_since().is_some_and(|since| past(since, timeouts.stall_ms)) {
            return Err(ProtocolError::NotClosed(timeouts.stall_ms));
        }
        if !self.wants_read() {
            return Ok(());
        }
        if self.stuck().is_some_and(|time| now >= time) {
            return Err(ProtocolError::SlowWriter(timeouts.stall_ms));
        }
        // From the question on: a process that was stopped for long asks first, and has time to read what came meanwhile.
        if self.pinged.is_some_and(|asked| past(asked, timeouts.patience())) {
            return Err(ProtocolError::Silent(timeouts.silent_ms));
        }
        if past(self.heard, timeouts.ping_ms) && self.pinged.is_none() {
            self.pinged = Some(now);
            self.pings += 1;
            self.bare(Header::bare(FrameType::Ping, self.pings), now);
        }
        Ok(())
    }
}
