//! Snapshots and clones: a counter each, and the versions that they keep alive.

use std::sync::Arc;

use forebay_format::{
    key::{self, Key, VERSION_LEN},
    row::{SubvolumeRow, TOMBSTONE},
};
use forebay_types::{Generation, Ino, SubvolumeId};

use super::{DirEntry, Namespace, Pieces};
use crate::{
    error::MetaError,
    inode::Inode,
    log::Urgency,
    rows::{KeyedRow, Page},
    tree::Lineage,
    txn::{Txn, decode_key},
};

/// Rows that one step of the collection looks at.
const COLLECT_STEP: usize = 4096;

/// A subvolume as it was at a generation. Reads only.
#[derive(Clone, Debug)]
pub struct Snapshot {
    ns: Arc<Namespace>,
    lineage: Lineage,
}

impl Namespace {
    /// Freezes a subvolume as it is now, and returns the generation by which it is then known. Takes the same time whatever it holds.
    ///
    /// # Errors
    /// [`MetaError::NoSubvolume`].
    pub fn take_snapshot(&self, at: SubvolumeId) -> Result<Generation, MetaError> {
        self.change(at, Urgency::Normal, &[], |txn| {
            let mut row = subvolume(txn, at)?;
            let frozen = row.generation;
            row.snapshots.push(frozen);
            row.generation = frozen.next();
            txn.put_subvolume(at, row);
            Ok(frozen)
        })
    }

    /// Gives a snapshot up. Versions that only it showed are then removed by [`Namespace::collect_versions`].
    ///
    /// # Errors
    /// [`MetaError::NotFound`] where there is none of that generation, [`MetaError::Invalid`] while a clone is based on it.
    pub fn drop_snapshot(&self, at: SubvolumeId, generation: Generation) -> Result<(), MetaError> {
        self.change(at, Urgency::Reclaim, &[], |txn| {
            if txn.owner.subvolumes.values().any(|row| row.origin == Some((at, generation))) {
                return Err(MetaError::Invalid("a clone is based on this snapshot"));
            }
            let mut row = subvolume(txn, at)?;
            let found = row.snapshots.iter().position(|held| *held == generation);
            row.snapshots.remove(found.ok_or(MetaError::NotFound)?);
            txn.put_subvolume(at, row);
            Ok(())
        })
    }

    /// Makes a subvolume that begins as a snapshot and is then written on its own.
    ///
    /// # Errors
    /// [`MetaError::NotFound`] where there is no such snapshot.
    pub fn clone_snapshot(&self, at: SubvolumeId, generation: Generation) -> Result<SubvolumeId, MetaError> {
        self.change(at, Urgency::Normal, &[], |txn| {
            if !subvolume(txn, at)?.snapshots.contains(&generation) {
                return Err(MetaError::NotFound);
            }
            let id = SubvolumeId(txn.owner.counters.subvolume);
            txn.owner.counters.subvolume += 1;
            txn.owner.counters_changed = true;
            let row = SubvolumeRow {
                generation: Generation::FIRST,
                origin: Some((at, generation)),
                snapshots: Vec::new(),
            };
            txn.put_subvolume(id, row);
            Ok(id)
        })
    }

    /// A view of a snapshot.
    ///
    /// # Errors
    /// [`MetaError::NotFound`] where there is none of that generation.
    pub fn snapshot(
        self: &Arc<Self>,
        at: SubvolumeId,
        generation: Generation,
    ) -> Result<Snapshot, MetaError> {
        let owner = self.lock();
        let held = owner.subvolumes.get(&at).is_some_and(|row| row.snapshots.contains(&generation));
        if !held {
            return Err(MetaError::NotFound);
        }
        let lineage = owner.lineage(at, Some(generation))?;
        drop(owner);
        Ok(Snapshot { ns: Arc::clone(self), lineage })
    }

    /// Removes versions of a subvolume that neither its head nor a snapshot shows, a step at a time from the key `from` on. Returns where the next
    /// step begins; `None` at the end.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn collect_versions(
        &self,
        at: SubvolumeId,
        from: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>, MetaError> {
        self.change(at, Urgency::Reclaim, &[], |txn| {
            let row = subvolume(txn, at)?;
            let origin = row.origin.map(|(id, held)| txn.owner.lineage(id, Some(held))).transpose()?;
            let prefix = key::subvolume_rows(at);
            let start = from.unwrap_or_else(|| prefix.clone());
            let page = self.rows.page(&start, key::after_prefix(&prefix).as_deref(), COLLECT_STEP)?;
            let (whole, next) = self.whole_items(page)?;
            for versions in whole.chunk_by(|a, b| item_bytes(&a.0) == item_bytes(&b.0)) {
                self.collect_item(txn, &row.snapshots, origin.as_ref(), versions)?;
            }
            Ok(next)
        })
    }

