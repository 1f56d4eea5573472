//! What servers and clients say to each other.

use forebay_cluster::{Grant, Lease, SessionId, SlotNumber, Stamp};
use forebay_types::{Epoch, Ino};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Node {
    Server(usize),
    Client(usize),
}

/// An operation on registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Read(Ino),
    Write(Ino, u64),
    /// Gives the second the value of the first, which becomes 0; answers with the value.
    Move(Ino, Ino),
}

impl Op {
    pub fn changes(self) -> bool {
        !matches!(self, Op::Read(_))
    }

    pub fn inos(self) -> Vec<Ino> {
        match self {
            Op::Read(ino) | Op::Write(ino, _) => vec![ino],
            Op::Move(from, to) => vec![from, to],
        }
    }
}

#[derive(Clone, Debug)]
pub enum Message {
    /// `sent` is the client's time, returned with the answer.
    Begin {
        session: SessionId,
        sent: u64,
    },
    Begun {
        session: SessionId,
        epoch: Epoch,
        sent: u64,
    },
    Renew {
        session: SessionId,
        sent: u64,
    },
    Renewed {
        session: SessionId,
        sent: u64,
    },
    Request {
        session: SessionId,
        tag: u64,
        sent: u64,
        slot: Option<(SlotNumber, u64)>,
        op: Op,
        wish: Option<Lease>,
    },
    Answer {
        session: SessionId,
        tag: u64,
        sent: u64,
        value: u64,
        grants: Vec<Grant>,
    },
    Recall {
        session: SessionId,
        ino: Ino,
        keep: Option<Lease>,
        stamp: Stamp,
    },
    Return {
        session: SessionId,
        ino: Ino,
        stamp: Stamp,
        kept: Option<Lease>,
    },
    MustReclaim {
        session: SessionId,
        epoch: Epoch,
    },
    Reclaim {
        session: SessionId,
        leases: Vec<(Ino, Lease)>,
        sent: u64,
    },
    Reclaimed {
        session: SessionId,
        epoch: Epoch,
        given: Vec<Grant>,
        sent: u64,
    },
    NotOwner {
        owner: Option<usize>,
    },
    Ended {
        session: SessionId,
    },
}
