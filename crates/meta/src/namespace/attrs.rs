//! Attributes, and the size.

use forebay_format::row::Layout;
use forebay_types::{
    Coherence, FileKind, Ino, SubvolumeId, Timespec,
    limits::{INLINE_MAX, file_size_max},
};

use super::Namespace;
use crate::{error::MetaError, inode::Inode, log::Urgency, txn::Txn};

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
        if set.size.is_some() {
            self.limit_cuts(at, ino)?;
        }
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
        if row.coherence == Coherence::Sealed {
            return Err(MetaError::Sealed(ino));
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
        let beside = self.beside_inline(txn, ino)?;
        let row = txn.row_mut(ino)?;
        row.layout = if bytes.is_empty() { Layout::Empty } else { Layout::Inline };
        row.allocated = beside + bytes.len() as u64;
        Ok(())
    }

    /// Bytes that a file without extents has stored besides its inline data: what was cut off.
    pub(crate) fn beside_inline(&self, txn: &mut Txn<'_>, ino: Ino) -> Result<u64, MetaError> {
        let row = txn.inode(ino)?.row;
        let inline = match row.layout {
            _ if !row.has_cuts => return Ok(0),
            Layout::Inline => self.inline_of(&txn.lineage, ino)?.len(),
            _ => 0,
        };
        Ok(row.allocated.saturating_sub(inline as u64))
    }
}
