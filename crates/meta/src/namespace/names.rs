//! Names: making, linking and removing them.

use forebay_format::{
    key::{self, Item, Key},
    row::{BytesRow, DentryRow, DirectoryRow, InodeRow, Layout, Row},
};
use forebay_types::{
    FileKind, Ino, SubvolumeId,
    limits::{LINK_MAX, NAME_MAX, SYMLINK_MAX, XATTR_LIST_MAX},
};

use super::{Namespace, xattrs::check_xattr};
use crate::{
    error::MetaError,
    inode::{Inode, NewInode},
    log::Urgency,
    txn::Txn,
};

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode it stands for.
    pub ino: Ino,
    /// What that is.
    pub kind: FileKind,
}

/// What removing a name did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Removed {
    /// The inode as it was left: without the name.
    pub inode: Inode,
    /// Whether that was its last name.
    pub last: bool,
    /// Whether something of it is left for [`Namespace::purge`].
    pub orphan: bool,
}

impl Namespace {
    /// Makes an inode with a name.
    ///
    /// # Errors
    /// [`MetaError::Exists`] and those of a look-up.
    pub fn make(
        &self,
        at: SubvolumeId,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
    ) -> Result<Inode, MetaError> {
        self.make_with(at, parent, name, new, None)
    }

    /// The same, with a number that was handed out ([`Namespace::new_runs`]) and never used.
    ///
    /// # Errors
    /// Those of [`Namespace::make`]; [`MetaError::Invalid`] where the number was not handed out or is in use.
    pub fn make_numbered(
        &self,
        at: SubvolumeId,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        ino: Ino,
    ) -> Result<Inode, MetaError> {
        self.make_with(at, parent, name, new, Some(ino))
    }

    fn make_with(
        &self,
        at: SubvolumeId,
        parent: Ino,
        name: &[u8],
        new: &NewInode,
        ino: Option<Ino>,
    ) -> Result<Inode, MetaError> {
        check_name(name)?;
        self.change(at, Urgency::Normal, &[], |txn| {
            live_directory(txn, parent)?;
            if txn.dentry(parent, name)?.is_some() {
                return Err(MetaError::Exists);
            }
            let inode = self.add(txn, parent, new, (1, ino))?;
            let row = DentryRow { ino: inode.ino, kind: new.kind };
            txn.put_dentry(parent, name, row);
            let directory = txn.directory_mut(parent)?;
            directory.entries += 1;
            directory.directories += u32::from(new.kind == FileKind::Directory);
            Ok(inode)
        })
    }

    /// Makes a regular file without a name (`O_TMPFILE`): an orphan until it gets one.
    ///
    /// # Errors
    /// Those of [`Namespace::make`].
    pub fn make_nameless(&self, at: SubvolumeId, parent: Ino, new: &NewInode) -> Result<Inode, MetaError> {
        self.change(at, Urgency::Normal, &[], |txn| {
            live_directory(txn, parent)?;
            self.add(txn, parent, new, (0, None))
        })
    }

    fn add(
        &self,
        txn: &mut Txn<'_>,
        parent: Ino,
        new: &NewInode,
        (nlink, ino): (u32, Option<Ino>),
    ) -> Result<Inode, MetaError> {
        if new.target.len() > SYMLINK_MAX {
            return Err(MetaError::NameTooLong(new.target.len()));
        }
        if new.xattrs.iter().map(|(name, _)| name.len() + 1).sum::<usize>() > XATTR_LIST_MAX {
            return Err(MetaError::Invalid("the attributes of a new inode are too many"));
        }
        for (name, value) in &new.xattrs {
            check_xattr(name, value)?;
        }
        let ino = match ino {
            Some(ino) => unused(txn, ino)?,
            None => self.new_ino(txn.owner, txn.subvolume, parent),
        };
        let now = txn.now;
        let InodeRow { coherence, policy, .. } = txn.inode(parent)?.row;
        let row = InodeRow {
            kind: new.kind,
            mode: new.mode,
            nlink,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            size: new.target.len() as u64,
            allocated: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            parent,
            has_xattrs: !new.xattrs.is_empty(),
            has_cuts: false,
            coherence,
            policy,
            layout: if new.target.is_empty() { Layout::Empty } else { Layout::Inline },
        };
        let empty = DirectoryRow { entries: 0, directories: 0, mtime: now, ctime: now };
        let directory = (new.kind == FileKind::Directory).then_some(empty);
        if !new.target.is_empty() {
            txn.put_inline(ino, &new.target);
        }
        for (name, value) in &new.xattrs {
            txn.put(&Item::Xattr(ino, name.clone()), BytesRow(value.clone()).encode());
        }
        let inode = Inode { ino, row, directory, cuts: Vec::new(), row_at_head: true };
        txn.add_inode(inode.clone());
        Ok(inode)
    }

