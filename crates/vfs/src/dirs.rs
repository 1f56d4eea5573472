//! Open directories.

use std::sync::Arc;

use forebay_types::{FileKind, Ino};
use parking_lot::Mutex;

use crate::{
    cursor::{Cursor, Listed},
    error::VfsError,
    handover::HeldDir,
    vfs::Vfs,
};

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDir {
    ino: Ino,
    /// Whether the handle counts, which keeps what it is on from being removed.
    counted: bool,
    cursor: Mutex<Cursor>,
}

impl Vfs {
    /// Opens a directory. It stays usable until [`Vfs::releasedir`]; one that was removed has no entries.
    ///
    /// # Errors
    /// [`VfsError::Stale`], [`VfsError::NotDirectory`].
    pub fn opendir(&self, ino: Ino) -> Result<u64, VfsError> {
        let counted = self.open.open(ino, || self.files.opened(ino));
        let is_directory = self.inode_or_ghost(ino).map(|inode| inode.is_directory());
        if !matches!(is_directory, Ok(true)) {
            if counted {
                self.close(ino);
            }
            return Err(is_directory.err().unwrap_or(VfsError::NotDirectory(ino)));
        }
        let fh = self.new_handle();
        self.dirs.write().insert(fh, Arc::new(OpenDir { ino, counted, cursor: Mutex::default() }));
        Ok(fh)
    }

    /// An open directory ends.
    pub fn releasedir(&self, fh: u64) {
        let open = self.dirs.write().remove(&fh);
        if let Some(open) = open.filter(|open| open.counted) {
            self.close(open.ino);
        }
    }

    /// Gives the entries from `cookie` on to `emit`, until it takes no more. Cookie 0 is the start; others came with an entry of this
    /// handle.
    ///
    /// # Errors
    /// [`VfsError::BadHandle`], [`VfsError::Meta`]; not once an entry was given.
    pub fn readdir(
        &self,
        fh: u64,
        cookie: u64,
        emit: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<(), VfsError> {
        self.list(fh, cookie, false, emit)
    }

    /// `inodes`: those of the entries will be asked for.
    fn list(
        &self,
        fh: u64,
        cookie: u64,
        inodes: bool,
        emit: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<(), VfsError> {
        let open = self.dirs.read().get(&fh).cloned().ok_or(VfsError::BadHandle(fh))?;
        let inode = match self.inode_or_ghost(open.ino) {
            Ok(inode) => inode,
            Err(VfsError::Stale(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut given = false;
        let mut emit = |listed: Listed<'_>| {
            let takes = emit(listed);
            given |= takes;
            takes
        };
        let fetch = |after: Option<&[u8]>, limit| self.files.entries(open.ino, after, limit, inodes);
        let listed = open.cursor.lock().list(cookie, &inode, &fetch, &mut emit);
        match listed {
            Err(error) if !given => Err(error),
            _ => {
                self.accessed(&inode);
                Ok(())
            }
        }
    }

    /// As [`Vfs::readdir`], with attributes.
    ///
    /// # Errors
    /// As [`Vfs::readdir`].
    pub fn readdirplus(
        &self,
        fh: u64,
        cookie: u64,
        emit: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> Result<(), VfsError> {
        let mut failed = None;
        let mut given = false;
        self.list(fh, cookie, true, &mut |listed| {
            let is_dot = listed.kind == FileKind::Directory && matches!(listed.name, b"." | b"..");
            let attr = match self.files.inode(listed.ino) {
                _ if is_dot => None,
                Ok(inode) => Some(self.attr_of(&inode)),
                // Removed since it was read from the directory.
                Err(VfsError::Stale(_)) => return true,
                Err(error) => {
                    failed = Some(error);
                    return false;
                }
            };
            let takes = emit(Listed { attr, ..listed });
            given |= takes;
            takes
        })?;
        match failed {
            Some(error) if !given => Err(error),
            _ => Ok(()),
        }
    }

    /// The directories that are open.
    pub(crate) fn held_dirs(&self) -> Vec<HeldDir> {
        let dirs = self.dirs.read();
        let held = |(fh, open): (&u64, &Arc<OpenDir>)| HeldDir {
            fh: *fh,
            ino: open.ino,
            counted: open.counted,
            place: open.cursor.lock().place(),
        };
        dirs.iter().map(held).collect()
    }

    /// Puts in place what [`Vfs::held_dirs`] gave.
    pub(crate) fn restore_dirs(&self, held: Vec<HeldDir>) {
        let open = |HeldDir { fh, ino, counted, place }| {
            (fh, Arc::new(OpenDir { ino, counted, cursor: Mutex::new(Cursor::at(place)) }))
        };
        self.dirs.write().extend(held.into_iter().map(open));
    }

    /// Makes a directory's entries as durable as the volume's class promises.
    ///
    /// # Errors
    /// [`VfsError`]: what was not synced before may be lost.
    pub fn fsyncdir(&self, ino: Ino) -> Result<(), VfsError> {
        self.fsync(ino)
    }
}
