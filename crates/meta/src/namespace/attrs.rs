//! Attributes, and the size.

use forebay_format::row::Layout;
use forebay_types::{
    FileKind, Ino, SubvolumeId, Timespec,
    limits::{INLINE_MAX, file_size_max},
};

use super::Namespace;
use crate::{blocks, error::MetaError, inode::Inode, log::Urgency, txn::Txn};

/// A time to be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The time of the operation.
    Now,
    /// This one.
    To(Timespec),
}

/// Attributes to be set; `None` leaves one as it is. Whether the caller may is not asked here.
#[derive(Clone, Debug, Default)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes; bytes beyond it are gone for good, new ones are zeros.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// Last change of the inode, where not the operation's time (as the kernel sets it with its own cache of times).
    pub ctime: Option<Timespec>,
    /// Extended attributes to put in the same record (an ACL that follows the mode).
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// What a write changes besides the data.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteAttr {
    /// Permission and set-id bits that stay (`None`: all): a write by somebody else takes set-id bits away.
    pub mode: Option<u16>,
}

impl Namespace {
    /// Sets attributes, in one record.
    ///
    /// # Errors
    /// [`MetaError::Stale`], [`MetaError::FileTooLarge`], [`MetaError::IsDirectory`] and [`MetaError::Invalid`] for a size of
    /// what has none.
    pub fn set_attr(&self, at: SubvolumeId, ino: Ino, set: &SetAttr) -> Result<Inode, MetaError> {
        let urgency = if set.size.is_some() { Urgency::Reclaim } else { Urgency::Normal };
        self.change(at, urgency, &[], |txn| {
            let now = txn.now;
            if let Some(size) = set.size {
                self.resize(txn, ino, size)?;
            }
            if !set.xattrs.is_empty() {
                let xattrs: Vec<_> =
                    set.xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_deref())).collect();
                self.write_xattrs(txn, ino, &xattrs)?;
            }
            let time = |set: SetTime| match set {
                SetTime::Now => now,
                SetTime::To(time) => time,
            };
            if let (Some(mtime), true) = (set.mtime, txn.inode(ino)?.is_directory()) {
                txn.directory_mut(ino)?.mtime = time(mtime);
            }
            let row = txn.row_mut(ino)?;
            row.mode = set.mode.unwrap_or(row.mode);
            row.uid = set.uid.unwrap_or(row.uid);
            row.gid = set.gid.unwrap_or(row.gid);
            row.atime = set.atime.map_or(row.atime, time);
            row.mtime = set.mtime.map_or(row.mtime, time);
            row.ctime = set.ctime.unwrap_or(now);
            Ok(txn.inode(ino)?.clone())
        })
    }

    /// Notes an access, without a change time.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn set_atime(&self, at: SubvolumeId, ino: Ino, atime: Timespec) -> Result<(), MetaError> {
        self.change(at, Urgency::Normal, &[], |txn| {
            txn.row_mut(ino)?.atime = atime;
            Ok(())
        })
    }

    fn resize(&self, txn: &mut Txn<'_>, ino: Ino, size: u64) -> Result<(), MetaError> {
        let row = txn.inode(ino)?.row;
        match row.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(MetaError::IsDirectory(ino)),
            _ => return Err(MetaError::Invalid("only a regular file has a size that can be set")),
        }
        if size > file_size_max(self.block_size) {
            return Err(MetaError::FileTooLarge(size));
        }
        let now = txn.now;
        if size < row.size {
            self.cut(txn, ino, size)?;
        }
        let row = txn.row_mut(ino)?;
        row.size = size;
        row.mtime = now;
        Ok(())
    }

    /// Removes the data from byte `size` on.
    fn cut(&self, txn: &mut Txn<'_>, ino: Ino, size: u64) -> Result<(), MetaError> {
        let layout = txn.inode(ino)?.row.layout;
        match layout {
            Layout::Empty => Ok(()),
            Layout::Inline => {
                let mut bytes = self.inline_of(&txn.lineage, ino)?;
                bytes.truncate(usize::try_from(size).unwrap_or(INLINE_MAX));
                self.store_inline(txn, ino, &bytes)
            }
            Layout::Single(..) | Layout::Extents => self.remove_range(txn, ino, size, u64::MAX),
        }
    }

    /// Puts the whole inline data of a file that has no extents.
    pub(crate) fn store_inline(&self, txn: &mut Txn<'_>, ino: Ino, bytes: &[u8]) -> Result<(), MetaError> {
        if !bytes.is_empty() {
            txn.put_inline(ino, bytes);
        }
        let row = txn.row_mut(ino)?;
        row.layout = if bytes.is_empty() { Layout::Empty } else { Layout::Inline };
        row.allocated = bytes.len() as u64;
        Ok(())
    }

    /// Removes the extents of bytes `from..to` of a file.
    pub(crate) fn remove_range(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        from: u64,
        to: u64,
    ) -> Result<(), MetaError> {
        if from >= to {
            return Ok(());
        }
        let block_size = u64::from(self.block_size);
        let first = (from / block_size) as u32;
        let last = u32::try_from((to - 1) / block_size).unwrap_or(u32::MAX);
        let mut affected = match txn.inode(ino)?.row.layout {
            Layout::Single(block, ..) => vec![block],
            Layout::Extents => self.blocks_with_rows(&txn.lineage, ino, (first, last), usize::MAX)?,
            Layout::Empty | Layout::Inline => Vec::new(),
        };
        affected.retain(|block| (first..=last).contains(block));
        if from == 0 || affected.contains(&0) {
            txn.block_mut(ino, 0)?;
        }
        for block in affected {
            let start = u64::from(block) * block_size;
            let low = from.saturating_sub(start).min(block_size) as u32;
            let high = (to - start).min(block_size) as u32;
            blocks::carve(txn.block_mut(ino, block)?, low, high);
        }
        Ok(())
    }
}
