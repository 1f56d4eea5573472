//! What the processes say to each other.

use bytes::Bytes;
use forebay_cluster::SessionId;
use forebay_group::{
    Append, Candidate, Closed, Fenced, Incarnation, Joining, MemberId, Offer, Renewal, Verdict, View,
};
use forebay_types::{Epoch, SegmentId};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Node {
    Meta(usize),
    Member(usize),
    Client(usize),
    Store,
}

/// The process that has a member's directory.
pub fn node_of(id: MemberId) -> Node {
    Node::Member(usize::from(id.0[0]))
}

/// A version of a file, as an application writes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    pub file: u64,
    pub version: u64,
}

impl Write {
    pub fn bytes(&self) -> Bytes {
        contents(self.file, self.version)
    }
}

/// Where a version of a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub write: Write,
    pub segment: SegmentId,
    pub offset: u64,
    pub len: u64,
}

/// The bytes of one version of a file.
pub fn contents(file: u64, version: u64) -> Bytes {
    let len = 16 + (version * 7 + file * 3) % 40;
    (0..len).map(|at| (version * 31 + file * 17 + at * 5) as u8).collect()
}

/// What a client asks of the owner in one of its slots.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// Segments, for so many of these members each.
    Open { members: Vec<Candidate>, copies: usize, count: u64 },
    /// Files consist of this from now on.
    Commit {
        extents: Vec<Extent>,
        /// It is all in one segment, which is this object that the client has put.
        object: Option<u64>,
    },
    /// What its writer has ended, and what no request of it names any more.
    Settle { closed: Vec<Closed>, settled: Vec<SegmentId> },
}

#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    Opened(Vec<Opened>),
    Committed,
    /// Nothing was taken in: there is no room, or it names bytes that nobody has any more.
    Refused,
    Done,
}

/// A segment that may be appended to.
#[derive(Clone, PartialEq, Debug)]
pub struct Opened {
    pub segment: SegmentId,
    pub epoch: Epoch,
    pub set: Vec<MemberId>,
}

/// A segment in an object: which, in which epoch, where, how long, CRC32C of it.
pub type Part = (SegmentId, Epoch, u64, u64, u32);

#[derive(Clone, Debug)]
pub enum Message {
    Join(Joining),
    Joined {
        id: MemberId,
        incarnation: Incarnation,
        view: View,
    },
    Out {
        id: MemberId,
        incarnation: Incarnation,
    },
    Renew(Renewal),
    Renewed {
        id: MemberId,
        incarnation: Incarnation,
        beat: u64,
        view: Option<View>,
    },
    Offers {
        id: MemberId,
        offers: Vec<Offer>,
    },
    /// Each with whether the member is to put it.
    Verdicts {
        id: MemberId,
        verdicts: Vec<(SegmentId, Verdict, bool)>,
    },
    /// By a member; by a client where there is none.
    Put {
        id: Option<MemberId>,
        object: u64,
        contents: Vec<(SegmentId, Bytes)>,
    },
    PutDone {
        id: Option<MemberId>,
        object: u64,
    },
    Stores {
        id: MemberId,
        object: u64,
        parts: Vec<Part>,
    },
    Stored {
        id: MemberId,
        object: u64,
    },
    CopyTo {
        id: MemberId,
        segment: SegmentId,
        epoch: Epoch,
        target: MemberId,
    },
    CopyAll {
        from: MemberId,
        id: MemberId,
        append: Append,
        check: u32,
    },
    Copied {
        from: MemberId,
        id: MemberId,
        segment: SegmentId,
        epoch: Epoch,
    },
    Seated {
        segment: SegmentId,
        epoch: Epoch,
        target: MemberId,
    },
    Fence {
        id: MemberId,
        segment: SegmentId,
        epoch: Epoch,
    },
    Fenced {
        id: MemberId,
        segment: SegmentId,
        epoch: Epoch,
        fenced: Fenced,
    },
    Delete {
        object: u64,
    },
    Begin {
        session: SessionId,
        sent: u64,
    },
    Beat {
        session: SessionId,
        sent: u64,
    },
    Alive {
        session: SessionId,
        view: View,
        sent: u64,
    },
    Ended {
        session: SessionId,
    },
    Ask {
        session: SessionId,
        slot: usize,
        number: u64,
        operation: Operation,
    },
    Answered {
        session: SessionId,
        slot: usize,
        number: u64,
        answer: Answer,
    },
    Append {
        id: MemberId,
        append: Append,
    },
    Synced {
        id: MemberId,
        segment: SegmentId,
        end: u64,
        /// The member is being drained: the segment is to end soon.
        draining: bool,
    },
    Refused {
        id: MemberId,
        segment: SegmentId,
    },
    Seal {
        id: MemberId,
        closed: Closed,
    },
}
