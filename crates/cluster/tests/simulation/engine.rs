//! The engine: rows and a fence, changed together or not at all.

use std::collections::BTreeMap;

use forebay_cluster::{Claim, Fence, SessionId, SlotNumber};
use forebay_types::Ino;

use crate::messages::Name;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    Value(Ino),
    Name(Name),
    /// An object that a file's bytes are in.
    Object(u64),
    Lock(Ino),
    /// The next run of inode numbers.
    Runs,
    Session(SessionId),
    Slot(SessionId, SlotNumber),
    WriteLease(SessionId, Ino),
}

/// What a row has: a value and whether it is a directory; what a name stands for; the inode of an object; the session of a lock; the client of a session;
/// number, answer and what went by the way of a slot.
pub type Value = [u64; 3];

#[derive(Clone, Debug, Default)]
pub struct Rows {
    pub fence: Option<Fence>,
    pub rows: BTreeMap<Key, Value>,
}

/// What a server asks.
#[derive(Clone, Debug)]
pub enum Call {
    ReadFence,
    Commit { claim: Claim, rows: Vec<(Key, Option<Value>)>, takes: bool },
}

#[derive(Clone, Debug)]
pub enum Reply {
    Fence(Option<Fence>),
    /// With all rows where the claim was one to take the volume.
    Committed(Claim, Option<Rows>),
    Fenced(Claim, Option<Fence>),
}

impl Rows {
    pub fn call(&mut self, call: Call, fenced: bool) -> Reply {
        match call {
            Call::ReadFence => Reply::Fence(self.fence.clone()),
            Call::Commit { claim, rows, takes } => {
                if self.fence != claim.expect && (fenced || takes) {
                    return Reply::Fenced(claim, self.fence.clone());
                }
                self.fence = Some(claim.fence.clone());
                for (key, value) in rows {
                    match value {
                        Some(value) => drop(self.rows.insert(key, value)),
                        None => drop(self.rows.remove(&key)),
                    }
                }
                Reply::Committed(claim, takes.then(|| self.clone()))
            }
        }
    }
}
