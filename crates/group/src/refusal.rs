use crate::MemberId;

/// Why a change is not made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The member was counted out, or another process acts for it: it joins anew.
    #[error("member {0} is not in the group as this process any more")]
    Out(MemberId),
    /// Another process acts, or did until a moment ago.
    #[error(
        "member {id} is acted for by the process at {address}: two have the same directory, or it died less than 10 s ago"
    )]
    Acts {
        /// Whose directory.
        id: MemberId,
        /// Where that process is reached.
        address: String,
    },
    /// The directory is an older copy.
    #[error(
        "the directory of member {id} is an older copy: its log ends at {end}, and was at {known} before"
    )]
    Older {
        /// Whose directory.
        id: MemberId,
        /// Where its log ends.
        end: u64,
        /// Where it ended once.
        known: u64,
    },
    /// It may have what nobody else has.
    #[error("member {id} has {dirty} segments that the store may not have, or has not said that it drains")]
    NotDrained {
        /// Which.
        id: MemberId,
        /// How many.
        dirty: u64,
    },
    /// It was drained and removed: a member with this directory never comes back.
    #[error("member {0} was removed: empty its directory, and it begins as a new one")]
    Removed(MemberId),
    /// The operator has said that its disk is lost for good, and what it alone had was given up: a member with this directory never comes back.
    #[error(
        "member {0} was given up as lost (`forebay group remove --lost`), and what it alone had with it: save what its directory has, empty it, and it begins as a new one"
    )]
    GivenUp(MemberId),
    /// It is in the group: what it has is not lost.
    #[error(
        "member {0} is in the group, or was until less than 10 s ago: drain it, or stop its proxy and wait until it is counted out"
    )]
    There(MemberId),
    /// There is no such member.
    #[error("there is no member {0}")]
    Unknown(MemberId),
}
