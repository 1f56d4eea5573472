//! Bytes on their way to a segment's set, and back.

use forebay_group::{Fenced, GroupId, Incarnation, LogError, MemberId, ViewEpoch};
use forebay_types::{Epoch, SegmentId, VolumeId};

use crate::{
    admin::VolumeInfo,
    refusal::Rights,
    word::{choice, lists, record},
};

/// The first message of a connection to a member: what follows on it is about this volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greet {
    /// The group that the caller means.
    pub group: GroupId,
    /// The volume.
    pub volume: VolumeId,
    /// The secret of a token for the volume, or a member's name for itself ([`Vouch::member`]).
    pub token: Option<String>,
    /// What the caller calls itself, for people. At most 1024 bytes.
    pub client: String,
}

/// The answer to [`Greet`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeted {
    /// Who answers.
    pub member: MemberId,
    /// As what.
    pub incarnation: Incarnation,
    /// By which view; 0 where it has none.
    pub view: ViewEpoch,
    /// It takes no new segments.
    pub draining: bool,
}

/// A member asks a metadata server whether the bearer of a token may use a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vouch {
    /// The volume.
    pub volume: VolumeId,
    /// What the bearer showed.
    pub token: Option<String>,
    /// The common name of the certificate that came with a member's name: its bearer is to be one who may administer. Nothing with a token.
    pub certificate: Option<String>,
}

impl Vouch {
    /// What a member shows in the place of a token's secret: who it is. It counts on a connection that may administer, or to a member that was told so by a
    /// server: with a certificate that may administer, or without any where the servers allow it (`--insecure`).
    #[must_use]
    pub fn member(group: GroupId, member: MemberId, incarnation: Incarnation) -> String {
        format!("member-{group}-{member}-{:032x}", u128::from_be_bytes(incarnation.0))
    }

    /// The member that a text names, if it is one of [`Vouch::member`].
    #[must_use]
    pub fn as_member(text: &str) -> Option<(GroupId, MemberId, Incarnation)> {
        let mut ids = text.strip_prefix("member-")?.split('-').map(id);
        let found = (GroupId(ids.next()??), MemberId(ids.next()??), Incarnation(ids.next()??));
        ids.next().is_none().then_some(found)
    }
}

/// The 16 bytes of any of the ids: all are written in the same way.
fn id(text: &str) -> Option<[u8; 16]> {
    text.parse().ok().map(|MemberId(id)| id)
}

/// As [`Vouch`], by a member of this group: it need not be the first of the volume's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VouchIn {
    /// The member's group.
    pub group: GroupId,
    /// What is asked.
    pub vouch: Vouch,
}

/// The answer to [`Vouch`] and [`VouchIn`], where the bearer may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vouched {
    /// The volume.
    pub volume: VolumeInfo,
    /// What the bearer may.
    pub rights: Rights,
    /// How long the member may go by this, in milliseconds.
    pub for_ms: u64,
    /// A group through which the volume is read: the one that was named if it is that, else its first; `None` where it has none.
    pub group: Option<GroupId>,
    /// Whether all of the volume is shown: who sees a part of it reads from the store.
    pub whole: bool,
}

/// Whether others of a segment's set get its bytes, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// They do.
    Several,
    /// This is the only copy (class `local`).
    One,
}

/// Bytes for one segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendPart {
    /// Which one.
    pub segment: SegmentId,
    /// Its epoch, as the writer knows it.
    pub epoch: Epoch,
    /// Who gets them.
    pub copies: Copies,
    /// Where in the segment.
    pub offset: u64,
    /// How many bytes: at least 1, and at most 8 MiB in a message.
    pub len: u32,
    /// CRC32C of them.
    pub check: u32,
}

/// Bytes for segments of one writer. The bulk has those of all parts, in their order. Answered by [`Taken`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Appends {
    /// What for which segment: taken in this order, each by itself.
    pub parts: Vec<AppendPart>,
}

/// A segment ends here. Answered by [`Taken`] with one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seal {
    /// Which one.
    pub segment: SegmentId,
    /// Its epoch, as the caller knows it.
    pub epoch: Epoch,
    /// Its length in bytes: what is beyond was not acknowledged.
    pub len: u64,
    /// CRC32C of all of it.
    pub check: u32,
}

/// A sealed segment as a whole, from another member; the bulk has its bytes. Answered by [`Taken`] with one answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// What it is.
    pub seal: Seal,
}

/// What became of the bytes for a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentAnswer {
    /// They are on stable storage, and everything before them: the segment ends there.
    Synced {
        /// The end, in bytes.
        end: u64,
    },
    /// They were not taken.
    Refused(SegmentRefusal),
}

