//! Where bytes of files may be, by their policies.

use forebay_group::GroupId;

/// Where bytes may be, besides the store and the memory of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Within {
    /// On any disk: this machine's, and those of the group that the mount goes by.
    Any,
    /// On disks of the members of this group, whichever the mount goes by.
    Group(GroupId),
    /// On none.
    Nowhere,
}
