//! Names: looking up, making, linking, removing and moving them.

use forebay_meta::{Removed, RenameMode};
use forebay_types::{Attr, FileKind, Ino};

use crate::{
    creation::Wanted,
    error::VfsError,
    open_files::{Open, Opened},
    options::Caller,
    squash::Wish,
    vfs::Vfs,
};

/// How often a file is asked for by its name that is gone each time it is opened: then its name leads nowhere.
const TRIES: u32 = 100;

impl Vfs {
    /// What a name stands for. `.` and `..` are answered too, as one who exports the file system asks.
    ///
    /// # Errors
    /// [`VfsError::NotFound`], [`VfsError::NotDirectory`]; [`VfsError::Stale`] for `.` of an inode that is gone.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, VfsError> {
        let inode = match name {
            b"." => self.inode(parent)?,
            b".." => {
                let directory = self.inode(parent)?;
                if !directory.is_directory() {
                    return Err(VfsError::NotDirectory(parent));
                }
                self.inode(directory.row.parent)?
            }
            _ => self.files.lookup(parent, name).map_err(VfsError::by_name)?,
        };
        Ok(self.attr_of(&inode))
    }

    /// Makes a file that is no directory, or a FIFO, socket or device.
    ///
    /// # Errors
    /// [`VfsError::Exists`] and those of a look-up.
    pub fn mknod(
        &self,
        parent: Ino,
        name: &[u8],
        (kind, mode, umask): (FileKind, u16, u16),
        rdev: u32,
        caller: &Caller<'_>,
    ) -> Result<Attr, VfsError> {
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(VfsError::Invalid("mknod makes neither directories nor symbolic links"));
        }
        let rdev = if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) { rdev } else { 0 };
        self.make(parent, name, Wanted { kind, mode, umask, rdev, target: Vec::new() }, caller)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`VfsError::Exists`] and those of a look-up.
    pub fn mkdir(
        &self,
        parent: Ino,
        name: &[u8],
        mode: u16,
        umask: u16,
        caller: &Caller<'_>,
    ) -> Result<Attr, VfsError> {
        let kind = FileKind::Directory;
        self.make(parent, name, Wanted { kind, mode, umask, rdev: 0, target: Vec::new() }, caller)
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// [`VfsError::Exists`] and those of a look-up; [`VfsError::NotFound`] for an empty target.
    pub fn symlink(
        &self,
        parent: Ino,
        name: &[u8],
        target: &[u8],
        caller: &Caller<'_>,
    ) -> Result<Attr, VfsError> {
        if target.is_empty() {
            return Err(VfsError::NotFound);
        }
        let (kind, target) = (FileKind::Symlink, target.to_vec());
        self.make(parent, name, Wanted { kind, mode: 0o777, umask: 0, rdev: 0, target }, caller)
    }

    fn make(&self, parent: Ino, name: &[u8], wanted: Wanted, caller: &Caller<'_>) -> Result<Attr, VfsError> {
        let new = self.new_inode(parent, wanted, caller)?;
        let inode = self.files.make(parent, name, &new).map_err(VfsError::by_name)?;
        Ok(self.attr_of(&inode))
    }

    /// Makes and opens a regular file; opens the one that is there unless `exclusive`.
    ///
    /// # Errors
    /// [`VfsError::Exists`], [`VfsError::IsDirectory`] and those of a look-up.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        (mode, umask): (u16, u16),
        (open, exclusive): (Open, bool),
        caller: &Caller<'_>,
    ) -> Result<(Attr, Opened), VfsError> {
        let mut left = TRIES;
        loop {
            let wanted = Wanted { kind: FileKind::Regular, mode, umask, rdev: 0, target: Vec::new() };
            match self.make(parent, name, wanted, caller) {
                Err(VfsError::Exists) if !exclusive => {}
                made => {
                    let attr = made?;
                    let opened = self.open(attr.ino, Open { truncate: false, ..open })?;
                    return Ok((attr, opened));
                }
            }
            // Another machine may remove it, or put another in its place, at any moment.
            match self.open_named(parent, name, open, caller) {
                Err(VfsError::NotFound | VfsError::Stale(_)) if left > 0 => left -= 1,
                opened => return opened,
            }
        }
    }

    /// Opens the file that a name stands for.
    fn open_named(
        &self,
        parent: Ino,
        name: &[u8],
        open: Open,
        caller: &Caller<'_>,
    ) -> Result<(Attr, Opened), VfsError> {
        let attr = self.lookup(parent, name)?;
        if attr.kind == FileKind::Directory {
            return Err(VfsError::IsDirectory(attr.ino));
        }
        self.permits(caller, Wish::Access(attr.ino, if open.read_only { 4 } else { 6 }))?;
        let opened = self.open(attr.ino, open)?;
        match self.getattr(attr.ino) {
            Ok(attr) => Ok((attr, opened)),
            Err(error) => {
                self.release(attr.ino, opened.fh, None);
                Err(error)
            }
        }
    }

    /// Makes and opens a regular file without a name (`O_TMPFILE`). `linkable`: it may get one (no `O_EXCL`).
    ///
    /// # Errors
    /// Those of [`Vfs::create`].
    pub fn tmpfile(
        &self,
        parent: Ino,
        (mode, umask): (u16, u16),
        linkable: bool,
        caller: &Caller<'_>,
    ) -> Result<(Attr, Opened), VfsError> {
        let wanted = Wanted { kind: FileKind::Regular, mode, umask, rdev: 0, target: Vec::new() };
        let new = self.new_inode(parent, wanted, caller)?;
        let inode = self.files.make_nameless(parent, &new).map_err(VfsError::by_name)?;
        let opened = self.open(inode.ino, Open::default())?;
        if linkable {
            self.open.set_linkable(inode.ino);
        }
        Ok((self.attr_of(&inode), opened))
    }

    /// Gives an inode another name. One whose last name was removed gets none again.
    ///
    /// # Errors
    /// [`VfsError::LinkOfDirectory`], [`VfsError::Exists`], [`VfsError::NotFound`] and those of a look-up.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr, VfsError> {
        self.writable()?;
        let inode = self.inode(ino).map_err(VfsError::by_name)?;
        if inode.is_directory() {
            return Err(VfsError::LinkOfDirectory(ino));
        }
        if inode.row.nlink == 0 && !self.open.is_linkable(ino) {
            return Err(VfsError::NotFound);
        }
        let inode = self.files.link(ino, parent, name).map_err(VfsError::by_name)?;
        self.open.named(ino);
        Ok(self.attr_of(&inode))
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// [`VfsError::IsDirectory`] and those of a look-up.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), VfsError> {
        self.remove(|in_use| self.files.unlink(parent, name, in_use).map(Some))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`VfsError::NotDirectory`], [`forebay_meta::MetaError::NotEmpty`] and those of a look-up.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<(), VfsError> {
        self.remove(|in_use| self.files.rmdir(parent, name, in_use).map(Some))
    }

    /// Moves a name.
    ///
    /// # Errors
    /// [`VfsError::Exists`], [`VfsError::IsDirectory`], [`VfsError::NotDirectory`], [`forebay_meta::MetaError::NotEmpty`],
    /// [`forebay_meta::MetaError::IntoItself`] and those of a look-up.
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<(), VfsError> {
        self.remove(|in_use| self.files.rename(from, to, mode, in_use))
    }

    /// Runs what may take an inode's last name.
    fn remove(
        &self,
        work: impl FnOnce(&dyn Fn(Ino) -> bool) -> Result<Option<Removed>, VfsError>,
    ) -> Result<(), VfsError> {
        self.writable()?;
        let _removing = self.ghosts.removing();
        let removed = work(&|ino| self.open.is_open(ino)).map_err(VfsError::by_name)?;
        match removed {
            // Its last handle may have been closed since the removal asked.
            Some(Removed { inode, orphan: true, .. }) => self.settle_nameless(inode.ino),
            Some(Removed { inode, last: true, .. }) => self.keep_ghost(inode),
            _ => {}
        }
        Ok(())
    }
}
