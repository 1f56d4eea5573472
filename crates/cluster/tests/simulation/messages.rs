//! What servers and clients say to each other.

use std::sync::Arc;

use forebay_cluster::{Grant, Lease, SessionId, SlotNumber, Stamp};
use forebay_types::{Epoch, Ino};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Node {
    Server(usize),
    Client(usize),
}

/// A name in a directory.
pub type Name = (Ino, u8);

/// The answer where an inode is not there (any more).
pub const GONE: u64 = u64::MAX;
/// The answer where a directory has names.
pub const NOT_EMPTY: u64 = u64::MAX - 1;
/// The answer where a directory would have to move or be replaced.
pub const IS_DIRECTORY: u64 = u64::MAX - 2;
/// The answer where the owner's limits forbid it.
pub const REFUSED: u64 = u64::MAX - 3;

/// An operation on registers (inodes with a value each), names, and what belongs to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Read(Ino),
    Write(Ino, u64),
    /// Gives the second the value of the first, which becomes 0; answers with the value.
    Move(Ino, Ino),
    /// What a name stands for, and its value (`looked`).
    Look(Name),
    /// What a name stands for: the kernel knows no more of it.
    Resolve(Name),
    /// All names of a directory (`listed`).
    List(Ino),
    /// Makes a file, or a directory, with this number; answers 1, or 0 where the name is there.
    Make(Name, Ino, bool),
    /// Answers with what the name stood for.
    Remove(Name),
    /// Answers with what was moved; what had the new name is gone.
    Rename(Name, Name),
    /// What was done to an inode is to be durable. Answers 1 where something of it may be lost. Only in the history.
    Fsync(Ino),
    /// A run of inode numbers; answers with its number.
    Runs,
    /// Makes an object's bytes a file's: inode, value, object. Without one (0) the bytes are in the file's row, and it may be a step of what was done ahead.
    Commit(Ino, u64, u64),
    /// The steps of the request.
    Ahead,
    /// Answers 1 where the lock is the session's now.
    Lock(Ino),
    Unlock(Ino),
}

/// What [`Op::Look`] answers.
pub fn looked(ino: Ino, value: u64) -> u64 {
    ino.0 << 32 | value
}

/// What [`Op::List`] answers.
pub fn listed(names: impl Iterator<Item = (u8, Ino)>) -> u64 {
    names.map(|(name, ino)| ino.0 << (20 * name)).sum()
}

/// The names in an answer to [`Op::List`].
pub fn unlisted(answer: u64) -> impl Iterator<Item = (u8, Ino)> {
    (0..3).map(move |name| (name, Ino(answer >> (20 * name) & 0xf_ffff))).filter(|(_, ino)| ino.0 != 0)
}

/// Whether the owner's limits forbid making this, or taking it in.
pub fn is_refused(op: Op) -> bool {
    match op {
        Op::Make(_, ino, _) => ino.0 % 19 == 5,
        Op::Commit(_, value, 0) => value % 31 == 8,
        _ => false,
    }
}

/// Whether a value is as small as fits a file's row.
pub fn fits_row(value: u64) -> bool {
    !value.is_multiple_of(4)
}

impl Op {
    pub fn changes(self) -> bool {
        !matches!(self, Op::Read(_) | Op::Look(_) | Op::Resolve(_) | Op::List(_) | Op::Fsync(_))
    }

    /// Whether it changes names.
    pub fn renames(self) -> bool {
        matches!(self, Op::Make(..) | Op::Remove(_) | Op::Rename(..))
    }

    /// The inodes in it: not those behind names.
    pub fn inos(self) -> Vec<Ino> {
        match self {
            Op::Read(ino) | Op::Write(ino, _) | Op::List(ino) | Op::Commit(ino, ..) | Op::Fsync(ino) => {
                vec![ino]
            }
            Op::Move(from, to) => vec![from, to],
            Op::Look(name) | Op::Resolve(name) | Op::Remove(name) => vec![name.0],
            Op::Make(name, ino, _) => vec![name.0, ino],
            Op::Rename(from, to) => vec![from.0, to.0],
            Op::Runs | Op::Ahead | Op::Lock(_) | Op::Unlock(_) => Vec::new(),
        }
    }

    /// The names in it.
    pub fn names(self) -> Vec<Name> {
        match self {
            Op::Look(name) | Op::Resolve(name) | Op::Make(name, ..) | Op::Remove(name) => vec![name],
            Op::Rename(from, to) => vec![from, to],
            Op::List(directory) => (0..3).map(|name| (directory, name)).collect(),
            _ => Vec::new(),
        }
    }
}

/// A request, as its client sends it.
#[derive(Clone, Debug)]
pub struct Request {
    pub session: SessionId,
    pub tag: u64,
    /// The client's time, returned with the answer.
    pub sent: u64,
    pub slot: Option<(SlotNumber, u64)>,
    pub op: Op,
    pub wish: Option<Lease>,
    /// What was done ahead, with [`Op::Ahead`].
    pub steps: Arc<[Op]>,
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
    Request(Request),
    /// `also` is an inode that went by the way. Of [`Op::Ahead`] the value has a bit for each step that failed.
    Answer {
        session: SessionId,
        tag: u64,
        sent: u64,
        value: u64,
        also: Ino,
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
    /// For the owner of this term alone.
    Reclaim {
        session: SessionId,
        epoch: Epoch,
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
