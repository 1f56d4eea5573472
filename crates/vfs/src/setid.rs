//! What becomes of set-id bits when somebody changes a file.

use forebay_meta::{Inode, WriteAttr};
use forebay_types::Ino;

use crate::{Caller, Vfs};

pub(crate) const S_ISUID: u16 = 0o4000;
pub(crate) const S_ISGID: u16 = 0o2000;
pub(crate) const S_IXGRP: u16 = 0o0010;

/// Which set-id bits a change of a file takes away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Kill {
    /// None: who changes it may keep them.
    #[default]
    Nothing,
    /// Those that mark a privilege: set-group-id without group execute stays.
    Privileges,
    /// All: who changes it is not of the file's group either.
    All,
}

impl From<bool> for Kill {
    fn from(kill: bool) -> Kill {
        if kill { Kill::Privileges } else { Kill::Nothing }
    }
}

impl Vfs {
    /// What a change of `ino` by `caller` takes away, where the kernel says that set-id bits are to go (`wanted`). The caller's groups are asked
    /// for only where it matters.
    #[must_use]
    pub fn kill(&self, ino: Ino, wanted: bool, caller: &Caller<'_>) -> Kill {
        if !wanted {
            return Kill::Nothing;
        }
        let Ok(inode) = self.inode(ino) else { return Kill::Privileges };
        let marked = inode.row.mode & (S_ISGID | S_IXGRP) == S_ISGID;
        if marked && caller.uid != 0 && !(caller.in_group)(inode.row.gid) {
            Kill::All
        } else {
            Kill::Privileges
        }
    }
}

/// The bits of `mode` that are lost when the contents or the owner of a file change.
pub(crate) fn killed(mode: u16, kill: Kill) -> u16 {
    match kill {
        Kill::Nothing => 0,
        Kill::Privileges if mode & S_IXGRP == 0 => mode & S_ISUID,
        Kill::Privileges | Kill::All => mode & (S_ISUID | S_ISGID),
    }
}

/// What a write to `inode` does to its mode.
pub(crate) fn write_attr(inode: &Inode, kill: Kill) -> WriteAttr {
    let lost = killed(inode.row.mode, kill);
    WriteAttr { mode: (lost != 0).then_some(!lost & 0o7777) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_group_id_stays_without_group_execute() {
        assert_eq!(killed(0o6755, Kill::Privileges), 0o6000);
        assert_eq!(killed(0o6745, Kill::Privileges), 0o4000);
        assert_eq!(killed(0o2644, Kill::Privileges), 0);
        assert_eq!(killed(0o1777, Kill::Privileges), 0);
        assert_eq!(killed(0o2644, Kill::All), 0o2000);
        assert_eq!(killed(0o6755, Kill::Nothing), 0);
    }
}
