//! A request of a session, and what it is answered.

use forebay_cluster::{Grant, Lease, SessionId, SlotNumber};

use crate::{answer::Answer, operation::Operation, word::record};

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

record!(Request { session, slot, operation, wish });
record!(Response { answer, grants });
