//! How machines agree on the contents of files (`docs/design/coherence-modes.md`): a directory's mode, and the end of an immutable file's making.

use forebay_types::{Coherence, FileKind, Ino, SubvolumeId};

use super::Namespace;
use crate::{error::MetaError, log::Urgency};

impl Namespace {
    /// Sets the mode of what will be made in a directory. What is in it keeps its own.
    pub(crate) fn set_coherence(
        &self,
        at: SubvolumeId,
        ino: Ino,
        coherence: Coherence,
    ) -> Result<(), MetaError> {
        self.change(at, Urgency::Normal, &[], |txn| {
            let now = txn.now;
            let row = txn.row_mut(ino)?;
            if row.kind != FileKind::Directory {
                return Err(MetaError::NotDirectory(ino));
            }
            (row.coherence, row.ctime) = (coherence, now);
            Ok(())
        })
    }

    /// Makes the contents of files final that were made in immutable directories and have any. Others, and those that are gone, stay as they are.
    ///
    /// # Errors
    /// [`MetaError`]: nothing was changed.
    pub fn seal(&self, at: SubvolumeId, inos: &[Ino]) -> Result<(), MetaError> {
        self.change(at, Urgency::Normal, &[], |txn| {
            for ino in inos {
                let row = match txn.inode(*ino) {
                    Ok(inode) => inode.row,
                    Err(MetaError::Stale(_)) => continue,
                    Err(error) => return Err(error),
                };
                let written = row.kind == FileKind::Regular && row.size > 0;
                if written && row.coherence == Coherence::Immutable {
                    txn.row_mut(*ino)?.coherence = Coherence::Sealed;
                }
            }
            Ok(())
        })
    }
}
