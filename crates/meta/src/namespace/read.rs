//! Reading: from the caches where they have it, else in turn from the rows. A cache is filled only by the thread whose turn it is, so that
//! it never gets what a change has just replaced.

use std::sync::{
    Arc,
    atomic::{Ordering, fence},
};

use forebay_format::{
    key::{self, Item},
    row::{BytesRow, Cut, CutsRow, DentryRow, DirectoryRow, Extent, InodeRow, Row},
};
use forebay_types::{FileKind, Generation, Ino, SubvolumeId, limits::NAME_MAX};

use super::{DirEntry, Namespace};
use crate::{
    blocks::Placed,
    cuts,
    error::MetaError,
    inode::Inode,
    tree::{Lineage, Version},
};

impl Namespace {
    /// The generation that a subvolume writes in.
    ///
    /// # Errors
    /// [`MetaError::NoSubvolume`].
    pub fn generation(&self, at: SubvolumeId) -> Result<Generation, MetaError> {
        Ok(self.lock().lineage(at, None)?.head().1)
    }

    /// The inode with this number.
    ///
    /// # Errors
    /// [`MetaError::Stale`] where there is none.
    pub fn inode(&self, at: SubvolumeId, ino: Ino) -> Result<Arc<Inode>, MetaError> {
        if let Some(inode) = self.inodes.get(&(at, ino)) {
            return Ok(inode);
        }
        let owner = self.lock();
        let lineage = owner.lineage(at, None)?;
        self.inode_locked(&lineage, ino)
    }

    /// The inode that a name in `parent` stands for.
    ///
    /// # Errors
    /// [`MetaError::NotFound`], [`MetaError::NotDirectory`], [`MetaError::NameTooLong`].
    pub fn lookup(&self, at: SubvolumeId, parent: Ino, name: &[u8]) -> Result<Arc<Inode>, MetaError> {
        if name.len() > NAME_MAX {
            return Err(MetaError::NameTooLong(name.len()));
        }
        if let Some(found) = self.lookup_cached(at, parent, name) {
            return found;
        }
        let owner = self.lock();
        let lineage = owner.lineage(at, None)?;
        match self.dentry_locked(&lineage, parent, name)? {
            Some(dentry) => self.inode_locked(&lineage, dentry.ino),
            None if self.inode_locked(&lineage, parent)?.is_directory() => Err(MetaError::NotFound),
            None => Err(MetaError::NotDirectory(parent)),
        }
    }

    /// The same from the caches alone, without waiting for a turn; `None` where they do not have all of it, or a change is being taken in.
    ///
    /// Name and inode are of one moment: [`Namespace::changes`] is even and the same before and after they are looked at.
    fn lookup_cached(
        &self,
        at: SubvolumeId,
        parent: Ino,
        name: &[u8],
    ) -> Option<Result<Arc<Inode>, MetaError>> {
        let before = self.changes.load(Ordering::Acquire);
        let found = self.dentries.get(at, parent, name).filter(|_| before.is_multiple_of(2))?;
        // A missing name is answered for a directory that is there.
        let inode = self.inodes.get(&(at, found.map_or(parent, |dentry| dentry.ino)))?;
        fence(Ordering::Acquire);
        if self.changes.load(Ordering::Relaxed) != before {
            return None;
        }
        match found {
            Some(_) => Some(Ok(inode)),
            None => inode.is_directory().then_some(Err(MetaError::NotFound)),
        }
    }

    /// About `limit` entries of a directory in the order of their names, those after the name `after` (`None`: from the first). An empty page is
    /// the end.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn entries(
        &self,
        at: SubvolumeId,
        parent: Ino,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<DirEntry>, MetaError> {
        let owner = self.lock();
        let lineage = owner.lineage(at, None)?;
        self.entries_of(&lineage, parent, after, limit)
    }

