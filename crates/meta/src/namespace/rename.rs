//! Renaming, in one record whatever it moves.

use forebay_format::row::DentryRow;
use forebay_types::{FileKind, Ino, SubvolumeId};

use super::{
    Namespace, Removed,
    names::{check_name, found, live_directory},
};
use crate::{error::MetaError, log::Urgency, txn::Txn};

/// What a rename does where the new name is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail (`RENAME_NOREPLACE`).
    NoReplace,
    /// Exchange the two (`RENAME_EXCHANGE`); the new name must be taken.
    Exchange,
}

impl Namespace {
    /// Moves `name` of `parent` to `new_name` of `new_parent`; what was replaced is returned.
    ///
    /// # Errors
    /// [`MetaError::Exists`], [`MetaError::NotEmpty`], [`MetaError::IsDirectory`], [`MetaError::NotDirectory`],
    /// [`MetaError::IntoItself`] and those of a look-up.
    pub fn rename(
        &self,
        at: SubvolumeId,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Option<Removed>, MetaError> {
        check_name(from.1)?;
        check_name(to.1)?;
        self.change(at, Urgency::Normal, &[], |txn| {
            let moved = found(txn, from.0, from.1)?;
            live_directory(txn, to.0)?;
            let taken = txn.dentry(to.0, to.1)?;
            match (mode, taken) {
                (RenameMode::NoReplace, Some(_)) => return Err(MetaError::Exists),
                (RenameMode::Exchange, None) => return Err(MetaError::NotFound),
                (_, Some(taken)) if taken.ino == moved.ino => return Ok(None),
                _ => {}
            }
            self.no_cycle(txn, moved, from.0, to.0)?;
            match taken {
                Some(taken) if mode == RenameMode::Exchange => {
                    self.no_cycle(txn, taken, to.0, from.0)?;
                    exchange(txn, (from, moved), (to, taken))?;
                    Ok(None)
                }
                _ => self.replace(txn, (from, moved), to, taken, in_use),
            }
        })
    }

    fn replace(
        &self,
        txn: &mut Txn<'_>,
        (from, moved): ((Ino, &[u8]), DentryRow),
        to: (Ino, &[u8]),
        taken: Option<DentryRow>,
        in_use: &dyn Fn(Ino) -> bool,
    ) -> Result<Option<Removed>, MetaError> {
        let is_directory = moved.kind == FileKind::Directory;
        if let Some(taken) = taken {
            match (is_directory, taken.kind == FileKind::Directory) {
                (true, false) => return Err(MetaError::NotDirectory(taken.ino)),
                (false, true) => return Err(MetaError::IsDirectory(taken.ino)),
                (true, true) => self.must_be_empty(txn, taken.ino)?,
                (false, false) => {}
            }
        }
        txn.move_dentry(from, to, moved)?;
        let directory = txn.directory_mut(from.0)?;
        directory.entries = directory.entries.saturating_sub(1);
        directory.directories = directory.directories.saturating_sub(u32::from(is_directory));
        let directory = txn.directory_mut(to.0)?;
        directory.entries += u64::from(taken.is_none());
        directory.directories += u32::from(is_directory);
        if taken.is_some() {
            directory.directories = directory.directories.saturating_sub(u32::from(is_directory));
        }
        settle(txn, moved.ino, to.0)?;
        taken.map(|taken| self.drop_name(txn, taken.ino, in_use)).transpose()
    }

    /// A directory must not become its own ancestor. All moves have their turn one after the other, so what is seen here holds.
    fn no_cycle(&self, txn: &Txn<'_>, moved: DentryRow, from: Ino, to: Ino) -> Result<(), MetaError> {
        if moved.kind != FileKind::Directory || from == to {
            return Ok(());
        }
        let mut ancestor = to;
        while ancestor != Ino::ROOT {
            if ancestor == moved.ino {
                return Err(MetaError::IntoItself);
            }
            ancestor = self.inode_locked(&txn.lineage, ancestor)?.row.parent;
        }
        Ok(())
    }
}

fn exchange(
    txn: &mut Txn<'_>,
    (from, moved): ((Ino, &[u8]), DentryRow),
    (to, taken): ((Ino, &[u8]), DentryRow),
) -> Result<(), MetaError> {
    txn.put_dentry(to.0, to.1, moved);
    txn.put_dentry(from.0, from.1, taken);
    let count = |row: DentryRow| u32::from(row.kind == FileKind::Directory);
    let directory = txn.directory_mut(from.0)?;
    directory.directories = (directory.directories + count(taken)).saturating_sub(count(moved));
    let directory = txn.directory_mut(to.0)?;
    directory.directories = (directory.directories + count(moved)).saturating_sub(count(taken));
    settle(txn, moved.ino, to.0)?;
    settle(txn, taken.ino, from.0)
}

/// Tells an inode where its name is now.
fn settle(txn: &mut Txn<'_>, ino: Ino, parent: Ino) -> Result<(), MetaError> {
    let now = txn.now;
    let row = txn.row_mut(ino)?;
    row.parent = parent;
    row.ctime = now;
    Ok(())
}
