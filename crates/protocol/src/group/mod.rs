//! What members of a proxy group, those who use them, and metadata servers say to each other. `docs/design/proxy-group.md` has the list.

mod write_back;

use forebay_group::{GroupId, Incarnation, Lane, MemberId, ViewEpoch};

use crate::word::{choice, number};

pub use write_back::{
    AppendPart, Appends, Copied, Fence, FenceAnswer, Greet, Greeted, ReadBack, ReadBackAnswer, Seal,
    SegmentAnswer, SegmentRefusal, Taken, Vouch, Vouched,
};

number!(GroupId, MemberId, Incarnation, ViewEpoch);
choice!(Lane { 1 => Data, 2 => Journal });
