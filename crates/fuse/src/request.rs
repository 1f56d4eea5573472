//! Who asks.

use crate::errno::Errno;

/// The caller of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Names the request while it is in flight; never used again on this mount.
    pub unique: u64,
    /// The caller's file-system user id.
    pub uid: u32,
    /// The caller's file-system group id.
    pub gid: u32,
    /// The caller's thread id; 0 if it is not in the server's PID namespace, or the kernel itself asks.
    pub pid: u32,
    /// On creations with CREATE_SUPP_GROUP: the caller's supplementary group that equals the parent's group.
    pub supplementary_group: Option<u32>,
}

impl Request {
    /// The caller's supplementary groups, read from `/proc` now: they may have changed since the system call began.
    ///
    /// Errors: `ESRCH` if the caller is unknown or gone.
    pub fn groups(&self) -> Result<Vec<u32>, Errno> {
        if self.pid == 0 {
            return Err(Errno::ESRCH);
        }
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid)).map_err(|_| Errno::ESRCH)?;
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).ok_or(Errno::ESRCH)?;
        line.split_whitespace().map(|group| group.parse().map_err(|_| Errno::EIO)).collect()
    }

    /// Whether the caller is in `gid`, by its own group, the one told in the request, or its supplementary groups.
    /// A caller that is gone is in no further group.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid
            || self.supplementary_group == Some(gid)
            || self.groups().is_ok_and(|groups| groups.contains(&gid))
    }
}
