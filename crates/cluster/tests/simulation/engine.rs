//! The engine: rows and a fence, changed together or not at all; and the place's registry, where one server at a time has it.

use std::collections::BTreeMap;

use forebay_cluster::{Claim, Fence, Moment, SessionId, SlotNumber};
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
    registry: Registry,
}

/// One time that the registry was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    pub server: usize,
    pub life: u64,
    pub number: u64,
}

/// The registry's log, which grows by each beat and each time it is opened. Who opens it shuts out whoever has it.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    opened: Option<Opening>,
    log: u64,
}

/// What a server asks.
#[derive(Clone, Debug)]
pub enum Call {
    ReadFence,
    Commit { claim: Claim, rows: Vec<(Key, Option<Value>)>, takes: bool },
    Registry(RegistryCall),
}

#[derive(Clone, Copy, Debug)]
pub enum RegistryCall {
    /// How long its log is.
    Look {
        began: Moment,
    },
    /// Opens it; it was seen to be so long, since then.
    Open {
        by: Opening,
        seen: (u64, Moment),
    },
    Beat {
        by: Opening,
        began: Moment,
    },
}

#[derive(Clone, Debug)]
pub enum Reply {
    Fence(Option<Fence>),
    /// With all rows where the claim was one to take the volume.
    Committed(Claim, Option<Rows>),
    Fenced(Claim, Option<Fence>),
    Registry(RegistryReply),
}

#[derive(Clone, Copy, Debug)]
pub enum RegistryReply {
    Log {
        began: Moment,
        long: u64,
    },
    /// `still`: nobody had put anything into it since it was seen; `first`: nor ever.
    Opened {
        by: Opening,
        seen: Moment,
        still: bool,
        first: bool,
    },
    Beaten {
        by: Opening,
        began: Moment,
    },
    ShutOut {
        by: Opening,
    },
}

impl Registry {
    pub fn call(&mut self, call: RegistryCall) -> RegistryReply {
        match call {
            RegistryCall::Look { began } => RegistryReply::Log { began, long: self.log },
            RegistryCall::Open { by, seen: (long, seen) } => {
                let still = self.log == long;
                let first = self.log == 0;
                (self.opened, self.log) = (Some(by), self.log + 1);
                RegistryReply::Opened { by, seen, still, first }
            }
            RegistryCall::Beat { by, .. } if self.opened != Some(by) => RegistryReply::ShutOut { by },
            RegistryCall::Beat { by, began } => {
                self.log += 1;
                RegistryReply::Beaten { by, began }
            }
        }
    }
}

impl Rows {
    pub fn call(&mut self, call: Call, fenced: bool) -> Reply {
        match call {
            Call::Registry(call) => Reply::Registry(self.registry.call(call)),
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
