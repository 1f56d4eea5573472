//! Beginning, keeping and ending a session, and what its client is told unasked.

use std::fmt;

use forebay_cluster::{Grant, Lease, SessionId, Stamp};
use forebay_group::MemberId;
use forebay_types::{Epoch, Ino, SegmentId};

use crate::{
    admin::VolumeInfo,
    refusal::Rights,
    word::{choice, lists, record},
};

/// The first message of a connection that uses a volume. Begins the session, or goes on with it on this connection.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// The volume's name.
    pub volume: String,
    /// The secret of a token, where the volume has tokens.
    pub token: Option<String>,
    /// The session: chosen by the client at random.
    pub session: SessionId,
    /// What the client calls itself, for people: host and mount point. At most 1024 bytes.
    pub client: String,
    /// The session was begun before: where it is over, this is refused as [`crate::Refusal::SessionEnded`], and none is begun. A client that does not know
    /// whether its first message arrived would else take a new session for the old one.
    pub resumes: bool,
}

impl fmt::Debug for Hello {
    /// Without the secret: messages come into logs.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = if self.token.is_some() { "with a token" } else { "without a token" };
        to.debug_struct("Hello")
            .field("volume", &self.volume)
            .field("token", &format_args!("{token}"))
            .field("session", &self.session)
            .field("client", &self.client)
            .field("resumes", &self.resumes)
            .finish()
    }
}

/// The answer to [`Hello`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The owner's term.
    pub epoch: Epoch,
    /// How long the session lives without being heard of, in milliseconds.
    pub term_ms: u64,
    /// Whether the session was begun by this: `false` where it was there.
    pub begun: bool,
    /// The volume.
    pub volume: VolumeInfo,
    /// What the session may.
    pub rights: Rights,
}

/// What the session of a former owner has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reclaim {
    /// The session.
    pub session: SessionId,
    /// The term of the owner that is told: no other one takes it in.
    pub epoch: Epoch,
    /// Its leases.
    pub leases: Vec<(Ino, Lease)>,
}

/// What it has from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reclaimed {
    /// The owner's term.
    pub epoch: Epoch,
    /// All of its leases.
    pub grants: Vec<Grant>,
}

/// How many leases are returned by one message at most, and recalled by one.
pub const RETURNS_MAX: usize = 1024;

/// A lease is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Return {
    /// The session.
    pub session: SessionId,
    /// On what.
    pub ino: Ino,
    /// Which grant.
    pub stamp: Stamp,
    /// What is kept.
    pub kept: Option<Lease>,
    /// Whether the client has the inode open: then it lives until [`crate::Operation::Release`].
    pub open: bool,
}

/// A lease that is to be returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recall {
    /// On what.
    pub ino: Ino,
    /// The most that may be kept.
    pub keep: Option<Lease>,
    /// Which grant is meant.
    pub stamp: Stamp,
}

/// What a session is told without having asked.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// A lock for which the session waits may be free: it asks again.
    LockFree {
        /// On what.
        ino: Ino,
    },
    /// A session was ended by the owner: what is told of an earlier one says nothing of the next.
    Ended {
        /// Which.
        session: SessionId,
    },
    /// The member is to take no more of a segment from whoever goes by a lower epoch, and answers with [`crate::Operation::Fenced`] once that is on stable storage.
    Fence {
        /// The member: others may use the same session.
        member: MemberId,
        /// Which segment.
        segment: SegmentId,
        /// The epoch.
        epoch: Epoch,
    },
    /// Segments were given up since the session was told last: what files have of them is lost for good. Maps say which.
    Lost,
    /// The volume has a limit from now on, or has none any more.
    Limited(bool),
    /// Leases are to be returned, several and [`RETURNS_MAX`] at most. On the wire it is a message of a kind of its own ([`crate::Kind::Recalls`]): a client that does not know
    /// that is told of each by itself.
    Recalls(Vec<Recall>),
}

record!(Hello { volume, token, session, client, resumes });
record!(Welcome { epoch, term_ms, begun, volume, rights });
record!(Reclaim { session, epoch, leases });
record!(Reclaimed { epoch, grants });
record!(Return { session, ino, stamp, kept, open });
record!(Recall { ino, keep, stamp });
lists!(Return, Recall);
// 3 and 6 are never used again: the one ended whichever session there was, the other asked a member for bytes of a segment, and no owner ever sent it.
choice!(Push {
    1 => Recall { ino, keep, stamp },
    2 => LockFree { ino },
    4 => Ended { session },
    5 => Fence { member, segment, epoch },
    7 => Lost,
    8 => Limited(limited),
    9 => Recalls(leases),
});
