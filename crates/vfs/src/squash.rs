//! A mount whose root user is nobody.
//!
//! The kernel asks modes, ACLs and the sticky bit for everybody, and lets the root user pass. Where the root user is nobody, what it asks for comes as
//! [`NOBODY`], and is looked at here by the same rules. Others were looked at by the kernel, and pass.
//!
//! Relies on being asked: a name must not be found in the kernel's memory, so such a mount gives names no lifetime.

use forebay_meta::{Inode, RenameMode};
use forebay_types::Ino;

use crate::{
    acl::{self, AclTag},
    attrs::SetAttr,
    error::VfsError,
    options::Caller,
    vfs::Vfs,
};

/// The user and group that the root user is where it is nobody.
pub const NOBODY: u32 = 65534;

const S_ISVTX: u16 = 0o1000;
const READ: u16 = 4;
const WRITE: u16 = 2;
const EXECUTE: u16 = 1;

/// What a caller is about to do.
#[derive(Clone, Copy, Debug)]
pub enum Wish<'a> {
    /// Look something up in a directory.
    Search(Ino),
    /// Make a name in a directory.
    MakeName(Ino),
    /// Take a name away from a directory.
    TakeName(Ino, &'a [u8]),
    /// Move a name.
    Rename((Ino, &'a [u8]), (Ino, &'a [u8]), RenameMode),
    /// Open a file or list a directory: to read (4), write (2), execute (1).
    Access(Ino, u16),
    /// Set attributes; whether through a handle, which may write then.
    SetAttr(Ino, &'a SetAttr, bool),
    /// Have the value of an extended attribute.
    Xattr(Ino, &'a [u8]),
    /// Set or remove an extended attribute.
    SetXattr(Ino, &'a [u8]),
}

impl Vfs {
    /// Whether the root user is nobody here.
    #[must_use]
    pub fn squashes_root(&self) -> bool {
        self.options.root_squash
    }

    /// Refuses what a root user who is nobody may not do.
    ///
    /// # Errors
    /// [`VfsError::NoAccess`] and [`VfsError::NotOwner`]; those of a look-up.
    pub fn permits(&self, caller: &Caller<'_>, wish: Wish<'_>) -> Result<(), VfsError> {
        if !self.options.root_squash || caller.uid != NOBODY {
            return Ok(());
        }
        match wish {
            Wish::Search(dir) => self.may(dir, EXECUTE, caller),
            Wish::MakeName(dir) => self.may(dir, WRITE | EXECUTE, caller),
            Wish::TakeName(dir, name) => self.may_take(dir, name, false, caller),
            Wish::Rename(from, to, mode) => self.may_move(from, to, mode, caller),
            Wish::Access(ino, wanted) => self.may(ino, wanted, caller),
            Wish::SetAttr(ino, set, by_handle) => self.may_set(ino, set, by_handle, caller),
            Wish::Xattr(ino, name) if name.starts_with(b"user.") => self.may(ino, READ, caller),
            Wish::SetXattr(ino, name) if name.starts_with(b"user.") => self.may(ino, WRITE, caller),
            Wish::SetXattr(ino, name) if [acl::ACCESS, acl::DEFAULT].contains(&name) => {
                self.may_as_owner(&*self.inode(ino)?, caller)
            }
            // To these the kernel lets only the root user.
            Wish::Xattr(ino, name) if name.starts_with(b"trusted.") => Err(VfsError::NotOwner(ino)),
            Wish::SetXattr(ino, _) => Err(VfsError::NotOwner(ino)),
            Wish::Xattr(..) => Ok(()),
        }
    }

    fn may(&self, ino: Ino, wanted: u16, caller: &Caller<'_>) -> Result<(), VfsError> {
        let inode = self.inode(ino)?;
        let has = self.granted(&inode, wanted, caller)?;
        if has & wanted == wanted { Ok(()) } else { Err(VfsError::NoAccess(ino)) }
    }

    /// Of the wanted bits, those that the caller has, as acl(5) says.
    fn granted(&self, inode: &Inode, wanted: u16, caller: &Caller<'_>) -> Result<u16, VfsError> {
        let mode = inode.row.mode;
        if inode.row.uid == caller.uid {
            return Ok(mode >> 6 & 7);
        }
        let acl = if self.options.acls { self.acl(inode, acl::ACCESS)? } else { None };
        let Some(acl) = acl else {
            return Ok(if (caller.in_group)(inode.row.gid) { mode >> 3 & 7 } else { mode & 7 });
        };
        let entries = || acl.entries().iter();
        let mask = entries().find(|entry| entry.tag == AclTag::Mask).map_or(7, |entry| entry.perm);
        if let Some(user) = entries().find(|entry| entry.tag == AclTag::User(caller.uid)) {
            return Ok(user.perm & mask);
        }
        let groups = entries().filter(|entry| match entry.tag {
            AclTag::OwningGroup => (caller.in_group)(inode.row.gid),
            AclTag::Group(gid) => (caller.in_group)(gid),
            _ => false,
        });
        let groups: Vec<u16> = groups.map(|entry| entry.perm & mask).collect();
        if groups.is_empty() {
            return Ok(mode & 7);
        }
        // One group that has all of it is enough.
        Ok(groups.into_iter().find(|perm| perm & wanted == wanted).unwrap_or(0))
    }

    fn may_as_owner(&self, inode: &Inode, caller: &Caller<'_>) -> Result<(), VfsError> {
        if inode.row.uid == caller.uid { Ok(()) } else { Err(VfsError::NotOwner(inode.ino)) }
    }

    /// `moves`: to another directory, which changes where a directory is.
    fn may_take(&self, dir: Ino, name: &[u8], moves: bool, caller: &Caller<'_>) -> Result<(), VfsError> {
        self.may(dir, WRITE | EXECUTE, caller)?;
        let found = match self.files.lookup(dir, name).map_err(VfsError::by_name) {
            // There is nothing to be taken, which the operation says.
            Err(VfsError::NotFound) => return Ok(()),
            found => found?,
        };
        let directory = self.inode(dir)?;
        if directory.row.mode & S_ISVTX != 0 && directory.row.uid != caller.uid {
            self.may_as_owner(&found, caller)?;
        }
        if moves && found.is_directory() { self.may(found.ino, WRITE, caller) } else { Ok(()) }
    }

    fn may_move(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        caller: &Caller<'_>,
    ) -> Result<(), VfsError> {
        let elsewhere = from.0 != to.0;
        self.may_take(from.0, from.1, elsewhere, caller)?;
        self.may_take(to.0, to.1, elsewhere && mode == RenameMode::Exchange, caller)
    }

    fn may_set(&self, ino: Ino, set: &SetAttr, by_handle: bool, caller: &Caller<'_>) -> Result<(), VfsError> {
        let inode = self.inode(ino)?;
        let is = |id: Option<u32>, present: u32| id.is_none_or(|id| id == present);
        let own_group = set.gid.is_none_or(|gid| gid == inode.row.gid || (caller.in_group)(gid));
        if !is(set.uid, inode.row.uid) || !own_group {
            return Err(VfsError::NotOwner(ino));
        }
        let now = |time| matches!(time, None | Some(forebay_meta::SetTime::Now));
        let sets_time = set.atime.is_some() || set.mtime.is_some();
        let changes = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
        if changes || sets_time && !(now(set.atime) && now(set.mtime)) {
            self.may_as_owner(&inode, caller)?;
        }
        let writes = set.size.is_some() || sets_time && inode.row.uid != caller.uid;
        if writes && !by_handle { self.may(ino, WRITE, caller) } else { Ok(()) }
    }
}
