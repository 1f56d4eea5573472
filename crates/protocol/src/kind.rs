//! Kinds of messages, as the frames below number them.

/// What the body of a request is, and what its reply is. Numbers are never used again for something else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum Kind {
    /// [`crate::Hello`], answered by [`crate::Welcome`].
    Hello = 1,
    /// [`crate::Request`], answered by [`crate::Response`].
    Ask = 2,
    /// A [`forebay_cluster::SessionId`], answered by nothing: the session lives.
    Renew = 3,
    /// [`crate::Reclaim`], answered by [`crate::Reclaimed`].
    Reclaim = 4,
    /// [`crate::Return`], answered by nothing.
    Return = 5,
    /// A [`forebay_cluster::SessionId`], answered by nothing: the session is over.
    End = 6,
    /// [`crate::Push`], from server to client, answered by nothing.
    Push = 7,
    /// A list of [`crate::Return`] of one session, [`crate::RETURNS_MAX`] at most, answered by nothing.
    Returns = 8,
    /// [`crate::Push::Recalls`], from server to client, answered by nothing.
    Recalls = 9,
    /// [`crate::VolumeRequest`], answered by a list of [`crate::VolumeInfo`].
    Volumes = 16,
    /// [`crate::TokenRequest`], answered by a list of [`crate::TokenInfo`] and a text: the secret of a token just made.
    Tokens = 17,
    /// Nothing, answered by [`crate::ServerStatus`].
    Status = 18,
    /// Nothing, answered by [`crate::Overview`].
    Overview = 19,
    /// [`crate::MigrateRequest`], answered by [`crate::MigrateStatus`].
    Migrate = 20,
    /// [`crate::PolicyRequest`], answered by [`crate::PolicyInfo`].
    Policies = 21,
    /// [`crate::group::RenewMember`], answered by [`crate::group::Renewed`].
    RenewMember = 24,
    /// [`crate::group::Join`], answered by [`crate::group::Joined`].
    Join = 25,
    /// [`crate::group::GroupRequest`], answered by a list of [`crate::group::GroupInfo`].
    Groups = 26,
    /// [`crate::group::ViewOf`], answered by a [`crate::group::GroupView`], if the volume has a group.
    ViewOf = 27,
    /// [`crate::group::Vouch`], answered by [`crate::group::Vouched`].
    Vouch = 28,
    /// [`crate::group::Leave`], answered by nothing.
    Leave = 29,
    /// [`crate::group::SetsOf`], answered by a list of [`crate::group::VolumeSets`].
    Sets = 30,
    /// [`crate::group::ViewsOf`], answered by a list of [`crate::group::GroupView`].
    ViewsOf = 31,
    /// [`crate::group::Greet`], answered by [`crate::group::Greeted`].
    Greet = 32,
    /// [`crate::group::Appends`] and bulk, answered by [`crate::group::Taken`].
    Append = 33,
    /// [`crate::group::Seal`], answered by [`crate::group::Taken`].
    Seal = 34,
    /// [`crate::group::Fence`], answered by [`crate::group::FenceAnswer`].
    Fence = 35,
    /// [`crate::group::ReadBack`], answered by [`crate::group::ReadBackAnswer`] and bulk.
    ReadBack = 36,
    /// [`crate::group::Fetch`], answered by [`crate::group::Fetched`] and a bulk.
    Fetch = 37,
    /// [`crate::group::Peek`], answered by a bulk, or by nothing.
    Peek = 38,
    /// [`crate::group::Distrust`], answered by nothing.
    Distrust = 39,
    /// [`crate::group::Copied`] and bulk, answered by [`crate::group::Taken`].
    Copy = 40,
    /// [`crate::group::Warm`], answered by [`crate::group::Warmed`].
    Warm = 41,
    /// [`crate::WantedOf`], answered by [`crate::Wanted`].
    Wanted = 42,
    /// [`crate::KeptOf`], answered by a list of [`crate::VolumeKept`].
    Kept = 43,
    /// [`crate::group::VouchIn`], answered by [`crate::group::Vouched`].
    VouchIn = 44,
    /// Nothing, answered by nothing, at once, to who was let in: how near a member is.
    Near = 45,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 37] = [
        Kind::Hello,
        Kind::Ask,
        Kind::Renew,
        Kind::Reclaim,
        Kind::Return,
        Kind::End,
        Kind::Push,
        Kind::Returns,
        Kind::Recalls,
        Kind::Volumes,
        Kind::Tokens,
        Kind::Status,
        Kind::Overview,
        Kind::Migrate,
        Kind::Policies,
        Kind::RenewMember,
        Kind::Join,
        Kind::Groups,
        Kind::ViewOf,
        Kind::Vouch,
        Kind::Leave,
        Kind::Sets,
        Kind::ViewsOf,
        Kind::Greet,
        Kind::Append,
        Kind::Seal,
        Kind::Fence,
        Kind::ReadBack,
        Kind::Fetch,
        Kind::Peek,
        Kind::Distrust,
        Kind::Copy,
        Kind::Warm,
        Kind::Wanted,
        Kind::Kept,
        Kind::VouchIn,
        Kind::Near,
    ];

    /// The code with which the frames below refuse a request whose [`crate::Refusal`] is in the detail.
    pub const REFUSED: u16 = 0x8001;

    /// The kind with this number.
    #[must_use]
    pub fn of(number: u16) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u16 == number)
    }
}
