//! Bytes of the peer.

use crate::{
    time::Time,
    wire::{Code, FrameType, Header, Preface, REFUSAL_LEN_MAX, Refusal, UNCHECKED},
};

use super::{
    CallError, Connection, Event, PINGS_MAX, ProtocolError, Reply, Request, Role, State, input::Frame,
    taken::Taken,
};

impl Connection {
    /// Where the next bytes of the peer are to be read into; never empty.
    pub fn space(&mut self) -> &mut [u8] {
        self.input.space()
    }

    /// `len` bytes were read into what [`Connection::space`] gave.
    ///
    /// # Errors
    /// The rule that the peer broke: the connection is to be closed.
    pub fn received(&mut self, len: usize, now: Time) -> Result<(), ProtocolError> {
        if let State::Dead(error) = &self.state {
            return Err(error.clone());
        }
        self.input.filled(len, now);
        self.heard = now;
        self.received += len as u64;
        self.pinged = None;
        self.parse(now).map_err(|error| self.die(error, now))
    }

    fn parse(&mut self, now: Time) -> Result<(), ProtocolError> {
        if matches!(self.state, State::Preface) && !self.preface(now)? {
            return Ok(());
        }
        while let Some(frame) = self.next_frame(now)? {
            if frame.kept {
                self.take(frame, now)?;
            }
        }
        self.send_waiting(now);
        Ok(())
    }

    /// Takes the peer's preface. Says whether it was there.
    fn preface(&mut self, now: Time) -> Result<bool, ProtocolError> {
        let Some((preface, len)) = Preface::decode(self.input.waiting())? else { return Ok(false) };
        self.input.consume(len, now);
        let agreed = match self.role {
            Role::Initiator => self.terms.accept(preface)?,
            Role::Acceptor => {
                let (answer, agreed) = self.terms.answer(preface)?;
                self.queue.copy(&answer.encode(), now);
                agreed
            }
        };
        self.terms.checksums &= agreed.features & UNCHECKED == 0;
        self.events.push_back(Event::Ready(agreed.clone()));
        self.state = State::Ready(agreed);
        Ok(true)
    }

    fn next_frame(&mut self, now: Time) -> Result<Option<Frame>, ProtocolError> {
        let Connection { input, taken, calls, terms, leaving, .. } = self;
        let last = leaving.as_ref().map(|leaving| leaving.last);
        input.frame(now, |header| {
            let id = header.id;
            let max = match header.frame {
                FrameType::Request if last.is_some_and(|last| id > last) => {
                    return refused(header, taken).map(|()| false);
                }
                FrameType::Request => return taken.take(header, &terms.limits, now).map(|()| true),
                FrameType::Reply => match calls.reply_max(id) {
                    Some(max) => ("reply", max),
                    None => return Err(ProtocolError::UnknownAnswer { id }),
                },
                FrameType::Error if calls.reply_max(id).is_none() => {
                    return Err(ProtocolError::UnknownAnswer { id });
                }
                FrameType::Error => ("error", REFUSAL_LEN_MAX as u32),
                FrameType::GoAway => ("go-away", REFUSAL_LEN_MAX as u32),
                FrameType::Cancel | FrameType::Ping | FrameType::Pong => ("frame without a body", 0),
                FrameType::Unknown(_) => ("frame of a later release", terms.limits.bytes),
            };
            let ((what, max), found) = (max, header.payload());
            if found > u64::from(max) {
                return Err(ProtocolError::Oversized { what, found, max: u64::from(max) });
            }
            Ok(!matches!(header.frame, FrameType::Unknown(_)))
        })
    }

    fn take(&mut self, frame: Frame, now: Time) -> Result<(), ProtocolError> {
        self.check(&frame)?;
        let Frame { header, body, bulk, .. } = frame;
        let id = header.id;
        match header.frame {
            FrameType::Request => {
                let expires = self.taken.expires(id).unwrap_or(now);
                let (kind, reply_max) = (header.kind, header.reply_max);
                let request = Request { id, kind, body, bulk, expires, reply_max };
                self.events.push_back(Event::Request(request));
            }
            FrameType::Reply => self.answered(id, Ok(Reply { body, bulk })),
            FrameType::Error => {
                let refusal = Refusal::decode(Code(header.kind), &body)
                    .ok_or(ProtocolError::Malformed { what: "an error" })?;
                // The peer's clock may be a little ahead of ours: that is no other end than our own would be.
                let late = refusal.code == Code::DEADLINE;
                let error =
                    if late { CallError::Deadline { sent: true } } else { CallError::Refused(refusal) };
                self.answered(id, Err(error));
            }
            FrameType::Cancel if id > self.taken.last() => {
                return Err(ProtocolError::UnknownCancel { id });
            }
            FrameType::Cancel => {
                if self.taken.expires(id).is_some() {
                    self.events.push_back(Event::Over { id, code: Code::CANCELLED });
                }
            }
            FrameType::Ping => self.pong(id, now)?,
            FrameType::Pong if id == 0 || id > self.pings => {
                return Err(ProtocolError::UnknownPong { id });
            }
            FrameType::GoAway => self.left(Code(header.kind), id, &body)?,
            FrameType::Pong | FrameType::Unknown(_) => {}
        }
        Ok(())
    }

    fn check(&self, Frame { header, body, bulk, .. }: &Frame) -> Result<(), ProtocolError> {
        let id = header.id;
        match header.checksum {
            None if self.terms.checksums => Err(ProtocolError::NoChecksum { id }),
            None => Ok(()),
            Some(expected) => {
                let found = crc32c::crc32c_append(crc32c::crc32c(body), bulk);
                let right = found == expected;
                right.then_some(()).ok_or(ProtocolError::PayloadChecksum { id, expected, found })
            }
        }
    }

    fn answered(&mut self, id: u64, result: Result<Reply, CallError>) {
        if self.calls.answered(id) {
            self.events.push_back(Event::Answer { id, result });
        }
    }

    fn pong(&mut self, id: u64, now: Time) -> Result<(), ProtocolError> {
        if self.pongs >= PINGS_MAX {
            return Err(ProtocolError::TooManyPings { max: PINGS_MAX });
        }
        self.pongs += 1;
        self.bare(Header::bare(FrameType::Pong, id), now);
        Ok(())
    }

    /// The peer takes no requests above `last`.
    fn left(&mut self, code: Code, last: u64, body: &[u8]) -> Result<(), ProtocolError> {
        let refusal = Refusal::decode(code, body).ok_or(ProtocolError::Malformed { what: "a go-away" })?;
        if code == Code::PROTOCOL {
            return Err(ProtocolError::Ended(refusal));
        }
        for id in self.calls.take_above(last) {
            let result = Err(CallError::Refused(refusal.clone()));
            self.events.push_back(Event::Answer { id, result });
        }
        self.peer_leaves = Some(refusal.clone());
        self.events.push_back(Event::GoingAway(refusal));
        Ok(())
    }
}

/// A request that comes after we said that we go away: its sender had not heard that yet. It is passed over.
fn refused(header: &Header, taken: &mut Taken) -> Result<(), ProtocolError> {
    taken.count(header.id)
}