    /// Gives an inode another name.
    ///
    /// # Errors
    /// [`MetaError::Exists`], [`MetaError::IsDirectory`], [`MetaError::TooManyLinks`], [`MetaError::Stale`] and those of a look-up.
    pub fn link(&self, at: SubvolumeId, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode, MetaError> {
        check_name(name)?;
        self.change(at, Urgency::Normal, &[], |txn| {
            live_directory(txn, parent)?;
            if txn.dentry(parent, name)?.is_some() {
                return Err(MetaError::Exists);
            }
            let now = txn.now;
            let row = txn.row_mut(ino)?;
            match row.kind {
                FileKind::Directory => return Err(MetaError::IsDirectory(ino)),
                _ if row.nlink >= LINK_MAX => return Err(MetaError::TooManyLinks(ino)),
                _ => {}
            }
            row.nlink += 1;
            row.ctime = now;
            let (kind, was_nameless) = (row.kind, row.nlink == 1);
            if was_nameless {
                row.parent = parent;
            }
            txn.put_dentry(parent, name, DentryRow { ino, kind });
            txn.directory_mut(parent)?.entries += 1;
            Ok(txn.inode(ino)?.clone())
        })
    }

    /// Removes a name that is not a directory's. `in_use` says of the inode whether somebody still needs it without a name.
    ///
    /// # Errors
    /// [`MetaError::IsDirectory`] and those of a look-up.
    pub fn unlink(
        &self,
        at: SubvolumeId,
        parent: Ino,
        name: &[u8],
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Removed, MetaError> {
        check_name(name)?;
        self.change(at, Urgency::Reclaim, &[], |txn| {
            let dentry = found(txn, parent, name)?;
            if dentry.kind == FileKind::Directory {
                return Err(MetaError::IsDirectory(dentry.ino));
            }
            txn.delete_dentry(parent, name)?;
            let directory = txn.directory_mut(parent)?;
            directory.entries = directory.entries.saturating_sub(1);
            self.drop_name(txn, dentry.ino, in_use)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`MetaError::NotDirectory`], [`MetaError::NotEmpty`] and those of a look-up.
    pub fn rmdir(
        &self,
        at: SubvolumeId,
        parent: Ino,
        name: &[u8],
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Removed, MetaError> {
        check_name(name)?;
        self.change(at, Urgency::Reclaim, &[], |txn| {
            let dentry = found(txn, parent, name)?;
            if dentry.kind != FileKind::Directory {
                return Err(MetaError::NotDirectory(dentry.ino));
            }
            self.must_be_empty(txn, dentry.ino)?;
            txn.delete_dentry(parent, name)?;
            let directory = txn.directory_mut(parent)?;
            directory.entries = directory.entries.saturating_sub(1);
            directory.directories = directory.directories.saturating_sub(1);
            self.drop_name(txn, dentry.ino, in_use)
        })
    }

    pub(crate) fn must_be_empty(&self, txn: &mut Txn<'_>, ino: Ino) -> Result<(), MetaError> {
        let entries = txn.inode(ino)?.directory.as_ref().map_or(0, |directory| directory.entries);
        if entries > 0 { Err(MetaError::NotEmpty(ino)) } else { Ok(()) }
    }

    /// Takes one name off an inode whose entry was removed.
    pub(crate) fn drop_name(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Removed, MetaError> {
        let now = txn.now;
        let row = txn.row_mut(ino)?;
        row.ctime = now;
        row.nlink = if row.kind == FileKind::Directory { 0 } else { row.nlink.saturating_sub(1) };
        let last = row.nlink == 0;
        let inode = txn.inode(ino)?.clone();
        let orphan = last && (in_use(ino) || !self.purge_in(txn, ino)?);
        Ok(Removed { inode, last, orphan })
    }

    /// Removes what is left of an inode without a name. Returns whether all is gone now; else it is to be called again.
    ///
    /// # Errors
    /// [`MetaError`]. An inode that is gone is a success.
    pub fn purge(&self, at: SubvolumeId, ino: Ino) -> Result<bool, MetaError> {
        self.change(at, Urgency::Reclaim, &[], |txn| {
            match txn.inode(ino) {
                Ok(inode) if inode.row.nlink > 0 => return Ok(true),
                Ok(_) => {}
                Err(MetaError::Stale(_)) => {
                    txn.forget_orphan(ino);
                    return Ok(true);
                }
                Err(error) => return Err(error),
            }
            self.purge_in(txn, ino)
        })
    }

    /// Removes an inode without a name, and returns true; one with many extents loses some of them.
    fn purge_in(&self, txn: &mut Txn<'_>, ino: Ino) -> Result<bool, MetaError> {
        if !self.purge_extents(txn, ino)? {
            return Ok(false);
        }
        let row = txn.inode(ino)?.row;
        if row.has_xattrs {
            for name in self.xattr_names(&txn.lineage.clone(), ino)? {
                txn.delete(&Item::Xattr(ino, name))?;
            }
        }
        if row.layout == Layout::Inline {
            txn.delete(&Item::Inline(ino))?;
        }
        txn.remove_inode(ino)?;
        Ok(true)
    }

    /// The inodes of which something is still to be removed: those without a name, to be purged once nobody has them open, and those that were cut, to
    /// be cleaned.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn orphans(&self) -> Result<Vec<(SubvolumeId, Ino)>, MetaError> {
        let _turn = self.lock();
        let rows = self.rows.with_prefix(&key::orphans())?;
        rows.iter()
            .map(|(key, _)| match crate::txn::decode_key(key)? {
                Key::Orphan(subvolume, ino) => Ok((subvolume, ino)),
                _ => Err(MetaError::Invalid("a row that is no orphan among the orphans")),
            })
            .collect()
    }
}

/// A number that somebody chose among those handed out: nothing may have it.
fn unused(txn: &mut Txn<'_>, ino: Ino) -> Result<Ino, MetaError> {
    if ino.run() == 0 || ino.run() >= txn.owner.counters.run {
        return Err(MetaError::Invalid("the number of an inode was not handed out"));
    }
    match txn.inode(ino) {
        Err(MetaError::Stale(_)) => Ok(ino),
        Ok(_) => Err(MetaError::Invalid("the number of an inode is in use")),
        Err(error) => Err(error),
    }
}

/// The directory must be there, be one, and have a name: nothing can be made in one that was removed.
pub(crate) fn live_directory(txn: &mut Txn<'_>, ino: Ino) -> Result<(), MetaError> {
    let inode = txn.inode(ino)?;
    match inode.row.kind {
        FileKind::Directory if inode.row.nlink == 0 => Err(MetaError::NotFound),
        FileKind::Directory => Ok(()),
        _ => Err(MetaError::NotDirectory(ino)),
    }
}

pub(crate) fn found(txn: &mut Txn<'_>, parent: Ino, name: &[u8]) -> Result<DentryRow, MetaError> {
    if !txn.inode(parent)?.is_directory() {
        return Err(MetaError::NotDirectory(parent));
    }
    txn.dentry(parent, name)?.ok_or(MetaError::NotFound)
}

pub(crate) fn check_name(name: &[u8]) -> Result<(), MetaError> {
    match name {
        [] | b"." | b".." => Err(MetaError::Invalid("not a name for an entry")),
        _ if name.len() > NAME_MAX => Err(MetaError::NameTooLong(name.len())),
        _ if name.contains(&0) || name.contains(&b'/') => {
            Err(MetaError::Invalid("a name has a NUL or a slash"))
        }
        _ => Ok(()),
    }
}
