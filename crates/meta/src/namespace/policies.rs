//! By which policy directories and files go (`docs/design/policies.md`): a number in their rows, which what is made in a directory inherits.

use forebay_format::{
    FormatError, key,
    row::{InodeRow, Row},
};
use forebay_types::{FileKind, Ino, PolicyId, SubvolumeId};

use super::Namespace;
use crate::{error::MetaError, log::Urgency};

/// Regular files that go by a policy, in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyFiles {
    /// Inode, policy, and size in bytes.
    pub files: Vec<(Ino, PolicyId, u64)>,
    /// Inodes whose rows are damaged: nobody can say whether these are such files.
    pub unreadable: Vec<(Ino, FormatError)>,
    /// From where to go on; `None` where there are no more inodes.
    pub next: Option<Ino>,
}

impl Namespace {
    /// Those of about `limit` inodes from one on that are regular files and go by a policy.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn policy_files(&self, at: SubvolumeId, from: Ino, limit: usize) -> Result<PolicyFiles, MetaError> {
        let damaged = |source: FormatError| MetaError::damaged("the key of an inode".to_owned(), source);
        let number = |suffix: &[u8]| {
            let bytes =
                suffix.try_into().map_err(|_| damaged(FormatError::Truncated { what: "a number" }))?;
            Ok::<_, MetaError>(Ino(u64::from_be_bytes(bytes)))
        };
        let owner = self.lock();
        let lineage = owner.lineage(at, None)?;
        let found = lineage.scan(&self.rows, &key::inodes, &from.0.to_be_bytes(), limit)?;
        let mut page = PolicyFiles::default();
        for (suffix, version) in &found.items {
            let ino = number(suffix)?;
            match InodeRow::decode(&version.value) {
                Ok(row) if row.policy != PolicyId::NONE && row.kind == FileKind::Regular => {
                    page.files.push((ino, row.policy, row.size));
                }
                Ok(_) => {}
                Err(source) => page.unreadable.push((ino, source)),
            }
        }
        page.next = found.next.as_deref().map(number).transpose()?;
        Ok(page)
    }

    /// Has inodes go by a policy that go by none or by `over`. Those that go by another stay as they are, and are returned; those that are gone are left out. No time
    /// changes: it is not the inode that is another one.
    ///
    /// # Errors
    /// [`MetaError`]: nothing was changed.
    pub fn give_policy(
        &self,
        at: SubvolumeId,
        inos: &[Ino],
        (policy, over): (PolicyId, PolicyId),
    ) -> Result<Vec<Ino>, MetaError> {
        self.change(at, Urgency::Normal, &[], |txn| {
            let mut kept = Vec::new();
            for ino in inos {
                let has = match txn.inode(*ino) {
                    Ok(inode) => inode.row.policy,
                    Err(MetaError::Stale(_)) => continue,
                    Err(error) => return Err(error),
                };
                if has == PolicyId::NONE || has == over {
                    txn.row_mut(*ino)?.policy = policy;
                } else if has != policy {
                    kept.push(*ino);
                }
            }
            Ok(kept)
        })
    }
}
