//! What members of a proxy group, those who use them, and metadata servers say to each other. `docs/design/proxy-group.md` has the list.

mod copies;
mod here;
mod reads;
mod views;
mod write_back;

use forebay_group::{Incarnation, ViewEpoch};

use crate::word::number;

pub use copies::{MissingSegment, SetsOf, Tally, VolumeSets};
pub use here::{HERE_VARIABLE, here_directories, here_socket};
pub use reads::{Distrust, Fetch, Fetched, Peek, Walk, Warm, Warmed};
pub use views::{
    GROUPS_MAX, GroupInfo, GroupMember, GroupRequest, GroupView, GroupVolume, Join, Joined, Leave,
    LostMember, MemberNumbers, NoWriteClass, RenewMember, Renewed, ViewOf, ViewsOf, WriteClass,
};
pub use write_back::{
    AppendPart, Appends, Copied, Copies, Fence, FenceAnswer, Greet, Greeted, ReadBack, ReadBackAnswer, Seal,
    SegmentAnswer, SegmentRefusal, Taken, Vouch, VouchIn, Vouched,
};

number!(Incarnation, ViewEpoch);
