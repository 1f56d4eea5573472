//! Two connections whose bytes a test carries.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::io::IoSlice;

use forebay_rpc::{
    Time,
    connection::{CallError, Connection, Event, Outgoing, ProtocolError, Reply, Request, Role, Terms},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    Left,
    Right,
}

/// The left one connected to the right one.
pub struct Pair {
    pub left: Connection,
    pub right: Connection,
    pub now: Time,
    kept: Vec<(Side, Event)>,
}

/// A small request.
pub fn small(kind: u16, body: &str) -> Outgoing {
    let body = body.to_owned().into();
    Outgoing { kind, body, bulk: bytes::Bytes::new(), deadline_ms: 60_000, reply_max: 64 << 10 }
}

/// Lets the left one ask, and the right one see it.
pub fn ask(pair: &mut Pair) -> u64 {
    let id = pair.left.call(small(1, "question"), pair.now);
    assert_eq!(pair.request(Side::Right).id, id);
    id
}

impl Pair {
    pub fn fresh(left: Terms, right: Terms) -> Pair {
        let now = Time(1_000);
        Pair {
            left: Connection::new(Role::Initiator, left, now),
            right: Connection::new(Role::Acceptor, right, now),
            now,
            kept: Vec::new(),
        }
    }

    pub fn with(left: Terms, right: Terms) -> Pair {
        let mut pair = Pair::fresh(left, right);
        pair.carry();
        for side in [Side::Left, Side::Right] {
            assert!(matches!(pair.side(side).next_event(), Some(Event::Ready(_))));
        }
        pair
    }

    pub fn ready() -> Pair {
        Pair::with(Terms::default(), Terms::default())
    }

    pub fn side(&mut self, side: Side) -> &mut Connection {
        match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        }
    }

    /// Takes up to `max` bytes that a side has to write.
    pub fn taken(&mut self, side: Side, max: usize) -> Vec<u8> {
        let from = self.side(side);
        let mut taken = Vec::new();
        while taken.len() < max && from.unwritten() > 0 {
            let mut slices = [IoSlice::new(&[]); 3];
            let count = from.slices(&mut slices);
            let before = taken.len();
            for slice in &slices[..count] {
                let len = slice.len().min(max - taken.len());
                taken.extend_from_slice(&slice[..len]);
            }
            let len = taken.len() - before;
            from.written(len);
        }
        taken
    }

    /// Lets a side receive these bytes.
    pub fn feed(&mut self, side: Side, mut bytes: &[u8]) -> Result<(), ProtocolError> {
        let now = self.now;
        let to = self.side(side);
        loop {
            let space = to.space();
            assert!(!space.is_empty(), "there is always room");
            let len = space.len().min(bytes.len());
            space[..len].copy_from_slice(&bytes[..len]);
            to.received(len, now)?;
            bytes = &bytes[len..];
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Carries everything both ways, until nothing is left, `step` bytes at a time.
    pub fn carry_by(&mut self, step: usize) {
        self.try_carry_by(step).unwrap();
    }

    pub fn carry(&mut self) {
        self.carry_by(usize::MAX);
    }

    pub fn try_carry(&mut self) -> Result<(), ProtocolError> {
        self.try_carry_by(usize::MAX)
    }

    fn try_carry_by(&mut self, step: usize) -> Result<(), ProtocolError> {
        while self.left.unwritten() + self.right.unwritten() > 0 {
            let bytes = self.taken(Side::Left, step);
            if !bytes.is_empty() {
                self.feed(Side::Right, &bytes)?;
            }
            let bytes = self.taken(Side::Right, step);
            if !bytes.is_empty() {
                self.feed(Side::Left, &bytes)?;
            }
        }
        Ok(())
    }

    /// Lets time pass on both sides, and carries what that makes them say.
    pub fn pass(&mut self, ms: u32) {
        self.now = self.now.after(ms);
        self.left.tick(self.now).unwrap();
        self.right.tick(self.now).unwrap();
        self.carry();
    }

    /// The next event of a side that `wanted` takes; others are kept for later.
    fn wait<T>(&mut self, side: Side, wanted: impl Fn(&Event) -> Option<T>) -> T {
        self.carry();
        if let Some(at) = self.kept.iter().position(|(of, event)| *of == side && wanted(event).is_some()) {
            return wanted(&self.kept.remove(at).1).unwrap();
        }
        loop {
            let event = self.side(side).next_event().unwrap();
            match wanted(&event) {
                Some(found) => return found,
                None => self.kept.push((side, event)),
            }
        }
    }

    pub fn request(&mut self, side: Side) -> Request {
        self.wait(side, |event| match event {
            Event::Request(request) => Some(request.clone()),
            _ => None,
        })
    }

    pub fn answer(&mut self, side: Side, wanted: u64) -> Result<Reply, CallError> {
        for _ in 0..2 {
            if let Some(result) = self.kept_answer(side, wanted) {
                return result;
            }
            while let Some(event) = self.side(side).next_event() {
                match event {
                    Event::Answer { id, result } if id == wanted => return result,
                    other => self.kept.push((side, other)),
                }
            }
            self.carry();
        }
        panic!("request {wanted} has no answer");
    }

    fn kept_answer(&mut self, side: Side, wanted: u64) -> Option<Result<Reply, CallError>> {
        let at = self.kept.iter().position(
            |(of, event)| matches!(event, Event::Answer { id, .. } if *of == side && *id == wanted),
        )?;
        match self.kept.remove(at).1 {
            Event::Answer { result, .. } => Some(result),
            _ => None,
        }
    }
}
