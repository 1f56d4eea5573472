//! What the processes say to each other.

use bytes::Bytes;
use forebay_cluster::SessionId;
use forebay_group::{
    Append, Closed, Fenced, Incarnation, Joining, Lane, MemberId, Offer, Renewal, Verdict, View,
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

/// What a record of a journal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub number: u64,
    pub file: u64,
    pub version: u64,
    pub segment: SegmentId,
    pub offset: u64,
    pub len: u64,
}

const REQUEST: usize = 48;

impl Request {
    pub fn encode(&self) -> Bytes {
        let words = [self.number, self.file, self.version, self.segment.0, self.offset, self.len];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// All requests of a journal's segment.
    pub fn decode_all(bytes: &[u8]) -> Vec<Request> {
        let word =
            |record: &[u8], at: usize| u64::from_le_bytes(record[at * 8..at * 8 + 8].try_into().unwrap());
        let request = |record: &[u8]| Request {
            number: word(record, 0),
            file: word(record, 1),
            version: word(record, 2),
            segment: SegmentId(word(record, 3)),
            offset: word(record, 4),
            len: word(record, 5),
        };
        bytes.chunks_exact(REQUEST).map(request).collect()
    }
}

/// The bytes of one version of a file.
pub fn contents(file: u64, version: u64) -> Bytes {
    let len = 16 + (version * 7 + file * 3) % 40;
    (0..len).map(|at| (version * 31 + file * 17 + at * 5) as u8).collect()
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
    ReadBack {
        id: MemberId,
        segment: SegmentId,
        len: u64,
    },
    Read {
        segment: SegmentId,
        bytes: Bytes,
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
    Open {
        session: SessionId,
        lane: Lane,
        set: Vec<MemberId>,
        token: u64,
    },
    Opened {
        session: SessionId,
        lane: Lane,
        segment: SegmentId,
        set: Vec<MemberId>,
        token: u64,
    },
    Commit {
        session: SessionId,
        request: Request,
        /// Its segment is this object, which the client has put.
        object: Option<u64>,
    },
    Committed {
        session: SessionId,
        number: u64,
    },
    /// What a writer has closed, and what it will not name again.
    Says {
        session: SessionId,
        token: u64,
        closed: Vec<Closed>,
        settled: Vec<SegmentId>,
    },
    Heard {
        session: SessionId,
        token: u64,
    },
    Append {
        id: MemberId,
        append: Append,
    },
    Synced {
        id: MemberId,
        segment: SegmentId,
        end: u64,
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
