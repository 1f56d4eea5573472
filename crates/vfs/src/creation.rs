//! What a new inode inherits from its directory: the group, and ACLs.

use forebay_meta::{Inode, NewInode};
use forebay_types::{FileKind, Ino};

use crate::{
    acl::{self, Acl},
    error::VfsError,
    options::Caller,
    setid::{S_ISGID, S_IXGRP},
    squash::Wish,
    vfs::Vfs,
};

/// What is to be made, before its directory has its say.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: FileKind,
    pub(crate) mode: u16,
    pub(crate) umask: u16,
    pub(crate) rdev: u32,
    pub(crate) target: Vec<u8>,
}

impl Vfs {
    pub(crate) fn new_inode(
        &self,
        parent: Ino,
        wanted: Wanted,
        caller: &Caller<'_>,
    ) -> Result<NewInode, VfsError> {
        self.writable()?;
        let directory = self.inode(parent).map_err(VfsError::by_name)?;
        if !directory.is_directory() {
            return Err(VfsError::NotDirectory(parent));
        }
        self.permits(caller, Wish::MakeName(parent))?;
        let inherited = match wanted.kind {
            FileKind::Symlink => None,
            _ if !self.options.acls => None,
            _ => self.acl(&directory, acl::DEFAULT)?,
        };
        Ok(inherit(&directory, inherited, wanted, caller))
    }

    /// The ACL that an inode has under this name.
    pub(crate) fn acl(&self, inode: &Inode, name: &[u8]) -> Result<Option<Acl>, VfsError> {
        if !inode.row.has_xattrs {
            return Ok(None);
        }
        match self.files.xattr(inode.ino, name) {
            Ok(bytes) => Acl::decode(&bytes),
            Err(VfsError::NoAttribute) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn inherit(directory: &Inode, default: Option<Acl>, wanted: Wanted, caller: &Caller<'_>) -> NewInode {
    let is_directory = wanted.kind == FileKind::Directory;
    let by_group = directory.row.mode & S_ISGID != 0;
    let gid = if by_group { directory.row.gid } else { caller.gid };
    let mut mode = wanted.mode & 0o7777;
    if by_group && is_directory {
        mode |= S_ISGID;
    } else if by_group && mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP {
        // Nobody gets a program that runs with the rights of a group they are not in.
        if caller.uid != 0 && !(caller.in_group)(gid) {
            mode &= !S_ISGID;
        }
    }
    let mut xattrs = Vec::new();
    match default {
        None if wanted.kind == FileKind::Symlink => mode = 0o777,
        None => mode &= !wanted.umask | !0o777,
        Some(default) => {
            let (access, bits) = default.clone().for_new(mode);
            mode = mode & !0o777 | bits;
            if !access.is_mode_only() {
                xattrs.push((acl::ACCESS.to_vec(), access.encode()));
            }
            if is_directory {
                xattrs.push((acl::DEFAULT.to_vec(), default.encode()));
            }
        }
    }
    NewInode {
        kind: wanted.kind,
        mode,
        uid: caller.uid,
        gid,
        rdev: wanted.rdev,
        target: wanted.target,
        xattrs,
    }
}