    pub(crate) fn entries_of(
        &self,
        lineage: &Lineage,
        parent: Ino,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<DirEntry>, MetaError> {
        // No name has a NUL, so the next one is at least this name and a byte 1; all versions of this name are below.
        let mut from = after.map(|name| [name, &[1]].concat()).unwrap_or_default();
        let mut entries = Vec::new();
        loop {
            let page = lineage.scan(&self.rows, &|id| key::dentries(id, parent), &from, limit)?;
            for (name, version) in page.items {
                let Some((_, name)) = name.split_last() else { continue };
                let row =
                    DentryRow::decode(&version.value).map_err(|source| damaged(parent, name, source))?;
                entries.push(DirEntry { name: name.to_vec(), ino: row.ino, kind: row.kind });
            }
            match page.next {
                Some(next) if entries.is_empty() => from = next,
                _ => return Ok(entries),
            }
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`MetaError::Invalid`] where the inode is none.
    pub fn read_link(&self, at: SubvolumeId, ino: Ino) -> Result<Vec<u8>, MetaError> {
        if self.inode(at, ino)?.row.kind != FileKind::Symlink {
            return Err(MetaError::Invalid("not a symbolic link"));
        }
        self.inline(at, ino)
    }

    /// The bytes of an inode's inline row; none where it has no such row.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn inline(&self, at: SubvolumeId, ino: Ino) -> Result<Vec<u8>, MetaError> {
        let owner = self.lock();
        let lineage = owner.lineage(at, None)?;
        self.inline_of(&lineage, ino)
    }

    pub(crate) fn inline_of(&self, lineage: &Lineage, ino: Ino) -> Result<Vec<u8>, MetaError> {
        let Some(version) = lineage.get(&self.rows, &Item::Inline(ino))? else { return Ok(Vec::new()) };
        let row = BytesRow::decode(&version.value)
            .map_err(|source| MetaError::damaged(format!("inline data of inode {ino}"), source))?;
        Ok(row.0)
    }

    pub(crate) fn inode_locked(&self, lineage: &Lineage, ino: Ino) -> Result<Arc<Inode>, MetaError> {
        let key = (lineage.head().0, ino);
        if let Some(inode) = self.inodes.get(&key) {
            return Ok(inode);
        }
        let inode = Arc::new(self.read_inode(lineage, ino)?);
        self.inodes.insert(key, Arc::clone(&inode));
        Ok(inode)
    }

    pub(crate) fn read_inode(&self, lineage: &Lineage, ino: Ino) -> Result<Inode, MetaError> {
        let version = lineage.get(&self.rows, &Item::Inode(ino))?.ok_or(MetaError::Stale(ino))?;
        self.inode_of(lineage, ino, &version)
    }

    /// The inode whose row this is, with what other rows have of it.
    pub(crate) fn inode_of(
        &self,
        lineage: &Lineage,
        ino: Ino,
        version: &Version,
    ) -> Result<Inode, MetaError> {
        let row = InodeRow::decode(&version.value)
            .map_err(|source| MetaError::damaged(format!("inode {ino}"), source))?;
        let directory = match row.kind {
            FileKind::Directory => {
                let wrong =
                    |source| MetaError::damaged(format!("times and counts of directory {ino}"), source);
                let version = lineage
                    .get(&self.rows, &Item::Directory(ino))?
                    .ok_or_else(|| wrong(forebay_format::FormatError::Truncated { what: "the row" }))?;
                Some(DirectoryRow::decode(&version.value).map_err(wrong)?)
            }
            _ => None,
        };
        let cuts = if row.has_cuts { self.cuts_of(lineage, ino)? } else { Vec::new() };
        Ok(Inode { ino, row, directory, cuts, row_at_head: version.at_head })
    }

    fn cuts_of(&self, lineage: &Lineage, ino: Ino) -> Result<Vec<Cut>, MetaError> {
        let wrong = |source| MetaError::damaged(format!("cuts of inode {ino}"), source);
        let version = lineage
            .get(&self.rows, &Item::Cuts(ino))?
            .ok_or_else(|| wrong(forebay_format::FormatError::Truncated { what: "the row" }))?;
        Ok(CutsRow::decode(&version.value).map_err(wrong)?.0)
    }

    /// What a name stands for at the head, which the cache has from then on. Also missing ones: whoever makes something has asked for it before.
    pub(crate) fn dentry_locked(
        &self,
        lineage: &Lineage,
        parent: Ino,
        name: &[u8],
    ) -> Result<Option<DentryRow>, MetaError> {
        let at = lineage.head().0;
        if let Some(found) = self.dentries.get(at, parent, name) {
            return Ok(found);
        }
        let found = match self.given.never_had(at, parent, name) {
            true => None,
            false => self.read_dentry(lineage, parent, name)?,
        };
        self.dentries.put(at, parent, name, found);
        Ok(found)
    }

    pub(crate) fn read_dentry(
        &self,
        lineage: &Lineage,
        parent: Ino,
        name: &[u8],
    ) -> Result<Option<DentryRow>, MetaError> {
        let version = lineage.get(&self.rows, &Item::Dentry(parent, name.to_vec()))?;
        version
            .map(|version| DentryRow::decode(&version.value).map_err(|source| damaged(parent, name, source)))
            .transpose()
    }

    pub(crate) fn block_locked(
        &self,
        lineage: &Lineage,
        ino: Ino,
        block: u32,
    ) -> Result<Arc<[Placed]>, MetaError> {
        let key = (lineage.head().0, ino, block);
        if let Some(placed) = self.blocks.get(&key) {
            return Ok(placed);
        }
        let placed: Arc<[Placed]> = self.read_block(lineage, ino, block)?.into();
        self.blocks.insert(key, Arc::clone(&placed));
        Ok(placed)
    }

    pub(crate) fn read_block(
        &self,
        lineage: &Lineage,
        ino: Ino,
        block: u32,
    ) -> Result<Vec<Placed>, MetaError> {
        let mut from = Vec::new();
        let mut placed = Vec::new();
        loop {
            let page = lineage.scan(&self.rows, &|id| key::block(id, ino, block), &from, 256)?;
            for (suffix, version) in page.items {
                let place = || format!("extents of block {block} of inode {ino}");
                let Ok(offset) = <[u8; 4]>::try_from(suffix.as_slice()) else { continue };
                let extent =
                    Extent::decode(&version.value).map_err(|source| MetaError::damaged(place(), source))?;
                placed.push(Placed { offset: u32::from_be_bytes(offset), extent, at_head: version.at_head });
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(placed),
            }
        }
    }

    /// The blocks from `first` to `last` that have extents, each once, as far as these have at most `limit` rows. Blocks in a cut have none.
    pub(crate) fn blocks_of(
        &self,
        lineage: &Lineage,
        inode: &Inode,
        (first, last): (u32, u32),
        limit: usize,
    ) -> Result<Blocks, MetaError> {
        let page_len = limit.saturating_add(1).min(512);
        let mut from = first.to_be_bytes().to_vec();
        let (mut found, mut rows) = (Blocks::default(), 0);
        'pages: loop {
            let page = lineage.scan(&self.rows, &|id| key::extents(id, inode.ino), &from, page_len)?;
            for (suffix, _) in &page.items {
                let Some((block, _)) = extent_place(suffix) else { continue };
                if block > last {
                    return Ok(found);
                }
                if let Some(cut) = cuts::around(&inode.cuts, block) {
                    let Some(next) = cut.last.checked_add(1).filter(|next| *next <= last) else {
                        return Ok(found);
                    };
                    from = next.to_be_bytes().to_vec();
                    continue 'pages;
                }
                if rows == limit {
                    found.more = true;
                    return Ok(found);
                }
                rows += 1;
                if found.blocks.last() != Some(&block) {
                    found.blocks.push(block);
                }
            }
            match page.next {
                Some(next) => from = next,
                None => return Ok(found),
            }
        }
    }
}

/// Blocks of a file.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    pub(crate) blocks: Vec<u32>,
    /// Whether there are more rows than were asked for.
    pub(crate) more: bool,
}

/// Block and offset, as the key of an extent has them after its inode.
pub(crate) fn extent_place(suffix: &[u8]) -> Option<(u32, u32)> {
    let (block, rest) = suffix.split_first_chunk()?;
    Some((u32::from_be_bytes(*block), u32::from_be_bytes(*rest.first_chunk()?)))
}

fn damaged(parent: Ino, name: &[u8], source: forebay_format::FormatError) -> MetaError {
    MetaError::damaged(format!("entry '{}' of directory {parent}", name.escape_ascii()), source)
}
