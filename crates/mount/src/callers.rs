//! Who asks, and what they may where the root user is nobody.

use forebay_fuse::{Errno, Request};
use forebay_vfs::{Caller, Kill, NOBODY, Open, Wish};

use crate::volume_fs::VolumeFs;

/// The kernel's mark of an open that executes (`__FMODE_EXEC`).
const FMODE_EXEC: u32 = 0x20;

pub(crate) fn open_args(flags: u32, kill: Kill) -> Open {
    let has = |flag: i32| flags & flag as u32 != 0;
    Open {
        read_only: flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32,
        no_atime: has(libc::O_NOATIME),
        truncate: has(libc::O_TRUNC),
        kill,
    }
}

pub(crate) fn has_no_atime(flags: u32) -> bool {
    flags & libc::O_NOATIME as u32 != 0
}

/// What an open with these flags is for, as bits of a mode.
pub(crate) fn wanted(flags: u32) -> u16 {
    let wanted = match flags & libc::O_ACCMODE as u32 {
        _ if flags & FMODE_EXEC != 0 => 1,
        mode if mode == libc::O_RDONLY as u32 => 4,
        mode if mode == libc::O_WRONLY as u32 => 2,
        _ => 6,
    };
    if flags & libc::O_TRUNC as u32 != 0 { wanted | 2 } else { wanted }
}

impl VolumeFs {
    /// Whether the root user asks, and is one.
    pub(crate) fn is_root(&self, req: &Request) -> bool {
        req.uid == 0 && !self.vfs.squashes_root()
    }

    /// Set-id bits survive what a superuser does, as the kernel has it for operations on which it does not tell.
    pub(crate) fn kills(&self, req: &Request) -> bool {
        !self.is_root(req)
    }

    /// Calls `work` with who asks.
    pub(crate) fn by<T>(&self, req: &Request, work: impl FnOnce(&Caller<'_>) -> T) -> T {
        if req.uid == 0 && self.vfs.squashes_root() {
            return work(&Caller { uid: NOBODY, gid: NOBODY, in_group: &|gid| gid == NOBODY });
        }
        let in_group = |gid| req.in_group(gid);
        work(&Caller { uid: req.uid, gid: req.gid, in_group: &in_group })
    }

    /// Refuses what the kernel lets a root user do who is nobody here.
    pub(crate) fn permits(
        &self,
        req: &Request,
        op: &'static str,
        number: u64,
        wish: Wish<'_>,
    ) -> Result<(), Errno> {
        if !self.vfs.squashes_root() {
            return Ok(());
        }
        self.done(op, number, self.by(req, |caller| self.vfs.permits(caller, wish)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_want_what_their_flags_say() {
        let cases = [
            (libc::O_RDONLY, 4),
            (libc::O_WRONLY, 2),
            (libc::O_RDWR, 6),
            (libc::O_RDONLY | libc::O_TRUNC, 6),
            (libc::O_WRONLY | libc::O_APPEND, 2),
            (FMODE_EXEC as i32, 1),
        ];
        for (flags, bits) in cases {
            assert_eq!(wanted(flags as u32), bits, "{flags:#x}");
        }
    }
}
