//! Attributes.

use forebay_meta::{Inode, SetTime};
use forebay_types::{Attr, Ino};

use crate::{
    acl,
    error::VfsError,
    files::Through,
    setid::{self, Kill},
    vfs::Vfs,
    xattrs,
};

/// Levels and entries that [`Vfs::path_of`] looks at before it gives up.
const PATH_LEVELS: usize = 64;
const PATH_ENTRIES: usize = 10_000;

/// Attributes to be set; `None` leaves one as it is. Whether the caller may is asked before.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// The caller loses set-id bits by changing the size.
    pub kill: Kill,
    /// The open file through which it is asked.
    pub through: Option<Through>,
}

impl Vfs {
    /// The attributes; those of a removed inode until it is forgotten.
    ///
    /// # Errors
    /// [`VfsError::Stale`].
    pub fn getattr(&self, ino: Ino) -> Result<Attr, VfsError> {
        Ok(self.attr_of(&*self.inode_or_ghost(ino)?))
    }

    /// Sets attributes, in one record: set-id bits that a new owner or size takes away, capabilities, and the ACL that follows the mode go along.
    ///
    /// # Errors
    /// [`VfsError::Stale`], [`VfsError::TooLarge`], [`VfsError::IsDirectory`], [`VfsError::Invalid`].
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr, VfsError> {
        self.writable()?;
        let inode = self.inode(ino)?;
        let owner_changes = (set.uid.is_some() || set.gid.is_some()) && !inode.is_directory();
        let mut change = forebay_meta::SetAttr {
            mode: set.mode.map(|mode| mode & 0o7777),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime,
            mtime: set.mtime,
            ..forebay_meta::SetAttr::default()
        };
        let kill = if owner_changes { set.kill.max(Kill::Privileges) } else { set.kill };
        if kill != Kill::Nothing {
            let mode = change.mode.unwrap_or(inode.row.mode);
            let lost = setid::killed(mode, kill);
            change.mode = if lost == 0 { change.mode } else { Some(mode & !lost) };
        }
        if let (Some(mode), Some(acl)) = (set.mode, self.acl(&inode, acl::ACCESS)?) {
            change.xattrs.push((acl::ACCESS.to_vec(), Some(acl.with_mode(mode).encode())));
        }
        if (owner_changes || set.size.is_some()) && self.has_capability(&inode)? {
            change.xattrs.push((xattrs::CAPABILITY.to_vec(), None));
        }
        let atime = self.take_atime(ino);
        change.atime = change.atime.or(atime.map(SetTime::To));
        let inode = match set.through.filter(|_| set.size.is_some()) {
            Some(through) => self.files.set_attr_through(ino, &change, through)?,
            None => self.files.set_attr(ino, &change)?,
        };
        Ok(self.attr_of(&inode))
    }

    pub(crate) fn has_capability(&self, inode: &Inode) -> Result<bool, VfsError> {
        if !inode.row.has_xattrs {
            return Ok(false);
        }
        match self.files.xattr(inode.ino, xattrs::CAPABILITY) {
            Ok(_) => Ok(true),
            Err(VfsError::NoAttribute) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`VfsError::Invalid`] where the inode is none.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, VfsError> {
        let inode = self.inode(ino)?;
        let target = self.files.read_link(ino)?;
        self.accessed(&inode);
        Ok(target)
    }

    /// A path of an inode, for messages: as far as it can be found without much work, and without asking another machine.
    #[must_use]
    pub fn path_of(&self, ino: Ino) -> Option<Vec<u8>> {
        if self.files.is_shared() {
            return self.files.known_path(ino);
        }
        let mut parts = Vec::new();
        let mut ino = ino;
        while ino != Ino::ROOT && parts.len() < PATH_LEVELS {
            let parent = self.files.inode(ino).ok()?.row.parent;
            let entries = self.files.entries(parent, None, PATH_ENTRIES, false).ok()?;
            parts.push(entries.into_iter().find(|entry| entry.ino == ino)?.name);
            ino = parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Some(if path.is_empty() { b"/".to_vec() } else { path })
    }
}
