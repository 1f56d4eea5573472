//! Extended attributes: a row each.

use std::collections::BTreeSet;

use forebay_format::{
    key::{self, Item},
    row::{BytesRow, Row},
};
use forebay_types::{
    Coherence, Ino, SubvolumeId,
    limits::{XATTR_LIST_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX},
};

use super::Namespace;
use crate::{error::MetaError, log::Urgency, tree::Lineage, txn::Txn};

/// Whether an attribute may or must exist before it is set (setxattr(2)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetXattr {
    /// Either way.
    Any,
    /// It must not (`XATTR_CREATE`).
    Create,
    /// It must (`XATTR_REPLACE`).
    Replace,
}

/// Whether an attribute can be stored: engines take no longer keys and values.
pub(super) fn check_xattr(name: &[u8], value: &[u8]) -> Result<(), MetaError> {
    match name.is_empty() || name.len() > XATTR_NAME_MAX || value.len() > XATTR_VALUE_MAX {
        true => Err(MetaError::Invalid("the attribute's name or value is too long")),
        false => Ok(()),
    }
}

impl Namespace {
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`MetaError::NoAttribute`], [`MetaError::Stale`].
    pub fn xattr(&self, at: SubvolumeId, ino: Ino, name: &[u8]) -> Result<Vec<u8>, MetaError> {
        let row = self.inode(at, ino)?.row;
        if name == Coherence::ATTRIBUTE.as_bytes() {
            return Ok(row.coherence.as_str().into());
        }
        if !row.has_xattrs {
            return Err(MetaError::NoAttribute);
        }
        let owner = self.lock();
        let lineage = owner.lineage(at, None)?;
        self.read_xattr(&lineage, ino, name)?.ok_or(MetaError::NoAttribute)
    }

    /// The names of an inode's attributes.
    ///
    /// # Errors
    /// [`MetaError::Stale`].
    pub fn xattrs(&self, at: SubvolumeId, ino: Ino) -> Result<Vec<Vec<u8>>, MetaError> {
        if !self.inode(at, ino)?.row.has_xattrs {
            return Ok(Vec::new());
        }
        let owner = self.lock();
        let lineage = owner.lineage(at, None)?;
        self.xattr_names(&lineage, ino)
    }

    /// Sets an attribute. [`Coherence::ATTRIBUTE`] is what a directory's row says: it is always there, and in no list.
    ///
    /// # Errors
    /// [`MetaError::NoAttribute`], [`MetaError::AttributeExists`], [`MetaError::TooManyAttributes`], [`MetaError::Invalid`] for a
    /// name or value that is too long or a mode that there is not, [`MetaError::NotDirectory`] for the mode of what is none.
    pub fn set_xattr(
        &self,
        at: SubvolumeId,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> Result<(), MetaError> {
        check_xattr(name, value)?;
        if name == Coherence::ATTRIBUTE.as_bytes() {
            let coherence = Coherence::to_set(value)
                .map_err(|_| MetaError::Invalid("coherence is coherent, close-to-open or immutable"))?;
            return match mode {
                SetXattr::Create => Err(MetaError::AttributeExists),
                SetXattr::Any | SetXattr::Replace => self.set_coherence(at, ino, coherence),
            };
        }
        self.change(at, Urgency::Normal, &[], |txn| {
            let exists = self.read_xattr(&txn.lineage, ino, name)?.is_some();
            match (mode, exists) {
                (SetXattr::Create, true) => return Err(MetaError::AttributeExists),
                (SetXattr::Replace, false) => return Err(MetaError::NoAttribute),
                _ => {}
            }
            self.write_xattrs(txn, ino, &[(name, Some(value))])
        })
    }

    /// Removes an attribute; without [`Coherence::ATTRIBUTE`] a directory is coherent.
    ///
    /// # Errors
    /// [`MetaError::NoAttribute`], [`MetaError::Stale`], [`MetaError::NotDirectory`].
    pub fn remove_xattr(&self, at: SubvolumeId, ino: Ino, name: &[u8]) -> Result<(), MetaError> {
        if name == Coherence::ATTRIBUTE.as_bytes() {
            return self.set_coherence(at, ino, Coherence::Coherent);
        }
        self.change(at, Urgency::Reclaim, &[], |txn| {
            if self.read_xattr(&txn.lineage, ino, name)?.is_none() {
                return Err(MetaError::NoAttribute);
            }
            self.write_xattrs(txn, ino, &[(name, None)])
        })
    }

    /// Sets (`Some`) and removes (`None`) attributes; one that is to be removed need not be there. At most one call an operation.
    pub(crate) fn write_xattrs(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        set: &[(&[u8], Option<&[u8]>)],
    ) -> Result<(), MetaError> {
        for (name, value) in set {
            check_xattr(name, value.unwrap_or_default())?;
        }
        let mut names: BTreeSet<Vec<u8>> = match txn.inode(ino)?.row.has_xattrs {
            true => self.xattr_names(&txn.lineage, ino)?.into_iter().collect(),
            false => BTreeSet::new(),
        };
        let mut added = false;
        for (name, value) in set {
            let item = Item::Xattr(ino, name.to_vec());
            match value {
                Some(value) => {
                    txn.put(&item, BytesRow(value.to_vec()).encode());
                    added |= names.insert(name.to_vec());
                }
                None if names.remove(*name) => txn.delete(&item)?,
                None => {}
            }
        }
        let total: usize = names.iter().map(|name| name.len() + 1).sum();
        if added && total > XATTR_LIST_MAX {
            return Err(MetaError::TooManyAttributes(ino));
        }
        let now = txn.now;
        let row = txn.row_mut(ino)?;
        row.has_xattrs = !names.is_empty();
        row.ctime = now;
        Ok(())
    }

    pub(crate) fn read_xattr(
        &self,
        lineage: &Lineage,
        ino: Ino,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, MetaError> {
        let version = lineage.get(&self.rows, &Item::Xattr(ino, name.to_vec()))?;
        let decode = |value: &[u8]| {
            BytesRow::decode(value).map_err(|source| {
                MetaError::damaged(format!("attribute '{}' of inode {ino}", name.escape_ascii()), source)
            })
        };
        version.map(|version| Ok(decode(&version.value)?.0)).transpose()
    }

    pub(crate) fn xattr_names(&self, lineage: &Lineage, ino: Ino) -> Result<Vec<Vec<u8>>, MetaError> {
        let (mut names, mut from) = (Vec::new(), Vec::new());
        loop {
            let page = lineage.scan(&self.rows, &|id| key::xattrs(id, ino), &from, 256)?;
            names.extend(page.items.into_iter().filter_map(|(mut name, _)| name.pop().map(|_| name)));
            match page.next {
                Some(next) => from = next,
                None => return Ok(names),
            }
        }
    }
}
