//! What members of a proxy group, those who use them, and metadata servers say to each other. `docs/design/proxy-group.md` has the list.

mod write_back;

use forebay_group::{Incarnation, ViewEpoch};

use crate::word::number;

pub use write_back::{
    AppendPart, Appends, Copied, Fence, FenceAnswer, Greet, Greeted, ReadBack, ReadBackAnswer, Seal,
    SegmentAnswer, SegmentRefusal, Taken, Vouch, Vouched,
};

number!(Incarnation, ViewEpoch);