/// Why nothing was taken for a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SegmentRefusal {
    /// The segment is in a later epoch: whoever asks has been replaced.
    #[error("the segment is in epoch {0} by now")]
    Fenced(Epoch),
    /// It takes no more.
    #[error("the segment is sealed at {0} bytes")]
    Sealed(u64),
    /// There is a gap before the bytes, or fewer than are to be sealed.
    #[error("the segment ends at {0}")]
    EndsAt(u64),
    /// Other bytes are there already, or they are not what their checksum is of.
    #[error("the bytes are not what they should be")]
    Different,
    /// This copy is damaged.
    #[error("the copy is damaged")]
    Damaged,
    /// There is no room: other members have some.
    #[error("the member has no room")]
    Full,
    /// The member takes no new segments.
    #[error("the member is being drained")]
    Draining,
    /// The member does not act: it could not renew, or its disk failed.
    #[error("the member does not act")]
    Out,
}

impl From<LogError> for SegmentRefusal {
    fn from(error: LogError) -> SegmentRefusal {
        match error {
            LogError::Fenced(epoch) => SegmentRefusal::Fenced(epoch),
            LogError::Sealed(len) => SegmentRefusal::Sealed(len),
            LogError::EndsAt(end) => SegmentRefusal::EndsAt(end),
            LogError::Different => SegmentRefusal::Different,
            LogError::Damaged => SegmentRefusal::Damaged,
        }
    }
}

/// The answer to what was sent for segments.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Taken {
    /// Who answers: bytes count only where they are at the member that they were meant for, whoever is at its address by now.
    pub member: MemberId,
    /// One for each part, in their order.
    pub parts: Vec<SegmentAnswer>,
    /// How long the writer waits before its next append, in microseconds.
    pub pace_us: u64,
    /// The member's view; 0 where it has none.
    pub view: ViewEpoch,
    /// It is being drained: what is open here is to be sealed.
    pub draining: bool,
}

/// Whoever recovers a segment takes it. Answered by [`FenceAnswer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// Which one.
    pub segment: SegmentId,
    /// The epoch from now on.
    pub epoch: Epoch,
}

/// What a member has of a segment that was fenced: on stable storage, as the fence is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FenceAnswer {
    /// Nothing of a lower epoch is taken from now on.
    Fenced {
        /// Where the segment ends, in bytes.
        end: u64,
        /// CRC32C of all of it.
        check: u32,
        /// Its length, where it is sealed.
        sealed: Option<u64>,
        /// The copy counts for nothing.
        damaged: bool,
    },
    /// It was not fenced.
    Refused(SegmentRefusal),
}

impl FenceAnswer {
    /// What recovery goes by; nothing where the member refused.
    #[must_use]
    pub fn fenced(&self) -> Option<Fenced> {
        match *self {
            FenceAnswer::Fenced { end, check, damaged, .. } => Some(Fenced { end, check, damaged }),
            FenceAnswer::Refused(_) => None,
        }
    }
}

/// Asks for bytes of a segment, sealed or not: they are on stable storage when they are answered. Answered by [`ReadBackAnswer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadBack {
    /// Which one.
    pub segment: SegmentId,
    /// The first byte.
    pub from: u64,
    /// The byte after the last: at most 8 MiB after the first.
    pub to: u64,
}

/// What there is of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadBackAnswer {
    /// All of it is in the bulk.
    Read {
        /// CRC32C of it.
        check: u32,
    },
    /// Not all of it is here.
    Refused(SegmentRefusal),
}

record!(Greet { group, volume, token, client });
record!(Greeted { member, incarnation, view, draining });
record!(Vouch { volume, token, certificate });
record!(VouchIn { group, vouch });
record!(Vouched { volume, rights, for_ms, group, whole });
record!(AppendPart { segment, epoch, copies, offset, len, check });
record!(Appends { parts });
// Once the log that the bytes were for; members of those builds do not look at it.
choice!(Copies { 1 => Several, 2 => One });
record!(Seal { segment, epoch, len, check });
record!(Copied { seal });
record!(Taken { member, parts, pace_us, view, draining });
record!(Fence { segment, epoch });
record!(ReadBack { segment, from, to });
choice!(SegmentAnswer { 1 => Synced { end }, 2 => Refused(why) });
choice!(SegmentRefusal {
    1 => Fenced(epoch),
    2 => Sealed(len),
    3 => EndsAt(end),
    4 => Different,
    5 => Damaged,
    6 => Full,
    7 => Draining,
    8 => Out,
});
choice!(FenceAnswer { 1 => Fenced { end, check, sealed, damaged }, 2 => Refused(why) });
choice!(ReadBackAnswer { 1 => Read { check }, 2 => Refused(why) });
lists!(AppendPart, SegmentAnswer);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_names_itself() {
        let ids = (GroupId([1; 16]), MemberId([0xab; 16]), Incarnation([3; 16]));
        let text = Vouch::member(ids.0, ids.1, ids.2);
        assert_eq!(Vouch::as_member(&text), Some(ids));
        for wrong in [&text[1..], &format!("{text}-"), &format!("{text}0"), &text.to_uppercase(), "member---"]
        {
            assert_eq!(Vouch::as_member(wrong), None, "{wrong}");
        }
    }
}
