//! What becomes of set-id bits when somebody changes a file.

use forebay_meta::{Inode, WriteAttr};

pub(crate) const S_ISUID: u16 = 0o4000;
pub(crate) const S_ISGID: u16 = 0o2000;
pub(crate) const S_IXGRP: u16 = 0o0010;

/// The bits of `mode` that are lost when the contents or the owner of a file change. Set-group-id without group execute marks no
/// privilege and stays.
pub(crate) fn killed(mode: u16) -> u16 {
    let group = if mode & S_IXGRP != 0 { mode & S_ISGID } else { 0 };
    (mode & S_ISUID) | group
}

/// What a write to `inode` does to its mode.
pub(crate) fn write_attr(inode: &Inode, kill: bool) -> WriteAttr {
    let lost = if kill { killed(inode.row.mode) } else { 0 };
    WriteAttr { mode: (lost != 0).then_some(!lost & 0o7777) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_group_id_stays_without_group_execute() {
        assert_eq!(killed(0o6755), 0o6000);
        assert_eq!(killed(0o6745), 0o4000);
        assert_eq!(killed(0o2644), 0);
        assert_eq!(killed(0o1777), 0);
    }
}
