//! Extended attributes. Those of ACLs are more than bytes: they are checked, and one goes with the mode.

use forebay_meta::{Inode, MetaError, SetXattr};
use forebay_types::{
    Coherence, Ino,
    limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX},
};

use crate::{
    acl::{self, Acl},
    error::VfsError,
    setid::S_ISGID,
    vfs::Vfs,
};

/// Capabilities of a program; gone when it is changed.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

const TRUSTED: &[u8] = b"trusted.";

/// What `ls -l` asks for of every file, until it is told that a file system has no such thing.
const SELINUX: &[u8] = b"security.selinux";

/// Which rules an attribute follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Plain,
    AccessAcl,
    DefaultAcl,
    /// How machines agree on contents: in no list, so that copies of the file do not bring it along.
    Coherence,
}

fn class(name: &[u8]) -> Result<Class, VfsError> {
    if name.len() > XATTR_NAME_MAX {
        return Err(VfsError::AttributeNameTooLong(name.len()));
    }
    if name == acl::ACCESS {
        return Ok(Class::AccessAcl);
    }
    if name == acl::DEFAULT {
        return Ok(Class::DefaultAcl);
    }
    if name == Coherence::ATTRIBUTE.as_bytes() {
        return Ok(Class::Coherence);
    }
    let prefixes = [b"user.".as_slice(), TRUSTED, b"security."];
    match prefixes.iter().find_map(|prefix| name.strip_prefix(*prefix)) {
        Some([]) => Err(VfsError::Invalid("an attribute's name ends with its prefix")),
        Some(_) => Ok(Class::Plain),
        None => Err(VfsError::NotSupported("an attribute of this kind")),
    }
}

impl Vfs {
    fn class(&self, name: &[u8]) -> Result<Class, VfsError> {
        match class(name)? {
            Class::AccessAcl | Class::DefaultAcl if !self.options.acls => {
                Err(VfsError::NotSupported("an ACL, as the volume is mounted without them,"))
            }
            class => Ok(class),
        }
    }

    /// The value of an attribute.
    ///
    /// # Errors
    /// [`VfsError::NoAttribute`]; [`VfsError::NotSupported`] for another namespace than `user`, `trusted`, `security` and ACLs, and for an SELinux
    /// label that is not there.
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, VfsError> {
        if self.class(name)? == Class::Coherence {
            return Ok(self.inode_or_ghost(ino)?.row.coherence.as_str().into());
        }
        match self.stored_xattr(ino, name) {
            Err(VfsError::NoAttribute) if name == SELINUX => {
                Err(VfsError::NotSupported("an SELinux label that nobody has set"))
            }
            found => found,
        }
    }

    fn stored_xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, VfsError> {
        match self.files.xattr(ino, name) {
            Err(VfsError::Stale(ino)) => {
                self.inode_or_ghost(ino)?;
                Err(VfsError::NoAttribute)
            }
            value => value,
        }
    }

    /// The names of all attributes, each followed by a NUL; those of `trusted` only for who is `trusted`.
    ///
    /// # Errors
    /// [`VfsError::Stale`].
    pub fn listxattr(&self, ino: Ino, trusted: bool) -> Result<Vec<u8>, VfsError> {
        let names = match self.files.xattrs(ino) {
            Err(VfsError::Stale(ino)) => {
                self.inode_or_ghost(ino)?;
                Vec::new()
            }
            names => names?,
        };
        let mut list = Vec::new();
        let is_acl = |name: &[u8]| name == acl::ACCESS || name == acl::DEFAULT;
        let listed =
            |name: &[u8]| (trusted || !name.starts_with(TRUSTED)) && (self.options.acls || !is_acl(name));
        for name in names.iter().filter(|name| listed(name)) {
            list.extend_from_slice(name);
            list.push(0);
        }
        Ok(list)
    }

    /// Sets an attribute. An access ACL changes the mode in the same record, and is kept only where it says more than the mode can;
    /// `kill_sgid`: setting it takes the set-group-id bit away.
    ///
    /// # Errors
    /// [`VfsError::Exists`] or [`VfsError::NoAttribute`] where `mode` wants it otherwise; [`VfsError::Invalid`] for bytes that are no
    /// ACL or no mode; [`VfsError::AttributeForbidden`] for a default ACL or a mode of coherence of what is no directory.
    pub fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
        kill_sgid: bool,
    ) -> Result<(), VfsError> {
        self.writable()?;
        if value.len() > XATTR_VALUE_MAX {
            return Err(VfsError::AttributeTooLarge(value.len()));
        }
        match self.class(name)? {
            Class::Coherence if !self.inode(ino)?.is_directory() => Err(VfsError::AttributeForbidden(ino)),
            Class::Plain | Class::Coherence => match self.files.set_xattr(ino, name, value, mode) {
                Err(VfsError::Meta(MetaError::AttributeExists)) => Err(VfsError::Exists),
                set => set,
            },
            Class::AccessAcl => self.set_access_acl(ino, Acl::decode(value)?, kill_sgid),
            Class::DefaultAcl => self.set_default_acl(ino, Acl::decode(value)?),
        }
    }

    /// Removes an attribute. An ACL that is not there is removed already.
    ///
    /// # Errors
    /// [`VfsError::NoAttribute`], [`VfsError::NotSupported`], [`VfsError::Stale`].
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<(), VfsError> {
        self.writable()?;
        let class = self.class(name)?;
        if class == Class::Coherence && !self.inode(ino)?.is_directory() {
            return Err(VfsError::AttributeForbidden(ino));
        }
        match self.files.remove_xattr(ino, name) {
            Err(VfsError::NoAttribute) if class != Class::Plain => Ok(()),
            removed => removed,
        }
    }

    fn set_access_acl(&self, ino: Ino, acl: Option<Acl>, kill_sgid: bool) -> Result<(), VfsError> {
        let Some(acl) = acl else { return self.removexattr(ino, acl::ACCESS) };
        let inode = self.inode(ino)?;
        let lost = if kill_sgid { S_ISGID } else { 0 };
        let mut set = forebay_meta::SetAttr {
            mode: Some((inode.row.mode & !0o777 & !lost) | acl.mode()),
            ..forebay_meta::SetAttr::default()
        };
        if !acl.is_mode_only() {
            set.xattrs.push((acl::ACCESS.to_vec(), Some(acl.encode())));
        } else if self.has_access_acl(&inode)? {
            set.xattrs.push((acl::ACCESS.to_vec(), None));
        }
        self.files.set_attr(ino, &set)?;
        Ok(())
    }

    fn has_access_acl(&self, inode: &Inode) -> Result<bool, VfsError> {
        Ok(self.acl(inode, acl::ACCESS)?.is_some())
    }

    fn set_default_acl(&self, ino: Ino, acl: Option<Acl>) -> Result<(), VfsError> {
        let Some(acl) = acl else { return self.removexattr(ino, acl::DEFAULT) };
        if !self.inode(ino)?.is_directory() {
            return Err(VfsError::AttributeForbidden(ino));
        }
        self.files.set_xattr(ino, acl::DEFAULT, &acl.encode(), SetXattr::Any)
    }
}
