use forebay_cluster::{Grant, Lease, SessionId, SlotNumber, Stamp};
use forebay_types::{Epoch, Ino};

use crate::{answer::Answer, operation::Operation};

/// A client's request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whose it is.
    pub session: SessionId,
    /// Slot and number, of an operation that changes something.
    pub slot: Option<(SlotNumber, u64)>,
    /// What is to be done.
    pub operation: Operation,
    /// The lease that the client would like on what it names.
    pub wish: Option<Lease>,
}

/// A request that was carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Response {
    /// What became of it.
    pub answer: Answer,
    /// Leases that come with it.
    pub grants: Vec<Grant>,
}

/// Why a request was not carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Another server owns the volume, or none: the client asks there, with the same slot and number.
    #[error("another server owns the volume")]
    NotOwner {
        /// Where, if that is known.
        address: Option<String>,
    },
    /// The session has ended: what was kept back under it is lost.
    #[error("the session has ended")]
    SessionEnded,
    /// The session is of a former owner: the client says first which leases it has.
    #[error("the leases of a former owner are to be reclaimed first")]
    MustReclaim {
        /// The owner's term.
        epoch: Epoch,
    },
    /// The request changes something and has no slot, or has a slot and changes nothing.
    #[error("a request that changes something has a slot, and no other has")]
    WrongSlot,
}

/// Where a response goes. Called once, from any thread; it must not wait.
pub type Reply = Box<dyn FnOnce(Result<Response, Refusal>) + Send>;

/// What a session is told without having asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Push {
    /// A lease is to be returned.
    Recall {
        /// On what.
        ino: Ino,
        /// The most that may be kept.
        keep: Option<Lease>,
        /// Which grant is meant.
        stamp: Stamp,
    },
}