    /// The items of a page of which it has all versions, and the key from which to go on: at an item's first version.
    fn whole_items(&self, page: Page) -> Result<(Vec<KeyedRow>, Option<Vec<u8>>), MetaError> {
        let Page { mut rows, next } = page;
        let (Some(_), Some((last, _))) = (&next, rows.last()) else { return Ok((rows, next)) };
        let item = item_bytes(last).to_vec();
        let whole = rows.partition_point(|(key, _)| item_bytes(key) < item.as_slice());
        if whole == 0 {
            return Ok((self.rows.with_prefix(&item)?, key::after_prefix(&item)));
        }
        rows.truncate(whole);
        Ok((rows, Some(item)))
    }

    /// Of one item's versions, newest first, removes those that nobody sees.
    fn collect_item(
        &self,
        txn: &mut Txn<'_>,
        snapshots: &[Generation],
        origin: Option<&Lineage>,
        versions: &[KeyedRow],
    ) -> Result<(), MetaError> {
        let mut newer = None::<Generation>;
        let mut kept = Vec::new();
        for (key, value) in versions {
            let Key::Versioned(_, item, generation) = decode_key(key)? else { continue };
            if newer.is_none_or(|newer| snapshots.iter().any(|held| (generation..newer).contains(held))) {
                newer = Some(generation);
                kept.push((key, value, item));
            } else {
                txn.drop_row_extent(&item, value)?;
                txn.put_raw(key.clone(), None);
            }
        }
        // A tombstone hides nothing once no older version, and nothing in what the subvolume was cloned from, is below it.
        while let Some((key, value, item)) = kept.pop() {
            let hides = match origin {
                Some(origin) => origin.get(&self.rows, &item)?.is_some(),
                None => false,
            };
            if value.as_slice() != TOMBSTONE || hides {
                break;
            }
            txn.put_raw(key.clone(), None);
        }
        Ok(())
    }
}

fn subvolume(txn: &Txn<'_>, at: SubvolumeId) -> Result<SubvolumeRow, MetaError> {
    txn.owner.subvolumes.get(&at).cloned().ok_or(MetaError::NoSubvolume(at))
}

/// A versioned key without the version.
fn item_bytes(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(VERSION_LEN)]
}

impl Snapshot {
    /// The inode that a name in `parent` stood for.
    ///
    /// # Errors
    /// [`MetaError::NotFound`] and others.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Inode, MetaError> {
        let _turn = self.ns.lock();
        let dentry = self.ns.read_dentry(&self.lineage, parent, name)?.ok_or(MetaError::NotFound)?;
        self.ns.read_inode(&self.lineage, dentry.ino)
    }

    /// An inode as it was.
    ///
    /// # Errors
    /// [`MetaError::Stale`] where there was none.
    pub fn inode(&self, ino: Ino) -> Result<Inode, MetaError> {
        let _turn = self.ns.lock();
        self.ns.read_inode(&self.lineage, ino)
    }

    /// About `limit` entries after the name `after`, in the order of their names; none at the end.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn entries(
        &self,
        parent: Ino,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<DirEntry>, MetaError> {
        let _turn = self.ns.lock();
        self.ns.entries_of(&self.lineage, parent, after, limit)
    }

    /// What `len` bytes from `from` on consisted of.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn map(&self, ino: Ino, from: u64, len: u64) -> Result<Pieces, MetaError> {
        let _turn = self.ns.lock();
        let inode = self.ns.read_inode(&self.lineage, ino)?;
        self.ns.map_inode(&self.lineage, &inode, (from, len), usize::MAX, false)
    }

    /// The value of an extended attribute, if it had it.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>, MetaError> {
        let _turn = self.ns.lock();
        self.ns.read_xattr(&self.lineage, ino, name)
    }

    /// The names of an inode's extended attributes.
    ///
    /// # Errors
    /// [`MetaError`].
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>, MetaError> {
        let _turn = self.ns.lock();
        self.ns.xattr_names(&self.lineage, ino)
    }
}
